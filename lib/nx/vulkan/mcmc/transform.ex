defmodule Nx.Vulkan.MCMC.Transform do
  @moduledoc """
  Constrained parameters: transforms of unconstrained numbers, which a sampler moves, to the parameters of a model.

  A transform is a value that `positive/0`, `simplex/0` and the other functions below make. A model has a container of
  them, one for each parameter, as `Nx.Container` has them:

      iex> alias Nx.Vulkan.MCMC.Transform
      iex> transforms = %{mu: Transform.real(), sigma: Transform.positive()}
      iex> start = Transform.unconstrain(transforms, %{mu: Nx.f64(0.5), sigma: Nx.f64(1.0)})
      iex> {Nx.to_number(start.mu), Nx.to_number(start.sigma)}
      {0.5, 0.0}

  `density/2` makes of a log-density over constrained parameters one over unconstrained ones: it adds the logarithm of the
  Jacobian determinant's absolute value. `unconstrain/2` makes a start of parameters, and `constrain/2` makes
  parameters of draws:

      result = Nx.Vulkan.MCMC.sample(Transform.density(&Model.logp/2, transforms), start, data)
      draws = Transform.constrain(transforms, result.draws)

  Vectors are along the last axis and matrices along the last two. Axes before these are separate parameters of the kind,
  or chains and draws. All functions are ordinary Nx and can be called in `defn`.

  ## Sources

  The formulas are those of the Stan reference manual, version 2.32, chapter "Constraint transforms"
  (<https://mc-stan.org/docs/2_32/reference-manual/variable-transforms.html>). Products of probabilities are sums of
  logarithms here, so that neither values nor gradients overflow where a parameter comes close to its bound.
  """

  import Nx.Defn

  alias Nx.Tensor, as: T

  # Nx would compute the logarithm of a number in f32.
  @log_2 :math.log(2)

  @enforce_keys [:kind]
  defstruct [:kind, bounds: []]

  @typedoc "What a parameter is transformed to. The fields are private."
  @type t :: %__MODULE__{kind: atom(), bounds: keyword(number())}

  @typedoc "A transform, or a container of transforms."
  @type transforms :: t() | tuple() | map()

  @doc "Any number: the parameter is the unconstrained one."
  @spec real() :: t()
  def real, do: %__MODULE__{kind: :real}

  @doc "A positive number: `x = exp(y)`. The log-Jacobian is `y` (section \"Lower bounded scalar\")."
  @spec positive() :: t()
  def positive, do: lower(0)

  @doc "A number above `a`: `x = a + exp(y)`. The log-Jacobian is `y` (section \"Lower bounded scalar\")."
  @spec lower(number()) :: t()
  def lower(a) when is_number(a), do: %__MODULE__{kind: :lower, bounds: [lower: a]}

  @doc "A number below `b`: `x = b - exp(y)`. The log-Jacobian is `y` (section \"Upper bounded scalar\")."
  @spec upper(number()) :: t()
  def upper(b) when is_number(b), do: %__MODULE__{kind: :upper, bounds: [upper: b]}

  @doc """
  A number between `a` and `b`: `x = a + (b - a)·sigmoid(y)`.

  The log-Jacobian is `log(b - a) + log(sigmoid(y)) + log(sigmoid(-y))` (section "Lower and upper bounded scalar").
  """
  @spec interval(number(), number()) :: t()
  def interval(a, b) when is_number(a) and is_number(b) and a < b,
    do: %__MODULE__{kind: :interval, bounds: [lower: a, upper: b]}

  @doc """
  A vector of ascending numbers: `x₁ = y₁`, `xₖ = xₖ₋₁ + exp(yₖ)`.

  The log-Jacobian is the sum of all `y` but the first (section "Ordered vector").
  """
  @spec ordered() :: t()
  def ordered, do: %__MODULE__{kind: :ordered}

  @doc """
  A vector of `k` positive numbers with the sum 1, of `k - 1` unconstrained ones, by breaking a stick.

  `zₖ = sigmoid(yₖ - log(K - k))` is the part of what is left that `xₖ` takes, so that `y = 0` gives equal numbers. The
  log-Jacobian is the sum of `log(zₖ) + log(1 - zₖ) + log(1 - x₁ - … - xₖ₋₁)` (section "Unit simplex").
  """
  @spec simplex() :: t()
  def simplex, do: %__MODULE__{kind: :simplex}

  @doc """
  The lower Cholesky factor of a correlation matrix of `k` rows, of `k(k - 1)/2` unconstrained numbers.

  `zᵢⱼ = tanh(y)` are canonical partial correlations, row by row below the diagonal. `Lᵢⱼ = zᵢⱼ·√(1 - Lᵢ₁² - … - Lᵢⱼ₋₁²)`,
  and the diagonal makes the length of each row 1. The log-Jacobian is the sum of
  `(1 + (i - j - 1)/2)·log(1 - zᵢⱼ²)` (section "Cholesky factors of correlation matrices").
  """
  @spec cholesky_correlation() :: t()
  def cholesky_correlation, do: %__MODULE__{kind: :cholesky_correlation}

  @doc """
  The log-density over unconstrained parameters of one over constrained parameters.

  `logp` is a function of the parameters and of data, as `Nx.Vulkan.Chain.compile/4` takes it, and so is the result.
  """
  @spec density(fun(), transforms()) :: fun()
  def density(logp, transforms) when is_function(logp, 2) do
    fn y, data ->
      Nx.add(logp.(constrain(transforms, y), data), log_jacobian(transforms, y))
    end
  end

  @doc "The parameters of unconstrained numbers, such as the draws of a sampler."
  @spec constrain(transforms(), Nx.Container.t()) :: Nx.Container.t()
  deftransform constrain(transforms, y) do
    {x, _} = zip(transforms, y, nil, fn transform, y, acc -> {value(transform, y), acc} end)
    x
  end

  @doc "The unconstrained numbers of parameters, such as the start of a sampler: the inverse of `constrain/2`."
  @spec unconstrain(transforms(), Nx.Container.t()) :: Nx.Container.t()
  deftransform unconstrain(transforms, x) do
    {y, _} = zip(transforms, x, nil, fn transform, x, acc -> {inverse(transform, x), acc} end)
    y
  end

  @doc "The logarithm of the absolute value of the Jacobian determinant of `constrain/2`, over all parameters: a scalar."
  @spec log_jacobian(transforms(), Nx.Container.t()) :: T.t()
  deftransform log_jacobian(transforms, y) do
    {_, terms} =
      zip(transforms, y, [], fn t, y, terms -> {y, [log_determinant(t, y) | terms]} end)

    terms |> Enum.reverse() |> Enum.reduce(&Nx.add(&2, &1))
  end

  # Both containers at once. `Nx.Container` gives the parts of both in one order.
  defp zip(%__MODULE__{} = transform, leaf, acc, fun) when is_struct(leaf, T) or is_number(leaf),
    do: fun.(transform, Nx.to_tensor(leaf), acc)

  defp zip(transforms, container, acc, fun) do
    if not alike?(transforms, container) do
      raise ArgumentError,
            "transforms: expected one for each parameter of #{inspect(container)}, got: #{inspect(transforms)}"
    end

    parts = Nx.Container.reduce(transforms, [], &[&1 | &2]) |> Enum.reverse()

    {container, {acc, []}} =
      Nx.Container.traverse(container, {acc, parts}, fn part, {acc, [transform | rest]} ->
        {part, acc} = zip(transform, part, acc, fun)
        {part, {acc, rest}}
      end)

    {container, acc}
  end

  defp alike?(%struct{}, _container) when struct in [__MODULE__, T], do: false
  defp alike?(_transforms, %T{}), do: false
  defp alike?(a, b) when is_tuple(a) and is_tuple(b), do: tuple_size(a) == tuple_size(b)
  defp alike?(a, b) when is_map(a) and is_map(b), do: Map.keys(a) == Map.keys(b)
  defp alike?(_transforms, _container), do: false

  ## Values

  defp value(%{kind: :real}, y), do: y
  defp value(%{kind: :lower, bounds: bounds}, y), do: exp_above(y, bounds)
  defp value(%{kind: :upper, bounds: bounds}, y), do: exp_below(y, bounds)
  defp value(%{kind: :interval, bounds: bounds}, y), do: sigmoid_between(y, bounds)
  defp value(%{kind: :ordered}, y), do: ordered_of(vector!(y, 1, "ordered"))
  defp value(%{kind: :simplex}, y), do: simplex_of(vector!(y, 1, "simplex"))
  defp value(%{kind: :cholesky_correlation}, y), do: factor_of(y, rows: rows!(y))

  defnp(exp_above(y, opts), do: opts[:lower] + Nx.exp(y))
  defnp(exp_below(y, opts), do: opts[:upper] - Nx.exp(y))

  defnp(sigmoid_between(y, opts),
    do: opts[:lower] + (opts[:upper] - opts[:lower]) * Nx.sigmoid(y)
  )

  # The first number stays out of the exponential, where it could overflow and its gradient be NaN.
  defnp ordered_of(y) do
    first = Nx.iota(Nx.shape(y), axis: -1) == 0
    Nx.cumulative_sum(Nx.select(first, y, Nx.exp(Nx.select(first, 0.0, y))), axis: -1)
  end

  defnp simplex_of(y) do
    {log_part, log_rest} = stick(y)
    last = Nx.slice_along_axis(log_rest, Nx.axis_size(y, -1) - 1, 1, axis: -1)
    Nx.exp(Nx.concatenate([log_part, last], axis: -1))
  end

  # The logarithms of the parts of the stick, all but the last, and of what is left after each.
  defnp stick(y) do
    centred = y - Nx.log(pieces_left(y))
    log_rest = Nx.cumulative_sum(log_sigmoid(-centred), axis: -1)
    {log_sigmoid(centred) + before(log_rest), log_rest}
  end

  # K - k for k = 1 to K - 1.
  defnp(pieces_left(y),
    do: Nx.axis_size(y, -1) - Nx.iota(Nx.shape(y), axis: -1, type: Nx.type(y))
  )

  # Along the last axis by one: 0 comes first, and the last number is gone.
  deftransformp before(x) do
    Nx.pad(x, 0.0, List.duplicate({0, 0, 0}, Nx.rank(x) - 1) ++ [{1, -1, 0}])
  end

  # The gradient at 0 is right whatever that of the absolute value is there.
  defnp(log_sigmoid(x), do: 0.5 * (x - Nx.abs(x)) - Nx.log1p(Nx.exp(-Nx.abs(x))))

  # log(1 - tanh(x)²), which is -2·log(cosh(x)).
  defnp(log_sech2(x), do: 2.0 * (@log_2 - Nx.abs(x) - Nx.log1p(Nx.exp(-2.0 * Nx.abs(x)))))

  # The logarithms of 1 - z² are summed along each row: the length that is left for a column and those after it.
  defnp factor_of(y, opts) do
    below = below_diagonal(y, opts)
    {row, column} = {Nx.iota(Nx.shape(below), axis: -2), Nx.iota(Nx.shape(below), axis: -1)}
    left = Nx.exp(0.5 * before(Nx.cumulative_sum(log_sech2(below), axis: -1)))
    Nx.select(row > column, Nx.tanh(below) * left, Nx.select(row == column, left, 0.0))
  end

  # The vector row by row below the diagonal of a matrix of zeros.
  deftransformp below_diagonal(y, rows: rows) do
    leading = y.shape |> Tuple.delete_at(Nx.rank(y) - 1) |> Tuple.to_list()

    0..(rows - 1)
    |> Enum.map(fn row ->
      y
      |> Nx.slice_along_axis(div(row * (row - 1), 2), max(row, 1), axis: -1)
      |> then(&if(row == 0, do: Nx.multiply(&1, 0.0), else: &1))
      |> Nx.pad(0.0, Enum.map(leading, fn _ -> {0, 0, 0} end) ++ [{0, rows - max(row, 1), 0}])
    end)
    |> Nx.stack(axis: -2)
  end

  ## Inverses

  defp inverse(%{kind: :real}, x), do: x
  defp inverse(%{kind: :lower, bounds: bounds}, x), do: log_above(x, bounds)
  defp inverse(%{kind: :upper, bounds: bounds}, x), do: log_below(x, bounds)
  defp inverse(%{kind: :interval, bounds: bounds}, x), do: logit_between(x, bounds)
  defp inverse(%{kind: :ordered}, x), do: of_ordered(vector!(x, 1, "ordered"))
  defp inverse(%{kind: :simplex}, x), do: of_simplex(vector!(x, 2, "simplex"))
  defp inverse(%{kind: :cholesky_correlation}, x), do: x |> matrix!() |> of_factor()

  defnp(log_above(x, opts), do: Nx.log(x - opts[:lower]))
  defnp(log_below(x, opts), do: Nx.log(opts[:upper] - x))
  defnp(logit_between(x, opts), do: Nx.log(x - opts[:lower]) - Nx.log(opts[:upper] - x))

  defnp of_ordered(x) do
    first = Nx.iota(Nx.shape(x), axis: -1) == 0
    Nx.select(first, x, Nx.log(Nx.select(first, 1.0, x - before(x))))
  end

  # What is left after a part is the sum of the parts that follow, which is exact where 1 minus the sum of those before
  # cancels.
  defnp of_simplex(x) do
    size = Nx.axis_size(x, -1) - 1
    part = Nx.slice_along_axis(x, 0, size, axis: -1)
    rest = Nx.slice_along_axis(Nx.cumulative_sum(x, axis: -1, reverse: true), 1, size, axis: -1)
    Nx.log(part) - Nx.log(rest) + Nx.log(pieces_left(part))
  end

  # z/√(1 - z²) is the element divided by the length of what follows it in its row.
  deftransformp of_factor(factor) do
    rows = Nx.axis_size(factor, -1)
    squares = Nx.cumulative_sum(Nx.multiply(factor, factor), axis: -1, reverse: true)

    for row <- 1..(rows - 1) do
      of_row = fn matrix, first ->
        matrix
        |> Nx.slice_along_axis(row, 1, axis: -2)
        |> Nx.squeeze(axes: [-2])
        |> Nx.slice_along_axis(first, row, axis: -1)
      end

      Nx.asinh(Nx.divide(of_row.(factor, 0), Nx.sqrt(of_row.(squares, 1))))
    end
    |> Nx.concatenate(axis: -1)
  end

  ## Log-Jacobians

  defp log_determinant(%{kind: :real}, y), do: Nx.tensor(0.0, type: y.type)

  defp log_determinant(%{kind: kind}, y) when kind in [:lower, :upper], do: Nx.sum(y)

  defp log_determinant(%{kind: :interval, bounds: bounds}, y),
    do: of_sigmoid(y, log_width: :math.log(bounds[:upper] - bounds[:lower]))

  defp log_determinant(%{kind: :ordered}, y) do
    size = Nx.axis_size(vector!(y, 1, "ordered"), -1)

    if size == 1,
      do: Nx.tensor(0.0, type: y.type),
      else: Nx.sum(Nx.slice_along_axis(y, 1, size - 1, axis: -1))
  end

  defp log_determinant(%{kind: :simplex}, y), do: of_stick(vector!(y, 1, "simplex"))
  defp log_determinant(%{kind: :cholesky_correlation}, y), do: of_rows(y, rows: rows!(y))

  defnp(of_sigmoid(y, opts),
    do: Nx.sum(opts[:log_width] + log_sigmoid(y) + log_sigmoid(-y))
  )

  defnp of_stick(y) do
    centred = y - Nx.log(pieces_left(y))
    {_, log_rest} = stick(y)
    Nx.sum(log_sigmoid(centred) + log_rest)
  end

  defnp of_rows(y, opts) do
    below = below_diagonal(y, opts)
    {row, column} = {Nx.iota(Nx.shape(below), axis: -2), Nx.iota(Nx.shape(below), axis: -1)}
    Nx.sum(Nx.select(row > column, 0.5 * (1 + row - column), 0.0) * log_sech2(below))
  end

  ## Shapes

  defp vector!(%T{shape: shape} = tensor, least, name) do
    if shape == {} or Nx.axis_size(tensor, -1) < least,
      do:
        raise(
          ArgumentError,
          "#{name}: expected a vector of #{least} or more numbers, got: #{inspect(shape)}"
        )

    tensor
  end

  defp matrix!(%T{shape: shape} = tensor) do
    case Enum.take(Tuple.to_list(shape), -2) do
      [n, n] when n >= 2 ->
        tensor

      _ ->
        raise ArgumentError,
              "cholesky_correlation: expected a square matrix, got: #{inspect(shape)}"
    end
  end

  # The rows of the matrix whose part below the diagonal has so many numbers.
  defp rows!(%T{shape: shape} = y) do
    size = Nx.axis_size(vector!(y, 1, "cholesky_correlation"), -1)
    rows = round((1 + :math.sqrt(1 + 8 * size)) / 2)

    if div(rows * (rows - 1), 2) != size,
      do:
        raise(
          ArgumentError,
          "cholesky_correlation: expected k(k - 1)/2 numbers, got: #{inspect(shape)}"
        )

    rows
  end
end
