defmodule Nx.Vulkan.Test.PosteriorModels do
  @moduledoc """
  Models of `stan-dev/posteriordb` in Nx, with the data and the reference posteriors of `test/support/posteriors`.

  Priors and likelihoods are those of posteriordb's Stan programs; additive constants are left out. Each model is a map:
  the log-density over constrained parameters, the transforms, a start, the data, the reference, and `derived`, which makes
  the quantities of the reference of constrained draws.
  """

  import Nx.Defn

  alias Nx.Vulkan.MCMC.Transform

  @folder Path.expand("posteriors", __DIR__)

  @doc "The model of that name: a map as described above."
  def model(name) do
    {file, reference} = source(name)
    {%{data: data, reference: references}, _} = Code.eval_file(Path.join(@folder, "#{file}.exs"))
    data = Map.new(data, fn {key, text} -> {key, numbers(text)} end)

    name
    |> definition(data)
    |> Map.put_new(:derived, & &1)
    |> Map.put(:reference, reference(Map.fetch!(references, reference)))
  end

  defp source(name) when name in [:eight_schools_centered, :eight_schools_noncentered],
    do: {"eight_schools", :eight_schools_noncentered}

  defp source(name) when name in [:kidscore_momiq, :kidscore_interaction], do: {"kidiq", name}
  defp source(:logearn_height), do: {"earnings", :logearn_height}
  defp source(:garch11), do: {"garch", :garch11}
  defp source(name) when name in [:mesquite, :logmesquite], do: {"mesquite", name}
  defp source(:nes), do: {"nes2000", :nes}
  defp source(:blr), do: {"sblri", :blr}
  defp source(name) when name in [:gp_regr, :gp_pois_regr], do: {"gp_pois_regr", name}
  defp source(:arK), do: {"arK", :arK}

  defp numbers(text) do
    for(word <- String.split(text), {number, ""} = Float.parse(word), do: number)
    |> Nx.tensor(type: :f64)
  end

  # Of each quantity the mean, the standard deviation, and the standard errors of both.
  defp reference(text) do
    for line <- String.split(text, "\n", trim: true), into: %{} do
      [name | numbers] = String.split(line)
      {name, Enum.map(numbers, fn word -> word |> Float.parse() |> elem(0) end)}
    end
  end

  ## Definitions

  defp definition(:eight_schools_noncentered, %{y: y, sigma: sigma}) do
    %{
      logp: &noncentered/2,
      transforms: schools(),
      start: %{mu: Nx.f64(0), tau: Nx.f64(1), theta: Nx.broadcast(Nx.f64(0), {8})},
      data: {y, sigma},
      derived: fn %{mu: mu, tau: tau, theta: theta} = draws ->
        [mu, tau] = Enum.map([mu, tau], &Nx.new_axis(&1, -1))
        %{draws | theta: Nx.add(mu, Nx.multiply(tau, theta))}
      end
    }
  end

  defp definition(:eight_schools_centered, %{y: y, sigma: sigma}) do
    start = %{mu: Nx.f64(0), tau: Nx.f64(1), theta: Nx.broadcast(Nx.f64(0), {8})}
    %{logp: &centered/2, transforms: schools(), start: start, data: {y, sigma}}
  end

  defp definition(:kidscore_momiq, data),
    do: regression(&cauchy_scale/2, [data.mom_iq], data.kid_score)

  defp definition(:kidscore_interaction, %{mom_hs: hs, mom_iq: iq} = data),
    do: regression(&cauchy_scale/2, [hs, iq, Nx.multiply(hs, iq)], data.kid_score)

  defp definition(:logearn_height, data),
    do: regression(&flat/2, [data.height], Nx.log(data.earn))

  defp definition(:mesquite, data),
    do: regression(&flat/2, Enum.map(mesquite(), &data[&1]) ++ [data.group], data.weight)

  defp definition(:logmesquite, data) do
    columns = for key <- mesquite(), do: Nx.log(data[key])
    regression(&flat/2, columns ++ [data.group], Nx.log(data.weight))
  end

  defp definition(:nes, data) do
    ages = for age <- 2..4, do: Nx.equal(data.age_discrete, age)
    columns = [data.real_ideo, data.race_adj] ++ ages ++ [data.educ1, data.gender, data.income]
    regression(&flat/2, columns, data.partyid7)
  end

  defp definition(:blr, %{x: x, y: y}) do
    n = Nx.size(y)
    %{regression(&wide/2, [], y) | data: {Nx.reshape(x, {n, 5}), y}} |> started(5)
  end

  defp definition(:arK, %{y: y}) do
    lags = for k <- 1..5, do: y[(5 - k)..(-1 - k)//1]
    model = regression(&wide_cauchy/2, lags, y[5..-1//1])

    Map.put(model, :derived, fn %{beta: beta, sigma: sigma} ->
      %{alpha: beta[[.., .., 0]], beta: beta[[.., .., 1..5]], sigma: sigma}
    end)
  end

  # beta1 lies between 0 and 1 - alpha1: `share` is its part of that interval.
  defp definition(:garch11, %{y: y}) do
    unit = Transform.interval(0, 1)

    %{
      logp: &garch/2,
      transforms: %{
        mu: Transform.real(),
        alpha0: Transform.positive(),
        alpha1: unit,
        share: unit
      },
      start: %{mu: Nx.f64(5), alpha0: Nx.f64(1), alpha1: Nx.f64(0.5), share: Nx.f64(0.5)},
      data: y,
      derived: fn draws ->
        beta1 = Nx.multiply(Nx.subtract(1, draws.alpha1), draws.share)
        draws |> Map.delete(:share) |> Map.put(:beta1, beta1)
      end
    }
  end

  defp definition(:gp_regr, %{x: x, y: y}) do
    %{
      logp: &gaussian_process/2,
      transforms: Map.new([:rho, :alpha, :sigma], &{&1, Transform.positive()}),
      start: %{rho: Nx.f64(5), alpha: Nx.f64(2), sigma: Nx.f64(1)},
      data: {x, y}
    }
  end

  defp definition(:gp_pois_regr, %{x: x, k: k}) do
    %{
      logp: &poisson_process/2,
      transforms: %{rho: Transform.positive(), alpha: Transform.positive(), f: Transform.real()},
      start: %{rho: Nx.f64(5), alpha: Nx.f64(2), f: Nx.broadcast(Nx.f64(0), {11})},
      data: {x, k},
      derived: fn draws ->
        %{draws | f: Nx.vectorize(draws.rho, [:chain, :draw]) |> latent(draws, x)}
      end
    }
  end

  defp mesquite, do: [:diam1, :diam2, :canopy_height, :total_height, :density]

  defp schools, do: %{mu: Transform.real(), tau: Transform.positive(), theta: Transform.real()}

  # Of an intercept and these columns.
  defp regression(logp, columns, y) do
    x = Nx.stack([Nx.broadcast(Nx.f64(1), y) | Enum.map(columns, &Nx.as_type(&1, :f64))], axis: 1)

    started(
      %{
        logp: logp,
        transforms: %{beta: Transform.real(), sigma: Transform.positive()},
        data: {x, y}
      },
      1 + length(columns)
    )
  end

  defp started(model, count) do
    {_, y} = model.data
    start = %{beta: Nx.broadcast(Nx.f64(0), {count}), sigma: Nx.standard_deviation(y)}
    Map.put(model, :start, start)
  end

  ## Log-densities

  defnp(normal(x, mu, sigma), do: -0.5 * ((x - mu) / sigma) ** 2 - Nx.log(sigma))
  defnp(cauchy(x, scale), do: -Nx.log1p((x / scale) ** 2))

  defn noncentered(q, {y, sigma}) do
    theta = q.mu + q.tau * q.theta

    normal(q.mu, 0.0, 5.0) + cauchy(q.tau, 5.0) + Nx.sum(normal(q.theta, 0.0, 1.0)) +
      Nx.sum(normal(y, theta, sigma))
  end

  defn centered(q, {y, sigma}) do
    normal(q.mu, 0.0, 5.0) + cauchy(q.tau, 5.0) + Nx.sum(normal(q.theta, q.mu, q.tau)) +
      Nx.sum(normal(y, q.theta, sigma))
  end

  defn(flat(q, {x, y}), do: Nx.sum(normal(y, Nx.dot(x, q.beta), q.sigma)))
  defn(cauchy_scale(q, data), do: flat(q, data) + cauchy(q.sigma, 2.5))

  defn(wide(q, data),
    do: flat(q, data) + Nx.sum(normal(q.beta, 0.0, 10.0)) + normal(q.sigma, 0.0, 10.0)
  )

  defn(wide_cauchy(q, data), do: cauchy_scale(q, data) + Nx.sum(normal(q.beta, 0.0, 10.0)))

  # variance[t] = alpha0 + alpha1 (y[t - 1] - mu)² + beta1 variance[t - 1], with variance[1] = 0.25, as the product with a
  # matrix of powers of beta1.
  defn garch(q, y) do
    beta1 = (1.0 - q.alpha1) * q.share
    squares = (y - q.mu) ** 2
    n = Nx.size(y)
    before = Nx.pad(squares, 0.0, [{1, -1, 0}])
    input = Nx.select(Nx.iota({n}) == 0, 0.25, q.alpha0 + q.alpha1 * before)
    lag = Nx.iota({n, n}, axis: 0) - Nx.iota({n, n}, axis: 1)
    variance = Nx.dot(Nx.select(lag >= 0, Nx.exp(Nx.max(lag, 0) * Nx.log(beta1)), 0.0), input)
    Nx.log(1.0 - q.alpha1) - 0.5 * Nx.sum(Nx.log(variance) + squares / variance)
  end

  defn(gamma_prior(rho), do: 24.0 * Nx.log(rho) - 4.0 * rho)

  defn gaussian_process(q, {x, y}) do
    z = Nx.LinAlg.triangular_solve(factor(q.rho, q.alpha, q.sigma, x), y)
    diagonal = Nx.take_diagonal(factor(q.rho, q.alpha, q.sigma, x))

    gamma_prior(q.rho) + normal(q.alpha, 0.0, 2.0) + normal(q.sigma, 0.0, 1.0) -
      0.5 * Nx.sum(z ** 2) - Nx.sum(Nx.log(diagonal))
  end

  defn poisson_process(q, {x, k}) do
    f = Nx.dot(factor(q.rho, q.alpha, 1.0e-10, x), q.f)

    gamma_prior(q.rho) + normal(q.alpha, 0.0, 2.0) - 0.5 * Nx.sum(q.f ** 2) +
      Nx.sum(k * f - Nx.exp(f))
  end

  defn factor(rho, alpha, noise, x) do
    distance = (Nx.new_axis(x, 1) - Nx.new_axis(x, 0)) / rho
    covariance = alpha ** 2 * Nx.exp(-0.5 * distance ** 2)
    Nx.LinAlg.cholesky(covariance + noise * Nx.eye(Nx.size(x), type: :f64))
  end

  # The Gaussian process of draws `{chains, draws}`.
  defp latent(rho, draws, x) do
    [alpha, f] = for tensor <- [draws.alpha, draws.f], do: Nx.vectorize(tensor, [:chain, :draw])
    rho |> factor(alpha, 1.0e-10, x) |> Nx.dot(f) |> Nx.devectorize(keep_names: false)
  end
end
