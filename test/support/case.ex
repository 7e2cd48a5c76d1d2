defmodule Nx.Vulkan.Test.Case do
  @moduledoc """
  For tests that compare the backend with BinaryBackend: nothing may fall back to the CPU unless a
  test says so or the device lacks the type, and what a test creates is on BinaryBackend until it is moved.
  """

  use ExUnit.CaseTemplate

  import ExUnit.Assertions

  alias Nx.Vulkan.Test.{Compare, Fallbacks, Hooks, Reference}

  using do
    quote do
      # Building kernels is slow on a busy machine, and that is no failure.
      @moduletag timeout: 1_800_000

      import Nx.Vulkan.Test.Compare
      import Nx.Vulkan.Test.Hooks
      import Nx.Vulkan.Test.Case
      alias Nx.Vulkan.Fallback
      alias Nx.Vulkan.Test.{Fallbacks, Generators, NearestBackend, Reference}
      alias Nx.Vulkan.VulkanoBackend
    end
  end

  setup context do
    Nx.default_backend(Nx.BinaryBackend)
    Fallbacks.forbid()
    Nx.Vulkan.Test.Generators.seed({context.module, context.test})
  end

  @doc "The tensor on the device."
  def to_device(tensor), do: Nx.backend_copy(tensor, Nx.Vulkan.VulkanoBackend)

  @doc """
  What `mix` prints with these arguments in a BEAM of its own, and its status. It gets no input: Mix asks whether to install Hex
  where there is none, and would wait for the answer for ever.
  """
  def mix(arguments, env) do
    System.cmd("sh", ["-c", ~S(exec mix "$@" < /dev/null), "mix" | arguments],
      env: [{"MIX_ENV", "test"} | env],
      stderr_to_stdout: true
    )
  end

  @doc "What the function of host tensors should give: see `Nx.Vulkan.Test.Reference.nearest/2`."
  defdelegate nearest(fun, input), to: Reference

  @doc "The tensor on the host."
  def host(tensor), do: Nx.backend_copy(tensor, Nx.BinaryBackend)

  @doc """
  Whether the driver builds kernels of several operations with a loop in seconds. What SwiftShader is given has one such
  operation, and so more kernels.
  """
  def builds_loops? do
    {:ok, %{driver: driver}} = Nx.Vulkan.device_info()
    not String.contains?(driver, "SwiftShader")
  end

  @doc """
  How many programs `fun` runs, called from Elixir one by one, or calls of other NIFs. A call that `Nx.Vulkan.Native` makes
  again counts once: whether it does depends on the memory of the whole process.
  """
  def programs(fun, nifs \\ [run: 4]) do
    counter = spawn_link(fn -> count(0, nifs) end)

    with_caller = [{:_, [], [{:message, {:caller}}]}]

    for {name, arity} <- nifs,
        do: :erlang.trace_pattern({Nx.Vulkan.Native, name, arity}, with_caller, [])

    :erlang.trace(self(), true, [:call, {:tracer, counter}])
    fun.()
    :erlang.trace(self(), false, [:call])
    delivered = :erlang.trace_delivered(self())
    receive do: ({:trace_delivered, _, ^delivered} -> :ok)
    send(counter, {:count, self()})
    receive do: ({:counted, count} -> count)
  end

  # Calls that other tests count are traced here, too.
  defp count(n, nifs) do
    receive do
      {:trace, _pid, :call, _call, {Nx.Vulkan.Native, _, _}} ->
        count(n, nifs)

      {:trace, _pid, :call, {_module, name, args}, _caller} ->
        count(if({name, length(args)} in nifs, do: n + 1, else: n), nifs)

      {:count, pid} ->
        send(pid, {:counted, n})
    end
  end

  @doc """
  Asserts that the function of tensors of the device gives, compiled and called repeatedly, the bits that
  `Nx.Defn.Evaluator` gives on BinaryBackend, and runs a number of kernels in the range `kernels` where that is given.
  """
  def assert_as_evaluated(fun, args, kernels \\ nil) do
    compiled = Nx.Vulkan.jit(fun)
    exact = apply(Nx.Defn.jit(fun, compiler: Nx.Defn.Evaluator), Enum.map(args, &host/1))

    for _ <- 1..3 do
      result = apply(compiled, args)
      assert {result.type, result.shape, result.names} == {exact.type, exact.shape, exact.names}
      assert Nx.to_binary(result) == Nx.to_binary(exact)
    end

    if kernels, do: assert_kernels(kernels, fn -> apply(compiled, args) end)
  end

  @doc "Asserts that `fun` runs a number of kernels in the range. See `kernels/1`."
  def assert_kernels(range, fun) do
    kernels = kernels(fun)
    assert length(kernels) in range, "expected #{inspect(range)} kernels: #{inspect(kernels)}"
  end

  @doc "The names of the kernels that `fun` runs. A profile has those of all processes: the test is not `async`."
  def kernels(fun) do
    # An `update` writes parameters to memory that are more than a device's push constants.
    for %{name: name} <- Nx.Vulkan.profile(fun).commands, name != "update", do: name
  end

  @doc "The tensors as Nx hands them: one at least on the device, the others there or on the host."
  def operands(tensors) do
    # Nx 0.13 asks the first tensor alone for its backend.
    on_device = if Hooks.nx_1_0?(), do: :rand.uniform(length(tensors)) - 1, else: 0

    tensors
    |> Enum.with_index()
    |> Enum.map(fn {tensor, i} ->
      if i == on_device or :rand.uniform(3) > 1, do: to_device(tensor), else: tensor
    end)
  end

  @doc """
  Asserts that `fun`, which takes the list of tensors and is element-wise, gives on the device what it
  gives on BinaryBackend element by element, or what `reference` gives there. Tolerances are those of the
  operation `op`.
  """
  def check_elements(op, tensors, fun, reference \\ nil) do
    expected = Reference.elementwise(tensors, reference || fun)
    context = [types: Enum.map(tensors, & &1.type), shapes: Enum.map(tensors, & &1.shape)]
    Compare.assert_same(fun.(operands(tensors)), expected, op, context)
  end

  @doc "Asserts that `Nx.as_type/2` gives on the device the numbers of that type that are nearest."
  def check_as_type(tensor, type) do
    fun = fn [tensor] -> Nx.as_type(tensor, type) end
    check_elements(:as_type, [tensor], fun, fn [tensor] -> Reference.as_type(tensor, type) end)
  end
end
