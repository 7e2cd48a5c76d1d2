defmodule Nx.Vulkan.SemanticsTest do
  @moduledoc """
  Results that are easy to get wrong, each spelled out, and those for which BinaryBackend raises.
  """

  use Nx.Vulkan.Test.Case, async: true

  setup do
    Nx.default_backend(VulkanoBackend)
    :ok
  end

  describe "where BinaryBackend raises, IEEE 754" do
    test "divides by zero" do
      for type <- Generators.float_types() do
        zeros = Nx.tensor([0.0, -0.0], type: type)
        assert list(Nx.divide(1.0, zeros)) == [:infinity, :neg_infinity]
        assert list(Nx.divide(-1.0, zeros)) == [:neg_infinity, :infinity]
      end

      assert list(Nx.divide(Nx.tensor([1, -1, 0]), 0)) == [:infinity, :neg_infinity, :nan]
      assert list(Nx.remainder(Nx.tensor([1.0, -1.0, :infinity]), 0.0)) == [:nan, :nan, :nan]
      assert list(Nx.remainder(Nx.tensor([1.5, -1.5]), :infinity)) == [1.5, -1.5]
    end

    test "overflows to infinity" do
      for type <- Generators.float_types() do
        largest = Nx.Constants.max_finite(type)
        ends = Nx.stack([largest, Nx.negate(largest)])
        assert list(Nx.multiply(ends, 10)) == [:infinity, :neg_infinity]
        assert list(Nx.exp(Nx.tensor([1.0e4], type: type))) == [:infinity]
        assert list(Nx.cosh(Nx.tensor([-1.0e4], type: type))) == [:infinity]
        assert list(Nx.sinh(Nx.tensor([-1.0e4], type: type))) == [:neg_infinity]
        assert list(Nx.sigmoid(Nx.tensor([-1.0e4, 1.0e4], type: type))) == [0.0, 1.0]
      end
    end

    test "is NaN outside the domain" do
      for type <- Generators.float_types() do
        minus = Nx.tensor([-2.0, :neg_infinity], type: type)
        for op <- [:sqrt, :rsqrt, :log, :acosh], do: assert(nans?(apply(Nx, op, [minus])))
        outside = Nx.tensor([1.5, -1.5, :infinity], type: type)
        for op <- [:asin, :acos, :atanh, :erf_inv], do: assert(nans?(apply(Nx, op, [outside])))
        assert nans?(Nx.log1p(Nx.tensor([-1.5, :neg_infinity], type: type)))
        assert nans?(Nx.pow(Nx.tensor([-1.5, -0.5], type: type), 0.5))
      end
    end

    test "has poles" do
      for type <- Generators.float_types() do
        assert list(Nx.rsqrt(Nx.tensor([0.0], type: type))) == [:infinity]
        assert list(Nx.atanh(Nx.tensor([1.0, -1.0], type: type))) == [:infinity, :neg_infinity]
        assert list(Nx.pow(Nx.tensor([0.0], type: type), -1.5)) == [:infinity]
      end
    end

    test "keeps infinities and NaN when rounding to whole numbers" do
      for type <- Generators.float_types(), op <- [:ceil, :floor, :round] do
        values = [:nan, :infinity, :neg_infinity]
        assert list(apply(Nx, op, [Nx.tensor(values, type: type)])) == values
      end
    end
  end

  describe "integers" do
    test "divided by zero give all bits set, and themselves as remainder" do
      for type <- Generators.integer_types() do
        x = Nx.tensor([0, 1, 100], type: type)
        assert list(Nx.quotient(x, 0)) == list(Nx.as_type(Nx.tensor([-1, -1, -1]), type))
        assert list(Nx.remainder(x, 0)) == [0, 1, 100]
      end
    end

    test "to a negative power raise" do
      for exponent <- [-1, Nx.tensor(-1), Nx.tensor([2, 0, -3]), Nx.tensor([1, -1], type: :s64)] do
        assert_raise ArithmeticError, fn -> Nx.pow(Nx.tensor([2]), exponent) end
      end

      assert list(Nx.pow(Nx.tensor([2.0]), -1)) == [0.5]
      assert list(Nx.pow(Nx.tensor([0, 3, -2]), Nx.tensor([0, 3, 5]))) == [1, 27, -32]
      assert list(Nx.pow(Nx.tensor([3], type: :u8), 200)) == [161]
    end

    test "shifted by a negative amount raise as with BinaryBackend" do
      for op <- [:left_shift, :right_shift], amount <- [-1, Nx.tensor([1, -7])] do
        message = catch_error(apply(Nx, op, [Nx.tensor([1, 2]), amount])).message
        host = Nx.backend_copy(Nx.tensor([1, 2]))
        amount = if is_integer(amount), do: amount, else: Nx.backend_copy(amount)
        Nx.default_backend(Nx.BinaryBackend)
        assert message == catch_error(apply(Nx, op, [host, amount])).message
        Nx.default_backend(VulkanoBackend)
      end
    end

    test "shifted beyond their width" do
      x = Nx.tensor([1, -1, -8], type: :s32)
      assert list(Nx.left_shift(x, 32)) == [0, 0, 0]
      assert list(Nx.right_shift(x, 33)) == [0, -1, -1]
      assert list(Nx.right_shift(x, 1)) == [0, -1, -4]
      assert list(Nx.right_shift(Nx.tensor([200], type: :u8), 9)) == [0]
    end

    test "compare across signs by value" do
      minus = Nx.tensor([-1], type: :s64)
      large = Nx.tensor([2 ** 64 - 1], type: :u64)
      assert list(Nx.less(minus, large)) == [1]
      assert list(Nx.equal(minus, large)) == [0]
      assert list(Nx.greater_equal(large, minus)) == [1]
    end

    test "count bits" do
      assert list(Nx.count_leading_zeros(Nx.tensor([0, 1, -1], type: :s16))) == [16, 15, 0]
      assert list(Nx.population_count(Nx.tensor([0, 1, -1], type: :s16))) == [0, 1, 16]
    end
  end

  describe "NaN" do
    test "wins in max, min and their reductions" do
      x = Nx.tensor([:nan, 1.0, :infinity])
      y = Nx.tensor([:neg_infinity, :nan, :nan])
      assert nans?(Nx.max(x, y))
      assert nans?(Nx.min(x, y))
      assert nans?(Nx.reduce_max(x))
      assert nans?(Nx.reduce_min(x))
    end

    test "is found by argmax and argmin, the last one" do
      x = Nx.tensor([1.0, :nan, 3.0, :nan, 2.0])

      for op <- [:argmax, :argmin], tie <- [:low, :high] do
        assert Nx.to_number(apply(Nx, op, [x, [tie_break: tie]])) == 3
      end
    end

    test "is true, and differs from itself" do
      x = Nx.tensor([:nan])
      assert list(Nx.logical_and(x, x)) == [1]
      assert list(Nx.logical_not(x)) == [0]
      assert list(Nx.select(x, 1, 2)) == [1]
      assert Nx.to_number(Nx.all(x)) == 1
      assert Nx.to_number(Nx.any(x)) == 1
      assert list(Nx.equal(x, x)) == [0]
      assert list(Nx.not_equal(x, x)) == [1]
    end

    test "becomes zero as an integer, and infinities the ends" do
      x = Nx.tensor([:nan, :infinity, :neg_infinity, 300.7, -1.9, 3.0e9])
      assert list(Nx.as_type(x, :u8)) == [0, 255, 0, 44, 255, 0]
      assert list(Nx.as_type(x, :s32)) == [0, 2 ** 31 - 1, -(2 ** 31), 300, -1, -1_294_967_296]
    end
  end

  test "round goes away from zero at ties" do
    x = Nx.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997, 8_388_609.0])
    assert list(Nx.round(x)) == [1.0, 2.0, 3.0, -1.0, -2.0, 0.0, 8_388_609.0]
  end

  # Numbers from 2^24 on, which drivers' rounding of doubles may leave as they are.
  test "doubles of every magnitude round" do
    x = Nx.tensor([187_701_809.77, 16_777_216.5, 16_777_217.5, 2.0 ** 52 - 0.5], type: :f64)
    whole = [187_701_810.0, 16_777_217.0, 16_777_218.0, 2.0 ** 52]
    assert list(Nx.round(x)) == whole
    assert list(Nx.round(Nx.negate(x))) == Enum.map(whole, &(-&1))
    assert list(Nx.as_type(x, :s64)) == [187_701_809, 16_777_216, 16_777_217, 2 ** 52 - 1]
    assert list(Nx.as_type(x, :s32)) == [187_701_809, 16_777_216, 16_777_217, -1]
    even = Nx.tensor([2.0 ** 52 + 1, 2.0 ** 53 - 1, 1.0e300], type: :f64)
    assert list(Nx.round(even)) == list(even)
  end

  test "remainder has the dividend's sign" do
    assert list(Nx.remainder(Nx.tensor([-7, 7, -7]), Nx.tensor([3, -3, -3]))) == [-1, 1, -1]
    assert list(Nx.remainder(Nx.tensor([-5.5, 5.5]), Nx.tensor([2.0, -2.0]))) == [-1.5, 1.5]
  end

  test "a u8 mask in arithmetic" do
    mask = Nx.greater(Nx.tensor([1.0, -1.0]), 0)
    assert mask.type == {:u, 8}
    assert list(Nx.multiply(mask, Nx.tensor([2.5, 2.5]))) == [2.5, 0.0]
    assert list(Nx.subtract(mask, 2)) == [255, 254]
    assert list(Nx.sum(Nx.broadcast(mask, {200, 2}), axes: [0])) == [200, 0]
  end

  test "negative bases have real powers of whole exponents only" do
    x = Nx.tensor([-2.0, -2.0, -2.0, -8.0, 0.0])
    y = Nx.tensor([2.0, 3.0, -1.0, 0.5, 0.0])
    assert list(Nx.pow(x, y)) == [4.0, -8.0, -0.5, :nan, 1.0]
  end

  test "negative bases have real powers of whole exponents beyond 2^24 only" do
    exponents = [17_000_000.5, 16_777_216.5, 2.0 ** 40 + 0.25, 2.0 ** 51 + 0.5]
    whole = [16_777_217.0, 16_777_216.0, 2.0 ** 53 - 1, 2.0 ** 53]

    # BinaryBackend raises.
    for sign <- [1, -1], Nx.Vulkan.has_f64() do
      y = Nx.multiply(sign, Nx.tensor(exponents, type: :f64))
      assert nans?(Nx.pow(Nx.tensor(-1.00001, type: :f64), y))
      assert nans?(Nx.pow(Nx.tensor(-1.0, type: :f64), y))
      y = Nx.multiply(sign, Nx.tensor(whole, type: :f64))
      assert list(Nx.pow(Nx.tensor(-1.0, type: :f64), y)) == [-1.0, 1.0, -1.0, 1.0]
    end

    assert list(Nx.pow(Nx.tensor(-1.0), Nx.tensor([8_388_607.5, 16_777_215.0, 16_777_216.0]))) ==
             [:nan, -1.0, 1.0]
  end

  test "sums and products of narrow integers wrap around" do
    ones = Nx.broadcast(Nx.tensor(100, type: :s8), {3})
    assert {Nx.sum(ones).type, Nx.to_number(Nx.sum(ones))} == {{:s, 32}, 300}
    assert Nx.to_number(Nx.dot(ones, ones)) == 48
    large = Nx.broadcast(Nx.tensor(2 ** 31 - 1, type: :s32), {3})
    assert Nx.to_number(Nx.sum(large)) == 2 ** 31 - 3
    assert Nx.to_number(Nx.dot(large, large)) == 3
  end

  describe "windows" do
    test "take NaN as the largest and as the smallest" do
      x = Nx.tensor([1.0, :nan, 3.0, 4.0])
      assert list(Nx.window_max(x, {2})) == [:nan, :nan, 4.0]
      assert list(Nx.window_min(x, {2})) == [:nan, :nan, 3.0]
    end

    test "wholly in padding give the identity" do
      x = Nx.tensor([1.0, 2.0])
      padding = [padding: [{3, 0}], strides: [3]]
      assert list(Nx.window_max(x, {2}, padding)) == [:neg_infinity, 2.0]
      assert list(Nx.window_min(x, {2}, padding)) == [:infinity, 1.0]
      assert list(Nx.window_sum(x, {2}, padding)) == [0.0, 3.0]
      assert list(Nx.window_product(x, {2}, padding)) == [1.0, 2.0]
      assert list(Nx.window_max(Nx.tensor([1, 2], type: :s8), {2}, padding)) == [-128, 2]
    end

    test "send the gradient of a tie to the last maximum" do
      x = Nx.tensor([1.0, 1.0, 0.0, 2.0, 2.0])
      pool = fn x -> Nx.sum(Nx.window_max(x, {3}, strides: [1])) end
      assert_same(Nx.Defn.grad(x, pool), on_host(fn -> Nx.Defn.grad(host(x), pool) end), :grad)
      assert list(Nx.Defn.grad(x, pool)) == [0.0, 1.0, 0.0, 1.0, 1.0]
    end
  end

  test "equal elements keep their order in either direction of a sort" do
    x = Nx.tensor([2, 1, 2, 1, 2])
    assert list(Nx.argsort(x, direction: :asc, stable: true)) == [1, 3, 0, 2, 4]
    assert list(Nx.argsort(x, direction: :desc, stable: true)) == [0, 2, 4, 1, 3]
  end

  test "NaN sorts last going up and first going down" do
    x = Nx.tensor([1.0, :nan, :infinity, :neg_infinity])
    assert list(Nx.sort(x)) == [:neg_infinity, 1.0, :infinity, :nan]
    assert list(Nx.sort(x, direction: :desc)) == [:nan, :infinity, 1.0, :neg_infinity]
  end

  test "of equal elements argmax takes the first or the last" do
    x = Nx.tensor([1, 3, 3, 0, 0])
    assert for(tie <- [:low, :high], do: Nx.to_number(Nx.argmax(x, tie_break: tie))) == [1, 2]
    assert for(tie <- [:low, :high], do: Nx.to_number(Nx.argmin(x, tie_break: tie))) == [3, 4]
  end

  test "integers that the host holds are computed there as on the device" do
    types = Generators.integer_types() ++ for(kind <- [:u, :s], size <- [2, 4], do: {kind, size})
    binary = [:add, :subtract, :multiply, :equal, :less, :greater_equal, :logical_xor]

    for op <- binary, left <- types, right <- Enum.take_random(types, 2) do
      numbers = for type <- [left, right], do: to_device(Generators.tensor({}, type, :any))
      ones = Enum.map(numbers, &to_device(Nx.reshape(host(&1), {1})))
      [result, expected] = for args <- [numbers, ones], do: apply(Nx, op, args)
      assert_same(result, host(Nx.squeeze(expected)), op, types: {left, right})
      bytes? = Enum.all?([result.type, left, right], &(elem(&1, 1) >= 8))
      assert is_reference(result.data.ref) == not bytes?
    end
  end

  test "literals of another type pad, clip and begin" do
    x = Nx.tensor([1, 2], type: :u8)
    assert list(Nx.pad(x, 7, [{1, 1, 1}])) == [7, 1, 7, 2, 7]
    assert Nx.pad(Nx.tensor([1.5]), 0, [{1, 0, 0}]) |> list() == [0.0, 1.5]
    assert list(Nx.clip(Nx.tensor([-1.5, 0.5, 9.0]), 0, 2)) == [0.0, 0.5, 2.0]
    assert Nx.to_number(Nx.reduce(Nx.tensor([1.5, 2.0]), 0, &Nx.add/2)) == 3.5
  end

  test "non-finite, complex and bf16 constants" do
    for type <- [:f16, :bf16, :f32, :f64], value <- [:nan, :infinity, :neg_infinity] do
      assert list(Nx.broadcast(Nx.tensor(value, type: type), {2})) == [value, value]
    end

    z = Nx.broadcast(Nx.tensor(Complex.new(1.5, -2)), {2})
    assert {z.type, list(z)} == {{:c, 64}, [Complex.new(1.5, -2.0), Complex.new(1.5, -2.0)]}
    assert Nx.to_number(Nx.Constants.pi(:bf16)) == 3.140625
  end

  test "numbers are rounded to the nearest float of 8 or 16 bits, of two that are as near to the even one" do
    for {type, number, rounded} <- [
          {:bf16, 0.2, 0.2001953125},
          {:bf16, 257, 256.0},
          {:bf16, 259, 260.0},
          {:bf16, 3.4e38, :infinity},
          {:f16, 0.2, 0.199951171875},
          {:f16, 2049, 2048.0},
          {:f16, 2051, 2052.0},
          {:f8, 9, 8.0},
          {:f8, 11, 12.0},
          {:f8, 61_440, :infinity},
          {:f8_e4m3fn, 17, 16.0},
          {:f8_e4m3fn, 19, 20.0},
          # Up to the next power of two, and at most to the largest number.
          {:f8_e4m3fn, 15.75, 16.0},
          {:f8_e4m3fn, 1000, 448.0}
        ],
        {number, rounded} <- [{number, rounded}, {-number, negative(rounded)}] do
      context = inspect({type, number})
      assert list(Nx.tensor(number, type: type)) == [rounded], context
      assert list(Nx.as_type(Nx.tensor([number, number]), type)) == [rounded, rounded], context
      padded = Nx.pad(Nx.tensor([1], type: type), number, [{0, 1, 0}])
      # Nx takes f8_e4m3fn and a number for f32.
      last = if padded.type == {:f, 32}, do: number, else: rounded
      assert list(padded) == [1.0, last], context
    end
  end

  defp negative(:infinity), do: :neg_infinity
  defp negative(number), do: -number

  test "results are rounded so, of operations and of all that a kernel fuses" do
    for {type, large, small, one, three} <- [
          {:bf16, 256, 1, 256.0, 260.0},
          {:f16, 2048, 1, 2048.0, 2052.0},
          {:f8, 8, 1, 8.0, 12.0},
          {:f8_e4m3fn, 16, 1, 16.0, 20.0}
        ] do
      [large, small, sum] = for x <- [large, small, 3], do: Nx.tensor([x, x], type: type)
      column = Nx.concatenate([large[0..0], small, small[0..0]])
      assert list(Nx.add(large, small)) == [one, one]
      assert list(Nx.add(large, sum)) == [three, three]
      assert list(Nx.subtract(Nx.negate(large), sum)) == [-three, -three]
      assert list(Nx.Vulkan.jit(&Nx.add(Nx.add(&1, &2), &2)).(large, small)) == [one, one]
      # Sums are rounded once.
      assert list(Nx.sum(column)) == [three]
      assert list(Nx.dot(column, Nx.as_type(Nx.equal(column, column), type))) == [three]
    end

    assert list(Nx.divide(Nx.tensor([1], type: :bf16), 5)) == [0.2001953125]
  end

  test "denormals are numbers" do
    tiny = Nx.tensor([1.0e-40, -1.0e-44])

    # A device may take them for zeros where it does not promise to keep them, all or none.
    for same <- [Nx.add(tiny, 0.0), Nx.multiply(tiny, 1.0)] do
      assert list(same) == if(flushes_subnormals?(), do: [0.0, 0.0], else: list(tiny))
    end

    assert list(Nx.greater(tiny, 0.0)) == [1, 0]
    assert Nx.to_number(Nx.argmax(Nx.tensor([-1.0, 0.0, -1.0e-45]), tie_break: :high)) == 1
  end

  defp on_host(fun), do: Nx.with_default_backend(Nx.BinaryBackend, fun)
  defp list(tensor), do: Nx.to_flat_list(tensor)
  defp nans?(tensor), do: Enum.all?(list(tensor), &(&1 == :nan))
end
