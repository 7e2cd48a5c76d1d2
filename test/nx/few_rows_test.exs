defmodule Nx.Vulkan.FewRowsTest do
  @moduledoc """
  Products of 1 to 70 rows with a matrix, in either order and with the matrix transposed or not, against `Nx.BinaryBackend`.
  Sizes are such that a CPU device takes its kernel of few rows, and a GPU cooperative matrices where it has some, and beyond.
  """

  use Nx.Vulkan.Test.Case, async: true

  @types [{:f, 32}, {:bf, 16}, {:f, 16}, {:s, 32}, {:u, 8}, {:f, 8}]

  # A matrix is `{columns, depth}`: of whole blocks along k, of whole tiles of columns, one that has no vectors of four, and those of
  # cooperative matrices, with a rest of a step along k and of a tile.
  @matrices [{260, 128}, {128, 260}, {131, 129}, {64, 512}, {200, 584}]

  # Whether the rows come first, and whether the matrix and the rows are contiguous along k.
  @orders for(a <- [true, false], b <- [true, false], c <- [true, false], do: {a, b, c})

  test "whole numbers give the same, and a NaN stays in its column" do
    for type <- @types do
      {columns, depth} = Generators.pick(@matrices)

      {rows, order} =
        {Generators.pick([:rand.uniform(17), :rand.uniform(70)]), Generators.pick(@orders)}

      left = Generators.tensor({rows, depth}, type, {:integer, 0..3})

      narrow? = type in [{:bf, 16}, {:f, 16}]
      others = if narrow?, do: [type, {:s, 8}, {:u, 8}], else: [type, {:f, 32}]
      other = Generators.pick(others)
      right = Generators.tensor({depth, columns}, other, {:integer, 0..3})

      at = Nx.tensor([[:rand.uniform(depth) - 1, :rand.uniform(columns) - 1]])
      nan = Nx.tensor([if(Nx.Type.float?(other), do: :nan, else: 1)], type: other)
      right = Nx.indexed_put(right, at, nan)
      fun = fn [left, right] -> product(order, left, right) end
      context = [type: type, rows: rows, order: order, matrix: right.shape]
      result = fun.([to_device(left), to_device(right)])
      assert_same(result, nearest(fun, [left, right]), :dot, context)
    end
  end

  if Nx.Vulkan.has_f64() do
    test "infinities and NaN give what they give in f64" do
      for type <- [{:f, 32}, {:bf, 16}, {:f, 16}], {columns, depth} <- [{768, 768} | @matrices] do
        {rows, order} = {Generators.pick([1, 1, 3]), Generators.pick(@orders)}
        left = {rows, depth} |> Generators.tensor(type, {:integer, -2..2}) |> with_infinities(3)

        right =
          {depth, columns} |> Generators.tensor(type, {:integer, -2..2}) |> with_infinities(40)

        [left, right] = Enum.map([left, right], &to_device/1)
        exact = product(order, Nx.as_type(left, :f64), Nx.as_type(right, :f64))
        context = [type: type, rows: rows, order: order, matrix: {depth, columns}]

        assert_same(
          product(order, left, right),
          Nx.backend_copy(Nx.as_type(exact, type), Nx.BinaryBackend),
          :dot,
          context
        )
      end
    end
  end

  test "sums are rounded once" do
    for type <- [{:f, 32}, {:bf, 16}, {:f, 16}], {columns, depth} <- [{768, 3072} | @matrices] do
      rows = if depth > 1000, do: 1, else: Generators.pick([1, :rand.uniform(16)])
      order = Generators.pick(@orders)
      left = Generators.tensor({rows, depth}, type, {:float, -3.0, 3.0})
      right = Generators.tensor({depth, columns}, type, {:float, -3.0, 3.0})
      [wide_left, wide_right] = for tensor <- [left, right], do: Nx.as_type(tensor, :f64)
      exact = product(order, wide_left, wide_right)
      magnitudes = product(order, Nx.abs(wide_left), Nx.abs(wide_right))
      result = product(order, to_device(left), to_device(right))
      assert result.type == type

      # Half an ulp, and what the sums themselves are off by: those in bf16 may be in f32, and those of several rows are not
      # compensated where there are no doubles.
      sums =
        cond do
          type == {:bf, 16} -> depth * 2.0 ** -24 / (epsilon(type) / 2)
          Nx.Vulkan.has_f64() -> 2.0 ** -16
          true -> 2 * depth
        end

      scale = Nx.add(Nx.abs(exact), Nx.multiply(magnitudes, sums))
      context = [type: type, rows: rows, order: order, matrix: right.shape]
      assert_bound(Nx.as_type(result, :f64), exact, scale, epsilon(type) / 2, context)
    end
  end

  # The tensor with so many elements that are infinite or NaN.
  defp with_infinities(%{shape: {rows, columns}, type: type} = tensor, count) do
    at = for _ <- 1..count, do: [:rand.uniform(rows) - 1, :rand.uniform(columns) - 1]
    values = for _ <- 1..count, do: Generators.pick([:infinity, :neg_infinity, :nan])
    Nx.indexed_put(tensor, Nx.tensor(at), Nx.tensor(values, type: type))
  end

  defp product({rows_first?, matrix_along_k?, rows_along_k?}, rows, matrix) do
    {rows, row_axis} = if rows_along_k?, do: {rows, 1}, else: {stored_transposed(rows), 0}
    {matrix, axis} = if matrix_along_k?, do: {stored_transposed(matrix), 1}, else: {matrix, 0}

    if rows_first?,
      do: Nx.dot(rows, [row_axis], matrix, [axis]),
      else: Nx.dot(matrix, [axis], rows, [row_axis])
  end

  # The transpose as a tensor of its own.
  defp stored_transposed(tensor),
    do: Nx.backend_copy(Nx.transpose(tensor), tensor.data.__struct__)
end
