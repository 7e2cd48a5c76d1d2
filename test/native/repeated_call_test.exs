Code.require_file("support/native_case.exs", __DIR__)

defmodule Nx.Vulkan.RepeatedCallTest do
  @moduledoc """
  A call that comes again runs from what was kept of it: on other buffers and values it gives what a new
  one gives, and what is wrong with them is found as it is the first time.
  """

  use Nx.Vulkan.Test.NativeCase, async: true

  @f32 {:f, 32}
  @shape {4}
  @nodes [{:multiply, @f32, [0, 1]}]

  defp run(nodes, inputs, shape), do: Native.call(run(nodes, inputs, shape))
  defp tensor(ref), do: {ref, @f32, @shape}
  defp scalar(x), do: {:scalar, @f32, floats([x])}

  defp product(a, b), do: product(a, {2, 2}, b, {2, 2})

  defp product(a, a_shape, b, b_shape) do
    [a, b] = [{a, @f32, a_shape}, {b, @f32, b_shape}]
    Native.call(dot(@f32, a, [1], [], b, [0], []))
  end

  defp scattered(mode, [target, indices, updates]) do
    {:ok, result} = Native.call(scatter(mode, @f32, target, indices, updates, [0], nil))
    download!(result)
  end

  defp windows(op, tensor, source, init),
    do: Native.call(window_scatter(op, @f32, tensor, source, init, {3}, [1], [{0, 0}]))

  defp integers(ref) do
    {:ok, binary} = NativeV.buf_download(ref)
    for <<x::32-signed-native <- binary>>, do: x
  end

  # The last runs are replays of what the first ones captured.
  defp often(fun), do: Enum.each(1..4, fun)

  setup do
    %{a: upload!([1.0, 2.0, 3.0, 4.0])}
  end

  test "reads the buffers and values of each run", %{a: a} do
    often(fn k ->
      b = upload!([k, k + 1, k + 2, k + 3])
      {:ok, products} = run(@nodes, [tensor(a), tensor(b)], @shape)
      assert download!(products) == [1.0 * k, 2.0 * (k + 1), 3.0 * (k + 2), 4.0 * (k + 3)]
      {:ok, scaled} = run(@nodes, [tensor(a), scalar(k)], @shape)
      assert download!(scaled) == [1.0 * k, 2.0 * k, 3.0 * k, 4.0 * k]
    end)
  end

  test "sums in two passes have partial results of their own each time" do
    ones = upload!(List.duplicate(1.0, 100_000))

    often(fn k ->
      nodes = [{:multiply, @f32, [0, 1]}, {:sum, @f32, [2], [0]}]
      {:ok, sum} = run(nodes, [{ones, @f32, {100_000}}, scalar(k)], {100_000})
      assert download!(sum) == [100_000.0 * k]
    end)
  end

  test "operands that are one buffer are told from two", %{a: a} do
    often(fn k ->
      b = upload!([k, k, k, k])
      {:ok, squares} = run(@nodes, [tensor(a), tensor(a)], @shape)
      assert download!(squares) == [1.0, 4.0, 9.0, 16.0]
      {:ok, products} = run(@nodes, [tensor(a), tensor(b)], @shape)
      assert download!(products) == [1.0 * k, 2.0 * k, 3.0 * k, 4.0 * k]
      {:ok, sum} = product(a, a)
      assert download!(sum) == [7.0, 10.0, 15.0, 22.0]
      {:ok, sum} = product(a, b)
      assert download!(sum) == [3.0 * k, 3.0 * k, 7.0 * k, 7.0 * k]
    end)
  end

  # In one kernel, in several with memory between them, as a reduction, and with nothing to add up.
  test "products have memory of their own each time" do
    for {rows, depth, columns} <- [{2, 3, 2}, {40, 33, 50}, {3, 5000, 3}, {1, 4000, 5}, {2, 0, 3}] do
      often(fn k ->
        a = upload!(List.duplicate(1.0 * k, rows * depth))
        b = upload!(Enum.map(0..(depth * columns - 1)//1, &(1.0 * rem(&1, columns))))
        {:ok, product} = product(a, {rows, depth}, b, {depth, columns})

        assert download!(product) ==
                 for(_ <- 1..rows, column <- 0..(columns - 1), do: 1.0 * k * depth * column)
      end)
    end
  end

  test "contractions are distinguished by their axes and offsets" do
    numbers = upload!([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])

    often(fn k ->
      by = upload!([1.0 * k, 0.0, 0.0, 1.0 * k])
      # A matrix of two rows, its transpose, and the one that begins two numbers later.
      for {offset, row, column, expected} <- [
            {0, 2, 1, [1, 2, 3, 4]},
            {0, 1, 2, [1, 3, 2, 4]},
            {2, 2, 1, [3, 4, 5, 6]}
          ] do
        axes = {[], [{2, row, 0, 2}], [{2, 0, 1, 1}], [{2, column, 2, 0}], []}
        {:ok, product} = Native.call(contract(@f32, {numbers, @f32, offset}, {by, @f32, 0}, axes))
        assert download!(product) == Enum.map(expected, &(1.0 * k * &1))
      end
    end)
  end

  # In one kernel, and in chunks with their totals between them.
  test "scans read the buffer of each run, along each axis and in each order" do
    often(fn k ->
      for {shape, axis, expected} <- [
            {{2, 2}, 0, [1, 1, 2, 2]},
            {{2, 2}, 1, [1, 2, 1, 2]},
            {{4}, 0, [1, 2, 3, 4]}
          ] do
        ref = upload!(List.duplicate(1.0 * k, 4))
        {:ok, sums} = Native.call(scan(:sum, {ref, @f32, shape}, axis, false))
        assert download!(sums) == Enum.map(expected, &(1.0 * k * &1))
        {:ok, sums} = Native.call(scan(:sum, {ref, @f32, shape}, axis, true))
        assert Enum.sum(download!(sums)) == 1.0 * k * Enum.sum(expected)
      end

      n = 100_000
      ones = upload!(List.duplicate(1.0 * k, n))
      {:ok, sums} = Native.call(scan(:sum, {ones, @f32, {n}}, 0, false))
      assert download!(sums) == Enum.map(1..n, &(1.0 * k * &1))
    end)
  end

  # Merged in one workgroup, by radix in several passes, and selected from pieces.
  test "sorts have the results that are asked for each time" do
    for {n, keep} <- [{10, 10}, {20_000, 20_000}, {100_000, 5}] do
      often(fn k ->
        ref = upload!(Enum.map(n..1//-1, &(1.0 * (&1 + k))))
        values = Enum.map(1..keep, &(1.0 * (&1 + k)))
        indices = Enum.map(1..keep, &(n - &1))
        sort = &Native.call(sort({ref, @f32, {n}}, 0, false, keep, &1, &2))

        {:ok, {sorted, nil}} = sort.(true, nil)
        assert download!(sorted) == values
        {:ok, {nil, order}} = sort.(false, {:s, 32})
        assert integers(order) == indices
        {:ok, {sorted, order}} = sort.(true, {:s, 32})
        assert {download!(sorted), integers(order)} == {values, indices}
        assert {:ok, {nil, nil}} = sort.(false, nil)
      end)
    end
  end

  # Of one row each, and of more rows for one element than a pass adds up.
  test "writes and additions at indices read the buffers of each run" do
    for rows <- [4, 5000] do
      often(fn k ->
        target = {upload!([1.0 * k, 2.0, 3.0, 4.0]), @f32, {4}}

        {:ok, indices} =
          NativeV.buf_upload(for(i <- 1..rows, into: <<>>, do: <<rem(i, 2)::32-native>>))

        updates = upload!(List.duplicate(1.0 * k, rows))
        operands = [target, {indices, {:s, 32}, {rows, 1}}, {updates, @f32, {rows}}]
        [added, put] = for mode <- [:add, :put], do: scattered(mode, operands)
        assert added == [1.0 * k + div(rows, 2) * k, 2.0 + div(rows, 2) * k, 3.0, 4.0]
        assert put == [1.0 * k, 1.0 * k, 3.0, 4.0]
      end)
    end
  end

  # Of two windows of three elements, which overlap.
  test "scatters from windows read the buffers of each run" do
    often(fn k ->
      tensor = {upload!([1.0, 5.0 * k, 2.0, 3.0]), @f32, {4}}
      source = {upload!([1.0 * k, 10.0]), @f32, {2}}
      init = {upload!([0.0]), @f32, {}}
      {:ok, max} = windows(:window_scatter_max, tensor, source, init)
      assert download!(max) == [0.0, 1.0 * k + 10.0, 0.0, 0.0]
      {:ok, min} = windows(:window_scatter_min, tensor, source, init)
      assert download!(min) == [1.0 * k, 0.0, 10.0, 0.0]
    end)
  end

  test "products refuse buffers that are too small, freed or none", %{a: a} do
    freed = upload!([1.0, 2.0, 3.0, 4.0])
    :ok = Native.buf_free(freed)

    often(fn _ ->
      assert {:ok, _} = product(a, a)
      assert product(a, upload!([1.0, 2.0, 3.0])) == {:error, :size_mismatch}
      assert {:ok, _} = product(a, upload!([1.0, 2.0, 3.0, 4.0, 5.0]))
      assert {:error, :deallocated, _} = product(a, freed)
      assert_raise ArgumentError, ~r/^b: /, fn -> product(a, make_ref()) end
    end)
  end

  test "refuses buffers that are too small, freed or none", %{a: a} do
    freed = upload!([1.0, 2.0, 3.0, 4.0])
    :ok = Native.buf_free(freed)

    often(fn _ ->
      assert {:ok, _} = run(@nodes, [tensor(a), tensor(a)], @shape)
      small = upload!([1.0, 2.0, 3.0])
      assert run(@nodes, [tensor(a), tensor(small)], @shape) == {:error, :size_mismatch}
      assert {:error, :deallocated, _} = run(@nodes, [tensor(freed), tensor(a)], @shape)

      for other <- [make_ref(), 1, "a", nil] do
        assert_raise ArgumentError, ~r/^inputs: /, fn ->
          run(@nodes, [tensor(a), tensor(other)], @shape)
        end
      end
    end)
  end

  test "refuses scalars of another size", %{a: a} do
    often(fn _ ->
      assert {:ok, _} = run(@nodes, [tensor(a), scalar(2.0)], @shape)

      for bad <- [<<>>, <<0::16>>, <<0::64>>, <<0::256>>, 2.0, nil] do
        assert_raise ArgumentError, ~r/^inputs: /, fn ->
          run(@nodes, [tensor(a), {:scalar, @f32, bad}], @shape)
        end
      end
    end)
  end

  test "refuses inputs whose parts are those of a program that ran, otherwise grouped", %{a: a} do
    often(fn _ ->
      assert {:ok, _} = run(@nodes, [tensor(a), {a, @f32, 0, [1]}], @shape)

      for inputs <- [
            [{a, @f32, @shape, @f32}, {a, 0, [1]}],
            [{a, @f32, @shape}, {:scalar, @f32, 0}, {a, [1]}],
            [{a, @f32, @shape}, {a, @f32, 0}],
            [{a, @f32, :scalar}, {a, @f32, 0, [1]}]
          ] do
        assert_raise ArgumentError, ~r/^inputs: /, fn -> run(@nodes, inputs, @shape) end
      end
    end)
  end

  test "more programs than are kept" do
    numbers = Enum.map(0..2047, &(&1 * 1.0))
    all = upload!(numbers)
    copy = fn offset -> run([{:as_type, @f32, [0]}], [{all, @f32, offset, [1]}], {2}) end

    for _ <- 1..3, offset <- 0..1500 do
      {:ok, _} = copy.(offset)
    end

    for offset <- 0..1500//100 do
      {:ok, two} = copy.(offset)
      assert download!(two) == [offset * 1.0, offset + 1.0]
    end
  end

  # In one block, and in several with memory between them.
  test "matrices are factored anew each time" do
    for n <- [3, 40] do
      diagonal = fn x -> for i <- 1..n, j <- 1..n, do: if(i == j, do: 1.0 * x, else: 0.0) end

      often(fn k ->
        a = {upload!(diagonal.(k * k)), @f32, {n, n}}
        {:ok, factor} = Native.call(cholesky(@f32, a))
        assert download!(factor) == diagonal.(k)

        b = {upload!(Enum.map(1..n, &(1.0 * k * k * &1))), @f32, {n, 1}}
        {:ok, x} = Native.call(triangular_solve(@f32, a, b, nil, []))
        assert download!(x) == Enum.map(1..n, &(1.0 * &1))

        {:ok, {q, r}} = Native.call(qr(@f32, a, false, 0.0))
        assert {download!(q), download!(r)} == {diagonal.(1), diagonal.(k * k)}

        {:ok, {values, vectors}} = Native.call(eigh(@f32, a, 0.0))

        assert {download!(values), download!(vectors)} ==
                 {List.duplicate(1.0 * k * k, n), diagonal.(1)}

        {:ok, {u, s, vt}} = Native.call(svd(@f32, a, true))
        assert download!(s) == List.duplicate(1.0 * k * k, n)
        assert {length(download!(u)), length(download!(vt))} == {n * n, n * n}

        # The rows in reverse, whose order the permutation undoes.
        antidiagonal = for i <- 1..n, j <- 1..n, do: if(i + j == n + 1, do: 1.0 * k, else: 0.0)
        reversed = {upload!(antidiagonal), @f32, {n, n}}
        {:ok, {packed, @f32, permutation}} = Native.call(lu(@f32, reversed))
        assert download!(packed) == diagonal.(k)
        {:ok, x} = Native.call(triangular_solve(@f32, a, b, permutation, []))
        assert download!(x) == Enum.map(n..1//-1, &(1.0 * &1))
      end)
    end
  end

  # In one pass, in several, and as a convolution.
  test "transforms are of the numbers of each call" do
    for n <- [8, 4096, 67] do
      often(fn k ->
        ones = upload!(List.duplicate(1.0 * k, n))
        {:ok, spectrum} = Native.call(fft(:fft, {:c, 64}, {ones, @f32, {n}}, 0, n, 1.0e-2))
        [sum, imaginary | others] = download!(spectrum)
        assert_in_delta sum, k * n, 1.0e-3 * n
        assert imaginary == 0.0 and Enum.all?(others, &(&1 == 0.0))
      end)
    end
  end
end
