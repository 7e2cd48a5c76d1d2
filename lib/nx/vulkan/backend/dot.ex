defmodule Nx.Vulkan.Backend.Dot do
  @moduledoc false
  # Products of two tensors over any axes. Which kernels form them is decided in src/kernels, for products
  # with a vector, too. As a step of a loop a product is a program.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Vulkan.Backend.{Dispatch, Movement, ProgramRecorder, Storage}
  alias Nx.Vulkan.ProgramBuilder

  def dot(out, left, left_contract, left_batch, right, right_contract, right_batch) do
    args = [left, left_contract, left_batch, right, right_contract, right_batch]
    {a, b} = {Storage.buffer(left), Storage.buffer(right)}

    answer =
      if ProgramRecorder.recording?() do
        {{a, a_type, a_shape}, {b, b_type, b_shape}} = {a, b}
        left = {a_shape, Movement.strides(a_shape), left_contract, left_batch}
        right = {b_shape, Movement.strides(b_shape), right_contract, right_batch}
        {axes, swap?} = axes(left, right, Movement.strides(out.shape))

        [a, b] =
          if swap?, do: [{b, b_type, 0}, {a, a_type, 0}], else: [{a, a_type, 0}, {b, b_type, 0}]

        Dispatch.compute(program(out.type, a, b, axes))
      else
        Native.call(dot(out.type, a, left_contract, left_batch, b, right_contract, right_batch))
      end

    Dispatch.result(answer, :dot, out, args)
  end

  @typedoc "A factor's shape and strides, its contracted axes and its batch axes."
  @type factor :: {tuple(), [integer()], [non_neg_integer()], [non_neg_integer()]}

  @doc """
  The axes of the contraction that is a product, as the NIF `contract` takes them, whether its operands are to be
  swapped for these. `strides` are those of the product's axes where it is written, which need not be in their order.

  The innermost axis of what is written is one of the second operand's: adjacent elements are written at once.
  """
  @spec axes(factor(), factor(), [integer()]) :: {tuple(), boolean()}
  def axes({_, _, contract, batch} = left, {_, _, right_contract, right_batch} = right, strides) do
    {rows, columns} = {free(left), free(right)}
    {batch_strides, strides} = Enum.split(strides, length(batch))
    {row_strides, column_strides} = Enum.split(strides, length(rows))
    both = fn i, j, c -> {dim(left, i), stride(left, i), stride(right, j), c} end

    batch = Enum.zip_with([batch, right_batch, batch_strides], fn [i, j, c] -> both.(i, j, c) end)
    rows = Enum.zip_with(rows, row_strides, &{dim(left, &1), stride(left, &1), 0, &2})
    columns = Enum.zip_with(columns, column_strides, &{dim(right, &1), 0, stride(right, &1), &2})
    depth = Enum.zip_with(contract, right_contract, &both.(&1, &2, 0))

    if Enum.any?(rows, fn {dim, _, _, c} -> dim > 1 and c == 1 end),
      do: {{swap(batch), swap(columns), swap(rows), swap(depth), []}, true},
      else: {{batch, rows, columns, depth, []}, false}
  end

  defp swap(axes), do: for({dim, a, b, c} <- axes, do: {dim, b, a, c})

  @doc """
  The product of `{reference, type, offset}` as a program: the sum over the contracted axes, which come last, of
  products. Those of narrow floats are exact in f64; a chain has them in its own type, as devices may lack f64.
  """
  @spec program(Nx.Type.t(), operand, operand, tuple()) :: ProgramBuilder.program()
        when operand: {term(), Nx.Type.t(), integer()}
  def program(
        type,
        {a, a_type, a_offset},
        {b, b_type, b_offset},
        {batch, rows, columns, depth, []}
      ) do
    # An axis of one index has any stride.
    kept = Enum.sort_by(batch ++ rows ++ columns, fn {dim, _, _, c} -> {dim != 1, -c} end)
    axes = kept ++ depth
    shape = axes |> Enum.map(&elem(&1, 0)) |> List.to_tuple()
    left = {a, a_type, a_offset, Enum.map(axes, &elem(&1, 1))}
    right = {b, b_type, b_offset, Enum.map(axes, &elem(&1, 2))}
    reduced = Enum.to_list(length(kept)..(tuple_size(shape) - 1)//1)

    ProgramBuilder.new(shape)
    |> ProgramBuilder.input(:left, left)
    |> ProgramBuilder.input(:right, right)
    |> ProgramBuilder.op(:product, :multiply, widened(type), [:left, :right])
    |> ProgramBuilder.op(:sum, :sum, type, [:product], reduced)
    |> ProgramBuilder.program()
  end

  defp free({shape, _strides, contract, batch}),
    do: Enum.to_list(0..(tuple_size(shape) - 1)//1) -- (contract ++ batch)

  defp dim({shape, _strides, _contract, _batch}, axis), do: elem(shape, axis)
  defp stride({_shape, strides, _contract, _batch}, axis), do: Enum.at(strides, axis)

  defp widened({kind, size}) when kind in [:s, :u, :c], do: {kind, size}

  defp widened(float) do
    if ProgramRecorder.mode() == :chain,
      do: Nx.Type.merge(float, {:f, 32}),
      else: {:f, 64}
  end
end
