defmodule Nx.Vulkan.Backend.Movement do
  @moduledoc false
  # Callbacks that move elements without computing: each reads one strided view of the tensor, an
  # element offset and a stride for each axis of the result. Only the width of the type matters, so the
  # types that kernels cannot compute with travel as unsigned integers.

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Program, Storage}

  # No copy: the result shares the buffer. As with the other backends, deallocating one of them
  # deallocates the other.
  def share(%T{} = out, %T{data: data}), do: %{out | data: data}

  def constant(%T{shape: {}} = out, number, _options), do: Storage.number(out, number)

  def constant(%T{shape: shape} = out, number, _options) do
    scalar = %{out | shape: {}, names: []}
    broadcast(out, Storage.number(scalar, number), shape, [])
  end

  def broadcast(%T{} = out, %T{shape: from} = tensor, shape, axes) do
    strides = broadcast_strides(axes, 0, tuple_size(shape), from, shape, 0, strides(from))
    view(:broadcast, [tensor, shape, axes], out, tensor, 0, strides)
  end

  # Axis `axis` of the result is axis `i` of the tensor when it is the next of `axes`.
  defp broadcast_strides(_axes, rank, rank, _from, _shape, _i, _strides), do: []

  defp broadcast_strides([axis | axes], axis, rank, from, shape, i, [stride | strides]) do
    stride = if elem(from, i) == elem(shape, axis), do: stride, else: 0
    [stride | broadcast_strides(axes, axis + 1, rank, from, shape, i + 1, strides)]
  end

  defp broadcast_strides(axes, axis, rank, from, shape, i, strides),
    do: [0 | broadcast_strides(axes, axis + 1, rank, from, shape, i, strides)]

  def transpose(out, %T{shape: shape} = tensor, axes) do
    strides = List.to_tuple(strides(shape))
    view(:transpose, [tensor, axes], out, tensor, 0, Enum.map(axes, &elem(strides, &1)))
  end

  def reverse(out, %T{shape: shape} = tensor, axes) do
    {offset, strides} = reverse_strides(strides(shape), 0, shape, axes, 0)
    view(:reverse, [tensor, axes], out, tensor, offset, strides)
  end

  # `axes` are sorted.
  defp reverse_strides([stride | strides], axis, shape, [axis | axes], offset) do
    offset = offset + stride * (elem(shape, axis) - 1)
    {offset, strides} = reverse_strides(strides, axis + 1, shape, axes, offset)
    {offset, [-stride | strides]}
  end

  defp reverse_strides([stride | strides], axis, shape, axes, offset) do
    {offset, strides} = reverse_strides(strides, axis + 1, shape, axes, offset)
    {offset, [stride | strides]}
  end

  defp reverse_strides([], _axis, _shape, [], offset), do: {offset, []}

  def slice(out, %T{shape: shape} = tensor, starts, lengths, steps) do
    {offset, strides} = slice_strides(strides(shape), 0, shape, starts, lengths, steps, 0)
    view(:slice, [tensor, starts, lengths, steps], out, tensor, offset, strides)
  end

  defp slice_strides([stride | strides], axis, shape, [s | starts], [l | lengths], [d | steps], o) do
    start = min(max(index(s), 0), elem(shape, axis) - l)
    o = o + start * stride
    {o, strides} = slice_strides(strides, axis + 1, shape, starts, lengths, steps, o)
    {o, [stride * d | strides]}
  end

  defp slice_strides([], _axis, _shape, [], [], [], o), do: {o, []}

  # A start that is a tensor is read: views are made on the host.
  defp index(start) when is_integer(start), do: start
  defp index(%T{} = start), do: Nx.to_number(start)

  defp view(op, args, %T{shape: shape} = out, tensor, offset, strides) do
    {input, type} =
      case Storage.input(tensor) do
        # One element looks the same from everywhere.
        {:scalar, type, binary} ->
          {{:scalar, carrier(type), binary}, carrier(type)}

        {ref, type, _shape} ->
          {{ref, carrier(type), offset, strides}, carrier(type)}
      end

    Program.run(op, out, args, [{:as_type, type, [0]}], [input], shape)
  end

  defp carrier({:c, 64}), do: {:u, 64}
  defp carrier({:f, 8}), do: {:u, 8}
  defp carrier({:f8_e4m3fn, 8}), do: {:u, 8}
  defp carrier(type), do: type

  # Row-major, in elements.
  defp strides(shape), do: strides(shape, tuple_size(shape), 1, [])
  defp strides(_shape, 0, _weight, acc), do: acc

  defp strides(shape, axis, weight, acc),
    do: strides(shape, axis - 1, weight * elem(shape, axis - 1), [weight | acc])
end
