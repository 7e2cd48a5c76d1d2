defmodule Nx.Vulkan.Compiler.ContractionGroup do
  @moduledoc false
  # A product or a convolution with what follows it, as a block of an expression: one kernel, or what the native side
  # makes of it. Operands that are views, transposes say, are read as they are, and the result is written in the order
  # in which it is wanted. It runs such groups; which operations form one is decided in
  # `Nx.Vulkan.Compiler.ContractionFusion`.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Defn.Expr
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Convolution, Dispatch, Dot, Movement, ProgramRecorder, Storage}
  alias Nx.Vulkan.Compiler.{FusionGroup, Lowering, RowGroup}
  alias Nx.Vulkan.ProgramBuilder

  @enforce_keys [
    :steps,
    :contraction,
    :keeps_contraction,
    :type,
    :shape,
    :operands,
    :axes,
    :epilogue
  ]
  defstruct @enforce_keys ++ [:row]

  @typedoc """
  The operations in order, and the index of the contraction among them, which is a result, too, where it is kept.

  The contraction has a type and, as it is written, a shape. Its operands are `{index of the tensor, type, offset}`, its
  axes those of `Nx.Vulkan.Backend.Dot.axes/3` or `Nx.Vulkan.Backend.Convolution.axes/4`. The epilogue is a program and
  the index of its input that stands for the contraction.

  A row that nothing else reads may be computed here, too: `row` is the index of its tensor, the group that computes it, and
  the number of tensors that this one reads, which come before the others.
  """
  @type t :: %__MODULE__{
          steps: [Lowering.step()],
          contraction: non_neg_integer(),
          keeps_contraction: boolean(),
          type: Nx.Type.t(),
          shape: tuple(),
          operands: [{non_neg_integer(), Nx.Type.t(), integer()}],
          axes: tuple(),
          epilogue: nil | {[tuple()], [ProgramBuilder.operand()], non_neg_integer()},
          row: nil | {non_neg_integer(), RowGroup.t(), pos_integer()}
        }

  @doc """
  The group of these steps, one of which is a product or a convolution; `inputs` are the templates of the tensors that
  they read.
  """
  @spec new([Lowering.step()], [T.t()], boolean()) :: {:ok, t()} | :error
  def new(steps, inputs, keeps_contraction) do
    {op, out, args} = step = Enum.find(steps, fn {op, _, _} -> op in [:dot, :conv] end)
    {options, [first, second]} = Enum.split_with(args, &match?({:other, _}, &1))
    {builder, values} = Lowering.values(steps, inputs)
    templates = templates(steps, inputs)

    with true <- ProgramBuilder.fits?(builder),
         {:ok, first} <- operand(first, values, templates),
         {:ok, second} <- operand(second, values, templates),
         {:ok, shape, strides, epilogue} <-
           result(builder, values[{:step, length(steps) - 1}], out),
         true <- not keeps_contraction or strides == Movement.strides(out.shape),
         options = for({:other, option} <- options, do: option),
         {:ok, operands, axes} <- axes(op, {out.shape, strides}, [first, second], options) do
      {:ok,
       %__MODULE__{
         steps: steps,
         contraction: Enum.find_index(steps, &(&1 == step)),
         keeps_contraction: keeps_contraction,
         type: out.type,
         shape: shape,
         operands: operands,
         axes: axes,
         epilogue: epilogue
       }}
    else
      _ -> :error
    end
  end

  @doc "Whether one operand of the contraction, and one alone, is the tensor of this index from its first element on."
  @spec operand?(t(), non_neg_integer()) :: boolean()
  def operand?(%__MODULE__{operands: operands}, index),
    do: match?([{_, _, 0}], for({^index, _, _} = operand <- operands, do: operand))

  @doc "The group that computes its tensor of this index, a row, from `count` tensors."
  @spec with_row(t(), non_neg_integer(), RowGroup.t(), pos_integer()) :: t()
  def with_row(%__MODULE__{row: nil} = group, index, row, count),
    do: %{group | row: {index, row, count}}

  # The operands in their order, and the axes.
  defp axes(
         :dot,
         {_shape, strides},
         [{left, {left_shape, left_strides}}, {right, {right_shape, right_strides}}],
         [contract, batch, right_contract, right_batch]
       ) do
    {axes, swap?} =
      Dot.axes(
        {left_shape, left_strides, contract, batch},
        {right_shape, right_strides, right_contract, right_batch},
        strides
      )

    {:ok, if(swap?, do: [right, left], else: [left, right]), axes}
  end

  defp axes(:conv, out, [{input, of_input}, {kernel, of_kernel}], [options]) do
    with {:ok, axes, input_first?} <- Convolution.axes(out, of_input, of_kernel, options),
         do: {:ok, if(input_first?, do: [input, kernel], else: [kernel, input]), axes}
  end

  # The tensors of inputs and steps by their references.
  defp templates(steps, inputs) do
    inputs = for {input, index} <- Enum.with_index(inputs), do: {{:input, index}, input}
    steps = for {{_op, out, _args}, index} <- Enum.with_index(steps), do: {{:step, index}, out}
    Map.new(inputs ++ steps)
  end

  # An operand of the contraction, with its shape and strides.
  defp operand({kind, _} = arg, values, templates) when kind in [:input, :step] do
    %T{shape: shape} = templates[arg]

    case values[arg] do
      {:dense, {{:input, index}, type, from}} ->
        if Nx.size(from) == Nx.size(shape),
          do: {:ok, {{index, type, 0}, {shape, Movement.strides(shape)}}},
          else: :error

      {:view, {{:input, index}, type, offset, strides}, ^shape} ->
        {:ok, {{index, type, offset}, {shape, strides}}}

      _ ->
        :error
    end
  end

  defp operand(_arg, _values, _templates), do: :error

  # The shape of the contraction as it is written, the strides of its axes there, and the program that follows.
  defp result(_builder, {:dense, {:contraction, _type, shape}}, out),
    do: {:ok, shape, Movement.strides(out.shape), nil}

  defp result(_builder, {:view, {:contraction, _type, 0, strides}, shape}, out),
    do:
      with({:ok, strides} <- permuted(out.shape, shape, strides), do: {:ok, shape, strides, nil})

  defp result(builder, {:node, _key}, out) do
    {nodes, inputs, shape} = ProgramBuilder.program(builder)

    with [{product, index}] <-
           for(
             {input, i} <- Enum.with_index(inputs),
             elem(input, 0) == :contraction,
             do: {input, i}
           ),
         {:ok, strides} <- product_strides(product, out.shape, shape),
         do: {:ok, shape, strides, {nodes, List.delete_at(inputs, index), index}}
  end

  defp result(_builder, _value, _out), do: :error

  defp product_strides({:contraction, _type, shape}, from, shape),
    do: {:ok, Movement.strides(from)}

  defp product_strides({:contraction, _type, 0, strides}, from, shape),
    do: permuted(from, shape, strides)

  defp product_strides(_product, _from, _shape), do: :error

  # The strides that the axes of a tensor have in one of shape `to`, through which it is read by `strides`: as its
  # axes in another order.
  defp permuted(from, to, strides) do
    axes = fn shape, strides ->
      for {dim, stride} <- Enum.zip(Tuple.to_list(shape), strides), dim != 1, do: {dim, stride}
    end

    wanted = Map.new(Enum.zip(axes.(to, strides), axes.(to, Movement.strides(to))))
    own = axes.(from, Movement.strides(from))

    if Nx.size(from) > 0 and Enum.sort(own) == Enum.sort(Map.keys(wanted)) do
      {:ok,
       for {dim, stride} <- Enum.zip(Tuple.to_list(from), Movement.strides(from)) do
         if dim == 1, do: 0, else: wanted |> Map.fetch!({dim, stride}) |> elem(1)
       end}
    else
      :error
    end
  end

  @doc """
  The expressions of the result and of the contraction, where it is kept, as those of a block that reads these tensors.
  """
  @spec expressions(t(), [T.t()], T.t(), T.t()) :: {T.t(), T.t() | nil}
  def expressions(%__MODULE__{keeps_contraction: false} = group, inputs, result, _product),
    do: {%{result | data: block(result.data, group, inputs, result)}, nil}

  def expressions(%__MODULE__{} = group, inputs, result, product) do
    data = block(%{result.data | id: make_ref()}, group, inputs, {result, product})
    both = %T{shape: {}, names: [], type: {:tuple, 2}, data: data}

    element = fn tensor, index ->
      %{tensor | data: %{tensor.data | op: :elem, args: [both, index]}}
    end

    {element.(result, 0), element.(product, 1)}
  end

  defp block(%Expr{} = expr, group, inputs, outs),
    do: %{expr | op: :block, args: [group, inputs, outs, FusionGroup.default(length(inputs))]}

  @spec run(t(), T.t() | {T.t(), T.t()}, [T.t()]) :: T.t() | {T.t(), T.t()} | :default
  def run(%__MODULE__{type: type, axes: axes} = group, outs, args) do
    {args, row} = with_row_operand(group, args)

    operands =
      for {index, type, offset} <- group.operands do
        with nil <- elem(args, index), do: row, else: (tensor -> view(tensor, type, offset))
      end

    case {ProgramRecorder.recording?(), row, group.epilogue} do
      {true, nil, _} ->
        Dispatch.block(record(group, operands, args), :fused, outs)

      # A row program is no step of a loop.
      {true, _row, _} ->
        :default

      {false, _, nil} ->
        Dispatch.block(contract(type, operands, axes), :fused, outs)

      {false, _, epilogue} ->
        answer = contract(type, operands, axes, epilogue, group, args)
        Dispatch.block(answer, :fused, outs)
    end
  end

  defp view(tensor, type, offset) do
    {ref, _type, _shape} = Storage.buffer(tensor)
    {ref, type, offset}
  end

  # The tensors, with `nil` for the row that is computed here, and the row as an operand.
  defp with_row_operand(%__MODULE__{row: nil}, args), do: {List.to_tuple(args), nil}

  defp with_row_operand(%__MODULE__{row: {index, row, count}}, args) do
    {of_row, others} = Enum.split(args, count)
    {others |> List.insert_at(index, nil) |> List.to_tuple(), RowGroup.operand(row, of_row)}
  end

  defp contract(type, [a, b], axes), do: Native.call(contract(type, a, b, axes))

  defp contract(type, [a, b], axes, {nodes, inputs, index}, group, args) do
    epilogue = {nodes, bind(inputs, args), group.shape, index, group.keeps_contraction}
    Native.call(contract_with_epilogue(type, a, b, axes, epilogue))
  end

  # As programs, the steps of a loop. Those of convolutions have no padding.
  defp record(%__MODULE__{axes: {_, _, _, _, [_ | _]}}, _operands, _args),
    do: {:error, :unsupported, "a convolution is no program"}

  defp record(%__MODULE__{type: type, shape: shape} = group, [a, b], args) do
    with {:ok, product} <- Dispatch.compute(Dot.program(type, a, b, group.axes)),
         {:ok, result} <- follow(group.epilogue, {product, type, shape}, args),
         do: {:ok, if(group.keeps_contraction, do: {result, product}, else: result)}
  end

  defp follow(nil, {product, _type, _shape}, _args), do: {:ok, product}

  defp follow({nodes, inputs, index}, {_ref, _type, shape} = product, args) do
    inputs = inputs |> bind(args) |> List.insert_at(index, product)
    Dispatch.compute({nodes, inputs, shape})
  end

  defp bind(inputs, args) do
    operands =
      args |> Tuple.to_list() |> Enum.map(&(&1 && Storage.operand(&1))) |> List.to_tuple()

    Enum.map(inputs, &FusionGroup.bind(&1, operands))
  end
end
