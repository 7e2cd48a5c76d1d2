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
  The id of that operation for each tensor that has one. `order` has all tensors, each after those that it reads, `readers` the
  ids of what reads each, and `kinds` what each is to `Nx.Vulkan.Compiler.Fusion`.
  """
  @spec find([T.t()], map(), map()) :: %{reference() => reference()}
  def find(order, readers, kinds) do
    positions =
      order |> Enum.with_index() |> Map.new(fn {t, index} -> {t.data.id, {index, t}} end)

    order
    |> Enum.reverse()
    |> Enum.reduce(%{}, fn %T{data: %Expr{id: id}} = tensor, found ->
      with true <- kinds[id] in [:elementwise, :view, :reshape],
           true <- Enum.all?(readers[id], &same_elements?(&1, tensor, positions, kinds)),
           {:ok, meeting} <- meeting(readers[id], found, positions),
           do: Map.put(found, id, meeting),
           else: (_ -> found)
    end)
  end

  # A reduction goes through its operand's elements, and nothing after it does.
  defp same_elements?(:outside, _tensor, _positions, _kinds), do: false

  defp same_elements?(reader, %T{shape: shape}, positions, kinds) do
    {_index, %T{shape: read_over}} = positions[reader]
    kinds[reader] == :reduction or (kinds[reader] == :elementwise and read_over == shape)
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
    if elem(positions[a], 0) < elem(positions[b], 0),
      do: intersect(found[a], b, found, positions),
      else: intersect(a, found[b], found, positions)
  end
end
