defmodule Nx.Vulkan.KernelFamiliesTest do
  @moduledoc """
  Each family of kernels runs once. bin/test has this file run under Khronos' validation layer, too, and
  docs/validation_layer.md lists what else it does.
  """

  # Kernels are told by a profile, which has what all processes do.
  use Nx.Vulkan.Test.Case, async: false

  import Nx.Defn

  alias Nx.Vulkan.{Chain, MCMC}

  # The families, as `impl KernelSpec for …Kernel` of src/kernels names them, and their kernels' names in profiles.
  @names [
    Attention: ~r/^attention /,
    FewRows: ~r/^matmul of \d+ rows/,
    Fourier: ~r/^fourier$/,
    Fusion: ~r/^(map|reduce|combine|fold|transposing map) /,
    Leapfrog: ~r/^leapfrog$/,
    Loop: ~r/^loop$/,
    MapGroup: ~r/^maps /,
    Matmul: ~r/^matmul (?!of )/,
    Matrix: ~r/^matrix$/,
    MergeSort: ~r/^mergesort$/,
    Pack: ~r/^pack$/,
    Panel: ~r/^panel$/,
    Radix: ~r/^radix$/,
    Row: ~r/^rows /,
    Sampler: ~r/^sampler$/,
    Scan: ~r/^scan$/,
    Scatter: ~r/^scatter$/,
    ScatterKey: ~r/^scatterkey$/,
    Select: ~r/^select$/,
    WindowScatter: ~r/^windowscatter$/
  ]

  @page "docs/validation_layer.md"

  test "every family of kernels runs" do
    calls = calls()
    profile = Nx.Vulkan.profile(fn -> for call <- calls, do: call.() end)
    ran? = fn name -> Enum.any?(profile.kernels, &(&1.name =~ name)) end
    missing = for {family, name} <- @names, not ran?.(name), do: family

    # A product has kernels of its own on a CPU device, or one that combines an attention's parts. SwiftShader is given no loop
    # of several operations.
    of_cpu = if ran?.(~r/^combine attention, reduce /), do: [:FewRows, :Pack, :Panel], else: []

    if builds_loops?(),
      do: assert(missing == of_cpu),
      else: assert(missing == [:Attention, :FewRows, :Loop, :Pack, :Panel, :Row])
  end

  test "there are no other families, and the page on the validation layer lists them" do
    families =
      for path <- Path.wildcard("src/kernels/**/*.rs"),
          [_, family] <- Regex.scan(~r/^impl KernelSpec for (\w+)Kernel\b/m, File.read!(path)),
          do: family

    assert Enum.sort(families) == for({family, _} <- @names, do: "#{family}")
    assert Enum.sort(families) == Enum.sort(rows(~r/^\| `(\w+)` \| /m))
  end

  test "the page lists what bin/test has run under the layer, and the messages that are left out" do
    steps = Regex.scan(~r/start "((?:validated|the layer)[^"]*)"/, File.read!("bin/test"))
    assert Enum.sort(for [_, step] <- steps, do: step) == Enum.sort(rows(~r/^\| "([^"]+)" \| /m))

    excluded =
      for path <- Path.wildcard("native_tests/validation/**/vk_layer_settings.txt"),
          [_, list] <-
            Regex.scan(~r/^khronos_validation.message_id_filter = (.*)$/m, File.read!(path)),
          message <- String.split(list, ","),
          do: message

    assert Enum.sort(excluded) == Enum.sort(rows(~r/^\| ([A-Z][\w-]+) \| /m))
  end

  defp rows(pattern), do: for([_, name] <- Regex.scan(pattern, File.read!(@page)), do: name)

  defp calls do
    [q, k, v] = for _ <- 1..3, do: numbers({8, 64, 16})
    matrix = numbers({96, 96})
    one = Nx.tensor(1.0)
    at = to_device(Nx.tensor([[0], [2], [2]]))
    [cache, to_columns] = for shape <- [{8, 400, 16}, {128, 12}], do: numbers(shape)
    token = Nx.Defn.jit(&token/5, compiler: Nx.Vulkan.Compiler)
    join = fn a -> Nx.concatenate([Nx.add(a, 1), Nx.multiply(a, 2)]) end

    [
      fn -> matrix |> Nx.sin() |> Nx.transpose() |> Nx.add(matrix) |> Nx.sum() end,
      fn -> Nx.sum(numbers({300_000})) end,
      fn -> Nx.reduce(numbers({100}), 0.0, &Nx.subtract/2) end,
      fn -> compiled(&softmax/1, [matrix]) end,
      fn -> compiled(join, [matrix]) end,
      fn -> compiled(&halve/1, [numbers({3})]) end,
      fn -> compiled(&attention/3, [q, k, v]) end,
      # The third call is a graph.
      fn ->
        for _ <- 1..3,
            do: apply(token, [numbers({8, 1, 16}), cache, cache, Nx.tensor(5), to_columns])
      end,
      fn -> Nx.dot(numbers({3, 128}), numbers({128, 260})) end,
      # A product of a row, and the largest of its elements: of vectors of them, of single ones, and along k.
      fn -> compiled(&largest/2, [numbers({1, 64}), numbers({64, 40_000})]) end,
      fn -> compiled(&largest/2, [numbers({1, 65}), numbers({65, 40_001})]) end,
      fn -> compiled(&largest/2, [numbers({1, 64}), Nx.transpose(numbers({40_000, 64}))]) end,
      fn -> for n <- [16, 96, 300], do: Nx.dot(numbers({n, n}), numbers({n, n})) end,
      fn -> Nx.LinAlg.qr(matrix) end,
      fn -> Nx.fft(numbers({67})) end,
      fn -> for n <- [10, 20_000], do: Nx.sort(numbers({n})) end,
      fn -> Nx.top_k(numbers({100_000}), k: 5) end,
      fn -> for n <- [10, 100_000], do: Nx.cumulative_sum(numbers({n})) end,
      fn -> Nx.indexed_add(numbers({4}), at, numbers({3})) end,
      fn -> Nx.window_scatter_max(numbers({6}), numbers({2}), 0, {3}, strides: [3]) end,
      fn ->
        {:ok, chain} = Chain.compile(&normal/2, Nx.template({3}, :f32), one, type: :f32)
        Chain.leapfrog(chain, numbers({3}), numbers({3}), one, steps: 2, step_size: 0.1)
      end,
      fn ->
        options = [type: :f32, warmup: 3, draws: 3, chains: 2, progress: false]
        MCMC.sample(&normal/2, numbers({3}), one, options)
      end
    ]
  end

  defp numbers(shape), do: to_device(Generators.tensor(shape, {:f, 32}, {:float, -2.0, 2.0}))

  defp compiled(fun, args),
    do: apply(Nx.Defn.jit(fun, compiler: Nx.Vulkan.Compiler, cache: false), args)

  defn(normal(q, scale), do: -0.5 * Nx.sum(q * q * scale))
  defn(largest(x, w), do: x |> softmax() |> Nx.dot(w) |> Nx.argmax())
  defn(halve(x), do: while(x, Nx.reduce_max(x) > 0.1, do: x / 2))

  defn softmax(x) do
    e = Nx.exp(x - Nx.reduce_max(x, axes: [-1], keep_axes: true))
    e / Nx.sum(e, axes: [-1], keep_axes: true)
  end

  defn(attention(q, k, v),
    do: Nx.dot(q, [2], [0], k, [2], [0]) |> softmax() |> Nx.dot([2], [0], v, [1], [0])
  )

  defn token(q, k, v, position, to_columns) do
    k = Nx.put_slice(k, [0, position, 0], q)
    v = Nx.put_slice(v, [0, position, 0], -q)
    {attention(q, k, v) |> Nx.reshape({128}) |> Nx.dot(to_columns), k, v}
  end
end
