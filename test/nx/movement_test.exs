defmodule Nx.Vulkan.MovementTest do
  @moduledoc "Operations that move elements, over shapes and all types, against `Nx.BinaryBackend`."

  use Nx.Vulkan.Test.Case, async: true

  @types Generators.all_types()
  # BinaryBackend cannot broadcast what is smaller than a byte.
  @whole Enum.filter(@types, fn {_, size} -> size >= 8 end)

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

  test "a slice of all elements is the tensor itself, wherever it starts" do
    for {shape, starts} <- [{{1}, [3]}, {{4, 1, 5}, [0, 7, 2]}, {{2, 3}, [Nx.tensor(1), 0]}] do
      tensor = to_device(Generators.tensor(shape, {:f, 32}, :moderate))
      lengths = Tuple.to_list(shape)
      slice = &Nx.slice(&1, starts, lengths)
      assert slice.(tensor).data == tensor.data

      for result <- [
            slice.(tensor),
            Nx.Vulkan.jit(slice).(tensor),
            Nx.Vulkan.jit(&slice.(Nx.add(&1, 0))).(tensor)
          ],
          do: assert_same(result, Nx.backend_copy(tensor, Nx.BinaryBackend), :slice)
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
    for {left, right} <- Generators.shape_pairs(), type <- [Generators.pick(@whole)] do
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

  # As Nx.Defn.Expr of Nx 0.13 makes them of two broadcasts: {6} to {9, 6} and that to {2, 9, 6}.
  test "broadcast along axes of other extents is refused" do
    tensor = Nx.iota({6}, type: :f32, backend: VulkanoBackend)
    shape = {2, 9, 6}

    assert_raise ArgumentError, ~r/cannot broadcast a tensor of shape \{6\} to \{2, 9, 6\}/, fn ->
      VulkanoBackend.broadcast(Nx.template(shape, :f32), tensor, shape, [1])
    end
  end

  test "slice with starts of every integer type, some on the device" do
    for type <- Generators.integer_types(), shape <- [{7}, {4, 5}, {3, 4, 5}], _ <- 1..3 do
      {_, lengths, strides} = random_slice(shape)
      tensor = Generators.tensor(shape, Generators.pick(@types), :any)
      starts = random_starts(shape, type)
      expected = Nx.slice(tensor, starts, lengths, strides: strides)
      result = Nx.slice(to_device(tensor), some_on_device(starts), lengths, strides: strides)
      assert_same(result, expected, :slice, starts: starts, lengths: lengths, strides: strides)
    end
  end

  test "pad: edges, interior, negative edges, of every type" do
    for type <- @types ++ @types, shape = Generators.pick(Generators.shapes()) do
      config = for dim <- Tuple.to_list(shape), do: random_padding(dim)
      [tensor, value] = [Generators.tensor(shape, type, :any), Generators.tensor({}, type, :any)]
      [on_device, pad_value] = operands([tensor, value])
      expected = nearest(fn [t, value] -> Nx.pad(t, value, config) end, [tensor, value])

      assert_same(Nx.pad(on_device, pad_value, config), expected, :pad,
        type: type,
        config: config
      )
    end
  end

  test "pad with a value of another type" do
    tensor = Generators.tensor({2, 3}, {:s, 16}, :any)

    for value <- [1.5, Nx.tensor(1.5, type: :f64), Nx.tensor(-1, type: :s64)] do
      [left, right] = [tensor, Nx.tensor(value)]
      type = Nx.Type.merge(left.type, right.type)
      type = if is_number(value), do: {:f, 32}, else: type
      expected = Nx.pad(Nx.as_type(left, type), Nx.as_type(right, type), [{1, 0, 1}, {0, 2, 0}])
      value = if is_number(value), do: value, else: to_device(value)
      result = Nx.pad(to_device(tensor), value, [{1, 0, 1}, {0, 2, 0}])
      assert_same(result, expected, :pad)
    end
  end

  test "pad beyond all of the tensor" do
    tensor = to_device(Nx.tensor([1, 2, 3]))
    assert_same(Nx.pad(tensor, 9, [{-5, 4, 0}]), Nx.tensor([9, 9]), :pad)
    assert_same(Nx.pad(tensor, 9, [{4, -5, 0}]), Nx.tensor([9, 9]), :pad)
  end

  test "concatenate along every axis, of one type and of several" do
    for shape <- Generators.shapes(), shape != {}, axis <- 0..(tuple_size(shape) - 1) do
      type = Generators.pick(@types)

      types =
        if Enum.random([true, false]),
          do: List.duplicate(type, 3),
          else: for(_ <- 1..3, do: Generators.pick(Generators.device_types()))

      tensors =
        for type <- types do
          shape = put_elem(shape, axis, :rand.uniform(4))
          Generators.tensor(shape, type, {:integer, 0..100})
        end

      expected = nearest(&Nx.concatenate(&1, axis: axis), tensors)
      result = Nx.concatenate(operands(tensors), axis: axis)
      assert_same(result, expected, :concatenate, shape: shape, axis: axis, types: types)
    end
  end

  test "concatenate of hundreds" do
    tensors = for i <- 1..300, do: Nx.iota({1 + rem(i, 3), 2}, type: :s16)
    device = Enum.map(tensors, &to_device/1)
    assert_same(Nx.concatenate(device), Nx.concatenate(tensors), :concatenate)
  end

  test "stack along every axis" do
    for shape <- Generators.shapes(), axis <- 0..tuple_size(shape) do
      [first, second] = [Generators.pick(@types), Generators.pick(Generators.device_types())]
      types = if Enum.random([true, false]), do: [first, first], else: [second, {:f, 32}]
      tensors = for type <- types, do: Generators.tensor(shape, type, {:integer, 0..100})
      expected = nearest(&Nx.stack(&1, axis: axis), tensors)
      assert_same(Nx.stack(operands(tensors), axis: axis), expected, :stack, types: types)
    end
  end

  test "put_slice with numbers and tensors as starts, clamped" do
    for type <- @types, shape = Generators.pick(Generators.shapes()), shape != {} do
      {_, lengths, _} = random_slice(shape)
      tensor = Generators.tensor(shape, type, :any)
      slice = Generators.tensor(List.to_tuple(lengths), type, :any)
      starts = random_starts(shape, Generators.pick(Generators.integer_types()))
      expected = Nx.put_slice(tensor, starts, slice)
      [on_device, part] = operands([tensor, slice])
      result = Nx.put_slice(on_device, some_on_device(starts), part)
      assert_same(result, expected, :put_slice, shape: shape, starts: starts)
    end
  end

  test "put_slice of another type" do
    [tensor, slice] = [Nx.iota({4, 3}, type: :u8), Nx.tensor([[1.5, 2.5]])]
    expected = Nx.put_slice(tensor, [2, 1], slice)
    assert_same(Nx.put_slice(to_device(tensor), [2, 1], to_device(slice)), expected, :put_slice)
  end

  test "batches with a leftover" do
    tensor = Generators.tensor({7, 2}, {:f, 32}, :any)
    batches = for t <- [to_device(tensor), tensor], do: Enum.to_list(Nx.to_batched(t, 3))
    for [result, expected] <- zip_all(batches), do: assert_same(result, expected, :to_batched)
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
    assert_same(fun.(to_device(tensor)), nearest(fun, tensor), op, shape: shape, type: type)
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

  # Numbers and tensors of BinaryBackend, from before the tensor to beyond it.
  defp random_starts(shape, {kind, _} = type) do
    for dim <- Tuple.to_list(shape) do
      number = :rand.uniform(2 * dim + 4) - 3
      number = if kind == :u, do: max(number, 0), else: number

      case :rand.uniform(3) do
        1 -> max(number, 0)
        2 -> Nx.tensor(number, type: type)
        3 when kind == :s -> Nx.reshape(Nx.from_binary(Nx.Type.min_binary(type), type), {})
        3 -> Nx.reshape(Nx.from_binary(Nx.Type.max_binary(type), type), {})
      end
    end
  end

  defp some_on_device(starts) do
    Enum.map(starts, fn
      number when is_integer(number) -> number
      tensor -> if :rand.uniform(4) > 1, do: in_buffer(tensor), else: tensor
    end)
  end

  # A scalar that the device computed, as a program's loop counter is.
  defp in_buffer(tensor), do: Nx.sum(to_device(Nx.new_axis(tensor, 0))) |> Nx.as_type(tensor.type)

  # Low, high and interior so that something is left, and BinaryBackend can do it: no more is cut
  # than there is.
  defp random_padding(dim) do
    interior = Generators.pick([0, 0, 1, 2])
    length = dim + (dim - 1) * interior
    low = :rand.uniform(length + 2) - length
    high = :rand.uniform(length + 2) - length
    if length + min(low, 0) + min(high, 0) > 0, do: {low, high, interior}, else: {1, 0, interior}
  end
end
