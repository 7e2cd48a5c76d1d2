defmodule Nx.Vulkan.Test.Nuts do
  @moduledoc """
  The No-U-Turn sampler as it is defined, on lists of floats: every point of a trajectory is kept, and every span of points is
  looked at as a whole. Random numbers are those of the device's samplers.
  """

  import Bitwise

  @word 0xFFFFFFFF
  @uses [momentum: 0, search: 1, direction: 2, point: 3, subtree: 4]

  ## Random numbers

  @doc "Four words of a counter and a key: Philox4x32-10."
  def philox(counter, key) do
    {words, _key} =
      Enum.reduce(1..10, {counter, key}, fn _round, {{a, b, c, d}, {k0, k1}} ->
        {x, z} = {0xD2511F53 * a, 0xCD9E8D57 * c}

        words =
          {bxor(bxor(z >>> 32, b), k0), z &&& @word, bxor(bxor(x >>> 32, d), k1), x &&& @word}

        {words, {k0 + 0x9E3779B9 &&& @word, k1 + 0xBB67AE85 &&& @word}}
      end)

    words
  end

  @doc "A number of (0, 1) with 52 bits."
  def uniform({x, y, _, _}), do: ((x >>> 6) * 67_108_864 + (y >>> 6) + 0.5) * 2.0 ** -52

  @doc "The number that a standard normal number is below with that probability, by Newton's method."
  def normal(u) do
    tail = fn x -> 0.5 * :math.erfc(x / :math.sqrt(2)) end
    density = fn x -> :math.exp(-0.5 * x * x) / :math.sqrt(2 * :math.pi()) end
    # Of the smaller side, whose probability has all its digits.
    {p, sign} = if u < 0.5, do: {u, -1}, else: {1 - u, 1}
    # The logarithm of the tail is nearly a parabola.
    step = fn _, x -> x + (:math.log(tail.(x)) - :math.log(p)) * tail.(x) / density.(x) end
    sign * Enum.reduce(1..60, 0.0, step)
  end

  defp words(run, use, number, index) do
    key = {run.seed &&& @word, run.seed >>> 32}
    philox({index, number <<< 8 ||| @uses[use], run.transition, run.chain}, key)
  end

  defp uniform(run, use, number, index), do: uniform(words(run, use, number, index))

  defp momentum(run, use, number),
    do: for({_, i} <- Enum.with_index(run.q), do: normal(uniform(run, use, number, i)))

  ## Sampling

  @doc """
  The transitions of one chain from `q`, as maps of `:q`, `:logp`, `:depth`, `:steps`, `:accept` and `:divergent`.

  `density` gives the log-density and its gradient. Options: `:seed`, `:chain`, `:transitions`, `:max_depth`, and `:step_size` or, to
  adapt it, `:warmup` with `:windows`, `:target_accept` and `:mass`.
  """
  def sample(density, q, opts) do
    {logp, gradient} = density.(q)

    run =
      Map.merge(
        %{warmup: 0, windows: [0], density: density, q: q, logp: logp, gradient: gradient},
        Map.new(opts)
      )

    run = Map.merge(run, %{transition: 0, factor: identity(length(q)), window: []})
    run = if run[:step_size], do: averaging(run), else: search(Map.put(run, :step_size, 1.0))

    {results, _run} =
      Enum.map_reduce(1..run.transitions, run, fn _, run ->
        result = transition(run)
        run = Map.merge(run, Map.take(result, [:q, :logp, :gradient]))
        run = if run.transition < run.warmup, do: adapt(run, result.accept), else: run
        {Map.put(result, :step_size, run.step_size), %{run | transition: run.transition + 1}}
      end)

    results
  end

  # Momenta are those of positions that the inverse of the factor transforms.
  defp step(run, point, eps) do
    transposed = Enum.zip_with(run.factor, & &1)
    kick = fn p, gradient -> add(p, scaled(0.5 * eps, product(transposed, gradient))) end
    p = kick.(point.p, point.gradient)
    q = add(point.q, scaled(eps, product(run.factor, p)))
    {logp, gradient} = run.density.(q)
    point(q, kick.(p, gradient), logp, gradient)
  end

  defp point(q, p, logp, gradient),
    do: %{q: q, p: p, logp: logp, gradient: gradient, energy: 0.5 * dot(p, p) - logp}

  defp dot(a, b), do: Enum.sum(Enum.zip_with(a, b, &(&1 * &2)))
  defp add(a, b), do: Enum.zip_with(a, b, &(&1 + &2))
  defp scaled(number, a), do: Enum.map(a, &(number * &1))
  defp product(matrix, a), do: Enum.map(matrix, &dot(&1, a))
  defp identity(d), do: for(i <- 1..d, do: for(j <- 1..d, do: if(i == j, do: 1.0, else: 0.0)))

  defp start(run, use, number),
    do: point(run.q, momentum(run, use, number), run.logp, run.gradient)

  defp transition(run) do
    start = start(run, :momentum, 0)
    # Points in the order of time, and the one that would be the draw.
    double(run, start, %{points: [start], draw: start, weight: 1.0, depth: 0, accepts: []})
  end

  defp double(run, start, tree) do
    forward? = elem(words(run, :direction, tree.depth, 0), 0) >>> 31 == 1
    old = if forward?, do: tree.points, else: Enum.reverse(tree.points)
    eps = if forward?, do: run.step_size, else: -run.step_size
    half = half(run, start, List.last(old), eps, tree.depth)
    tree = %{tree | accepts: half.accepts ++ tree.accepts}

    if half.ends do
      finished(tree, half.divergent)
    else
      chosen? = uniform(run, :subtree, tree.depth, 0) * tree.weight < half.weight
      points = old ++ half.points
      turns? = turns?(Enum.map(points, & &1.p))

      tree = %{
        tree
        | points: if(forward?, do: points, else: Enum.reverse(points)),
          draw: if(chosen?, do: half.draw, else: tree.draw),
          weight: tree.weight + half.weight,
          depth: tree.depth + 1
      }

      if turns? or tree.depth == run.max_depth,
        do: finished(tree, false),
        else: double(run, start, tree)
    end
  end

  defp finished(tree, divergent) do
    steps = length(tree.accepts)

    tree.draw
    |> Map.take([:q, :logp, :gradient, :energy])
    |> Map.merge(%{
      depth: tree.depth,
      steps: steps,
      accept: Enum.sum(tree.accepts) / steps,
      divergent: divergent
    })
  end

  # The points of a new half, until one diverges or ends a span that turns.
  defp half(run, start, from, eps, depth) do
    new = %{points: [], draw: nil, weight: 0.0, accepts: [], ends: false, divergent: false}

    Enum.reduce_while(0..(2 ** depth - 1), {from, new}, fn number, {from, half} ->
      point = step(run, from, eps)
      error = point.energy - start.energy
      weight = :math.exp(-error)
      half = %{half | accepts: [min(1.0, weight) | half.accepts]}

      if error > 1000 do
        {:halt, {point, %{half | ends: true, divergent: true}}}
      else
        total = half.weight + weight
        chosen? = uniform(run, :point, depth, number) * total < weight
        draw = if chosen?, do: point, else: half.draw
        half = %{half | points: half.points ++ [point], draw: draw, weight: total}
        half = %{half | ends: Enum.any?(spans(half.points), &turns?/1)}
        {if(half.ends, do: :halt, else: :cont), {point, half}}
      end
    end)
    |> elem(1)
  end

  # The momenta of the spans of a recursion that end at the last point: 2, 4, … points from multiples of that on.
  defp spans(points) do
    count = length(points)

    for power <- 1..31, size = 2 ** power, size <= count and rem(count, size) == 0 do
      points |> Enum.take(-size) |> Enum.map(& &1.p)
    end
  end

  # Whether a span turns as a whole, or one of its halves with the point next to it.
  defp turns?(momenta) do
    {one, other} = Enum.split(momenta, div(length(momenta), 2))

    Enum.any?([momenta, one ++ [hd(other)], [List.last(one) | other]], fn span ->
      sum = Enum.reduce(span, &add/2)
      dot(hd(span), sum) <= 0 or dot(List.last(span), sum) <= 0
    end)
  end

  ## Warm-up

  defp search(run) do
    accepts? = fn run, trial ->
      start = start(run, :search, trial)
      start.energy - step(run, start, run.step_size).energy > :math.log(0.8)
    end

    growing? = accepts?.(run, 0)
    factor = if growing?, do: 2, else: 0.5

    Enum.reduce_while(1..60, run, fn trial, run ->
      run = %{run | step_size: run.step_size * factor}
      if accepts?.(run, trial) == growing?, do: {:cont, run}, else: {:halt, run}
    end)
    |> averaging()
  end

  defp averaging(run) do
    start = %{shrink_to: :math.log(10 * run.step_size), count: 0, error: 0.0, log_mean: 0.0}
    Map.put(run, :averaging, start)
  end

  defp adapt(run, accept) do
    a = run.averaging
    count = a.count + 1
    eta = 1 / (count + 10)
    error = (1 - eta) * a.error + eta * (run.target_accept - accept)
    log_step = a.shrink_to - :math.sqrt(count) / 0.05 * error
    weight = count ** -0.75
    log_mean = weight * log_step + (1 - weight) * a.log_mean
    averaging = %{a | count: count, error: error, log_mean: log_mean}
    run = %{run | averaging: averaging, step_size: :math.exp(log_step)}
    run = adapt_scale(run)

    if run.transition + 1 == run.warmup,
      do: %{run | step_size: :math.exp(log_mean)},
      else: run
  end

  defp adapt_scale(%{windows: [first | ends]} = run) do
    next = run.transition + 1
    window = [run.q | run.window]

    cond do
      run.transition < first or next > List.last(ends, 0) ->
        run

      next not in ends ->
        %{run | window: window}

      true ->
        # The search is that of the next transition.
        found = search(%{run | window: [], factor: factor(window, run.mass), transition: next})
        %{found | transition: run.transition}
    end
  end

  # A factor of the covariances, shrunk towards 1e-3.
  defp factor(window, mass) do
    n = length(window)
    mean = scaled(1 / n, Enum.reduce(window, &add/2))
    centred = for q <- window, do: Enum.zip_with(q, mean, &(&1 - &2))

    covariance =
      for {row, i} <- Enum.with_index(identity(length(mean))) do
        for {own, j} <- Enum.with_index(row) do
          sum = Enum.sum(for x <- centred, do: Enum.at(x, i) * Enum.at(x, j))
          covariance = n / ((n + 5) * (n - 1)) * sum

          if own == 0.0 and mass == :diagonal,
            do: 0.0,
            else: covariance + own * 1.0e-3 * 5 / (n + 5)
        end
      end

    cholesky(covariance)
  end

  # Row by row; Nx's own adds 1e-10 to pivots.
  defp cholesky(matrix) do
    Enum.reduce(Enum.with_index(matrix), [], fn {row, i}, rows ->
      above = Enum.with_index(rows)

      own =
        Enum.reduce(above, [], fn {other, j}, own ->
          rest = Enum.at(row, j) - dot(own, Enum.take(other, j))
          own ++ [rest / Enum.at(other, j)]
        end)

      pivot = :math.sqrt(Enum.at(row, i) - dot(own, own))
      rows ++ [own ++ [pivot | List.duplicate(0.0, length(matrix) - i - 1)]]
    end)
  end
end
