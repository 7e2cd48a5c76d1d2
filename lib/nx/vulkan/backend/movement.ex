defmodule Nx.Vulkan.Backend.Movement do
  @moduledoc false
  # Callbacks that move elements without computing: each reads one strided view of the tensor, an
  # element offset and a stride for each axis of the result. Only the width of the type matters, so
  # elements travel as unsigned integers: reading and writing them as floats might change them.

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Program, Storage, Trace}
  alias Nx.Vulkan.VulkanoBackend, as: B

  # No copy: the result shares the buffer. As with the other backends, deallocating one of them
  # deallocates the other.
  def reshape(out, tensor), do: share(out, tensor)
  def squeeze(out, tensor, _axes), do: share(out, tensor)
  def bitcast(out, tensor), do: share(out, tensor)
  defp share(%T{} = out, %T{data: data}), do: %{out | data: data}

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
    strides = strides(shape)
    {offset, numbers, chosen} = starts(starts, Tuple.to_list(shape), lengths, strides)
    strides = Enum.zip_with(strides, steps, &*/2)
    args = [tensor, starts, lengths, steps]
    view(:slice, args, out, tensor, offset, strides, numbers, chosen)
  end

  # Where a block of `lengths` starts in a tensor of `dims`, clamped into it: the offset by the starts
  # that the host knows, the inputs that hold those on the device, and for each of these how many places
  # it chooses from and how far they are apart, as for `gather`.
  def starts(starts, dims, lengths, strides) do
    {offset, chosen} =
      [starts, dims, lengths, strides]
      |> Enum.zip_reduce({0, []}, fn [start, dim, length, stride], {offset, chosen} ->
        case index(start) do
          number when is_integer(number) ->
            {offset + min(max(number, 0), dim - length) * stride, chosen}

          input ->
            {offset, [{input, {dim - length + 1, stride}} | chosen]}
        end
      end)

    {numbers, steps} = Enum.unzip(chosen)
    {offset, numbers, steps}
  end

  defp index(start) when is_integer(start), do: start
  defp index(%T{data: %B{ref: ref}} = start) when is_reference(ref), do: Storage.input(start)
  defp index(%T{} = start), do: Nx.to_number(start)

  # `numbers` are inputs that move the view, by `steps` as in `gather`.
  defp view(op, args, out, tensor, offset, strides, numbers \\ [], steps \\ [])

  # Of an input of a program that is still to be made: it says how the program reads it.
  defp view(
         _op,
         _args,
         %T{type: type, shape: shape},
         %T{data: %B{ref: %Trace{node: {{:input, _} = ref, _, _}}}},
         offset,
         strides,
         [],
         []
       ),
       do: Trace.tensor(type, shape, {ref, type, offset, strides, shape})

  defp view(op, args, out, tensor, offset, strides, numbers, steps) do
    {node, inputs} =
      case Storage.input(tensor) do
        # One element looks the same from everywhere.
        {:scalar, type, binary} ->
          {{:as_type, carrier(type), [0]}, [{:scalar, carrier(type), binary}]}

        {ref, type, _shape} when numbers == [] ->
          {{:as_type, carrier(type), [0]}, [{ref, carrier(type), offset, strides}]}

        {ref, type, _shape} ->
          node = {:gather, carrier(type), Enum.to_list(0..length(numbers)), steps}
          {node, [{ref, carrier(type), offset, strides} | numbers]}
      end

    Program.run(op, out, args, [node], inputs, out.shape)
  end

  # A type of the same width whose elements programs copy bit by bit, and that no device lacks.
  def carrier({:c, _} = type), do: type
  def carrier({_, size}), do: {:u, max(size, 8)}

  # Row-major, in elements.
  def strides(shape), do: strides(shape, tuple_size(shape), 1, [])
  defp strides(_shape, 0, _weight, acc), do: acc

  defp strides(shape, axis, weight, acc),
    do: strides(shape, axis - 1, weight * elem(shape, axis - 1), [weight | acc])
end
