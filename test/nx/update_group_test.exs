defmodule Nx.Vulkan.UpdateGroupTest do
  @moduledoc "What is put into a tensor is computed, or read as a view, where it is put, with the bits that it has alone."

  # Kernels are counted.
  use Nx.Vulkan.Test.Case, async: false

  # Whole vectors, and elements that are not aligned.
  @shapes [{3, 8, 4}, {2, 5, 3}]

  test "an update is one kernel, besides the copy of what it is put into" do
    for type <- [{:f, 32}, {:bf, 16}, {:s, 64}, {:u, 8}, {:c, 64}],
        {heads, rows, head} <- @shapes,
        start <- [0, 1, -3, 99] do
      cache = to_device(Generators.tensor({heads, rows, head}, type, :any))
      new = to_device(Generators.tensor({2, 3, heads, head}, type, {:integer, 0..9}))
      at = to_device(Nx.tensor(start))

      computed = fn cache, new, at ->
        Nx.put_slice(
          cache,
          [0, at, 0],
          new
          |> Nx.reshape({2, heads, head})
          |> Nx.transpose(axes: [1, 0, 2])
          |> Nx.add(1)
          |> Nx.multiply(2)
        )
      end

      view = fn cache, new, at ->
        update = new |> Nx.slice([0, 2, 0, 0], [2, 1, heads, head]) |> Nx.squeeze(axes: [1])
        Nx.put_slice(cache, [0, at, 0], Nx.transpose(update, axes: [1, 0, 2]))
      end

      assert_as_evaluated(view, [cache, new, at], 2..2)
      assert_as_evaluated(computed, [cache, to_device(host(new)[[.., 0..0]]), at], 2..2)
    end
  end

  test "a padded tensor is one kernel, besides the one that fills what it is put into" do
    for type <- [{:f, 32}, {:bf, 16}, {:s, 64}, {:u, 8}, {:c, 64}],
        {heads, rows, head} <- @shapes,
        config <- [[{0, 0, 0}, {0, 7, 0}, {0, 0, 0}], [{1, 0, 0}, {2, 3, 0}, {0, 5, 0}]] do
      new = to_device(Generators.tensor({rows, 3, heads, head}, type, {:integer, 0..9}))
      values = to_device(Generators.tensor({2}, type, {:integer, 1..9}))
      rows = to_device(host(new)[[.., 0]])
      view = &Nx.transpose(&1[[.., 1]], axes: [1, 0, 2])
      computed = &Nx.add(Nx.transpose(&1, axes: [1, 0, 2]), 1)

      for {update, arg} <- [{view, new}, {computed, rows}] do
        assert_as_evaluated(&Nx.pad(update.(&1), Nx.tensor(7, type: type), config), [arg], 2..2)
        # An element of several is a kernel of its own, and the only one is the tensor itself.
        assert_as_evaluated(&Nx.pad(update.(&1), &2[1], config), [arg, values], 3..3)
        only = to_device(host(values)[1..1])
        assert_as_evaluated(&Nx.pad(update.(&1), &2[0], config), [arg, only], 2..2)
      end
    end
  end

  test "padding between elements, and edges that cut, are the operation's own" do
    x = to_device(Nx.iota({4, 6}, type: :f32))

    for config <- [[{0, 1, 1}, {0, 0, 0}], [{-1, 2, 0}, {0, 0, 0}], [{1, -2, 0}, {0, 0, 2}]] do
      fun = &Nx.pad(Nx.add(Nx.transpose(&1, axes: [1, 0]), 1), 0.5, config)
      compiled = Nx.Vulkan.jit(fun)
      for _ <- 1..3, do: assert(Nx.to_binary(compiled.(x)) == Nx.to_binary(fun.(host(x))))
    end
  end

  test "an update that reads what it is put into sees it as it was" do
    x = to_device(Nx.iota({6, 4}, type: :f32))
    fun = fn x -> Nx.put_slice(x, [1, 0], Nx.add(x[0..2], x[3..5])) end
    assert_as_evaluated(fun, [x], 2..2)

    donated = Nx.Vulkan.jit(fun)
    exact = fun.(host(x))

    for _ <- 1..4 do
      given = Nx.backend_copy(x, VulkanoBackend)
      given = if Map.has_key?(given, :donatable?), do: Nx.donatable(given), else: given
      assert Nx.to_binary(donated.(given)) == Nx.to_binary(exact)
    end
  end

  test "updates of another type, and those that others read, are computed before" do
    x = to_device(Nx.iota({4, 4}, type: :f32))
    i = to_device(Nx.iota({2, 4}, type: :s32))
    other = fn x, i -> Nx.put_slice(x, [1, 0], Nx.multiply(Nx.add(i, 1), 3)) end
    assert_as_evaluated(other, [x, i], 3..3)

    fun = fn x, i ->
      update = Nx.as_type(Nx.add(i, 1), :f32)
      Nx.put_slice(x, [1, 0], update) |> Nx.add(Nx.tile(update, [2, 1]))
    end

    compiled = Nx.Vulkan.jit(fun)

    for _ <- 1..3,
        do: assert(Nx.to_binary(compiled.(x, i)) == Nx.to_binary(fun.(host(x), host(i))))
  end

  test "types that a device lacks are put as by the operations one by one" do
    x = to_device(Nx.iota({6, 4}, type: :f64))
    u = to_device(Nx.iota({4, 2}, type: :f64))
    fun = fn x, u -> Nx.put_slice(x, [1, 0], Nx.add(Nx.transpose(u), 1)) end
    compiled = Nx.Vulkan.jit(fun)

    for _ <- 1..3,
        do: assert(Nx.to_binary(compiled.(x, u)) == Nx.to_binary(fun.(host(x), host(u))))
  end

  test "updates of a tensor follow each other" do
    rows = to_device(Generators.tensor({300, 64}, {:f, 32}, {:float, -1.0, 1.0}))
    exact = Nx.add(Nx.multiply(host(rows), 2), 1)

    put = fn i, kept, rows ->
      update = Nx.add(Nx.multiply(rows[(30 * i)..(30 * i + 29)], 2), 1)
      Nx.put_slice(kept, [30 * i, 0], update)
    end

    fun = fn rows ->
      Enum.reduce(0..9, Nx.broadcast(Nx.f32(0), {300, 64}), &put.(&1, &2, rows))
    end

    compiled = Nx.Vulkan.jit(fun)
    for _ <- 1..3, do: assert(Nx.to_binary(compiled.(rows)) == Nx.to_binary(exact))
  end
end
