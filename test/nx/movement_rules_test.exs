defmodule Nx.Vulkan.MovementRulesTest do
  @moduledoc "Movement that compiled definitions replace gives the bits that it gives when it is done, in fewer kernels."

  # Kernels are counted.
  use Nx.Vulkan.Test.Case, async: false

  # Products of small integers are exact in f32.
  defp integers(shape),
    do: to_device(Generators.tensor(shape, {:f, 32}, {:integer, -9..9}))

  test "parts of indices, and other shapes of them" do
    x = to_device(Nx.tensor(3, type: :s32))

    for type <- [{:u, 8}, {:s, 32}, {:u, 32}, {:s, 64}, {:f, 32}],
        {rows, columns} <- [{2, 6}, {100, 3}] do
      for fun <- [
            fn x -> Nx.add(Nx.iota({rows, columns}, type: type)[1], x) end,
            fn x -> Nx.add(Nx.iota({rows, columns}, type: type)[[0..0, 1..2]], x) end,
            fn x -> Nx.add(Nx.iota({rows, columns}, type: type)[[0..1, 1..2]], x) end,
            fn x -> Nx.add(Nx.iota({rows, columns}, type: type)[[.., 1]], x) end,
            fn x -> Nx.add(Nx.iota({rows, columns}, type: type, axis: 0)[1], x) end,
            fn x ->
              Nx.add(Nx.reshape(Nx.iota({rows, columns}, type: type), {columns, rows}), x)
            end,
            fn x -> Nx.add(Nx.iota({rows, columns}, type: type)[[1, 2]], x) end,
            fn x ->
              Nx.add(
                Nx.slice(Nx.iota({rows, columns}, type: type), [0, 0], [2, 2], strides: [1, 2]),
                x
              )
            end
          ] do
        assert_as_evaluated(fun, [x])
      end
    end
  end

  test "what is computed of a concatenation" do
    a = to_device(Generators.tensor({3, 4}, {:s, 32}, {:integer, -9..9}))
    b = to_device(Generators.tensor({2, 4}, {:s, 32}, {:integer, -9..9}))

    concatenated = fn a, b, axis ->
      Nx.concatenate([Nx.multiply(a, 3), Nx.negate(b)], axis: axis)
    end

    for fun <- [
          fn a, b -> Nx.divide(Nx.subtract(concatenated.(a, b, 0), 7), 2) end,
          fn a, b -> Nx.greater(concatenated.(a, b, 0), 1) end,
          fn a, b -> Nx.bitcast(concatenated.(a, b, 0), :f32) end,
          fn a, b -> Nx.add(5, concatenated.(Nx.transpose(a), Nx.transpose(b), 1)) end,
          # Read twice, with another tensor, of another type, and of parts that are not computed.
          fn a, b ->
            Nx.add(concatenated.(a, b, 0), Nx.negate(concatenated.(a, b, 0)))
          end,
          fn a, b -> Nx.add(concatenated.(a, b, 0), b[0]) end,
          fn a, b -> Nx.add(Nx.concatenate([Nx.multiply(a, 0.5), Nx.negate(b)]), 1) end,
          fn a, b -> Nx.add(Nx.concatenate([a, b]), 1) end,
          fn a, b -> Nx.add(concatenated.(a, b, 0), Nx.iota({1, 4})) end
        ] do
      assert_as_evaluated(fun, [a, b])
    end
  end

  test "a slice of a concatenation that is one of its parts" do
    a = to_device(Generators.tensor({3, 4}, {:s, 32}, {:integer, -9..9}))
    b = to_device(Generators.tensor({2, 4}, {:s, 32}, {:integer, -9..9}))

    for part <- [0..2, 3..4, 1..2, 2..3, 0..4] do
      assert_as_evaluated(fn a, b -> Nx.add(Nx.concatenate([a, Nx.negate(b)])[part], 1) end, [
        a,
        b
      ])
    end
  end

  test "what is computed of transposed heads and products is in the kernel of the product" do
    heads = &(&1 |> Nx.reshape({5, 2, 3}) |> Nx.transpose(axes: [1, 0, 2]))
    [x, w, b] = for shape <- [{5, 4}, {4, 6}, {6}], do: integers(shape)

    scores = fn x, w, b ->
      query = Nx.multiply(heads.(Nx.add(Nx.dot(x, w), b)), 2)
      Nx.dot(query, [2], [0], heads.(Nx.dot(x, w)), [2], [0])
    end

    # SwiftShader, for which kernels are kept short, computes in another kernel what follows a product.
    more = if builds_loops?(), do: 0, else: 1
    assert_as_evaluated(scores, [x, w, b], 2..(2 + more))
    [x, w] = for shape <- [{2, 5, 2}, {2, 2, 6}], do: integers(shape)

    scaled = fn x, w ->
      Nx.dot(x, [2], [0], w, [1], [0])
      |> Nx.transpose(axes: [0, 2, 1])
      |> Nx.multiply(3)
      |> Nx.transpose(axes: [2, 0, 1])
    end

    assert_as_evaluated(scaled, [x, w], 1..(1 + more))
  end

  test "a transposed product is that of the operands in the other order" do
    [x, y] = for shape <- [{2, 5, 3}, {2, 3, 4, 2}], do: integers(shape)
    product = fn x, y -> Nx.dot(x, [2], [0], y, [1], [0]) end

    for axes <- [[0, 2, 3, 1], [0, 3, 2, 1], [0, 3, 1, 2], [1, 0, 2, 3], [3, 2, 1, 0]] do
      transposed = fn x, y -> Nx.transpose(product.(x, y), axes: axes) end
      assert_as_evaluated(transposed, [x, y], 1..1)
    end
  end

  test "a transpose that others read, of a wider type, with another tensor" do
    [x, y] = for shape <- [{5, 4}, {4, 5}], do: integers(shape)
    transposed = &Nx.transpose(Nx.negate(&1))

    for fun <- [
          fn x, y -> Nx.dot(transposed.(x), Nx.transpose(Nx.multiply(transposed.(x), y))) end,
          fn x, y -> Nx.multiply(transposed.(x), y) end,
          fn x, _y -> Nx.as_type(transposed.(x), :f64) end,
          fn x, _y -> Nx.select(Nx.greater(transposed.(x), 0), 1.5, 2.5) end,
          fn x, _y -> Nx.transpose(Nx.reshape(transposed.(x), {2, 10})) end,
          fn x, y -> Nx.subtract(1, Nx.transpose(Nx.dot(x, y))) end
        ] do
      assert_as_evaluated(fun, [x, y])
    end
  end

  test "a reduction that keeps its axes and the one that drops them are one" do
    x = integers({6, 5, 4})

    for op <- [&Nx.sum/2, &Nx.product/2, &Nx.reduce_max/2, &Nx.any/2],
        {axes, kept} <- [
          {[0], {1, 5, 4}},
          {[0, 1], {1, 1, 4}},
          {[1], {6, 1, 4}},
          {nil, {1, 1, 1}}
        ],
        keep <- [true, false] do
      both = fn x ->
        [a, b] = for keep <- [keep, not keep], do: op.(x, axes: axes, keep_axes: keep)
        Nx.concatenate([Nx.reshape(a, kept), Nx.reshape(b, kept)])
      end

      assert_as_evaluated(both, [x])
    end

    # The sum, that of squares, and the quotient of both; on SwiftShader, also what is squared.
    normalized = fn x -> Nx.divide(Nx.mean(x, axes: [0]), Nx.variance(x, axes: [0])) end
    compiled = Nx.Vulkan.jit(normalized)
    for _ <- 1..3, do: compiled.(x)
    kernels = if builds_loops?(), do: 3, else: 4
    assert_kernels(kernels..kernels, fn -> compiled.(x) end)
  end

  test "random numbers are one kernel, besides that of the next key" do
    key = to_device(Nx.Random.key(42))

    draws = [
      uniform: &Nx.Random.uniform/2,
      normal: &Nx.Random.normal/2,
      randint: &Nx.Random.randint(&1, 0, 9, &2)
    ]

    for {name, draw} <- draws do
      fun = fn key -> draw.(key, shape: {4096}) |> elem(0) end
      if name != :normal, do: assert_as_evaluated(fun, [key])
      compiled = Nx.Vulkan.jit(fun)
      for _ <- 1..3, do: compiled.(key)
      assert_kernels(0..2, fn -> compiled.(key) end)

      # The next key is of the kernel that splits this one, and copied from it.
      both = Nx.Vulkan.jit(fn key -> draw.(key, shape: {4096}) end)
      for _ <- 1..3, do: both.(key)
      assert_kernels(0..3, fn -> both.(key) end)
    end
  end

  test "random numbers of any shape and type have the bits that they have one by one" do
    key = to_device(Nx.Random.key(42))

    for shape <- [{}, {7}, {1, 65}, {30, 3}, {2, 3, 50}, {4097}, {1, 2 ** 18 + 2}],
        {draw, types} <- [
          {&Nx.Random.uniform/2, [{:f, 32}, {:bf, 16}, {:f, 64}]},
          {&Nx.Random.randint(&1, 0, 9, &2), [{:u, 8}, {:s, 32}, {:s, 64}]}
        ],
        type <- types do
      assert_as_evaluated(fn key -> draw.(key, shape: shape, type: type) |> elem(0) end, [key])
    end
  end

  test "a token is sampled by the kernels of a product and the largest of its elements" do
    key = to_device(Nx.Random.key(42))

    for vocabulary <- [40_000, 50_257] do
      [x, w] = for shape <- [{1, 8}, {8, vocabulary}], do: integers(shape)

      sample = fn x, w, key ->
        noise = Nx.Random.gumbel_split(key, shape: {1, vocabulary})
        Nx.argmax(Nx.add(Nx.multiply(Nx.dot(x, w), 0.1), noise), axis: -1)
      end

      kernels = if builds_loops?(), do: 1..2, else: 1..20
      assert_as_evaluated(sample, [x, w, key], kernels)
    end
  end

  test "what is computed of indices, in parts, other shapes and concatenated" do
    x = to_device(Nx.tensor(3, type: :s32))
    squares = fn shape, x -> Nx.add(Nx.multiply(Nx.iota(shape), Nx.iota(shape)), x) end

    for fun <- [
          fn x -> Nx.add(squares.({40, 3}, x)[[2..3]], Nx.iota({2, 3})) end,
          fn x -> Nx.add(Nx.reshape(squares.({40, 3}, x), {3, 40}), Nx.iota({3, 40})) end,
          fn x -> Nx.concatenate([squares.({40}, x), squares.({50}, x), Nx.iota({7})]) end,
          fn x -> Nx.concatenate([squares.({40, 3}, x), Nx.negate(squares.({2, 3}, x))]) end,
          fn x -> Nx.concatenate([squares.({1, 40}, x), squares.({1, 40}, x)], axis: 1) end,
          # These have other indices.
          fn x -> Nx.concatenate([squares.({40, 2}, x), squares.({40, 2}, x)], axis: 1) end,
          fn x -> Nx.concatenate([Nx.iota({40, 3}, axis: 1), squares.({40, 3}, x)]) end,
          fn x -> Nx.add(Nx.add(Nx.iota({40, 1}), Nx.iota({1, 3})), x)[[1..2]] end,
          fn x -> Nx.concatenate([squares.({100}, x), Nx.reshape(x, {1})]) end,
          # One element has an index of its own.
          fn x ->
            one = Nx.add(Nx.iota({100})[[3..3]], Nx.iota({1}))
            both = Nx.concatenate([Nx.multiply(one, squares.({80}, x)), Nx.add(one, 1)])
            Nx.add(both, Nx.iota({81}))
          end,
          fn x -> Nx.add(Nx.reshape(Nx.iota({10, 10}, type: :f32), {100}), x) end,
          fn x -> Nx.add(Nx.reshape(Nx.iota({300}, type: :u8), {3, 100}), x) end,
          fn x -> Nx.add(Nx.iota({300}, type: :u8)[[150..299]], x) end,
          fn x -> Nx.as_type(Nx.concatenate([squares.({200}, x), squares.({90}, x)]), :u8) end
        ] do
      assert_as_evaluated(fun, [x])
    end
  end
end
