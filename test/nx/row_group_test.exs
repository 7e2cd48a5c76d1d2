defmodule Nx.Vulkan.RowGroupTest do
  @moduledoc """
  Reductions of the same rows and what is computed with them are one kernel in a compiled definition, and give the numbers of
  `Nx.BinaryBackend` in f64.
  """

  # Kernels are counted by a profile, which has what all processes do.
  use Nx.Vulkan.Test.Case, async: false

  import Nx.Defn

  defn softmax(x) do
    e = Nx.exp(x - Nx.reduce_max(x, axes: [-1], keep_axes: true))
    e / Nx.sum(e, axes: [-1], keep_axes: true)
  end

  defn(masked_softmax(x, row), do: softmax(x * 0.5 + Nx.select(row > 0, 0.0, -1.0e30)))

  defn layer_norm(x, gain, bias) do
    centred = x - Nx.mean(x, axes: [-1], keep_axes: true)
    variance = Nx.mean(centred * centred, axes: [-1], keep_axes: true)
    centred * Nx.rsqrt(variance + 1.0e-5) * gain + bias
  end

  defn residual_norm(x, y, gain) do
    sum = x + y
    {sum, layer_norm(sum, gain, gain)}
  end

  defn(rms_norm(x, gain),
    do: x * Nx.rsqrt(Nx.mean(x * x, axes: [-1], keep_axes: true) + 1.0e-5) * gain
  )

  # The rows are the last two axes.
  defn group_norm(x) do
    mean = Nx.mean(x, axes: [-2, -1], keep_axes: true)
    (x - mean) * Nx.rsqrt(Nx.variance(x, axes: [-2, -1], keep_axes: true) + 1.0e-5)
  end

  defn(moments(x), do: {Nx.mean(x, axes: [-1]), Nx.variance(x, axes: [-1])})
  defn(log_softmax(x), do: x - Nx.logsumexp(x, axes: [-1], keep_axes: true))
  defn(cross_entropy(x, y), do: -Nx.sum(y * log_softmax(x), axes: [-1]))

  defn(softmax_gradient(x, y), do: grad(x, &Nx.sum(y * softmax(&1))))
  defn(rms_norm_gradient(x, y), do: grad(x, &Nx.sum(y * rms_norm(&1, 1.0))))
  defn(layer_norm_gradient(x, y), do: grad(x, &Nx.sum(y * layer_norm(&1, 1.0, 0.0))))
  defn(cross_entropy_gradient(x, y), do: grad(x, &Nx.sum(cross_entropy(&1, y))))

  # A result without the rows' axis comes back with it, and is no row of the last axis where both are of one length.
  defn(dropped_axis(x), do: x - Nx.new_axis(Nx.reduce_max(x, axes: [-1]), -1))
  defn(broadcast_last(x, row), do: x + Nx.reduce_min(x, axes: [-1]) * row)

  # What is the same for a whole row, and stored for each of its elements.
  defn spread_mean(x) do
    mean = x |> Nx.mean(axes: [-1], keep_axes: true) |> Nx.broadcast(x)
    {mean * 2, Nx.reduce_max(x - mean, axes: [-1])}
  end

  defn spread_number(x, number) do
    row = Nx.broadcast(number, x) * 2
    {row, Nx.sum(row, axes: [-1]), Nx.reduce_max(row, axes: [-1])}
  end

  defn(extrema(x), do: {Nx.argmax(x, axis: -1), Nx.reduce_min(x, axes: [-1])})

  # For the inputs `:tensor`, `:row` of its last axis alone, and `:number` of one element.
  @patterns [
    {&__MODULE__.softmax/1, [:tensor], 1},
    {&__MODULE__.masked_softmax/2, [:tensor, :row], 1},
    {&__MODULE__.layer_norm/3, [:tensor, :row, :row], 1},
    {&__MODULE__.residual_norm/3, [:tensor, :tensor, :row], 1},
    {&__MODULE__.rms_norm/2, [:tensor, :row], 1},
    {&__MODULE__.group_norm/1, [:tensor], 1},
    {&__MODULE__.moments/1, [:tensor], 1},
    {&__MODULE__.log_softmax/1, [:tensor], 1},
    {&__MODULE__.cross_entropy/2, [:tensor, :tensor], 1},
    {&__MODULE__.softmax_gradient/2, [:tensor, :tensor], 1},
    {&__MODULE__.rms_norm_gradient/2, [:tensor, :tensor], 1},
    {&__MODULE__.layer_norm_gradient/2, [:tensor, :tensor], 1},
    {&__MODULE__.cross_entropy_gradient/2, [:tensor, :tensor], 2},
    {&__MODULE__.dropped_axis/1, [:tensor], 1},
    {&__MODULE__.spread_mean/1, [:tensor], 1},
    {&__MODULE__.spread_number/2, [:tensor, :number], 1},
    {&__MODULE__.extrema/1, [:tensor], 1}
  ]

  # Rows of an invocation each and of several, of whole vectors and not, kept in shared memory and not.
  @shapes [{3, 5}, {2, 3, 8}, {40, 33}, {7, 2, 130}, {3, 5000}]

  # Results of f32 against the largest of them, sums of thousands of gradients among them.
  @error 512 * 2.0 ** -23

  defp inputs(kinds, shape, type) do
    shapes = %{tensor: shape, row: {elem(shape, tuple_size(shape) - 1)}, number: {}}
    for kind <- kinds, do: Generators.tensor(shapes[kind], type, {:float, -3.0, 3.0})
  end

  defp results(container), do: Nx.Defn.Composite.flatten_list([container])

  defp exact(fun, inputs) do
    inputs = for input <- inputs, do: Nx.as_type(input, :f64)
    results(apply(Nx.Defn.jit(fun, compiler: Nx.Defn.Evaluator), inputs))
  end

  defp assert_close(results, exact, error, context) do
    for {result, exact} <- Enum.zip(results, exact) do
      assert result.shape == exact.shape
      # Gradients are differences of numbers that nearly cancel.
      scale = Nx.max(Nx.abs(exact), Nx.reduce_max(Nx.abs(exact)))
      assert_bound(Nx.as_type(result, :f64), exact, scale, error, context)
    end
  end

  for {fun, kinds, kernels} <- @patterns do
    {:name, name} = Function.info(fun, :name)

    test "#{name} is of #{kernels}" do
      {fun, kinds} = {unquote(fun), unquote(kinds)}
      compiled = Nx.Vulkan.jit(fun)

      for shape <- @shapes, fun != (&__MODULE__.group_norm/1) or tuple_size(shape) == 3 do
        inputs = inputs(kinds, shape, {:f, 32})
        on_device = Enum.map(inputs, &to_device/1)
        # Evaluated, then replayed.
        for _ <- 1..3, do: apply(compiled, on_device)

        if builds_loops?() do
          kernels = unquote(kernels)..unquote(kernels)
          assert_kernels(kernels, fn -> apply(compiled, on_device) end)
        end

        assert_close(
          results(apply(compiled, on_device)),
          exact(fun, inputs),
          @error,
          {unquote(name), shape}
        )
      end
    end
  end

  test "all types of floats, whose results are rounded where they are stored" do
    for type <- Generators.float_types(), {fun, kinds, _} <- Enum.take(@patterns, 5) do
      inputs = inputs(kinds, {4, 24}, type)
      compiled = apply(Nx.Vulkan.jit(fun), Enum.map(inputs, &to_device/1))
      # Each operation rounds to the type, as evaluated operations do.
      evaluated =
        apply(Nx.Defn.jit(fun, compiler: Nx.Defn.Evaluator), Enum.map(inputs, &to_device/1))

      bound = 8 * epsilon(type)

      evaluated =
        for result <- results(evaluated), do: Nx.as_type(to_binary_backend(result), :f64)

      assert_close(results(compiled), evaluated, bound, {fun, type})
    end
  end

  defp to_binary_backend(tensor), do: Nx.backend_copy(tensor, Nx.BinaryBackend)

  test "what only looks like a row's value is stored" do
    for shape <- [{6, 6}, {1, 6}] do
      x = Generators.tensor(shape, {:f, 32}, {:float, -3.0, 3.0})
      row = Generators.tensor({6}, {:f, 32}, {:float, -3.0, 3.0})

      fun =
        if shape == {6, 6},
          do: &broadcast_last/2,
          else: fn x, row -> softmax(Nx.multiply(x, row)) end

      compiled = apply(Nx.Vulkan.jit(fun), Enum.map([x, row], &to_device/1))
      assert_close([compiled], exact(fun, [x, row]), @error, shape)
    end
  end

  defn by_row(x, divisors) do
    quotients = x / Nx.reduce_max(divisors, axes: [-1], keep_axes: true)
    {quotients, Nx.reduce_max(quotients, axes: [-1])}
  end

  # Quotients of a row are formed together, and some of them once more: those of numbers that are small or large for the type.
  test "quotients by a number of the row are correctly rounded, of numbers of all magnitudes" do
    float = fn exponents, significands ->
      sign = Enum.random([-1, 1])
      sign * Enum.random(significands) * :math.pow(2, Enum.random(exponents))
    end

    some = for _ <- 1..50, do: 1 + :rand.uniform()

    # Those that rounding is hardest for, as their reciprocals are halfway between two floats but for 2^-48.
    significands = [1.0, 1.5, 2 - :math.pow(2, -23), 1 + :math.pow(2, -23) | some]

    for {exponents, divisors} <- [{-40..40, -40..40}, {-149..-100, -10..20}, {60..120, -6..20}],
        extra <- [[], [0.0, -0.0], [:infinity, :neg_infinity, :nan]],
        length <- [3, 64, 1000, 1024] do
      x = for _ <- 1..5, do: Enum.map(1..length, fn _ -> float.(exponents, significands) end)
      x = Enum.map(x, &Enum.take(extra ++ &1, length))
      d = for _ <- 1..5, do: List.duplicate(float.(divisors, significands), length)
      [x, d] = for numbers <- [x, d], do: Nx.tensor(numbers, type: :f32)

      {quotients, largest} = Nx.Vulkan.jit(&by_row/2).(to_device(x), to_device(d))
      expected = Nx.divide(x, d)
      assert bits(quotients) == bits(expected), inspect({exponents, extra, length})
      # Of zeros BinaryBackend takes the first.
      [largest, expected] =
        for t <- [to_binary_backend(largest), Nx.reduce_max(expected, axes: [-1])],
            do: Nx.add(t, 0.0)

      assert bits(largest) == bits(expected)
    end
  end

  defn ends_by_row(x, divisors) do
    {x / Nx.reduce_max(divisors, axes: [-1], keep_axes: true), Nx.reduce_max(x, axes: [-1]),
     Nx.reduce_min(x, axes: [-1])}
  end

  # A GPU may take subnormals for zeros, and either operand for the larger one of a NaN and another.
  test "quotients and extrema of rows are those of operations alone, of numbers that a device's own take for others" do
    subnormal = :math.pow(2, -130)
    least = :math.pow(2, -149)
    special = [0.0, -0.0, :infinity, :neg_infinity, :nan, subnormal, -subnormal, 3.0e38, -0.75]

    rows = [
      [0.0],
      [-0.0],
      [0.0, -0.0],
      [subnormal, least, -least],
      [-subnormal, -least],
      [-1.0, -subnormal, -3.0],
      [1.0, subnormal],
      [1.0, :infinity],
      [-1.0, :neg_infinity],
      [:neg_infinity],
      [:nan, 1.0],
      [1.0, -2.0]
    ]

    for length <- [5, 128, 1024], divisor <- special do
      x = for row <- rows, do: row |> Stream.cycle() |> Enum.take(length)
      d = for _ <- rows, do: List.duplicate(divisor, length)
      [x, d] = for numbers <- [x, d], do: numbers |> Nx.tensor(type: :f32) |> to_device()
      together = Nx.Vulkan.jit(&ends_by_row/2).(x, d)
      alone = Nx.Defn.jit(&ends_by_row/2, compiler: Nx.Defn.Evaluator).(x, d)

      for {result, expected} <- Enum.zip(Tuple.to_list(together), Tuple.to_list(alone)),
          do: assert(bits(result) == bits(expected), inspect({length, divisor}))
    end
  end

  # NaN of any bits is one.
  defp bits(tensor) do
    tensor = to_binary_backend(tensor)
    nan = Nx.is_nan(tensor)
    tensor |> Nx.bitcast(:u32) |> then(&Nx.select(nan, 0, &1)) |> Nx.to_binary()
  end

  test "a row with NaN is NaN, and no other" do
    x = Nx.tensor([[1.0e38, 1.0e38], [:nan, 1.0], [-1.0e38, 0.0]], type: :f32)
    softmax = Nx.Vulkan.jit(&softmax/1).(to_device(x))
    assert Nx.to_flat_list(softmax) == [0.5, 0.5, :nan, :nan, 0.0, 1.0]
  end

  test "a kernel between two parts keeps them apart" do
    fun = fn x ->
      e = softmax(x)
      Nx.add(e, Nx.multiply(Nx.dot(e, x), Nx.sum(e, axes: [-1], keep_axes: true)))
    end

    x = Generators.tensor({5, 5}, {:f, 32}, {:float, -3.0, 3.0})

    assert_close(
      [Nx.Vulkan.jit(fun).(to_device(x))],
      exact(fun, [x]),
      @error,
      :dot
    )
  end

  test "a loop of rows runs on the device, and one that does not gives the same" do
    fun = fn x -> elem(while_softmax(x), 0) end
    x = Generators.tensor({4, 6}, {:f, 32}, {:float, -3.0, 3.0})

    assert_close(
      [Nx.Vulkan.jit(fun).(to_device(x))],
      exact(fun, [x]),
      @error,
      :loop
    )
  end

  defn while_softmax(x) do
    while {x, i = 0}, i < 5 and Nx.sum(x) > -1.0e9 do
      {softmax(x), i + 1}
    end
  end
end
