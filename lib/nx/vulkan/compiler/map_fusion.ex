defmodule Nx.Vulkan.Compiler.MapFusion do
  @moduledoc false
  # Finds concatenations whose parts are computed for them alone: one kernel computes each part where it belongs. It
  # joins groups that `Nx.Vulkan.Compiler.Fusion` has found and that no other kernel has taken; how they become
  # programs is `Nx.Vulkan.Compiler.Lowering`'s.
  #
  # Groups over iteration spaces of one shape that have operations in common become one program, which computes these
  # once. Others are programs of their own in the kernel.

  alias Nx.Defn.Expr
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Compiler.{Fusion, FusionGroup, MapGroup}

  # Bounds of a kernel: `MAX_MAP_PARTS` of src/program, and the inputs and operations of a program as in `Fusion`.
  @most_parts 16
  @most_members 160
  # What is smaller is in the caches, whatever order it is read in.
  @tiled_bytes 4 * 2 ** 20

  @typedoc "The ids of the results, and the groups of each part: the ids of the tensors that they end with, with what is stored of them."
  @type maps :: %{
          outputs: [reference()],
          parts: [%{shape: tuple(), roots: [{reference(), MapGroup.store()}]}]
        }

  @doc "What shares kernels, by the ids of the results. `state` is what `Fusion` knows of the tensors `order`."
  @spec find([T.t()], map()) :: %{reference() => maps()}
  def find(order, state) do
    for %T{data: %Expr{id: id, op: :concatenate}} = tensor <- order,
        maps = concatenation(tensor, state),
        into: %{},
        do: {id, maps}
  end

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

  defp taken?(id, state), do: is_map_key(state.rows, id) or is_map_key(state.contractions, id)

  # Adds the group to the part that it shares operations with, or as another part.
  defp join({shape, {id, _store} = root}, parts, state) do
    members = state.groups[id].members

    joined =
      Enum.find_index(parts, fn part ->
        own = members(part, state)
        shared = MapSet.intersection(own, members)

        part.shape == shape and MapSet.size(shared) > 0 and
          MapSet.size(MapSet.union(own, members)) <= @most_members
      end)

    if joined,
      do: List.update_at(parts, joined, &%{&1 | roots: &1.roots ++ [root]}),
      else: [%{shape: shape, roots: [root]} | parts]
  end

  defp members(part, state) do
    for {id, _store} <- part.roots, reduce: MapSet.new() do
      members -> MapSet.union(members, state.groups[id].members)
    end
  end

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
  defp part(%{shape: shape, roots: roots} = part, built) do
    first = length(built.steps)
    values = Map.filter(built.values, &match?({_id, {:input, _}}, &1))
    built = %{built | members: members(part, built.state), values: values}

    {stores, built} =
      Enum.map_reduce(roots, built, fn {id, store}, built ->
        {{:step, index}, built} = Fusion.step(built.state.tensors[id], built)
        {{id, index, store}, built}
      end)

    {{first..(length(built.steps) - 1)//1, shape, stores}, built}
  end
end
