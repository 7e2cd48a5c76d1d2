defmodule Nx.Vulkan.Compiler.UpdateFusion do
  @moduledoc false
  # Finds tensors that are put into others, or padded, and are computed for that alone, or are views: the kernel that puts
  # them there computes them, or reads them where they are. It joins groups that `Nx.Vulkan.Compiler.Fusion` has found and
  # that no other kernel has taken.

  alias Nx.Defn.Expr
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Compiler.{ContractionFusion, Fusion, FusionGroup, GroupSteps, UpdateGroup}

  @typedoc "The id of the result, and the operations that lead to the update."
  @type update :: %{outputs: [reference()], update: MapSet.t()}

  @doc "The updates by the ids of their results. `state` is what `Fusion` knows of the tensors `order`."
  @spec find([T.t()], map()) :: %{reference() => update()}
  def find(order, state) do
    for %T{data: %Expr{id: id}} = tensor <- order,
        {_target, _starts, update} <- [put(tensor)],
        members = members(Fusion.resolve(update), tensor, state),
        into: %{},
        do: {id, %{outputs: [id], update: members}}
  end

  # What is put into what, and where: a padded tensor is put into the padding value.
  defp put(%T{data: %Expr{op: :put_slice, args: [target, starts, update]}}),
    do: {target, starts, update}

  defp put(%T{data: %Expr{op: :pad, args: [update, value, config]}}) do
    if Nx.size(update) > 0 and
         Enum.all?(config, &match?({low, high, 0} when low >= 0 and high >= 0, &1)),
       do: {value, for({low, _high, _interior} <- config, do: low), update}
  end

  defp put(_tensor), do: nil

  defp members(%T{data: %Expr{id: id}} = update, tensor, state) do
    case state.kinds[id] do
      _
      when update.type != tensor.type or is_map_key(state.contractions, id) or
             is_map_key(state.rows, id) ->
        nil

      :view ->
        MapSet.new(ContractionFusion.view(id, state))

      :elementwise ->
        if state.readers[id] == [tensor.data.id] and state.groups[id].gathers == 0,
          do: state.groups[id].members

      _ ->
        nil
    end
  end

  @doc "The block of an update, and the tensors that it reads."
  @spec block(update(), map()) :: {:ok, UpdateGroup.t(), [T.t()]} | {:error, String.t()}
  def block(%{outputs: [id], update: members}, state) do
    %T{shape: shape} = tensor = state.tensors[id]
    {target, starts, update} = put(tensor)
    target = Fusion.resolve(target)

    {starts, inputs} =
      Enum.map_reduce(starts, [target], fn start, inputs ->
        case start do
          %T{} -> start(Fusion.resolve(start), inputs)
          index -> {index, inputs}
        end
      end)

    built = %{members: members, inputs: inputs, steps: [], values: %{}}
    {_value, built} = GroupSteps.step(Fusion.resolve(update), built)
    inputs = Enum.reverse(built.inputs)

    with true <- length(inputs) <= FusionGroup.most_inputs(),
         {:ok, group} <- UpdateGroup.new(Enum.reverse(built.steps), inputs, starts, shape),
         do: {:ok, group, inputs},
         else: (_ -> {:error, "too many values, or nothing to compute"})
  end

  defp start(%T{data: %Expr{op: :constant, args: [index]}}, inputs), do: {index, inputs}
  defp start(tensor, inputs), do: {{:input, length(inputs)}, [tensor | inputs]}
end
