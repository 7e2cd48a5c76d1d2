defmodule Nx.Vulkan.Backend.Trace do
  @moduledoc false
  # Records what a function of scalars computes, so that it can become part of a program. It runs no kernel:
  # whatever needs a tensor's elements ends the trace.
  #
  # A traced tensor is one of the backend that has no memory but a value of this struct: an operand, or an
  # op on other values that is still to be run. The element-wise callbacks take such tensors and give them,
  # so any Elixir function that calls them can be traced, a definition that `Nx.Defn.Evaluator` evaluates as
  # well, and what it closes over may be of the backend.

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.Storage
  alias Nx.Vulkan.ProgramBuilder
  alias Nx.Vulkan.VulkanoBackend, as: B

  @enforce_keys [:id, :type, :op, :operands]
  defstruct [:id, :type, :op, :operands]

  @typedoc "A value of the program to be: the `op` on `operands`, or, where `op` is nil, the one operand itself."
  @type t :: %__MODULE__{
          id: integer(),
          type: Nx.Type.t(),
          op: atom(),
          operands: [operand()]
        }

  @typedoc "An operand of a program, or a traced value."
  @type operand :: ProgramBuilder.operand() | t()

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

  # A traced scalar that is the operand, or the op on operands.
  @spec input(ProgramBuilder.operand()) :: T.t()
  def input(operand), do: scalar(new(elem(operand, 1), nil, [operand]))

  @spec op(atom(), Nx.Type.t(), [operand()]) :: T.t()
  def op(op, type, operands), do: scalar(new(type, op, operands))

  defp scalar(%__MODULE__{type: type} = trace),
    do: %T{type: type, shape: {}, names: [], data: %B{traced: trace}}

  defp new(type, op, operands),
    do: %__MODULE__{id: System.unique_integer(), type: type, op: op, operands: operands}

  # The tensor `out`, as the one op of the program on the operands.
  @spec result(T.t(), [tuple()], [operand()]) :: T.t()
  def result(%T{} = out, [{op, type, _indices}], operands),
    do: %{out | data: %B{traced: new(type, op, operands)}}

  def result(_out, _nodes, _operands),
    do: stop("the function does more than element-wise operations")

  @spec operand(T.t()) :: operand()
  def operand(%T{data: %B{traced: %__MODULE__{type: type} = trace}, type: type}), do: trace

  # A bitcast shares the memory.
  def operand(%T{data: %B{traced: %__MODULE__{} = trace}, type: type}),
    do: new(type, :bitcast, [trace])

  def operand(tensor), do: Storage.operand(tensor)

  @spec traced?([operand()]) :: boolean()
  def traced?([%__MODULE__{} | _]), do: true
  def traced?([_ | operands]), do: traced?(operands)
  def traced?([]), do: false

  # Adds what the tensor is to a program; also gives its key there.
  @spec add(T.t(), ProgramBuilder.t()) :: {ProgramBuilder.key(), ProgramBuilder.t()}
  def add(tensor, builder), do: tensor |> operand() |> add_operand(builder)

  defp add_operand(%__MODULE__{op: nil, operands: [operand]}, builder),
    do: add_operand(operand, builder)

  defp add_operand(%__MODULE__{id: id, type: type, op: op, operands: operands}, builder) do
    if ProgramBuilder.value?(builder, id) do
      {id, builder}
    else
      {keys, builder} = Enum.map_reduce(operands, builder, &add_operand/2)
      {id, ProgramBuilder.op(builder, id, op, type, keys)}
    end
  end

  defp add_operand(operand, builder),
    do: {operand, ProgramBuilder.input(builder, operand, operand)}
end
