defmodule Nx.Vulkan.Compiler.HostCond do
  @moduledoc false
  # A `cond` whose clause the host chooses. It decides when the predicates are evaluated, and nothing else.
  #
  # `Nx.Defn.Evaluator` forgets what it has evaluated for a predicate that is false, and evaluates it again where the rest of
  # the definition reads it: hooks would run twice. A block evaluates the predicate before the `cond` with that clause alone.

  alias Nx.Defn.{Composite, Expr}
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Compiler.Closure

  defstruct []

  @doc "The `cond` with each predicate evaluated once."
  @spec lower(T.t()) :: T.t()
  def lower(%T{data: %Expr{op: :cond, args: [[{pred, body} | clauses], last]} = expr} = branches) do
    last = if clauses == [], do: last, else: otherwise(branches, clauses, last)
    chosen = %{branches | data: %{expr | id: make_ref(), args: [[{pred, body}], last]}}
    args = [%__MODULE__{}, [pred, chosen], last, &run/3]
    %{branches | data: %{expr | op: :block, args: args}}
  end

  # The results of the other clauses.
  defp otherwise(%T{data: expr} = branches, clauses, last) do
    others = lower(%{branches | data: %{expr | args: [clauses, last]}})
    Closure.with_outputs(others, others.data.args, Composite.flatten_list([last]))
  end

  @spec run(%__MODULE__{}, T.t(), result) :: result when result: T.t() | tuple()
  def run(%__MODULE__{}, _pred, result), do: result
end
