defmodule Nx.Vulkan.PosteriorTest do
  @moduledoc """
  Posteriors of the sampler against the reference posteriors of posteriordb, and its calibration by simulation (S. Talts
  et al., "Validating Bayesian inference algorithms with simulation-based calibration", 2018).

  Two posteriors and the calibration take seconds. The others take minutes on a CPU: `mix test --only posteriors`.
  """

  use Nx.Vulkan.Test.Case, async: true

  alias Nx.Vulkan.{Chain, MCMC}
  alias Nx.Vulkan.MCMC.{Diagnostics, Transform}
  alias Nx.Vulkan.Test.PosteriorModels

  # Samplers compute in f64 unless told otherwise.
  @moduletag :float64

  # Standard errors that a mean or a standard deviation may be off by. All tests compare some 180 of them.
  @most_errors 4.5

  # With the options that models need besides those of all.
  @models [
    eight_schools_noncentered: [],
    eight_schools_centered: [target_accept: 0.99, warmup: 2000, draws: 4000],
    kidscore_momiq: [],
    kidscore_interaction: [],
    logearn_height: [],
    arK: [],
    garch11: [warmup: 500, draws: 500],
    mesquite: [],
    logmesquite: [],
    nes: [],
    blr: [],
    gp_regr: [],
    gp_pois_regr: [warmup: 500, draws: 500]
  ]

  for {name, options} <- @models do
    if name not in [:eight_schools_noncentered, :logmesquite], do: @tag(:posteriors)

    test "#{name}: means and standard deviations are those of posteriordb" do
      model = PosteriorModels.model(unquote(name))

      %{draws: draws, stats: stats} =
        MCMC.sample(
          Transform.density(model.logp, model.transforms),
          Transform.unconstrain(model.transforms, model.start),
          model.data,
          [progress: false, seed: 1] ++ unquote(options)
        )

      draws = model.derived.(Transform.constrain(model.transforms, draws))
      summary = Diagnostics.summary(%{draws: draws, stats: stats})
      assert length(summary.parameters) == map_size(model.reference)

      assert Enum.all?(summary.parameters, &(&1.rhat < 1.02 and &1.ess_bulk > 100)),
             inspect(summary)

      for {row, deviation_error} <- Enum.zip(summary.parameters, deviation_errors(draws)) do
        [mean, sd, mean_error, sd_error] = Map.fetch!(model.reference, stan_name(row.name))
        near(row.mean, mean, row.mcse_mean, mean_error, "mean of #{row.name}", summary)
        near(row.sd, sd, deviation_error, sd_error, "sd of #{row.name}", summary)
      end
    end
  end

  defp near(value, reference, error, reference_error, what, summary) do
    errors = abs(value - reference) / :math.sqrt(error ** 2 + reference_error ** 2)
    assert errors < @most_errors, "#{what}: #{errors} standard errors off\n#{inspect(summary)}"
  end

  # Stan counts from 1.
  defp stan_name(name),
    do: Regex.replace(~r/\[(\d+)\]/, name, fn _, i -> "[#{String.to_integer(i) + 1}]" end)

  # The standard errors of standard deviations: those of variances by the delta method.
  defp deviation_errors(draws) do
    squares =
      Map.new(draws, fn {name, x} ->
        {name, Nx.pow(Nx.subtract(x, Nx.mean(x, axes: [0, 1], keep_axes: true)), 2)}
      end)

    for row <- Diagnostics.summary(%{draws: squares}).parameters,
        do: row.mcse_mean / (2 * :math.sqrt(row.mean))
  end

  ## Calibration

  # Ranks of a parameter of the prior among the draws, which are uniform from 0 to @draws where the sampler is right.
  @replications 60
  @draws 99
  @bins 10
  # Exceeded with probability 1.0e-4 by a chi-square of 9 degrees of freedom.
  @most_chi_square 33.7

  defmodule Models do
    @moduledoc "Log-densities with priors that can be drawn from."
    import Nx.Defn

    defnp(normal(x, mu, sigma), do: -0.5 * ((x - mu) / sigma) ** 2 - Nx.log(sigma))

    defn(location(q, y),
      do: normal(q.mu, 0.0, 2.0) - q.sigma + Nx.sum(normal(y, q.mu, q.sigma))
    )

    # Dirichlet(2, 2, 2) and a multinomial distribution.
    defn(shares(q, counts), do: Nx.sum((1.0 + counts) * Nx.log(q.weights)))

    # Groups around a common mean, and one share of a group in a mixture of known components.
    defn hierarchy(q, y) do
      theta = q.mu + q.tau * q.theta
      near = normal(y[4..13], 0.0, 1.0)
      far = normal(y[4..13], 3.0, 1.0)

      normal(q.mu, 0.0, 1.0) - 0.5 * q.tau ** 2 - 0.5 * Nx.sum(q.theta ** 2) +
        Nx.sum(normal(y[0..3], theta, 0.5)) +
        Nx.sum(
          Nx.logsumexp(Nx.stack([Nx.log(q.share) + far, Nx.log(1.0 - q.share) + near]), axes: [0])
        )
    end
  end

  defp calibrated(:location) do
    draw = fn ->
      {mu, sigma} = {2 * :rand.normal(), -:math.log(:rand.uniform())}
      {%{mu: mu, sigma: sigma}, for(_ <- 1..10, do: mu + sigma * :rand.normal())}
    end

    {&Models.location/2, %{mu: Transform.real(), sigma: Transform.positive()},
     %{mu: Nx.f64(0), sigma: Nx.f64(1)}, draw}
  end

  defp calibrated(:shares) do
    draw = fn ->
      gammas = for _ <- 1..3, do: -:math.log(:rand.uniform() * :rand.uniform())
      [a, b, _] = weights = Enum.map(gammas, &(&1 / Enum.sum(gammas)))

      counts =
        Enum.frequencies(
          for _ <- 1..12,
              u = :rand.uniform(),
              do: if(u < a, do: 0, else: if(u < a + b, do: 1, else: 2))
        )

      {%{weights: weights}, for(i <- 0..2, do: counts[i] || 0)}
    end

    {&Models.shares/2, %{weights: Transform.simplex()}, %{weights: Nx.f64([0.3, 0.3, 0.4])}, draw}
  end

  defp calibrated(:hierarchy) do
    draw = fn ->
      {mu, tau, share} = {:rand.normal(), abs(:rand.normal()), :rand.uniform()}
      theta = for _ <- 1..4, do: :rand.normal()
      groups = for t <- theta, do: mu + tau * t + 0.5 * :rand.normal()
      mixed = for _ <- 1..10, do: if(:rand.uniform() < share, do: 3.0, else: 0.0) + :rand.normal()
      {%{mu: mu, tau: tau, theta: theta, share: share}, groups ++ mixed}
    end

    transforms = %{
      mu: Transform.real(),
      tau: Transform.positive(),
      theta: Transform.real(),
      share: Transform.interval(0, 1)
    }

    start = %{mu: Nx.f64(0), tau: Nx.f64(1), theta: Nx.f64([0, 0, 0, 0]), share: Nx.f64(0.5)}
    {&Models.hierarchy/2, transforms, start, draw}
  end

  for name <- [:location, :shares, :hierarchy] do
    test "ranks of what made the data are uniform among the draws: #{name}" do
      # A test that fails by chance, however seldom, would say nothing: data and draws are the same in each run.
      :rand.seed(:exsss, 2018)
      {logp, transforms, start, draw} = calibrated(unquote(name))
      q = Transform.unconstrain(transforms, start)
      {_, data} = draw.()
      density = Transform.density(logp, transforms)
      {:ok, chain} = Chain.compile(density, q, Nx.tensor(data, type: :f64))

      ranks =
        for replication <- 1..@replications, reduce: %{} do
          ranks ->
            {parameters, data} = draw.()
            options = [chains: 3, draws: div(@draws, 3), thin: 4, warmup: 300, progress: false]
            options = [seed: replication] ++ options
            %{draws: draws} = MCMC.sample(chain, q, Nx.tensor(data, type: :f64), options)
            draws = Transform.constrain(transforms, host_all(draws))
            Map.merge(ranks, rank(parameters, draws), fn _key, old, new -> old ++ new end)
        end

      for {key, ranks} <- ranks do
        counts = Enum.frequencies_by(ranks, &div(&1 * @bins, @draws + 1))
        expected = @replications / @bins

        chi_square =
          Enum.sum(for bin <- 0..(@bins - 1), do: ((counts[bin] || 0) - expected) ** 2 / expected)

        assert chi_square < @most_chi_square, "#{inspect(key)}: #{inspect(counts)}"
      end
    end
  end

  defp host_all(draws), do: Map.new(draws, fn {key, draws} -> {key, host(draws)} end)

  # The rank of each number by its key and index.
  defp rank(parameters, draws) do
    for {key, value} <- parameters,
        {number, index} <- value |> List.wrap() |> Enum.with_index(),
        into: %{} do
      of_number =
        draws[key] |> Nx.reshape({@draws, :auto}) |> Nx.slice_along_axis(index, 1, axis: 1)

      {{key, index}, [Enum.count(Nx.to_flat_list(of_number), &(&1 < number))]}
    end
  end
end
