defmodule Nx.Vulkan.TraceCacheTest do
  @moduledoc "What `Nx.Vulkan.Compiler` keeps of a definition after a call, and for how long."

  # The tests count what the whole BEAM holds.
  use Nx.Vulkan.Test.Case, async: false

  alias Nx.Vulkan.Compiler
  alias Nx.Vulkan.Compiler.TraceCache

  @mebibyte 2 ** 20
  @most_kept 1024

  def seen(x), do: io_hook(Nx.multiply(x, 2), :seen)

  test "hooks are those of the call, and nothing that they close over is kept" do
    {hooked, held} =
      growth(fn i ->
        large = large()
        test = self()
        hooks = %{seen: &send(test, {:seen, i, Nx.to_number(&1), Nx.size(large)})}
        Nx.Defn.jit(&seen/1, compiler: Compiler, hooks: hooks).(to_device(Nx.tensor(i)))
        assert_received {:seen, ^i, doubled, @mebibyte}
        assert doubled == 2 * i
      end)

    # A cache that others have filled evicts some.
    assert hooked <= 1 and held == 0
  end

  test "a function that closes over device memory is not kept, wherever it uses it" do
    for use <- [
          fn large, x -> Nx.add(x, Nx.size(large)) end,
          fn large, x -> io_hook(x, fn _ -> Nx.size(large) end) end,
          fn large, x -> Nx.runtime_call(x, x, [large: large], fn x, _ -> x end) end
        ] do
      assert {0, 0} ==
               growth(fn _ ->
                 large = large()
                 fun = fn x -> use.(large, x) end
                 Nx.Defn.jit(fun, compiler: Compiler).(to_device(Nx.tensor([1, 2, 3])))
               end)
    end
  end

  test "streaming servings share one trace" do
    serving =
      Nx.Serving.jit(&seen/1, compiler: Compiler)
      |> Nx.Serving.streaming(hooks: [:seen])

    {traces, _held} =
      growth(
        fn i ->
          batch = Nx.Batch.concatenate([Nx.tensor([i, i + 1])])
          events = Enum.to_list(Nx.Serving.run(serving, batch))
          assert [{:seen, seen}, {:batch, _output, _metadata}] = events
          assert Nx.to_flat_list(seen) == [2 * i, 2 * i + 2]
        end,
        50
      )

    # A cache that others have filled evicts some.
    assert traces <= 1
  end

  test "the least recently used traces make room for new ones" do
    key = &{__MODULE__, &1}

    for n <- 1..(2 * @most_kept) do
      TraceCache.put(key.(n), n)
      assert TraceCache.get(key.(n)) == n
      assert TraceCache.get(key.(1)) == 1
      assert traces() <= @most_kept
    end

    kept = Enum.filter(2..(2 * @most_kept), &TraceCache.get(key.(&1)))
    assert length(kept) > div(@most_kept, 2)
    # One run of keys, the last ones.
    assert kept == Enum.to_list(hd(kept)..(2 * @most_kept))
  end

  test "a function is still traced once after many others" do
    for n <- 1..(@most_kept + 1), do: TraceCache.put({__MODULE__, :other, n}, n)
    test = self()

    fun = fn x ->
      send(test, :traced)
      Nx.add(x, 1)
    end

    for _ <- 1..3, do: Nx.Defn.jit(fun, compiler: Compiler).(to_device(Nx.tensor(1)))
    assert_received :traced
    refute_received :traced
  end

  defp large, do: Nx.broadcast(Nx.tensor(1, type: :u8, backend: VulkanoBackend), {@mebibyte})

  # How many traces, and how many tensors of a mebibyte, are left of calls of the function in a process that has ended.
  defp growth(fun, times \\ 10) do
    before = {traces(), held()}

    for i <- 1..times do
      Task.await(
        Task.async(fn ->
          Nx.default_backend(Nx.BinaryBackend)
          fun.(i)
          :ok
        end),
        :infinity
      )
    end

    {traces, held} = before
    {traces() - traces, div(settled(held) - held, @mebibyte)}
  end

  # A process that has replied frees what it held a little later.
  defp settled(before, tries \\ 100) do
    held = held()

    if held > before and tries > 0 do
      Process.sleep(10)
      settled(before, tries - 1)
    else
      held
    end
  end

  defp traces, do: Enum.count(:persistent_term.get(), &match?({{TraceCache, _key}, _trace}, &1))

  defp held do
    :erlang.garbage_collect()
    Nx.Vulkan.memory_info().used_bytes
  end
end
