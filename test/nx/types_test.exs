defmodule Nx.Vulkan.TypesTest do
  @moduledoc """
  Integers of two and four bits and floats of eight, against `Nx.BinaryBackend`: they have so few
  values that functions of one number are compared for all of them.

  Nx packs elements below a byte, the device does not, so lengths here are odd.
  """

  use Nx.Vulkan.Test.Case, async: true

  alias Nx.Vulkan.Catalogue

  @integers Generators.narrow_integer_types()
  @floats Generators.narrow_float_types()
  @types @integers ++ @floats

  @lengths [1, 2, 3, 4, 5, 7, 8, 9, 31, 33, 257]

  describe "at the boundary" do
    test "elements of any number and rank come back, whole and in part" do
      for type <- @types, shape <- shapes() do
        tensor = Generators.tensor(shape, type, :any)
        device = to_device(tensor)
        assert Nx.to_binary(device) == Nx.to_binary(tensor)
        assert Nx.to_binary(Nx.backend_copy(device)) == Nx.to_binary(tensor)
        assert Nx.to_binary(Nx.backend_copy(device, VulkanoBackend)) == Nx.to_binary(tensor)
        # Nx 0.13 shows whole bytes.
        if nx_1_0?() or elem(type, 1) >= 8, do: assert(inspect(device) == inspect(tensor))

        for limit <- [1, 2, 3, 5, 100] do
          assert Nx.to_binary(device, limit: limit) == Nx.to_binary(tensor, limit: limit)
        end
      end
    end

    test "large tensors" do
      for {_, size} = type <- @types do
        bits = :rand.bytes(1_000_000)
        tensor = Nx.from_binary(bits, type, backend: VulkanoBackend)
        assert Nx.size(tensor) == div(8_000_000, size)
        assert Nx.to_binary(tensor) == bits
      end
    end

    test "numbers and constants" do
      for {kind, size} = type <- @types, shape <- [{}, {3}, {2, 5}] do
        numbers =
          case kind do
            :u -> [0, 1, 2 ** size - 1]
            :s -> [-1, 1, -(2 ** (size - 1))]
            _ -> [-0.0, 1.1, -2.5, :nan, :infinity, :neg_infinity]
          end

        for number <- numbers do
          constant = Nx.broadcast(Nx.tensor(number, type: type, backend: VulkanoBackend), shape)
          elements = List.duplicate(number, Tuple.product(shape))
          assert_same(constant, Nx.reshape(Nx.tensor(elements, type: type), shape), :constant)
        end
      end
    end

    test "the constants of Nx.Constants" do
      for type <- @floats,
          name <- [:nan, :infinity, :neg_infinity, :max, :min, :max_finite, :min_finite] do
        fun = &apply(Nx.Constants, name, [type, [backend: &1]])
        assert_same(fun.(VulkanoBackend), fun.(Nx.BinaryBackend), name, type: type)
      end
    end

    test "operands of BinaryBackend, batches, and what falls back" do
      for type <- @types do
        tensor = Generators.tensor({7, 3}, type, :moderate)
        host = Nx.tensor(1, type: type)

        for op <- [:multiply, :max], fun = fn [a, b] -> apply(Nx, op, [a, b]) end do
          expected = nearest(fun, [tensor, host])
          assert_same(fun.([to_device(tensor), host]), expected, op)
          assert_same(fun.([tensor, to_device(host)]), expected, op)
        end

        batches = Enum.to_list(Nx.to_batched(to_device(tensor), 2, leftover: :discard))
        expected = Enum.to_list(Nx.to_batched(tensor, 2, leftover: :discard))
        for [a, b] <- zip_all([batches, expected]), do: assert_same(a, b, :to_batched)

        Fallbacks.allow()
        window = &Nx.Vulkan.Fallback.call(:window_max, &1, [&2, {2, 1}, window_options()], "test")
        out = Nx.window_max(tensor, {2, 1})
        assert_same(window.(out, to_device(tensor)), out, :window_max)
        Fallbacks.forbid()
      end
    end
  end

  describe "conversions" do
    test "of every value to every type" do
      for from <- @types, to <- Generators.device_types() ++ @types, from != to do
        check_elements(:as_type, [values(from)], fn [t] -> Nx.as_type(t, to) end)
      end
    end

    test "of any value of every type" do
      for from <- Generators.device_types(), to <- @types do
        check_as_type(Generators.tensor({600}, from, :any), to)
      end
    end

    test "of floats next to every value and next to the middle of every two" do
      for to <- @floats ++ [{:bf, 16}, {:f, 16}], from <- [{:f, 32}, {:f, 64}] do
        check_elements(:as_type, [near(to, from)], fn [t] -> Nx.as_type(t, to) end)
      end
    end

    test "bitcasts share the memory" do
      for {_, size} = from <- [{:u, 8}, {:s, 8} | @types],
          {_, ^size} = to <- [{:u, 8}, {:s, 8} | @types] do
        check_elements(:bitcast, [values(from)], fn [t] -> Nx.bitcast(t, to) end)
      end
    end
  end

  # Without what is of complex numbers or of integers alone.
  @unary [:logical_not | Catalogue.names(family: :elementwise, arity: 1)] --
           [:as_type, :imag, :conjugate | Catalogue.names(group: "bits")]

  test "functions of every value" do
    for op <- @unary, type <- [Generators.pick(@integers) | @floats] do
      result = apply(Nx, op, [to_device(values(type))])
      expected = Reference.elementwise([values(type)], Reference.unary(op))
      assert_same(result, expected, op, type: type)
    end
  end

  test "bits of every value" do
    for type <- @integers, op <- [:bitwise_not, :count_leading_zeros, :population_count] do
      check_elements(op, [values(type)], fn [t] -> apply(Nx, op, [t]) end)
    end
  end

  # Without what is of integers alone; powers of floats are drawn in property_test.exs.
  @binary Catalogue.names(family: :elementwise, arity: 2) --
            [:pow | Catalogue.names(group: "bits")]

  test "functions of two values of one type" do
    for type <- @types, op <- @binary do
      check_pairs(op, type, type, fn [a, b] -> apply(Nx, op, [a, b]) end)
    end
  end

  test "functions of two integers" do
    for {kind, _} = type <- @integers,
        op <- [:quotient, :bitwise_and, :bitwise_or, :bitwise_xor] do
      other = Generators.pick(for {^kind, _} = type <- @integers, do: type)
      check_pairs(op, type, other, fn [a, b] -> apply(Nx, op, [a, b]) end)
    end

    for type <- @integers, op <- [:left_shift, :right_shift, :pow] do
      check_pairs(op, type, {:u, 4}, fn [a, b] -> apply(Nx, op, [a, b]) end)
    end
  end

  test "functions of values of two types" do
    others = [{:u, 2}, {:s, 4}, {:u, 8}, {:s, 16}, {:s, 32}, {:bf, 16}, {:f, 16}, {:f, 32}]

    for type <- @types, other <- @floats ++ others, other != type do
      op = Generators.pick(@binary)
      {a, b} = Generators.pick([{type, other}, {other, type}])
      values = &Generators.tensor({120}, &1, :moderate)
      check_elements(op, [values.(a), values.(b)], fn [a, b] -> apply(Nx, op, [a, b]) end)
    end
  end

  test "numbers as operands count with all their digits" do
    for type <- @floats, number <- [11, 1.1, -300], op <- [:add, :multiply, :less, :max] do
      check_elements(op, [values(type)], fn [t] -> apply(Nx, op, [t, number]) end)
    end
  end

  test "select and clip" do
    for type <- @types do
      [pred, a, b] = for _ <- 1..3, do: Generators.tensor({61}, type, :any)
      check_elements(:select, [pred, a, b], fn [p, a, b] -> Nx.select(p, a, b) end)

      [low, high] = for _ <- 1..2, do: Generators.tensor({}, type, :moderate)
      clip = fn [t, low, high] -> Nx.clip(t, low, high) end

      assert_same(clip.(operands([a, low, high])), nearest(clip, [a, low, high]), :clip,
        type: type
      )
    end
  end

  test "iota and eye" do
    for type <- @types, shape <- [{}, {5}, {300}, {3, 7}, {5, 1, 3}] do
      fun = &Nx.iota(shape, type: type, backend: &1)
      assert_same(fun.(VulkanoBackend), nearest(fun, NearestBackend), :iota, type: type)
    end

    for type <- @types do
      fun = &Nx.eye({3, 5}, type: type, backend: &1)
      assert_same(fun.(VulkanoBackend), nearest(fun, NearestBackend), :eye, type: type)
    end
  end

  test "movement keeps the bits" do
    for type <- @types do
      tensor = Nx.reshape(Generators.tensor({105}, type, :any), {3, 5, 7})

      for fun <- [
            &Nx.transpose(&1, axes: [2, 0, 1]),
            &Nx.reverse(&1, axes: [0, 2]),
            &Nx.slice(&1, [1, 0, 2], [2, 5, 3], strides: [1, 2, 2]),
            &Nx.broadcast(&1, {2, 3, 5, 7}),
            &Nx.reshape(&1, {21, 5}),
            & &1[1][2..4]
          ] do
        assert_same(fun.(to_device(tensor)), nearest(fun, tensor), :movement, type: type)
      end
    end
  end

  for op <- [:sum, :product, :reduce_max, :reduce_min, :all, :any, :argmax, :argmin] do
    test "#{op}" do
      for type <- @types, shape <- [{}, {37}, {3, 11}, {5, 2, 7}], values <- [:any, :moderate] do
        tensor = Generators.tensor(shape, type, values)
        axis = if shape == {}, do: nil, else: :rand.uniform(tuple_size(shape)) - 1

        options =
          if unquote(op) in [:argmax, :argmin],
            do: [axis: axis, tie_break: Generators.pick([:low, :high])],
            else: [axes: axis && [axis]]

        fun = &apply(Nx, unquote(op), [&1, options])
        context = [type: type, shape: shape] ++ options
        assert_same(fun.(to_device(tensor)), nearest(fun, tensor), unquote(op), context)
      end
    end
  end

  test "dot" do
    shapes = [{{5}, {5}}, {{3, 7}, {7}}, {{3, 7}, {7, 5}}, {{17, 19}, {19, 18}}]

    for type <- @types, other <- [type, type, Generators.pick(@types)], {left, right} <- shapes do
      a = Generators.tensor(left, type, :moderate)
      b = Generators.tensor(right, other, :moderate)
      fun = fn [a, b] -> Nx.dot(a, b) end
      assert_same(fun.(operands([a, b])), nearest(fun, [a, b]), :dot, types: {type, other})
    end
  end

  defp shapes do
    Enum.map(@lengths, &{&1}) ++ [{}, {1, 1}, {3, 3}, {5, 1, 3}, {2, 3, 1, 5}]
  end

  # Every value of the type, in an odd number of elements.
  defp values({_, size} = type) do
    bits = for n <- 0..(2 ** size - 1), into: <<>>, do: <<n::size(size)>>
    Generators.from_bits(<<bits::bitstring, 1::size(size)>>, type)
  end

  # Finite values, the middles of neighbours, and the floats before and after all of them; of many values some.
  defp near(type, {:f, size} = from) do
    finite = for x when is_float(x) <- Nx.to_flat_list(values(type)), x >= 0, do: x
    finite = Enum.sort(Enum.uniq(finite))
    neighbours = finite |> Enum.zip(tl(finite)) |> Enum.take_random(256)

    around =
      for {low, high} <- neighbours,
          x <- [low, (low + high) / 2, high],
          d <- [-1, 0, 1],
          x > 0 or d >= 0 do
        <<bits::size(size)>> = <<x::float-size(size)>>
        <<y::float-size(size)>> = <<bits + d::size(size)>>
        y
      end

    Nx.tensor(around ++ Enum.map(around, &(-&1)), type: from)
  end

  # All pairs of small integers, some of floats.
  defp check_pairs(op, a, b, fun) do
    count = &Nx.size(values(&1))
    take = fn type, at -> Nx.take(values(type), Nx.tensor(at)) end

    pairs =
      if a in @floats,
        do: for(_ <- 1..1500, do: {:rand.uniform(count.(a)) - 1, :rand.uniform(count.(b)) - 1}),
        else: for(i <- 0..(count.(a) - 1), j <- 0..(count.(b) - 1), do: {i, j})

    {left, right} = Enum.unzip(pairs)
    check_elements(op, [take.(a, left), take.(b, right)], fun)
  end

  defp window_options, do: [padding: [{0, 0}, {0, 0}], strides: [1, 1], window_dilations: [1, 1]]
end
