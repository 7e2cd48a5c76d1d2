defmodule Bench.RegimeModel do
  @moduledoc "The log-density of `shaders/leapfrog_regime.comp` in Nx, with its terms that are constant."

  import Nx.Defn

  @half_log_two_pi 0.5 * :math.log(2 * :math.pi())

  defn(normal(x, mu, sigma),
    do: -0.5 * ((x - mu) / sigma) ** 2 - Nx.log(sigma) - @half_log_two_pi
  )

  defn(softplus(x), do: Nx.max(x, 0.0) + Nx.log1p(Nx.exp(-Nx.abs(x))))

  # The position of shaders/leapfrog_regime.comp: logits, means, sigmas by softplus, and theta_mr.
  defn logp(q, x) do
    logits = Nx.stack([q[1], q[0], 0.0])
    weights = logits - Nx.logsumexp(logits)
    sigma = softplus(q[4..6])

    terms =
      Nx.stack([
        weights[0] + normal(x, q[2], sigma[0]),
        weights[1] + normal(x, q[3], sigma[1]),
        weights[2] + normal(x, 0.0, sigma[2])
      ])

    priors =
      normal(q[0], 0.0, 1.0) + normal(q[1], 0.0, 1.0) + normal(q[2], 0.0, 0.5) +
        normal(q[3], 0.0, 1.0) + normal(q[7], 0.0, 1.0) + normal(sigma[0], 0.0, 1.0) +
        normal(sigma[1], 0.0, 1.0) + normal(sigma[2], 0.0, 2.0) + 3.0 * Nx.log(2.0)

    Nx.sum(Nx.logsumexp(terms, axes: [0])) + priors - Nx.sum(softplus(-q[4..6]))
  end
end
