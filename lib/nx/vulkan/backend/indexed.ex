defmodule Nx.Vulkan.Backend.Indexed do
  @moduledoc false
  # Elements chosen by indices: `gather`, `indexed_add`, `indexed_put`, and the blocks `Take` and
  # `TakeAlongAxis`. It checks bounds, and says which axes indices choose from; it chooses no kernels.
  #
  # Reading by indices is a program of one `gather`: the tensor is a view whose remaining axes are
  # those of the result, and each index moves its offset by steps of its axis.
  #
  # Indices out of bounds raise as in BinaryBackend. Those on the device are reduced to one flag, which
  # is read: that waits for the device. Types that cannot hold a wrong index are not checked.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.{Error, ProgramBuilder}
  alias Nx.Vulkan.Backend.{Dispatch, Movement, Storage}
  alias Nx.Vulkan.VulkanoBackend, as: B

  ## Reading

  def gather(out, %T{shape: shape} = tensor, %T{shape: indices_shape} = indices, options) do
    axes = options[:axes]
    depth = length(axes)
    others = Nx.axes(shape) -- axes
    check!(indices, depth, axes, shape)

    # The result: the rows of the indices, then the axes that no index chooses from.
    rows = tuple_size(indices_shape) - 1
    strides = strides(shape)
    other_strides = Enum.map(others, &elem(strides, &1))
    row_strides = indices_shape |> strides() |> Tuple.to_list() |> Enum.take(rows)
    index_strides = row_strides ++ Enum.map(others, fn _ -> 0 end)
    all = Storage.operand(indices)
    # Of each row of indices the kth.
    inputs = for k <- 0..(depth - 1), do: ProgramBuilder.view(all, k, index_strides)
    tensor_strides = List.duplicate(0, rows) ++ other_strides

    out
    |> choose(tensor, tensor_strides, inputs, Enum.map(axes, &step(shape, strides, &1)))
    |> Dispatch.result(:gather, out, [tensor, indices, options])
  end

  # `:default` where the device does not compute with the types.
  def take(out, %T{shape: shape} = tensor, %T{shape: indices_shape} = indices, axis) do
    check!(indices, 1, [axis], shape)
    strides = strides(shape)
    {leading, [_ | trailing]} = strides |> Tuple.to_list() |> Enum.split(axis)
    zeros = fn list -> Enum.map(list, fn _ -> 0 end) end
    by_index = indices_shape |> strides() |> Tuple.to_list()
    index_strides = zeros.(leading) ++ by_index ++ zeros.(trailing)
    index = ProgramBuilder.view(Storage.operand(indices), 0, index_strides)
    tensor_strides = leading ++ zeros.(by_index) ++ trailing

    out
    |> choose(tensor, tensor_strides, [index], [step(shape, strides, axis)])
    |> Dispatch.block(:take, out)
  end

  def take_along_axis(out, %T{shape: shape} = tensor, %T{shape: indices_shape} = indices, axis) do
    check!(indices, 1, Nx.axes(shape), shape, axis)
    strides = strides(shape)
    index = ProgramBuilder.view(Storage.operand(indices), 0, Movement.strides(indices_shape))
    tensor_strides = strides |> Tuple.to_list() |> List.replace_at(axis, 0)

    out
    |> choose(tensor, tensor_strides, [index], [step(shape, strides, axis)])
    |> Dispatch.block(:take_along_axis, out)
  end

  # `indices` and `steps`: the operands that are indices, and extent and stride of the axis of each.
  defp choose(%T{shape: shape}, tensor, strides, indices, steps) do
    {ref, type, _shape} = Storage.buffer(tensor)
    type = Movement.storage_type(type)
    operands = [{ref, type, 0, strides} | indices]
    Dispatch.compute(ProgramBuilder.single(:gather, type, operands, shape, steps))
  end

  defp step(shape, strides, axis), do: {elem(shape, axis), elem(strides, axis)}

  ## Writing

  def indexed_add(out, target, indices, updates, options),
    do: scatter(:add, :indexed_add, out.type, out, target, indices, updates, options)

  # Where nothing is converted only the width matters.
  def indexed_put(%T{type: type} = out, target, indices, updates, options) do
    type =
      if target.type == type and updates.type == type, do: Movement.storage_type(type), else: type

    scatter(:put, :indexed_put, type, out, target, indices, updates, options)
  end

  defp scatter(mode, op, type, out, target, indices, updates, options) do
    axes = options[:axes]
    check!(indices, length(axes), axes, target.shape)
    [target_arg, updates_arg] = for tensor <- [target, updates], do: as(type, out.type, tensor)

    Native.call(scatter(mode, type, target_arg, Storage.buffer(indices), updates_arg, axes))
    |> Dispatch.result(op, out, [target, indices, updates, options])
  end

  defp as(storage_type, type, tensor) do
    {ref, from, shape} = Storage.buffer(tensor)
    {ref, if(from == type, do: storage_type, else: from), shape}
  end

  ## Bounds

  # Raises for the first index, in the order of `indices`, whose last axis has `depth`, that is not an
  # index of its axis. As BinaryBackend does, the message shows the shape with the chosen axes first.
  defp check!(indices, depth, axes, shape, only \\ 0) do
    order = axes ++ (Nx.axes(shape) -- axes)
    shape = order |> Enum.map(&elem(shape, &1)) |> List.to_tuple()
    dims = for k <- 0..(depth - 1), do: elem(shape, only + k)
    limits = Enum.with_index(dims, &limit(&1, &2, indices.type))

    if Enum.any?(limits, & &1) and (host?(indices) or out_of_bounds?(indices, depth, limits)),
      do: find!(indices, dims, only, shape)

    :ok
  end

  # `{index of the limit, can it be negative, largest allowed or nil if the type holds no larger}`
  defp limit(dim, k, {kind, bits}) do
    largest = if kind == :s, do: 2 ** (bits - 1) - 1, else: 2 ** bits - 1
    upper = if dim - 1 < largest, do: dim - 1
    if kind == :s or upper, do: {k, kind == :s, upper}
  end

  # Indices that the host holds are checked there.
  defp host?(%T{data: %B{ref: ref}}), do: ref == nil
  defp host?(%T{}), do: true

  # Programs have at most 255 values.
  defp out_of_bounds?(indices, depth, limits) do
    limits
    |> Enum.filter(& &1)
    |> Enum.chunk_every(16)
    |> Enum.any?(&some_out_of_bounds?(indices, depth, &1))
  end

  defp some_out_of_bounds?(%T{type: type} = indices, depth, limits) do
    {ref, _type, _shape} = Storage.buffer(indices)

    {tests, builder} =
      Enum.flat_map_reduce(limits, ProgramBuilder.new({div(Nx.size(indices), depth)}), fn
        {k, negative?, upper}, builder ->
          builder = ProgramBuilder.input(builder, k, {ref, type, k, [depth]})
          below = if negative?, do: [{:less, k, 0}], else: []
          above = if upper, do: [{:greater, k, upper}], else: []
          tests = below ++ above
          {tests, Enum.reduce(tests, builder, &add_test(&1, type, &2))}
      end)

    {found, builder} =
      Enum.reduce(tl(tests), {hd(tests), builder}, fn test, {found, builder} ->
        both = {:or, found, test}
        {both, ProgramBuilder.op(builder, both, :logical_or, {:u, 8}, [found, test])}
      end)

    builder = ProgramBuilder.op(builder, :any, :any, {:u, 8}, [found], [0])

    with {:ok, flag} <- Dispatch.compute(ProgramBuilder.program(builder)),
         {:ok, binary} <- Native.call(buf_read(flag, 0, 1)) do
      binary != <<0>>
    else
      # Checked on the host then.
      {:error, :unsupported, _} -> true
      error -> Error.raise!(:indices, error)
    end
  end

  # A comparison of an index with a limit is its own key.
  defp add_test({comparison, k, limit} = test, type, builder) do
    builder
    |> ProgramBuilder.input({:limit, limit}, Storage.integer(limit, type))
    |> ProgramBuilder.op(test, comparison, {:u, 8}, [k, {:limit, limit}])
  end

  defp find!(indices, dims, only, shape) do
    indices
    |> Storage.to_host()
    |> Nx.to_flat_list()
    |> Enum.zip(Stream.cycle(Enum.with_index(dims, only)))
    |> Enum.each(fn {index, {dim, axis}} ->
      if index < 0 or index >= dim do
        raise ArgumentError,
              "index #{index} is out of bounds for axis #{axis} in shape #{inspect(shape)}"
      end
    end)
  end

  defp strides(shape), do: List.to_tuple(Movement.strides(shape))
end
