defmodule Nx.Vulkan.Compiler.Branches do
  @moduledoc false
  # Finds the branches of `cond`s that tensors are computed for alone. It knows nothing of groups.

  alias Nx.Defn.{Composite, Expr}
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Compiler.Fusion

  @typedoc "From the outermost on, each `cond`, and which of its predicates and bodies read the tensor."
  @type path :: [{cond_id :: reference(), positions :: [pos_integer()]}]

  @doc """
  The branches of each tensor by its id, nothing where there is no `cond`. `order` has all tensors, each after those that
  it reads, and `readers` what reads them.
  """
  @spec find([T.t()], %{reference() => [reference() | :outside]}) :: %{reference() => path()}
  def find(order, readers) do
    positions =
      for %T{data: %Expr{op: :cond, id: id}} = tensor <- order,
          into: %{},
          do: {id, positions(tensor)}

    if positions == %{}, do: %{}, else: paths(order, readers, positions)
  end

  @doc "Whether a branch of the `cond` is on the path."
  @spec within?(path() | nil, reference()) :: boolean()
  def within?(path, cond_id), do: List.keymember?(path || [], cond_id, 0)

  defp paths(order, readers, positions) do
    for %T{data: %Expr{id: id}} <- Enum.reverse(order), reduce: %{} do
      paths ->
        of_readers =
          for reader <- readers[id] do
            case positions do
              _ when reader == :outside -> []
              %{^reader => read} -> paths[reader] ++ branch(reader, read[id])
              %{} -> paths[reader]
            end
          end

        Map.put(paths, id, Enum.reduce(of_readers, &common/2))
    end
  end

  # The first predicate is always evaluated.
  defp branch(cond_id, positions),
    do: if(0 in positions, do: [], else: [{cond_id, Enum.sort(positions)}])

  # What two branches of a `cond` read is computed in each.
  defp common([same | a], [same | b]), do: [same | common(a, b)]
  defp common([{id, a} | _], [{id, b} | _]), do: [{id, Enum.uniq(Enum.sort(a ++ b))}]
  defp common(_a, _b), do: []

  # The places where the `cond` reads each tensor.
  defp positions(%T{data: %Expr{args: [clauses, last]}}) do
    read = Enum.flat_map(clauses, &Tuple.to_list/1) ++ [last]

    for {part, position} <- Enum.with_index(read),
        tensor <- Composite.flatten_list([part]),
        %T{data: %Expr{id: id}} = Fusion.resolve(tensor),
        reduce: %{} do
      positions -> Map.update(positions, id, [position], &[position | &1])
    end
  end
end
