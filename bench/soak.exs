# A soak test: operations of mixed kinds and sizes from several processes, and the memory that they hold.
#
#     mix run bench/soak.exs SECONDS [LARGEST [KIND]]      # elements of the largest tensors, 2^20 by default
#
# KIND is the one kind of work to do, such as `definition`: compiled calls on changing shapes, more than traces are kept for.
#
# Prints the memory of the pool, of this operating system process and of the BEAM some forty times. Ends with status 1
# where memory grew: where the maximum of the last quarter of the run is more than a tenth above the maximum of the
# second quarter. The first quarter, in which kernels are built and the pool fills, does not count.

defmodule Soak do
  alias Nx.Vulkan.VulkanoBackend

  @processes 4

  def run(seconds, largest, kinds) do
    Nx.default_backend(VulkanoBackend)
    finish = System.monotonic_time(:millisecond) + 1000 * seconds
    # Builds each kernel once before the run starts.
    for kind <- kinds, do: work(kind, 1000)

    workers =
      for seed <- 1..@processes do
        Task.async(fn ->
          Nx.default_backend(VulkanoBackend)
          :rand.seed(:exsss, {seed, 2, 3})
          loop(finish, largest, kinds, 0)
        end)
      end

    samples = watch(max(div(seconds, 40), 1), finish, [])
    operations = Enum.sum(Task.await_many(workers, :infinity))
    IO.puts("#{operations} units of work in #{seconds} s")
    verdict(Enum.reverse(samples))
  end

  defp loop(finish, largest, kinds, done) do
    if System.monotonic_time(:millisecond) < finish do
      # Uniform in the exponent: small and large sizes are equally frequent.
      size = round(:math.pow(largest, :rand.uniform()))
      work(Enum.random(kinds), size)
      loop(finish, largest, kinds, done + 1)
    else
      done
    end
  end

  def kinds,
    do: [:elementwise, :reduce, :matmul, :move, :transfer, :sort, :gather, :process, :definition]

  defp work(:elementwise, n) do
    x = Nx.iota({n}, type: :f32)
    Enum.reduce(1..20, x, fn _, y -> Nx.multiply(Nx.add(y, x), 0.5) end)
  end

  defp work(:reduce, n) do
    x = Nx.iota({div(n, 7) + 1, 7}, type: :f32)
    Nx.to_number(Nx.add(Nx.sum(Nx.sum(x, axes: [1])), Nx.reduce_max(x)))
  end

  defp work(:matmul, n) do
    side = min(ceil(:math.sqrt(n)), 512)
    x = Nx.iota({side, side}, type: :f32)
    Nx.dot(x, x)
  end

  defp work(:move, n) do
    x = Nx.iota({3, div(n, 3) + 1}, type: :s32)
    Nx.concatenate([Nx.transpose(x), Nx.reverse(Nx.transpose(x))])
  end

  defp work(:transfer, n) do
    data = :binary.copy(<<1.0::float-32-native>>, n)
    ^data = Nx.to_binary(Nx.from_binary(data, :f32))
  end

  defp work(:sort, n), do: Nx.sort(Nx.remainder(Nx.iota({n}), 1000))

  defp work(:gather, n) do
    x = Nx.iota({n}, type: :f32)
    Nx.take(x, Nx.remainder(Nx.iota({n}), n))
  end

  # Six calls: evaluated, recorded and replayed from then on.
  defp work(:definition, n) do
    x = Nx.iota({div(n, 3) + 1, 3}, type: :f32)
    step = Nx.Defn.jit(Enum.random([&scaled/1, &centred/1, &put/1]), compiler: Nx.Vulkan.Compiler)
    x = Enum.reduce(1..3, x, fn _, x -> step.(x) end)
    Nx.to_number(Enum.reduce(1..3, x, fn _, x -> step.(Nx.donatable(x)) end)[0][0])
  end

  # A process that ends while it holds tensors.
  defp work(:process, n) do
    {process, ref} =
      spawn_monitor(fn ->
        Nx.default_backend(VulkanoBackend)
        held = for _ <- 1..5, do: Nx.iota({n}, type: :f32)
        exit({:shutdown, length(held)})
      end)

    receive do: ({:DOWN, ^ref, :process, ^process, _} -> :ok)
  end

  def scaled(x), do: Nx.add(Nx.dot(Nx.tanh(x), Nx.eye(3)), Nx.iota({3}))
  def centred(x), do: Nx.subtract(x, Nx.mean(x, axes: [0], keep_axes: true)) |> Nx.sort(axis: 1)
  def put(x), do: Nx.put_slice(x, [0, 0], Nx.take(x, Nx.argmax(x, axis: 0)[0..0]))

  defp watch(interval, finish, samples) do
    if System.monotonic_time(:millisecond) + 1000 * interval < finish do
      Process.sleep(1000 * interval)
      info = Nx.Vulkan.memory_info()
      sample = [pool: info.pool_bytes, resident: resident(), beam: :erlang.memory(:total)]
      text = for {name, bytes} <- sample, do: [to_string(name), " ", mib(bytes), "  "]

      IO.puts([
        Time.to_string(Time.utc_now()),
        "  ",
        text,
        "live buffers #{info.buffers}  traces #{traces()}"
      ])

      watch(interval, finish, [sample | samples])
    else
      samples
    end
  end

  defp traces,
    do: Enum.count(:persistent_term.get(), &match?({{Nx.Vulkan.Compiler.TraceCache, _}, _}, &1))

  # Bytes of this process in memory, as the operating system counts them.
  defp resident do
    with {:ok, status} <- File.read("/proc/self/status"),
         [_, kilobytes] <- Regex.run(~r/VmRSS:\s+(\d+) kB/, status) do
      1024 * String.to_integer(kilobytes)
    else
      _ -> 0
    end
  end

  defp mib(bytes), do: "#{div(bytes, 2 ** 20)} MiB"

  defp verdict(samples) do
    quarter = div(length(samples), 4)
    second = Enum.slice(samples, quarter, quarter)
    last = Enum.take(samples, -quarter)

    grown =
      for name <- [:pool, :resident, :beam],
          [early, late] =
            for(part <- [second, last], do: part |> Enum.map(& &1[name]) |> Enum.max()),
          late > 1.1 * early,
          do: "#{name} grew from #{mib(early)} to #{mib(late)}"

    if grown == [], do: IO.puts("flat"), else: IO.puts(Enum.join(grown, "\n"))
    grown == []
  end
end

usage = fn ->
  IO.puts(
    :stderr,
    "usage: soak.exs SECONDS [LARGEST [KIND]], 20 seconds and 1000 elements at least"
  )

  System.halt(2)
end

{numbers, kinds} =
  case System.argv() do
    [seconds, largest, kind] ->
      {[seconds, largest], Enum.filter(Soak.kinds(), &("#{&1}" == kind))}

    numbers ->
      {numbers, Soak.kinds()}
  end

{seconds, largest} =
  case Enum.map(numbers, &Integer.parse/1) do
    [{seconds, ""}] when seconds >= 20 -> {seconds, 2 ** 20}
    [{seconds, ""}, {largest, ""}] when seconds >= 20 and largest >= 1000 -> {seconds, largest}
    _ -> usage.()
  end

if kinds == [], do: usage.()
{:ok, _} = Application.ensure_all_started(:nx)
unless Soak.run(seconds, largest, kinds), do: System.halt(1)
