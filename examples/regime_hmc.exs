# Hamiltonian Monte Carlo on a regime-switching model of 200 returns. Every trajectory is one
# dispatch on the device.
#
#     mix run examples/regime_hmc.exs
#
# Ends with status 1 when the chains disagree (R-hat above 1.05) or a posterior mean differs from the parameter that
# generated the data by more than four standard deviations.

for file <- ~w(diagnostics hmc regime), do: Code.require_file("support/#{file}.exs", __DIR__)

alias Examples.{Diagnostics, HMC, Regime}

chains = 4
warm_up = 600
draws = 1500
returns = Regime.returns(200, 2024)

device =
  case Nx.Vulkan.device_info() do
    {:ok, info} ->
      info

    error ->
      IO.puts(:stderr, "No Vulkan device: #{inspect(error)}")
      exit({:shutdown, 1})
  end

IO.puts("Device: #{device.name} (#{device.type}), driver #{device.driver}")

IO.puts("#{chains} chains of #{warm_up} warm-up iterations and #{draws} draws,")
IO.puts("#{length(returns)} observed returns\n")

integrate =
  Regime.integrator(returns, Application.app_dir(:nx_vulkan, "priv/shaders/leapfrog_regime.spv"))

run = fn chain ->
  progress = fn done, step_size ->
    if rem(done, 300) == 0 do
      phase = if done <= warm_up, do: "warm-up ", else: "sampling"
      step_size = Float.round(step_size, 4)
      IO.puts("chain #{chain}  #{phase} #{done} of #{warm_up + draws}  step size #{step_size}")
    end
  end

  HMC.sample(integrate, Regime.initial(returns, chain),
    warm_up: warm_up,
    draws: draws,
    seed: chain,
    progress: progress
  )
end

started = System.monotonic_time(:millisecond)

results =
  1..chains
  |> Task.async_stream(run, max_concurrency: chains, timeout: :infinity)
  |> Enum.map(&elem(&1, 1))

elapsed = (System.monotonic_time(:millisecond) - started) / 1000

# The draws of each parameter, chain by chain.
by_parameter =
  results
  |> Enum.map(fn result ->
    result.draws |> Enum.map(&Regime.constrain/1) |> Enum.zip_with(& &1)
  end)
  |> Enum.zip_with(& &1)

cell = fn
  value when is_binary(value) -> String.pad_leading(value, 10)
  value -> String.pad_leading(:erlang.float_to_binary(value, decimals: 3), 10)
end

line = fn name, cells -> IO.puts(String.pad_trailing(name, 12) <> Enum.map_join(cells, cell)) end

IO.puts("")
line.("parameter", ["true", "mean", "sd", "R-hat", "ESS"])

summaries =
  for {name, truth, draws} <- Enum.zip([Regime.names(), Regime.truth(), by_parameter]) do
    all = Enum.concat(draws)
    {mean, sd} = {Diagnostics.mean(all), Diagnostics.sd(all)}
    {rhat, ess} = {Diagnostics.split_rhat(draws), Diagnostics.ess(draws)}
    line.(name, [truth, mean, sd, rhat, "#{round(ess)}"])
    %{name: name, rhat: rhat, distance: abs(mean - truth) / sd}
  end

total = fn key -> results |> Enum.map(& &1[key]) |> Enum.sum() end
sampling_s = results |> Enum.map(& &1.sampling_s) |> Enum.max()
per_second = fn count -> round(count / sampling_s) end
acceptance = Float.round(total.(:acceptance) / chains, 3)
elapsed = Float.round(elapsed, 1)

IO.puts("""

(w_vol = 1 - w_trend - w_mr; the data do not depend on theta_mr, so its posterior is its prior N(0, 1))

acceptance rate #{acceptance}, divergences #{total.(:divergences)}
#{per_second.(chains * draws)} samples/s, #{per_second.(total.(:steps))} leapfrog steps/s, \
#{elapsed} s in all\
""")

disagree = for s <- summaries, s.rhat > 1.05, do: "R-hat of #{s.name} is #{s.rhat}"

missed =
  for s <- summaries, s.distance > 4.0, do: "#{s.name} is #{s.distance} sd from its true value"

if disagree != [] or missed != [] do
  IO.puts(:stderr, Enum.join(["" | disagree ++ missed], "\n"))
  exit({:shutdown, 1})
end
