# Sampling of the regime model by Nx.Vulkan.MCMC: effective draws a second, with the time of the warm-up. Compilation is not in it.
#
#     mix run -r examples/support/regime.exs bench/sampling.exs
#
# Prints for each number of chains, type and seed: seconds of sampling, effective draws a second (the sum over the chains of each chain's
# smallest, and the smallest of all chains together), gradients a second, divergences. CHAINS=4,1024, TYPES=f32,f64, SEEDS=3,
# WARMUP=600, DRAWS=1500 and TARGET=0.8 (of the acceptance) choose what runs. Of more than 16 chains the effective draws of 16 are taken for all.
#
# Peers: ../shared/bench/sampling_cpu.py (nutpie), ../shared/bench/sampling_peers.py (NumPyro).

Code.require_file("support/regime_model.exs", __DIR__)

{:ok, _} = Application.ensure_all_started(:nx)
Nx.default_backend(Nx.Vulkan.VulkanoBackend)

alias Nx.Vulkan.{Chain, MCMC}

setting = fn name, default -> System.get_env(name, default) |> String.split(",") end
number = fn name, default -> setting.(name, default) |> hd() |> String.to_integer() end
returns = Examples.Regime.returns(200, 2024)
sampled = 16

ms = fn time -> "#{div(time, 1000)} ms" end
rate = fn count, time -> round(count * 1.0e6 / time) end

# The smallest bulk ESS of the parameters.
ess = fn draws -> draws |> MCMC.Diagnostics.ess_bulk() |> Nx.reduce_min() |> Nx.to_number() end

test = self()

:telemetry.attach(
  "bench",
  [:nx_vulkan, :mcmc, :progress],
  fn _, measurements, _, _ -> send(test, {:leapfrogs, measurements.leapfrogs}) end,
  nil
)

leapfrogs = fn leapfrogs, last ->
  receive do
    {:leapfrogs, count} -> leapfrogs.(leapfrogs, count)
  after
    0 -> last
  end
end

for type <- setting.("TYPES", "f32,f64"), chains <- setting.("CHAINS", "4") do
  {type, chains} = {String.to_atom(type), String.to_integer(chains)}
  data = Nx.tensor(returns, type: type)

  starts =
    for chain <- 0..(chains - 1),
        do:
          Nx.tensor(Examples.Regime.initial(returns, chain),
            type: type,
            backend: Nx.BinaryBackend
          )

  start = &Enum.at(starts, &1)

  {compile, {:ok, chain}} =
    :timer.tc(fn -> Chain.compile(&Bench.RegimeModel.logp/2, hd(starts), data, type: type) end)

  sample = fn seed, opts ->
    MCMC.sample(
      chain,
      start,
      data,
      [type: type, chains: chains, seed: seed, progress: false] ++ opts
    )
  end

  {first, _} = :timer.tc(fn -> sample.(0, warmup: 0, draws: 1) end)
  IO.puts("#{chains} chains, #{type}: compile #{ms.(compile)}, first draw #{ms.(first)}")
  target = String.to_float(System.get_env("TARGET", "0.8"))

  opts = [
    warmup: number.("WARMUP", "600"),
    draws: number.("DRAWS", "1500"),
    target_accept: target
  ]

  for seed <- 1..number.("SEEDS", "3") do
    {time, result} =
      :timer.tc(fn ->
        result = sample.(seed, opts)
        :ok = Nx.Vulkan.synchronize()
        result
      end)

    gradients = leapfrogs.(leapfrogs, 0)
    counted = min(chains, sampled)
    draws = result.draws[0..(counted - 1)]
    alone = for chain <- 0..(counted - 1), do: ess.(draws[chain..chain])
    together = ess.(draws)
    scale = chains / counted
    mean = fn tensor -> Float.round(Nx.to_number(Nx.mean(Nx.as_type(tensor, :f32))), 2) end

    IO.puts(
      "  seed #{seed}: #{ms.(time)}, #{rate.(Enum.sum(alone) * scale, time)} ESS/s (together #{rate.(together * scale, time)}), " <>
        "#{rate.(gradients, time)} gradients/s, #{mean.(result.stats.leapfrog_steps)} steps a draw, " <>
        "acceptance #{mean.(result.stats.accept)}, #{Nx.to_number(Nx.sum(result.stats.divergent))} divergences"
    )
  end
end
