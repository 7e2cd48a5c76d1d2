defmodule Nx.Vulkan.MovementTest do
  @moduledoc "Operations that move elements, over shapes and all types, against `Nx.BinaryBackend`."

  use Nx.Vulkan.Test.Case, async: true

  # Movement needs only the width of a type: complex numbers and 8-bit floats stay on the device.
  @types Generators.device_types() ++ [{:c, 64}, {:f, 8}, {:f8_e4m3fn, 8}]

  test "transpose by every permutation" do
    for shape <- Generators.shapes(), axes <- some_permutations(tuple_size(shape)) do
      same(:transpose, shape, Generators.pick(@types), &Nx.transpose(&1, axes: axes))
    end
  end

  test "transpose of every type" do
    for type <- @types, do: same(:transpose, {3, 2, 4}, type, &Nx.transpose/1)
  end

  test "transpose of a large matrix" do
    same(:transpose, {515, 130}, {:f, 32}, &Nx.transpose/1)
  end

  test "reverse of any axes" do
    for shape <- Generators.shapes(), shape != {}, axes <- some_subsets(tuple_size(shape)) do
      same(:reverse, shape, Generators.pick(@types), &Nx.reverse(&1, axes: axes))
    end
  end

  test "slice with strides" do
    for shape <- Generators.shapes(), shape != {}, type <- [Generators.pick(@types)], _ <- 1..4 do
      {starts, lengths, strides} = random_slice(shape)
      same(:slice, shape, type, &Nx.slice(&1, starts, lengths, strides: strides))
    end
  end

  test "slice with starts that are tensors, clamped" do
    tensor = Generators.tensor({4, 5}, {:f, 32}, :any)

    for row <- [-3, 0, 2, 7], column <- [-1, 1, 9], on_device? <- [true, false] do
      start = fn n ->
        if on_device?, do: to_device(Nx.tensor(n)), else: Nx.tensor(n)
      end

      result = Nx.slice(to_device(tensor), [start.(row), start.(column)], [2, 3])
      assert_same(result, Nx.slice(tensor, [Nx.tensor(row), Nx.tensor(column)], [2, 3]), :slice)
    end
  end

  test "a tensor indexed with Access" do
    same(:slice, {4, 5, 6}, {:s, 32}, & &1[[1..2, -1, 0..-1//2]])
  end

  test "broadcast with and without axes" do
    for {left, right} <- Generators.shape_pairs(), type <- [Generators.pick(@types)] do
      {shape, _} =
        Nx.Shape.binary_broadcast(
          left,
          List.duplicate(nil, tuple_size(left)),
          right,
          List.duplicate(nil, tuple_size(right))
        )

      same(:broadcast, left, type, &Nx.broadcast(&1, shape))
      same(:broadcast, right, type, &Nx.broadcast(&1, shape))
    end

    same(:broadcast, {3}, {:f, 32}, &Nx.broadcast(&1, {3, 4}, axes: [0]))
    same(:broadcast, {2, 3}, {:u, 8}, &Nx.broadcast(&1, {2, 5, 3, 4}, axes: [0, 2]))
    same(:broadcast, {1, 3}, {:c, 64}, &Nx.broadcast(&1, {2, 5, 3}, axes: [0, 2]))
    same(:broadcast, {2, 1}, {:s, 64}, &Nx.broadcast(&1, {2, 3, 1, 4}, axes: [0, 3]))
  end

  describe "without a copy" do
    test "reshape, squeeze and names" do
      for type <- Generators.all_types() do
        same(:reshape, {2, 3, 4}, type, &Nx.reshape(&1, {4, 6}))
        same(:squeeze, {1, 3, 1, 2}, type, &Nx.squeeze/1)
        same(:flatten, {3, 4}, type, &Nx.flatten/1)
        same(:new_axis, {3, 4}, type, &Nx.new_axis(&1, 1))
        same(:rename, {3, 4}, type, &Nx.rename(&1, [:a, :b]))
      end
    end

    test "they share the memory" do
      tensor = to_device(Nx.iota({2, 3}))

      for shared <- [
            Nx.reshape(tensor, {3, 2}),
            Nx.new_axis(tensor, 0),
            Nx.squeeze(Nx.new_axis(tensor, 0)),
            Nx.bitcast(tensor, :u32),
            Nx.vectorize(tensor, :x)
          ] do
        assert shared.data.ref == tensor.data.ref
      end
    end
  end

  defp same(op, shape, type, fun) do
    tensor = Generators.tensor(shape, type, :any)
    assert_same(fun.(to_device(tensor)), fun.(tensor), op, shape: shape, type: type)
  end

  defp some_permutations(rank) do
    axes = Enum.to_list(0..(rank - 1)//1)
    if rank <= 3, do: permutations(axes), else: for(_ <- 1..8, do: Enum.sort_by(axes, &rand/1))
  end

  defp permutations([]), do: [[]]
  defp permutations(list), do: for(h <- list, t <- permutations(list -- [h]), do: [h | t])

  defp some_subsets(rank) do
    axes = Enum.to_list(0..(rank - 1))
    [axes] ++ Enum.map(axes, &[&1]) ++ for(_ <- 1..3, do: random_subset(axes))
  end

  defp random_subset(axes) do
    case Enum.filter(axes, fn _ -> :rand.uniform(2) == 1 end) do
      [] -> [hd(axes)]
      some -> some
    end
  end

  defp random_slice(shape) do
    shape
    |> Tuple.to_list()
    |> Enum.map(fn dim ->
      length = :rand.uniform(dim)
      {:rand.uniform(dim - length + 1) - 1, length, :rand.uniform(3)}
    end)
    |> then(fn triples ->
      {Enum.map(triples, &elem(&1, 0)), Enum.map(triples, &elem(&1, 1)),
       Enum.map(triples, &elem(&1, 2))}
    end)
  end

  defp rand(_), do: :rand.uniform()
end
