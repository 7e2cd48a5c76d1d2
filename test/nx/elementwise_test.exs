defmodule Nx.Vulkan.ElementwiseTest do
  @moduledoc """
  Every element-wise operation, over types and shapes, against `Nx.BinaryBackend`.

  An element for which BinaryBackend raises is not compared here; what IEEE 754 says about the
  important ones is in `Nx.Vulkan.SemanticsTest`.

  Each operation meets all types, and in each run a few shapes of all for each type: a kernel is made
  for every combination, which takes longer than running it. How tensors broadcast is the same for
  all operations, so one of them meets all shapes.
  """

  use Nx.Vulkan.Test.Case, async: true

  alias Nx.Vulkan.Catalogue

  # By operands, and by what the right one may be.
  @functions Catalogue.names(family: :elementwise, error: :function, arity: 1)
  @exact Catalogue.names(family: :elementwise, error: :exact, arity: 1) -- [:as_type]
  @bits Catalogue.names(group: "bits", arity: 1)
  @unary [:logical_not | @exact -- [:imag, :conjugate | @bits]]

  @integer_binary [:quotient, :remainder, :pow, :left_shift, :right_shift]
  @bitwise Catalogue.names(group: "bits", arity: 2) -- @integer_binary
  @float_binary [
    :remainder | Catalogue.names(family: :elementwise, arity: 2) -- Catalogue.names(error: :exact)
  ]
  @both Catalogue.names(family: :elementwise, error: :exact, arity: 2) --
          [:remainder | Catalogue.names(group: "bits")]

  for op <- @functions do
    test "#{op} of floats and integers" do
      for type <- Generators.float_types(), do: check_unary(unquote(op), {700}, type, :any)

      # Beyond 2^24 an integer is no f32, and what the function of the nearest one is says nothing.
      for type <- Generators.integer_types(),
          do: check_unary(unquote(op), {100}, type, {:integer, 0..100})
    end
  end

  for op <- @unary do
    test "#{op} of all types" do
      for type <- Generators.device_types(), do: check_unary(unquote(op), {300}, type, :any)
    end
  end

  for op <- @bits do
    test "#{op} of integers" do
      for type <- Generators.integer_types(), do: check_unary(unquote(op), {300}, type, :any)
    end
  end

  test "any shape" do
    for shape <- Generators.shapes(), type <- [{:f, 32}, {:s, 64}, {:u, 8}] do
      check_unary(:negate, shape, type, :any)
    end
  end

  test "any two shapes that broadcast" do
    for {op, type} <- [subtract: {:f, 32}, less: {:u, 8}], shapes <- Generators.shape_pairs() do
      check_binary(op, shapes, {type, type}, :any)
    end
  end

  for op <- @both do
    test "#{op} of one type, broadcasting" do
      for type <- Generators.device_types(), shapes <- Generators.some_shape_pairs() do
        check_binary(unquote(op), shapes, {type, type}, :any)
      end
    end
  end

  for group <- ["comparison and rounding", "equality and logic"],
      op <- Catalogue.names(family: :elementwise, group: group, arity: 2) -- [:remainder] do
    test "#{op} of zeros and the numbers next to them" do
      for type <- Generators.float_types() do
        check_binary(unquote(op), {{17, 1}, {17}}, {type, type}, :near_zero)
      end
    end
  end

  for op <- @both do
    test "#{op} of two types" do
      for {a, b} <- Generators.mixed_types(), types <- [{a, b}, {b, a}] do
        check_binary(unquote(op), {{40}, {40}}, types, mixed_values(types))
      end
    end
  end

  for op <- @bitwise do
    test "#{op} of integers" do
      for a <- Generators.integer_types(), b <- Generators.integer_types() do
        check_binary(unquote(op), Generators.pick(Generators.shape_pairs()), {a, b}, :any)
      end
    end
  end

  for op <- @float_binary do
    test "#{op} of floats" do
      for type <- Generators.float_types(), shapes <- Generators.some_shape_pairs() do
        for values <- [:any, :moderate],
            do: check_binary(unquote(op), shapes, {type, type}, values)
      end
    end
  end

  for op <- [:divide, :atan2] do
    test "#{op} of integers gives floats" do
      for type <- Generators.integer_types(), shapes <- Generators.some_shape_pairs() do
        check_binary(unquote(op), shapes, {type, type}, {:integer, 0..120})
      end
    end
  end

  for op <- @integer_binary do
    test "#{op} of integers" do
      for type <- Generators.integer_types(), shapes <- Generators.some_shape_pairs() do
        right =
          case unquote(op) do
            :pow -> {:integer, 0..70}
            shift when shift in [:left_shift, :right_shift] -> {:integer, 0..70}
            # BinaryBackend raises for those that are zero.
            _divisor -> Generators.pick([{:integer, 1..9}, :any])
          end

        check_binary(unquote(op), shapes, {type, type}, {:any, right})
      end
    end
  end

  test "quotient and remainder of the smallest integer and of extremes" do
    for {kind, size} = type <- Generators.integer_types(), op <- [:quotient, :remainder] do
      {low, high} =
        if kind == :s, do: {-(2 ** (size - 1)), 2 ** (size - 1) - 1}, else: {0, 2 ** size - 1}

      values =
        [low, low + 1, high, high - 1, 1, 2, 3, 7] ++ if(kind == :s, do: [-1, -2], else: [])

      values = Enum.uniq(values)
      a = Nx.tensor(values, type: type) |> Nx.reshape({:auto, 1})
      b = Nx.tensor(values -- [0], type: type)
      check_elements(op, [a, b], &apply(Nx, op, &1))
    end
  end

  test "select takes any predicate and converts its branches" do
    for pred <- Generators.device_types(), {a, b} <- Generators.mixed_types() do
      {left, right} = Generators.pick(Generators.shape_pairs())
      {shape, _} = Nx.Shape.binary_broadcast(left, nil_names(left), right, nil_names(right))
      values = mixed_values({a, b})

      tensors = [
        Generators.tensor(Generators.pick([shape, {}]), pred, :few),
        Generators.tensor(left, a, values),
        Generators.tensor(right, b, values)
      ]

      check_elements(:select, tensors, &apply(Nx, :select, &1))
    end
  end

  test "clip" do
    for type <- Generators.device_types(), values <- [:any, :moderate, :few, :near_zero] do
      tensors = [
        Generators.tensor({50}, type, values),
        Generators.tensor({}, type, values),
        Generators.tensor({}, type, values)
      ]

      check_whole(:clip, tensors, fn [t, low, high] -> Nx.clip(t, low, high) end)
    end
  end

  test "clip of a tensor by bounds of another type" do
    for {a, b} <- Generators.mixed_types() do
      values = mixed_values({a, b})

      tensors = [
        Generators.tensor({50}, a, values),
        Generators.tensor({}, b, values),
        Generators.tensor({}, b, values)
      ]

      check_whole(:clip, tensors, fn [t, low, high] -> Nx.clip(t, low, high) end)
    end
  end

  test "as_type between all types" do
    for from <- Generators.device_types(), to <- Generators.device_types() do
      check_as_type(Generators.tensor({200}, from, :any), to)
    end
  end

  test "bitcast between all types of one width" do
    for {_, size} = from <- Generators.device_types(),
        {_, ^size} = to <- Generators.device_types() do
      check_elements(:bitcast, [Generators.tensor({20}, from, :any)], fn [t] ->
        Nx.bitcast(t, to)
      end)
    end
  end

  test "vectorized tensors" do
    a = Generators.tensor({3, 4}, {:f, 32}, :any)
    b = Generators.tensor({2, 4}, {:f, 32}, :any)

    fun = fn [a, b] ->
      Nx.devectorize(Nx.add(Nx.vectorize(a, :x), Nx.vectorize(b, :y)), keep_names: false)
    end

    assert_same(fun.(operands([a, b])), nearest(fun, [a, b]), :add)
  end

  test "names are kept and merged" do
    a = Nx.tensor([[1, 2], [3, 4]], names: [:x, nil])
    b = Nx.tensor([10, 20], names: [:y])
    assert_same(Nx.multiply(to_device(a), b), Nx.multiply(a, b), :multiply)
  end

  # The integers of a mixed pair are exactly representable in its float type: how operands are
  # converted is not what these tests are about.
  defp mixed_values({{a, _}, {b, _}}) when a in [:u, :s] and b in [:u, :s], do: {:integer, 0..127}
  defp mixed_values({{:f, _}, {:f, _}}), do: :any
  defp mixed_values(_types), do: :moderate

  defp nil_names(shape), do: List.duplicate(nil, tuple_size(shape))

  defp check_unary(op, shape, type, values) do
    tensor = Generators.tensor(shape, type, values)
    result = apply(Nx, op, [to_device(tensor)])
    expected = Reference.elementwise([tensor], Reference.unary(op))
    assert_same(result, expected, op, type: type)
  end

  defp check_binary(op, shapes, types, {left, right}) when left in [:any, :moderate] do
    {left_shape, right_shape} = shapes
    {left_type, right_type} = types

    check_elements(
      op,
      [
        Generators.tensor(left_shape, left_type, left),
        Generators.tensor(right_shape, right_type, right)
      ],
      &apply(Nx, op, &1)
    )
  end

  defp check_binary(op, {left_shape, right_shape}, {left_type, right_type}, values) do
    check_elements(
      op,
      [
        Generators.tensor(left_shape, left_type, values),
        Generators.tensor(right_shape, right_type, values)
      ],
      &apply(Nx, op, &1)
    )
  end

  defp check_whole(op, tensors, fun) do
    context = [
      types: Enum.map(tensors, & &1.type),
      values: Enum.map(tl(tensors), &Nx.to_number/1)
    ]

    assert_same(fun.(operands(tensors)), nearest(fun, tensors), op, context)
  end
end
