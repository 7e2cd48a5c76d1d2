defmodule Nx.Vulkan.Compiler.SumFusion do
  @moduledoc false
  # Finds sums that can share one kernel because they go through the same elements, as those of a batch norm's gradient do: sums of
  # one shape over the same axes, which read a tensor of that shape in common. XLA calls this sibling fusion. It joins groups that
  # `Nx.Vulkan.Compiler.Fusion` has found and that no other kernel has taken; how they become a program is
  # `Nx.Vulkan.Compiler.Lowering`'s.
  #
  # Sums share a kernel only at the same level, the number of kernels on the longest path to them. None then depends on another
  # through other kernels, as a kernel's level is above that of all it reads. What one of them reads stays in memory until the
  # others' operands are there.

  alias Nx.Defn.Expr
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.Reduction
  alias Nx.Vulkan.Compiler.{Fusion, RowFusion, SumGroup}

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

    # Most expressions have no two sums of one kind, and need no levels.
    if candidates |> Enum.frequencies_by(&kind(&1, state)) |> Enum.any?(&(elem(&1, 1) > 1)),
      do: share(candidates, levels(order, state), state),
      else: %{}
  end

  defp share(candidates, levels, state) do
    candidates
    |> Enum.group_by(fn %T{data: %Expr{id: id}} = sum -> {kind(sum, state), levels[id]} end)
    |> Enum.flat_map(fn {_kind, sums} -> pack(sums, state) end)
    |> Enum.flat_map(fn sums -> for id <- sums.outputs, do: {id, sums} end)
    |> Map.new()
  end

  defp sum?(%T{data: %Expr{id: id, op: :sum}} = sum, state) do
    not is_map_key(state.rows, id) and not is_map_key(state.contractions, id) and
      shared_inputs(sum, state) != MapSet.new()
  end

  defp sum?(_tensor, _state), do: false

  # What sums of one kernel have in common. A branch of a `cond` computes its own values alone.
  defp kind(%T{type: type, data: %Expr{id: id, args: [operand, options]}}, state) do
    %T{shape: shape} = Fusion.resolve(operand)
    {shape, Reduction.attribute(:sum, shape, options), type, state.branches[id]}
  end

  # The tensors that its kernel reads which have an element for each that it adds up.
  defp shared_inputs(%T{data: %Expr{id: id, args: [operand | _]}}, state) do
    size = Nx.size(Fusion.resolve(operand))
    MapSet.filter(state.groups[id].inputs, &(Nx.size(state.tensors[&1]) == size))
  end

  # Each sum joins the first kernel that reads a tensor that it reads.
  defp pack(sums, state) do
    for sum <- sums, reduce: [] do
      packed ->
        alone = alone(sum, state)
        read = shared_inputs(sum, state)

        joined =
          Enum.find_index(packed, fn sums ->
            not MapSet.disjoint?(sums.inputs, read) and fits?(both(sums, alone))
          end)

        if joined,
          do: List.update_at(packed, joined, &both(&1, alone)),
          else: packed ++ [alone]
    end
    |> Enum.filter(&match?([_, _ | _], &1.outputs))
  end

  defp alone(%T{data: %Expr{id: id}}, state) do
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

  ## Levels

  # The level of each tensor that is stored. Tensors of one kernel have that of the kernel, which needs all that any of them reads.
  defp levels(order, state) do
    for %T{data: %Expr{id: id}} <- order, is_map_key(state.users, id), reduce: %{} do
      levels -> levels |> level(id, state) |> elem(1)
    end
  end

  defp level(levels, id, state) do
    case levels do
      %{^id => level} ->
        {level, levels}

      %{} ->
        {computed, read} = kernel(id, state)

        {level, levels} =
          Enum.reduce(Enum.uniq(read) -- computed, {0, levels}, fn id, {most, levels} ->
            {level, levels} = level(levels, id, state)
            {max(most, level + 1), levels}
          end)

        {level, Map.merge(levels, Map.new(computed, &{&1, level}))}
    end
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
        built -> operand |> Fusion.resolve() |> Fusion.step(built) |> elem(1)
      end

    built = Enum.reduce(sums, built, &elem(Fusion.step(&1, &2), 1))
    inputs = Enum.reverse(built.inputs)

    with {:ok, group} <- SumGroup.new(Enum.reverse(built.steps), inputs, length(sums)),
         do: {:ok, group, inputs}
  end
end
