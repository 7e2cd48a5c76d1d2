defmodule Nx.Vulkan.SchedulerTest do
  @moduledoc """
  No call keeps one of the BEAM's schedulers for more than a millisecond.

  What calls return instead of blocking is tested by `Nx.Vulkan.Native.SchedulerTest`. These tests measure, need a
  quiet machine, and run where they are asked for:

      mix test --only timing

  `:erlang.system_monitor/2` reports each process that was on a scheduler for longer, but by the clock on the wall:
  where other programs take the cores, that is any process. So a piece of work counts as blocking only

    * by the time that the system does not explain: what is left of the reported times once the time is taken off
      during which the schedulers' threads could have run and had no core (`/proc/self/task/*/schedstat`). A call that
      computes, sleeps or waits for a lock or the device is left; a thread that another program displaced is not.
    * and if it does so eight times, and never once keeps no scheduler. A call that blocks, blocks each time.

  An attempt that proves neither is made again. Where the cores are so busy that none of thirty does, the test fails as
  inconclusive. Each piece of work makes what it is about anew: kernels that were never built, sizes that were never
  allocated.
  """

  use Nx.Vulkan.Test.Case, async: false

  @moduletag :timing

  require Nx.Vulkan.Native, as: Native

  alias Nx.Vulkan.NativeV

  @attempts 30
  @proof 8

  # Where the system does not tell what threads waited for, nothing can be shown.
  @comms Enum.map(Path.wildcard("/proc/self/task/*/comm"), &File.read/1)
  unless File.exists?("/proc/self/schedstat") and
           Enum.any?(@comms, &match?({:ok, "erts_sched_" <> _}, &1)),
         do: @moduletag(skip: "no times of the schedulers' threads in /proc")

  @f32 {:f, 32}

  test "a process that keeps its scheduler is reported" do
    big = :binary.copy(<<7>>, 128 * 2 ** 20)
    # Copies all of it in one go. Other programs make that longer, never shorter.
    assert {[_ | _], _} = attempt(fn _ -> byte_size(<<0, big::binary>>) end, 1)
  end

  test "what the system explains is inconclusive, what it does not explain counts, if there is no attempt without" do
    assert blocked(fn _ -> {[:report], 5.0} end, 1, []) == List.duplicate([:report], @proof)
    assert blocked(fn _ -> {[:report], -5.0} end, 1, []) == :inconclusive
    assert blocked(fn i -> if i == 3, do: {[], 0.0}, else: {[:report], 5.0} end, 1, []) == []
  end

  test "building kernels" do
    passes(fn i ->
      run(unseen(i), [upload(1000)], {1000})
    end)
  end

  test "transfers of any size" do
    data =
      for bytes <- [100, 10_000, 10 ** 5, 2 ** 18, 10 ** 6, 2 ** 26],
          do: :binary.copy(<<1>>, bytes)

    passes(fn _ ->
      for binary <- data do
        {:ok, ref} = NativeV.buf_upload(binary)
        {:ok, back} = NativeV.buf_download(ref)
        assert byte_size(back) == byte_size(binary)
      end
    end)
  end

  test "many transfers of the sizes that normal schedulers copy" do
    data = :binary.copy(<<1>>, 256 * 1024)
    passes(fn _ -> for _ <- 1..50, do: {:ok, _} = NativeV.buf_upload(data) end)
  end

  test "narrow elements, which are packed on the way" do
    bits = :binary.copy(<<0x1B>>, 2 ** 20)

    passes(fn _ ->
      for size <- [100, 10_000, 60_000, 2 ** 20] do
        tensor = Nx.from_binary(binary_part(bits, 0, size), {:u, 2}, backend: VulkanoBackend)
        assert byte_size(Nx.to_binary(tensor)) == size
      end
    end)
  end

  test "long chains of small operations" do
    passes(fn _ ->
      x = upload(1000)
      for _ <- 1..1000, do: add(x, 1000)
    end)
  end

  test "a device that cannot keep up" do
    n = 2 ** 16

    passes(fn _ ->
      x = upload(n)

      for _ <- 1..600 do
        add(x, n)
        # Has the device start, and does not wait.
        Native.sync(nil)
      end
    end)
  end

  test "many processes at once" do
    passes(fn _ ->
      1..32
      |> Enum.map(fn _ ->
        Task.async(fn ->
          x = upload(1000)
          for _ <- 1..100, do: add(x, 1000)
          {:ok, _} = NativeV.buf_download(x)
        end)
      end)
      |> Task.await_many(:infinity)
    end)
  end

  test "memory that nobody has asked for yet" do
    passes(fn i ->
      for bytes <- [1000, 100_000, 10 * 2 ** 20, 40 * 2 ** 20],
          do: {:ok, _} = NativeV.buf_alloc(bytes * (4 + i))
    end)
  end

  test "garbage: large tensors, many tensors, and the death of those who hold them" do
    hold = fn ->
      for bytes <- [2 ** 26, 2 ** 24 | List.duplicate(2 ** 14, 1000)], do: alloc(bytes)
    end

    passes(fn _ ->
      drop(hold)
      Task.await(Task.async(fn -> length(hold.()) end), :infinity)

      # Memory that is free and in nobody's way is given back when it runs short; freeing at once is cheap too.
      for ref <- hold.(), do: :ok = Native.buf_free(ref)
    end)
  end

  test "a program of many nodes" do
    nodes = for i <- 0..249, do: {:add, @f32, [i, 0]}

    passes(fn _ ->
      x = upload(1000)
      for _ <- 1..20, do: run(nodes, [x], {1000})
    end)
  end

  test "concatenating and stacking many tensors" do
    passes(fn _ ->
      parts = for i <- 1..1500, do: Nx.tensor([i, i], type: :f32, backend: VulkanoBackend)
      assert Nx.to_binary(Nx.concatenate(parts)) == for(i <- 1..1500, into: <<>>, do: twice(i))
      assert Nx.shape(Nx.stack(parts)) == {1500, 2}
    end)
  end

  test "linear algebra" do
    passes(fn _ ->
      a = Nx.add(to_device(Nx.iota({96, 96}, type: :f32)), Nx.multiply(Nx.eye(96), 20_000.0))
      s = Nx.add(a, Nx.transpose(a))
      Nx.LinAlg.solve(s, a)
      Nx.LinAlg.determinant(a)
      Nx.LinAlg.cholesky(Nx.add(Nx.dot(a, Nx.transpose(a)), Nx.eye(96)))
      Nx.LinAlg.qr(a)
      Nx.LinAlg.eigh(Nx.slice(s, [0, 0], [20, 20]))
    end)
  end

  test "sorting, scans, transforms, products and convolutions" do
    passes(fn _ ->
      x = to_device(Nx.iota({30_000}, type: :f32))
      Nx.sort(x)
      Nx.argsort(x)
      Nx.cumulative_sum(x)
      Nx.fft(x)
      Nx.sum(Nx.reshape(x, {30, 10, 100}), axes: [1])
      m = Nx.reshape(Nx.slice(x, [0], [10_000]), {100, 100})
      Nx.dot(m, m)
      Nx.conv(Nx.reshape(m, {1, 1, 100, 100}), Nx.broadcast(Nx.tensor(1.0), {4, 1, 3, 3}))
      Nx.gather(x, Nx.tensor([[1], [2]], backend: VulkanoBackend))
      Nx.indexed_add(x, Nx.tensor([[1], [2]]), Nx.tensor([1.0, 2.0]))
      Nx.to_binary(Nx.window_max(m, {3, 3}))
    end)
  end

  ## What blocks

  # `work` gets the number of the attempt, which is another one each time.
  defp passes(work) do
    # The first call loads, builds and allocates what all of them need, which is not measured. Nor is what the
    # driver compiles at run time, which delays each thread that touches a new page of memory, nor the BEAM's own
    # arithmetic.
    work = fn i -> Nx.with_default_backend(VulkanoBackend, fn -> work.(i) end) end
    work.(0)
    :ok = Nx.Vulkan.synchronize()
    kept = blocked(&attempt(work, &1), 1, [])
    assert kept != :inconclusive, "inconclusive: other programs take the cores"
    assert kept == []
  end

  # What kept schedulers in each attempt that counts; nothing as soon as one attempt kept none.
  defp blocked(_attempt, _i, kept) when length(kept) == @proof, do: kept
  defp blocked(_attempt, @attempts, _kept), do: :inconclusive

  defp blocked(attempt, i, kept) do
    case attempt.(i) do
      {[], _} -> []
      {reports, unexplained} when unexplained >= 1 -> blocked(attempt, i + 1, [reports | kept])
      {_reports, _} -> blocked(attempt, i + 1, kept)
    end
  end

  # The reports of an attempt in a process of its own, and how many of their milliseconds nothing explains.
  defp attempt(work, i) do
    before = :erlang.system_monitor(self(), [{:long_schedule, 1}])
    waited = without_core()
    {worker, ref} = spawn_monitor(fn -> work.(i) end)
    assert_receive {:DOWN, ^ref, :process, ^worker, reason}, 600_000
    explained = without_core() - waited
    :erlang.system_monitor(before)
    assert reason == :normal
    reports = reports()
    {reports, Enum.sum(for info <- reports, do: info[:timeout]) - explained}
  end

  defp reports do
    receive do
      {:monitor, _process, :long_schedule, info} -> [info | reports()]
    after
      0 -> []
    end
  end

  # Milliseconds for which threads of schedulers were ready to run and had no core.
  defp without_core do
    for task <- Path.wildcard("/proc/self/task/*"),
        {:ok, "erts_sched_" <> _} <- [File.read(Path.join(task, "comm"))],
        {:ok, line} <- [File.read(Path.join(task, "schedstat"))],
        [_running, waiting | _] = String.split(line),
        reduce: 0,
        do: (sum -> sum + String.to_integer(waiting) / 1.0e6)
  end

  ## Work

  defp upload(n) do
    {:ok, ref} = NativeV.buf_upload(:binary.copy(<<1.0::float-32-native>>, n))
    ref
  end

  defp alloc(bytes) do
    {:ok, ref} = NativeV.buf_alloc(bytes)
    ref
  end

  defp drop(hold) do
    assert hold.() != []
    :erlang.garbage_collect()
  end

  defp add(x, n), do: run([{:add, @f32, [0, 0]}], [x], {n})

  defp run(nodes, refs, shape) do
    {:ok, ref} = Native.call(run(nodes, Enum.map(refs, &{&1, @f32, shape}), shape))
    ref
  end

  # A chain of operations that depends on the number, which is unlike any that was built before.
  defp unseen(number) do
    seed = {System.os_time(), number, 1}

    {chain, _} =
      Enum.map_reduce(0..7, :rand.seed_s(:exsss, seed), fn node, random ->
        {op, random} = :rand.uniform_s(6, random)

        {{Enum.at([:add, :subtract, :multiply, :max, :min, :divide], op - 1), @f32, [node, 0]},
         random}
      end)

    chain
  end

  defp twice(i), do: <<i::float-32-native, i::float-32-native>>
end
