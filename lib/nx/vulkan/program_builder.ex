defmodule Nx.Vulkan.ProgramBuilder do
  @moduledoc false
  # Builds programs, the typed graphs of one kernel each that src/program takes. It owns how a program's
  # values are numbered and the terms that `Nx.Vulkan.Native.run/3` takes, and neither runs a program nor
  # reads a tensor.
  #
  # A program computes over an iteration space, whose extents are its shape. Its values are inputs and ops
  # on earlier values. A key, which may be any term, names each of them:
  #
  #     ProgramBuilder.new({n, n})
  #     |> ProgramBuilder.input(:matrix, {ref, {:f, 32}, {n, n}})
  #     |> ProgramBuilder.input(:zero, {:scalar, {:u, 32}, <<0::32>>})
  #     |> ProgramBuilder.op(:row, :iota, {:u, 32}, [], 0)
  #     |> ProgramBuilder.op(:column, :iota, {:u, 32}, [], 1)
  #     |> ProgramBuilder.op(:kept, :less_equal, {:u, 8}, [:row, :column])
  #     |> ProgramBuilder.op(:upper, :select, {:f, 32}, [:kept, :matrix, :zero])
  #     |> ProgramBuilder.program()
  #
  # The op that was added last is the result, and no op before it may be a reduction. A program may also end in several
  # sums of the same axes: each of them is a result. An op's type is that of its result. Operands are converted to the type that the op works
  # in: the op's own for arithmetic, their merged type for comparisons and logic.
  #
  # An eager operation is a program of one op, which `single/4` makes at once.

  alias Nx.Vulkan.ProgramBuilder

  @enforce_keys [:shape]
  defstruct [:shape, inputs: [], nodes: [], input_count: 0, node_count: 0, values: %{}]

  @type key :: term()

  @typedoc """
  What an input reads: a dense buffer, which broadcasts to the iteration space from its last axes on; a view of
  a buffer, with an element offset and a stride for each axis of the iteration space, and one that may be padded, with
  the element that stands for those that do not exist, and `{start, extent, stride, steps}` of each padded axis; or one element, as
  buffers store it, which each run gives or, a `:constant`, the kernel knows. In a program that is run again with other buffers, a placeholder stands for the
  reference.
  """
  @type operand ::
          {reference :: term(), Nx.Type.t(), shape :: tuple()}
          | {reference :: term(), Nx.Type.t(), offset :: integer(), strides :: [integer()]}
          | {reference :: term(), Nx.Type.t(), offset :: integer(), strides :: [integer()],
             {binary(), [{integer(), non_neg_integer(), integer(), [integer()]}]}}
          | {:scalar | :constant, Nx.Type.t(), binary()}

  @typedoc "The arguments of `Nx.Vulkan.Native.run/3`: nodes, inputs and the shape of the iteration space."
  @type program :: {nodes :: [tuple()], [operand()], shape :: tuple()}

  @type t :: %ProgramBuilder{
          shape: tuple(),
          inputs: [operand()],
          nodes: [{tuple(), [{:input | :node, non_neg_integer()}]}],
          input_count: non_neg_integer(),
          node_count: non_neg_integer(),
          values: %{key() => {:input | :node, non_neg_integer()}}
        }

  # Inputs and nodes of a program: `MAX_VALUES` of src/program.
  @most_values 255

  @doc "A program over that iteration space, without values."
  @spec new(tuple()) :: t()
  def new(shape), do: %ProgramBuilder{shape: shape}

  @doc "Adds the operand as an input, unless the key names a value already. An operand may be its own key."
  @spec input(t(), key(), operand()) :: t()
  def input(%ProgramBuilder{values: values, input_count: count} = builder, key, operand) do
    if is_map_key(values, key) do
      builder
    else
      values = Map.put(values, key, {:input, count})
      %{builder | inputs: [operand | builder.inputs], input_count: count + 1, values: values}
    end
  end

  @doc """
  Adds the op on the values of these keys. `attribute` is the axis of `iota`, the axes of a reduction,
  `{axis, :low | :high}` of `argmax` and `argmin`, and `[{extent, stride}]` of the indices of `gather`.
  """
  @spec op(t(), key(), atom(), Nx.Type.t(), [key()], term()) :: t()
  def op(%ProgramBuilder{values: values} = builder, key, op, type, operands, attribute \\ :none) do
    args = Enum.map(operands, &Map.fetch!(values, &1))
    values = Map.put(values, key, {:node, builder.node_count})
    nodes = [{op, type, args, attribute} | builder.nodes]
    %{builder | nodes: nodes, node_count: builder.node_count + 1, values: values}
  end

  @doc "Whether the key names a value."
  @spec value?(t(), key()) :: boolean()
  def value?(%ProgramBuilder{values: values}, key), do: is_map_key(values, key)

  @doc "Whether the program has no more values than one may have."
  @spec fits?(t()) :: boolean()
  def fits?(%ProgramBuilder{input_count: inputs, node_count: nodes}),
    do: inputs + nodes <= @most_values

  @doc "The program."
  @spec program(t()) :: program()
  def program(%ProgramBuilder{inputs: inputs, nodes: nodes, input_count: count, shape: shape}) do
    index = fn
      {:input, i} -> i
      {:node, i} -> count + i
    end

    nodes =
      for {op, type, args, attribute} <- Enum.reverse(nodes),
          do: node(op, type, Enum.map(args, index), attribute)

    {nodes, Enum.reverse(inputs), shape}
  end

  @doc "The index of the key's value among the inputs followed by the nodes."
  @spec index(t(), key()) :: non_neg_integer()
  def index(%ProgramBuilder{values: values, input_count: count}, key) do
    case Map.fetch!(values, key) do
      {:input, i} -> i
      {:node, i} -> count + i
    end
  end

  @doc "The program of one op on the operands, in their order."
  @spec single(atom(), Nx.Type.t(), [operand()], tuple()) :: program()
  def single(op, type, [_] = operands, shape), do: {[{op, type, [0]}], operands, shape}
  def single(op, type, [_, _] = operands, shape), do: {[{op, type, [0, 1]}], operands, shape}

  def single(op, type, [_, _, _] = operands, shape),
    do: {[{op, type, [0, 1, 2]}], operands, shape}

  def single(op, type, [], shape), do: {[{op, type, []}], [], shape}

  @doc "As `single/4`, with the op's attribute."
  @spec single(atom(), Nx.Type.t(), [operand()], tuple(), term()) :: program()
  def single(op, type, [_] = operands, shape, attribute),
    do: {[{op, type, [0], attribute}], operands, shape}

  def single(op, type, operands, shape, attribute) do
    indices = Enum.to_list(0..(length(operands) - 1)//1)
    {[{op, type, indices, attribute}], operands, shape}
  end

  defp node(op, type, args, :none), do: {op, type, args}
  defp node(op, type, args, attribute), do: {op, type, args, attribute}

  @doc "The operand as a view. A scalar looks the same from everywhere."
  @spec view(operand(), integer(), [integer()]) :: operand()
  def view({:scalar, _type, _binary} = scalar, _offset, _strides), do: scalar
  def view({ref, type, _shape}, offset, strides), do: {ref, type, offset, strides}

  @doc "The operand as a view that ends along some axes: beyond, elements have these bits."
  @spec padded(operand(), integer(), [integer()], binary(), [tuple()]) :: operand()
  def padded({ref, type, _shape}, offset, strides, bits, axes),
    do: {ref, type, offset, strides, {bits, axes}}
end
