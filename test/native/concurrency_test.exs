Code.require_file("support/native_case.exs", __DIR__)

defmodule Nx.Vulkan.ConcurrencyTest do
  @moduledoc """
  Many processes on the one device, their deaths, and memory under a limit.

  The pool counts for the whole BEAM, so nothing else may run meanwhile.
  """

  use Nx.Vulkan.Test.NativeCase, async: false

  @moduletag timeout: 1_800_000

  test "64 processes doing 1,000 operations each get what one process gets" do
    seeds = 1..8
    expected = Map.new(seeds, &{&1, work(&1, 1000)})

    results =
      1..64
      |> Enum.map(fn i -> Task.async(fn -> {rem(i, 8) + 1, work(rem(i, 8) + 1, 1000)} end) end)
      |> Task.await_many(:infinity)

    for {seed, result} <- results, do: assert(result == expected[seed], "seed #{seed}")
  end

  test "200 processes killed midway leave nothing behind" do
    before = usage()

    for _ <- 1..10 do
      processes = for i <- 1..20, do: spawn(fn -> work(i, 1_000_000) end)
      monitors = Enum.map(processes, &Process.monitor/1)

      for process <- processes do
        Process.sleep(:rand.uniform(10))
        Process.exit(process, :kill)
      end

      for monitor <- monitors, do: assert_receive({:DOWN, ^monitor, _, _, :killed}, 60_000)
    end

    eventually(fn -> returned?(before) end)
    assert_works()
  end

  test "memory returns when references are collected, and not before the device is done" do
    before = usage()

    results =
      for _ <- 1..20 do
        fn ->
          {:ok, a} = NativeV.buf_upload(:binary.copy(floats([1.0]), 100_000))

          for _ <- 1..20,
              do: :ok = NativeV.apply_binary(a, a, a, 100_000, 0, spv("elementwise_binary"))

          {:ok, out} = NativeV.buf_alloc(400_000)
          :ok = NativeV.apply_unary(out, a, 100_000, 4, spv("elementwise_unary"))
          out
        end
        |> Task.async()
        |> Task.await(:infinity)
      end

    # The processes and their references are gone while work may still be pending.
    for out <- results do
      {:ok, binary} = NativeV.buf_download(out)
      assert binary == :binary.copy(floats([-1_048_576.0]), 100_000)
    end

    assert length(results) == 20
    eventually(fn -> returned?(before) end)
  end

  test "a wait collects the garbage whose memory the next large tensor needs" do
    before = usage()
    test = self()

    wait = fn ->
      {:ok, _} = NativeV.buf_alloc(64_000_000)
      send(test, {:used_bytes, Native.call(memory_info()).used_bytes})
      :ok = Nx.Vulkan.synchronize()
      send(test, :waited)
      Process.sleep(:infinity)
    end

    # With a heap of this size a process collects nothing by itself.
    waiting = :erlang.spawn_opt(wait, [:link, min_heap_size: 1_000_000])
    assert_receive {:used_bytes, used_bytes}, 60_000
    assert used_bytes >= before.used_bytes + 64_000_000
    assert_receive :waited, 60_000
    eventually(fn -> returned?(before) end)
    Process.unlink(waiting)
    Process.exit(waiting, :kill)
  end

  test "a loop that makes 50 GB of temporaries lives with 256 MB" do
    # A process that only loops makes no garbage that the BEAM would notice.
    code = """
    require Nx.Vulkan.Native, as: Native
    n = 4 * 1024 * 1024
    {:ok, zeros} = Native.call(buf_alloc(4 * n))
    one = {:scalar, {:f, 32}, <<1.0::float-32-native>>}
    steps = div(50_000_000_000, 4 * n) + 1

    {:ok, last} =
      Enum.reduce(1..steps, {:ok, zeros}, fn _, {:ok, ref} ->
        Native.call(run([{:add, {:f, 32}, [0, 1]}], [{ref, {:f, 32}, {n}}, one], {n}))
      end)

    {:ok, <<first::float-32-native>>} = Native.call(buf_read(last, 0, 4))
    {:ok, <<final::float-32-native>>} = Native.call(buf_read(last, 4 * n - 4, 4))
    info = Native.call(memory_info())
    true = info.pool_bytes <= 256_000_000
    IO.inspect({steps, first, final, info.limit})
    """

    output = in_own_beam(code, [{"NX_VULKAN_MEMORY_LIMIT", "256000000"}])
    assert output =~ "{2981, 2981.0, 2981.0, 256000000}"
  end

  test "allocated memory cannot exceed the limit" do
    code = """
    require Nx.Vulkan.Native, as: Native

    {buffers, {:error, :out_of_memory, message}} =
      Enum.reduce_while(1..100, {[], nil}, fn _, {buffers, _} ->
        case Native.call(buf_alloc(8_000_000)) do
          {:ok, ref} -> {:cont, {[ref | buffers], nil}}
          error -> {:halt, {buffers, error}}
        end
      end)

    true = length(buffers) in 4..8
    true = is_binary(message)
    Native.buf_free(hd(buffers))
    {:ok, _} = Native.call(buf_alloc(8_000_000))
    IO.puts("lives")
    """

    assert in_own_beam(code, [{"NX_VULKAN_MEMORY_LIMIT", "64000000"}]) =~ "lives"
  end

  test "16 processes may be the first at the same moment" do
    code = """
    require Nx.Vulkan.Native, as: Native
    parent = self()

    processes =
      for i <- 1..16 do
        spawn_link(fn ->
          receive do: (:go -> :ok)
          {:ok, a} = Native.call(buf_upload(<<i * 1.0::float-32-native>>))
          {:ok, b} = Native.call(run([{:multiply, {:f, 32}, [0, 0]}], [{a, {:f, 32}, {1}}], {1}))
          {:ok, <<x::float-32-native>>} = Native.call(buf_read(b, 0, 4))
          send(parent, {i, x})
        end)
      end

    for process <- processes, do: send(process, :go)
    for i <- 1..16, do: receive(do: ({^i, x} -> true = x == i * i * 1.0))
    {:ok, _} = Native.call(device_info())
    IO.puts("all")
    """

    assert in_own_beam(code, []) =~ "all"
  end

  test "a device that is not there is an error that says so, each time" do
    code = """
    for _ <- 1..2 do
      {:error, :no_device, message} = Nx.Vulkan.NativeV.buf_alloc(4)
      IO.puts(message)
    end
    """

    assert in_own_beam(code, [{"NX_VULKAN_DEVICE", "no such device"}]) =~ "no such device"
  end

  # A walk through the operations that depends on the seed alone, over four matrices of 16 x 16. What it
  # returns is all that was read on the way.
  defp work(seed, steps) do
    random = :rand.seed_s(:exsss, {seed, 1, 1})
    {values, random} = Enum.map_reduce(1..256, random, fn _, r -> :rand.uniform_s(r) end)
    matrices = for shift <- 0..3, do: upload!(Enum.map(values, &(&1 + shift)))
    work(List.to_tuple(matrices), random, steps, [])
  end

  defp work(_matrices, _random, 0, read), do: read

  defp work(matrices, random, steps, read) do
    {kind, random} = :rand.uniform_s(10, random)
    {i, random} = :rand.uniform_s(4, random)
    {j, random} = :rand.uniform_s(4, random)
    a = elem(matrices, i - 1)
    b = elem(matrices, j - 1)
    f32 = {:f, 32}

    {out, read} =
      case kind do
        1 ->
          {into(256, &NativeV.apply_binary(&1, a, b, 256, 5, spv("elementwise_binary"))), read}

        2 ->
          {into(256, &NativeV.apply_binary(&1, a, b, 256, 2, spv("elementwise_binary"))), read}

        3 ->
          {into(256, &NativeV.apply_unary(&1, a, 256, 6, spv("elementwise_unary"))), read}

        4 ->
          {into(256, &NativeV.transpose_2d(&1, a, 16, 16, spv("transpose"))), read}

        5 ->
          {into(256, &NativeV.matmul(&1, a, b, 16, 16, 16, spv("matmul"))), read}

        6 ->
          {program([{:max, f32, [0, 1]}, {:tanh, f32, [2]}], [{a, f32, {256}}, {b, f32, {256}}]),
           read}

        7 ->
          {program([{:add, f32, [0, 1]}, {:sigmoid, f32, [2]}], [
             {a, f32, {256}},
             {b, f32, 255, [-1]}
           ]), read}

        8 ->
          {upload!(List.duplicate(steps / 1, 256)), read}

        9 ->
          {a, [sum(b) | read]}

        10 ->
          {a, [download!(b) | read]}
      end

    work(put_elem(matrices, i - 1, tame(out)), random, steps - 1, read)
  end

  # Keeps the numbers of a long walk finite.
  defp tame(matrix), do: program([{:tanh, {:f, 32}, [0]}], [{matrix, {:f, 32}, {256}}])

  defp into(elements, fun) do
    out = alloc!(elements)
    :ok = fun.(out)
    out
  end

  defp program(nodes, inputs) do
    {:ok, ref} = Native.call(run(nodes, inputs, {256}))
    ref
  end

  defp sum(matrix) do
    out = into(1, &NativeV.reduce_axis(&1, matrix, 1, 256, 1, 0, spv("reduce_axis")))
    download!(out)
  end

  defp usage do
    :erlang.garbage_collect()
    :ok = Native.call(sync())
    Map.take(Native.call(memory_info()), [:used_bytes, :buffers])
  end

  # What earlier tests left to be collected may have gone meanwhile.
  defp returned?(before) do
    now = usage()
    now.used_bytes <= before.used_bytes and now.buffers <= before.buffers
  end

  defp eventually(fun, tries \\ 300) do
    cond do
      fun.() -> :ok
      tries == 0 -> flunk("still not so: #{inspect(usage())}")
      true -> Process.sleep(100) && eventually(fun, tries - 1)
    end
  end
end
