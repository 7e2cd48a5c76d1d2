defmodule Nx.Vulkan.ReductionTest do
  @moduledoc "Reductions and dot, over axes, types and shapes, against `Nx.BinaryBackend`."

  use Nx.Vulkan.Test.Case, async: true

  @exact [:reduce_max, :reduce_min, :all, :any]

  for op <- @exact do
    test "#{op} over any axes" do
      for type <- Generators.device_types(), shape <- Generators.some_shapes() do
        values = Generators.pick([:any, :few, :near_zero])
        assert_same_over_axes(unquote(op), Generators.tensor(shape, type, values))
      end
    end
  end

  for op <- [:sum, :product] do
    test "#{op} of integers wraps around" do
      for type <- Generators.integer_types(), shape <- Generators.some_shapes() do
        assert_same_over_axes(unquote(op), Generators.tensor(shape, type, :any))
      end
    end

    test "#{op} of floats with NaN, infinities and zeros" do
      for type <- Generators.float_types(), _ <- 1..20 do
        tensor = Generators.tensor({4, 5}, type, :few)
        fun = &apply(Nx, unquote(op), [&1, [axes: [1]]])

        assert_same(fun.(to_device(tensor)), nearest(fun, tensor), unquote(op),
          type: type,
          inputs: []
        )
      end
    end
  end

  # Sums of positive and negative numbers have no useful distance in ulps. The bound is that of
  # summation by a tree of log2(n) levels (Higham, Accuracy and Stability of Numerical Algorithms,
  # 4.2), with room for the rounding of the result; that of the product has one rounding an element.
  test "sums and products of floats are near the exact ones" do
    for type <- Generators.float_types(), shape <- Generators.some_shapes() do
      terms = Generators.tensor(shape, type, {:float, -2.0, 2.0})
      factors = Generators.tensor(shape, type, {:float, 0.9, 1.1})

      for axes <- [nil | subsets(tuple_size(shape))], keep? <- [true, false] do
        options = [axes: axes, keep_axes: keep?]
        exact = Nx.sum(to_f64(terms), options)
        scale = Nx.sum(Nx.abs(to_f64(terms)), options)
        result = Nx.sum(to_device(terms), options)
        assert result.type == type
        assert_bound(result, exact, scale, 10 * epsilon(type), {:sum, type, options})

        exact = Nx.product(to_f64(factors), options)
        result = Nx.product(to_device(factors), options)
        assert_bound(result, exact, exact, 130 * epsilon(type), {:product, type, options})
      end
    end
  end

  test "a reduction of many elements to one, and of many rows" do
    tensor = Nx.iota({1_000_003}, type: :s32)

    assert_same(Nx.sum(to_device(tensor)), Nx.sum(tensor), :sum)

    tall = Nx.iota({70_000, 3}, type: :f32) |> to_device()
    assert Nx.to_flat_list(Nx.reduce_max(tall, axes: [0])) == [209_997.0, 209_998.0, 209_999.0]

    rows = Nx.iota({3, 70_000}, type: :f32) |> to_device()
    assert Nx.to_flat_list(Nx.reduce_max(rows, axes: [1])) == [69_999.0, 139_999.0, 209_999.0]
  end

  for op <- [:argmax, :argmin] do
    test "#{op} with ties and NaN" do
      for type <- Generators.device_types(),
          shape <- Generators.some_shapes(),
          tie <- [:low, :high],
          axis <- [nil | Enum.to_list(0..(tuple_size(shape) - 1)//1)] do
        tensor = Generators.tensor(shape, type, Generators.pick([:few, :any, :near_zero]))

        options = [
          axis: axis,
          tie_break: tie,
          keep_axis: axis != nil and Generators.pick([true, false]),
          type: Generators.pick([:s32, :s64, :u8])
        ]

        fun = &apply(Nx, unquote(op), [&1, options])

        assert_same(
          fun.(to_device(tensor)),
          nearest(fun, tensor),
          unquote(op),
          [type: type] ++ options
        )
      end
    end
  end

  describe "dot" do
    test "of integers, in any contraction and batching, wraps around" do
      for type <- Generators.integer_types(), _ <- 1..12 do
        {left, right, args} = random_dot(type, type, :any)
        check_dot(left, right, args)
      end
    end

    test "of floats" do
      for type <- Generators.float_types(), _ <- 1..12 do
        {left, right, args} = random_dot(type, type, {:float, -2.0, 2.0})
        check_float_dot(left, right, args)
      end
    end

    test "of two types" do
      for {a, b} <- Generators.mixed_types(), {a, b} <- [{a, b}, {b, a}] do
        {left, right, args} = random_dot(a, b, {:integer, 0..9})
        check_dot(left, right, args)
      end
    end

    test "of matrices beyond one tile, and of vectors" do
      for {m, k, n} <- [{1, 1, 1}, {65, 33, 17}, {128, 64, 130}, {3, 257, 1}, {1, 300, 70}] do
        left = Generators.tensor({m, k}, {:f, 32}, {:float, -2.0, 2.0})
        right = Generators.tensor({k, n}, {:f, 32}, {:float, -2.0, 2.0})
        check_float_dot(left, right, [[1], [], [0], []])
      end

      left = Generators.tensor({300}, {:f, 32}, {:float, -2.0, 2.0})
      check_float_dot(left, left, [[0], [], [0], []])
    end

    test "with NaN and infinities" do
      for type <- Generators.float_types() do
        left = Generators.tensor({4, 3}, type, :few)
        right = Generators.tensor({3, 5}, type, :few)
        fun = fn [a, b] -> Nx.dot(a, b) end
        assert_same(fun.(operands([left, right])), nearest(fun, [left, right]), :dot, type: type)
      end
    end

    test "without contraction, and of scalars" do
      left = Generators.tensor({2, 3}, {:s, 32}, :any)
      right = Generators.tensor({2, 4}, {:s, 32}, :any)
      check_dot(left, right, [[], [0], [], [0]])

      scalar = Nx.tensor(3.0)
      assert_same(dot([to_device(scalar), scalar], [[], [], [], []]), Nx.tensor(9.0), :dot)
    end
  end

  defp dot([left, right], [c1, b1, c2, b2]), do: Nx.dot(left, c1, b1, right, c2, b2)

  defp check_dot(left, right, args) do
    want = nearest(&dot(&1, args), [left, right])
    assert_same(dot(operands([left, right]), args), want, :dot, args: args)
  end

  defp check_float_dot(left, right, args) do
    result = dot(operands([left, right]), args)
    exact = dot([to_f64(left), to_f64(right)], args)
    scale = dot([Nx.abs(to_f64(left)), Nx.abs(to_f64(right))], args)
    context = {:dot, left.type, left.shape, right.shape, args}
    assert result.type == left.type

    # One rounding for each of at most 300 terms, half an epsilon each.
    assert_bound(result, exact, scale, 150 * epsilon(left.type), context)
  end

  # Contracted and batch axes of the same sizes on both sides, the other axes anything.
  defp random_dot(left_type, right_type, values) do
    sizes = fn n -> for _ <- 1..n//1, do: :rand.uniform(4) end
    batch = sizes.(:rand.uniform(3) - 1)
    contract = sizes.(:rand.uniform(3) - 1)
    {left, c1} = side(batch, contract)
    {right, c2} = side(batch, contract)
    axes = Enum.to_list(0..(length(batch) - 1)//1)

    {Generators.tensor(left, left_type, values), Generators.tensor(right, right_type, values),
     [c1, axes, c2, axes]}
  end

  defp side(batch, contract) do
    free = for _ <- 1..(:rand.uniform(3) - 1)//1, do: {:free, :rand.uniform(4)}
    marked = Enum.with_index(contract, fn size, i -> {i, size} end)
    rest = Enum.sort_by(free ++ marked, fn _ -> :rand.uniform() end)
    n = length(batch)
    positions = for {{i, _}, at} <- Enum.with_index(rest, n), i != :free, do: {i, at}
    shape = List.to_tuple(batch ++ Enum.map(rest, &elem(&1, 1)))
    {shape, positions |> Enum.sort() |> Enum.map(&elem(&1, 1))}
  end

  defp assert_same_over_axes(op, %{type: type, shape: shape} = tensor) do
    for axes <- [nil | subsets(tuple_size(shape))] do
      options = [axes: axes, keep_axes: Generators.pick([true, false])]
      fun = &apply(Nx, op, [&1, options])
      assert_same(fun.(to_device(tensor)), nearest(fun, tensor), op, [type: type] ++ options)
    end
  end

  defp to_f64(tensor), do: Nx.as_type(tensor, :f64)

  defp subsets(rank) do
    axes = Enum.to_list(0..(rank - 1)//1)
    all = Enum.reduce(axes, [[]], fn axis, acc -> acc ++ Enum.map(acc, &(&1 ++ [axis])) end)
    if rank <= 2, do: all, else: Enum.take_random(all, 4)
  end
end
