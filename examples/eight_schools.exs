# Eight schools: the effect of coaching on tests in each of eight schools (Rubin 1981; Gelman et al., "Bayesian Data Analysis",
# section 5.5), by the No-U-Turn sampler on the device.
#
#     mix run examples/eight_schools.exs
#
# Ends with status 1 when the chains disagree (R-hat above 1.02), or a posterior mean is not that of posteriordb's reference.

Code.require_file("support/diagnostics.exs", __DIR__)

defmodule Examples.EightSchools do
  import Nx.Defn

  # The effect of a school is mu + tau * eta: with tau small, the effects themselves would be a funnel.
  defn logp(q, data) do
    tau = Nx.exp(q.log_tau)
    theta = q.mu + tau * q.eta
    # tau is of a half-Cauchy distribution; log_tau is what its logarithm adds.
    prior = -0.5 * (q.mu / 5) ** 2 - Nx.log1p((tau / 5) ** 2) + q.log_tau
    prior - 0.5 * Nx.sum(q.eta ** 2) - 0.5 * Nx.sum(((data.effect - theta) / data.error) ** 2)
  end

  def data do
    %{
      effect: Nx.tensor([28, 8, -3, 7, -1, 1, 18, 12], type: :f64),
      error: Nx.tensor([15, 10, 16, 11, 9, 11, 10, 18], type: :f64)
    }
  end

  def start, do: %{mu: Nx.f64(0), log_tau: Nx.f64(0), eta: Nx.broadcast(Nx.f64(0), {8})}
end

alias Examples.{Diagnostics, EightSchools}

start = System.monotonic_time(:millisecond)

%{draws: draws, stats: stats} =
  Nx.Vulkan.MCMC.sample(&EightSchools.logp/2, EightSchools.start(), EightSchools.data(),
    chains: 4,
    warmup: 1000,
    draws: 2000,
    target_accept: 0.9
  )

elapsed = System.monotonic_time(:millisecond) - start
tau = Nx.exp(draws.log_tau)
theta = Nx.add(Nx.new_axis(draws.mu, -1), Nx.multiply(Nx.new_axis(tau, -1), draws.eta))

# Means of eight_schools_noncentered in posteriordb, and those of the schools' effects.
parameters =
  [{"mu", draws.mu, 4.41}, {"tau", tau, 3.60}] ++
    for {mean, school} <- Enum.with_index([6.15, 4.94, 3.89, 4.81, 3.59, 4.04, 6.32, 4.86]),
        do: {"theta #{school + 1}", theta[[.., .., school]], mean}

cell = &String.pad_leading(:erlang.float_to_binary(&1 / 1, decimals: 2), 10)

IO.puts(
  String.pad_trailing("parameter", 12) <>
    Enum.map_join(~w(mean sd R-hat ESS reference), &String.pad_leading(&1, 10))
)

problems =
  for {name, values, reference} <- parameters do
    chains = Nx.to_list(values)
    all = Enum.concat(chains)
    {mean, sd} = {Diagnostics.mean(all), Diagnostics.sd(all)}
    {rhat, ess} = {Diagnostics.split_rhat(chains), Diagnostics.ess(chains)}

    IO.puts(
      String.pad_trailing(name, 12) <> Enum.map_join([mean, sd, rhat, ess, reference], cell)
    )

    # The reference has an error of its own, of 10,000 draws.
    error = 5 * sd * :math.sqrt(1 / ess + 1.0e-4)

    cond do
      rhat > 1.02 -> "R-hat of #{name} is #{rhat}"
      abs(mean - reference) > error -> "the mean of #{name} is #{mean}"
      true -> nil
    end
  end
  |> Enum.reject(&is_nil/1)

IO.puts("\n#{Nx.to_number(Nx.sum(stats.divergent))} divergences, #{elapsed} ms in all")

if problems != [] do
  IO.puts(:stderr, Enum.join(problems, "\n"))
  exit({:shutdown, 1})
end
