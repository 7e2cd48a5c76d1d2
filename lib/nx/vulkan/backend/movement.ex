defmodule Nx.Vulkan.Backend.Movement do
  @moduledoc false
  # Callbacks that move elements without computing: each reads one strided view of the tensor, which is an
  # element offset and a stride for each axis of the result. Only the width of the type matters, and
  # elements are copied as unsigned integers: reading and writing them as floats might change them.

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Dispatch, Storage}
  alias Nx.Vulkan.ProgramBuilder
  alias Nx.Vulkan.VulkanoBackend, as: B

  @compile {:inline,
            broadcast_view: 4,
            transpose_view: 2,
            reverse_view: 3,
            slice_view: 5,
            as_storage_type: 1}

  # No copy: the result shares the buffer. As with the other backends, deallocating one of them
  # deallocates the other.
  def reshape(out, tensor), do: share(out, tensor)
  def squeeze(out, tensor, _axes), do: share(out, tensor)
  def bitcast(out, tensor), do: share(out, tensor)
  defp share(%T{} = out, %T{data: data}), do: %{out | data: data}

  def constant(%T{shape: {}} = out, number, _options), do: Storage.number(out, number)

  def constant(%T{shape: shape} = out, number, options) do
    scalar = Storage.number(%{out | shape: {}, names: []}, number)

    operand =
      scalar
      |> Storage.operand()
      |> as_storage_type()
      |> ProgramBuilder.view(0, for(_axis <- 1..tuple_size(shape), do: 0))

    program = ProgramBuilder.single(:as_type, elem(operand, 1), [operand], shape)
    Dispatch.create(:constant, out, [number, options], program, options)
  end

  def broadcast(out, %T{shape: from} = tensor, shape, axes),
    do:
      view(
        :broadcast,
        [tensor, shape, axes],
        out,
        tensor,
        broadcast_view(from, strides(from), shape, axes)
      )

  def transpose(out, %T{shape: from} = tensor, axes),
    do: view(:transpose, [tensor, axes], out, tensor, transpose_view(strides(from), axes))

  def reverse(out, %T{shape: from} = tensor, axes),
    do: view(:reverse, [tensor, axes], out, tensor, reverse_view(from, strides(from), axes))

  # Of a whole axis each start is the first index.
  def slice(%T{shape: shape} = out, %T{shape: shape} = tensor, _starts, _lengths, _steps),
    do: share(out, tensor)

  def slice(out, %T{shape: from} = tensor, starts, lengths, steps) do
    {offset, strides, indices, chosen} = slice_view(from, strides(from), starts, lengths, steps)
    args = [tensor, starts, lengths, steps]

    if indices == [],
      do: view(:slice, args, out, tensor, {offset, strides}),
      else: gather(:slice, args, out, tensor, {offset, strides}, indices, chosen)
  end

  # The strides of the callback's view of a tensor, and the offset that they begin at, from that tensor's shape and
  # strides and the callback's options. A slice starts at integers here.
  @spec view_of(atom(), tuple(), [integer()], [term()]) :: {integer(), [integer()]}
  def view_of(:broadcast, from, strides, [shape, axes]),
    do: broadcast_view(from, strides, shape, axes)

  def view_of(:transpose, _from, strides, [axes]), do: transpose_view(strides, axes)
  def view_of(:reverse, from, strides, [axes]), do: reverse_view(from, strides, axes)

  def view_of(:slice, from, strides, [starts, lengths, steps]) do
    {offset, strides, [], []} = slice_view(from, strides, starts, lengths, steps)
    {offset, strides}
  end

  defp broadcast_view(from, strides, shape, axes),
    do: {0, broadcast_strides(axes, 0, tuple_size(shape), from, shape, 0, strides)}

  # Axis `axis` of the result is axis `i` of the tensor when it is the next of `axes`.
  defp broadcast_strides(_axes, rank, rank, _from, _shape, _i, _strides), do: []

  defp broadcast_strides([axis | axes], axis, rank, from, shape, i, [stride | strides]) do
    stride =
      case elem(from, i) do
        extent when extent == elem(shape, axis) -> stride
        1 -> 0
        _ -> raise ArgumentError, wrong_axes(from, shape)
      end

    [stride | broadcast_strides(axes, axis + 1, rank, from, shape, i + 1, strides)]
  end

  defp broadcast_strides(axes, axis, rank, from, shape, i, strides),
    do: [0 | broadcast_strides(axes, axis + 1, rank, from, shape, i, strides)]

  # `Nx.broadcast` checks its axes. Only `Nx.Defn.Expr` of Nx 0.13 gives others, where it makes one broadcast of two.
  defp wrong_axes(from, shape) do
    "cannot broadcast a tensor of shape #{inspect(from)} to #{inspect(shape)} along these axes. Nx 0.13 gives a " <>
      "definition wrong axes for a broadcast of a broadcast that both add axes: broadcast once, to the last shape"
  end

  defp transpose_view(strides, axes) do
    strides = List.to_tuple(strides)
    {0, Enum.map(axes, &elem(strides, &1))}
  end

  defp reverse_view(shape, strides, axes), do: reverse_strides(strides, 0, shape, axes, 0)

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

  # The offset and the strides of a slice of a tensor of that shape, and by starts/4 what the starts on the device add.
  def slice_view(shape, strides, starts, lengths, steps) do
    {offset, indices, chosen} = starts(starts, Tuple.to_list(shape), lengths, strides)
    {offset, Enum.zip_with(strides, steps, &*/2), indices, chosen}
  end

  # Where a region of `lengths` starts in a tensor of `dims`, clamped into it: the offset by the starts that
  # the host knows, the operands that hold those on the device or stand for them, and for each of these `{extent, stride}`, as
  # for `gather`: the number of positions and their stride.
  def starts(starts, dims, lengths, strides) do
    {offset, chosen} =
      [starts, dims, lengths, strides]
      |> Enum.zip_reduce({0, []}, fn [start, dim, length, stride], {offset, chosen} ->
        case index(start) do
          number when is_integer(number) ->
            {offset + min(max(number, 0), dim - length) * stride, chosen}

          operand ->
            {offset, [{operand, {dim - length + 1, stride}} | chosen]}
        end
      end)

    {indices, steps} = Enum.unzip(chosen)
    {offset, indices, steps}
  end

  defp index(start) when is_integer(start) or is_tuple(start), do: start
  defp index(%T{data: %B{ref: ref}} = start) when is_reference(ref), do: Storage.operand(start)
  defp index(%T{} = start), do: Nx.to_number(start)

  defp view(op, args, out, tensor, {offset, strides}) do
    operand =
      tensor |> Storage.operand() |> as_storage_type() |> ProgramBuilder.view(offset, strides)

    type = elem(operand, 1)
    Dispatch.run(op, out, args, ProgramBuilder.single(:as_type, type, [operand], out.shape))
  end

  # The view, moved by what the operands `indices` hold.
  defp gather(op, args, out, tensor, {offset, strides}, indices, steps) do
    {ref, type, _shape} = tensor |> Storage.buffer() |> as_storage_type()
    operands = [{ref, type, offset, strides} | indices]
    Dispatch.run(op, out, args, ProgramBuilder.single(:gather, type, operands, out.shape, steps))
  end

  defp as_storage_type({:scalar, type, binary}), do: {:scalar, storage_type(type), binary}
  defp as_storage_type({ref, type, shape}), do: {ref, storage_type(type), shape}

  # A type of the same width whose elements programs copy bit by bit, and that no device lacks.
  def storage_type({:c, _} = type), do: type
  def storage_type({_, size}), do: {:u, max(size, 8)}

  # Row-major, in elements.
  def strides(shape), do: strides(shape, tuple_size(shape), 1, [])
  defp strides(_shape, 0, _weight, acc), do: acc

  defp strides(shape, axis, weight, acc),
    do: strides(shape, axis - 1, weight * elem(shape, axis - 1), [weight | acc])
end
