defmodule Nx.Vulkan.Compiler.HookValue do
  @moduledoc false
  # What hooks get of vectorized tensors. Operations are of tensors without vectorized axes, hooks get values with
  # theirs: a block puts them on before a hook, and another takes them off after it. It runs no hook.

  import Nx.Vulkan.HookOperation, only: [is_hook: 1]

  alias Nx.Defn.{Composite, Expr, Tree}
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.HookOperation

  @enforce_keys [:template]
  defstruct [:template]

  @typedoc "The shape and the vectorized axes that the tensor gets."
  @type t :: %__MODULE__{template: T.t()}

  @doc "The definition's expression, a tensor or a container of tensors, with such blocks around its hooks."
  @spec wrap(Nx.Container.t()) :: Nx.Container.t()
  def wrap(expr) do
    {expr, _done} = Composite.traverse(expr, %{}, &rewrite/2)
    expr
  end

  @doc "The tensor as the hook, or what follows it, gets it."
  @spec run(t(), T.t()) :: T.t()
  def run(%__MODULE__{template: template}, tensor), do: %{template | data: tensor.data}

  # A result keeps its own names and vectorized axes.
  defp rewrite(%T{data: %Expr{id: id}} = tensor, done) do
    case done do
      %{^id => data} ->
        {%{tensor | data: data}, done}

      %{} ->
        {args, done} = Tree.apply_args(tensor, done, &rewrite/2)
        rewritten = with_hook(%{tensor | data: %{tensor.data | args: args}})
        {rewritten, Map.put(done, id, rewritten.data)}
    end
  end

  defp with_hook(%T{data: %Expr{op: op, args: args} = expr} = tensor) when is_hook(op) do
    args = HookOperation.update_value(args, &Composite.traverse(&1, fn t -> with_axes(t) end))
    without_axes(%{tensor | data: %{expr | args: args}}, hd(args))
  end

  defp with_hook(%T{data: %Expr{op: :elem, args: [%T{data: %Expr{op: op} = hook}, _]}} = tensor)
       when is_hook(op),
       do: without_axes(tensor, hd(hook.args))

  defp with_hook(tensor), do: tensor

  # A hook of a parameter gets it without its axes, as from `Nx.Defn.Evaluator`.
  defp with_axes(%T{vectorized_axes: []} = tensor), do: tensor
  defp with_axes(%T{data: %Expr{op: :parameter}} = tensor), do: tensor
  defp with_axes(tensor), do: block(tensor, tensor)

  defp without_axes(%T{type: {:tuple, _}} = tensor, _value), do: tensor

  defp without_axes(tensor, value) do
    with_axes? = &match?(%T{data: %Expr{op: :block, args: [%__MODULE__{} | _]}}, &1)

    if Enum.any?(Composite.flatten_list([value]), with_axes?),
      do: block(tensor, Nx.devectorize(tensor)),
      else: tensor
  end

  defp block(%T{data: expr} = tensor, template) do
    args = [%__MODULE__{template: Nx.to_template(template)}, [tensor], tensor, &run/2]
    %{tensor | data: %{expr | id: make_ref(), op: :block, args: args}}
  end
end
