defmodule Nx.Vulkan.Backend.StridedCopy do
  @moduledoc false
  # Callbacks whose result is put together from regions, copied ones for the most part. It says where each region goes,
  # and leaves the kernels to one NIF call.
  #
  # A region is `{operands, shape, offset, strides, starts}`: the first operand holds the elements of the
  # region's `shape`, and they go to the view of the result that `offset` and `strides` say. `starts` move
  # that view: each is `{operand, extent, step}`, `step` elements for each unit of the operand's value,
  # which is clamped to be below `extent`. Later regions overwrite earlier ones. A region whose elements are computed
  # begins with the nodes of their program, whose inputs are the first operands.

  import Nx.Vulkan.Backend.NarrowFloat, only: [is_narrow: 1]

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Dispatch, Movement, ProgramRecorder, Storage}
  alias Nx.Vulkan.ProgramBuilder
  alias Nx.Vulkan.VulkanoBackend, as: B

  def pad(%T{} = out, tensor, value, config) do
    regions =
      case padded(out, tensor, config) do
        :nothing -> [whole(out, value)]
        {:everything, region} -> [region]
        {:some, region} -> [whole(out, value), region]
      end

    copy(:pad, [tensor, value, config], out, regions)
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
    operand = ProgramBuilder.view(operand(tensor, type), read_at, in_strides)
    region = {[operand], List.to_tuple(counts), write_at, steps, []}

    cond do
      Enum.any?(counts, &(&1 <= 0)) -> :nothing
      counts == dims(shape) -> {:everything, region}
      true -> {:some, region}
    end
  end

  def concatenate(%T{type: type, shape: shape} = out, tensors, axis) do
    strides = Movement.strides(shape)
    step = Enum.at(strides, axis)

    {regions, _} =
      Enum.map_reduce(tensors, 0, fn tensor, at ->
        region = {[operand(tensor, type)], tensor.shape, at * step, strides, []}
        {region, at + elem(tensor.shape, axis)}
      end)

    copy(:concatenate, [tensors, axis], out, regions)
  end

  def stack(%T{type: type, shape: shape} = out, tensors, axis) do
    {step, strides} = List.pop_at(Movement.strides(shape), axis)

    regions =
      for {tensor, i} <- Enum.with_index(tensors),
          do: {[operand(tensor, type)], tensor.shape, i * step, strides, []}

    copy(:stack, [tensors, axis], out, regions)
  end

  def put_slice(%T{type: type} = out, tensor, starts, slice) do
    put = at(out, starts, [operand(slice, type)], slice.shape)
    copy(:put_slice, [tensor, starts, slice], out, [whole(out, tensor), put])
  end

  @doc "The region of that shape at an index of the result, some of whose coordinates are tensors."
  def at(%T{shape: shape}, starts, operands, over) do
    strides = Movement.strides(shape)
    {offset, indices, steps} = Movement.starts(starts, dims(shape), dims(over), strides)
    first = length(operands)
    starts_at = for {{extent, step}, i} <- Enum.with_index(steps, first), do: {i, extent, step}
    {operands ++ indices, over, offset, strides, starts_at}
  end

  @doc "The region with the elements that nodes compute of its operands, but for the indices of its starts."
  def computed({operands, shape, offset, strides, starts}, nodes) do
    indices = length(starts)
    inputs = length(operands) - indices

    # Nodes are counted after all operands.
    moved = &if(&1 < inputs, do: &1, else: &1 + indices)
    nodes = for node <- nodes, do: put_elem(node, 2, Enum.map(elem(node, 2), moved))
    {nodes, operands, shape, offset, strides, starts}
  end

  # The tensor broadcast over the whole result.
  def whole(%T{type: type, shape: shape}, tensor),
    do: {[operand(tensor, type)], shape, 0, Movement.strides(shape), []}

  # Numbers are converted to the type of the result on the host.
  defp operand(%T{data: %B{scalar: {_, _}}} = number, type),
    do: number |> Storage.to_host() |> operand(type)

  defp operand(%T{data: %Nx.BinaryBackend{}, shape: {}, type: from} = number, type)
       when is_narrow(type) and from != type,
       do: %{number | type: type} |> Storage.number(Nx.to_number(number)) |> Storage.operand()

  defp operand(%T{data: %Nx.BinaryBackend{}, shape: {}} = number, type),
    do: number |> Nx.as_type(type) |> Storage.operand()

  defp operand(tensor, _type), do: Storage.operand(tensor)

  # The result of the callback `op`; `args` are the callback's arguments after `out`, for the fallback.
  def copy(op, args, out, regions), do: Dispatch.result(assemble(out, regions), op, out, args)

  @doc "What the NIF answers to the regions of a tensor like `out`: a reference, or an error."
  def assemble(%T{type: type, shape: shape}, regions) do
    # Where nothing is converted only the width matters.
    moves? = Enum.all?(regions, &moves?(&1, type))
    stored = if moves?, do: &Movement.storage_type/1, else: & &1
    regions = Enum.map(regions, &with_nodes(&1, stored.(type), stored))
    ProgramRecorder.assemble(stored.(type), shape, regions)
  end

  defp moves?({[operand | _], _, _, _, _}, type), do: elem(operand, 1) == type
  defp moves?(_computed, _type), do: true

  defp with_nodes({[operand | indices], shape, offset, strides, starts}, type, stored) do
    operands = [put_elem(operand, 1, stored.(elem(operand, 1))) | indices]
    {[{:as_type, type, [0]}], operands, shape, offset, strides, starts}
  end

  defp with_nodes(computed, _type, _stored), do: computed

  defp dims(shape), do: Tuple.to_list(shape)
  defp dot(numbers, strides), do: Enum.sum(Enum.zip_with(numbers, strides, &*/2))
end
