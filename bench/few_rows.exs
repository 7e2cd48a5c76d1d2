# Products of few rows with square matrices, each of the result of the one before, in one definition: a layer after the other of a model that
# makes tokens for several texts at once. The matrices together are larger than a GPU's caches.
#
#     mix run -r bench/support/measure.exs bench/few_rows.exs
#
# ROWS=2,8,16,32,48, TYPES=bf16,f16,f32, SIZE=4096 and PRODUCTS=32 choose others; s8 is bf16 with matrices of s8 and a scale. Prints JSON
# lines {case, value, unit}: the time of one product. bench/few_rows_peers.py has the same cases but those of s8.

{:ok, _} = Application.ensure_all_started(:nx)
Nx.default_backend(Nx.Vulkan.VulkanoBackend)
list = fn name, default -> name |> System.get_env(default) |> String.split(",") end

[size, count] =
  for {name, n} <- [{"SIZE", "4096"}, {"PRODUCTS", "32"}],
      do: String.to_integer(hd(list.(name, n)))

for type <- list.("TYPES", "bf16,f16,f32") do
  {of_rows, scale} = if type == "s8", do: {:bf16, 32}, else: {String.to_atom(type), 1}

  matrices =
    for seed <- 1..count do
      # So that results stay as large as they are.
      factor = if scale == 1, do: 1 / :math.sqrt(size), else: scale

      Bench.Measure.normal({size, size}, seed)
      |> Nx.multiply(factor)
      |> Nx.as_type(String.to_atom(type))
    end

  product = fn matrix, x ->
    if scale == 1,
      do: Nx.dot(x, matrix),
      else: Nx.multiply(Nx.dot(x, matrix), 1 / (scale * :math.sqrt(size)))
  end

  chain =
    Nx.Defn.jit(fn x, matrices -> matrices |> Tuple.to_list() |> Enum.reduce(x, product) end,
      compiler: Nx.Vulkan.Compiler
    )

  for rows <- list.("ROWS", "2,8,16,32,48") do
    x =
      {String.to_integer(rows), size}
      |> Bench.Measure.normal(0)
      |> Nx.as_type(of_rows)

    seconds = Bench.Measure.median(fn -> chain.(x, List.to_tuple(matrices)) end, 15)

    IO.puts(
      ~s({"case": "#{rows}x#{size}x#{size}_#{type}", "value": #{Float.round(1.0e6 * seconds / count, 2)}, "unit": "us"})
    )
  end
end
