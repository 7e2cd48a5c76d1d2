defmodule Examples.Regime do
  @moduledoc """
  The regime-switching model of `shaders/leapfrog_regime.comp` as the host sees it: its
  parameters, simulated returns, and its trajectories on the device.

  Each return comes from one of three regimes: volatile N(0, sigma_vol), trending N(mu_trend,
  sigma_trend), or mean-reverting N(mu_mr, sigma_mr), with weights softmax(0, logit_w1, logit_w2).
  Positions hold logit_w1, logit_w2, mu_mr, mu_trend, sigma_mr, sigma_trend, sigma_vol (the sigmas
  through the inverse of softplus) and theta_mr, which has a prior but no likelihood.
  """

  alias Nx.Vulkan.NativeV

  @doc "The names of the parameters in the order of `constrain/1`."
  def names, do: ~w(w_trend w_mr mu_mr mu_trend sigma_mr sigma_trend sigma_vol theta_mr)

  @doc """
  The parameters that generate the returns (per cent a day), in the order of `names/0`. The returns do not depend on
  theta_mr; 0 is its prior's mean.

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

  @doc "A position as the constrained parameters in the order of `names/0`."
  def constrain([logit_w1, logit_w2, mu_mr, mu_trend, sigma_mr, sigma_trend, sigma_vol, theta_mr]) do
    [trend, mr] = Enum.map([logit_w1, logit_w2], &:math.exp/1)
    total = 1.0 + trend + mr
    [sigma_mr, sigma_trend, sigma_vol] = Enum.map([sigma_mr, sigma_trend, sigma_vol], &softplus/1)
    [trend / total, mr / total, mu_mr, mu_trend, sigma_mr, sigma_trend, sigma_vol, theta_mr]
  end

  defp softplus(x), do: max(x, 0.0) + :math.log(1.0 + :math.exp(-abs(x)))

  @doc """
  The integrator of `Examples.HMC.sample/3` for these returns: every call is one dispatch on the
  device.

  `shader` is the path of the chain's SPIR-V. Raises `RuntimeError` when the device fails.
  """
  def integrator(returns, shader) do
    observations = encode(returns)
    n_obs = length(returns)

    fn q, p, inverse_mass, eps, steps ->
      d = length(q)
      extras = observations <> encode(inverse_mass)
      push = <<steps::32-little, n_obs::32-little, d::32-little, 0::32, eps::float-32-little>>

      case NativeV.leapfrog_chain_synth(encode(q), encode(p), extras, push, steps, shader) do
        {:ok, {q_chain, p_chain, _grad_chain, logp_chain}} ->
          last = [last(q_chain, d), last(p_chain, d), last(logp_chain, 1)]

          if Enum.any?(last, &(:not_finite in &1)),
            do: :diverged,
            else: List.to_tuple(last) |> unwrap_logp()

        error ->
          raise "leapfrog_chain_synth: #{inspect(error)}"
      end
    end
  end

  defp unwrap_logp({q, p, [logp]}), do: {q, p, logp}

  defp encode(values), do: for(x <- values, into: <<>>, do: <<x::float-32-little>>)

  defp last(chain, count) do
    for <<word::binary-4 <- binary_part(chain, byte_size(chain), -4 * count)>>, do: decode(word)
  end

  # The BEAM has no infinities and no NaN.
  defp decode(<<x::float-32-little>>), do: x
  defp decode(_), do: :not_finite
end
