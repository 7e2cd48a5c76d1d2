defmodule Nx.Vulkan.ComplexTest do
  @moduledoc """
  Complex numbers against `Nx.BinaryBackend`: element-wise operations, conversions, reductions, `dot`
  and what moves elements.

  c64 is computed in double, as there, and equal to the last bit but for one ulp of the maths. A device without doubles
  has the bounds of single precision, and no c128. In c128 BinaryBackend's own functions lose digits, and the distance
  counts against the number's size.
  `Reference.right?/2` says where BinaryBackend is compared with. Errors at every magnitude, and branch cuts, zeros,
  infinities and NaN, are those of native_tests/complex.
  """

  use Nx.Vulkan.Test.Case, async: true

  import Generators, only: [complex_types: 0]

  @exact_unary [:negate, :conjugate, :real, :imag, :abs, :sign, :is_nan, :is_infinity] ++
                 [:logical_not]
  @maths_unary [
                 :exp,
                 :expm1,
                 :log,
                 :log1p,
                 :sigmoid,
                 :sin,
                 :cos,
                 :tan,
                 :sinh,
                 :cosh,
                 :tanh,
                 :sqrt
               ] ++
                 [:asin, :acos, :atan, :asinh, :acosh, :atanh, :rsqrt, :cbrt, :phase]

  @exact_binary [:add, :subtract, :multiply, :equal, :not_equal] ++
                  [:logical_and, :logical_or, :logical_xor]

  @real_types [{:u, 8}, {:s, 8}, {:s, 32}, {:bf, 16}, {:f, 16}, {:f, 32}, {:f, 64}]

  for op <- @exact_unary ++ @maths_unary do
    test "#{op}" do
      for type <- complex_types(), values <- [:moderate, :few, :any, :near_zero] do
        check(unquote(op), [Generators.tensor({400}, type, range(unquote(op), type, values))])
      end
    end
  end

  for op <- @exact_binary ++ [:divide, :pow] do
    test "#{op} of complex numbers, broadcasting" do
      for type <- complex_types(),
          values <- [:moderate, :few, :any],
          shapes <- [{{300}, {300}} | some_pairs()] do
        {left, right} = shapes
        values = range(unquote(op), type, values)

        check(unquote(op), [
          Generators.tensor(left, type, values),
          Generators.tensor(right, type, values)
        ])
      end
    end

    test "#{op} of complex and real numbers" do
      for complex <- complex_types(), real <- Generators.computed(@real_types) do
        # Of a real operand's own non-finite numbers BinaryBackend makes more than one thing.
        z = Generators.tensor({40}, complex, :moderate)

        x =
          Generators.tensor(
            {40},
            real,
            if(float?(real), do: {:float, -3.0, 3.0}, else: :moderate)
          )

        check(unquote(op), [z, x])
        # To BinaryBackend the complex 0 to the power of infinity is 0, and the real one's is NaN.
        x =
          if unquote(op) == :pow,
            do: Nx.select(Nx.equal(x, 0), Nx.tensor(1, type: real), x),
            else: x

        check(unquote(op), [x, z])
      end
    end
  end

  for op <- [:add, :multiply, :divide, :pow, :equal] do
    test "#{op} of a tensor and a literal" do
      for type <- complex_types(),
          literal <- [2, 0.5, Complex.new(1, -2), Complex.new(0.0, 3.5), Complex.new(:nan, 1)] do
        z = Generators.tensor({20}, type, {:float, -9.0, 9.0})

        assert_close(
          apply(Nx, unquote(op), [to_device(z), literal]),
          apply(Nx, unquote(op), [z, literal]),
          unquote(op)
        )

        assert_close(
          apply(Nx, unquote(op), [literal, to_device(z)]),
          apply(Nx, unquote(op), [literal, z]),
          unquote(op)
        )
      end
    end
  end

  test "zeros, infinities and NaN" do
    parts = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0, :infinity, :neg_infinity, :nan]

    for type <- complex_types(), op <- @exact_unary ++ @maths_unary do
      list = for re <- parts, im <- parts, do: Complex.new(re, im)
      # Nx takes no literal -0.0i: the number is made of floats.
      z = for(%{re: re, im: im} <- list, into: <<>>, do: part(re, type) <> part(im, type))
      check(op, [Nx.from_binary(z, type, backend: Nx.BinaryBackend)])
    end
  end

  test "atan2 takes complex numbers that are real, and raises for others as Nx does" do
    y = Nx.tensor([Complex.new(1, 0), Complex.new(-2.5, 0), Complex.new(3, 0)])
    assert_close(Nx.atan2(to_device(y), 2), Nx.atan2(y, 2), :atan2)

    assert_raise ArithmeticError, "Complex.atan2 only accepts real numbers as arguments", fn ->
      Nx.atan2(to_device(Nx.tensor([Complex.new(1, 2)])), 2)
    end
  end

  test "Nx.complex and its parts" do
    for type <- Generators.computed([{:f, 32}, {:f, 64}, {:s, 32}]) do
      [x, y] = for _ <- 1..2, do: Generators.tensor({3, 5}, type, {:integer, -9..9})
      check(:complex, [x, y])
    end
  end

  test "as_type to and from every type" do
    for complex <- complex_types(), other <- Generators.device_types() ++ complex_types() do
      z = Generators.tensor({60}, complex, :finite)
      check_fun(:as_type, [z], fn [t] -> Nx.as_type(t, other) end)
      values = if float?(other) or complex?(other), do: :any, else: {:integer, 0..127}

      check_fun(:as_type, [Generators.tensor({60}, other, values)], fn [t] ->
        Nx.as_type(t, complex)
      end)
    end
  end

  # To BinaryBackend of Nx 0.13 a complex zero is true.
  @tag :nx_1_0
  test "select takes complex predicates and branches" do
    for type <- complex_types(), {a, b} <- [{type, type}, {type, {:f, 32}}, {{:s, 32}, type}] do
      tensors = [
        Generators.tensor({30}, Generators.pick([type, {:u, 8}]), :few),
        Generators.tensor({30}, a, :moderate),
        Generators.tensor({30}, b, :moderate)
      ]

      check_fun(:select, tensors, fn [p, x, y] -> Nx.select(p, x, y) end)
    end
  end

  for op <- [:sum, :product] do
    test "#{op} over any axes" do
      for type <- complex_types(), shape <- Generators.some_shapes(), _ <- 1..4 do
        z = Generators.tensor(shape, type, {:float, -1.5, 1.5})
        axes = shape |> Nx.axes() |> Enum.filter(fn _ -> :rand.uniform(2) == 1 end)
        opts = [axes: axes, keep_axes: Generators.pick([true, false])]
        result = apply(Nx, unquote(op), [to_device(z), opts])
        # Single precision rounds each product.
        steps = if Nx.Vulkan.has_f64(), do: 1, else: div(Nx.size(z), Nx.size(result))
        assert_close(result, apply(Nx, unquote(op), [z, opts]), unquote(op), steps)
      end
    end
  end

  test "sums of more than fit a workgroup, and of what is not finite" do
    for type <- complex_types() do
      z = Generators.tensor({3, 5000}, type, {:float, 0.0, 2.0})
      assert_close(Nx.sum(to_device(z), axes: [1]), Nx.sum(z, axes: [1]), :sum)
      assert_close(Nx.mean(to_device(z)), Nx.mean(z), :sum)
      z = Generators.tensor({50, 3}, type, :few)
      assert_close(Nx.sum(to_device(z), axes: [1]), Nx.sum(z, axes: [1]), :sum)
    end
  end

  test "all and any: a number is false where both parts are zero" do
    for type <- complex_types() do
      part = {:f, div(elem(type, 1), 2)}
      [x, y] = for _ <- 1..2, do: Generators.tensor({40, 2}, part, {:integer, 0..1})
      z = Nx.complex(x, y)
      true? = Nx.logical_or(Nx.not_equal(x, 0), Nx.not_equal(y, 0))

      for op <- [:all, :any] do
        assert_same(
          apply(Nx, op, [to_device(z), [axes: [1]]]),
          apply(Nx, op, [true?, [axes: [1]]]),
          op
        )
      end
    end
  end

  test "dot in many contractions" do
    cases = [
      {{3, 4}, [1], [], {4, 5}, [0], []},
      {{4, 3}, [0], [], {5, 4}, [1], []},
      {{4}, [0], [], {4}, [0], []},
      {{3, 4}, [1], [], {4}, [0], []},
      {{2, 3, 4}, [2], [0], {2, 4, 5}, [1], [0]},
      {{2, 3, 4}, [1, 2], [], {3, 4, 2}, [0, 1], []},
      {{3}, [], [], {2}, [], []},
      {{20, 33}, [1], [], {33, 18}, [0], []},
      {{1, 2000}, [1], [], {2000, 1}, [0], []}
    ]

    for {left, lc, lb, right, rc, rb} <- cases,
        {a, b} <- [
          {{:c, 64}, {:c, 64}},
          {{:c, 128}, {:c, 128}},
          {{:c, 64}, {:f, 32}},
          {{:s, 32}, {:c, 64}},
          {{:f, 64}, {:c, 64}}
        ],
        Generators.computed([a, b]) == [a, b] do
      x = Generators.tensor(left, a, {:float, -3.0, 3.0})
      y = Generators.tensor(right, b, {:float, -3.0, 3.0})
      result = Nx.dot(to_device(x), lc, lb, to_device(y), rc, rb)
      exact = Nx.dot(x, lc, lb, y, rc, rb)

      # Where the terms cancel, the error is that of their sum in doubles, or of one rounding a term without them.
      roundings = if Nx.Vulkan.has_f64(), do: 4, else: max(4, contracted(left, lc))

      terms =
        Nx.dot(Nx.abs(Nx.as_type(x, {:c, 128})), lc, lb, Nx.abs(Nx.as_type(y, {:c, 128})), rc, rb)

      error =
        Nx.multiply(Nx.abs(Nx.as_type(exact, {:c, 128})), 2 * epsilon(result.type))
        |> Nx.add(Nx.multiply(terms, roundings * working_epsilon()))

      for part <- [&Nx.real/1, &Nx.imag/1],
          do: assert_bound(part.(result), part.(exact), error, 1, {:dot, a, b, left, right})
    end
  end

  test "products too large to accumulate in double" do
    # In integers, which floats hold exactly: (a + bi)(c + di) in four products of their parts.
    [a, b] =
      for _ <- 1..2, do: to_device(Generators.tensor({260, 70}, {:f, 32}, {:integer, -4..4}))

    [c, d] =
      for _ <- 1..2, do: to_device(Generators.tensor({70, 260}, {:f, 32}, {:integer, -4..4}))

    product = Nx.dot(Nx.complex(a, b), Nx.complex(c, d))
    real = Nx.subtract(Nx.dot(a, c), Nx.dot(b, d))
    imag = Nx.add(Nx.dot(a, d), Nx.dot(b, c))
    assert Nx.to_number(Nx.all(Nx.equal(Nx.real(product), real))) == 1
    assert Nx.to_number(Nx.all(Nx.equal(Nx.imag(product), imag))) == 1
  end

  test "moving elements" do
    for type <- complex_types() do
      z = Generators.tensor({3, 4, 2}, type, :any)

      for {op, fun} <- [
            transpose: &Nx.transpose(&1, axes: [2, 0, 1]),
            reverse: &Nx.reverse(&1, axes: [1]),
            slice: &Nx.slice(&1, [1, 0, 0], [2, 2, 2], strides: [1, 2, 1]),
            broadcast: &Nx.broadcast(Nx.new_axis(&1, 1), {3, 5, 4, 2}),
            concatenate: &Nx.concatenate([&1, Nx.reverse(&1)], axis: 1)
          ] do
        assert_same(fun.(to_device(z)), nearest(fun, z), op)
      end
    end
  end

  test "iota, eye and constants" do
    for type <- complex_types() do
      device = fn fun -> fun.(type: type, backend: VulkanoBackend) end
      host = fn fun -> fun.(type: type, backend: Nx.BinaryBackend) end

      for {op, fun} <- [
            iota: &Nx.iota({3, 4}, [axis: 1] ++ &1),
            eye: &Nx.eye(3, &1),
            constant: &Nx.broadcast(Nx.tensor(Complex.new(1.5, -2), &1), {2, 3}),
            i: fn [{:type, type}, backend] ->
              Nx.broadcast(Nx.Constants.i(type, [backend]), {2})
            end
          ] do
        assert_same(device.(fun), host.(fun), op)
      end
    end
  end

  defp contracted(shape, axes), do: axes |> Enum.map(&elem(shape, &1)) |> Enum.product()

  defp float?({kind, _}), do: kind in [:f, :bf]
  defp complex?({kind, _}), do: kind == :c
  defp some_pairs, do: Generators.some_shape_pairs()

  # In c128 BinaryBackend's intermediate results leave the range of doubles long before the numbers do, and are
  # subnormal, with fewer digits, before it raises.
  defp range(:divide, {:c, 128}, :any), do: {:float, -1.0e5, 1.0e5}

  defp range(_op, _type, values), do: values

  defp part(:nan, type), do: Nx.to_binary(Nx.Constants.nan(part_type(type)))
  defp part(:infinity, type), do: Nx.to_binary(Nx.Constants.infinity(part_type(type)))
  defp part(:neg_infinity, type), do: Nx.to_binary(Nx.Constants.neg_infinity(part_type(type)))
  defp part(number, {:c, 64}), do: <<number::float-native-32>>
  defp part(number, {:c, 128}), do: <<number::float-native-64>>
  defp part_type({:c, size}), do: {:f, div(size, 2)}

  defp check(op, tensors), do: check_fun(op, tensors, &apply(Nx, op, &1), Reference.complex(op))

  # `fun` is element-wise; where BinaryBackend raises nothing is compared.
  defp check_fun(op, tensors, fun, reference \\ nil) do
    expected = Reference.elementwise(tensors, reference || fun)
    assert_close(fun.(operands(tensors)), expected, op)
  end

  # `steps` of the operation, each with its error.
  defp assert_close(actual, expected, op, steps \\ 1)

  defp assert_close(actual, %Nx.Tensor{} = expected, op, steps),
    do: assert_close(actual, Reference.whole(expected), op, steps)

  defp assert_close(actual, expected, op, steps) do
    assert_elements(actual, expected, op, [], fn got, want, inputs ->
      types = Enum.map(expected.inputs, & &1.type)

      got == want or
        close?(
          number(got, actual.type),
          number(want, actual.type),
          actual.type,
          {op, steps},
          Enum.zip_with(inputs, types, &number/2)
        )
    end)
  end

  defp number(bits, type),
    do: hd(Nx.to_flat_list(Nx.from_binary(bits, type, backend: Nx.BinaryBackend)))

  # The epsilon of the type; half an ulp of the larger part each for two roundings, more for what is a sum of
  # functions with an error of their own.
  defp close?(%Complex{} = got, %Complex{} = want, {:c, size}, {op, steps}, operands) do
    {got, want} = {{got.re, got.im}, {want.re, want.im}}

    scale = want |> Tuple.to_list() |> Enum.map(&magnitude/1) |> Enum.max()

    # BinaryBackend's error of one part of a power goes with the size of the other, also where that is beyond the range.
    overflows? = op == :pow and Enum.any?([0, 1], &overflows?(elem(got, &1), elem(want, &1)))

    Enum.all?([0, 1], fn part ->
      allowed = scale * steps * tolerance(op, size) * condition(op, size, operands)

      part_close?(elem(got, part), elem(want, part), allowed, op) or
        (overflows? and is_number(elem(got, part)) and is_number(elem(want, part)))
    end)
  end

  defp close?(got, want, {kind, size}, {op, _steps}, _operands) when kind in [:f, :bf],
    do:
      part_close?(
        got,
        want,
        if(is_number(want), do: abs(want) * tolerance(op, 2 * size), else: 0),
        op
      )

  defp close?(_got, _want, _type, _op_and_steps, _operands), do: false

  defp overflows?(same, same), do: same in [:infinity, :neg_infinity]
  defp overflows?(_got, _want), do: false

  defp magnitude(part) when is_number(part), do: abs(part)

  # A part beyond the range of f32 is the number's size: what is small beside it has no bound in single precision.
  defp magnitude(part) when part != :nan,
    do: if(Nx.Vulkan.has_f64(), do: 0, else: 3.4028234663852886e38)

  defp magnitude(:nan), do: 0

  defp part_close?(same, same, _allowed, op) when same != 0 or op in [:sum, :product, :dot],
    do: true

  defp part_close?(got, want, allowed, op) when is_number(got) and is_number(want) do
    if got == 0 and want == 0,
      do: any_zero?(op, {:c, 64}) or <<got::float>> == <<want::float>>,
      else: abs(got - want) <= max(allowed, lost_below({:c, 64}))
  end

  defp part_close?(_got, _want, _allowed, _op), do: false

  defp tolerance(op, 64) when op in [:abs, :multiply], do: ulps(op, {:c, 64}) * 2.0 ** -23
  defp tolerance(op, _size) when op in @exact_unary or op in @exact_binary, do: 0
  defp tolerance(_op, 64), do: complex_ulps() * 2.0 ** -23
  # BinaryBackend's own sums have the error.
  defp tolerance(op, 128) when op in [:sum, :dot], do: 2.0 ** -42
  defp tolerance(_op, 128), do: 2.0 ** -40

  # What is lost in the logarithm's last place grows with the exponent.
  defp condition(:pow, 128, [_, %Complex{re: re, im: im}]) when is_number(re) and is_number(im),
    do: max(1, abs(re) + abs(im))

  defp condition(:pow, 128, [_, exponent]) when is_number(exponent), do: max(1, abs(exponent))
  defp condition(_op, _size, _operands), do: 1
end
