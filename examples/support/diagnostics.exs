defmodule Examples.Diagnostics do
  @moduledoc """
  Convergence diagnostics of Markov chains.

  `chains` is a list of at least one chain, each a list of the same number of draws (at least 8,
  floats). Each chain is cut in two halves first, so that a chain that drifts disagrees with
  itself. All functions raise `ArgumentError` when the draws do not vary, because the diagnostics are
  undefined then.

  Sources: A. Gelman et al., "Bayesian Data Analysis", 3rd edition (2013), section 11.4; C. J.
  Geyer, "Practical Markov chain Monte Carlo" (1992); as in Stan, without rank normalisation.
  """

  @doc "The mean of a list of numbers."
  def mean(values), do: Enum.sum(values) / length(values)

  @doc "The unbiased variance of a list of at least two numbers."
  def variance(values) do
    mean = mean(values)
    sum_by(values, &((&1 - mean) * (&1 - mean))) / (length(values) - 1)
  end

  @doc "The standard deviation, the root of `variance/1`."
  def sd(values), do: :math.sqrt(variance(values))

  @doc """
  The potential scale reduction factor of the split chains: 1 when they agree, greater when they
  have not mixed.
  """
  def split_rhat(chains) do
    {_halves, within, pooled} = split(chains)
    :math.sqrt(pooled / within)
  end

  @doc """
  The effective sample size: how many independent draws would estimate the mean as well.

  The autocorrelation time sums Geyer's initial monotone sequence of the combined split chains. It is
  at most `n log10(n)` for n draws in all; only chains with negative autocorrelation come near that.
  """
  def ess(chains) do
    {halves, within, pooled} = split(chains)
    n = halves |> hd() |> length()
    total = n * length(halves)

    centred =
      for half <- halves do
        mean = mean(half)
        Enum.map(half, &(&1 - mean))
      end

    correlation = fn
      0 -> 1.0
      lag -> 1.0 - (within - mean(Enum.map(centred, &autocovariance(&1, lag, n)))) / pooled
    end

    time = -1.0 + 2.0 * monotone_sum(correlation, 0, n - 4, :infinity, 0.0)
    total / max(time, 1.0 / :math.log10(total))
  end

  # Sums the correlations in pairs while they are positive, no pair greater than the one before.
  # The even correlation after them counts half where it is positive: it improves the estimate for
  # antithetic chains (Stan does the same).
  defp monotone_sum(correlation, lag, last, bound, sum) do
    even = correlation.(lag)
    pair = even + correlation.(lag + 1)

    if pair > 0.0 and lag < last do
      # :infinity is greater than any number, because atoms are.
      pair = min(pair, bound)
      monotone_sum(correlation, lag + 2, last, pair, sum + pair)
    else
      sum + 0.5 * max(even, 0.0)
    end
  end

  defp autocovariance(centred, lag, n), do: lagged(centred, Enum.drop(centred, lag), 0.0) / n

  defp lagged(_, [], sum), do: sum
  defp lagged([a | as], [b | bs], sum), do: lagged(as, bs, sum + a * b)

  # The halves, the mean variance within them, and the variance that pools within and between.
  defp split(chains) do
    halves = Enum.flat_map(chains, &halves/1)
    n = halves |> hd() |> length()
    within = mean(Enum.map(halves, &variance/1))
    if within == 0.0, do: raise(ArgumentError, "the draws do not vary")
    {halves, within, within * (n - 1) / n + variance(Enum.map(halves, &mean/1))}
  end

  # An odd number of draws loses the one in the middle.
  defp halves(chain) do
    size = length(chain)
    [Enum.take(chain, div(size, 2)), Enum.drop(chain, div(size + 1, 2))]
  end

  defp sum_by(values, fun), do: Enum.reduce(values, 0.0, &(fun.(&1) + &2))
end
