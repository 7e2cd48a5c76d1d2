# Products of few rows with square matrices, each of the result of the one before, in one definition: a layer after the other of a model that
# makes tokens for several texts at once. The matrices together are larger than a GPU's caches.
#
#     mix run -r bench/support/measure.exs bench/few_rows.exs
#
# ROWS=2,8,16,32,48, TYPES=bf16,f16,f32, SIZE=4096 and PRODUCTS=32 choose others. Prints JSON lines {case, value, unit}: the time of
# one product. bench/few_rows_peers.py has the same cases.

{:ok, _} = Application.ensure_all_started(:nx)
Nx.default_backend(Nx.Vulkan.VulkanoBackend)
list = fn name, default -> name |> System.get_env(default) |> String.split(",") end

[size, count] =
  for {name, n} <- [{"SIZE", "4096"}, {"PRODUCTS", "32"}],
      do: String.to_integer(hd(list.(name, n)))

for type <- list.("TYPES", "bf16,f16,f32") do
  matrices =
    for seed <- 1..count do
      # So that results stay as large as they are.
      {size, size}
      |> Bench.Measure.normal(seed)
      |> Nx.divide(:math.sqrt(size))
      |> Nx.as_type(String.to_atom(type))
    end

  chain =
    Nx.Defn.jit(
      fn x, matrices -> matrices |> Tuple.to_list() |> Enum.reduce(x, &Nx.dot(&2, &1)) end,
      compiler: Nx.Vulkan.Compiler
    )

  for rows <- list.("ROWS", "2,8,16,32,48") do
    x =
      {String.to_integer(rows), size}
      |> Bench.Measure.normal(0)
      |> Nx.as_type(String.to_atom(type))

    seconds = Bench.Measure.median(fn -> chain.(x, List.to_tuple(matrices)) end, 15)

    IO.puts(
      ~s({"case": "#{rows}x#{size}x#{size}_#{type}", "value": #{Float.round(1.0e6 * seconds / count, 2)}, "unit": "us"})
    )
  end
end
