defmodule Nx.Vulkan.Backend.ProgramRecorder do
  @moduledoc false
  # The programs of the backend's operations: run, or recorded in place of that, as steps of a loop that runs on
  # the device. It knows nothing of loops: their statements are added to the recording as they are.
  #
  # While a process records, results are references without memory. Whatever needs memory fails then, as NIFs
  # take no such references: sorting, reading an element, matrix products. The recording fails with it.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Vulkan.ProgramBuilder

  @typedoc """
  A program and the reference of its result. The view says which elements of the result the program writes, where
  it does not write all of them: `{shape of the result, offset, strides, starts}`, as in
  `Nx.Vulkan.Backend.StridedCopy`.
  """
  @type step ::
          {nodes :: [tuple()], [ProgramBuilder.operand()], shape :: tuple(),
           result :: reference(), view :: nil | {tuple(), integer(), [integer()], [tuple()]}}

  @doc "What the function returns and the statements that it added, in order; `:error` where it needs more than these."
  @spec record((-> result)) :: {:ok, result, [term()]} | :error when result: term()
  def record(fun) do
    {result, statements} = nested(fun)
    {:ok, result, statements}
  rescue
    # Where the function runs its operations, it meets the same error.
    _error -> :error
  catch
    _kind, _reason -> :error
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

  @spec run([tuple()], [ProgramBuilder.operand()], tuple()) :: {:ok, reference()} | tuple()
  def run(nodes, inputs, shape) do
    case Process.get(__MODULE__) do
      nil ->
        Native.call(run(nodes, inputs, shape))

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
        Native.call(assemble(type, shape, regions))

      steps ->
        ref = make_ref()

        written =
          for {inputs, over, offset, strides, starts} <- regions do
            {[{:as_type, type, [0]}], inputs, over, ref, {shape, offset, strides, starts}}
          end

        Process.put(__MODULE__, Enum.reverse(written, steps))
        {:ok, ref}
    end
  end
end
