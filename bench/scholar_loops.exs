# Scholar's algorithms on a few points, whose loops are of scalars and small tensors: CPU milliseconds of all threads a call.
#
#     mix run bench/scholar_loops.exs [binary]
#
# With `binary` on Nx.BinaryBackend. Prints the first call of the process and the mean of those after the second. The first
# call traces and compiles; kernels that are in the disk cache are not built again.

defmodule ScholarLoops do
  @calls 20

  def run do
    for {name, fun} <- cases() do
      first = cpu(fun)
      fun.()
      warm = cpu(fn -> for _ <- 1..@calls, do: fun.() end) / @calls

      IO.puts(
        "#{String.pad_trailing(name, 28)} first #{first} ms, then #{Float.round(warm, 1)} ms"
      )
    end
  end

  defp cases do
    key = Nx.Random.key(42)
    points = &Nx.tensor(for(i <- 1..&1, do: for(j <- 1..4, do: coordinate(i, j))), type: :f32)
    x = Nx.iota({45}, type: :f32)
    y = Nx.tensor(for(i <- 1..45, do: i + 10 * :math.sin(i * 2.1)), type: :f32)
    {ten, twenty} = {points.(10), points.(20)}

    [
      {"isotonic regression, 45", fn -> Scholar.Linear.IsotonicRegression.fit(x, y) end},
      {"HDBSCAN, 20 × 4", fn -> Scholar.Cluster.HDBSCAN.fit(twenty) end},
      {"MDS, 10 × 4", fn -> Scholar.Manifold.MDS.fit(ten, key: key) end},
      {"TSNE, 10 × 4", fn -> Scholar.Manifold.TSNE.fit(ten, key: key, init: :random) end}
    ]
    |> Enum.map(fn {name, fun} -> {name, fn -> read(fun.()) end} end)
  end

  # Two groups of points.
  defp coordinate(i, j), do: 3 * :math.sin(i * 1.7 + j * j * 0.9) + 5 * rem(i, 2)

  defp read(result),
    do: for(tensor <- Nx.Defn.Composite.flatten_list([result]), do: Nx.to_flat_list(tensor))

  # The kernel counts ticks of 10 ms.
  defp cpu(fun) do
    before = ticks()
    fun.()
    10 * (ticks() - before)
  end

  defp ticks do
    [_name, fields] = "/proc/self/stat" |> File.read!() |> String.split(") ", parts: 2)
    fields |> String.split() |> Enum.slice(11, 2) |> Enum.map(&String.to_integer/1) |> Enum.sum()
  end
end

if System.argv() == ["binary"] do
  Nx.default_backend(Nx.BinaryBackend)
else
  Nx.default_backend(Nx.Vulkan.VulkanoBackend)
  Nx.Defn.default_options(compiler: Nx.Vulkan.Compiler)
end

ScholarLoops.run()
