defmodule Nx.Vulkan.SortTest do
  @moduledoc "Sorting along an axis against `Nx.BinaryBackend`, which is stable in both directions."

  use Nx.Vulkan.Test.Case, async: true

  require Nx.Vulkan.Native, as: Native

  # Lengths of the sorted axis: of one element, of several rows in a workgroup, around a tile, and
  # around what goes by radix.
  @lengths [1, 2, 3, 7, 31, 64, 100, 513]
  @long [1023, 1024, 1025, 4097]

  test "sort and argsort of every type, along any axis, in both directions" do
    for type <- Generators.device_types() ++ Generators.narrow_types(),
        values <- [:any, :few, :near_zero],
        _ <- 1..6 do
      {shape, axis} = Generators.shape_and_axis(Generators.pick(@lengths))
      check(Generators.tensor(shape, type, values), axis)
    end
  end

  test "rows longer than a workgroup sorts at once" do
    for type <- Generators.device_types() do
      {shape, axis} =
        Generators.pick([{{2, 1025}, 1}, {{1025, 2}, 0}, {{1, 1500, 2}, 1}, {{4097}, 0}])

      check(Generators.tensor(shape, type, Generators.pick([:any, :few])), axis)
    end

    for length <- @long,
        do: check(Generators.tensor({length}, {:s, 16}, {:integer, -300..300}), 0)
  end

  test "NaN of every kind is above infinity, and zeros of either sign are equal" do
    bits =
      [0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800000, 0x7F800000, 0x80000000, 0] ++
        [0xFF800001, 1, 0x80000001, 0x80000000, 0, 0x7FFFFFFF, 0xFFFFFFFF]

    binary = for b <- bits, into: <<>>, do: <<b::32-native>>
    tensor = Nx.from_binary(binary, :f32)

    for direction <- [:asc, :desc] do
      # Bit by bit: each NaN keeps its own.
      assert Nx.to_binary(Nx.sort(to_device(tensor), direction: direction)) ==
               Nx.to_binary(Nx.sort(tensor, direction: direction))

      assert Nx.to_flat_list(Nx.argsort(to_device(tensor), direction: direction)) ==
               Nx.to_flat_list(Nx.argsort(tensor, direction: direction))
    end
  end

  test "a long row is sorted, and equal elements keep their order" do
    for {length, type, range} <- [{100_000, {:s, 32}, -500..500}, {300_001, {:u, 8}, 0..255}],
        direction <- [:asc, :desc] do
      tensor = Generators.tensor({length}, type, {:integer, range})
      device = to_device(tensor)
      list = Nx.to_flat_list(tensor)
      sorted = list |> Enum.with_index() |> Enum.sort_by(&elem(&1, 0), direction)

      assert Nx.to_flat_list(Nx.sort(device, direction: direction)) ==
               Enum.map(sorted, &elem(&1, 0))

      positions = Nx.to_flat_list(Nx.argsort(device, direction: direction))
      assert positions == Enum.map(sorted, &elem(&1, 1))
    end
  end

  test "top_k gives the largest elements and where they stood, the first of equal ones first" do
    for type <- Generators.device_types(), values <- [:any, :few] do
      length = Generators.pick([1, 2, 5, 40, 300])
      shape = Generators.pick([{length}, {3, length}, {2, 1, length}])
      tensor = Generators.tensor(shape, type, values)
      k = :rand.uniform(length)
      check_top_k(tensor, k)
    end

    check_top_k(Generators.tensor({2, 2000}, {:f, 32}, :any), 17)
  end

  test "top_k of a few of many elements, whatever their order" do
    for type <- [{:f, 32}, {:bf, 16}, {:s, 64}, {:u, 8}],
        {shape, k} <- [{{3, 700}, 4}, {{20_011}, 13}] do
      tensor = Generators.tensor(shape, type, Generators.pick([:any, :few]))
      check_top_k(tensor, k)
    end

    length = 10_007
    random = Generators.tensor({length}, {:s, 32}, {:integer, -9..9})
    # The last row's elements are each above all before them.
    rows = [Nx.broadcast(7, {length}), random, Nx.reverse(Nx.iota({length})), Nx.iota({length})]
    for k <- [1, 8, 9, 60, 200], do: check_top_k(Nx.stack(rows), k)
  end

  test "vectorized tensors, names, and tensors on the host" do
    tensor = Generators.tensor({3, 4, 5}, {:f, 32}, :moderate)
    vectorized = tensor |> Nx.vectorize(:rows) |> Nx.rename([:a, :b])
    fun = &(&1 |> Nx.sort(axis: :b, direction: :desc) |> Nx.devectorize())
    on_device = vectorized |> to_device()
    assert_same(fun.(on_device), fun.(vectorized), :sort)

    fun = &Nx.devectorize(elem(Nx.top_k(&1, k: 2), 1))
    assert_same(fun.(on_device), fun.(vectorized), :top_k)

    assert_same(
      VulkanoBackend.sort(tensor, tensor, axis: 1, direction: :asc),
      Nx.sort(tensor, axis: 1),
      :sort
    )
  end

  test "median by sorting" do
    for type <- [{:s, 32}, {:u, 8}, {:f, 32}, {:f, 64}], shape <- [{7}, {6}, {3, 4}, {2, 5, 3}] do
      tensor = Generators.tensor(shape, type, {:integer, 0..50})
      axis = Generators.pick([nil | Enum.to_list(0..(tuple_size(shape) - 1))])
      fun = &Nx.median(&1, axis: axis)
      assert_same(fun.(to_device(tensor)), nearest(fun, tensor), :median, type: type, axis: axis)
    end
  end

  test "what cannot be sorted is refused" do
    ref = to_device(Nx.iota({4, 4}, type: :s32)).data.ref

    call = fn tensor, axis, descending, keep, values, positions ->
      Native.call(sort(tensor, axis, descending, keep, values, positions))
    end

    assert_raise ArgumentError, ~r/axis/, fn ->
      call.({ref, {:s, 32}, {4, 4}}, 2, false, 1, true, nil)
    end

    assert_raise ArgumentError, ~r/keep/, fn ->
      call.({ref, {:s, 32}, {4, 4}}, 1, false, 5, true, nil)
    end

    assert_raise ArgumentError, ~r/descending/, fn ->
      call.({ref, {:s, 32}, {4, 4}}, 1, :desc, 4, true, nil)
    end

    for shape <- [{4, 5}, {4, 2 ** 62}, {2 ** 62, 4}, {2 ** 40, 2 ** 40}] do
      assert call.({ref, {:s, 32}, shape}, 0, false, 1, true, nil) == {:error, :size_mismatch}
    end

    assert {:ok, {nil, nil}} = call.({ref, {:s, 32}, {4, 4}}, 1, false, 4, false, nil)
  end

  defp check_top_k(tensor, k) do
    {expected, expected_positions} = Nx.top_k(tensor, k: k)
    {actual, positions} = Nx.top_k(to_device(tensor), k: k)
    context = [type: tensor.type, shape: tensor.shape, k: k]
    assert_same(actual, expected, :top_k, context)
    assert_same(positions, expected_positions, :top_k, context)
  end

  defp check(tensor, axis) do
    options = [axis: axis, direction: Generators.pick([:asc, :desc])]
    options = if :rand.uniform(2) == 1, do: [{:stable, true} | options], else: options
    context = [type: tensor.type, shape: tensor.shape] ++ options
    device = to_device(tensor)
    assert_same(Nx.sort(device, options), Nx.sort(tensor, options), :sort, context)

    # BinaryBackend, which sorts 64-bit integers where the device has none, cuts bits off for a bf16.
    narrow = if elem(tensor.type, 1) == 64, do: [], else: [:bf16]
    type = Generators.pick([:s32, :s32, :u32, :s64, :u8, :f32] ++ narrow)
    options = [{:type, type} | options]
    argsort = &Nx.argsort(&1, options)
    assert_same(argsort.(device), nearest(argsort, tensor), :argsort, context)
  end
end
