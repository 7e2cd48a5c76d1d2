defmodule Bench.Cases do
  @moduledoc """
  The cases of `../shared/bench/peers.py`: the same names, shapes, units and numbers of runs.

  `all/1` returns `{name, unit, fun}` in the peers' order. `fun` makes the data on the default backend, measures
  and returns the value. The other modules with cases have the same interface.
  """

  import Bench.Measure

  alias Bench.Models

  def all(device) when device in [:gpu, :cpu] do
    gpu = device == :gpu
    n = if gpu, do: 2 ** 26, else: 2 ** 22
    s = if gpu, do: 8192, else: 2048
    q = if gpu, do: 2 ** 24, else: 2 ** 20
    bytes = 4 * if gpu, do: 2 ** 24, else: 2 ** 22

    [
      {"op_by_op_add_1000_elems", "us/op", fn -> add_chain() end},
      {"add_f32", "GB/s", fn -> add(n) end},
      {"chain8", "GB/s useful", fn -> chain8(n) end},
      {"sum_all", "GB/s", fn -> pass({n}, 4, &Nx.sum/1) end},
      {"sum_axis0", "GB/s", fn -> pass({s, s}, 4, &Nx.sum(&1, axes: [0])) end},
      {"sum_axis1", "GB/s", fn -> pass({s, s}, 4, &Nx.sum(&1, axes: [1])) end},
      {"transpose", "GB/s", fn -> pass({s, s}, 8, &Nx.transpose/1) end}
    ] ++
      matmuls(if(gpu, do: [256, 1024, 2048, 4096, 8192], else: [128, 256, 512, 1024]), :f32) ++
      if(gpu, do: matmuls([4096, 8192], :bf16) ++ matmuls([2048], :f64), else: []) ++
      [
        {"sort_f32", "Melem/s", fn -> elements(q, &Nx.sort/1) end},
        {"fft_f32", "Melem/s", fn -> elements(q, &Nx.fft/1) end},
        {"conv3x3_f32", "GFLOP/s",
         fn -> if gpu, do: conv({64, 32, 64, 64}), else: conv({8, 16, 32, 32}) end}
      ] ++
      linear_algebra(512) ++
      [
        {"upload", "GB/s", fn -> upload(bytes) end},
        {"download", "GB/s", fn -> download(bytes) end},
        {"mlp_train_step", "us", fn -> mlp(Nx.Defn.Evaluator) end},
        {"leapfrog_K32_d8_obs200", "us", fn -> leapfrog() end},
        {"kmeans_iter", "us", fn -> kmeans(device, Nx.Defn.Evaluator) end}
      ]
  end

  @doc "The cases that are definitions, compiled by `Nx.Vulkan.Compiler`."
  def compiled(device) do
    compiler = Nx.Vulkan.Compiler
    n = if device == :gpu, do: 2 ** 26, else: 2 ** 22

    [
      {"chain8", "GB/s useful", fn -> chain8(n, &Nx.Defn.jit(&1, compiler: compiler)) end},
      {"mlp_train_step", "us", fn -> mlp(compiler) end},
      {"kmeans_iter", "us", fn -> kmeans(device, compiler) end}
    ]
  end

  defp add_chain do
    {a, b} = {normal({1000}, 0), normal({1000}, 1)}
    chain = fn -> Enum.reduce(1..1000, a, fn _, x -> Nx.add(x, b) end) end
    median(chain, 7) / 1000 * 1.0e6
  end

  defp add(n) do
    {a, b} = {normal({n}, 0), normal({n}, 1)}
    12 * n / median(fn -> Nx.add(a, b) end, 15) / 1.0e9
  end

  # Three reads and one write are useful; the other traffic is of intermediate results.
  defp chain8(n, wrap \\ & &1) do
    args = for seed <- 0..2, do: normal({n}, seed)
    chain = wrap.(&Models.chain/3)
    16 * n / median(fn -> apply(chain, args) end, 15) / 1.0e9
  end

  # An operation on one f32 tensor that moves `bytes` bytes an element.
  defp pass(shape, bytes, fun) do
    x = normal(shape, 0)
    bytes * Nx.size(shape) / median(fn -> fun.(x) end, 15) / 1.0e9
  end

  defp elements(n, fun) do
    x = normal({n}, 0)
    n / median(fn -> fun.(x) end, 7) / 1.0e6
  end

  defp matmuls(sizes, type) do
    for k <- sizes do
      {"matmul_#{type}_#{k}", "GFLOP/s",
       fn ->
         [x, y] = for seed <- 0..1, do: Nx.as_type(normal({k, k}, seed), type)
         2 * k ** 3 / median(fn -> Nx.dot(x, y) end, 9) / 1.0e9
       end}
    end
  end

  # 64 filters of 3 by 3, padded to the same size.
  defp conv({images, channels, height, width} = shape) do
    {x, w} = {normal(shape, 0), normal({64, channels, 3, 3}, 1)}
    time = median(fn -> Nx.conv(x, w, padding: :same) end, 9)
    2 * images * height * width * 64 * channels * 9 / time / 1.0e9
  end

  defp linear_algebra(k) do
    for {name, fun} <- [
          cholesky: fn s, _a -> Nx.LinAlg.cholesky(s) end,
          solve: fn s, a -> Nx.LinAlg.solve(s, a) end,
          qr: fn _s, a -> Nx.LinAlg.qr(a) end,
          svd: fn _s, a -> Nx.LinAlg.svd(a) end,
          eigh: fn s, _a -> Nx.LinAlg.eigh(s) end
        ] do
      {"#{name}_#{k}", "ms",
       fn ->
         a = normal({k, k}, 0)
         s = Nx.add(Nx.dot(a, [1], a, [1]), Nx.multiply(k, Nx.eye(k)))
         median(fn -> fun.(s, a) end, 5, 2) * 1.0e3
       end}
    end
  end

  defp upload(bytes) do
    data = Nx.to_binary(normal({div(bytes, 4)}, 0))
    bytes / median(fn -> Nx.from_binary(data, :f32) end, 7) / 1.0e9
  end

  defp download(bytes) do
    x = normal({div(bytes, 4)}, 0)
    bytes / median(fn -> Nx.to_binary(x) end, 7) / 1.0e9
  end

  # Dense layers 784-256-128-10 on a batch of 128: cross-entropy, its gradients, one step of gradient descent.
  defp mlp(compiler) do
    parameters =
      for {{i, o}, seed} <- Enum.with_index([{784, 256}, {256, 128}, {128, 10}]) do
        {Nx.multiply(normal({i, o}, seed), 0.05), Nx.broadcast(0.0, {o})}
      end

    x = normal({128, 784}, 3)
    y = Models.one_hot(Nx.remainder(Nx.iota({128}), 10), classes: 10)
    compiled_us(compiler, &Models.step/3, [List.to_tuple(parameters), x, y], 51)
  end

  # The model of shaders/leapfrog_regime.comp, from host binaries to host binaries.
  defp leapfrog do
    [q, p, obs] =
      for {n, seed} <- [{8, 0}, {8, 1}, {200, 2}], do: Nx.to_binary(normal({n}, seed))

    extras = obs <> for(_ <- 1..8, into: <<>>, do: <<1.0::float-32-little>>)
    push = <<32::32-little, 200::32-little, 8::32-little, 0::32, 0.01::float-32-little>>
    shader = Path.join(:code.priv_dir(:nx_vulkan), "shaders/leapfrog_regime.spv")

    chain = fn ->
      {:ok, _} = Nx.Vulkan.NativeV.leapfrog_chain_synth(q, p, extras, push, 32, shader)
    end

    median(chain, 31) * 1.0e6
  end

  # One iteration of Lloyd's algorithm, 64 dimensions, 16 clusters.
  defp kmeans(device, compiler) do
    n = if device == :gpu, do: 100_000, else: 10_000
    compiled_us(compiler, &Models.kmeans/2, [normal({n, 64}, 0), normal({16, 64}, 1)], 15)
  end

  # The function is traced once, as a training loop does. `Nx.Defn.Evaluator` evaluates it operation by operation in
  # every run.
  defp compiled_us(compiler, fun, args, runs) do
    compiled = Nx.Defn.compile(fun, args, compiler: compiler)
    median(fn -> apply(compiled, args) end, runs) * 1.0e6
  end
end
