defmodule Nx.Vulkan.Test.ChainModels do
  @moduledoc """
  Log-densities for chain kernels: distributions, transformations of parameters, regressions, hierarchies, mixtures,
  time series, a Gaussian process and an ODE. Each is `{name, template of the position, data, log-density}`, with
  the log-density to compare with where Nx's own gradient is less exact.
  """

  import Nx.Defn

  @half_log_two_pi 0.5 * :math.log(2 * :math.pi())

  def all do
    distributions() ++ transformations() ++ regressions() ++ hierarchies() ++ series()
  end

  defp f64(shape), do: Nx.template(shape, :f64)
  # Numbers in (-1, 1) that no formula repeats.
  def numbers(shape, phase \\ 0.3),
    do: Nx.sin(Nx.add(Nx.multiply(Nx.iota(shape, type: :f64), 1.37), phase))

  defp positive(shape), do: Nx.add(numbers(shape), 1.3)
  defp counts(shape), do: Nx.as_type(Nx.round(Nx.multiply(positive(shape), 2)), :s64)
  defp flags(shape), do: Nx.greater(numbers(shape), 0.1)

  defn(normal(x, mu, sigma),
    do: -0.5 * ((x - mu) / sigma) ** 2 - Nx.log(sigma) - @half_log_two_pi
  )

  defn(softplus(x), do: Nx.max(x, 0.0) + Nx.log1p(Nx.exp(-Nx.abs(x))))
  defn(half_normal(u), do: normal(Nx.exp(u), 0.0, 1.0) + u)

  ## Distributions, of 40 observations

  defp distributions do
    scalars = %{a: f64({}), b: f64({})}
    x = numbers({40})
    y = positive({40})

    [
      {"normal", scalars, x, &normal_model/2},
      {"Student's t", scalars, x, &student/2},
      {"Cauchy", scalars, x, &cauchy/2},
      {"Laplace", scalars, x, &laplace/2},
      {"exponential", scalars, y, &exponential/2},
      {"gamma of a whole shape", scalars, y, &gamma/2},
      {"inverse gamma", scalars, y, &inverse_gamma/2},
      {"log-normal", scalars, y, &log_normal/2},
      {"Weibull", scalars, y, &weibull/2},
      {"Gumbel", scalars, x, &gumbel/2},
      {"logistic", scalars, x, &logistic/2},
      {"von Mises", scalars, x, &von_mises/2},
      {"Poisson", scalars, counts({40}), &poisson/2},
      {"negative binomial", scalars, counts({40}), &negative_binomial/2},
      {"zero-inflated Poisson", scalars, counts({40}), &zero_inflated/2},
      {"several observed tensors", scalars, {x, counts({7}), flags({5})}, &several/2},
      {"beta", scalars, Nx.sigmoid(x), &beta/2},
      {"multivariate normal", f64({5}), {numbers({9, 5}), Nx.add(Nx.eye(5), 0.1)},
       &multivariate/2},
      {"4096 normals", f64({4096}), numbers({4096}), &many/2}
    ]
  end

  defn(prior(%{a: a, b: b}), do: normal(a, 0.0, 1.0) + normal(b, 0.0, 2.0))
  defn(normal_model(q, x), do: prior(q) + Nx.sum(normal(x, q.a, Nx.exp(q.b))))

  defn(student(q, x),
    do: prior(q) + Nx.sum(-2.5 * Nx.log1p(((x - q.a) / Nx.exp(q.b)) ** 2 / 4.0) - q.b)
  )

  defn(cauchy(q, x), do: prior(q) - Nx.sum(Nx.log(1.0 + ((x - q.a) * Nx.exp(-q.b)) ** 2) + q.b))
  defn(laplace(q, x), do: prior(q) - Nx.sum(Nx.abs(x - q.a) / Nx.exp(q.b) + q.b))
  defn(exponential(q, x), do: prior(q) + Nx.sum(q.a - Nx.exp(q.a) * x))
  defn(gamma(q, x), do: prior(q) + Nx.sum(3.0 * q.a + 2.0 * Nx.log(x) - Nx.exp(q.a) * x))

  defn(inverse_gamma(q, x),
    do: prior(q) + Nx.sum(2.0 * q.a - 3.0 * Nx.log(x) - Nx.exp(q.a) / x)
  )

  defn(log_normal(q, x), do: prior(q) + Nx.sum(normal(Nx.log(x), q.a, softplus(q.b)) - Nx.log(x)))

  defn weibull(q, x) do
    shape = Nx.exp(0.3 * q.a)
    scaled = x / Nx.exp(q.b)
    prior(q) + Nx.sum(Nx.log(shape) - q.b + (shape - 1.0) * Nx.log(scaled) - scaled ** shape)
  end

  defn gumbel(q, x) do
    z = (x - q.a) / Nx.exp(q.b)
    prior(q) - Nx.sum(z + Nx.exp(-z) + q.b)
  end

  defn logistic(q, x) do
    z = (x - q.a) / Nx.exp(q.b)
    prior(q) + Nx.sum(Nx.log(Nx.sigmoid(z)) + Nx.log(Nx.sigmoid(-z)) - q.b)
  end

  defn(von_mises(q, x), do: prior(q) + Nx.sum(Nx.exp(q.b) * Nx.cos(x - q.a)) - 40 * Nx.exp(q.b))
  defn(poisson(q, n), do: prior(q) + Nx.sum(n * q.a - Nx.exp(q.a)))

  defn(negative_binomial(q, n),
    do: prior(q) + Nx.sum(n * q.a - (n + 3.0) * Nx.log1p(Nx.exp(q.a)))
  )

  defn zero_inflated(q, n) do
    log_zero = -softplus(q.b)
    log_not = -softplus(-q.b)
    log_poisson = n * q.a - Nx.exp(q.a)

    both =
      Nx.logsumexp(Nx.stack([log_zero + 0.0 * log_poisson, log_not + log_poisson]), axes: [0])

    prior(q) + Nx.sum(Nx.select(n == 0, both, log_not + log_poisson))
  end

  defn several(q, {x, n, b}) do
    logit = q.a - q.b

    prior(q) + Nx.sum(normal(x, q.a, 1.5)) + Nx.sum(n * q.b - Nx.exp(q.b)) +
      Nx.sum(b * logit - softplus(logit))
  end

  # Of the density of beta(2 + exp(a), 3), which has whole differences of gamma functions.
  defn beta(q, x) do
    a = 2.0 + Nx.exp(q.a)

    prior(q) +
      Nx.sum(
        Nx.log(a) + Nx.log(a + 1.0) + Nx.log(a + 2.0) + (a - 1.0) * Nx.log(x) +
          2.0 * Nx.log(1.0 - x)
      )
  end

  defn multivariate(q, {x, precision}) do
    centred = x - q

    Nx.sum(normal(q, 0.0, 3.0)) -
      0.5 * Nx.sum(Nx.multiply(Nx.dot(centred, precision), centred))
  end

  defn(many(q, mu), do: Nx.sum(normal(q, mu, 1.0 + 0.25 * Nx.cos(mu))))

  ## Transformations of parameters

  defp transformations do
    [
      {"interval", f64({}), numbers({20}), &interval/2},
      {"ordered", f64({4}), numbers({30}), &ordered/2},
      {"simplex", f64({3}), counts({4}), &simplex/2},
      {"Dirichlet by softmax", f64({6}), counts({6}), &softmaxed/2},
      {"Cholesky factor of a correlation", f64({3}), numbers({12, 3}), &correlation/2},
      {"unit vector", f64({3}), numbers({3}), &unit_vector/2},
      {"movement of elements", f64({5}), numbers({10}), &movement/2},
      {"elementary functions", f64({2}), numbers({11}), &elementary/2},
      {"largest and smallest elements", f64({25}), numbers({25}), &extremes/2},
      {"cumulative products, maxima and minima", f64({3, 5}), numbers({15}), &cumulative/2},
      {"a branch", f64({2}), numbers({3}), &branch/2}
    ]
  end

  defn interval(u, x) do
    unit = Nx.sigmoid(u)
    sigma = 0.5 + 2.5 * unit
    Nx.sum(normal(x, 0.0, sigma)) + Nx.log(unit) + Nx.log(1.0 - unit)
  end

  defn ordered(u, x) do
    steps = Nx.concatenate([u[0..0], Nx.exp(u[1..3])])
    cuts = Nx.cumulative_sum(steps)
    inside = Nx.sigmoid(Nx.new_axis(x, 1) - cuts)
    Nx.sum(normal(u, 0.0, 1.0)) + Nx.sum(Nx.log(0.01 + inside)) + Nx.sum(u[1..3])
  end

  # Stick-breaking, with its log-Jacobian.
  defn simplex(u, n) do
    offsets = Nx.log(3.0 - Nx.iota({3}, type: Nx.type(u)))
    z = Nx.sigmoid(u - offsets)
    log_rest = Nx.cumulative_sum(Nx.log1p(-z))
    before = Nx.pad(log_rest, 0.0, [{1, -1, 0}])
    log_parts = Nx.concatenate([Nx.log(z) + before, log_rest[2..2]])
    jacobian = Nx.sum(Nx.log(z) + Nx.log1p(-z) + before)
    Nx.sum(n * log_parts) + jacobian
  end

  defn softmaxed(u, n) do
    log_parts = u - Nx.logsumexp(u)
    Nx.sum(n * log_parts) + Nx.sum(normal(u, 0.0, 1.0))
  end

  defn correlation(u, x) do
    w = Nx.tanh(u)
    l10 = w[0]
    l11 = Nx.sqrt(1.0 - l10 ** 2)
    l20 = w[1]
    l21 = w[2] * Nx.sqrt(1.0 - l20 ** 2)
    l22 = Nx.sqrt(1.0 - l20 ** 2 - l21 ** 2)
    z0 = x[[.., 0]]
    z1 = (x[[.., 1]] - l10 * z0) / l11
    z2 = (x[[.., 2]] - l20 * z0 - l21 * z1) / l22
    jacobian = Nx.sum(Nx.log(1.0 - w ** 2)) + 0.5 * Nx.log(1.0 - l20 ** 2)
    -0.5 * Nx.sum(z0 ** 2 + z1 ** 2 + z2 ** 2) - 12.0 * (Nx.log(l11) + Nx.log(l22)) + jacobian
  end

  defn unit_vector(u, mu) do
    direction = u / Nx.sqrt(Nx.sum(u ** 2))
    5.0 * Nx.dot(direction, mu) - 0.5 * Nx.sum(u ** 2)
  end

  defn movement(u, x) do
    padded = Nx.pad(Nx.reverse(u), 0.5, [{2, 3, 0}])
    spread = Nx.pad(u, 0.0, [{0, 1, 1}])
    put = Nx.put_slice(x, [3], u * 2.0)
    table = Nx.reshape(Nx.concatenate([u, x]), {3, 5})
    turned = Nx.transpose(table)[[1..3, 0..2//2]]
    indexed = Nx.indexed_put(x, Nx.tensor([[2], [5], [2]]), u[0..2])
    tiled = Nx.tile(u, [2])

    Nx.sum(padded ** 2) * -0.5 - Nx.sum(Nx.sin(spread) ** 2) - 0.1 * Nx.sum((put - x) ** 2) -
      Nx.sum(turned ** 2) - Nx.sum((indexed - tiled) ** 2)
  end

  defn elementary(u, x) do
    [a, b] = [u[0], u[1]]
    y = Nx.erf(a * x) + Nx.atan(b + x) + Nx.tanh(a - x) + Nx.expm1(-Nx.abs(b * x))
    z = Nx.sqrt(1.0 + (a + x) ** 2) + Nx.cbrt(2.0 + x) + Nx.sinh(0.3 * b) + Nx.erfc(x - b)
    -Nx.sum(y ** 2) - 0.5 * Nx.sum(z ** 2) - Nx.sum(u ** 4)
  end

  defn extremes(u, x) do
    far = Nx.reduce_max(Nx.abs(u - x)) + Nx.reduce_min(u) - Nx.product(1.0 + 0.01 * u)
    clipped = Nx.clip(u, -0.5, 0.5)
    -0.5 * Nx.sum(u ** 2) - far - Nx.sum(clipped ** 3) - Nx.sum(Nx.max(u, x))
  end

  # Along a vector and along axes, from both ends, and of the data.
  defn cumulative(u, x) do
    flat = Nx.flatten(u) * x
    vectors = Nx.cumulative_product(1.0 + flat) + Nx.cumulative_max(flat, reverse: true)
    rows = Nx.cumulative_product(1.5 - u, axis: 1, reverse: true) - Nx.cumulative_max(u, axis: 1)
    columns = Nx.cumulative_min(Nx.sin(2.0 * u), axis: 0) + Nx.cumulative_product(u ** 2, axis: 0)
    last = Nx.cumulative_min(vectors - Nx.cumulative_min(x) * Nx.cumulative_product(x + 0.5))
    -0.5 * Nx.sum(last ** 2) - Nx.sum(rows ** 2) - Nx.sum(columns ** 2) - Nx.sum(u ** 2)
  end

  defn branch(u, x) do
    scale = if(Nx.sum(x) > 0.0, do: u[0] ** 2 + 1.0, else: Nx.exp(u[1]))
    Nx.sum(normal(x, u[0] + u[1], scale)) - Nx.sum(u ** 2)
  end

  ## Regressions

  defp regressions do
    [
      {"linear regression", %{beta: f64({4}), u: f64({})}, {numbers({60, 4}), numbers({60}, 0.9)},
       &linear/2},
      {"logistic regression of 20", %{beta: f64({20}), u: f64({})},
       {numbers({50, 20}), flags({50})}, &logit/2},
      {"probit regression", f64({3}), {numbers({30, 3}), flags({30})}, &probit/2},
      {"softmax regression", f64({4, 3}), {numbers({25, 4}), Nx.remainder(counts({25}), 3)},
       &categorical/2},
      {"robust regression of 30", f64({30}), {numbers({40, 30}), numbers({40}, 0.9)}, &robust/2},
      {"Gaussian process", %{log_length: f64({}), log_scale: f64({})},
       {Nx.divide(Nx.iota({64}, type: :f64), 8), numbers({64})}, &gaussian_process/2,
       &gaussian_process_by_columns/2}
    ]
  end

  defn linear(q, {x, y}) do
    residuals = y - Nx.dot(x, q.beta)

    Nx.sum(normal(q.beta, 0.0, 1.0)) + half_normal(q.u) +
      Nx.sum(normal(residuals, 0.0, Nx.exp(q.u)))
  end

  defn logit(q, {x, y}) do
    eta = Nx.dot(x, q.beta)
    scale = Nx.exp(q.u)
    Nx.sum(normal(q.beta, 0.0, scale)) + half_normal(q.u) + Nx.sum(y * eta - softplus(eta))
  end

  defn probit(beta, {x, y}) do
    eta = Nx.dot(x, beta)
    signed = Nx.select(y, eta, -eta)
    Nx.sum(Nx.log(0.5 * Nx.erfc(-signed * 0.7071067811865476))) - 0.5 * Nx.sum(beta ** 2)
  end

  defn categorical(w, {x, class}) do
    logits = Nx.dot(x, w)
    chosen = Nx.take_along_axis(logits, Nx.new_axis(class, 1), axis: 1)
    Nx.sum(Nx.squeeze(chosen, axes: [1]) - Nx.logsumexp(logits, axes: [1])) - 0.5 * Nx.sum(w ** 2)
  end

  defn(robust(beta, {x, y}),
    do: -Nx.sum(Nx.log1p((y - Nx.dot(x, beta)) ** 2)) - 0.5 * Nx.sum(beta ** 2)
  )

  defn(gaussian_process(q, {x, y}),
    do: of_factor(q, Nx.LinAlg.cholesky(covariance(q, x)), y)
  )

  # Nx's own factor has 1.0e-10 added to its pivots.
  deftransform gaussian_process_by_columns(q, {x, y}) do
    matrix = covariance(q, x)
    n = Nx.size(x)

    columns =
      Enum.reduce(0..(n - 1), [], fn j, columns ->
        column =
          for other <- Enum.reverse(columns), reduce: column(matrix, j) do
            column -> Nx.subtract(column, Nx.multiply(other, row(other, j)))
          end

        below = Nx.greater_equal(Nx.iota({n}), j)
        [Nx.select(below, Nx.divide(column, Nx.sqrt(row(column, j))), 0.0) | columns]
      end)

    of_factor(q, columns |> Enum.reverse() |> Nx.stack(axis: 1), y)
  end

  deftransformp(column(matrix, j),
    do: matrix |> Nx.slice_along_axis(j, 1, axis: 1) |> Nx.reshape({Nx.axis_size(matrix, 0)})
  )

  deftransformp(row(vector, j), do: vector |> Nx.slice([j], [1]) |> Nx.reshape({}))

  defn covariance(q, x) do
    difference = (Nx.new_axis(x, 1) - Nx.new_axis(x, 0)) / Nx.exp(q.log_length)

    Nx.exp(2.0 * q.log_scale) * Nx.exp(-0.5 * difference ** 2) +
      0.5 * Nx.eye(Nx.size(x), type: Nx.type(x))
  end

  defn of_factor(q, factor, y) do
    z = Nx.LinAlg.triangular_solve(factor, y)

    -0.5 * Nx.sum(z ** 2) - Nx.sum(Nx.log(Nx.take_diagonal(factor))) -
      0.5 * (q.log_length ** 2 + q.log_scale ** 2)
  end

  ## Hierarchies and mixtures

  defp hierarchies do
    schools =
      {Nx.tensor([28.0, 8, -3, 7, -1, 1, 18, 12], type: :f64),
       Nx.tensor([15.0, 10, 16, 11, 9, 11, 10, 18], type: :f64)}

    groups = fn count -> Nx.remainder(Nx.multiply(Nx.iota({90}), 7), count) end

    regime = %{
      w: f64({2}),
      mu_mr: f64({}),
      mu_trend: f64({}),
      sigma: f64({3}),
      theta: f64({})
    }

    [
      {"eight schools, centred", %{mu: f64({}), tau: f64({}), theta: f64({8})}, schools,
       &centred/2},
      {"eight schools, not centred", %{mu: f64({}), tau: f64({}), theta: f64({8})}, schools,
       &not_centred/2},
      {"intercepts of 6 groups", %{mu: f64({}), tau: f64({}), a: f64({6})},
       {groups.(6), numbers({90})}, &intercepts/2},
      {"intercepts of 30 groups", %{mu: f64({}), tau: f64({}), a: f64({30})},
       {groups.(30), numbers({90})}, &intercepts/2},
      {"intercepts and slopes", %{mu: f64({2}), tau: f64({}), a: f64({7, 2})},
       {groups.(7), numbers({90}), numbers({90}, 0.8)}, &slopes/2},
      {"mixture of three regimes", regime, numbers({50}), &regimes/2},
      {"mixture along the last axis", %{logits: f64({3}), mu: f64({3})}, numbers({40}),
       &mixture/2}
    ]
  end

  defn centred(q, {y, sigma}) do
    tau = Nx.exp(q.tau)

    normal(q.mu, 0.0, 5.0) + half_normal(q.tau) + Nx.sum(normal(q.theta, q.mu, tau)) +
      Nx.sum(normal(y, q.theta, sigma))
  end

  defn not_centred(q, {y, sigma}) do
    theta = q.mu + Nx.exp(q.tau) * q.theta

    normal(q.mu, 0.0, 5.0) + half_normal(q.tau) + Nx.sum(normal(q.theta, 0.0, 1.0)) +
      Nx.sum(normal(y, theta, sigma))
  end

  defn intercepts(q, {group, y}) do
    a = q.mu + Nx.exp(q.tau) * q.a

    normal(q.mu, 0.0, 1.0) + half_normal(q.tau) + Nx.sum(normal(q.a, 0.0, 1.0)) +
      Nx.sum(normal(y, Nx.take(a, group), 0.7))
  end

  defn slopes(q, {group, x, y}) do
    own = Nx.take(q.mu + Nx.exp(q.tau) * q.a, group, axis: 0)
    mu = own[[.., 0]] + own[[.., 1]] * x

    half_normal(q.tau) - 0.5 * Nx.sum(q.mu ** 2) - 0.5 * Nx.sum(q.a ** 2) +
      Nx.sum(normal(y, mu, 0.5))
  end

  defn regimes(q, x) do
    logits = Nx.stack([q.w[1], q.w[0], 0.0])
    weights = logits - Nx.logsumexp(logits)
    sigma = softplus(q.sigma)
    mean = Nx.stack([q.mu_mr, q.mu_trend, 0.0])

    terms =
      Nx.stack([
        weights[0] + normal(x, mean[0], sigma[0]),
        weights[1] + normal(x, mean[1], sigma[1]),
        weights[2] + normal(x, mean[2], sigma[2])
      ])

    jacobian = -Nx.sum(softplus(-q.sigma))

    priors =
      Nx.sum(normal(q.w, 0.0, 1.0)) + normal(q.mu_mr, 0.0, 0.5) + normal(q.mu_trend, 0.0, 1.0) +
        Nx.sum(normal(sigma, 0.0, Nx.tensor([1.0, 1.0, 2.0], type: Nx.type(sigma)))) +
        normal(q.theta, 0.0, 1.0)

    Nx.sum(Nx.logsumexp(terms, axes: [0])) + priors + jacobian
  end

  defn mixture(q, x) do
    terms = q.logits - Nx.logsumexp(q.logits) + normal(Nx.new_axis(x, 1), q.mu, 0.4)
    Nx.sum(Nx.logsumexp(terms, axes: [1])) - 0.5 * Nx.sum(q.logits ** 2 + q.mu ** 2)
  end

  ## Time series

  defp series do
    [
      {"autoregression of order 3", %{c: f64({}), phi: f64({3}), u: f64({})}, numbers({60}),
       &autoregression/2},
      {"random walk", %{steps: f64({40}), u: f64({})}, numbers({40}), &random_walk/2},
      {"GARCH by a loop", f64({3}), numbers({12}), &garch/2, &unrolled_garch/2},
      {"an ODE of 20 steps", f64({4}), numbers({20, 2}), &lotka_volterra/2}
    ]
  end

  defn autoregression(q, x) do
    mu = q.c + q.phi[0] * x[2..58] + q.phi[1] * x[1..57] + q.phi[2] * x[0..56]
    Nx.sum(normal(x[3..59], mu, Nx.exp(q.u))) - 0.5 * (q.c ** 2 + Nx.sum(q.phi ** 2) + q.u ** 2)
  end

  defn random_walk(q, x) do
    path = Nx.cumulative_sum(q.steps) * Nx.exp(q.u)
    Nx.sum(normal(x, path, 0.5)) - 0.5 * Nx.sum(q.steps ** 2) + half_normal(q.u)
  end

  defn garch(q, x) do
    omega = Nx.exp(q[0])
    alpha = 0.5 * Nx.sigmoid(q[1])
    beta = 0.5 * Nx.sigmoid(q[2])

    {logp, _variance, _} =
      while {logp = 0.0 * omega, variance = omega, {x, omega, alpha, beta}}, i <- 0..11 do
        logp = logp - 0.5 * Nx.log(variance) - 0.5 * x[i] ** 2 / variance
        {logp, omega + alpha * x[i] ** 2 + beta * variance, {x, omega, alpha, beta}}
      end

    logp - 0.5 * Nx.sum(q ** 2)
  end

  # Nx's gradient of a loop is rounded to f32 on its way.
  deftransform unrolled_garch(q, x) do
    omega = Nx.exp(q[0])
    [alpha, beta] = for i <- [1, 2], do: Nx.multiply(0.5, Nx.sigmoid(q[i]))

    {logp, _variance} =
      for i <- 0..11, reduce: {Nx.multiply(0.0, omega), omega} do
        {logp, variance} ->
          square = Nx.pow(x[i], 2)
          term = Nx.multiply(-0.5, Nx.add(Nx.log(variance), Nx.divide(square, variance)))
          next = Nx.add(Nx.multiply(alpha, square), Nx.multiply(beta, variance))
          {Nx.add(logp, term), Nx.add(omega, next)}
      end

    Nx.subtract(logp, Nx.multiply(0.5, Nx.sum(Nx.pow(q, 2))))
  end

  defn lotka_volterra(q, y) do
    rates = 0.5 * Nx.exp(0.3 * q)

    {logp, _, _, _} =
      while {logp = 0.0 * q[0], u = 1.0 + 0.0 * q[0], v = 0.5 + 0.0 * q[0], {y, rates}},
            i <- 0..19 do
        du = rates[0] * u - rates[1] * u * v
        dv = rates[2] * u * v - rates[3] * v
        u = u + 0.1 * du
        v = v + 0.1 * dv
        logp = logp - 0.5 * ((y[[i, 0]] - u) ** 2 + (y[[i, 1]] - v) ** 2)
        {logp, u, v, {y, rates}}
      end

    logp - 0.5 * Nx.sum(q ** 2)
  end
end
