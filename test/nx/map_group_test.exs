defmodule Nx.Vulkan.MapGroupTest do
  @moduledoc "Groups that share one kernel give the bits that they give alone."

  # Kernels are counted by a profile, which has what all processes do.
  use Nx.Vulkan.Test.Case, async: false

  require Nx.Vulkan.Native, as: Native

  defp assert_same_bits(fun, args, most) do
    compiled = Nx.Vulkan.jit(fun)
    exact = apply(Nx.Defn.jit(fun, compiler: Nx.Defn.Evaluator), Enum.map(args, &host/1))

    for _ <- 1..3 do
      result = apply(compiled, args)
      assert {result.type, result.shape, result.names} == {exact.type, exact.shape, exact.names}
      assert Nx.to_binary(result) == Nx.to_binary(exact)
    end

    profile = Nx.Vulkan.profile(fn -> apply(compiled, args) end)
    # Where parameters are more than a device's push constants, they are written to memory first.
    kernels = Enum.reject(profile.commands, &(&1.name == "update"))
    assert length(kernels) <= most, inspect(profile)
  end

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

      for fun <- [apart, common, transposed], do: assert_same_bits(fun, [a, b], 1)
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
        do: assert_same_bits(fun, [a, b], most)
  end

  test "shifts by numbers that the kernel knows" do
    x = to_device(Generators.tensor({5, 7}, {:u, 32}, {:integer, 0..99_999}))

    for by <- [0, 1, 31, 32, 40] do
      shifted = fn x ->
        Nx.concatenate([Nx.left_shift(x, by), Nx.right_shift(x, by) |> Nx.add(by)])
      end

      assert_same_bits(shifted, [x], 1)
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
