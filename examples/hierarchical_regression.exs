# A hierarchical regression: each of 16 groups has an intercept and a slope of its own, drawn from a normal distribution of two
# dimensions whose means, scales and correlation are sampled, too.
#
#     mix run examples/hierarchical_regression.exs
#
# Ends with status 1 when the chains disagree (R-hat above 1.02) or a posterior mean differs from the parameter that
# generated the data by more than four standard deviations.

Code.require_file("support/report.exs", __DIR__)

defmodule Examples.HierarchicalRegression do
  import Nx.Defn

  alias Nx.Vulkan.MCMC.Transform

  @groups 16
  @observations 12

  def truth, do: %{mean: [1.0, -0.5], scale: [0.8, 0.4], correlation: 0.6, noise: 0.5}

  def transforms do
    %{
      mean: Transform.real(),
      scale: Transform.positive(),
      factor: Transform.cholesky_correlation(),
      z: Transform.real(),
      noise: Transform.positive()
    }
  end

  def start do
    Transform.unconstrain(transforms(), %{
      mean: Nx.f64([0, 0]),
      scale: Nx.f64([1, 1]),
      factor: Nx.eye(2, type: :f64),
      z: Nx.broadcast(Nx.f64(0), {@groups, 2}),
      noise: Nx.f64(1)
    })
  end

  # A group's coefficients are mean + z (scale · factor)ᵀ: with few data, coefficients themselves would be a funnel.
  defn coefficients(q) do
    q.mean + Nx.dot(q.z, Nx.transpose(Nx.new_axis(q.scale, 1) * q.factor))
  end

  defnp(normal(x, mu, sigma), do: -0.5 * ((x - mu) / sigma) ** 2 - Nx.log(sigma))

  # The factor's prior is that of Lewandowski, Kurowicka and Joe with shape 2: 2·log of its second diagonal element.
  defn logp(q, {x, y}) do
    of_group = coefficients(q)
    line = of_group[[.., 0..0]] + of_group[[.., 1..1]] * x

    Nx.sum(normal(q.mean, 0.0, 2.0)) + Nx.sum(normal(q.scale, 0.0, 1.0)) +
      normal(q.noise, 0.0, 1.0) +
      2.0 * Nx.log(q.factor[1][1]) + Nx.sum(normal(q.z, 0.0, 1.0)) +
      Nx.sum(normal(y, line, q.noise))
  end

  @doc "The data of `truth/0`, the same for the same seed: `{x, y}` of groups and observations."
  def data(seed) do
    :rand.seed(:exsss, seed)
    %{mean: [m0, m1], scale: [s0, s1], correlation: r, noise: noise} = truth()

    for _ <- 1..@groups do
      {z0, z1} = {:rand.normal(), :rand.normal()}
      {a, b} = {m0 + s0 * z0, m1 + s1 * (r * z0 + :math.sqrt(1 - r * r) * z1)}

      for _ <- 1..@observations do
        x = :rand.normal()
        {x, a + b * x + noise * :rand.normal()}
      end
    end
    |> then(fn rows ->
      for part <- [0, 1],
          do: rows |> Enum.map(&Enum.map(&1, fn p -> elem(p, part) end)) |> Nx.tensor(type: :f64)
    end)
    |> List.to_tuple()
  end
end

alias Examples.{HierarchicalRegression, Report}
alias Nx.Vulkan.MCMC
alias Nx.Vulkan.MCMC.{Diagnostics, Transform}

Report.device()
transforms = HierarchicalRegression.transforms()

{time, %{draws: draws, stats: stats}} =
  :timer.tc(fn ->
    MCMC.sample(
      Transform.density(&HierarchicalRegression.logp/2, transforms),
      HierarchicalRegression.start(),
      HierarchicalRegression.data(4)
    )
  end)

%{mean: mean, scale: scale, factor: factor, noise: noise} = Transform.constrain(transforms, draws)
correlation = factor[[.., .., 1, 0]]
truth = HierarchicalRegression.truth()

truth =
  for {key, value} <- truth, {number, i} <- Enum.with_index(List.wrap(value)), into: %{} do
    {if(is_list(value), do: "#{key}[#{i}]", else: "#{key}"), number}
  end

%{draws: %{mean: mean, scale: scale, correlation: correlation, noise: noise}, stats: stats}
|> Diagnostics.summary()
|> Report.judge(stats, time, truth)
