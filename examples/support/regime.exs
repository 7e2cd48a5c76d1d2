defmodule Examples.Regime do
  @moduledoc """
  The regime-switching model of `shaders/leapfrog_regime.comp` as the host sees it: its
  parameters and simulated returns.

  Each return comes from one of three regimes: volatile N(0, sigma_vol), trending N(mu_trend,
  sigma_trend), or mean-reverting N(mu_mr, sigma_mr), with weights softmax(0, logit_w1, logit_w2).
  Positions hold logit_w1, logit_w2, mu_mr, mu_trend, sigma_mr, sigma_trend, sigma_vol (the sigmas
  through the inverse of softplus) and theta_mr, which has a prior but no likelihood.
  """

  @doc """
  The parameters that generate the returns (per cent a day): w_trend, w_mr, mu_mr, mu_trend, sigma_mr, sigma_trend, sigma_vol,
  theta_mr. The returns do not depend on theta_mr; 0 is its prior's mean.

  The likelihood does not change when the trending and the mean-reverting regime swap places, so
  the posterior has two modes. With these values the modes are too far apart for a chain to cross from one to the
  other, and `initial/2` starts all chains near the same mode.
  """
  def truth, do: [0.45, 0.35, -0.8, 1.2, 0.2, 0.3, 2.5, 0.0]

  @doc "`n` returns generated from `truth/0`, the same for the same seed."
  def returns(n, seed) do
    [w_trend, w_mr, mu_mr, mu_trend, sigma_mr, sigma_trend, sigma_vol, _] = truth()
    :rand.seed(:exsss, seed)

    for _ <- 1..n do
      regime = :rand.uniform()

      cond do
        regime < w_trend -> mu_trend + sigma_trend * :rand.normal()
        regime < w_trend + w_mr -> mu_mr + sigma_mr * :rand.normal()
        true -> sigma_vol * :rand.normal()
      end
    end
  end

  @doc """
  A random initial position near the mode of `truth/0`: mu_mr near the returns' lower quartile, mu_trend near the upper
  one, both regimes narrower than the volatile one.
  """
  def initial(returns, seed) do
    :rand.seed(:exsss, seed)
    sorted = Enum.sort(returns)
    quartile = fn k -> Enum.at(sorted, div(k * length(sorted), 4)) end
    near = fn at, scale -> at + scale * :rand.normal() end

    [near.(0.0, 0.5), near.(0.0, 0.5), near.(quartile.(1), 0.2), near.(quartile.(3), 0.2)] ++
      [near.(-1.0, 0.5), near.(-1.0, 0.5), near.(2.0, 0.5), near.(0.0, 1.0)]
  end
end
