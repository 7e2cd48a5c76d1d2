defmodule Nx.Vulkan.ConvTest do
  @moduledoc "Convolutions with all their options, against `Nx.BinaryBackend`."

  use Nx.Vulkan.Test.Case, async: true

  # Without f8_e4m3fn: BinaryBackend pads it with zeros of 32 bits.
  @types (Generators.device_types() ++ Generators.narrow_types() ++ [{:c, 64}, {:c, 128}]) --
           [{:f8_e4m3fn, 8}]

  # Small integers: every sum is exact, whatever its order.
  for rank <- 1..4 do
    test "#{rank} spatial axes: strides, padding, dilations, groups, permutations" do
      # Few types at a time: each is a kernel of its own.
      [type, other] = [Generators.pick(@types), Generators.pick(Generators.device_types())]

      for types <- [{{:f, 32}, {:f, 32}}, {type, type}, {type, other}], _ <- 1..5 do
        {input, kernel, options} = random_convolution(unquote(rank))
        same(tensor(input, elem(types, 0)), tensor(kernel, elem(types, 1)), options)
      end
    end
  end

  test "of every type" do
    for type <- @types do
      same(tensor({2, 3, 5, 6}, type), tensor({4, 3, 2, 3}, type), padding: :same)
    end
  end

  test "NaN and infinities, also next to padding" do
    for type <- Generators.float_types(), _ <- 1..5 do
      input = Generators.tensor({1, 2, 5, 4}, type, :few)
      kernel = Generators.tensor({2, 2, 2, 2}, type, :few)
      same(input, kernel, padding: [{1, 0}, {0, 2}])
    end
  end

  # As in XLA: BinaryBackend multiplies them, and gets NaN.
  test "an infinite element of the kernel does not meet the zeros within a dilated input" do
    kernel = Nx.tensor([[[:infinity, 1.0]]])
    result = Nx.conv(to_device(Nx.tensor([[[1.0, 2.0]]])), to_device(kernel), input_dilation: [2])
    assert_same(result, Nx.tensor([[[:infinity, 2.0]]]), :dot)
  end

  # As large as the tiles of the product, and beyond them along every part.
  test "more features, positions and channels than a tile holds" do
    for options <- [[], [padding: :same], [feature_group_size: 2], last_channels()] do
      channels = if options[:feature_group_size], do: 10, else: 20
      {input, kernel} = {tensor({2, 20, 7, 13}, {:f, 32}), tensor({70, channels, 3, 3}, {:f, 32})}

      {input, kernel} =
        if options[:input_permutation],
          do: {Nx.transpose(input, axes: [0, 2, 3, 1]), Nx.transpose(kernel, axes: [2, 3, 1, 0])},
          else: {input, kernel}

      same(input, kernel, options)
    end
  end

  test "a kernel for each channel, of many positions" do
    for type <- [{:f, 32}, {:bf, 16}],
        options <- [
          [padding: :same],
          [padding: [{2, 0}, {0, 1}], strides: [1, 2]],
          last_channels()
        ] do
      options = [feature_group_size: 4] ++ options
      {input, kernel} = {tensor({2, 4, 96, 190}, type), tensor({4, 1, 3, 2}, type)}

      {input, kernel} =
        if options[:input_permutation],
          do: {Nx.transpose(input, axes: [0, 2, 3, 1]), Nx.transpose(kernel, axes: [2, 3, 1, 0])},
          else: {input, kernel}

      same(input, kernel, options)
    end
  end

  test "vectorized axes" do
    input = Nx.vectorize(tensor({2, 2, 3, 6}, {:f, 32}), :x)
    kernel = Nx.vectorize(tensor({2, 4, 3, 2}, {:f, 32}), :x)
    expected = Nx.devectorize(Nx.conv(input, kernel))
    result = Nx.devectorize(Nx.conv(to_device(input), to_device(kernel)))
    assert_same(result, expected, :dot)
  end

  test "gradients by input and kernel" do
    [input, kernel] = [tensor({2, 4, 6, 5}, {:f, 32}), tensor({4, 2, 3, 2}, {:f, 32})]

    for options <- [[], [strides: [2, 1], padding: :same], [kernel_dilation: [2, 1]]] do
      options = [feature_group_size: 2] ++ options

      loss = fn {t, k} ->
        result = Nx.conv(t, k, options)
        Nx.sum(Nx.multiply(result, result))
      end

      {by_input, by_kernel} = Nx.Defn.grad({to_device(input), to_device(kernel)}, loss)
      {input_expected, kernel_expected} = Nx.Defn.grad({input, kernel}, loss)
      assert_same(by_input, input_expected, :dot, options)
      assert_same(by_kernel, kernel_expected, :dot, options)
    end
  end

  defp same(input, kernel, options) do
    expected = nearest(fn [input, kernel] -> Nx.conv(input, kernel, options) end, [input, kernel])
    [left, right] = operands([input, kernel])
    context = [input: {input.type, input.shape}, kernel: {kernel.type, kernel.shape}] ++ options
    assert_same(Nx.conv(left, right, options), expected, :dot, context)
  end

  defp tensor(shape, type), do: Generators.tensor(shape, type, {:integer, integers(type)})

  defp integers({:s, 2}), do: -2..1
  defp integers({:u, _}), do: 0..3
  defp integers(_type), do: -3..3

  defp last_channels do
    [input_permutation: [0, 3, 1, 2], kernel_permutation: [3, 2, 0, 1]] ++
      [output_permutation: [0, 3, 1, 2]]
  end

  defp random_convolution(rank) do
    {feature_groups, batch_groups} = Generators.pick([{1, 1}, {1, 1}, {2, 1}, {3, 1}, {1, 2}])
    channels = :rand.uniform(3)
    features = feature_groups * batch_groups * :rand.uniform(3)
    batch = batch_groups * :rand.uniform(2)

    axes =
      for _ <- 1..rank do
        # An input may be dilated by more than the window has elements.
        [window_dilation, stride, dilation] =
          for choices <- [[1, 1, 2], [1, 1, 2, 3], [1, 1, 2, 3, 4]], do: Generators.pick(choices)

        window = :rand.uniform(3)

        {low, high} = {:rand.uniform(4) - 2, :rand.uniform(4) - 2}
        needed = (window - 1) * window_dilation + 1 - low - high
        dim = max(div(needed + dilation - 1, dilation), 1) + :rand.uniform(4 - div(rank, 2))
        {dim, window, {low, high}, stride, dilation, window_dilation}
      end

    [dims, window, padding, strides, input_dilation, kernel_dilation] =
      axes |> Enum.map(&Tuple.to_list/1) |> Enum.zip_with(& &1)

    all = Enum.to_list(0..(rank + 1))

    [input_permutation, kernel_permutation, output_permutation] =
      Generators.pick([[all, all, all], for(_ <- 1..3, do: Enum.sort_by(all, &random/1))])

    input = [batch, channels * feature_groups | dims]
    kernel = [features, channels | window]

    {permuted(input, input_permutation), permuted(kernel, kernel_permutation),
     [
       strides: strides,
       padding: Generators.pick([padding, padding, :same]),
       input_dilation: input_dilation,
       kernel_dilation: kernel_dilation,
       feature_group_size: feature_groups,
       batch_group_size: batch_groups,
       input_permutation: input_permutation,
       kernel_permutation: kernel_permutation,
       output_permutation: output_permutation
     ]}
  end

  # The shape that `permutation` brings into the order of `dims`.
  defp permuted(dims, permutation) do
    permutation |> Enum.zip(dims) |> Enum.sort() |> Enum.map(&elem(&1, 1)) |> List.to_tuple()
  end

  defp random(_), do: :rand.uniform()
end
