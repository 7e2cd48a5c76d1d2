defmodule Nx.Vulkan.ContractionFusionTest do
  @moduledoc """
  Products and convolutions with what leads to them and follows them: how many kernels a definition makes of them, and
  that the results have the bits of the same operations one by one.
  """

  use Nx.Vulkan.Test.Case, async: true

  import Nx.Defn

  alias Nx.Defn.Evaluator
  alias Nx.Vulkan.Compiler

  # Few rows, one row, and matrices with panels, tiles or a split sum, whichever the device has for them.
  @sizes [{3, 5, 4}, {1, 40, 300}, {40, 33, 50}]
  @types [{:f, 32}, {:f, 64}, {:bf, 16}, {:s, 32}, {:c, 64}]

  defp compiled(fun), do: Nx.Defn.jit(fun, compiler: Compiler, cache: false)
  defp one_by_one(fun), do: Nx.Defn.jit(fun, compiler: Evaluator)

  defp tensor(shape, type), do: shape |> Generators.tensor(type, {:integer, -9..9}) |> to_device()

  # Calls of the NIFs that run kernels here. A product whose sum is in parts is one call.
  defp calls(fun, args) do
    nifs = [run: 4, run_rows: 4, dot: 7, contract: 4, contract_with_epilogue: 5, assemble: 4]
    programs(fn -> apply(compiled(fun), args) end, nifs)
  end

  # Fails unless the definition is that number of calls and its results have the bits of single operations.
  defp check(fun, args, count, info \\ nil) do
    assert calls(fun, args) == count, inspect({count, info, Function.info(fun, :name)})
    check_bits(fun, args, info)
  end

  defp check_bits(fun, args, info \\ nil) do
    results = Nx.Defn.Composite.flatten_list([apply(compiled(fun), args)])
    expected = Nx.Defn.Composite.flatten_list([apply(one_by_one(fun), args)])

    for {result, expected} <- Enum.zip(results, expected) do
      assert {result.shape, result.type} == {expected.shape, expected.type}
      assert Nx.to_binary(result) == Nx.to_binary(expected), inspect({info, result, expected})
    end
  end

  describe "a row that a product alone reads is computed with it" do
    # Whole numbers, whose sums are exact in any order.
    defp norm(x, gain) do
      centred = Nx.subtract(x, Nx.mean(x, axes: [-1], keep_axes: true))
      variance = Nx.mean(Nx.multiply(centred, centred), axes: [-1], keep_axes: true)
      scaled = Nx.multiply(centred, Nx.rsqrt(Nx.add(variance, 1.0e-5)))
      Nx.as_type(Nx.multiply(scaled, gain), Nx.type(x))
    end

    test "whatever follows, and however the matrix is stored" do
      for type <- [{:f, 32}, {:bf, 16}, {:f, 16}],
          type in Generators.device_types(),
          {n, k} <- [{64, 48}, {33, 77}, {5, 300}],
          builds_loops?() do
        [x, gain, b] = for shape <- [{1, k}, {k}, {n}], do: tensor(shape, type)
        [w, turned] = for shape <- [{k, n}, {n, k}], do: tensor(shape, type)
        info = {type, n, k}

        check(fn x, g, w -> Nx.dot(norm(x, g), w) end, [x, gain, w], 1, info)
        check(fn x, g, w -> Nx.dot(norm(x, g), [1], w, [1]) end, [x, gain, turned], 1, info)
        check(fn x, g, w -> Nx.dot(w, [1], norm(x, g), [1]) end, [x, gain, turned], 1, info)
        layer = fn x, g, w, b -> Nx.tanh(Nx.add(Nx.dot(norm(x, g), w), b)) end
        check(layer, [x, gain, w, b], 1, info)
      end
    end

    test "and the largest of many results follows" do
      for type <- [{:f, 32}, {:bf, 16}], type in Generators.device_types(), builds_loops?() do
        [x, gain] = for shape <- [{1, 64}, {64}], do: tensor(shape, type)
        [w, turned] = for shape <- [{64, 40_000}, {40_000, 64}], do: tensor(shape, type)
        check(fn x, g, w -> Nx.argmax(Nx.dot(norm(x, g), w)) end, [x, gain, w], 1, type)

        last = fn x, g, w ->
          Nx.argmax(Nx.dot(w, [1], norm(x, g), [1]), axis: 0, tie_break: :high)
        end

        check(last, [x, gain, turned], 1, type)
      end
    end

    test "and what it is computed from is part of the product before" do
      for type <- [{:f, 32}, {:bf, 16}], type in Generators.device_types(), builds_loops?() do
        [x, gain] = for shape <- [{1, 40}, {40}], do: tensor(shape, type)
        [w, next] = for _ <- 1..2, do: tensor({40, 40}, type)

        block = fn x, g, w, next ->
          x = Nx.add(Nx.dot(x, w), x)
          Nx.add(Nx.dot(norm(x, g), next), x)
        end

        check(block, [x, gain, w, next], 2, type)
      end
    end

    test "unless others read it, or there are several" do
      if builds_loops?() do
        [x, gain, w, other] =
          for shape <- [{1, 40}, {40}, {40, 9}, {40, 8}], do: tensor(shape, {:f, 32})

        result = fn x, g, w ->
          row = norm(x, g)
          {Nx.dot(row, w), row}
        end

        check(result, [x, gain, w], 2)

        twice = fn x, g, w, other ->
          row = norm(x, g)
          {Nx.dot(row, w), Nx.dot(row, other)}
        end

        check(twice, [x, gain, w, other], 3)
        check(fn x, g, w -> Nx.dot(norm(x, g), w) end, [tensor({3, 40}, :f32), gain, w], 2)
      end
    end
  end

  describe "conversions that lose nothing are part of the product that reads them" do
    test "of either operand, in any order of its axes, with what follows" do
      for {narrow, type} <- [
            {{:s, 8}, {:f, 32}},
            {{:u, 8}, {:bf, 16}},
            {{:s, 4}, {:f, 16}},
            {{:bf, 16}, {:f, 32}},
            {{:f, 16}, {:f, 32}},
            {{:s, 16}, {:f, 64}},
            {{:u, 8}, {:s, 32}}
          ],
          type in Generators.device_types(),
          {m, n, k} <- @sizes do
        [x, scale] = [tensor({m, k}, type), tensor({n}, type)]
        small = fn shape -> to_device(Generators.tensor(shape, narrow, {:integer, 0..7})) end
        info = {narrow, type, m, n, k}

        # A dense layer with quantised weights, as Axon has it.
        dense = fn x, w, s -> Nx.add(Nx.multiply(Nx.dot(x, Nx.as_type(w, type)), s), s) end
        check(dense, [x, small.({k, n}), scale], 1, info)

        turned = fn x, w, _ -> Nx.dot(x, Nx.transpose(Nx.as_type(w, type))) end
        check(turned, [x, small.({n, k}), scale], 1, info)

        reshaped = fn w, x, _ -> Nx.dot(Nx.reshape(Nx.as_type(w, type), {n, k}), [1], x, [1]) end
        check(reshaped, [small.({1, n, k}), x, scale], 1, info)
      end
    end

    test "not those that round, nor of two floats" do
      {w, x} = {tensor({20, 9}, :s32), tensor({7, 20}, :f32)}
      check(fn x, w -> Nx.dot(x, Nx.as_type(w, :f32)) end, [x, w], 2)
      [a, b] = for shape <- [{7, 20}, {20, 9}], do: tensor(shape, :bf16)
      check(fn a, b -> Nx.dot(Nx.as_type(a, :f32), Nx.as_type(b, :f32)) end, [a, b], 2)
      [a, b] = for shape <- [{7, 20}, {20, 9}], do: tensor(shape, :s8)
      check(fn a, b -> Nx.dot(Nx.as_type(a, :s32), Nx.as_type(b, :s32)) end, [a, b], 1)
    end
  end

  describe "element-wise operations that follow a product are part of its kernel" do
    test "in all types and sizes" do
      for type <- Generators.computed(@types), {m, n, k} <- @sizes do
        args = [
          tensor({m, k}, type),
          tensor({k, n}, type),
          tensor({n}, type),
          tensor({m, n}, type)
        ]

        dense = fn x, w, b, r -> Nx.dot(x, w) |> Nx.add(b) |> Nx.multiply(3) |> Nx.subtract(r) end
        check(dense, args, 1, {type, m, n, k})
      end
    end

    test "activations, conversions and selections" do
      args = [tensor({7, 20}, :f32), tensor({20, 9}, :f32), tensor({9}, :f32)]
      check(fn x, w, b -> Nx.max(Nx.add(Nx.dot(x, w), b), 0) end, args, 1)
      check(fn x, w, b -> Nx.tanh(Nx.add(Nx.dot(x, w), b)) end, args, 1)
      check(fn x, w, _ -> Nx.multiply(Nx.dot(x, w), Nx.sigmoid(Nx.dot(x, w))) end, args, 1)
      check(fn x, w, b -> Nx.as_type(Nx.multiply(Nx.dot(x, w), b), :f16) end, args, 1)
      check(fn x, w, b -> Nx.select(Nx.greater(Nx.dot(x, w), b), Nx.dot(x, w), b) end, args, 1)
      check(fn x, w, _ -> Nx.add(Nx.dot(x, w), Nx.iota({7, 9})) end, args, 1)
      check(fn x, w, b -> Nx.add(Nx.reshape(Nx.dot(x, w), {9, 7}), b[[0]]) end, args, 1)
    end

    test "after a reshape, in another order of its axes" do
      [x, w, _] = args = [tensor({6, 5}, :f32), tensor({5, 8}, :f32), tensor({2, 6, 4}, :f32)]

      heads = fn x, w ->
        Nx.dot(x, w) |> Nx.reshape({6, 2, 4}) |> Nx.transpose(axes: [1, 0, 2])
      end

      check_bits(heads, [x, w])
      check_bits(fn x, w, b -> Nx.add(heads.(x, w), b) end, args)
      check_bits(fn x, w -> Nx.transpose(Nx.reshape(Nx.dot(x, w), {8, 6})) end, [x, w])
    end

    test "of vectors, of batches and of no rows" do
      [x, w, b] = args = [tensor({20}, :f32), tensor({20, 9}, :f32), tensor({9}, :f32)]
      check(fn x, w, b -> Nx.exp(Nx.add(Nx.dot(x, w), b)) end, args, 1)
      check(fn x, w, b -> Nx.add(Nx.dot(w, [0], x, [0]), b) end, args, 1)
      check(fn x -> Nx.add(Nx.dot(x, x), 1) end, [x], 1)
      check(fn b -> Nx.add(Nx.outer(b, b), b) end, [b], 1)
      check(fn x, w, b -> Nx.add(Nx.dot(Nx.reshape(x, {1, 20}), w), b) end, args, 1)

      batch = fn x, y ->
        Nx.dot(x, [2], [0], y, [2], [0]) |> Nx.multiply(0.5) |> Nx.add(x[[0, 0, 0]])
      end

      args = [tensor({3, 5, 6}, :f32), tensor({3, 4, 6}, :f32)]
      check(batch, args, 1)
      none = compiled(fn x, w, b -> Nx.add(Nx.dot(x[[.., 0..-1//1]], w), b) end)
      assert none.(tensor({4, 20}, :f32), w, b).shape == {4, 9}
    end

    test "and a step of gradient descent is one kernel, whatever the order of the product's axes" do
      args = [tensor({30, 12}, :f32), tensor({30, 20}, :f32), tensor({20, 12}, :f32)]

      step = fn g, x, w ->
        Nx.subtract(w, Nx.multiply(0.5, Nx.transpose(Nx.dot(g, [0], x, [0]))))
      end

      check(step, args, 1)
    end
  end

  describe "a reduction of all of a product's elements to one is part of its kernel" do
    # Of many elements each workgroup reduces its own.
    test "in all types and orders, the first or the last of equal elements" do
      for type <- Generators.computed([{:f, 32}, {:f, 64}, {:bf, 16}, {:s, 32}, {:u, 8}]),
          {k, n} <- [{64, 40_000}, {65, 40_003}] do
        [x, w, turned] = for shape <- [{1, k}, {k, n}, {n, k}], do: tensor(shape, type)
        b = tensor({n}, type)
        info = {type, k, n}

        greedy = fn x, w, b -> Nx.argmax(Nx.add(Nx.dot(x, w), b), axis: -1) end
        check(greedy, [x, w, b], 1, info)

        last = fn x, w -> Nx.argmin(Nx.dot(x, [1], w, [1]), tie_break: :high, type: :u32) end
        check(last, [x, turned], 1, info)

        column = fn x, w -> Nx.reduce_max(Nx.dot(w, [1], x, [1])) end
        check(column, [x, turned], 1, info)

        # Of integers the order does not matter.
        product = fn x, w -> Nx.product(Nx.add(Nx.multiply(Nx.dot(x, [1], w, [1]), 2), 1)) end
        if Nx.Type.integer?(type), do: check(product, [x, turned], 1, info)
      end
    end

    test "and a temperature, a random number for each element and the product itself" do
      [x, w, b] = for shape <- [{64}, {64, 40_003}, {40_003}], do: tensor(shape, :f32)

      sample = fn x, w, b ->
        logits = Nx.dot(x, w)
        {Nx.argmax(Nx.add(Nx.divide(logits, 0.7), b)), logits}
      end

      check(sample, [x, w, b], 1, :sample)

      all = fn x, w, _ -> Nx.all(Nx.less(Nx.dot(x, w), 1.0e6)) end
      check(all, [x, w, b], 1, :all)
    end

    test "and of complex numbers that are made of the product's" do
      n = 40_000
      x = Nx.put_slice(Nx.broadcast(0.0, {1, 64}), [0, 0], Nx.tensor([[1.0]])) |> to_device()
      odd = Nx.remainder(tensor({64, n}, {:s, 32}), 2) |> Nx.abs()
      w = Nx.subtract(1.0, Nx.multiply(2.0, odd))
      turned = fn x, w -> Nx.product(Nx.multiply(Nx.dot(x, w), Complex.new(0.0, 1.0))) end
      # Products of units, of which the signs of zeros depend on the order.
      [result, expected] = for jit <- [compiled(turned), one_by_one(turned)], do: jit.(x, w)
      assert result.type == {:c, 64}
      assert Nx.to_number(Nx.equal(result, expected)) == 1, inspect({result, expected})
      assert Nx.to_number(Nx.abs(result)) == 1.0
    end

    test "and of few elements, or several rows of them" do
      for type <- Generators.computed(@types), type != {:c, 64}, {m, n, k} <- @sizes do
        [x, w, b] = for shape <- [{m, k}, {k, n}, {n}], do: tensor(shape, type)
        layer = fn x, w, b -> Nx.max(Nx.add(Nx.dot(x, w), b), 0) end
        check(fn x, w, b -> Nx.argmax(layer.(x, w, b)) end, [x, w, b], 1, {type, m, n, k})
        check(fn x, w, _ -> Nx.reduce_min(Nx.dot(x, w)) end, [x, w, b], 1, {type, m, n, k})
      end
    end

    test "unless each row is reduced to one, or by sums, which share a kernel" do
      [x, w] = for shape <- [{3, 64}, {64, 50}], do: tensor(shape, :f32)
      check(fn x, w -> Nx.argmax(Nx.dot(x, w), axis: 1) end, [x, w], 2)

      sums = fn x, w ->
        product = Nx.dot(x, w)
        {Nx.sum(product), Nx.sum(Nx.multiply(product, product))}
      end

      assert calls(sums, [x, w]) <= 2
    end
  end

  defn branches(x, w) do
    product = Nx.dot(x, w)
    if x[0][0] > 0, do: product + 1, else: Nx.max(product * 2, x)
  end

  defn repeated(x, w) do
    {x, _} =
      while {x, w}, _i <- 0..4 do
        product = Nx.dot(x, w) / 8
        {Nx.max(product + w[0], product), w}
      end

    x
  end

  describe "a product that others read, too," do
    test "is written beside what follows" do
      args = [x, w, b] = [tensor({7, 20}, :f32), tensor({20, 9}, :f32), tensor({9}, :f32)]
      check(fn x, w, b -> {Nx.max(Nx.add(Nx.dot(x, w), b), 0), Nx.dot(x, w)} end, args, 1)

      check(
        fn x, w, b ->
          product = Nx.dot(x, w)
          {Nx.max(Nx.add(product, b), 0), Nx.sum(product), Nx.reshape(product, {63})}
        end,
        args,
        2
      )

      relu = fn x, w, b ->
        loss = fn w, b -> Nx.sum(Nx.multiply(Nx.max(Nx.add(Nx.dot(x, w), b), 0), 2)) end
        Nx.Defn.grad({w, b}, fn {w, b} -> loss.(w, b) end)
      end

      # Forward and its mask, the gradient of the weights, that of the bias.
      assert calls(relu, [x, w, b]) <= 4
    end

    test "is no part of a group that waits for it" do
      args = [tensor({7, 20}, :f32), tensor({20, 9}, :f32)]

      softmax = fn x, w ->
        scores = Nx.dot(x, w)
        e = Nx.exp(Nx.subtract(scores, Nx.reduce_max(scores, axes: [1], keep_axes: true)))
        Nx.divide(e, Nx.sum(e, axes: [1], keep_axes: true))
      end

      expected = apply(one_by_one(softmax), args)
      assert Nx.to_number(Nx.all_close(apply(compiled(softmax), args), expected)) == 1

      # Either of the two products could be kept for the other's group, but not both.
      crossed = fn x, w ->
        {a, b} = {Nx.dot(x, w), Nx.dot(Nx.negate(x), w)}
        {Nx.add(a, Nx.sum(b)), Nx.add(b, Nx.sum(a)), a, b}
      end

      check_bits(crossed, args)
    end

    test "stays one in conditions and loops" do
      args = [tensor({7, 9}, :f32), tensor({9, 9}, :f32)]

      for x <- [hd(args), Nx.negate(Nx.abs(hd(args)))], fun <- [&branches/2, &repeated/2] do
        args = [x, List.last(args)]
        check_bits(fun, args)
      end
    end
  end

  @last_channels_of_one [
    input_permutation: [0, 2, 1],
    kernel_permutation: [2, 1, 0],
    output_permutation: [0, 2, 1]
  ]
  @last_channels [
    input_permutation: [0, 3, 1, 2],
    kernel_permutation: [3, 2, 0, 1],
    output_permutation: [0, 3, 1, 2]
  ]

  # Shapes of an input, a kernel and the bias of four features, and the options of convolutions with one and two
  # spatial axes.
  @convolutions [
    {{2, 3, 9}, {4, 3, 3}, {1, 4, 1}, []},
    {{2, 9, 3}, {3, 3, 4}, {1, 1, 4}, [padding: :same] ++ @last_channels_of_one},
    {{2, 3, 6, 7}, {4, 3, 3, 2}, {1, 4, 1, 1}, [padding: :same]},
    {{2, 6, 7, 3}, {3, 2, 3, 4}, {4}, [strides: [2, 1]] ++ @last_channels},
    {{2, 4, 6, 5}, {4, 1, 3, 2}, {1, 4, 1, 1}, [feature_group_size: 4]},
    {{1, 4, 6, 5}, {4, 2, 3, 2}, {4, 1, 1}, [feature_group_size: 2, kernel_dilation: [1, 2]]},
    {{4, 3, 5, 5}, {4, 3, 2, 2}, {1, 4, 1, 1}, [batch_group_size: 2]}
  ]

  defp convolution(type, {input, kernel, bias, _options}),
    do: [tensor(input, type), tensor(kernel, type), Nx.reshape(tensor({4}, type), bias)]

  describe "element-wise operations that follow a convolution are part of its kernel:" do
    test "bias and activation" do
      for type <- [{:f, 32}, {:bf, 16}, {:s, 32}],
          {_, _, _, options} = convolution <- @convolutions do
        args = convolution(type, convolution)
        relu = fn x, w, b -> Nx.max(Nx.add(Nx.conv(x, w, options), b), 0) end
        check(relu, args, 1, {type, convolution})
      end

      {input, kernel, bias, options} = Enum.at(@convolutions, 3)

      gelu = fn x, w, b ->
        x = Nx.add(Nx.conv(x, w, options), Nx.reshape(b, {1, 1, 1, 4}))
        Nx.multiply(Nx.multiply(x, 0.5), Nx.add(Nx.erf(Nx.divide(x, 1.4142135)), 1))
      end

      check(gelu, convolution({:f, 32}, {input, kernel, bias, options}), 1)
    end

    test "a residual, a scale and the order of axes" do
      args = [x, w, b] = convolution({:f, 32}, Enum.at(@convolutions, 2))
      conv = fn x, w -> Nx.conv(x, w, padding: :same) end
      residual = tensor({2, 4, 6, 7}, :f32)
      check(fn x, w, b, r -> Nx.add(Nx.add(conv.(x, w), b), r) end, args ++ [residual], 1)
      check(fn x, w, b -> {Nx.max(Nx.add(conv.(x, w), b), 0), conv.(x, w)} end, args, 1)

      last = fn x, w, b ->
        Nx.add(Nx.transpose(conv.(x, w), axes: [0, 2, 3, 1]), Nx.squeeze(b))
      end

      check(last, [x, w, b], 1)
      check(fn x, w -> Nx.reshape(Nx.negate(conv.(x, w)), {2, :auto}) end, [x, w], 1)
    end

    test "with its gradients" do
      for index <- [0, 3, 4],
          {_, _, _, options} = convolution <- [Enum.at(@convolutions, index)] do
        gradient = fn x, w, b ->
          Nx.Defn.grad({x, w, b}, fn {x, w, b} ->
            Nx.sum(Nx.multiply(Nx.max(Nx.add(Nx.conv(x, w, options), b), 0), 2))
          end)
        end

        check_bits(gradient, convolution({:f, 32}, convolution), convolution)
      end
    end

    test "but for those with a dilated input, which are several kernels" do
      [x, w] = [tensor({2, 3, 6}, :f32), tensor({4, 3, 3}, :f32)]
      dilated = fn x, w -> Nx.max(Nx.conv(x, w, input_dilation: [2]), 0) end
      assert calls(dilated, [x, w]) > 1
      check_bits(dilated, [x, w])
    end
  end

  describe "operands and results in another order of axes" do
    test "are read and written as they are" do
      for type <- [{:f, 32}, {:bf, 16}], {m, n, k} <- @sizes do
        x = tensor({m, k}, type)
        check(fn x, w -> Nx.dot(x, Nx.transpose(w)) end, [x, tensor({n, k}, type)], 1)

        check(
          fn x, w -> Nx.dot(Nx.transpose(x), w) end,
          [tensor({k, m}, type), tensor({k, n}, type)],
          1
        )

        check(fn x, w -> Nx.transpose(Nx.dot(x, w)) end, [x, tensor({k, n}, type)], 1)
      end
    end

    test "with heads as batches" do
      [q, k] = for _ <- 1..2, do: tensor({2, 6, 3, 8}, :f32)

      scores = fn q, k ->
        [q, k] = Enum.map([q, k], &Nx.transpose(&1, axes: [0, 2, 1, 3]))
        Nx.multiply(Nx.dot(q, [3], [0, 1], k, [3], [0, 1]), 0.125)
      end

      check(scores, [q, k], 1)

      weighted = fn scores, v ->
        v = Nx.transpose(v, axes: [0, 2, 1, 3])
        Nx.transpose(Nx.dot(scores, [3], [0, 1], v, [2], [0, 1]), axes: [0, 2, 1, 3])
      end

      check(weighted, [tensor({2, 3, 6, 6}, :f32), k], 1)
    end

    test "views of views, one of which both operands are" do
      x = tensor({9, 8}, :f32)
      slice = &Nx.slice(&1, [1, 2], [8, 3], strides: [2, 1])
      check(fn x -> Nx.dot(slice.(x), Nx.transpose(slice.(x))) end, [x], 1)
      check(fn x -> Nx.dot(Nx.transpose(slice.(x)), slice.(x)) end, [x], 1)
      check(fn x -> Nx.dot(slice.(Nx.transpose(x)), slice.(x)[[0..2]]) end, [x], 1)

      check(
        fn x -> Nx.dot(Nx.transpose(slice.(Nx.transpose(x)))[2], slice.(x)[[0..3, 1]]) end,
        [x],
        1
      )
    end

    test "slices and axes of one index" do
      [x, y] = [tensor({6, 1, 10}, :f32), tensor({10, 8}, :f32)]
      check(fn x, y -> Nx.dot(x[[1..4, 0]], y[[.., 2..6]]) end, [x, y], 1)

      check(
        fn x, y ->
          Nx.dot(Nx.transpose(x), [0, 1], Nx.transpose(x), [0, 1]) |> Nx.add(y[0][0])
        end,
        [x, y],
        1
      )
    end
  end

  test "a definition that repeats gives the same with other operands" do
    fun =
      Nx.Defn.jit(fn x, w, b -> {Nx.max(Nx.add(Nx.dot(x, w), b), 0.5), Nx.dot(x, w)} end,
        compiler: Compiler
      )

    for _ <- 1..5 do
      args = [tensor({9, 20}, :f32), tensor({20, 30}, :f32), tensor({30}, :f32)]
      {result, product} = apply(fun, args)
      [x, w, b] = args
      assert Nx.to_binary(product) == Nx.to_binary(Nx.dot(x, w))
      assert Nx.to_binary(result) == Nx.to_binary(Nx.max(Nx.add(Nx.dot(x, w), b), 0.5))
    end
  end
end
