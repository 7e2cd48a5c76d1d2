defmodule Nx.Vulkan.ScanTest do
  @moduledoc "Cumulative operations along an axis against `Nx.BinaryBackend`."

  use Nx.Vulkan.Test.Case, async: true

  require Nx.Vulkan.Native, as: Native

  # Of the scanned axis: one element, around a thread's, a workgroup's, and several chunks.
  @lengths [1, 2, 3, 4, 5, 31, 64, 100, 257]

  for op <- [:cumulative_max, :cumulative_min] do
    test "#{op} of every type, where NaN wins" do
      for type <- Generators.device_types(), _ <- 1..4 do
        check(unquote(op), type, Generators.pick([:any, :few, :near_zero]))
      end

      # Subnormals of f8 change when BinaryBackend writes what it read, and here.
      for type <- [{:f, 8}, {:f8_e4m3fn, 8}], do: check(unquote(op), type, :few)
    end
  end

  for op <- [:cumulative_sum, :cumulative_product] do
    test "#{op} of integers wraps around" do
      for type <- Generators.integer_types(), _ <- 1..6, do: check(unquote(op), type, :any)
    end

    test "#{op} of floats with NaN, infinities and zeros" do
      for type <- [{:f, 32}, {:f, 64}], _ <- 1..10 do
        tensor = Generators.tensor({20, 3}, type, :few)
        options = [axis: 0, reverse: Generators.pick([true, false])]
        fun = &apply(Nx, unquote(op), [&1, options])

        assert_same(
          fun.(to_device(tensor)),
          fun.(tensor),
          :cumulative_sum,
          [type: type] ++ options
        )
      end
    end
  end

  # One rounding of the result, and one of the compensated sum or one for each factor where there are no wider floats.
  test "sums and products of floats are near the exact ones" do
    for type <- Generators.float_types() ++ [{:f, 8}], _ <- 1..5 do
      {shape, axis} = Generators.shape_and_axis(Generators.pick(@lengths))
      options = [axis: axis, reverse: Generators.pick([true, false])]
      terms = Generators.tensor(shape, type, {:float, -2.0, 2.0})
      exact = Nx.cumulative_sum(to_f64(terms), options)
      scale = Nx.cumulative_sum(Nx.abs(to_f64(terms)), options)
      result = Nx.cumulative_sum(to_device(terms), options)
      assert {result.type, result.shape} == {type, shape}
      assert_bound(result, exact, scale, 4 * epsilon(type), {:sum, type, shape, options})

      # 0.875 is the f8 before one, and BinaryBackend reads subnormals of f8 as larger numbers: there
      # the products stay above them.
      {shape, axis} = if type == {:f, 8}, do: Generators.shape_and_axis(64), else: {shape, axis}
      options = [axis: axis, reverse: options[:reverse]]
      factors = Generators.tensor(shape, type, {:float, 0.95, 1.05})
      exact = Nx.cumulative_product(to_f64(factors), options)
      result = Nx.cumulative_product(to_device(factors), options)

      bound =
        if type == Generators.widest_float(), do: 260 * epsilon(type), else: 4 * epsilon(type)

      assert_bound(result, exact, exact, bound, {:product, type, shape, options})
    end
  end

  # BinaryBackend's scan fails below a byte.
  test "integers below a byte" do
    for size <- [2, 4],
        kind <- [:u, :s],
        op <- [:cumulative_sum, :cumulative_product, :cumulative_max, :cumulative_min] do
      tensor = Generators.tensor({5, 20}, {kind, size}, :any)
      options = [axis: 1, reverse: Generators.pick([true, false])]
      expected = apply(Nx, op, [Nx.as_type(tensor, :s64), options]) |> Nx.as_type({kind, size})
      assert_same(apply(Nx, op, [to_device(tensor), options]), expected, op, type: {kind, size})
    end
  end

  test "sums and products of complex numbers" do
    for type <- [{:c, 64}, {:c, 128}], op <- [:cumulative_sum, :cumulative_product], _ <- 1..3 do
      # Whole numbers, so that nothing is rounded.
      parts = for _ <- 1..24, do: Complex.new(:rand.uniform(5) - 3, :rand.uniform(5) - 3)
      tensor = parts |> Nx.tensor(type: type) |> Nx.reshape({2, 4, 3})
      options = [axis: Generators.pick([0, 1, 2]), reverse: Generators.pick([true, false])]
      fun = &apply(Nx, op, [&1, options])

      assert_same(
        fun.(to_device(tensor)),
        nearest(fun, tensor),
        :cumulative_sum,
        [type: type] ++ options
      )
    end
  end

  test "long axes, in several chunks" do
    for {shape, axis} <- [{{30_011}, 0}, {{9_011, 3}, 0}, {{2, 20_000}, 1}, {{3_000, 40}, 0}],
        type <- [{:s, 32}, {:u, 8}, {:s, 64}],
        reverse <- [true, false] do
      tensor = shape |> Nx.iota(type: type) |> Nx.multiply(40_503) |> Nx.as_type(type)
      list = tensor |> Nx.transpose(axes: last(shape, axis)) |> Nx.to_flat_list()

      expected =
        for row <- Enum.chunk_every(list, elem(shape, axis)), x <- sums(row, reverse), do: x

      result = Nx.cumulative_sum(to_device(tensor), axis: axis, reverse: reverse)
      got = Nx.to_flat_list(Nx.transpose(result, axes: last(shape, axis)))

      assert zip_all([got, expected])
             |> Enum.all?(fn [got, want] ->
               Bitwise.band(want - got, 2 ** elem(type, 1) - 1) == 0
             end),
             "#{inspect({shape, axis, type, reverse})}"
    end

    ones = Nx.broadcast(Nx.tensor(0.1, type: :f64), {200_000})
    sum = Nx.cumulative_sum(to_device(ones))
    assert_in_delta Nx.to_number(sum[-1]), 20_000.0, 1.0e-11

    most = Nx.cumulative_max(to_device(Nx.iota({150_000}, type: :f32)), reverse: true)
    assert Nx.to_number(Nx.reduce_min(most)) == 149_999.0
  end

  test "mode counts its groups with a cumulative sum" do
    tensor = Nx.tensor([[1, 2, 2, 3], [4, 4, 1, 0]])

    for axis <- [nil, 0, 1],
        do:
          assert_same(Nx.mode(to_device(tensor), axis: axis), Nx.mode(tensor, axis: axis), :mode)
  end

  test "what cannot be scanned is refused" do
    ref = to_device(Nx.iota({4, 4}, type: :s32)).data.ref
    scan = fn op, tensor, axis, reverse -> Native.call(scan(op, tensor, axis, reverse)) end
    tensor = {ref, {:s, 32}, {4, 4}}
    assert_raise ArgumentError, ~r/operation/, fn -> scan.(:mean, tensor, 0, false) end
    assert_raise ArgumentError, ~r/axis/, fn -> scan.(:sum, tensor, 2, false) end
    assert_raise ArgumentError, ~r/reverse/, fn -> scan.(:sum, tensor, 0, 1) end

    for shape <- [{4, 5}, {4, 2 ** 62}, {2 ** 62, 4}, {2 ** 40, 2 ** 40}] do
      assert scan.(:sum, {ref, {:s, 32}, shape}, 0, false) == {:error, :size_mismatch}
    end

    assert {:error, :unsupported, _} = scan.(:max, {ref, {:c, 64}, {4, 2}}, 0, false)
  end

  defp check(op, type, values) do
    {shape, axis} = Generators.shape_and_axis(Generators.pick(@lengths))
    tensor = Generators.tensor(shape, type, values)
    options = [axis: axis, reverse: Generators.pick([true, false])]
    fun = &apply(Nx, op, [&1, options])

    assert_same(
      fun.(to_device(tensor)),
      nearest(fun, tensor),
      op,
      [type: type, shape: shape] ++ options
    )
  end

  # The axes with that one last.
  defp last(shape, axis), do: List.delete(Nx.axes(shape), axis) ++ [axis]

  defp sums(row, true), do: row |> Enum.reverse() |> sums(false) |> Enum.reverse()
  defp sums(row, false), do: Enum.scan(row, &(&1 + &2))

  defp to_f64(tensor), do: Nx.as_type(tensor, :f64)
end
