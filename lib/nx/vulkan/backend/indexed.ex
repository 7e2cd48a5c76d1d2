defmodule Nx.Vulkan.Backend.Indexed do
  @moduledoc false
  # Elements chosen by indices: `gather`, `indexed_add`, `indexed_put`, and the blocks `Take` and
  # `TakeAlongAxis`. It checks bounds, and says which axes indices choose from; it chooses no kernels.
  #
  # Reading by indices is a program of one `gather`: the tensor is a view whose remaining axes are
  # those of the result, and each index moves its offset by steps of its axis.
  #
  # Indices out of bounds raise as in BinaryBackend: those that the host holds here, those on the device when
  # the result is read. The kernel that uses them reports them, and what is computed from the result carries the
  # report along (src/memory/bounds.rs). Types that cannot hold a wrong index are not checked.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Dispatch, Movement, ProgramRecorder, Storage}
  alias Nx.Vulkan.ProgramBuilder
  alias Nx.Vulkan.VulkanoBackend, as: B

  ## Reading

  def gather(out, %T{shape: shape} = tensor, %T{shape: indices_shape} = indices, options) do
    axes = options[:axes]
    depth = length(axes)
    others = Nx.axes(shape) -- axes
    check = check!(:gather, indices, depth, axes, shape)

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
    |> choose(tensor, tensor_strides, inputs, Enum.map(axes, &step(shape, strides, &1)), check)
    |> Dispatch.result(:gather, out, [tensor, indices, options])
  end

  # `:default` where the device does not compute with the types.
  def take(out, %T{shape: shape} = tensor, %T{shape: indices_shape} = indices, axis) do
    check = check!(:take, indices, 1, [axis], shape)
    {strides, index_strides, step} = taken(shape, indices_shape, axis)
    index = ProgramBuilder.view(Storage.operand(indices), 0, index_strides)

    out
    |> choose(tensor, strides, [index], [step], check)
    |> Dispatch.block(:take, out)
  end

  # The strides of a tensor and of indices for the elements that they choose along the axis, and what an index moves by: extent and
  # stride of the axis.
  def taken(shape, indices_shape, axis) do
    strides = strides(shape)
    {leading, [_ | trailing]} = strides |> Tuple.to_list() |> Enum.split(axis)
    zeros = fn list -> Enum.map(list, fn _ -> 0 end) end
    by_index = indices_shape |> strides() |> Tuple.to_list()
    index_strides = zeros.(leading) ++ by_index ++ zeros.(trailing)
    {leading ++ zeros.(by_index) ++ trailing, index_strides, step(shape, strides, axis)}
  end

  def take_along_axis(out, %T{shape: shape} = tensor, %T{shape: indices_shape} = indices, axis) do
    check = check!(:take_along_axis, indices, 1, Nx.axes(shape), shape, axis)
    strides = strides(shape)
    index = ProgramBuilder.view(Storage.operand(indices), 0, Movement.strides(indices_shape))
    tensor_strides = strides |> Tuple.to_list() |> List.replace_at(axis, 0)

    out
    |> choose(tensor, tensor_strides, [index], [step(shape, strides, axis)], check)
    |> Dispatch.block(:take_along_axis, out)
  end

  # `indices` and `steps`: the operands that are indices, and extent and stride of the axis of each.
  defp choose(%T{shape: shape}, tensor, strides, indices, steps, check) do
    {ref, type, _shape} = Storage.buffer(tensor)
    type = Movement.storage_type(type)
    operands = [{ref, type, 0, strides} | indices]
    attribute = if check, do: {steps, check}, else: steps
    Dispatch.compute(ProgramBuilder.single(:gather, type, operands, shape, attribute))
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
    check = check!(op, indices, length(axes), axes, target.shape)

    if ProgramRecorder.recording?() do
      if check, do: {:ok, _chosen} = report(target, indices, axes, check)
      recorded_scatter(mode, op, out, target, indices, updates, options)
    else
      launched_scatter({mode, op, type}, out, target, indices, updates, options, check)
    end
  end

  # Reads what is to be updated: that reports indices out of bounds.
  defp report(%T{shape: shape} = target, indices, axes, check) do
    depth = length(axes)
    {ref, type, _shape} = Storage.buffer(target)
    type = Movement.storage_type(type)
    all = Storage.operand(indices)
    inputs = for k <- 0..(depth - 1), do: ProgramBuilder.view(all, k, [depth])
    steps = Enum.map(axes, &step(shape, strides(shape), &1))
    rows = {div(Nx.size(indices), depth)}
    operands = [{ref, type, 0, [0]} | inputs]
    Dispatch.compute(ProgramBuilder.single(:gather, type, operands, rows, {steps, check}))
  end

  defp launched_scatter({mode, op, type}, out, target, indices, updates, options, check) do
    axes = options[:axes]
    [target_arg, updates_arg] = for tensor <- [target, updates], do: as(type, out.type, tensor)

    Native.call(
      scatter(mode, type, target_arg, Storage.buffer(indices), updates_arg, axes, check)
    )
    |> Dispatch.result(op, out, [target, indices, updates, options])
  end

  # As steps of a loop or a chain: each element looks for its updates, along a last axis. Sums of several floats are
  # rounded in another order than those of the kernel; one is put in the place of what it is added to.
  defp recorded_scatter(
         :add,
         :indexed_add,
         %T{type: {kind, _}} = out,
         target,
         indices,
         updates,
         options
       )
       when kind not in [:s, :u] do
    cond do
      Nx.size(indices) == length(options[:axes]) ->
        sum = target |> Nx.gather(indices, options) |> Nx.add(updates) |> Nx.as_type(out.type)
        recorded_scatter(:put, :indexed_add, out, target, indices, sum, options)

      ProgramRecorder.mode() == :loop ->
        raise(ArgumentError, "sums of floats")

      true ->
        searched_scatter(:add, :indexed_add, out, target, indices, updates, options)
    end
  end

  defp recorded_scatter(mode, op, out, target, indices, updates, options),
    do: searched_scatter(mode, op, out, target, indices, updates, options)

  defp searched_scatter(mode, op, %T{type: type} = out, target, indices, updates, options) do
    found = if mode == :add, do: {:sum, type}, else: {:reduce_max, {:u, 32}}
    args = [target, indices, updates, options]

    with {:ok, ref} <- Dispatch.compute(search(found, out, indices, updates, options[:axes])) do
      out
      |> updated(mode, ref, Storage.operand(target), updates, options[:axes])
      |> Dispatch.compute()
      |> Dispatch.result(op, out, args)
    else
      error -> Dispatch.result(error, op, out, args)
    end
  end

  # For each element the sum of its updates, or the number of the last one, counted from 1.
  defp search({reduction, type}, %T{shape: shape}, indices, updates, axes) do
    rank = tuple_size(shape)
    depth = length(axes)
    {ref, index_type, _shape} = Storage.buffer(indices)
    {others, row} = update_strides(shape, updates, axes)
    view = fn offset, stride -> {ref, index_type, offset, List.duplicate(0, rank) ++ [stride]} end

    builder =
      ProgramBuilder.new(Tuple.insert_at(shape, rank, div(Nx.size(indices), depth)))
      |> ProgramBuilder.input(:zero, Storage.integer(0, {:u, 32}))
      |> ProgramBuilder.input(:one, Storage.integer(1, {:u, 32}))
      |> ProgramBuilder.op(:row, :iota, {:u, 32}, [], rank)
      |> ProgramBuilder.op(:count, :add, {:u, 32}, [:row, :one])

    builder =
      for {axis, k} <- Enum.with_index(axes), reduce: builder do
        builder ->
          builder =
            builder
            |> ProgramBuilder.input({:index, k}, view.(k, depth))
            |> ProgramBuilder.op({:at, k}, :iota, index_type, [], axis)
            |> ProgramBuilder.op({:own, k}, :equal, {:u, 8}, [{:index, k}, {:at, k}])

          if k == 0,
            do: ProgramBuilder.op(builder, {:own?, 0}, :as_type, {:u, 8}, [{:own, 0}]),
            else:
              ProgramBuilder.op(builder, {:own?, k}, :logical_and, {:u, 8}, [
                {:own?, k - 1},
                {:own, k}
              ])
      end

    update = ProgramBuilder.view(Storage.operand(updates), 0, others ++ [row])
    builder = ProgramBuilder.input(builder, :update, update)
    value = if reduction == :sum, do: :update, else: :count

    builder
    |> ProgramBuilder.op(:chosen, :select, type, [{:own?, depth - 1}, value, :zero])
    |> ProgramBuilder.op(:found, reduction, type, [:chosen], [rank])
    |> ProgramBuilder.program()
  end

  defp updated(%T{type: type, shape: shape}, :add, sums, target, _updates, _axes) do
    ProgramBuilder.single(:add, type, [target, {sums, type, shape}], shape)
  end

  defp updated(%T{type: type, shape: shape}, :put, numbers, target, updates, axes) do
    {ref, from, _shape} = Storage.buffer(updates)
    {others, row} = update_strides(shape, updates, axes)
    rows = if row == 0, do: 1, else: div(Nx.size(updates), row)

    ProgramBuilder.new(shape)
    |> ProgramBuilder.input(:updates, {ref, from, 0, others})
    |> ProgramBuilder.input(:number, {numbers, {:u, 32}, shape})
    |> ProgramBuilder.input(:target, target)
    |> ProgramBuilder.input(:one, Storage.integer(1, {:u, 32}))
    |> ProgramBuilder.op(:last, :max, {:u, 32}, [:number, :one])
    |> ProgramBuilder.op(:row, :subtract, {:u, 32}, [:last, :one])
    |> ProgramBuilder.op(:update, :gather, from, [:updates, :row], [{rows, row}])
    |> ProgramBuilder.op(:updated, :select, type, [:number, :update, :target])
    |> ProgramBuilder.program()
  end

  # The strides of the updates along the axes of the target, and from one row of indices to the next.
  defp update_strides(shape, updates, axes) do
    others = Nx.axes(shape) -- axes
    own = Enum.take(Movement.strides(updates.shape), -length(others))
    by_axis = Map.new(Enum.zip(others, if(others == [], do: [], else: own)))
    row = Enum.product(Enum.map(others, &elem(shape, &1)))
    {Enum.map(Nx.axes(shape), &Map.get(by_axis, &1, 0)), row}
  end

  defp as(storage_type, type, tensor) do
    {ref, from, shape} = Storage.buffer(tensor)
    {ref, if(from == type, do: storage_type, else: from), shape}
  end

  ## Bounds

  # What the kernel's check of the indices reports, whose last axis has `depth`: `{op, shape, axes}`, or `nil`
  # where none can be out of bounds. Of indices that the host holds the first one, in their order, that is not
  # an index of its axis raises. As in BinaryBackend, the message shows the shape with the chosen axes first.
  defp check!(op, indices, depth, axes, shape, only \\ 0) do
    {dims, shape} = dims(depth, axes, shape, only)

    cond do
      not Enum.any?(dims, &may_exceed?(indices.type, &1)) -> nil
      # A chain clamps them.
      ProgramRecorder.mode() == :chain -> nil
      host?(indices) -> find!(indices, dims, only, shape)
      true -> {op, shape, Enum.to_list(only..(only + depth - 1))}
    end
  end

  # What a kernel checks of indices of a type that choose along these axes; `nil` where none is wrong.
  def check(op, type, axes, shape) do
    {dims, shape} = dims(length(axes), axes, shape, 0)

    if Enum.any?(dims, &may_exceed?(type, &1)),
      do: {op, shape, Enum.to_list(0..(length(axes) - 1))}
  end

  # The extents that indices choose from, and the shape with their axes first.
  defp dims(depth, axes, shape, only) do
    order = axes ++ (Nx.axes(shape) -- axes)
    shape = order |> Enum.map(&elem(shape, &1)) |> List.to_tuple()
    {for(k <- 0..(depth - 1), do: elem(shape, only + k)), shape}
  end

  # Whether the type holds an index that is none of the axis.
  defp may_exceed?({:s, _bits}, _dim), do: true
  defp may_exceed?({:u, bits}, dim), do: dim < 2 ** bits

  defp host?(%T{data: %B{ref: ref}}), do: ref == nil
  defp host?(%T{}), do: true

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

    nil
  end

  defp strides(shape), do: List.to_tuple(Movement.strides(shape))
end
