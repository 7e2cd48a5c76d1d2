defmodule Bench.Networks do
  @moduledoc """
  Operations of neural networks and models besides matmul. The set `networks` of `bench/peers.py` has the same
  cases. A case's value is the time of one call and the wait for the device, in microseconds.
  """

  import Bench.Measure

  def all(device) when device in [:gpu, :cpu],
    do: for({name, data, fun} <- cases(device), do: {name, "us", fn -> time(data.(), fun) end})

  @doc "The cases of several operations, compiled by `Nx.Vulkan.Compiler`."
  def compiled(device) do
    eager =
      for case <- cases(device),
          elem(case, 0) in ["softmax_rows_of_1024", "random_uniform"],
          do: case

    for {name, data, fun} <- eager ++ attentions(device) do
      {name, "us", fn -> time(data.(), Nx.Defn.jit(fun, compiler: Nx.Vulkan.Compiler)) end}
    end
  end

  defp time(args, fun), do: 1.0e6 * median(fn -> apply(fun, args) end, 15)

  defp cases(device) do
    n = if device == :gpu, do: 64, else: 2
    rows = 512 * n
    space = [strides: [1, 1, 2, 2]]
    groups = [padding: :same, feature_group_size: 128]
    # The gradient of a convolution with strides of two by its input.
    doubled = [padding: [{2, 2}, {2, 2}], input_dilation: 2]

    [
      {"embedding", fn -> [uniform({50_000, 256}), below(50_000, {rows})] end, &Nx.take/2},
      {"embedding_gradient",
       fn -> [uniform({50_000, 256}), below(50_000, {rows, 1}), uniform({rows, 256})] end,
       &Nx.indexed_add/3},
      {"max_pool_2x2", fn -> [uniform({n, 64, 64, 64})] end,
       &Nx.window_max(&1, {1, 1, 2, 2}, space)},
      {"max_pool_2x2_gradient", fn -> [uniform({n, 64, 64, 64}), uniform({n, 64, 32, 32})] end,
       &Nx.window_scatter_max(&1, &2, 0, {1, 1, 2, 2}, space)},
      {"average_pool_3x3", fn -> [uniform({n, 64, 64, 64})] end,
       &Nx.window_mean(&1, {1, 1, 3, 3}, padding: :same)},
      {"depthwise_conv_3x3", fn -> [uniform({n, 128, 28, 28}), uniform({128, 1, 3, 3})] end,
       &Nx.conv(&1, &2, groups)},
      {"transposed_conv_4x4", fn -> [uniform({n, 64, 28, 28}), uniform({64, 64, 4, 4})] end,
       &Nx.conv(&1, &2, doubled)},
      {"sum_rows_of_16", fn -> [uniform({65_536 * n, 16})] end, &Nx.sum(&1, axes: [1])},
      {"sum_channels", fn -> [uniform({n, 64, 56, 56})] end, &Nx.sum(&1, axes: [0, 2, 3])},
      {"softmax_rows_of_1024", fn -> [uniform({128 * n, 1024})] end, &softmax/1},
      {"attention_scores_f16", fn -> half({n, 512, 64}) end, &Nx.dot(&1, [2], [0], &2, [2], [0])},
      {"erf", fn -> [uniform({524_288 * n})] end, &Nx.erf/1},
      {"sin", fn -> [uniform({524_288 * n})] end, &Nx.sin/1},
      {"random_uniform", fn -> [Nx.Random.key(1)] end,
       &Nx.Random.uniform(&1, shape: {262_144 * n})},
      {"top_k_10_of_50000", fn -> [uniform({16 * n, 50_000})] end, &Nx.top_k(&1, k: 10)},
      {"argsort_rows_of_4096", fn -> [uniform({64 * n, 4096})] end, &Nx.argsort(&1, axis: 1)},
      {"solve_batch_of_32x32", fn -> [dominant({16 * n, 32, 32}), uniform({16 * n, 32})] end,
       &Nx.LinAlg.solve/2}
    ]
  end

  # 16 heads of bf16, for each of two widths.
  defp attentions(device) do
    tokens = if device == :gpu, do: 4096, else: 128

    for width <- [64, 128] do
      data = fn -> for _ <- 1..3, do: {16, tokens, width} |> uniform() |> Nx.as_type(:bf16) end
      {"attention_of_#{width}_bf16", data, &attention/3}
    end
  end

  defp attention(q, k, v) do
    scale = :math.pow(Nx.axis_size(q, 2), -0.5)
    scores = Nx.dot(q, [2], [0], k, [2], [0]) |> Nx.as_type(:f32) |> Nx.multiply(scale)
    scores |> softmax() |> Nx.as_type(:bf16) |> Nx.dot([2], [0], v, [1], [0])
  end

  defp softmax(x) do
    powers = Nx.exp(Nx.subtract(x, Nx.reduce_max(x, axes: [-1], keep_axes: true)))
    Nx.divide(powers, Nx.sum(powers, axes: [-1], keep_axes: true))
  end

  defp half(shape), do: for(seed <- 0..1, do: Nx.as_type(normal(shape, seed), :f16))

  # In (0, 1).
  defp uniform(shape), do: Nx.sigmoid(normal(shape, 0))

  defp below(limit, shape), do: Nx.as_type(Nx.multiply(uniform(shape), limit), :s32)

  defp dominant({_, n, n} = shape), do: Nx.add(uniform(shape), Nx.multiply(n, Nx.eye(n)))
end
