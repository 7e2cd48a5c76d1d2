defmodule Nx.Vulkan.IndexTest do
  @moduledoc "Access by index, over shapes, axes and types, against `Nx.BinaryBackend`."

  use Nx.Vulkan.Test.Case, async: true

  # What is moved needs only the width of its type.
  @types Generators.device_types() ++
           Generators.narrow_float_types() ++ [{:c, 64}, {:c, 128}, {:u, 4}, {:s, 2}]

  test "gather along any axes" do
    for _ <- 1..150, shape = some_shape() do
      axes = some_axes(tuple_size(shape))
      indices = indices(some_leading_shape(), Enum.map(axes, &elem(shape, &1)))
      same(:gather, [tensor(shape, @types), indices], &Nx.gather(&1, &2, axes: axes))
    end
  end

  test "gather of every type" do
    for type <- @types do
      tensor = Generators.tensor({3, 4}, type, :any)
      same(:gather, [tensor, indices({5}, [3, 4])], &Nx.gather/2)
    end
  end

  test "gather of vectorized tensors" do
    tensor = Generators.tensor({2, 3, 4}, {:s, 32}, :any)
    indices = indices({2, 5}, [3])

    same(:gather, [tensor, indices], fn tensor, indices ->
      Nx.devectorize(Nx.gather(Nx.vectorize(tensor, :x), Nx.vectorize(indices, :x)))
    end)
  end

  test "take along any axis" do
    for _ <- 1..150, shape = some_shape() do
      axis = :rand.uniform(tuple_size(shape)) - 1
      indices = Nx.squeeze(indices(some_leading_shape(), [elem(shape, axis)]), axes: [-1])
      same(:take, [tensor(shape, @types), indices], &Nx.take(&1, &2, axis: axis))
    end
  end

  test "take with one index" do
    tensor = Generators.tensor({3, 4}, {:f, 32}, :any)
    same(:take, [tensor, Nx.tensor(2)], &Nx.take(&1, &2, axis: 1))
    assert_same(Nx.take(to_device(tensor), 2), Nx.take(tensor, 2), :take)
    assert_same(Nx.take(to_device(Nx.tensor(7)) |> Nx.reshape({1}), 0), Nx.tensor(7), :take)
  end

  test "take_along_axis" do
    for _ <- 1..150, shape = some_shape() do
      axis = :rand.uniform(tuple_size(shape)) - 1
      leading = put_elem(shape, axis, :rand.uniform(5))
      indices = Nx.squeeze(indices(leading, [elem(shape, axis)]), axes: [-1])
      fun = &Nx.take_along_axis(&1, &2, axis: axis)
      same(:take_along_axis, [tensor(shape, @types), indices], fun)
    end
  end

  test "take_diagonal, put_diagonal, make_diagonal" do
    for {rows, columns} = shape <- [{3, 3}, {2, 5}, {4, 2}],
        offset <- (1 - rows)..(columns - 1) do
      length = min(rows + min(offset, 0), columns - max(offset, 0))
      type = Generators.pick(Generators.device_types())
      tensor = Generators.tensor(shape, type, :any)
      diagonal = Generators.tensor({length}, type, :any)
      same(:take_diagonal, [tensor], &Nx.take_diagonal(&1, offset: offset))
      same(:put_diagonal, [tensor, diagonal], &Nx.put_diagonal(&1, &2, offset: offset))
      same(:make_diagonal, [diagonal], &Nx.make_diagonal(&1, offset: offset))
    end
  end

  describe "of several updates for one slot" do
    test "indexed_put keeps the last" do
      # BinaryBackend decodes and encodes updates, and subnormals of f8 do not come back as they were.
      types = @types -- [{:f, 8}]

      for _ <- 1..100, {target, indices, updates, axes} = scattered(some_types(types)) do
        same(:indexed_put, [target, indices, updates], &Nx.indexed_put(&1, &2, &3, axes: axes))
      end
    end

    test "indexed_add sums integers, which wrap" do
      for _ <- 1..60, {target, indices, updates, axes} = scattered(integers()) do
        same(:indexed_add, [target, indices, updates], &Nx.indexed_add(&1, &2, &3, axes: axes))
      end
    end

    test "indexed_add sums all numbers, rounding once" do
      for _ <- 1..60, types = Enum.take_random(Generators.device_types() -- [{:f, 64}], 2) do
        {target, indices, updates, axes} = scattered(types, {:float, -9.0, 9.0})
        same(:indexed_add, [target, indices, updates], &Nx.indexed_add(&1, &2, &3, axes: axes))
      end
    end

    test "indexed_add of NaN and infinities" do
      target = Nx.tensor([1.0, :infinity, :nan, -0.0], type: :f32)
      indices = Nx.tensor([[0], [0], [1], [1], [2], [3], [3]])
      updates = Nx.tensor([:infinity, 1.0, :neg_infinity, 1.0, 1.0, -0.0, -0.0])

      for type <- [:f16, :bf16, :f32, :f64] do
        tensors = [Nx.as_type(target, type), indices, Nx.as_type(updates, type)]
        same(:indexed_add, tensors, &Nx.indexed_add/3)
      end
    end
  end

  describe "many updates" do
    for {rows, slots, width} <- [{900, 3, 5}, {2500, 1, 3}, {2500, 40, 2}, {6000, 3000, 1}] do
      test "#{rows} for #{slots} slots" do
        {rows, slots, width} = {unquote(rows), unquote(slots), unquote(width)}
        indices = Generators.tensor({rows, 1}, {:s, 32}, {:integer, 0..(slots - 1)})
        same = fn op, tensors, fun -> same(op, tensors, fun, rows: rows, slots: slots) end

        for type <- [{:s, 32}, {:f, 32}] do
          target = Generators.tensor({slots, width}, type, {:integer, -9..9})
          updates = Generators.tensor({rows, width}, type, {:integer, -99..99})
          same.(:indexed_add, [target, indices, updates], &Nx.indexed_add/3)
          same.(:indexed_put, [target, indices, updates], &Nx.indexed_put/3)
        end
      end
    end

    # Rows of one slot are neighbours once sorted: short runs and long ones, which begin and end at any row of a chunk.
    for {lengths, width} <- [{1..3, 4}, {1..40, 3}, {1..40, 8}, {30..200, 4}, {1..2000, 1}] do
      test "of #{inspect(lengths)} for each slot, in rows of #{width}" do
        {lengths, width} = {unquote(Macro.escape(lengths)), unquote(width)}

        for type <- Enum.take_random(integers(), 2) ++ [{:f, 32}] do
          runs = for _ <- 1..30, do: Enum.random(lengths)

          slots =
            Enum.flat_map(Enum.with_index(runs), fn {length, slot} ->
              List.duplicate(slot, length)
            end)

          indices = Nx.new_axis(Nx.tensor(Enum.shuffle(slots)), 1)
          target = Generators.tensor({length(runs), width}, type, {:integer, 0..9})
          updates = Generators.tensor({length(slots), width}, type, {:integer, 0..9})
          tensors = [target, indices, updates]
          same(:indexed_add, tensors, &Nx.indexed_add/3, runs: runs)
          same(:indexed_put, tensors, &Nx.indexed_put/3, runs: runs)
        end
      end
    end

    test "sums of f64 are no less accurate than BinaryBackend's" do
      rows = 1500
      indices = Generators.tensor({rows, 1}, {:s, 32}, {:integer, 0..4})
      scale = Nx.pow(10.0, Generators.tensor({rows}, {:f, 64}, {:float, -8.0, 8.0}))
      updates = Nx.multiply(Generators.tensor({rows}, {:f, 64}, {:float, -1.0, 1.0}), scale)
      target = Generators.tensor({5}, {:f, 64}, {:float, -1.0, 1.0})
      got = Nx.indexed_add(to_device(target), to_device(indices), to_device(updates))
      again = Nx.indexed_add(to_device(target), to_device(indices), to_device(updates))
      assert Nx.to_binary(got) == Nx.to_binary(again)
      reference = Nx.to_flat_list(Nx.indexed_add(target, indices, updates))

      exact =
        Enum.zip(Nx.to_flat_list(indices), Nx.to_flat_list(updates))
        |> Enum.reduce(Enum.map(Nx.to_flat_list(target), &exact/1), fn {i, x}, sums ->
          List.update_at(sums, i, &(&1 + exact(x)))
        end)

      for [got, reference, exact] <- zip_all([Nx.to_flat_list(got), reference, exact]),
          do: assert(abs(exact(got) - exact) <= abs(exact(reference) - exact))
    end
  end

  test "updates smaller than the slice" do
    target = Generators.tensor({3, 4, 5}, {:f, 32}, :moderate)
    indices = Nx.tensor([[2], [0], [2]])
    updates = Generators.tensor({3, 2, 5}, {:f, 32}, {:float, -1.0, 1.0})
    same(:indexed_put, [target, indices, updates], &Nx.indexed_put/3)
    same(:indexed_put, [target, indices, Nx.as_type(updates, :s8)], &Nx.indexed_put/3)
  end

  describe "indices out of bounds raise as in BinaryBackend" do
    test "wherever they are" do
      for _ <- 1..60, shape = some_shape() do
        axes = some_axes(tuple_size(shape))
        dims = Enum.map(axes, &elem(shape, &1))
        rows = :rand.uniform(6)
        indices = spoil(indices({rows}, dims, [{:s, 8}, {:s, 32}, {:s, 64}, {:u, 64}, {:u, 8}]))
        others = Nx.axes(shape) -- axes
        updates = Nx.broadcast(0, List.to_tuple([rows | Enum.map(others, &elem(shape, &1))]))
        tensor = Generators.tensor(shape, {:f, 32}, :any)
        axis = hd(axes)
        one = Nx.slice_along_axis(indices, 0, 1, axis: 1)

        same_error([tensor, indices], &Nx.gather(&1, &2, axes: axes))
        same_error([tensor, one], &Nx.take(&1, &2, axis: axis))
        same_error([tensor, indices, updates], &Nx.indexed_add(&1, &2, &3, axes: axes))
        same_error([tensor, indices, updates], &Nx.indexed_put(&1, &2, &3, axes: axes))
      end
    end

    test "take_along_axis" do
      tensor = Generators.tensor({3, 4}, {:f, 32}, :any)
      indices = Nx.tensor([[0, 1, 3, -1]])
      same_error([tensor, indices], &Nx.take_along_axis(&1, &2, axis: 0))
    end

    test "of a deep index" do
      shape = Tuple.duplicate(2, 20)
      indices = Nx.broadcast(1, {1, 20})
      wrong = Nx.indexed_put(indices, Nx.tensor([[0, 17]]), Nx.tensor([2]))
      tensor = Nx.iota(shape)
      same(:gather, [tensor, indices], &Nx.gather/2)
      same_error([tensor, wrong], &Nx.gather/2)
    end
  end

  describe "an index out of bounds on the device" do
    setup do
      tensor = to_device(Nx.iota({4, 3}, type: :f32))
      [tensor: tensor, bad: Nx.take(tensor, to_device(Nx.tensor([0, -5, 9])))]
    end

    test "is an error of what comes of it, and of nothing else", %{tensor: tensor, bad: bad} do
      good = Nx.take(tensor, to_device(Nx.tensor([0, 3, 1])))

      results = [
        bad,
        bad,
        Nx.reshape(bad, {9}),
        Nx.sum(Nx.multiply(good, bad)),
        Nx.dot(bad, Nx.transpose(good)),
        Nx.sort(bad),
        Nx.concatenate([good, bad]),
        Nx.put_slice(tensor, [0, 0], bad),
        Nx.backend_copy(bad, VulkanoBackend)
      ]

      for result <- results, read <- [&Nx.to_binary/1, &Nx.backend_copy/1] do
        for run <- [& &1.(), &Task.await(Task.async(&1), :infinity)] do
          error = run.(fn -> assert_raise ArgumentError, fn -> read.(result) end end)

          assert error.message =~
                   ~r/^index (-5|9) is out of bounds for axis 0 in shape {4, 3}, by Nx.take$/
        end
      end

      assert inspect(bad) =~ "is out of bounds"
      for result <- [tensor, good, Nx.add(good, 1)], do: assert(Nx.to_binary(result))
    end

    test "stays known however many calls follow", %{tensor: tensor, bad: bad} do
      first = to_device(Nx.tensor([0, 1, 2]))

      chain = fn tensor, calls ->
        Enum.reduce(1..calls, tensor, fn _, x -> Nx.take(x, first) end)
      end

      assert_raise ArgumentError, ~r/Nx.take/, fn -> Nx.to_binary(chain.(bad, 100)) end

      late =
        Nx.indexed_add(chain.(tensor, 100), Nx.add(Nx.new_axis(first, 1), 1), chain.(tensor, 100))

      assert_raise ArgumentError, ~r/index 3 .* by Nx.indexed_add/, fn -> Nx.to_binary(late) end
      assert Nx.to_binary(chain.(tensor, 100)) == Nx.to_binary(tensor[0..2])
    end
  end

  describe "what does not fit is refused" do
    require Nx.Vulkan.Native, as: Native

    setup do
      [buffer: to_device(Nx.iota({6})).data.ref]
    end

    test "by scatter", %{buffer: buffer} do
      call = fn target, indices, updates, axes ->
        tensor = fn shape -> {buffer, {:s, 32}, shape} end
        {a, b, c} = {tensor.(target), tensor.(indices), tensor.(updates)}
        Native.call(scatter(:add, {:s, 32}, a, b, c, axes, nil))
      end

      assert {:ok, _} = call.({2, 3}, {2, 1}, {2, 3}, [0])
      # A smaller row, no rows, and no axes: one row for the whole.
      assert {:ok, _} = call.({2, 3}, {2, 1}, {2, 1}, [0])
      assert {:ok, _} = call.({2, 3}, {0, 1}, {0, 3}, [0])
      assert {:ok, _} = call.({2, 3}, {1, 0}, {1, 6}, [])
      assert {:error, :size_mismatch} = call.({2, 3}, {2, 1}, {3, 2}, [0])
      assert {:error, :size_mismatch} = call.({3, 2}, {2, 1}, {2, 3}, [0])
      assert {:error, :size_mismatch} = call.({2, 3}, {0, 1}, {}, [0])
      assert {:error, :size_mismatch} = call.({2, 3}, {2}, {2, 3}, [0])
      assert {:error, :size_mismatch} = call.({7}, {2, 1}, {2}, [0])
      assert {:error, :size_mismatch} = call.({2, 3}, {7, 1}, {7}, [0])
      assert_raise ArgumentError, fn -> call.({2, 3}, {2, 1}, {2, 3}, [2]) end
      assert_raise ArgumentError, fn -> call.({2, 3}, {2, 2}, {2}, [1, 1]) end
      assert_raise ArgumentError, fn -> call.({2, 3}, {2, 1}, {2, 3}, [-1]) end

      assert_raise ArgumentError, fn ->
        Native.call(scatter(:other, {:s, 32}, 1, 2, 3, [], nil))
      end

      assert_raise ArgumentError, ~r/integer/, fn ->
        floats = {buffer, {:f, 32}, {2, 1}}
        tensor = {buffer, {:s, 32}, {2, 3}}
        Native.call(scatter(:put, {:s, 32}, tensor, floats, tensor, [0], nil))
      end
    end

    test "by gather nodes", %{buffer: buffer} do
      call = fn type, args, steps, inputs ->
        Native.call(run([{:gather, type, args, steps}], inputs, {2}))
      end

      view = {buffer, {:s, 32}, 0, [0]}
      index = {buffer, {:s, 32}, 0, [1]}
      assert {:ok, _} = call.({:s, 32}, [0, 1], [{6, 1}], [view, index])
      assert {:ok, _} = call.({:s, 32}, [0, 1], [{3, -2}], [{buffer, {:s, 32}, 4, [1]}, index])
      assert {:error, :size_mismatch} = call.({:s, 32}, [0, 1], [{7, 1}], [view, index])
      assert {:error, :size_mismatch} = call.({:s, 32}, [0, 1], [{2, -1}], [view, index])
      assert {:error, :size_mismatch} = call.({:s, 32}, [0, 1], [{6, 1}], [index, index])
      scalar = {:scalar, {:s, 32}, <<0::32>>}

      for {type, args, steps, inputs} <- [
            {{:s, 32}, [0], [{6, 1}], [view, index]},
            {{:s, 32}, [0, 1, 1], [{6, 1}], [view, index]},
            {{:s, 32}, [0, 2], [{6, 1}], [view, index]},
            {{:s, 32}, [0, 1], [{0, 1}], [view, index]},
            {{:s, 32}, [0, 1], [{-1, 1}], [view, index]},
            {{:s, 32}, [0, 1], [{6, 2 ** 60}], [view, index]},
            {{:s, 32}, [0, 1], [6], [view, index]},
            {{:s, 32}, [0, 1], nil, [view, index]},
            {{:s, 64}, [0, 1], [{6, 1}], [view, index]},
            {{:s, 32}, [0, 1], [{6, 1}], [scalar, index]},
            {{:s, 32}, [0, 1], [{6, 1}], [view, {buffer, {:f, 32}, 0, [1]}]}
          ] do
        assert_raise ArgumentError, fn -> call.(type, args, steps, inputs) end
      end
    end

    test "by folds", %{buffer: buffer} do
      element = {buffer, {:s, 32}, {6}}
      start = {:scalar, {:s, 32}, <<0::32>>}
      accumulator = {:accumulator, {:s, 32}, [1]}
      fold = {:fold, {:s, 32}, [2, 3], [0]}
      call = fn nodes, start -> Native.call(run(nodes, [element, start], {6})) end

      assert {:ok, _} = call.([accumulator, {:add, {:s, 32}, [0, 2]}, fold], start)

      for {nodes, start} <- [
            {[accumulator], start},
            {[accumulator, {:add, {:s, 32}, [0, 2]}], start},
            {[{:add, {:s, 32}, [0, 1]}, {:fold, {:s, 32}, [2, 2], [0]}], start},
            {[accumulator, accumulator, {:fold, {:s, 32}, [2, 3], [0]}], start},
            {[accumulator, {:add, {:s, 32}, [0, 2]}, {:fold, {:s, 64}, [2, 3], [0]}], start},
            {[accumulator, {:add, {:s, 32}, [0, 2]}, {:fold, {:s, 32}, [3, 2], [0]}], start},
            {[accumulator, {:add, {:s, 32}, [0, 2]}, {:fold, {:s, 32}, [2, 3], [1]}], start},
            {[accumulator, {:add, {:s, 32}, [0, 2]}, fold], element},
            {[{:accumulator, {:s, 32}, [2]}, {:add, {:s, 32}, [0, 2]}, fold], start}
          ] do
        assert_raise ArgumentError, fn -> call.(nodes, start) end
      end
    end
  end

  defp same(op, tensors, fun, context \\ []) do
    expected = nearest(&apply(fun, &1), tensors)
    context = context ++ [operands: Enum.map(tensors, &{&1.type, &1.shape})]
    assert_same(apply(fun, operands(tensors)), expected, op, context)
  end

  # Of indices that the host holds the first one raises, in the call. Of those on the device one that is the first
  # of its row does, when the result is read.
  defp same_error([tensor, indices | others], fun) do
    expected = message(fun, [tensor, indices | others])
    host = fn -> apply(fun, [to_device(tensor), indices | others]) end
    device = fn -> apply(fun, Enum.map([tensor, indices | others], &to_device/1)) end

    if expected do
      assert_raise ArgumentError, expected, host
      error = assert_raise ArgumentError, fn -> Nx.to_binary(device.()) end
      # What the device computes with types of its own names the operation.
      [message | _op] = String.split(error.message, ", by Nx.")
      assert message in row_messages(fun, [tensor, indices | others])
    else
      host.()
      Nx.to_binary(device.())
    end
  end

  # The messages for each row of the indices alone.
  defp row_messages(fun, [tensor, indices | updates]) do
    for row <- 0..(Nx.axis_size(indices, 0) - 1) do
      one = Enum.map(updates, &Nx.slice_along_axis(&1, row, 1, axis: 0))
      message(fun, [tensor, Nx.slice_along_axis(indices, row, 1, axis: 0) | one])
    end
  end

  defp message(fun, arguments) do
    apply(fun, arguments)
    nil
  rescue
    error in ArgumentError -> error.message
  end

  defp tensor(shape, types), do: Generators.tensor(shape, Generators.pick(types), :any)

  defp some_shape, do: Generators.pick(Generators.shapes() -- [{}])
  defp some_leading_shape, do: Generators.pick([{1}, {4}, {7}, {2, 3}, {2, 1, 2}])

  # In any order, as the indices' last axis has them.
  defp some_axes(rank) do
    axes = Enum.to_list(0..(rank - 1))
    count = :rand.uniform(rank)
    axes |> Enum.take_random(count) |> Enum.sort()
  end

  # A target, rows of indices that hit slots several times, and updates for them.
  defp scattered([type, update_type], values \\ :any) do
    shape = some_shape()
    axes = some_axes(tuple_size(shape))
    rows = :rand.uniform(9)
    others = Enum.map(Nx.axes(shape) -- axes, &elem(shape, &1))
    updates = Generators.tensor(List.to_tuple([rows | others]), update_type, values)
    indices = indices({rows}, Enum.map(axes, &elem(shape, &1)))
    {Generators.tensor(shape, type, values), indices, updates, axes}
  end

  # One type twice often: then nothing is converted.
  defp some_types(types) do
    type = Generators.pick(types)
    other = Generators.pick(Generators.integer_types())

    if type in Generators.device_types(),
      do: [type, Generators.pick([type, type, other])],
      else: [type, type]
  end

  defp integers, do: for(_ <- 1..2, do: Generators.pick(Generators.integer_types()))

  # In units of the smallest f64.
  defp exact(x) do
    {numerator, denominator} = Float.ratio(x)
    div(numerator * 2 ** 1074, denominator)
  end

  # Indices of the shape, with one more axis: an index for each of `dims`.
  defp indices(shape, dims, types \\ Generators.integer_types()) do
    type = Generators.pick(types)

    elements =
      for _ <- 1..Tuple.product(shape), dim <- dims, do: :rand.uniform(min(dim, 128)) - 1

    elements
    |> Nx.tensor(type: type)
    |> Nx.reshape(Tuple.insert_at(shape, tuple_size(shape), length(dims)))
  end

  # Any of them replaced by any number of the type.
  defp spoil(%{type: type} = indices) do
    wrong = Generators.tensor(indices.shape, type, :any)
    keep = Generators.tensor(indices.shape, {:u, 8}, {:integer, 0..3})
    Nx.select(keep, indices, wrong)
  end
end
