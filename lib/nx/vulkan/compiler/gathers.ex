defmodule Nx.Vulkan.Compiler.Gathers do
  @moduledoc false
  # What chooses elements by indices on the device: `Nx.take`, and slices that start where a tensor says. It says which of them a
  # fusion group may have; how they become part of a program is `Nx.Vulkan.Compiler.Lowering`'s.

  alias Nx.Block
  alias Nx.Defn.Expr
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Compiler.Fusion

  # Indices that are numbers of the definition are checked where it is evaluated.
  @doc "Whether the tensor is what a kernel of other operations may choose by indices."
  @spec gather?(T.t()) :: boolean()
  def gather?(%T{data: %Expr{op: :block, args: [%Block.Take{}, [tensor, indices] | _]}}),
    do: stored?(tensor) and Fusion.resolve(indices).data.op != :constant

  def gather?(%T{data: %Expr{op: :slice, args: [operand | _]}} = tensor),
    do: not static?(tensor) and stored?(operand)

  def gather?(_tensor), do: false

  # One element may be a number of the host.
  defp stored?(tensor), do: Nx.size(tensor) > 1 and Fusion.resolve(tensor).data.op != :constant

  @doc "Whether a view is the same in each call: a slice may start where a tensor says."
  @spec static?(T.t()) :: boolean()
  def static?(%T{data: %Expr{op: :slice, args: [_, starts | _]}}),
    do: Enum.all?(starts, &is_integer/1)

  def static?(_tensor), do: true

  @doc "Whether a group may have its gathers: what follows a product is its epilogue, which has none."
  @spec fit?(map(), map()) :: boolean()
  def fit?(%{gathers: 0}, _state), do: true
  def fit?(%{inputs: inputs}, state), do: not Enum.any?(inputs, &product?(&1, state))

  defp product?(id, state) do
    %T{data: %Expr{op: op}} = tensor = state.tensors[id]

    op in [:dot, :conv] or
      (state.kinds[id] == :reshape and
         Enum.any?(Fusion.operands(tensor), &product?(&1.data.id, state)))
  end
end
