# Eight schools: the effect of coaching on tests in each of eight schools (Rubin 1981; Gelman et al., "Bayesian Data Analysis",
# section 5.5), by the No-U-Turn sampler on the device.
#
#     mix run examples/eight_schools.exs
#
# Ends with status 1 when the chains disagree (R-hat above 1.02), or a posterior mean is not that of posteriordb's reference.

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

alias Examples.EightSchools
alias Nx.Vulkan.MCMC

start = System.monotonic_time(:millisecond)

%{draws: draws, stats: stats} =
  MCMC.sample(&EightSchools.logp/2, EightSchools.start(), EightSchools.data(),
    chains: 4,
    warmup: 1000,
    draws: 2000,
    target_accept: 0.9
  )

elapsed = System.monotonic_time(:millisecond) - start
tau = Nx.exp(draws.log_tau)
theta = Nx.add(Nx.new_axis(draws.mu, -1), Nx.multiply(Nx.new_axis(tau, -1), draws.eta))

summary =
  MCMC.Diagnostics.summary(%{draws: %{mu: draws.mu, tau: tau, theta: theta}, stats: stats})

IO.inspect(summary)
IO.puts("#{elapsed} ms")

# Means of eight_schools_noncentered in posteriordb, of 10,000 draws.
schools = Enum.with_index([6.15, 4.94, 3.89, 4.81, 3.59, 4.04, 6.32, 4.86])

references =
  Map.new([{"mu", 4.41}, {"tau", 3.60}] ++ for({mean, i} <- schools, do: {"theta[#{i}]", mean}))

problems =
  for %{name: name, mean: mean, sd: sd, rhat: rhat, mcse_mean: error} <- summary.parameters,
      rhat > 1.02 or abs(mean - references[name]) > 5 * (error + sd / 100),
      do: "#{name}: R-hat #{rhat}, mean #{mean}, reference #{references[name]}"

if problems != [] do
  IO.puts(:stderr, Enum.join(problems, "\n"))
  exit({:shutdown, 1})
end
