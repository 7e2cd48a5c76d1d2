defmodule Nx.Vulkan.Backend.Reduction do
  @moduledoc false
  # Reductions over axes of the program's iteration space, which is the tensor's shape, and dot.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Movement, Program, Storage}

  def reduce(op, out, %T{shape: shape} = tensor, options) do
    nodes = [node(op, out, tensor, 0, options)]
    Program.run(op, out, [tensor, options], nodes, [Storage.input(tensor)], shape)
  end

  # The callback as a program's last node, which reduces the tensor at the index `place`.
  @spec node(atom(), T.t(), T.t(), non_neg_integer(), keyword()) :: tuple()
  def node(op, %T{type: type}, _tensor, place, options) when op in [:argmax, :argmin],
    do: {op, type, [place], {options[:axis], options[:tie_break]}}

  def node(op, %T{type: type}, %T{shape: shape}, place, options),
    do: {op, type, [place], Enum.sort(options[:axes] || Nx.axes(shape))}

  # A product with a vector reads each element of the other operand once: that is a sum. Others go to the
  # kernels that read an element many times.
  def dot(out, left, left_contract, left_batch, right, right_contract, right_batch) do
    args = [left, left_contract, left_batch, right, right_contract, right_batch]
    free_left = Nx.axes(left) -- (left_contract ++ left_batch)
    free_right = Nx.axes(right) -- (right_contract ++ right_batch)
    type = wide(out.type)

    if left_contract != [] and (one?(left, free_left) or one?(right, free_right)) and
         Storage.on_device?(type),
       do: sum(out, args, type, free_left, free_right),
       else: product(out, args)
  end

  # Iterates over the axes of the result, then over those that are summed.
  defp sum(out, args, type, free_left, free_right) do
    [left, left_contract, left_batch, right, right_contract, right_batch] = args
    no = fn axes -> Enum.map(axes, fn _ -> nil end) end
    space_left = left_batch ++ free_left ++ no.(free_right) ++ left_contract
    space_right = right_batch ++ no.(free_left) ++ free_right ++ right_contract

    shape =
      Enum.zip_with(space_left, space_right, fn
        nil, axis -> elem(right.shape, axis)
        axis, _ -> elem(left.shape, axis)
      end)

    summed = Enum.to_list((length(shape) - length(left_contract))..(length(shape) - 1)//1)
    nodes = [{:multiply, type, [0, 1]}, {:sum, out.type, [2], summed}]
    inputs = [view(left, space_left), view(right, space_right)]
    Program.run(:dot, out, args, nodes, inputs, List.to_tuple(shape))
  end

  defp view(%T{shape: shape} = tensor, axes) do
    {ref, type, _shape} = Storage.buffer(tensor)
    strides = Movement.strides(shape)
    {ref, type, 0, Enum.map(axes, &if(&1, do: Enum.at(strides, &1), else: 0))}
  end

  defp one?(%T{shape: shape}, axes), do: Enum.all?(axes, &(elem(shape, &1) == 1))

  # What products are formed in, as by BinaryBackend.
  defp wide({kind, size}) when kind in [:f, :bf] and size < 64, do: {:f, 64}
  defp wide({:f8_e4m3fn, _}), do: {:f, 64}
  defp wide({:c, 64}), do: {:c, 128}
  defp wide(type), do: type

  defp product(out, args) do
    [left, left_contract, left_batch, right, right_contract, right_batch] = args
    {a, b} = {Storage.buffer(left), Storage.buffer(right)}

    Native.call(dot(out.type, a, left_contract, left_batch, b, right_contract, right_batch))
    |> Program.result(:dot, out, args)
  end
end
