defmodule Nx.Vulkan.Compiler.Convergence do
  @moduledoc false
  # Finds the operation at which everything that is computed from a tensor comes together again: its immediate
  # post-dominator, where element-wise operations over the same elements lie between. It knows no groups.
  #
  # Algorithm: K. Cooper, T. Harvey, K. Kennedy, "A Simple, Fast Dominance Algorithm" (2001), on a graph without cycles,
  # where one pass from the results on suffices.

  alias Nx.Defn.Expr
  alias Nx.Tensor, as: T

  @doc """
  The id of that operation for each tensor that has one. `order` has all tensors, each after those that it reads, and `state`
  what `Nx.Vulkan.Compiler.Fusion` knows of them.
  """
  @spec find([T.t()], map()) :: %{reference() => reference()}
  def find(order, %{readers: readers, kinds: kinds, positions: positions} = state) do
    order
    |> Enum.reverse()
    |> Enum.reduce(%{}, fn %T{data: %Expr{id: id}} = tensor, found ->
      with true <- kinds[id] in [:elementwise, :view, :reshape],
           true <- Enum.all?(readers[id], &same_elements?(&1, tensor, state)),
           {:ok, meeting} <- meeting(readers[id], found, positions),
           do: Map.put(found, id, meeting),
           else: (_ -> found)
    end)
  end

  # A reduction goes through its operand's elements, and nothing after it does.
  defp same_elements?(:outside, _tensor, _state), do: false

  defp same_elements?(reader, %T{shape: shape}, %{kinds: kinds, tensors: tensors}) do
    kinds[reader] == :reduction or
      (kinds[reader] == :elementwise and tensors[reader].shape == shape)
  end

  defp meeting([reader | readers], found, positions) do
    Enum.reduce_while(readers, {:ok, reader}, fn reader, {:ok, meeting} ->
      case intersect(reader, meeting, found, positions) do
        nil -> {:halt, :none}
        meeting -> {:cont, {:ok, meeting}}
      end
    end)
  end

  # What is computed later has the larger position.
  defp intersect(same, same, _found, _positions), do: same
  defp intersect(nil, _b, _found, _positions), do: nil
  defp intersect(_a, nil, _found, _positions), do: nil

  defp intersect(a, b, found, positions) do
    if positions[a] < positions[b],
      do: intersect(found[a], b, found, positions),
      else: intersect(a, found[b], found, positions)
  end
end
