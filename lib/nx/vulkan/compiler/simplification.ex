defmodule Nx.Vulkan.Compiler.Simplification do
  @moduledoc false
  # Makes of a definition's expression one that computes the same bits with fewer operations: expressions that are
  # equal become one, a reduction that keeps its axes is that which drops them, squares are products, quotients of choices are
  # choices of quotients, and a product reads what is stored in a narrower type as it is. It changes nothing else, and leaves
  # groups to `Nx.Vulkan.Compiler.Fusion`.
  #
  # Functions that call the same function on the same tensor make such expressions. Only operations are merged that
  # depend on their arguments alone. Loops have a scope of their own, within which equal expressions become one.

  alias Nx.Defn.{Composite, Expr, Tree}
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Catalogue
  alias Nx.Vulkan.Compiler.MovementRules
  alias Nx.Vulkan.HookOperation

  @reductions Catalogue.names(family: :reduction)

  # Not merged: those with an effect, with a scope of their own, with functions for arguments, and tensors, which may
  # be large.
  @unmerged [
    :parameter,
    :tensor,
    :runtime_call,
    :block,
    :fun,
    :cond,
    :while,
    :reduce,
    :window_reduce
    | HookOperation.names()
  ]

  @doc "The definition's expression, a tensor or a container of tensors, with fewer operations."
  @spec simplify(Nx.Container.t()) :: Nx.Container.t()
  def simplify(expr) do
    state = %{done: %{}, known: %{}, readers: readers(expr)}
    {expr, _state} = Composite.traverse(expr, state, &rewrite/2)
    expr
  end

  # How many read each tensor of the scope; a result is read by the caller.
  defp readers(expr) do
    {_seen, readers} = Composite.reduce(expr, {%{}, %{}}, &count/2)
    readers
  end

  defp count(%T{data: %Expr{op: :metadata, args: [%T{} = tensor, _]}}, state),
    do: count(tensor, state)

  defp count(%T{data: %Expr{id: id}} = tensor, {seen, readers}) do
    readers = Map.update(readers, id, 1, &(&1 + 1))

    if is_map_key(seen, id) do
      {seen, readers}
    else
      state = {Map.put(seen, id, true), readers}
      tensor |> Tree.apply_args(:scope, state, &{&1, count(&1, &2)}) |> elem(1)
    end
  end

  # `done` is what the expressions became, by their ids; `known` has the expressions of the scope by what they
  # compute. A result keeps its own names and vectorized axes.
  defp rewrite(%T{} = tensor, state) do
    {%T{data: data}, state} = value(tensor, state)
    {%{tensor | data: data}, state}
  end

  defp value(%T{data: %Expr{op: :constant}} = tensor, state), do: {tensor, state}

  defp value(%T{data: %Expr{op: :metadata, args: [%T{} = tensor, _]}}, state),
    do: value(tensor, state)

  defp value(%T{data: %Expr{id: id}} = tensor, state) do
    case state.done do
      %{^id => done} ->
        {done, state}

      %{} ->
        {args, state} = arguments(tensor, state)

        done =
          tensor
          |> with_arguments(args)
          |> square()
          |> choice_of_quotients()
          |> without_conversions()

        done = MovementRules.apply_to(done, state.readers)
        # What becomes another tensor has the readers of the one that it was.
        state = update_in(state.readers, &Map.put_new(&1, done.data.id, &1[id]))
        {done, state} = merge(done, state)
        {done, put_in(state.done[id], done)}
    end
  end

  # Expressions within a loop refer to none outside.
  defp arguments(%T{data: %Expr{op: :while, args: [initial, arg, pred, block]}}, state) do
    {initial, state} = Composite.traverse(initial, state, &rewrite/2)
    {pred, block} = simplify({pred, block})
    {[initial, arg, pred, block], state}
  end

  # What a branch computes is computed only there.
  defp arguments(%T{data: %Expr{op: :cond}} = tensor, state) do
    {args, inner} = Tree.apply_args(tensor, :scope, state, &rewrite/2)
    {args, %{inner | known: state.known}}
  end

  defp arguments(tensor, state), do: Tree.apply_args(tensor, :scope, state, &rewrite/2)

  defp with_arguments(%T{data: expr} = tensor, args), do: %{tensor | data: %{expr | args: args}}

  # The product is the square rounded once, as BinaryBackend's power is.
  defp square(%T{type: {kind, _}, data: %Expr{op: :pow, args: [x, exponent]} = expr} = tensor)
       when kind != :c do
    case exponent do
      %T{data: %Expr{op: :constant, args: [two]}} when two == 2 ->
        %{tensor | data: %{expr | op: :multiply, args: [x, x]}}

      _ ->
        tensor
    end
  end

  defp square(tensor), do: tensor

  # A choice between two numbers divided by another one is a choice between their quotients, where all of these are exact: the gradient
  # of a maximum, and with it that of ReLU, has such a division for each element, which takes longer than all else that it does.
  defp choice_of_quotients(%T{data: %Expr{op: :divide, args: [a, b]}} = tensor) do
    with {above, dividends} <- choice(a, tensor.shape),
         {below, divisors} <- choice(b, tensor.shape),
         true <- Enum.all?(divisors, &(&1 != 0)),
         quotients = for(x <- dividends, do: for(y <- divisors, do: x / y)),
         true <- Enum.all?(List.flatten(quotients), &exact?(&1, tensor.type)) do
      between(above, Enum.map(quotients, &between(below, &1, tensor)), tensor)
    else
      _ -> tensor
    end
  end

  defp choice_of_quotients(tensor), do: tensor

  # The predicate and the numbers that it chooses between; a constant is a choice without a predicate.
  defp choice(%T{data: %Expr{op: :constant, args: [number]}, type: type}, _shape)
       when is_number(number),
       do: if(exact?(number, type), do: {nil, [number]})

  defp choice(%T{data: %Expr{op: :select, args: [pred, a, b]}, shape: shape}, shape) do
    with {nil, [a]} <- choice(a, shape), {nil, [b]} <- choice(b, shape), do: {pred, [a, b]}
  end

  defp choice(_tensor, _shape), do: nil

  # The choice between two numbers or tensors, as a tensor of the type and shape of `like`.
  defp between(nil, [value], like), do: constant(value, like)
  defp between(_pred, [same, same], like), do: constant(same, like)

  defp between(pred, values, like) do
    args = [pred | Enum.map(values, &constant(&1, like))]
    %{like | data: %{like.data | id: make_ref(), op: :select, args: args}}
  end

  defp constant(%T{} = tensor, _like), do: tensor

  defp constant(number, like),
    do: %{like | data: %{like.data | id: make_ref(), op: :constant, args: [number]}}

  # Whether the type has this number.
  defp exact?(number, type),
    do: Nx.to_number(Nx.tensor(number, type: type, backend: Nx.BinaryBackend)) == number

  # A product's kernels convert the operands to its type as they load them, so a conversion that loses nothing needs no kernel of
  # its own, nor memory for what it would store. Of floats only one operand is left as it is: the product of two narrow ones
  # may be computed in another way.
  defp without_conversions(
         %T{data: %Expr{op: :dot, args: args} = expr, type: {kind, _}} = product
       )
       when kind != :c do
    [left, left_contract, left_batch, right, right_contract, right_batch] = args
    a = if right.type == product.type, do: unconverted(left), else: left
    both? = kind in [:s, :u] or a == left
    b = if left.type == product.type and both?, do: unconverted(right), else: right
    args = [a, left_contract, left_batch, b, right_contract, right_batch]
    %{product | data: %{expr | args: args}}
  end

  defp without_conversions(tensor), do: tensor

  # What is converted, in the order and shape that the conversion's result is read in, or the operand itself.
  defp unconverted(%T{data: %Expr{op: :as_type, args: [%T{type: type} = source]}} = operand),
    do: if(lossless?(type, operand.type), do: source, else: operand)

  defp unconverted(%T{data: %Expr{op: op, args: [source | options]} = expr} = operand)
       when op in [:transpose, :reshape, :squeeze] do
    case unconverted(source) do
      ^source ->
        operand

      %T{type: type} = from ->
        %{operand | type: type, data: %{expr | id: make_ref(), args: [from | options]}}
    end
  end

  defp unconverted(operand), do: operand

  # Whether each number of the type is one of the other.
  defp lossless?({:u, bits}, {:u, to}), do: bits <= to
  defp lossless?({:u, bits}, {:s, to}), do: bits < to
  defp lossless?({:s, bits}, {:s, to}), do: bits <= to
  defp lossless?({kind, bits}, to) when kind in [:s, :u], do: bits <= significand(to)
  defp lossless?({:f, 64}, _to), do: false
  defp lossless?({:f, 32}, to), do: to == {:f, 64}
  defp lossless?({kind, 16}, to) when kind in [:f, :bf], do: to in [{:f, 32}, {:f, 64}]
  defp lossless?(_type, _to), do: false

  # Bits of a float's significand.
  defp significand({:f, 64}), do: 53
  defp significand({:f, 32}), do: 24
  defp significand({:f, 16}), do: 11
  defp significand({:bf, 16}), do: 8
  defp significand(_type), do: 0

  defp merge(%T{data: %Expr{op: op}} = tensor, state) when op in @unmerged, do: {tensor, state}

  defp merge(tensor, state) do
    key = key_of(tensor)

    case state.known do
      %{^key => known} ->
        {known, state}

      %{} ->
        done = same_reduction(tensor, state.known) || tensor
        {done, put_in(state.known[key], done)}
    end
  end

  # A mean and the mean that a variance subtracts are one sum, with its axes and without.
  defp same_reduction(%T{data: %Expr{op: op, args: [operand, options]} = expr} = tensor, known)
       when op in @reductions do
    with keeps? when is_boolean(keeps?) <- options[:keep_axes],
         options = Keyword.replace(options, :keep_axes, not keeps?),
         {shape, names} = reduced(operand, options),
         other = %{tensor | shape: shape, names: names},
         key = key_of(%{other | data: %{expr | args: [operand, options]}}),
         %{^key => same} <- known do
      %{tensor | data: %{expr | id: make_ref(), op: :reshape, args: [same]}}
    else
      _ -> nil
    end
  end

  defp same_reduction(_tensor, _known), do: nil

  # The shape and the names of a reduction with these options.
  defp reduced(%T{shape: shape, names: names}, options) do
    axes = options[:axes] || Enum.to_list(0..(tuple_size(shape) - 1)//1)

    {dims, names} =
      Enum.zip([0..(tuple_size(shape) - 1)//1, Tuple.to_list(shape), names])
      |> Enum.flat_map(fn {axis, dim, name} ->
        cond do
          axis not in axes -> [{dim, name}]
          options[:keep_axes] -> [{1, name}]
          true -> []
        end
      end)
      |> Enum.unzip()

    {List.to_tuple(dims), names}
  end

  defp key_of(%T{data: %Expr{op: op, args: args}} = tensor),
    do: {op, tensor.type, tensor.shape, tensor.names, tensor.vectorized_axes, key(args)}

  # Arguments by what they compute. A float's bits tell 0.0 from -0.0.
  defp key(%T{data: %Expr{op: :constant, args: args}, type: type, shape: shape}),
    do: {type, shape, key(args)}

  defp key(%T{data: %Expr{id: id}, type: type, shape: shape, names: names}),
    do: {id, type, shape, names}

  defp key(list) when is_list(list), do: Enum.map(list, &key/1)
  defp key(float) when is_float(float), do: <<float::float>>
  defp key(other), do: other
end
