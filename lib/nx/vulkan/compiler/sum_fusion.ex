defmodule Nx.Vulkan.Compiler.SumFusion do
  @moduledoc false
  # Finds sums that can share one kernel because they go through the same elements, as those of a batch norm's gradient do: sums of
  # one shape over the same axes, which read a tensor of that shape in common. XLA calls this sibling fusion. It joins groups that
  # `Nx.Vulkan.Compiler.Fusion` has found and that no other kernel has taken; how they become a program is
  # `Nx.Vulkan.Compiler.Lowering`'s.
  #
  # Sums share a kernel only at the same level, the number of kernels on the longest path to them. None then depends on another
  # through other kernels, as a kernel's level is above that of all it reads. The kernels that this makes, with one sum or more, share
  # one where they are at the same height, the number of kernels on the longest path from them, for the same reason: the sums of a
  # layer norm's gradient wait for different numbers of kernels, and only results need them. What one of them reads stays in memory
  # until the others' operands are there.

  alias Nx.Defn.Expr
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.Reduction
  alias Nx.Vulkan.Compiler.{Fusion, GroupSteps, RowFusion, SumGroup}

  # Sums of a program: `MAX_PROGRAM_SUMS` of src/program.
  @most_sums 4
  def most_sums, do: @most_sums

  @typedoc "The ids of the sums, of the operations of their groups, and of the tensors that these read, with their constants."
  @type sums :: %{
          outputs: [reference()],
          members: MapSet.t(),
          inputs: MapSet.t(),
          constants: MapSet.t()
        }

  @doc "The sums that share kernels, by their ids. `state` is what `Fusion` knows of the tensors `order`."
  @spec find([T.t()], map()) :: %{reference() => sums()}
  def find(order, state) do
    candidates = for %T{} = tensor <- order, sum?(tensor, state), do: tensor

    alone =
      for %T{data: %Expr{id: id}} = sum <- candidates, do: {kind(sum, state), alone(id, state)}

    alone
    |> share(&levels/1, order, state)
    |> share(&heights/1, order, state)
    |> Enum.flat_map(fn {_kind, sums} -> for id <- sums.outputs, do: {id, sums} end)
    |> Enum.filter(&match?({_id, %{outputs: [_, _ | _]}}, &1))
    |> Map.new()
  end

  # Sums with their kinds: those of one kind and rank share kernels. `ranks` gives the rank of each tensor from all kernels. Most
  # expressions have no two sums of one kind, and need no ranks.
  defp share(sums, ranks, order, state) do
    if sums |> Enum.frequencies_by(&elem(&1, 0)) |> Enum.any?(&(elem(&1, 1) > 1)) do
      ranks = sums |> Enum.map(&elem(&1, 1)) |> kernels(order, state) |> ranks.()

      sums
      |> Enum.group_by(fn {kind, %{outputs: [id | _]}} -> {kind, ranks[id]} end, &elem(&1, 1))
      |> Enum.flat_map(fn {{kind, _rank}, sums} -> Enum.map(pack(sums, state), &{kind, &1}) end)
    else
      sums
    end
  end

  defp sum?(%T{data: %Expr{id: id, op: :sum}}, state) do
    not is_map_key(state.rows, id) and not is_map_key(state.contractions, id) and
      elements(alone(id, state), state) != MapSet.new()
  end

  defp sum?(_tensor, _state), do: false

  # What sums of one kernel have in common. A branch of a `cond` computes its own values alone.
  defp kind(%T{type: type, data: %Expr{id: id, args: [operand, options]}}, state) do
    %T{shape: shape} = Fusion.resolve(operand)
    {shape, Reduction.attribute(:sum, shape, options), type, state.branches[id]}
  end

  # Each kernel's sums join the first one that reads a tensor that they read, of those with an element for each that they add up.
  defp pack(kernels, state) do
    for sums <- kernels, reduce: [] do
      packed ->
        read = elements(sums, state)

        joined =
          Enum.find_index(packed, fn other ->
            not MapSet.disjoint?(other.inputs, read) and fits?(both(other, sums))
          end)

        if joined,
          do: List.update_at(packed, joined, &both(&1, sums)),
          else: packed ++ [sums]
    end
  end

  # The tensors that the kernel of a sum reads which have an element for each that it adds up.
  defp elements(%{outputs: [id | _], inputs: inputs}, state) do
    %T{data: %Expr{args: [operand | _]}} = state.tensors[id]
    size = Nx.size(Fusion.resolve(operand))
    MapSet.filter(inputs, &(Nx.size(state.tensors[&1]) == size))
  end

  defp alone(id, state) do
    %{members: members, inputs: inputs, constants: constants} = state.groups[id]
    %{outputs: [id], members: members, inputs: inputs, constants: constants}
  end

  defp both(a, b) do
    %{
      outputs: a.outputs ++ b.outputs,
      members: MapSet.union(a.members, b.members),
      inputs: MapSet.union(a.inputs, b.inputs),
      constants: MapSet.union(a.constants, b.constants)
    }
  end

  defp fits?(%{outputs: outputs} = sums),
    do: length(outputs) <= @most_sums and Fusion.small?(sums)

  ## Levels and heights

  # The level of each tensor. Tensors of one kernel have that of the kernel, which needs all that any of them reads.
  defp levels(kernels), do: longest_paths(kernels, fn {_computed, read} -> read end)

  # The height of each tensor.
  defp heights(kernels) do
    readers =
      for {id, {_computed, read}} <- kernels, input <- read, reduce: %{} do
        readers -> Map.update(readers, input, [id], &[id | &1])
      end

    longest_paths(kernels, fn {computed, _read} ->
      Enum.flat_map(computed, &Map.get(readers, &1, []))
    end)
  end

  # For each tensor the number of kernels on the longest path along `next`, which gives the tensors that follow a kernel.
  defp longest_paths(kernels, next) do
    for {id, _kernel} <- kernels, reduce: %{} do
      paths -> paths |> path(id, kernels, next) |> elem(1)
    end
  end

  defp path(paths, id, kernels, next) do
    case paths do
      %{^id => length} ->
        {length, paths}

      %{} ->
        {computed, _read} = kernel = kernels[id]

        {length, paths} =
          Enum.reduce(Enum.uniq(next.(kernel)) -- computed, {0, paths}, fn id, {most, paths} ->
            {length, paths} = path(paths, id, kernels, next)
            {max(most, length + 1), paths}
          end)

        {length, Map.merge(paths, Map.new(computed, &{&1, length}))}
    end
  end

  # What the kernel of each tensor that is stored computes and reads, and the kernels of all that these read.
  defp kernels(sums, order, state) do
    of_sums =
      for %{outputs: outputs, inputs: inputs} <- sums, id <- outputs, into: %{} do
        {id, {outputs, MapSet.to_list(inputs)}}
      end

    stored = for %T{data: %Expr{id: id}} <- order, is_map_key(state.users, id), do: id
    with_kernels(%{}, stored, of_sums, state)
  end

  defp with_kernels(kernels, ids, of_sums, state) do
    Enum.reduce(ids, kernels, fn id, kernels ->
      if is_map_key(kernels, id) do
        kernels
      else
        {_computed, read} = kernel = of_sums[id] || kernel(id, state)
        kernels |> Map.put(id, kernel) |> with_kernels(read, of_sums, state)
      end
    end)
  end

  # The ids of the tensors that the kernel of a tensor computes, and of those that it reads.
  defp kernel(id, %{rows: rows, contractions: contractions} = state) do
    case {rows, contractions} do
      {%{^id => %{roots: roots}}, _} ->
        computed = Map.keys(roots)
        {computed, Enum.flat_map(computed, &RowFusion.inputs(state.tensors[&1], state))}

      # What follows a product may read it by way of a reshape, which is no input of the kernel.
      {_, %{^id => %{result: result, product: product, inputs: inputs}}} ->
        {[result.data.id, product.data.id], for(input <- inputs, do: input.data.id)}

      {_, _} ->
        {[id], RowFusion.inputs(state.tensors[id], state)}
    end
  end

  ## Blocks

  @doc "The block of the sums, and the tensors that it reads."
  @spec block(sums(), map()) :: {:ok, SumGroup.t(), [T.t()]} | {:error, String.t()}
  def block(%{outputs: outputs, members: members}, state) do
    sums = for id <- outputs, do: state.tensors[id]
    start = %{members: members, inputs: [], steps: [], values: %{}}

    # The sums are the last steps.
    built =
      for %T{data: %Expr{args: [operand | _]}} <- sums, reduce: start do
        built -> operand |> Fusion.resolve() |> GroupSteps.step(built) |> elem(1)
      end

    built = Enum.reduce(sums, built, &elem(GroupSteps.step(&1, &2), 1))
    inputs = Enum.reverse(built.inputs)

    with {:ok, group} <- SumGroup.new(Enum.reverse(built.steps), inputs, length(sums)),
         do: {:ok, group, inputs}
  end
end
