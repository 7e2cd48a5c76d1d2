defmodule Nx.Vulkan.Backend.Assembly do
  @moduledoc false
  # Callbacks whose result is put together from parts. A part is `{inputs, shape, offset, strides,
  # starts}`: the first of `inputs`, as Backend.Program describes them, holds the elements of the part's
  # `shape`, and they go to the view of the result that `offset` and `strides` say, moved by `starts`, a
  # list of `{input, extent, step}`: step elements for the input's value, which is clamped to be below
  # the extent. Later parts overwrite earlier ones.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Movement, Program, Storage}
  alias Nx.Vulkan.VulkanoBackend, as: B

  def pad(%T{} = out, tensor, value, config) do
    parts =
      case padded(out, tensor, config) do
        :nothing -> [whole(out, value)]
        {:everything, part} -> [part]
        {:some, part} -> [whole(out, value), part]
      end

    assemble(:pad, [tensor, value, config], out, parts)
  end

  # Along an axis, element i of the tensor goes to low + i·step of the result, for those i that stay
  # within it: edges may be negative.
  defp padded(%T{type: type, shape: shape}, %T{shape: from} = tensor, config) do
    axes =
      Enum.zip_with([dims(from), dims(shape), config], fn [dim, length, {low, _high, interior}] ->
        step = interior + 1
        first = if low < 0, do: div(-low + step - 1, step), else: 0
        last = min(dim - 1, Integer.floor_div(length - 1 - low, step))
        {first, last - first + 1, low + first * step, step}
      end)

    in_strides = Movement.strides(from)
    out_strides = Movement.strides(shape)
    counts = Enum.map(axes, &elem(&1, 1))
    read_at = dot(Enum.map(axes, &elem(&1, 0)), in_strides)
    write_at = dot(Enum.map(axes, &elem(&1, 2)), out_strides)
    steps = Enum.zip_with(axes, out_strides, fn {_, _, _, step}, stride -> step * stride end)
    input = Storage.view(input(tensor, type), read_at, in_strides)
    part = {[input], List.to_tuple(counts), write_at, steps, []}

    cond do
      Enum.any?(counts, &(&1 <= 0)) -> :nothing
      counts == dims(shape) -> {:everything, part}
      true -> {:some, part}
    end
  end

  def concatenate(%T{type: type, shape: shape} = out, tensors, axis) do
    strides = Movement.strides(shape)
    step = Enum.at(strides, axis)

    {parts, _} =
      Enum.map_reduce(tensors, 0, fn tensor, at ->
        part = {[input(tensor, type)], tensor.shape, at * step, strides, []}
        {part, at + elem(tensor.shape, axis)}
      end)

    assemble(:concatenate, [tensors, axis], out, parts)
  end

  def stack(%T{type: type, shape: shape} = out, tensors, axis) do
    {step, strides} = List.pop_at(Movement.strides(shape), axis)

    parts =
      for {tensor, i} <- Enum.with_index(tensors),
          do: {[input(tensor, type)], tensor.shape, i * step, strides, []}

    assemble(:stack, [tensors, axis], out, parts)
  end

  def put_slice(%T{type: type, shape: shape} = out, tensor, starts, slice) do
    strides = Movement.strides(shape)
    {offset, numbers, steps} = Movement.starts(starts, dims(shape), dims(slice.shape), strides)
    numbered = for {{extent, step}, i} <- Enum.with_index(steps, 1), do: {i, extent, step}
    put = {[input(slice, type) | numbers], slice.shape, offset, strides, numbered}
    assemble(:put_slice, [tensor, starts, slice], out, [whole(out, tensor), put])
  end

  # The tensor broadcast over the whole result.
  def whole(%T{type: type, shape: shape}, tensor),
    do: {[input(tensor, type)], shape, 0, Movement.strides(shape), []}

  # Numbers are converted to the type of the result on the host.
  defp input(%T{data: %B{ref: {_, _}}} = number, type),
    do: number |> Storage.to_host() |> Nx.as_type(type) |> Storage.input()

  defp input(%T{data: %Nx.BinaryBackend{}, shape: {}} = number, type),
    do: number |> Nx.as_type(type) |> Storage.input()

  defp input(tensor, _type), do: Storage.input(tensor)

  # The result of the callback `op`; `args` are the callback's arguments after `out`, for the fallback.
  def assemble(op, args, %T{type: type, shape: shape} = out, parts) do
    # Where nothing is converted only the width matters.
    moves? = Enum.all?(parts, fn {[input | _], _, _, _, _} -> elem(input, 1) == type end)
    carry = if moves?, do: &Movement.carrier/1, else: & &1

    parts =
      for {[input | numbers], over, offset, strides, starts} <- parts,
          do:
            {[put_elem(input, 1, carry.(elem(input, 1))) | numbers], over, offset, strides,
             starts}

    Program.result(Native.call(assemble(carry.(type), shape, parts)), op, out, args)
  end

  defp dims(shape), do: Tuple.to_list(shape)
  defp dot(numbers, strides), do: Enum.sum(Enum.zip_with(numbers, strides, &*/2))
end
