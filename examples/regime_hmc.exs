# A regime-switching model of 200 returns, by the No-U-Turn sampler on the device.
#
#     mix run examples/regime_hmc.exs
#
# Ends with status 1 when the chains disagree (R-hat above 1.02) or a posterior mean differs from the parameter that
# generated the data by more than four standard deviations.

for file <- ~w(regime report), do: Code.require_file("support/#{file}.exs", __DIR__)

defmodule Examples.RegimeModel do
  @moduledoc "The model of `Examples.Regime` with its parameters constrained: regimes are mean-reverting, trending, volatile."

  import Nx.Defn

  alias Nx.Vulkan.MCMC.Transform

  # The likelihood does not change when the first two regimes swap places. With means in order the posterior has one mode.
  def transforms do
    %{
      logits: Transform.real(),
      mu: Transform.ordered(),
      sigma: Transform.positive(),
      theta_mr: Transform.real()
    }
  end

  defnp(normal(x, mu, sigma), do: -0.5 * ((x - mu) / sigma) ** 2 - Nx.log(sigma))

  defn logp(q, returns) do
    # The logit of the volatile regime is 0.
    log_total = Nx.log1p(Nx.sum(Nx.exp(q.logits)))

    regimes =
      Nx.stack([
        q.logits[0] + normal(returns, q.mu[0], q.sigma[0]),
        q.logits[1] + normal(returns, q.mu[1], q.sigma[1]),
        normal(returns, 0.0, q.sigma[2])
      ])

    priors =
      Nx.sum(normal(q.logits, 0.0, 1.0)) + normal(q.mu[0], 0.0, 0.5) + normal(q.mu[1], 0.0, 1.0) +
        normal(q.sigma[0], 0.0, 1.0) + normal(q.sigma[1], 0.0, 1.0) +
        normal(q.sigma[2], 0.0, 2.0) + normal(q.theta_mr, 0.0, 1.0)

    priors + Nx.sum(Nx.logsumexp(regimes, axes: [0]) - log_total)
  end

  # A start for each chain: means near the quartiles, the first two regimes narrow.
  def start(returns, chain) do
    :rand.seed(:exsss, chain)
    sorted = Enum.sort(returns)
    quartile = fn k -> Enum.at(sorted, div(k * length(sorted), 4)) end
    near = fn at, scale -> at + scale * :rand.normal() end

    Transform.unconstrain(transforms(), %{
      logits: Nx.f64([near.(0.0, 0.5), near.(0.0, 0.5)]),
      mu: Nx.f64([near.(quartile.(1), 0.1), near.(quartile.(3), 0.1)]),
      sigma: Nx.exp(Nx.f64([near.(-1.0, 0.3), near.(-1.0, 0.3), near.(1.0, 0.2)])),
      theta_mr: Nx.f64(near.(0.0, 1.0))
    })
  end

  # With the weights of the first two regimes in place of logits.
  def parameters(draws) do
    draws = Transform.constrain(transforms(), draws)
    terms = Nx.exp(draws.logits)
    total = Nx.add(1, Nx.sum(terms, axes: [-1], keep_axes: true))
    draws |> Map.delete(:logits) |> Map.put(:weight, Nx.divide(terms, total))
  end
end

alias Examples.{Regime, RegimeModel, Report}
alias Nx.Vulkan.MCMC
alias Nx.Vulkan.MCMC.{Diagnostics, Transform}

Report.device()
returns = Regime.returns(200, 2024)

{time, %{draws: draws, stats: stats}} =
  :timer.tc(fn ->
    MCMC.sample(
      Transform.density(&RegimeModel.logp/2, RegimeModel.transforms()),
      &RegimeModel.start(returns, &1),
      Nx.tensor(returns, type: :f64),
      warmup: 600,
      draws: 1500
    )
  end)

[w_trend, w_mr, mu_mr, mu_trend, sigma_mr, sigma_trend, sigma_vol, theta_mr] = Regime.truth()

truth = %{
  "weight[0]" => w_mr,
  "weight[1]" => w_trend,
  "mu[0]" => mu_mr,
  "mu[1]" => mu_trend,
  "sigma[0]" => sigma_mr,
  "sigma[1]" => sigma_trend,
  "sigma[2]" => sigma_vol,
  "theta_mr" => theta_mr
}

%{draws: RegimeModel.parameters(draws), stats: stats}
|> Diagnostics.summary()
|> Report.judge(stats, time, truth)

IO.puts("The data do not depend on theta_mr: its posterior is its prior, N(0, 1).")
