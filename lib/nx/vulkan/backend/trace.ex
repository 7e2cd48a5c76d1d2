defmodule Nx.Vulkan.Backend.Trace do
  @moduledoc false
  # Turns a function of tensors into a program.
  #
  # A traced tensor is a tensor of the backend whose `ref` is no memory but this struct: an input, or an
  # operation on other operands that is still to be run. The element-wise callbacks take such operands
  # and give such results, so any Elixir function that calls them can be traced, a definition that
  # `Nx.Defn.Evaluator` evaluates as well, and what it closes over may be of the backend. Whatever needs
  # a tensor's elements ends the trace.

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.Storage
  alias Nx.Vulkan.VulkanoBackend, as: B

  # `node` is an input of programs, or an op with its operands: `{op, operands}`, or with an attribute too.
  # Equal ids are equal values.
  @enforce_keys [:id, :type, :node]
  defstruct [:id, :type, :node]

  @type t :: %__MODULE__{id: integer(), type: Nx.Type.t(), node: tuple()}

  @typedoc "An input of a program, or a traced value in the place of its buffer."
  @type operand :: Storage.input() | {t(), Nx.Type.t(), tuple()}

  # `{:ok, tensor}`, which need not be a traced one, or `{:error, why it cannot be traced}`. The function
  # is called once.
  @spec call(fun(), [T.t()]) :: {:ok, T.t()} | {:error, String.t()}
  def call(fun, arguments) do
    Nx.with_default_backend(B, fn -> {:ok, Nx.to_tensor(apply(fun, arguments))} end)
  rescue
    # BinaryBackend gives numbers to the function of window_reduce, and Elixir's operators work on them.
    ArithmeticError -> {:error, "the function computes with Elixir's numbers"}
  catch
    {__MODULE__, reason} -> {:error, reason}
  end

  @spec stop(String.t()) :: no_return()
  def stop(reason), do: throw({__MODULE__, reason})

  # A traced tensor: `node` as in the struct.
  def tensor(type, shape, node) do
    names = List.duplicate(nil, tuple_size(shape))
    %T{type: type, shape: shape, names: names, data: %B{ref: new(type, node)}}
  end

  defp new(type, node), do: %__MODULE__{id: System.unique_integer(), type: type, node: node}

  @spec operand(T.t()) :: operand()
  def operand(%T{data: %B{ref: %__MODULE__{type: type} = trace}, type: type, shape: shape}),
    do: {trace, type, shape}

  # A bitcast shares the reference.
  def operand(%T{data: %B{ref: %__MODULE__{type: other} = trace}, type: type, shape: shape}),
    do: {new(type, {:bitcast, [{trace, other, shape}]}), type, shape}

  def operand(tensor), do: Storage.input(tensor)

  @spec traced?([operand()]) :: boolean()
  def traced?([{%__MODULE__{}, _, _} | _]), do: true
  def traced?([_ | operands]), do: traced?(operands)
  def traced?([]), do: false

  # The traced value of a program's last node.
  @spec run([tuple()], [operand()]) :: t()
  def run(nodes, operands) do
    nodes
    |> Enum.reduce(operands, fn
      {op, type, args}, values ->
        trace = new(type, {op, Enum.map(args, &Enum.at(values, &1))})
        values ++ [{trace, type, {}}]

      _node, _values ->
        stop("the function does more than element-wise operations")
    end)
    |> List.last()
    |> elem(0)
  end

  # The inputs and nodes of a program that computes the operands, and the operands' indices in it.
  @spec program([operand()]) :: {[Storage.input()], [tuple()], [non_neg_integer()]}
  def program(operands) do
    {results, state} = Enum.map_reduce(operands, {%{}, [], []}, &visit/2)
    {_seen, inputs, nodes} = state
    count = length(inputs)

    place = fn
      {:input, i} -> i
      {:node, i} -> count + i
    end

    nodes =
      for node <- Enum.reverse(nodes),
          do: put_elem(node, 2, node |> elem(2) |> Enum.map(place))

    {Enum.reverse(inputs), nodes, Enum.map(results, place)}
  end

  defp visit(operand, {seen, _, _} = state) do
    key =
      case operand do
        {%__MODULE__{id: id}, _type, _shape} -> id
        input -> input
      end

    case seen do
      %{^key => place} -> {place, state}
      %{} -> operand |> add(state) |> remember(key)
    end
  end

  defp remember({place, {seen, inputs, nodes}}, key),
    do: {place, {Map.put(seen, key, place), inputs, nodes}}

  defp add({%__MODULE__{node: {op, operands}, type: type}, _, _}, state) when is_list(operands) do
    {args, {seen, inputs, nodes}} = Enum.map_reduce(operands, state, &visit/2)
    {{:node, length(nodes)}, {seen, inputs, [{op, type, args} | nodes]}}
  end

  defp add({%__MODULE__{node: {op, [], attribute}, type: type}, _, _}, {seen, inputs, nodes}),
    do: {{:node, length(nodes)}, {seen, inputs, [{op, type, [], attribute} | nodes]}}

  defp add({%__MODULE__{node: input}, _, _}, state), do: visit(input, state)

  defp add(input, {seen, inputs, nodes}),
    do: {{:input, length(inputs)}, {seen, [input | inputs], nodes}}
end
