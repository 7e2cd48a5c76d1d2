defmodule Nx.Vulkan.Chain.Differentiable do
  @moduledoc false
  # Rewrites a log-density, before it is differentiated, so that its gradient is made of operations that chain kernels
  # have: Nx differentiates the default body of a block, which for a cumulative sum or a Cholesky factor is long.
  # Such a block gets the gradient of what it computes. Branches become selections. It computes nothing.

  alias Nx.Block
  alias Nx.Defn.{Composite, Expr, Kernel, Tree}
  alias Nx.Tensor, as: T

  @doc "The expression with such blocks and branches."
  @spec rewrite(T.t()) :: T.t()
  def rewrite(expr) do
    {expr, _done} = tensor(expr, %{})
    expr
  end

  # `done` is what the expressions became, by their ids. What has not changed keeps its id: a gradient is of ids.
  # What was in a loop that is unrolled is of the definition now.
  defp tensor(%T{} = tensor, done) do
    {value, done} = value(tensor, done)
    {%{value | names: tensor.names, vectorized_axes: tensor.vectorized_axes}, done}
  end

  defp value(%T{data: %Expr{id: id}}, done) when is_map_key(done, id), do: {done[id], done}

  defp value(%T{data: %Expr{id: id, op: op, args: args}} = tensor, done) do
    {value, done} = value(op, args, tensor, done)
    value = at_root(value)
    {value, Map.put(done, id, value)}
  end

  # The inputs of a gradient of its own are expressions, too.
  defp value(:metadata, [of, %{custom_grad: {inputs, fun}} = metadata], tensor, done) do
    {of, done} = tensor(of, done)
    {inputs, done} = Enum.map_reduce(inputs, done, &tensor/2)
    {changed(tensor, [of, %{metadata | custom_grad: {inputs, fun}}]), done}
  end

  defp value(:block, [%Block.LinAlg.Cholesky{}, [a], _expr, _fun], tensor, done) do
    {a, done} = tensor(a, done)
    factor = changed(tensor, List.replace_at(tensor.data.args, 1, [a]))
    gradient = fn g -> Nx.LinAlg.Cholesky.cholesky_grad(factor, a, g) end
    {Kernel.custom_grad(factor, [a], gradient), done}
  end

  defp value(:block, [%Block.CumulativeSum{} = sum, [x], _expr, _fun], tensor, done) do
    {x, done} = tensor(x, done)
    block = changed(tensor, List.replace_at(tensor.data.args, 1, [x]))
    gradient = fn g -> [Nx.cumulative_sum(g, axis: sum.axis, reverse: not sum.reverse)] end
    {Kernel.custom_grad(block, [x], gradient), done}
  end

  defp value(:cond, [clauses, last], _tensor, done) do
    {last, done} = Composite.traverse(last, done, &tensor/2)

    List.foldr(clauses, {last, done}, fn {predicate, body}, {rest, done} ->
      {predicate, done} = tensor(predicate, done)
      {body, done} = Composite.traverse(body, done, &tensor/2)
      {selected(predicate, body, rest), done}
    end)
  end

  defp value(:elem, [tuple, index], tensor, done) do
    case value(tuple, done) do
      {%T{} = tuple, done} ->
        {changed(tensor, [tuple, index]), done}

      {values, done} ->
        {values |> List.wrap() |> Composite.flatten_list() |> Enum.at(index), done}
    end
  end

  defp value(_op, _args, tensor, done) do
    {args, done} = Tree.apply_args(tensor, :scope, done, &tensor/2)
    {changed(tensor, args), done}
  end

  defp selected(predicate, %T{} = body, %T{} = rest), do: Nx.select(predicate, body, rest)

  defp selected(predicate, body, rest) do
    [Composite.flatten_list([body]), Composite.flatten_list([rest])]
    |> Enum.zip_with(fn [body, rest] -> Nx.select(predicate, body, rest) end)
    |> List.to_tuple()
  end

  defp at_root(%T{data: %Expr{context: {:while, _}} = expr} = tensor),
    do: %{tensor | data: %{expr | context: :root}}

  defp at_root(value), do: value

  defp changed(%T{data: %Expr{args: args}} = tensor, args), do: tensor

  defp changed(%T{data: expr} = tensor, args),
    do: %{tensor | data: %{expr | id: make_ref(), args: args}}
end
