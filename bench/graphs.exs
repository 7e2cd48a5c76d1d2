# Definitions as graphs: the time to issue a kernel, small definitions, a training step, k-means and random numbers.
#
#     mix run -r bench/support/measure.exs -r bench/support/models.exs bench/graphs.exs
#
# Prints JSON lines. `issue_us` is the host's time until a call returns, `total_us` the time of a call with the wait shared by
# all calls in a row, in three repetitions. "evaluated" is the same definition with a hook that does nothing: it has no graph,
# and each kernel is issued from Elixir. ONLY=TEXT measures the cases whose name contains the text.

{:ok, _} = Application.ensure_all_started(:nx)
Nx.default_backend(Nx.Vulkan.VulkanoBackend)
import Bench.Measure
sync = fn -> :ok = Nx.Vulkan.synchronize() end
small = Nx.divide(normal({16, 16}, 1), 16)

params =
  for {{i, o}, seed} <- Enum.with_index([{784, 256}, {256, 128}, {128, 10}]),
      do: {Nx.multiply(normal({i, o}, seed), 0.05), Nx.broadcast(0.0, {o})}

x = normal({128, 784}, 3)
y = Bench.Models.one_hot(Nx.remainder(Nx.iota({128}), 10), classes: 10)
p0 = List.to_tuple(params)
key = Nx.backend_copy(Nx.Random.key(1), Nx.Vulkan.VulkanoBackend)
points = normal({100_000, 16}, 4)
centres = normal({16, 16}, 5)

chain = fn x -> Enum.reduce(1..100, x, fn _, z -> Nx.dot(z, x) end) end

apart = fn x ->
  Enum.map(1..100, fn i -> Nx.dot(Nx.add(x, i), x) |> Nx.sum() end) |> Enum.reduce(&Nx.add/2)
end

cases = [
  {"chain of 100 products", 100, chain, [small]},
  {"100 independent products and sums", 300, apart, [small]},
  {"one kernel", 1, &Nx.add(&1, 1), [small]},
  {"mlp_train_step", 27, &Bench.Models.step/3, [p0, x, y]},
  {"kmeans_iter", 9, &Bench.Models.kmeans/2, [points, centres]},
  {"random_uniform 2^24", 10, &Nx.Random.uniform(&1, shape: {16_777_216}), [key]}
]

only = System.get_env("ONLY")

for {name, kernels, fun, args} <- cases,
    only == nil or name =~ only,
    how <- [:graph, :evaluated] do
  f =
    if how == :graph do
      Nx.Defn.jit(fun, compiler: Nx.Vulkan.Compiler)
    else
      # A named hook without a function: it does nothing, and keeps the definition from having a graph.
      hooked = fn value ->
        Nx.Defn.Composite.traverse(value, &Nx.Defn.Kernel.io_call(&1, :nothing))
      end

      case length(args) do
        1 -> Nx.Defn.jit(fn a -> hooked.(fun.(a)) end, compiler: Nx.Vulkan.Compiler)
        2 -> Nx.Defn.jit(fn a, b -> hooked.(fun.(a, b)) end, compiler: Nx.Vulkan.Compiler)
        3 -> Nx.Defn.jit(fn a, b, c -> hooked.(fun.(a, b, c)) end, compiler: Nx.Vulkan.Compiler)
      end
    end

  n = if name =~ "2^24", do: 20, else: 200
  for _ <- 1..20, do: apply(f, args)
  sync.()

  for _ <- 1..3 do
    t0 = System.monotonic_time(:microsecond)
    for _ <- 1..n, do: apply(f, args)
    t1 = System.monotonic_time(:microsecond)
    sync.()
    t2 = System.monotonic_time(:microsecond)

    IO.puts(
      ~s({"case": "#{name}", "how": "#{how}", "issue_us": #{(t1 - t0) / n}, "issue_us_a_kernel": #{Float.round((t1 - t0) / n / kernels, 3)}, "total_us": #{(t2 - t0) / n}})
    )
  end

  waits =
    for _ <- 1..50 do
      t0 = System.monotonic_time(:microsecond)
      apply(f, args)
      sync.()
      System.monotonic_time(:microsecond) - t0
    end

  IO.puts(
    ~s({"case": "#{name} with a wait each", "how": "#{how}", "us": #{Enum.at(Enum.sort(waits), 25)}})
  )
end
