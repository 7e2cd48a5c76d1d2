defmodule Nx.Vulkan.Compiler.Fused do
  @moduledoc false
  # A group of operations as a block of an expression, see `Nx.Vulkan.Compiler.Fusion`: what they are, and
  # the program that does them at once.
  #
  #   * `steps`: `{op, out, args}` each, in order; an argument is `{:input, place}`, `{:step, place}`,
  #     `{:constant, template, number}` or `{:other, option}`
  #   * `nodes`, `inputs` and `shape` as in `Nx.Vulkan.Backend.Program`, but that in the place of an
  #     input's memory there is `{:input, place}`

  require Nx.Vulkan.Native, as: Native

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Program, Reduction, Storage, Trace}
  alias Nx.Vulkan.VulkanoBackend, as: B

  @enforce_keys [:steps, :nodes, :inputs, :shape]
  defstruct @enforce_keys

  # How many tensors a group may read: `default/1` has a clause for each number.
  @inputs 18
  def most_inputs, do: @inputs

  @reductions Nx.Vulkan.Catalogue.names(family: :reduction)

  # Of a program's inputs and nodes.
  @values 255

  # The block of these steps, of which the last may be a reduction; `inputs` are their types and shapes.
  @spec new([tuple()], [T.t()]) :: {:ok, %__MODULE__{}} | {:error, String.t()}
  def new(steps, inputs) do
    placeholders =
      for {input, place} <- Enum.with_index(inputs),
          do: placeholder(place, input.type, input.shape)

    {elements, reduction} = Enum.split_while(steps, fn {op, _, _} -> op not in @reductions end)
    place = with [{_, _, [place, _]}] <- reduction, do: place, else: ([] -> last(steps))
    trace = fn -> value(place, evaluate(&trace/3, elements, placeholders)) end

    with {:ok, %T{shape: shape} = traced} <- Trace.call(trace, []),
         {inputs, nodes, [index]} = Trace.program([Trace.operand(traced)]),
         true <- length(inputs) + length(nodes) < @values || {:error, "too many values"} do
      reduction =
        for {op, out, [_, {:other, options}]} <- reduction,
            do: Reduction.node(op, out, traced, index, options)

      inputs = Enum.map(inputs, &over(&1, shape))
      {:ok, %__MODULE__{steps: steps, nodes: nodes ++ reduction, inputs: inputs, shape: shape}}
    end
  end

  defp last(steps), do: {:step, length(steps) - 1}

  # A dense input of as many elements is read in their order, and one of one is the same everywhere,
  # whatever reshapes lie between.
  defp over({{:input, _} = ref, type, from}, shape) do
    cond do
      Nx.size(from) == Nx.size(shape) -> {ref, type, shape}
      Nx.size(from) == 1 -> {ref, type, {}}
      true -> {ref, type, from}
    end
  end

  # A view is broadcast from its last axes on.
  defp over({{:input, _} = ref, type, offset, strides, from}, shape) do
    missing = tuple_size(shape) - tuple_size(from)

    over =
      [strides, Tuple.to_list(from), shape |> Tuple.to_list() |> Enum.drop(missing)]
      |> Enum.zip_with(fn [stride, dim, over] -> if dim == over, do: stride, else: 0 end)

    {ref, type, offset, List.duplicate(0, missing) ++ over}
  end

  defp over(input, _shape), do: input

  # A traced tensor in the place of an input, and of a number.
  def placeholder(place, type, shape),
    do: Trace.tensor(type, shape, {{:input, place}, type, shape})

  def constant(template, number), do: Storage.number(%{template | shape: {}, names: []}, number)

  @spec run(%__MODULE__{}, T.t(), [T.t()]) :: T.t() | :default
  def run(%__MODULE__{nodes: nodes, inputs: inputs, shape: shape}, out, args) do
    refs = args |> Enum.map(&Storage.input/1) |> List.to_tuple()

    inputs =
      for input <- inputs do
        case input do
          {{:input, place}, type, shape} ->
            dense(elem(refs, place), type, shape)

          {{:input, place}, _type, offset, strides} ->
            Storage.view(elem(refs, place), offset, strides)

          scalar ->
            scalar
        end
      end

    Program.block(Native.call(run(nodes, inputs, shape)), :fused, out)
  end

  defp dense({:scalar, _, _} = scalar, _type, _shape), do: scalar
  defp dense({ref, _type, _shape}, type, shape), do: {ref, type, shape}

  # The block's default implementation, one step after the other, for so many tensors.
  for count <- 1..@inputs do
    args = Macro.generate_arguments(count, __MODULE__)

    def default(unquote(count)),
      do: fn fused, unquote_splicing(args) -> default(fused, unquote(args)) end
  end

  defp default(%__MODULE__{steps: steps}, inputs),
    do: value(last(steps), evaluate(&call/3, steps, inputs))

  # The values of inputs and steps by their places.
  defp evaluate(call, steps, inputs) do
    values =
      for {input, place} <- Enum.with_index(inputs), into: %{}, do: {{:input, place}, input}

    for {{op, out, args}, place} <- Enum.with_index(steps), reduce: values do
      values ->
        Map.put(values, {:step, place}, call.(op, out, Enum.map(args, &value(&1, values))))
    end
  end

  defp value({:constant, template, number}, _values), do: constant(template, number)
  defp value({:other, option}, _values), do: option
  defp value(place, values), do: Map.fetch!(values, place)

  # The step on traced tensors.
  def trace(:iota, out, [axis]), do: Trace.tensor(out.type, out.shape, {:iota, [], axis})
  def trace(:eye, out, []), do: Trace.tensor(out.type, out.shape, {:eye, []})

  def trace(:squeeze, out, [
        %T{data: %B{ref: %Trace{node: {ref, type, offset, strides, _}}}},
        axes
      ]) do
    strides = for {stride, axis} <- Enum.with_index(strides), axis not in axes, do: stride
    Trace.tensor(out.type, out.shape, {ref, type, offset, strides, out.shape})
  end

  def trace(op, out, args), do: apply(B, op, [out | Enum.map(args, &traced/1)])

  defp traced(%T{type: type, shape: shape, data: %B{ref: {_, _}}} = number),
    do: Trace.tensor(type, shape, Storage.input(number))

  defp traced(arg), do: arg

  defp call(op, out, args) when op in [:iota, :eye], do: apply(B, op, [out | args] ++ [[]])
  defp call(op, out, args), do: apply(Nx.Shared.list_impl!(args), op, [out | args])
end
