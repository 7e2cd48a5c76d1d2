defmodule Bench.Irregular do
  @moduledoc "Shapes and types that are no multiple of a tile. The set `irregular` of `bench/peers.py` has the same cases."

  import Bench.Measure

  def all(device) when device in [:gpu, :cpu] do
    gpu = device == :gpu
    k = if gpu, do: 8192, else: 2048
    batch = if gpu, do: 8192, else: 256
    cube = if gpu, do: {512, 512, 512}, else: {128, 128, 128}
    rows = if gpu, do: 2 ** 25, else: 2 ** 20
    n = if gpu, do: 2 ** 28, else: 2 ** 22
    box = if gpu, do: {32, 24, 40, 48, 56}, else: {8, 12, 16, 20, 24}

    [
      matmul("matmul_f32_1000x777x1503", :f32, {1000, 777}, {777, 1503}),
      matmul("matmul_bf16_1000x777x1503", :bf16, {1000, 777}, {777, 1503}),
      matmul("matvec_f32_1x#{k}x#{k}", :f32, {1, k}, {k, k}),
      matmul("matmul_f32_#{batch}_of_32x32", :f32, {batch, 32, 32}, {batch, 32, 32}),
      pass("sum_middle_axis", :f32, [cube], 4, &Nx.sum(&1, axes: [1])),
      pass("sum_over_3", :f32, [{rows, 3}], 4, &Nx.sum(&1, axes: [1])),
      pass("sum_1e8", :f32, [{100_000_000}], 4, &Nx.sum/1),
      pass("transpose_rank5", :f32, [box], 8, &Nx.transpose(&1, axes: [4, 2, 0, 3, 1])),
      # A column and a row. Their own bytes are negligible; those of the result count.
      pass("add_column_to_row", :f32, [{k, 1}, {1, k}], 4 * k, &Nx.add/2),
      pass("add_u8", :u8, [{n}, {n}], 3, &Nx.add/2),
      pass("sum_u8", :u8, [{n}], 1, &Nx.sum/1),
      pass("add_bf16", :bf16, [{n}, {n}], 6, &Nx.add/2),
      pass("sum_axis1_bf16", :bf16, [{k, k}], 2, &Nx.sum(&1, axes: [1]))
    ]
  end

  # A matrix multiplication, or a batch of them.
  defp matmul(name, type, left, right) do
    {name, "GFLOP/s",
     fn ->
       [a, b] = data(type, [left, right])
       rank = tuple_size(left)
       batch = Enum.to_list(0..(rank - 3)//1)
       multiply = fn -> Nx.dot(a, [rank - 1], batch, b, [rank - 2], batch) end
       2 * Nx.size(left) * elem(right, rank - 1) / median(multiply, 9) / 1.0e9
     end}
  end

  # An operation that moves `bytes` bytes for each element of its first operand.
  defp pass(name, type, [first | _] = shapes, bytes, fun) do
    {name, "GB/s",
     fn ->
       tensors = data(type, shapes)
       bytes * Nx.size(first) / median(fn -> apply(fun, tensors) end, 15) / 1.0e9
     end}
  end

  # Small positive numbers, which every type holds.
  defp data(type, shapes) do
    for {shape, seed} <- Enum.with_index(shapes),
        do: Nx.as_type(Nx.abs(Nx.multiply(normal(shape, seed), 8)), type)
  end
end
