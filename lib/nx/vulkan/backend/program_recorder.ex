defmodule Nx.Vulkan.Backend.ProgramRecorder do
  @moduledoc false
  # The programs of the backend's operations: run, or recorded in place of that, as steps of a loop or of a chain that
  # runs on the device. It knows nothing of loops: their statements are added to the recording as they are.
  #
  # While a process records, results are references without memory. Whatever needs memory fails then, as NIFs
  # take no such references: sorting, reading an element, matrix products. The recording fails with it.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Vulkan.Backend.Storage
  alias Nx.Vulkan.ProgramBuilder

  @typedoc """
  A program and the reference of its result. The view says which elements of the result the program writes, where
  it does not write all of them: `{shape of the result, offset, strides, starts}`, as in
  `Nx.Vulkan.Backend.StridedCopy`.
  """
  @type step ::
          {nodes :: [tuple()], [ProgramBuilder.operand()], shape :: tuple(),
           result :: reference(),
           view :: nil | {tuple(), integer(), [integer()], [tuple()]} | {:matrix, tuple()}}

  @typedoc """
  What is recorded: `:loop`, programs of operations that raise where BinaryBackend does; `:chain`, in which indices out
  of bounds are clamped, and factors of matrices are steps, too.
  """
  @type mode :: :loop | :chain

  @doc """
  What the function returns and the statements that it added, in order; an error with its reason where it needs
  more than these.
  """
  @spec record((-> result), mode()) :: {:ok, result, [term()]} | {:error, String.t()}
        when result: term()
  def record(fun, mode \\ :loop) do
    Process.put({__MODULE__, :mode}, mode)
    {result, statements} = nested(fun)
    {:ok, result, statements}
  rescue
    # Where the function runs its operations, it meets the same error.
    error -> {:error, Exception.message(error)}
  catch
    kind, reason -> {:error, Exception.format_banner(kind, reason)}
  after
    Process.delete({__MODULE__, :mode})
  end

  @doc "What the function returns and the statements that it added, which are not part of the recording around it."
  @spec nested((-> result)) :: {result, [term()]} when result: term()
  def nested(fun) do
    around = Process.put(__MODULE__, [])

    try do
      result = fun.()
      {result, Enum.reverse(Process.get(__MODULE__))}
    after
      if around, do: Process.put(__MODULE__, around), else: Process.delete(__MODULE__)
    end
  end

  @doc "Adds statements to the recording."
  @spec add([term()]) :: :ok
  def add(statements) do
    Process.put(__MODULE__, Enum.reverse(statements, Process.get(__MODULE__)))
    :ok
  end

  @doc "Whether this process records."
  @spec recording?() :: boolean()
  def recording?, do: Process.get(__MODULE__) != nil

  @doc "What this process records, or `nil`."
  @spec mode() :: mode() | nil
  def mode, do: Process.get({__MODULE__, :mode})

  # A program runs on the device of its operands. One without operands in buffers runs on `device`, by default that of
  # the process.
  @spec run([tuple()], [ProgramBuilder.operand()], tuple(), Storage.device() | :default) ::
          {:ok, reference()} | tuple()
  def run(nodes, inputs, shape, device \\ :default) do
    case Process.get(__MODULE__) do
      nil ->
        Native.call(run(nodes, inputs, shape, Storage.device(device, inputs)))

      steps ->
        ref = make_ref()
        Process.put(__MODULE__, [{nodes, inputs, shape, ref, nil} | steps])
        {:ok, ref}
    end
  end

  @spec assemble(Nx.Type.t(), tuple(), [tuple()]) :: {:ok, reference()} | tuple()
  def assemble(type, shape, regions) do
    case Process.get(__MODULE__) do
      nil ->
        Native.call(assemble(type, shape, regions, Storage.default_device()))

      steps ->
        ref = make_ref()

        written =
          for {nodes, inputs, over, offset, strides, starts} <- regions,
              do: {nodes, inputs, over, ref, {shape, offset, strides, starts}}

        Process.put(__MODULE__, Enum.reverse(written, steps))
        {:ok, ref}
    end
  end

  @doc """
  Records an operation on matrices, the first of `inputs` over the shape of the result: `{:cholesky, n}`, or
  `{:triangular_solve, lower?, transposed?, left?, n}` of right-hand sides and a matrix of order `n`.
  """
  @spec matrix(tuple(), Nx.Type.t(), [ProgramBuilder.operand()], tuple()) :: {:ok, reference()}
  def matrix(operation, type, [first | rest], shape) do
    ref = make_ref()
    # The program stands for what is read and written.
    zeros = for _axis <- 1..tuple_size(shape), do: 0
    read = for {ref, type, _shape} <- rest, do: {ref, type, 0, zeros}
    add([{[{:as_type, type, [0]}], [first | read], shape, ref, {:matrix, operation}}])
    {:ok, ref}
  end
end
