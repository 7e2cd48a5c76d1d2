defmodule Nx.Vulkan.MCMC.Diagnostics do
  @moduledoc """
  Whether chains have converged, and how much their draws say: R-hat, effective sample sizes, Monte Carlo errors, the
  fraction of missing information and divergences.

  `summary/1` of what `Nx.Vulkan.MCMC.sample/4` gives is a table of all parameters:

      Nx.Vulkan.MCMC.Diagnostics.summary(result)

  Each diagnostic is a function of draws, too:

      iex> rising = Nx.tensor([[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]], type: :f64)
      iex> Nx.to_number(Nx.Vulkan.MCMC.Diagnostics.rhat(rising)) > 1.01
      true

  R-hat near 1 says that the chains agree: above 1.01 they need more draws, or the model another parametrisation. The bulk
  effective sample size (ESS) is of the centre of the posterior, the tail ESS of the quantiles 5% and 95%: below 100 a chain, the
  estimates are not reliable. Divergences say that the sampler could not follow the density everywhere, and an
  E-BFMI below 0.3 that momenta explore the energies too slowly.

  ## Draws

  Draws are tensors of `{chains, draws, …}`, four draws of a chain at least. All functions give tensors of the axes that follow,
  one number for each parameter: NaN where a draw is not finite or the draws do not vary. They compute in f64, where the
  draws are.

  ## Sources

  A. Vehtari, A. Gelman, D. Simpson, B. Carpenter, P.-C. Bürkner, "Rank-normalization, folding, and localization: an improved R̂"
  (2021), for R-hat and ESS of split chains with ranks averaged over ties; C. J. Geyer, "Practical Markov chain Monte Carlo" (1992), for the
  initial monotone sequence, as Stan and ArviZ have it; M. Betancourt, "Diagnosing suboptimal cotangent disintegrations
  in Hamiltonian Monte Carlo" (2016), for E-BFMI.
  """

  import Nx.Defn

  alias Nx.Tensor, as: T

  @enforce_keys [:parameters, :chains, :draws, :divergences, :e_bfmi]
  defstruct [:parameters, :chains, :draws, :divergences, :e_bfmi]

  @typedoc "A number, or what the diagnostic is where it is no number."
  @type value :: float() | :nan | :infinity | :neg_infinity

  @typedoc "A parameter of one number: its name, as `theta[2]`, its moments and quantiles, and how well they are known."
  @type parameter :: %{
          name: String.t(),
          mean: value(),
          sd: value(),
          mcse_mean: value(),
          q5: value(),
          median: value(),
          q95: value(),
          rhat: value(),
          ess_bulk: value(),
          ess_tail: value()
        }

  @typedoc """
  A summary, which inspects as a table. `divergences` is a number for all chains, and `e_bfmi` has one for each. Both are `nil` without
  statistics.
  """
  @type t :: %__MODULE__{
          parameters: [parameter()],
          chains: pos_integer(),
          draws: pos_integer(),
          divergences: non_neg_integer() | nil,
          e_bfmi: [value()] | nil
        }

  @columns [:mean, :sd, :mcse_mean, :q5, :median, :q95, :rhat, :ess_bulk, :ess_tail]
  # Bounds the memory of temporary tensors: numbers that are summarised at once.
  @max_numbers 0x400000
  @sqrt_2 :math.sqrt(2)

  @doc """
  The summary of all parameters of `%{draws: draws, stats: stats}`.

  `draws` is a container of tensors of `{chains, draws, …}`. Of `stats`, `energy` and `divergent` are read where they are.
  """
  @spec summary(%{:draws => Nx.Container.t(), optional(:stats) => map()}) :: t()
  def summary(%{draws: draws} = result) do
    leaves = named(draws, "")
    [{_, %T{} = first} | _] = leaves
    draws!(first)
    {chains, count} = {Nx.axis_size(first, 0), Nx.axis_size(first, 1)}
    stats = Map.get(result, :stats, %{})

    %__MODULE__{
      parameters: Enum.flat_map(leaves, &parameters/1),
      chains: chains,
      draws: count,
      divergences: stats[:divergent] && Nx.to_number(Nx.sum(stats.divergent)),
      e_bfmi: stats[:energy] && Nx.to_flat_list(e_bfmi(stats.energy))
    }
  end

  @doc "The rank-normalised R-hat of split chains: the larger one of bulk and folded draws."
  @spec rhat(T.t()) :: T.t()
  def rhat(draws), do: diagnostic(draws, :rhat)

  @doc "The effective sample size of the bulk: of the ranks of the draws."
  @spec ess_bulk(T.t()) :: T.t()
  def ess_bulk(draws), do: diagnostic(draws, :ess_bulk)

  @doc "The effective sample size of the tails: the smaller one of those of the quantiles 5% and 95%."
  @spec ess_tail(T.t()) :: T.t()
  def ess_tail(draws), do: diagnostic(draws, :ess_tail)

  @doc "The Monte Carlo standard error of the mean: the standard deviation over the root of the mean's ESS."
  @spec mcse_mean(T.t()) :: T.t()
  def mcse_mean(draws), do: diagnostic(draws, :mcse_mean)

  @doc "The estimated Bayesian fraction of missing information of each chain, of energies `{chains, draws}`."
  @spec e_bfmi(T.t()) :: T.t()
  def e_bfmi(energy), do: energy |> Nx.as_type(:f64) |> missing_information()

  defp diagnostic(draws, column) do
    draws!(draws)
    index = Enum.find_index(@columns, &(&1 == column))
    [_, _ | shape] = Tuple.to_list(draws.shape)

    draws
    |> columns()
    |> Nx.slice_along_axis(index, 1, axis: 1)
    |> Nx.reshape(List.to_tuple(shape))
  end

  defp draws!(%T{shape: shape}) do
    if tuple_size(shape) < 2 or elem(shape, 1) < 4 do
      raise ArgumentError,
            "draws: expected a tensor of {chains, draws, ...} with 4 draws or more, got the shape #{inspect(shape)}"
    end
  end

  ## Names

  # The leaves in the order of `Nx.Container`, with the path to each.
  defp named(%T{} = leaf, name), do: [{name, leaf}]

  defp named(container, name) do
    keys =
      case container do
        %_{} -> Stream.iterate(0, &(&1 + 1))
        %{} -> container |> Map.keys() |> Enum.sort()
        _ -> Stream.iterate(0, &(&1 + 1))
      end

    container
    |> Nx.Container.reduce([], &[&1 | &2])
    |> Enum.reverse()
    |> Enum.zip(keys)
    |> Enum.flat_map(fn {part, key} ->
      named(part, if(name == "", do: "#{key}", else: "#{name}.#{key}"))
    end)
  end

  defp parameters({name, leaf}) do
    draws!(leaf)
    [_, _ | shape] = Tuple.to_list(leaf.shape)
    rows = leaf |> columns() |> Nx.to_flat_list() |> Enum.chunk_every(length(@columns))

    Enum.zip_with(indices(shape), rows, fn index, row ->
      @columns |> Enum.zip(row) |> Map.new() |> Map.put(:name, name <> index)
    end)
  end

  defp indices([]), do: [""]

  defp indices([size | rest]),
    do: for(i <- 0..(size - 1), more <- indices(rest), do: "[#{i}]#{more}")

  ## Numbers

  # `{parameters, columns}`.
  defp columns(%T{shape: shape} = draws) do
    [chains, count | rest] = Tuple.to_list(shape)
    size = Enum.product(rest)
    at_once = max(1, div(@max_numbers, chains * count))
    draws = Nx.reshape(draws, {chains, count, size}, names: [nil, nil, nil])

    0..(size - 1)//at_once
    |> Enum.map(fn first ->
      draws
      |> Nx.slice_along_axis(first, min(at_once, size - first), axis: 2)
      |> Nx.as_type(:f64)
      |> Nx.transpose(axes: [2, 0, 1])
      |> described()
    end)
    |> Nx.concatenate()
  end

  # Of `{parameters, chains, draws}`.
  defnp described(draws) do
    finite = Nx.all(Nx.is_nan(draws - draws) == 0, axes: [1, 2])
    x = Nx.select(Nx.broadcast(column(finite), Nx.shape(draws)), draws, 0.0)
    pooled = pool(x)
    sorted = Nx.sort(pooled, axis: 1)
    mean = Nx.mean(pooled, axes: [1])
    sd = Nx.sqrt(variance(pooled))
    q5 = quantile(sorted, p: 0.05)
    q95 = quantile(sorted, p: 0.95)

    halves = split(x)
    ranks = rank_normal(halves)
    median = halves |> pool() |> Nx.sort(axis: 1) |> quantile(p: 0.5)
    folded = Nx.abs(halves - column(median))
    rhat = Nx.max(potential_scale(ranks), potential_scale(rank_normal(folded)))

    # One transform of all that an effective sample size is of.
    ess =
      [ranks, halves, split(x <= column(q5)), split(x <= column(q95))]
      |> Nx.stack()
      |> Nx.flatten(axes: [0, 1])
      |> effective_size()
      |> Nx.reshape({4, Nx.axis_size(x, 0)})

    mcse = sd / Nx.sqrt(ess[1])

    summary = [
      mean,
      sd,
      mcse,
      q5,
      quantile(sorted, p: 0.5),
      q95,
      rhat,
      ess[0],
      Nx.min(ess[2], ess[3])
    ]

    summary = Nx.stack(summary, axis: 1)

    Nx.select(
      Nx.broadcast(Nx.new_axis(finite, 1), Nx.shape(summary)),
      summary,
      Nx.Constants.nan(:f64)
    )
  end

  defnp(pool(x), do: Nx.flatten(x, axes: [1, 2]))
  defnp(column(x), do: Nx.reshape(x, {Nx.axis_size(x, 0), 1, 1}))
  # Of the last axis, unbiased.
  defnp(variance(x), do: Nx.variance(x, axes: [-1], ddof: 1))

  # The halves of chains as chains. An odd number of draws loses the one in the middle.
  defnp split(x) do
    count = Nx.axis_size(x, 2)
    half = div(count, 2)

    Nx.concatenate(
      [
        Nx.slice_along_axis(x, 0, half, axis: 2),
        Nx.slice_along_axis(x, count - half, half, axis: 2)
      ],
      axis: 1
    )
    |> Nx.as_type(:f64)
  end

  # Linear between the two draws around the quantile (type 7 of Hyndman and Fan).
  deftransformp quantile(sorted, p: p) do
    last = Nx.axis_size(sorted, 1) - 1
    lower = min(trunc(last * p), last - 1)
    [below, above] = for at <- [lower, lower + 1], do: sorted[[.., at]]
    Nx.add(below, Nx.multiply(Nx.subtract(above, below), Nx.tensor(last * p - lower, type: :f64)))
  end

  # Ranks over all chains as quantiles of the normal distribution, by Blom's offset. Ties have the mean of their ranks.
  defnp rank_normal(x) do
    pooled = pool(x)
    count = Nx.axis_size(pooled, 1)
    order = Nx.argsort(pooled, axis: 1)
    sorted = Nx.take_along_axis(pooled, order, axis: 1)
    position = Nx.iota(Nx.shape(pooled), axis: 1, type: :s64)
    changes = sorted[[.., 1..-1//1]] != sorted[[.., 0..-2//1]]
    starts = Nx.pad(changes, 1, [{0, 0, 0}, {1, 0, 0}])
    ends = Nx.pad(changes, 1, [{0, 0, 0}, {0, 1, 0}])
    first = Nx.cumulative_max(Nx.select(starts, position, 0), axis: 1)
    last = Nx.cumulative_min(Nx.select(ends, position, count - 1), axis: 1, reverse: true)
    ranks = 0.5 * Nx.as_type(first + last, :f64) + 1.0
    ranks = Nx.take_along_axis(ranks, Nx.argsort(order, axis: 1), axis: 1)
    uniform = (ranks - 0.375) / (count + 0.25)
    Nx.reshape(@sqrt_2 * Nx.erf_inv(2.0 * uniform - 1.0), Nx.shape(x))
  end

  defnp potential_scale(x) do
    count = Nx.axis_size(x, 2)
    between = variance(Nx.mean(x, axes: [2]))
    within = Nx.mean(variance(x), axes: [1])
    Nx.sqrt(between / within + (count - 1) / count)
  end

  # The autocorrelations of all chains in pairs, while the pairs are positive, no pair larger than the one before. The even
  # correlation after them improves the estimate for chains with negative autocorrelation.
  defnp effective_size(x) do
    {_, chains, count} = Nx.shape(x)
    covariance = autocovariance(x)
    first = covariance[[.., 0..0]]
    within = first * count / (count - 1)
    pooled = first + Nx.new_axis(variance(Nx.mean(x, axes: [2])), 1)
    lag = Nx.iota(Nx.shape(covariance), axis: 1)
    correlation = Nx.select(lag == 0, 1.0, 1.0 - (within - covariance) / pooled)

    pairs = div(count, 2)
    paired = Nx.reshape(correlation[[.., 0..(2 * pairs - 1)]], {Nx.axis_size(x, 0), pairs, 2})
    {even, sums} = {paired[[.., .., 0]], Nx.sum(paired, axes: [2])}
    index = Nx.iota(Nx.shape(sums), axis: 1)
    ended = Nx.logical_or(sums <= 0, index >= div(Nx.max(count - 3, 0), 2))
    stop = Nx.new_axis(Nx.argmax(ended, axis: 1), 1)
    counted = Nx.select(index < stop, Nx.cumulative_min(sums, axis: 1), 0.0)
    rest = Nx.select(index == stop, Nx.max(even, 0.0), 0.0)
    time = 2.0 * Nx.sum(counted, axes: [1]) + Nx.sum(rest, axes: [1]) - 1.0

    size = chains * count / Nx.max(time, least_time(x))
    # 0/0, NaN, where the draws do not vary.
    size + 0.0 * (first[[.., 0]] / pooled[[.., 0]])
  end

  # The bound of Stan: chains with negative autocorrelation have more effective draws than draws.
  deftransformp(least_time(x),
    do: Nx.tensor(1 / :math.log10(Nx.axis_size(x, 1) * Nx.axis_size(x, 2)), type: :f64)
  )

  # The mean over chains, by a transform without wrapping.
  defnp autocovariance(x) do
    count = Nx.axis_size(x, 2)
    length = padded_length(x)
    spectrum = Nx.fft(x - Nx.mean(x, axes: [2], keep_axes: true), length: length)
    power = Nx.mean(Nx.real(spectrum) ** 2 + Nx.imag(spectrum) ** 2, axes: [1])
    Nx.real(Nx.ifft(power))[[.., 0..(count - 1)]] / count
  end

  deftransformp padded_length(x) do
    (2 * Nx.axis_size(x, 2))
    |> then(&(Stream.iterate(1, fn n -> 2 * n end) |> Enum.find(fn n -> n >= &1 end)))
  end

  defnp missing_information(energy) do
    change = energy[[.., 1..-1//1]] - energy[[.., 0..-2//1]]
    Nx.mean(change ** 2, axes: [1]) / variance(energy)
  end

  defimpl Inspect do
    @columns [
      mean: "mean",
      sd: "sd",
      mcse_mean: "MCSE",
      q5: "5%",
      median: "50%",
      q95: "95%",
      rhat: "R-hat",
      ess_bulk: "ESS bulk",
      ess_tail: "ESS tail"
    ]

    def inspect(summary, opts) do
      {shown, left} =
        if opts.limit == :infinity,
          do: {summary.parameters, []},
          else: Enum.split(summary.parameters, opts.limit)

      head = ["" | Keyword.values(@columns)]
      rows = for row <- shown, do: [row.name | for({key, _} <- @columns, do: cell(key, row[key]))]

      widths =
        Enum.zip_with([head | rows], fn cells ->
          cells |> Enum.map(&String.length/1) |> Enum.max()
        end)

      more = if left == [], do: [], else: ["... #{length(left)} more"]
      lines = [title(summary), "" | Enum.map([head | rows], &aligned(&1, widths))] ++ more
      body = Enum.map_join(lines, "\n", &if(&1 == "", do: "", else: "  " <> &1))
      "#Nx.Vulkan.MCMC.Diagnostics<\n#{body}\n>"
    end

    defp title(summary) do
      ["#{summary.chains} chains of #{summary.draws} draws"]
      |> Kernel.++(if summary.divergences, do: ["#{summary.divergences} divergences"], else: [])
      |> Kernel.++(if summary.e_bfmi, do: ["E-BFMI from #{range(summary.e_bfmi)}"], else: [])
      |> Enum.join(", ")
    end

    defp range(values) do
      {least, most} = Enum.min_max(values)
      "#{cell(:rhat, least)} to #{cell(:rhat, most)}"
    end

    defp aligned([name | cells], [width | widths]) do
      cells = Enum.zip_with(cells, widths, &("  " <> String.pad_leading(&1, &2)))
      String.pad_trailing(name, width) <> Enum.join(cells)
    end

    defp cell(_key, value) when is_atom(value), do: "#{value}"
    defp cell(:rhat, value), do: :erlang.float_to_binary(value, decimals: 3)
    defp cell(key, value) when key in [:ess_bulk, :ess_tail], do: "#{round(value)}"
    defp cell(_key, value), do: significant(value)

    # Four significant digits.
    defp significant(value) when value == 0, do: "0"

    defp significant(value) do
      case floor(:math.log10(abs(value))) do
        exponent when exponent in -4..6 ->
          :erlang.float_to_binary(value, decimals: max(3 - exponent, 0))

        _ ->
          :erlang.float_to_binary(value, scientific: 3)
      end
    end
  end
end
