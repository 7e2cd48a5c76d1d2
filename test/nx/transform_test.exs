defmodule Nx.Vulkan.TransformTest do
  @moduledoc """
  Transforms of constrained parameters: what they give satisfies the constraint, they have an inverse, and their
  log-Jacobian is that of automatic differentiation.
  """

  use Nx.Vulkan.Test.Case, async: true

  alias Nx.Vulkan.Chain
  alias Nx.Vulkan.MCMC.Transform
  alias Nx.Vulkan.Test.ChainModels

  # The transform, the shape of unconstrained numbers, the elements of the result that determine it, and the constraint.
  defp cases do
    [
      {Transform.real(), {3}, & &1, fn x -> assert_all(Nx.is_nan(x) |> Nx.logical_not()) end},
      {Transform.positive(), {3}, & &1, fn x -> assert_all(Nx.greater(x, 0)) end},
      {Transform.lower(-2.5), {3}, & &1, fn x -> assert_all(Nx.greater(x, -2.5)) end},
      {Transform.upper(0.3), {3}, & &1, fn x -> assert_all(Nx.less(x, 0.3)) end},
      {Transform.interval(-1, 0.1), {3}, & &1,
       fn x -> assert_all(Nx.logical_and(Nx.greater(x, -1), Nx.less(x, 0.1))) end},
      {Transform.ordered(), {5}, & &1, fn x -> assert_all(Nx.greater(Nx.diff(x), 0)) end},
      {Transform.ordered(), {1}, & &1, fn _ -> :ok end},
      {Transform.simplex(), {4}, & &1[0..3], &simplex/1},
      {Transform.simplex(), {1}, & &1[0..0], &simplex/1},
      {Transform.cholesky_correlation(), {6}, &below/1, &factor/1},
      {Transform.cholesky_correlation(), {1}, &below/1, &factor/1}
    ]
  end

  defp assert_all(flags), do: assert(Nx.to_number(Nx.all(flags)) == 1)

  defp simplex(x) do
    assert_all(Nx.greater(x, 0))
    assert_in_delta Nx.to_number(Nx.sum(x)), 1.0, 1.0e-14
  end

  defp factor(l) do
    assert_all(Nx.greater(Nx.take_diagonal(l), 0))
    assert Nx.tril(l) == l

    close(
      Nx.take_diagonal(Nx.dot(l, Nx.transpose(l))),
      Nx.broadcast(Nx.f64(1), {elem(l.shape, 0)})
    )
  end

  defp below(matrix) do
    rows = Nx.axis_size(matrix, 0)
    for(i <- 1..(rows - 1), j <- 0..(i - 1), do: matrix[i][j]) |> Nx.stack()
  end

  defp close(result, expected, error \\ 1.0e-13) do
    distance =
      Nx.subtract(host(result), expected) |> Nx.abs() |> Nx.reduce_max() |> Nx.to_number()

    scale = expected |> Nx.abs() |> Nx.reduce_max() |> Nx.to_number() |> max(1.0)
    assert distance <= error * scale, "#{inspect(result)} is not near #{inspect(expected)}"
  end

  defp spread(shape, scale, phase \\ 0.3),
    do: Nx.multiply(Nx.f64(scale), ChainModels.numbers(shape, phase))

  test "parameters satisfy their constraint, and have an inverse" do
    for {transform, shape, _free, constraint} <- cases(), scale <- [0.0, 1.0, 6.0] do
      y = spread(shape, scale)
      x = Transform.constrain(transform, y)
      assert x.type == {:f, 64}
      constraint.(x)
      close(Transform.unconstrain(transform, x), y, 1.0e-11)
    end
  end

  test "leading axes are separate parameters" do
    for {transform, shape, _free, _constraint} <- cases() do
      y = spread(List.to_tuple([2, 3 | Tuple.to_list(shape)]), 2.0)
      x = Transform.constrain(transform, y)

      for i <- 0..1, j <- 0..2, do: close(x[i][j], Transform.constrain(transform, y[i][j]))

      close(Transform.unconstrain(transform, x), y, 1.0e-12)

      sum =
        for(i <- 0..1, j <- 0..2, do: Transform.log_jacobian(transform, y[i][j]))
        |> Nx.stack()
        |> Nx.sum()

      close(Transform.log_jacobian(transform, y), sum)
    end
  end

  test "log-Jacobians are those of automatic differentiation" do
    for {transform, shape, free, _constraint} <- cases(), scale <- [0.0, 1.0, 3.0] do
      y = spread(shape, scale, 0.9)

      rows =
        for i <- 0..(elem(shape, 0) - 1),
            do: Nx.Defn.grad(y, fn y -> free.(Transform.constrain(transform, y))[i] end)

      determinant = rows |> Nx.stack() |> Nx.LinAlg.determinant() |> Nx.abs() |> Nx.log()
      close(Transform.log_jacobian(transform, y), determinant, 1.0e-9)
    end
  end

  test "values and gradients of log-Jacobians are finite far from 0, and those at 0 are exact" do
    finite = &assert_all(Nx.logical_not(Nx.logical_or(Nx.is_nan(&1), Nx.is_infinity(&1))))

    for {transform, shape, _free, _constraint} <- cases() do
      gradient = fn y -> Nx.Defn.value_and_grad(y, &Transform.log_jacobian(transform, &1)) end

      for far <- [-800.0, -50.0, 50.0, 800.0] do
        {value, slope} = gradient.(Nx.broadcast(Nx.f64(far), shape))
        finite.(value)
        finite.(slope)
      end

      {_, slope} = gradient.(Nx.broadcast(Nx.f64(0), shape))
      step = 1.0e-5

      for i <- 0..(elem(shape, 0) - 1) do
        [up, down] =
          for at <- [step, -step] do
            y = Nx.indexed_put(Nx.broadcast(Nx.f64(0), shape), Nx.tensor([i]), Nx.f64(at))
            Nx.to_number(Transform.log_jacobian(transform, y))
          end

        assert_in_delta Nx.to_number(slope[i]), (up - down) / (2 * step), 1.0e-9
      end
    end

    # Numbers of a simplex that underflow keep a finite logarithm before, and no gradient is NaN.
    for far <- [-300.0, 300.0],
        transform <- [Transform.simplex(), Transform.ordered(), Transform.interval(0, 1)] do
      finite.(
        Nx.Defn.grad(Nx.broadcast(Nx.f64(far), {4}), &Nx.sum(Transform.constrain(transform, &1)))
      )
    end
  end

  defmodule Model do
    @moduledoc "A log-density with a parameter of each kind."
    import Nx.Defn

    defn logp(q, x) do
      {low, high} = q.bounds

      correlation = Nx.dot(q.factor, Nx.transpose(q.factor))
      spread = Nx.sum(Nx.log(Nx.take_diagonal(q.factor))) - 0.1 * Nx.sum(correlation ** 2)

      -0.5 * q.mu ** 2 - q.sigma - Nx.sum((x - q.mu) ** 2) / q.sigma + low - high ** 2 +
        3.0 * Nx.log(1.0 - q.share) - 0.5 * Nx.sum(q.cuts ** 2) + 2.0 * Nx.sum(Nx.log(q.weights)) +
        spread
    end
  end

  defp model do
    transforms = %{
      mu: Transform.real(),
      sigma: Transform.positive(),
      bounds: {Transform.upper(3), Transform.lower(1)},
      share: Transform.interval(0, 1),
      cuts: Transform.ordered(),
      weights: Transform.simplex(),
      factor: Transform.cholesky_correlation()
    }

    parameters = %{
      mu: Nx.f64(0.2),
      sigma: Nx.f64(0.7),
      bounds: {Nx.f64(1.0), Nx.f64(2.5)},
      share: Nx.f64(0.3),
      cuts: Nx.f64([-1, 0.2, 0.9]),
      weights: Nx.f64([0.1, 0.5, 0.15, 0.25]),
      factor: Nx.LinAlg.cholesky(Nx.f64([[1, 0.3, -0.2], [0.3, 1, 0.6], [-0.2, 0.6, 1]]))
    }

    {transforms, parameters}
  end

  @tag :float64
  test "a log-density with constrained parameters is a chain kernel" do
    {transforms, parameters} = model()
    x = ChainModels.numbers({12})
    logp = Transform.density(&Model.logp/2, transforms)
    q = Transform.unconstrain(transforms, parameters)
    assert q.weights.shape == {3} and q.factor.shape == {3}
    assert {:ok, chain} = Chain.compile(logp, q, x, type: :f64)
    assert chain.dimensions == 14

    momenta = ChainModels.numbers({14})
    {:ok, states} = Chain.leapfrog(chain, q, momenta, x, steps: 1, step_size: 0.0)
    {value, gradient} = Nx.Defn.value_and_grad(q, &logp.(&1, x))
    close(states.logp[0], value)
    close(states.grad[0], Chain.to_vector(chain, gradient), 1.0e-12)

    expected = Nx.add(Model.logp(parameters, x), Transform.log_jacobian(transforms, q))
    close(states.logp[0], expected, 1.0e-12)
  end

  test "transforms have the structure of the parameters" do
    {transforms, parameters} = model()
    y = Transform.unconstrain(transforms, parameters)
    assert Transform.constrain(transforms, y) |> Map.keys() == Map.keys(parameters)

    for wrong <- [
          Map.delete(transforms, :mu),
          %{transforms | bounds: Transform.real()},
          {Transform.real()}
        ],
        do:
          assert_raise(ArgumentError, ~r/transforms: expected one/, fn ->
            Transform.constrain(wrong, y)
          end)

    assert_raise ArgumentError, ~r/cholesky_correlation/, fn ->
      Transform.constrain(Transform.cholesky_correlation(), Nx.f64([1, 2]))
    end

    assert_raise ArgumentError, ~r/simplex/, fn ->
      Transform.constrain(Transform.simplex(), 1.0)
    end

    assert_raise ArgumentError, ~r/square/, fn ->
      Transform.unconstrain(Transform.cholesky_correlation(), Nx.f64([1, 2]))
    end

    assert_raise FunctionClauseError, fn -> Transform.interval(1, 1) end
  end
end
