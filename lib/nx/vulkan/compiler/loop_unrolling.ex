defmodule Nx.Vulkan.Compiler.LoopUnrolling do
  @moduledoc false
  # Unrolls loops with a known number of iterations: those that count from a number to a number, as `while
  # x, i <- range` does and the rounds of `Nx.Random`. It rewrites expressions and groups nothing;
  # `Nx.Vulkan.Compiler.Fusion` makes few kernels of an unrolled loop, where a loop needs some in each
  # iteration.
  #
  # Integers that are known are folded on the way: counters, conditions, and the elements of small
  # tensors that a counter chooses. Values of all loops, unrolled or not, get the types that the loops declare.

  import Nx.Vulkan.HookOperation, only: [is_hook: 1]

  alias Nx.Defn.{Composite, Expr, Tree}
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Catalogue

  # Operations that all loops of a definition may become.
  @most_operations 2048
  # Operations among them that are not fused with others: each of these is a kernel or more, of which a loop that runs
  # on the device has none.
  @most_kernels 64
  # Elements of a tensor whose integers are folded.
  @most_elements 64
  @folded Catalogue.names(host_integers: true) ++ [:slice, :reshape, :squeeze]
  @fused Catalogue.names(family: :elementwise) ++
           Catalogue.names(family: :creation) ++
           Catalogue.names(family: :bitcast) ++
           Catalogue.names(family: :view) ++ [:reshape, :squeeze, :elem]

  @doc """
  The definition's expression, a tensor or a container of tensors, with such loops unrolled.
  """
  @spec unroll(Nx.Container.t()) :: Nx.Container.t()
  def unroll(expr) do
    {expr, _state} =
      scope(expr, %{
        params: nil,
        constants: %{},
        done: %{},
        left: @most_operations,
        kernels: @most_kernels,
        branches: false
      })

    expr
  end

  # `params` are the values of the scope's parameters, `nil` where they stay parameters but for the `constants` among
  # them, by their indices; `done` is what the scope's expressions became, by their ids; `left` and `kernels` are how many more operations loops may become; `branches` is
  # whether loops or branches were left, which an unrolled loop would have once for each iteration.
  defp scope(expr, state), do: Composite.traverse(expr, state, &rewrite/2)

  # The result keeps the tensor's own shape, names and vectorized axes.
  defp rewrite(%T{} = tensor, state) do
    {%T{data: data}, state} = value(tensor, state)
    {%{tensor | data: data}, state}
  end

  # A tensor, or the tuple of tensors that a loop became.
  defp value(%T{data: %Expr{op: op}} = tensor, state) when op in [:constant, :tensor, :fun],
    do: {tensor, state}

  # A gradient knows what it is of, and what has a gradient of its own, by metadata. What is known needs none.
  defp value(
         %T{data: %Expr{id: id, op: :metadata, args: [%T{} = of, metadata]} = expr} = tensor,
         state
       ) do
    case state.done do
      %{^id => done} ->
        {done, state}

      %{} ->
        {of, state} = value(of, state)

        {done, state} =
          case of do
            %T{data: %Expr{op: op}} when op not in [:constant, :tensor] ->
              id = if state.params, do: make_ref(), else: id
              {%{tensor | data: %{expr | id: id, args: [of, metadata]}}, state}

            known ->
              {known, state}
          end

        {done, put_in(state.done[id], done)}
    end
  end

  defp value(%T{data: %Expr{op: :parameter, args: [index]}}, %{params: params} = state)
       when params != nil,
       do: {elem(params, index), state}

  defp value(
         %T{data: %Expr{op: :parameter, args: [index]}} = tensor,
         %{constants: constants} = state
       )
       when is_map_key(constants, index),
       do: {%{tensor | data: constants[index].data}, state}

  defp value(%T{data: %Expr{id: id, op: op, args: args}} = tensor, state) do
    case state.done do
      %{^id => done} ->
        {done, state}

      %{} ->
        {done, state} = value(op, args, tensor, state)
        {done, put_in(state.done[id], done)}
    end
  end

  defp value(:elem, [tuple, index], tensor, state) do
    case value(tuple, state) do
      {%T{} = tuple, state} -> put_args(tensor, [tuple, index], state)
      {values, state} -> {elem(values, index), state}
    end
  end

  defp value(:while, [initial, arg, pred, block], tensor, state) do
    {initial, state} = scope(initial, state)
    block = with_types(block, arg)

    case if(hook?({pred, block}), do: :error, else: iterate(params(initial), pred, block, state)) do
      {:ok, values, state} ->
        {if(is_tuple(initial), do: values, else: elem(values, 0)), state}

      :error ->
        constants = unchanged(initial, block)
        loop = %{state | params: nil, constants: constants, done: %{}}
        {{pred, next}, inner} = scope({pred, block}, loop)
        # What no iteration changes stays a parameter of the next one.
        next = if constants == %{}, do: next, else: with_parameters(next, block)

        put_args(tensor, [initial, arg, pred, next], %{
          state
          | left: inner.left,
            kernels: inner.kernels,
            branches: true
        })
    end
  end

  # A branch that is known to be taken takes the place of the others.
  defp value(:cond, [clauses, last], %T{type: type} = tensor, state) do
    {clauses, state} = Enum.flat_map_reduce(clauses, state, &clause/2)

    case Enum.split_while(clauses, &(elem(&1, 0) != :taken)) do
      {[], [{:taken, body} | _]} -> branch(body, type, state)
      {[], []} -> branch(last, type, state)
      {clauses, [{:taken, body} | _]} -> branches(clauses, body, tensor, state)
      {clauses, []} -> branches(clauses, last, tensor, state)
    end
  end

  defp value(_op, _args, tensor, state) do
    {args, state} = Tree.apply_args(tensor, :scope, state, &rewrite/2)
    put_args(tensor, args, state)
  end

  defp clause({pred, body}, state) do
    case rewrite(pred, state) do
      {%T{data: %Expr{op: :constant, args: [0]}}, state} -> {[], state}
      {%T{data: %Expr{op: :constant}}, state} -> {[{:taken, body}], state}
      {pred, state} -> {[{pred, body}], state}
    end
  end

  defp branch(body, {:tuple, _}, state) do
    {body, state} = scope(body, state)
    {List.to_tuple(Composite.flatten_list([body])), state}
  end

  defp branch(body, _type, state), do: value(body, state)

  defp branches(clauses, last, tensor, state) do
    {clauses, state} =
      Enum.map_reduce(clauses, state, fn {pred, body}, state ->
        {body, state} = scope(body, state)
        {{pred, body}, state}
      end)

    {last, state} = scope(last, state)
    put_args(tensor, [clauses, last], %{state | branches: true})
  end

  # The values of an iteration in the types of the loop's. Nx checks those of a `while` that a definition has, but not of the
  # one that it makes for its gradient, which begins with f32 and may multiply that by f64.
  defp with_types(block, arg) do
    {block, []} =
      Composite.traverse(block, Composite.flatten_list([arg]), fn
        %T{type: type} = next, [%T{type: type} | rest] -> {next, rest}
        next, [%T{type: type} | rest] -> {Nx.as_type(next, type), rest}
      end)

    block
  end

  # The initial values that are constants and that no iteration changes, by their indices.
  defp unchanged(initial, block) do
    [initial, next] = for values <- [initial, block], do: Composite.flatten_list([values])

    for {{%T{data: %Expr{op: :constant}} = constant, next}, index} <-
          Enum.with_index(Enum.zip(initial, next)),
        match?(%T{data: %Expr{op: :parameter, args: [^index]}}, next),
        into: %{},
        do: {index, constant}
  end

  defp with_parameters(next, block) do
    {next, []} =
      Composite.traverse(next, Composite.flatten_list([block]), fn value, [before | rest] ->
        {if(before.data.op == :parameter, do: before, else: value), rest}
      end)

    next
  end

  # Whether a hook runs in the scope or in one within it.
  defp hook?(expr), do: Composite.reduce(expr, %{}, &hooks/2) == :hook

  # The expressions without a hook that were seen, or `:hook`.
  defp hooks(_tensor, :hook), do: :hook
  defp hooks(%T{data: %Expr{op: op}}, _seen) when is_hook(op), do: :hook
  defp hooks(%T{data: %Expr{id: id}}, seen) when is_map_key(seen, id), do: seen

  defp hooks(%T{data: %Expr{id: id}} = tensor, seen),
    do: Tree.apply_args(tensor, :all, Map.put(seen, id, true), &{&1, hooks(&1, &2)}) |> elem(1)

  # One iteration after the other, as long as the condition is a number.
  defp iterate(params, pred, block, %{done: done} = state) do
    case rewrite(pred, %{state | params: params, done: %{}, branches: false}) do
      {_pred, %{left: left, kernels: kernels}} when left < 0 or kernels < 0 ->
        :error

      {_pred, %{branches: true}} ->
        :error

      {%T{data: %Expr{op: :constant, args: [0]}}, iteration} ->
        {:ok, params, %{iteration | params: state.params, done: done, branches: state.branches}}

      {%T{data: %Expr{op: :constant}}, iteration} ->
        {block_values, %{branches: branches} = iteration} = scope(block, iteration)
        outside = %{iteration | params: state.params, done: done, branches: state.branches}
        if branches, do: :error, else: iterate(params(block_values), pred, block, outside)

      {_pred, _turn} ->
        :error
    end
  end

  defp params(values) when is_tuple(values), do: values
  defp params(value), do: {value}

  # Within an unrolled loop each iteration has expressions of its own.
  defp put_args(%T{data: expr} = tensor, args, %{params: nil} = state),
    do: {known(%{tensor | data: %{expr | args: args}}), state}

  defp put_args(tensor, args, state) do
    known = known(Tree.put_args(tensor, args))
    kernels = if known.data.op in [:constant, :tensor | @fused], do: 0, else: 1
    {known, %{state | left: state.left - 1, kernels: state.kernels - kernels}}
  end

  # The constant that it is, if its integers are known.
  defp known(%T{data: %Expr{op: :slice, args: [tensor, starts | rest]} = expr} = slice) do
    starts = Enum.map(starts, &start/1)
    known_integers(%{slice | data: %{expr | args: [tensor, starts | rest]}})
  end

  defp known(tensor), do: known_integers(tensor)

  defp start(%T{data: %Expr{op: :constant, args: [number]}}), do: number
  defp start(start), do: start

  defp known_integers(%T{type: {kind, size}, data: %Expr{op: op, args: args}} = tensor)
       when kind in [:u, :s] and size >= 8 and op in @folded do
    args = Enum.map(args, &host/1)

    if Nx.size(tensor) <= @most_elements and :unknown not in args,
      do: Expr.tensor(apply(Nx.BinaryBackend, op, [%{tensor | data: nil} | args])),
      else: tensor
  end

  defp known_integers(tensor), do: tensor

  defp host(%T{type: {kind, size}, data: %Expr{op: op, args: [value]}} = tensor)
       when kind in [:u, :s] and size >= 8 and op in [:constant, :tensor] do
    cond do
      Nx.size(tensor) > @most_elements -> :unknown
      op == :tensor -> value
      true -> Nx.BinaryBackend.constant(%{tensor | data: nil}, value, [])
    end
  end

  defp host(%T{}), do: :unknown

  defp host(list) when is_list(list),
    do: if(Enum.any?(list, &is_struct(&1, T)), do: :unknown, else: list)

  defp host(other), do: other
end
