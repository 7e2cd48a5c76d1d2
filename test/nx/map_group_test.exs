defmodule Nx.Vulkan.MapGroupTest do
  @moduledoc "Groups that share one kernel give the bits that they give alone."

  # Kernels are counted.
  use Nx.Vulkan.Test.Case, async: false

  alias Nx.Defn.Composite

  require Nx.Vulkan.Native, as: Native

  # Whole vectors, vectors and a rest, single elements, and offsets that are not aligned.
  @shapes [{4, 8}, {3, 5}, {1, 1}, {70, 33}]

  test "parts of a concatenation are computed where they belong" do
    for type <- [{:f, 32}, {:s, 32}, {:u, 8}, {:bf, 16}, {:s, 64}],
        shape <- @shapes,
        axis <- [0, 1] do
      [a, b] = for _ <- 1..2, do: to_device(Generators.tensor(shape, type, {:integer, 0..9}))

      apart = fn a, b -> Nx.concatenate([Nx.add(a, 1), Nx.multiply(b, 2)], axis: axis) end

      common = fn a, b ->
        both = Nx.add(a, b)

        parts = [
          Nx.multiply(both, 2),
          Nx.add(both, 3),
          Nx.add(Nx.iota(shape, axis: 1, type: type), both)
        ]

        Nx.concatenate(parts, axis: axis)
      end

      transposed = fn a, b ->
        Nx.concatenate([Nx.add(Nx.transpose(a), 1), Nx.transpose(b) |> Nx.add(2)], axis: axis)
      end

      for fun <- [apart, common, transposed], do: assert_as_evaluated(fun, [a, b], 0..1)
    end
  end

  test "parts that others read, or that are not computed, are copied" do
    a = to_device(Nx.iota({3, 4}, type: :s32))
    b = to_device(Nx.iota({2, 4}, type: :s32))

    for {fun, most} <- [
          {fn a, b -> Nx.concatenate([a, Nx.add(b, 1)]) end, 3},
          {fn a, b ->
             c = Nx.add(a, 1)
             Nx.add(Nx.concatenate([c, Nx.add(b, 1)])[0..2], Nx.cumulative_sum(c))
           end, 6},
          {fn a, b -> Nx.concatenate([Nx.add(a, 1.5), Nx.add(b, 1)]) end, 4}
        ],
        do: assert_as_evaluated(fun, [a, b], 0..most)
  end

  defp on_device(container), do: Nx.backend_copy(container, Nx.Vulkan.VulkanoBackend)
  defp on_host(container), do: Nx.backend_copy(container, Nx.BinaryBackend)

  # The results of the definition, its kernels, and the results of its operations one by one.
  defp compared(fun, args) do
    args = Enum.map(args, &on_device/1)
    compiled = Nx.Vulkan.jit(fun)
    exact = Nx.Defn.jit(fun, compiler: Nx.Defn.Evaluator)
    for _ <- 1..2, do: apply(compiled, args)
    kernels = length(kernels(fn -> apply(compiled, args) end))
    {Tuple.to_list(apply(compiled, args)), kernels, Tuple.to_list(apply(exact, args))}
  end

  defp assert_same_results(fun, args, most) do
    {results, kernels, exact} = compared(fun, args)

    for {result, exact} <- Enum.zip(results, exact) do
      assert {result.type, result.shape, result.names} == {exact.type, exact.shape, exact.names}
      assert Nx.to_binary(result) == Nx.to_binary(exact)
    end

    on_host = fun |> Nx.Defn.jit(compiler: Nx.Defn.Evaluator) |> apply(Enum.map(args, &on_host/1))

    for {result, exact} <- Enum.zip(results, Tuple.to_list(on_host)),
        do: assert_near(result, exact, 0.0, most)

    assert kernels <= most
  end

  # Weights and biases of two layers.
  @parameters [{20, 30}, {30}, {30, 7}, {7}]

  defp optimizer(update, states) do
    fn tensors ->
      tensors
      |> Tuple.to_list()
      |> Enum.chunk_every(2 + states)
      |> Enum.flat_map(update)
      |> List.to_tuple()
    end
  end

  defp sgd([parameter, gradient]), do: [Nx.subtract(parameter, Nx.multiply(0.1, gradient))]

  defp momentum([parameter, gradient, trace]) do
    trace = Nx.add(Nx.multiply(0.9, trace), gradient)
    [Nx.subtract(parameter, Nx.multiply(0.1, trace)), trace]
  end

  defp adam([parameter, gradient, mu, nu]) do
    mu = Nx.add(Nx.multiply(0.9, mu), Nx.multiply(0.1, gradient))
    nu = Nx.add(Nx.multiply(0.999, nu), Nx.multiply(0.001, Nx.multiply(gradient, gradient)))
    step = Nx.divide(Nx.divide(mu, 0.19), Nx.add(Nx.sqrt(Nx.divide(nu, 0.002)), 1.0e-8))
    [Nx.subtract(parameter, Nx.multiply(0.001, step)), mu, nu]
  end

  test "an optimizer updates its tensors in one kernel or a few" do
    for {update, states, most} <- [{&sgd/1, 0, 1}, {&momentum/1, 1, 2}, {&adam/1, 2, 4}] do
      tensors =
        for shape <- @parameters,
            _ <- 1..(2 + states),
            do: Generators.tensor(shape, {:f, 32}, {:float, 0.1, 2.0})

      assert_same_results(optimizer(update, states), [List.to_tuple(tensors)], most)
    end
  end

  test "results of one type, which no kernel reads, share kernels, whatever their shapes" do
    for type <- [{:f, 32}, {:s, 32}, {:u, 8}, {:bf, 16}, {:c, 64}, {:s, 64}] do
      [a, b, c] =
        for shape <- [{4, 8}, {70, 33}, {5}], do: Generators.tensor(shape, type, {:integer, 3..9})

      apart = fn a, b, c ->
        {Nx.add(a, 1), Nx.subtract(Nx.transpose(b), 2), Nx.add(Nx.iota({5}, type: :u8), c)}
      end

      read = fn a, b, c ->
        sum = Nx.add(a, 1)
        {sum, Nx.concatenate([sum, a]), Nx.multiply(sum, 2), Nx.add(b, 1), Nx.add(c, c)}
      end

      one_another = fn a, b, c ->
        sum = Nx.add(a, 1)
        product = Nx.multiply(sum, a)
        {product, sum, Nx.subtract(product, sum), Nx.multiply(b, b), Nx.add(c, 1)}
      end

      types = fn a, b, _c -> {Nx.add(a, 1), Nx.as_type(b, :f32), Nx.not_equal(b, 3)} end

      for {fun, most} <- [{apart, 1}, {read, 4}, {one_another, 1}, {types, 3}],
          do: assert_same_results(fun, [a, b, c], most)
    end
  end

  test "few elements of parameters share a kernel that other kernels wait for, and many do not" do
    scaled = fn x, weights, variances ->
      for {weight, variance} <- Enum.zip(Tuple.to_list(weights), Tuple.to_list(variances)) do
        Nx.multiply(Nx.dot(x, weight), Nx.rsqrt(Nx.add(variance, 1.0e-5)))
      end
      |> List.to_tuple()
    end

    x = Nx.iota({3, 4}, type: :f32)

    # A kernel takes the parameters of seven scales.
    for {columns, count, shared} <- [{5, 3, 1}, {5, 9, 2}, {2 ** 14, 2, 1}, {2 ** 14 + 1, 2, 2}] do
      weights = for seed <- 1..count, do: Nx.add(Nx.iota({4, columns}, type: :f32), seed)
      variances = for seed <- 1..count, do: Nx.add(Nx.iota({columns}, type: :f32), seed)
      args = [x, List.to_tuple(weights), List.to_tuple(variances)]
      assert_same_results(scaled, args, 4 * count + shared)
      args = Enum.map(args, &on_device/1)
      names = kernels(fn -> apply(Nx.Vulkan.jit(scaled), args) end)
      assert Enum.count(names, &(&1 =~ "rsqrt" and not (&1 =~ "matmul"))) == shared
    end
  end

  test "large results share a kernel where they read each other" do
    [a, b, c] = for _ <- 1..3, do: to_device(Nx.iota({2 ** 20}, type: :f32))
    apart = fn a, b, _c -> {Nx.add(a, 1), Nx.multiply(b, 2)} end
    one_another = fn a, b, c -> momentum([a, b, c]) |> List.to_tuple() end

    for {fun, count} <- [{apart, 2}, {one_another, 1}] do
      {results, kernels, exact} = compared(fun, [a, b, c])
      assert kernels == count
      assert Enum.map(results, &Nx.to_binary/1) == Enum.map(exact, &Nx.to_binary/1)
    end
  end

  test "an optimizer updates donated tensors" do
    step = fn gradients, tensors ->
      [Tuple.to_list(gradients), Tuple.to_list(tensors)]
      |> Enum.zip_with(fn [gradient, {parameter, mu, nu}] ->
        List.to_tuple(adam([parameter, gradient, mu, nu]))
      end)
      |> List.to_tuple()
    end

    tensor = fn shape -> to_device(Generators.tensor(shape, {:f, 32}, {:float, 0.1, 2.0})) end
    gradients = @parameters |> Enum.map(tensor) |> List.to_tuple()

    tensors =
      @parameters |> Enum.map(&{tensor.(&1), tensor.(&1), tensor.(&1)}) |> List.to_tuple()

    compiled = Nx.Vulkan.jit(step)
    exact = Nx.Defn.jit(step, compiler: Nx.Defn.Evaluator)

    for _ <- 1..6, reduce: {tensors, on_device(tensors)} do
      {expected, updated} ->
        expected = exact.(gradients, expected)
        updated = compiled.(gradients, donatable(updated))

        [all, all_expected] =
          for results <- [updated, expected], do: Composite.flatten_list([results])

        assert Enum.map(all, &Nx.to_binary/1) == Enum.map(all_expected, &Nx.to_binary/1)
        {expected, updated}
    end
  end

  test "shifts by numbers that the kernel knows" do
    x = to_device(Generators.tensor({5, 7}, {:u, 32}, {:integer, 0..99_999}))

    for by <- [0, 1, 31, 32, 40] do
      shifted = fn x ->
        Nx.concatenate([Nx.left_shift(x, by), Nx.right_shift(x, by) |> Nx.add(by)])
      end

      assert_as_evaluated(shifted, [x], 0..1)
    end
  end

  test "what has no such kernel is refused" do
    ref = to_device(Nx.iota({4}, type: :f32)).data.ref
    f32 = {:f, 32}
    input = {ref, f32, {4}}
    store = {1, 0, 0, [1]}
    maps = fn results, parts -> Native.call(run_maps(results, parts, 0)) end
    part = fn nodes, inputs, stores -> {nodes, inputs, {4}, stores} end
    negate = {:negate, f32, [0]}

    assert {:ok, {_}} = maps.([{f32, 4}], [part.([negate], [input], [store])])
    # A result that is too small, of another size, or that there is not.
    assert {:error, :size_mismatch} = maps.([{f32, 3}], [part.([negate], [input], [store])])

    for {results, parts} <- [
          {[{{:f, 64}, 4}], [part.([negate], [input], [store])]},
          {[{f32, 4}], [part.([negate], [input], [{1, 1, 0, [1]}])]},
          {[{f32, 4}], [part.([negate], [input], [{2, 0, 0, [1]}])]},
          {[{f32, 4}], [part.([negate], [input], [{1, 0, 0, [1, 1]}])]},
          {[{f32, 4}], [part.([negate], [input], [])]},
          {[{f32, 1}], [part.([{:sum, f32, [0], [0]}], [input], [store])]},
          {[{f32, 4}], []},
          {[], [part.([negate], [input], [store])]},
          {[{f32, 4}], [part.([negate], [{:constant, f32, <<1>>}], [store])]}
        ],
        do: assert_raise(ArgumentError, fn -> maps.(results, parts) end)
  end
end
