# Leapfrog chains of the regime model: the kernel written by hand (shaders/leapfrog_regime.comp, called by NativeV from and to
# host binaries) against the one that Nx.Vulkan.Chain makes of the same log-density in Nx.
#
#     mix run -r examples/support/regime.exs bench/chains.exs
#
# Prints millions of leapfrog steps a second, the best of some calls after the first. CHAINS=1,64 chooses how many chains run at once.

Code.require_file("support/regime_model.exs", __DIR__)

{:ok, _} = Application.ensure_all_started(:nx)
alias Nx.Vulkan.{Chain, NativeV, VulkanoBackend}
Nx.default_backend(VulkanoBackend)

steps = 32
observations = 200

chains =
  (System.get_env("CHAINS") || "1,64,1024") |> String.split(",") |> Enum.map(&String.to_integer/1)

returns = Examples.Regime.returns(observations, 1)
priv = Path.join(:code.priv_dir(:nx_vulkan), "shaders")

best = fn call ->
  call.()
  rounds = fn -> for(_ <- 1..5, do: elem(:timer.tc(call), 0)) |> Enum.min() end
  Enum.min([rounds.(), rounds.(), rounds.()])
end

report = fn name, count, time ->
  IO.puts("#{name}: #{Float.round(count * steps / time, 3)} M steps/s (#{time} us)")
end

for {type, size, suffix} <- [{:f32, 32, ""}, {:f64, 64, "_f64"}], count <- chains do
  floats = fn list -> for x <- list, into: <<>>, do: <<x::float-size(size)-native>> end
  positions = for chain <- 1..count, do: Examples.Regime.initial(returns, chain)
  momenta = for chain <- 1..count, do: for(i <- 1..8, do: :math.sin(chain * 8 + i))
  mass = List.duplicate(0.02, 8)
  extras = floats.(List.flatten(List.duplicate(returns ++ mass, count)))

  push =
    <<steps::32-little, observations::32-little, 8::32-little, count::32-little,
      0.05::float-size(size)-little>>

  push = if size == 64, do: push, else: push
  file = Path.join(priv, "leapfrog_regime#{suffix}.spv")
  {q_bytes, p_bytes} = {floats.(List.flatten(positions)), floats.(List.flatten(momenta))}

  by_hand = fn ->
    call =
      if size == 64,
        do: &NativeV.leapfrog_chain_synth_batch_f64/6,
        else: &NativeV.leapfrog_chain_synth_batch/6

    {:ok, result} = call.(q_bytes, p_bytes, extras, push, steps, file)
    result
  end

  data = Nx.tensor(returns, type: type)

  {compile, {:ok, chain}} =
    :timer.tc(fn ->
      Chain.compile(&Bench.RegimeModel.logp/2, Nx.template({8}, type), data, type: type)
    end)

  q = Nx.tensor(positions, type: type)
  p = Nx.tensor(momenta, type: type)

  options = [
    steps: steps,
    chains: count,
    step_size: Nx.tensor(0.05, type: type) |> Nx.broadcast({count}),
    inverse_mass: {:diagonal, Nx.broadcast(Nx.tensor(0.02, type: type), {8})}
  ]

  synthesised = fn keep ->
    {:ok, states} = Chain.leapfrog(chain, q, p, data, [keep: keep] ++ options)
    :ok = Nx.Vulkan.synchronize()
    states
  end

  {first, states} = :timer.tc(fn -> synthesised.(:all) end)
  {q_chain, _, _, _} = by_hand.()
  <<expected::float-size(size)-native, _::binary>> = q_chain
  [got | _] = states.q |> Nx.to_flat_list()

  IO.puts(
    "#{type}, #{count} chains: q #{got}, by hand #{expected}; compile #{div(compile, 1000)} ms, first call #{div(first, 1000)} ms"
  )

  report.("  by hand", count, best.(by_hand))
  report.("  synthesised", count, best.(fn -> synthesised.(:all) end))
  report.("  synthesised, last state", count, best.(fn -> synthesised.(:last) end))
end
