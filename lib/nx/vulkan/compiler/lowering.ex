defmodule Nx.Vulkan.Compiler.Lowering do
  @moduledoc false
  # Lowers the steps of a fusion group to one program. It decides how the program reads each tensor, and
  # neither which operations share a program nor when it runs.
  #
  # A value of a step is a node of the program, an input, or a view of an input: views and reshapes cost
  # nothing, they only say how an input is read. Each input is read over the program's iteration space,
  # whatever shape it has.

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Indexed, Movement, Reduction, Storage}
  alias Nx.Vulkan.{Catalogue, ProgramBuilder}

  @reductions Catalogue.names(family: :reduction)
  @views Catalogue.names(family: :view)

  @typedoc """
  `{op, out, args}`: an argument is `{:input, index}`, `{:step, index}`, `{:constant, template, number}`
  or `{:other, option}`.
  """
  @type step :: {atom(), T.t(), [tuple()]}

  @doc """
  The program of the steps, only the last of which may be a reduction, or several sums of the same axes; `inputs` are the templates of the tensors
  that they read. The program has `{:input, index}` for an input's reference.
  """
  @spec program([step()], [T.t()]) :: {:ok, ProgramBuilder.program()} | {:error, String.t()}
  def program(steps, inputs) do
    {builder, _values} = values(steps, inputs)

    if ProgramBuilder.fits?(builder),
      do: {:ok, ProgramBuilder.program(builder)},
      else: {:error, "too many values"}
  end

  @doc """
  The program of the steps, and the values of inputs and steps by their references. A step may be a product or a
  convolution: it is no part of the program, which has `:contraction` for its reference.
  """
  @spec values([step()], [T.t()]) :: {ProgramBuilder.t(), map()}
  def values(steps, inputs) do
    space = iteration_space(List.last(steps), steps, inputs)
    start = {ProgramBuilder.new(space), values(inputs)}

    for {{op, out, args}, index} <- Enum.with_index(steps), reduce: start do
      {builder, values} ->
        {value, builder} = lower(op, out, args, :element, {builder, values})
        {builder, Map.put(values, {:step, index}, value)}
    end
  end

  @typedoc "A step, and what it is computed for: each element of the iteration space, or each row, of a tensor of that shape."
  @type row_step :: {atom(), T.t(), [tuple()], :element | {:row, tuple()}}

  @doc """
  The row program of the steps, any of which may reduce the last `row_axes` axes of the iteration space, and the
  values of those steps that are results, by their indices and whether they have a value for each element: the
  arguments of `Nx.Vulkan.Native.run_rows/3`.
  """
  @spec row_program([row_step()], [T.t()], [non_neg_integer()], {tuple(), pos_integer()}) ::
          {:ok,
           {{[tuple()], pos_integer(), [{non_neg_integer(), boolean()}]},
            [ProgramBuilder.operand()], tuple()}}
          | {:error, String.t()}
  def row_program(steps, inputs, results, {shape, row_axes}) do
    start = {ProgramBuilder.new(shape), values(inputs)}

    {builder, values} =
      for {{op, out, args, kind}, index} <- Enum.with_index(steps), reduce: start do
        {builder, values} ->
          space = with {:row, shape} <- kind, do: {:row, shape, row_axes}
          {value, builder} = lower(op, out, args, space, {builder, values})
          {builder, Map.put(values, {:step, index}, value)}
      end

    outputs =
      for index <- results, {:node, _} = key <- [Map.fetch!(values, {:step, index})] do
        {_op, _out, _args, kind} = Enum.at(steps, index)
        {ProgramBuilder.index(builder, key), kind == :element}
      end

    if ProgramBuilder.fits?(builder) and length(outputs) == length(results) do
      {nodes, inputs, shape} = ProgramBuilder.program(builder)
      {:ok, {{nodes, row_axes, outputs}, inputs, shape}}
    else
      {:error, "too many values"}
    end
  end

  @doc """
  The programs of a map group: of each part the nodes, inputs and shape of its steps, and what it stores, as
  `Nx.Vulkan.Native.run_maps/2` takes them.
  """
  @spec map_parts([step()], [T.t()], [tuple()]) :: {:ok, [tuple()]} | {:error, String.t()}
  def map_parts(steps, inputs, parts) do
    parts = Enum.map(parts, &map_part(&1, steps, inputs))
    if nil in parts, do: {:error, "too many values"}, else: {:ok, parts}
  end

  defp map_part({range, shape, stores}, steps, inputs) do
    start = {ProgramBuilder.new(shape), values(inputs)}

    {builder, values} =
      for {{op, out, args}, index} <- Enum.with_index(Enum.slice(steps, range), range.first),
          reduce: start do
        {builder, values} ->
          {value, builder} = lower(op, out, args, :element, {builder, values})
          {builder, Map.put(values, {:step, index}, value)}
      end

    keys = for {step, _store} <- stores, do: Map.fetch!(values, {:step, step})

    if ProgramBuilder.fits?(builder) and Enum.all?(keys, &match?({:node, _}, &1)) do
      {nodes, inputs, shape} = ProgramBuilder.program(builder)

      stores =
        for {key, {_step, {result, offset, strides}}} <- Enum.zip(keys, stores),
            do: {ProgramBuilder.index(builder, key), result, offset, strides}

      {nodes, inputs, shape, stores}
    end
  end

  defp values(inputs) do
    for {input, index} <- Enum.with_index(inputs), reference = {:input, index}, into: %{} do
      {reference, {:dense, {reference, input.type, input.shape}}}
    end
  end

  # A reduction goes through its operand.
  defp iteration_space({op, _out, [operand | _]}, steps, inputs) when op in @reductions do
    case operand do
      {:step, index} -> steps |> Enum.at(index) |> elem(1) |> Map.fetch!(:shape)
      {:input, index} -> Enum.at(inputs, index).shape
    end
  end

  defp iteration_space({_op, out, _args}, _steps, _inputs), do: out.shape

  # A value is `{:node, key}`, or an input that is read: `{:dense, operand}` or `{:view, operand, shape}`.

  defp lower(op, out, _args, _space, {builder, _values}) when op in [:dot, :conv],
    do: {{:dense, {:contraction, out.type, out.shape}}, builder}

  defp lower(:squeeze, out, [operand, {:other, axes}], space, {builder, values}) do
    case value(operand, values) do
      {:view, {ref, type, offset, strides}, _shape} ->
        kept = for {stride, axis} <- Enum.with_index(strides), axis not in axes, do: stride
        {{:view, {ref, type, offset, kept}, out.shape}, builder}

      value ->
        {reshaped(value, out, space), builder}
    end
  end

  # Fusion joins a reshape only where the group goes through the elements in row-major order.
  defp lower(:reshape, out, [operand | _], space, {builder, values}),
    do: {reshaped(value(operand, values), out, space), builder}

  defp lower(op, out, [operand | options], _space, {builder, values}) when op in @views do
    options = for({:other, option} <- options, do: option)

    case value(operand, values) do
      {:dense, {ref, type, shape}} ->
        {offset, strides} = Movement.view_of(op, shape, Movement.strides(shape), options)
        {{:view, {ref, type, offset, strides}, out.shape}, builder}

      {:view, {ref, type, start, strides}, shape} ->
        {offset, strides} = Movement.view_of(op, shape, strides, options)
        {{:view, {ref, type, start + offset, strides}, out.shape}, builder}

      # Of values that are computed only a row's is broadcast, to its elements.
      {:node, _} = value when op == :broadcast ->
        {value, builder}
    end
  end

  defp lower(:take, out, [tensor, indices, {:other, axis}], :element, {builder, values}) do
    {:dense, {ref, type, shape}} = value(tensor, values)
    {:dense, index} = value(indices, values)
    {_ref, index_type, indices_shape} = index
    {strides, index_strides, step} = Indexed.taken(shape, indices_shape, axis)
    check = Indexed.check(:take, index_type, [axis], shape)
    attribute = if check, do: {[step], check}, else: [step]
    index = ProgramBuilder.view(index, 0, index_strides)
    gather(out, {ref, type, 0, strides}, [index], attribute, {builder, values})
  end

  defp lower(:dynamic_slice, out, [tensor | args], :element, {builder, values}) do
    {:dense, {ref, type, shape}} = value(tensor, values)
    {starts, [{:other, lengths}, {:other, steps}]} = Enum.split(args, -2)

    starts =
      for start <- starts do
        case start do
          {:other, number} -> number
          {:constant, _template, number} -> number
          start -> start |> value(values) |> elem(1)
        end
      end

    {offset, strides, indices, chosen} =
      Movement.slice_view(shape, Movement.strides(shape), starts, lengths, steps)

    gather(out, {ref, type, offset, strides}, indices, chosen, {builder, values})
  end

  defp lower(op, out, args, space, {builder, values}) do
    {options, operands} = Enum.split_with(args, &match?({:other, _}, &1))
    # A reduction of rows reads elements.
    space = if op in @reductions, do: :element, else: space
    operands = shifts_by_constants(op, Enum.map(operands, &value(&1, values)))
    {keys, builder} = Enum.map_reduce(operands, builder, &key(&1, space, &2))
    key = {:node, map_size(values)}
    attribute = attribute(op, builder.shape, options)
    {key, ProgramBuilder.op(builder, key, op, out.type, keys, attribute)}
  end

  # Elements of the view, each of which the indices move by steps.
  defp gather(out, view, indices, attribute, {builder, values}) do
    {keys, builder} = Enum.map_reduce([view | indices], builder, &input/2)
    key = {:node, map_size(values)}
    {key, ProgramBuilder.op(builder, key, :gather, out.type, keys, attribute)}
  end

  # A shift by a number that the kernel knows is one instruction, as it need not be compared with the width.
  defp shifts_by_constants(op, [value, {:dense, {:scalar, type, binary}}])
       when op in [:left_shift, :right_shift],
       do: [value, {:dense, {:constant, type, binary}}]

  defp shifts_by_constants(_op, operands), do: operands

  # A tensor that is read once for each row is aligned with the rows by its shape.
  defp reshaped({:dense, {ref, type, _shape}}, out, {:row, _, _}),
    do: {:dense, {ref, type, out.shape}}

  # A view of the reshaped contraction is by strides of its own shape.
  defp reshaped({:dense, {:contraction, type, _shape}}, out, _space),
    do: {:dense, {:contraction, type, out.shape}}

  defp reshaped(value, _out, _space), do: value

  defp attribute(:iota, _shape, [{:other, axis}]), do: axis

  defp attribute(op, shape, [{:other, options}]) when op in @reductions,
    do: Reduction.attribute(op, shape, options)

  defp attribute(_op, _shape, []), do: :none

  defp value({:constant, template, number}, _values),
    do: {:dense, Storage.operand(constant(template, number))}

  defp value(reference, values), do: Map.fetch!(values, reference)

  # The constant as a scalar, which broadcasts to whatever shape it has.
  @spec constant(T.t(), number() | Complex.t()) :: T.t()
  def constant(template, number), do: Storage.number(%{template | shape: {}, names: []}, number)

  # The key of the value in the program.
  defp key({:node, _} = key, _space, builder), do: {key, builder}

  defp key({:dense, operand}, :element, builder), do: input(over(operand, builder.shape), builder)

  defp key({:view, {ref, type, offset, strides}, shape}, :element, builder),
    do: input({ref, type, offset, over_axes(strides, shape, builder.shape)}, builder)

  defp key({:dense, {kind, _, _} = number}, _space, builder) when kind in [:scalar, :constant],
    do: input(number, builder)

  defp key({:dense, {ref, type, from}}, {:row, _, _} = space, builder),
    do: key({:view, {ref, type, 0, dense(from)}, from}, space, builder)

  defp key({:view, {ref, type, offset, strides}, from}, {:row, shape, row_axes}, builder) do
    own =
      Enum.zip_with(
        over_axes(strides, from, shape),
        Tuple.to_list(shape),
        &if(&2 == 1, do: 0, else: &1)
      )

    # The shape of the rows has their axes, of one element each, or lacks them.
    missing = tuple_size(builder.shape) - length(own)
    strides = if missing == row_axes, do: own ++ List.duplicate(0, missing), else: own
    input({ref, type, offset, strides}, builder)
  end

  defp dense(shape) do
    {strides, _} =
      shape |> Tuple.to_list() |> Enum.reverse() |> Enum.map_reduce(1, &{&2, &1 * &2})

    Enum.reverse(strides)
  end

  defp input(operand, builder), do: {operand, ProgramBuilder.input(builder, operand, operand)}

  # A dense input with the iteration space's number of elements is read in their order, and a single element
  # is the same everywhere, whatever reshapes lie between.
  defp over({ref, type, from}, shape) when is_tuple(from) do
    cond do
      Nx.size(from) == Nx.size(shape) -> {ref, type, shape}
      Nx.size(from) == 1 -> {ref, type, {}}
      true -> {ref, type, from}
    end
  end

  defp over(scalar, _shape), do: scalar

  # A view is broadcast from its last axes on.
  defp over_axes(strides, from, shape) do
    missing = tuple_size(shape) - tuple_size(from)

    own =
      [strides, Tuple.to_list(from), shape |> Tuple.to_list() |> Enum.drop(missing)]
      |> Enum.zip_with(fn [stride, dim, over] -> if dim == over, do: stride, else: 0 end)

    List.duplicate(0, missing) ++ own
  end
end
