defmodule Nx.Vulkan.Compiler.MapFusion do
  @moduledoc false
  # Finds the element-wise groups that share one kernel though they end with different tensors. It joins groups that
  # `Nx.Vulkan.Compiler.Fusion` has found and that no other kernel has taken; how they become programs is
  # `Nx.Vulkan.Compiler.Lowering`'s.
  #
  # - The parts of a concatenation that are computed for it alone are computed where they belong.
  # - Results of a definition that no kernel reads are computed together, such as the parameters and moments that an
  #   optimizer updates: small ones, and large ones where they read each other.
  # - Few elements that are computed from a definition's parameters alone are computed together, such as the scales of all
  #   batch norms of a network. None of them waits for another kernel.
  #
  # Groups over iteration spaces of one shape that have operations in common, or that read each other, become one
  # program, which computes these once. Others are programs of their own in the kernel.

  alias Nx.Defn.Expr
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Compiler.{Fusion, FusionGroup, GroupSteps, MapGroup}

  # Bounds of a kernel: `MAX_MAP_PARTS` of src/program, the results of a native call, and the operations of a program as
  # in `Fusion`.
  @most_parts 16
  @most_results 24
  @most_members 160
  # Bytes of parameters that devices take without a buffer for them.
  @most_parameter_bytes 256
  # What is smaller is in the caches, whatever order it is read in.
  @tiled_bytes 4 * 2 ** 20
  # Larger results fill the device by themselves. A kernel that several of them share needs what all of them read at once,
  # where one after the other frees memory. `MIN_BARRIER_BYTES` of src/graph.
  @large_bytes 4 * 2 ** 20
  # Few elements leave most of a device idle: 53 scales of ResNet-50 in kernels of their own take an H200 1 µs each, and its host 2.
  @few_bytes 64 * 2 ** 10

  @typedoc "The ids of the results, and the groups of each part: the ids of the tensors that they end with, with what is stored of them."
  @type maps :: %{
          outputs: [reference()],
          parts: [
            %{shape: tuple(), members: MapSet.t(), roots: [{reference(), MapGroup.store()}]}
          ]
        }

  @doc "What shares kernels, by the ids of the results. `state` is what `Fusion` knows of the tensors `order`."
  @spec find([T.t()], map()) :: %{reference() => maps()}
  def find(order, state) do
    concatenations =
      for %T{data: %Expr{op: :concatenate}} = tensor <- order,
          maps = concatenation(tensor, state),
          do: maps

    for maps <- concatenations ++ results(order, state),
        id <- maps.outputs,
        into: %{},
        do: {id, maps}
  end

  ## Concatenations

  defp concatenation(%T{data: %Expr{id: id, args: [parts, axis]}} = tensor, state) do
    parts = Enum.map(parts, &Fusion.resolve/1)

    if length(parts) <= @most_parts and Enum.all?(parts, &computed?(&1, tensor, state)) do
      {roots, _end} =
        Enum.map_reduce(parts, 0, fn part, start ->
          root = {part.data.id, MapGroup.store(0, tensor.shape, {axis, start})}
          {{part.shape, root}, start + elem(part.shape, axis)}
        end)

      parts = roots |> Enum.reduce([], &join(&1, &2, state)) |> Enum.reverse()
      %{outputs: [id], parts: parts}
    end
  end

  # A concatenation converts its parts to one type, which programs of the parts do not.
  defp computed?(%T{data: %Expr{id: id}} = part, tensor, state) do
    state.kinds[id] == :elementwise and state.readers[id] == [tensor.data.id] and
      part.type == tensor.type and Nx.size(part) > 0 and not taken?(id, state) and
      not transposes_much?(part, state)
  end

  # Large transposes have kernels that go through them in tiles.
  defp transposes_much?(%T{data: %Expr{id: id}} = part, state) do
    Nx.byte_size(part) >= @tiled_bytes and
      Enum.any?(state.groups[id].members, &(state.tensors[&1].data.op == :transpose))
  end

  # What another kernel has, and what chooses elements by indices.
  defp taken?(id, state) do
    is_map_key(state.rows, id) or is_map_key(state.contractions, id) or
      state.groups[id].gathers > 0
  end

  # Adds the group to the part that it shares operations with, or as another part.
  defp join({shape, {id, _store} = root}, parts, state) do
    members = state.groups[id].members

    joined =
      Enum.find_index(parts, fn part ->
        part.shape == shape and not MapSet.disjoint?(part.members, members) and
          MapSet.size(MapSet.union(part.members, members)) <= @most_members
      end)

    if joined do
      List.update_at(parts, joined, fn part ->
        %{part | roots: part.roots ++ [root], members: MapSet.union(part.members, members)}
      end)
    else
      [%{shape: shape, members: members, roots: [root]} | parts]
    end
  end

  ## Results

  # Results of one type: where a device computes a type on the host, it computes all of a kernel there. Loops have no such
  # kernels: they carry their values in place. A branch of a `cond` computes its own values alone.
  defp results(order, %{scope: :definition} = state) do
    if Enum.any?(order, &(&1.data.op == :cond)) do
      []
    else
      Enum.flat_map([units(order, state.users, state), of_parameters(order, state)], fn units ->
        units
        |> Enum.group_by(&state.tensors[hd(&1.outputs)].type)
        |> Enum.flat_map(fn {_type, units} -> pack(units, state) end)
      end)
    end
  end

  defp results(_order, _state), do: []

  # Results that no kernel reads, each with those that only its own program reads.
  defp units(order, users, state) do
    {units, _taken} =
      order
      |> Enum.reverse()
      |> Enum.flat_map_reduce(MapSet.new(), fn %T{data: %Expr{id: id}} = tensor, taken ->
        if users[id] == [:outside] and id not in taken and result?(tensor, state) do
          start = %{
            shape: tensor.shape,
            type: tensor.type,
            members: state.groups[id].members,
            ids: [id]
          }

          part = absorb(start, users, state)
          {[unit(part, users)], MapSet.union(taken, MapSet.new(part.ids))}
        else
          {[], taken}
        end
      end)

    Enum.reverse(units)
  end

  # Each tensor of few elements that is no result, that is computed from parameters alone, and that other kernels read as it is.
  defp of_parameters(order, %{users: users} = state) do
    for %T{data: %Expr{id: id}} = tensor <- order,
        is_map_key(users, id) and :outside not in users[id],
        Nx.byte_size(tensor) <= @few_bytes,
        result?(tensor, state) and Enum.all?(state.readers[id], &reads_stored?(&1, state)),
        part = %{shape: tensor.shape, members: state.groups[id].members, ids: [id]},
        Enum.all?(inputs(part, state), &(state.tensors[&1].data.op == :parameter)),
        do: %{
          outputs: [id],
          parts: [%{shape: part.shape, members: part.members, roots: [{id, 0}]}]
        }
  end

  # Kernels that put a tensor into another may compute it themselves.
  defp reads_stored?(reader, state),
    do: state.kinds[reader] != :other or state.tensors[reader].data.op in [:dot, :conv]

  defp result?(%T{data: %Expr{id: id}} = tensor, state) do
    state.kinds[id] == :elementwise and not taken?(id, state) and
      Nx.size(tensor) > 0 and not transposes_much?(tensor, state)
  end

  defp unit(part, users) do
    outputs = for id <- part.ids, :outside in users[id], do: id
    roots = for {id, index} <- Enum.with_index(outputs), do: {id, index}
    %{outputs: outputs, parts: [%{shape: part.shape, members: part.members, roots: roots}]}
  end

  # Adds what the part reads at its own indices, where nothing but the part does.
  defp absorb(part, users, state) do
    absorbed =
      Enum.find_value(inputs(part, state), fn id ->
        tensor = state.tensors[id]
        members = MapSet.union(part.members, state.groups[id].members)

        if is_map_key(users, id) and Enum.all?(users[id], &(&1 in [:outside | part.ids])) and
             {tensor.shape, tensor.type} == {part.shape, part.type} and result?(tensor, state) and
             MapSet.size(members) <= @most_members and
             Enum.all?(part.members, &reads_elements?(state.tensors[&1], id, part.shape, state)),
           do: %{part | members: members, ids: [id | part.ids]}
      end)

    if absorbed, do: absorb(absorbed, users, state), else: part
  end

  defp reads_elements?(%T{data: %Expr{id: id}} = member, read, shape, state) do
    (state.kinds[id] == :elementwise and member.shape == shape) or
      not Enum.any?(Fusion.operands(member), &(&1.data.id == read))
  end

  # The ids of what a part reads, in one order.
  defp inputs(%{members: members}, state) do
    for member <- Enum.sort_by(members, &state.positions[&1]),
        %T{data: %Expr{id: id}} <- Fusion.operands(state.tensors[member]),
        id not in members,
        uniq: true,
        do: id
  end

  # The units in kernels that have room for them, in their order. A kernel of one result is `Fusion`'s.
  defp pack(units, state) do
    {small, large} = Enum.split_with(units, &small?(&1, state))

    small
    |> Enum.reduce([], fn unit, packed ->
      with [last | rest] <- packed,
           both = both(last, unit),
           true <- fits?(both, state),
           do: [both | rest],
           else: (_ -> [unit | packed])
    end)
    |> Enum.concat(large)
    |> Enum.filter(&(match?([_, _ | _], &1.outputs) and fits?(&1, state)))
    |> Enum.map(&%{&1 | parts: Enum.map(&1.parts, fn part -> with_stores(part) end)})
  end

  # The results of a unit have one shape.
  defp small?(%{outputs: [id | _]}, state), do: Nx.byte_size(state.tensors[id]) < @large_bytes

  # The second's results come after those of the first.
  defp both(%{outputs: outputs, parts: parts}, unit) do
    first = length(outputs)

    moved =
      for part <- unit.parts, do: %{part | roots: for({id, i} <- part.roots, do: {id, first + i})}

    %{outputs: outputs ++ unit.outputs, parts: parts ++ moved}
  end

  defp fits?(%{outputs: outputs, parts: parts}, state) do
    sum = fn count -> parts |> Enum.map(count) |> Enum.sum() end
    inputs = parts |> Enum.flat_map(&inputs(&1, state)) |> Enum.uniq()

    length(parts) <= @most_parts and length(outputs) <= @most_results and
      length(inputs) <= FusionGroup.most_inputs() and
      sum.(&MapSet.size(&1.members)) <= @most_members and
      sum.(&parameter_bytes(&1, state)) <= @most_parameter_bytes
  end

  # Addresses and numbers, three extents, and strides where elements are not read in their order.
  defp parameter_bytes(part, state) do
    inputs = inputs(part, state)
    constants = for id <- part.members, c <- state.groups[id].constants, uniq: true, do: c

    strided =
      Enum.count(inputs, &(Nx.size(state.tensors[&1]) not in [1, Tuple.product(part.shape)]))

    views = strided + Enum.count(part.members, &(state.kinds[&1] == :view))
    axes = if views > 0, do: 4 * (views + 1) * (tuple_size(part.shape) + 1), else: 0
    8 * (length(part.roots) + length(inputs) + length(constants)) + 12 + axes
  end

  defp with_stores(part) do
    roots = for {id, index} <- part.roots, do: {id, MapGroup.store(index, part.shape)}
    %{part | roots: roots}
  end

  ## Blocks

  @doc "The block of what shares a kernel, and the tensors that it reads."
  @spec block(maps(), map()) :: {:ok, MapGroup.t(), [T.t()]} | {:error, String.t()}
  def block(%{outputs: outputs, parts: parts}, state) do
    start = %{members: MapSet.new(), inputs: [], steps: [], values: %{}, state: state}
    {parts, built} = Enum.map_reduce(parts, start, &part/2)

    steps_of =
      for {_steps, _shape, stores} <- parts, {id, index, _} <- stores, into: %{}, do: {id, index}

    outs = for id <- outputs, do: state.tensors[id]
    results = for out <- outs, do: result(out, steps_of)

    parts =
      for {steps, shape, stores} <- parts,
          do: {steps, shape, for({_, index, store} <- stores, do: {index, store})}

    {steps, inputs} = {Enum.reverse(built.steps), Enum.reverse(built.inputs)}

    if inputs != [] and length(inputs) <= FusionGroup.most_inputs(),
      do:
        with(
          {:ok, group} <- MapGroup.new(steps, inputs, results, outs, parts),
          do: {:ok, group, inputs}
        ),
      else: {:error, "too many inputs, or none"}
  end

  defp result(%T{data: %Expr{op: :concatenate, args: [parts, axis]}}, steps),
    do: {:concatenate, for(part <- parts, do: steps[Fusion.resolve(part).data.id]), axis}

  defp result(%T{data: %Expr{id: id}}, steps), do: {:step, steps[id]}

  # The steps of a part. Steps of another are over another iteration space.
  defp part(%{shape: shape, members: members, roots: roots}, built) do
    first = length(built.steps)
    values = Map.filter(built.values, &match?({_id, {:input, _}}, &1))
    built = %{built | members: members, values: values}

    {stores, built} =
      Enum.map_reduce(roots, built, fn {id, store}, built ->
        {{:step, index}, built} = GroupSteps.step(built.state.tensors[id], built)
        {{id, index, store}, built}
      end)

    {{first..(length(built.steps) - 1)//1, shape, stores}, built}
  end
end
