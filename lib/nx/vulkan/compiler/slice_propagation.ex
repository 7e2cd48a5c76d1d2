defmodule Nx.Vulkan.Compiler.SlicePropagation do
  @moduledoc false
  # Computes no more of a tensor than what is read of it: where all that read a tensor read one and the same range of
  # an axis, as the head of a language model reads the last position of a prompt, its operands are sliced in its place,
  # and theirs in turn. It computes nothing twice, and changes nothing else: expressions that become equal are
  # `Nx.Vulkan.Compiler.Simplification`'s. Loops and functions have scopes of their own, which stay as they are.

  alias Nx.Defn.{Composite, Expr, Tree}
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Catalogue

  @elementwise Catalogue.elementwise()
  @reductions Catalogue.names(family: :reduction) -- [:argmax, :argmin]

  @doc "The definition's expression, a tensor or a container of tensors, with slices nearer to its inputs."
  @spec propagate(Nx.Container.t()) :: Nx.Container.t()
  def propagate(expr) do
    {_seen, users_first} = Composite.reduce(expr, {%{}, []}, &order/2)

    if Enum.any?(users_first, &sliced/1) do
      # What is read of each tensor, by its id: `:all`, or a range `{axis, start, length}`.
      read = Composite.reduce(expr, %{}, &read(&2, {&1, :all}))

      read =
        Enum.reduce(users_first, read, fn tensor, read ->
          tensor |> operands(read[id(tensor)]) |> Enum.reduce(read, &read(&2, &1))
        end)

      {expr, _state} = Composite.traverse(expr, %{read: read, done: %{}}, &whole/2)
      expr
    else
      expr
    end
  end

  # The tensors of the scope, each before its operands.
  defp order(%T{data: %Expr{id: id}}, {seen, _order} = state) when is_map_key(seen, id), do: state

  defp order(%T{data: %Expr{id: id}} = tensor, {seen, order}) do
    state = {Map.put(seen, id, true), order}
    {_args, {seen, order}} = Tree.apply_args(tensor, :scope, state, &{&1, order(&1, &2)})
    {seen, [tensor | order]}
  end

  defp read(read, {tensor, range}),
    do: Map.update(read, id(tensor), range, &if(&1 == range, do: range, else: :all))

  defp id(%T{data: %Expr{id: id}}), do: id

  # What a tensor of which this range is read reads of its operands.
  defp operands(tensor, range) do
    with nil <- of_range(tensor, range), nil <- sliced(tensor) do
      of_all(tensor)
    else
      {source, own} -> [{source, own}]
      operands -> operands
    end
  end

  defp of_all(tensor) do
    {_args, operands} = Tree.apply_args(tensor, :scope, [], &{&1, [{&1, :all} | &2]})
    operands
  end

  # The tensor that a slice along one axis is of, and the range.
  defp sliced(%T{vectorized_axes: [], data: %Expr{op: :slice, args: args}}) do
    [source, starts, lengths, strides] = args
    dims = Tuple.to_list(source.shape)

    with true <- source.vectorized_axes == [] and Enum.all?(starts, &is_integer/1),
         true <- Enum.all?(strides, &(&1 == 1)),
         axes = Enum.zip([0..(length(dims) - 1)//1, starts, lengths, dims]),
         [{axis, start, length, dim}] <-
           for({_, _, length, dim} = axis <- axes, length < dim, do: axis) do
      # Nx moves a slice that would go beyond the end.
      {source, {axis, start |> max(0) |> min(dim - length), length}}
    else
      _ -> nil
    end
  end

  defp sliced(_tensor), do: nil

  # The operands, and what is read of them for a range of a tensor; `nil` where the range needs the whole tensor.
  defp of_range(_tensor, :all), do: nil
  defp of_range(%T{vectorized_axes: [_ | _]}, _range), do: nil
  defp of_range(%T{data: %Expr{op: :constant}}, _range), do: []

  defp of_range(%T{data: %Expr{op: :metadata, args: [%T{} = source, _]}}, range),
    do: [{source, range}]

  defp of_range(%T{shape: shape, data: %Expr{op: op, args: args}}, {axis, start, length})
       when op in @elementwise do
    # Operands are broadcast from the last axis on.
    for %T{} = operand <- args do
      own = axis - tuple_size(shape) + tuple_size(operand.shape)
      {operand, own_range(operand, own, start, length)}
    end
  end

  defp of_range(%T{data: %Expr{op: :broadcast, args: [source, _, axes]}}, {axis, start, length}),
    do: [{source, own_range(source, Enum.find_index(axes, &(&1 == axis)), start, length)}]

  defp of_range(%T{data: %Expr{op: :transpose, args: [source, axes]}}, {axis, start, length}),
    do: [{source, {Enum.at(axes, axis), start, length}}]

  defp of_range(%T{shape: shape, data: %Expr{op: op, args: [source | _]}}, {axis, start, length})
       when op in [:reshape, :squeeze] do
    case same_axis(Tuple.to_list(source.shape), Tuple.to_list(shape), axis) do
      nil -> nil
      own -> [{source, {own, start, length}}]
    end
  end

  defp of_range(%T{data: %Expr{op: op, args: [source, options]}}, {axis, start, length})
       when op in @reductions do
    reduced = options[:axes] || Enum.to_list(0..(tuple_size(source.shape) - 1)//1)
    kept = Enum.to_list(0..(tuple_size(source.shape) - 1)//1) -- reduced
    own = if options[:keep_axes], do: axis, else: Enum.at(kept, axis)
    if own not in reduced, do: [{source, {own, start, length}}]
  end

  defp of_range(%T{data: %Expr{op: :dot, args: args}}, {axis, start, length}) do
    [left, left_contracted, left_batch, right, right_contracted, right_batch] = args
    free = &(Enum.to_list(0..(tuple_size(&1.shape) - 1)//1) -- (&2 ++ &3))
    rows = for own <- free.(left, left_contracted, left_batch), do: {own, nil}
    columns = for own <- free.(right, right_contracted, right_batch), do: {nil, own}
    {of_left, of_right} = Enum.at(Enum.zip(left_batch, right_batch) ++ rows ++ columns, axis)

    for {operand, own} <- [{left, of_left}, {right, of_right}],
        do: {operand, own_range(operand, own, start, length)}
  end

  defp of_range(tensor, {axis, start, length}) do
    case sliced(tensor) do
      {source, {^axis, offset, _}} -> [{source, {axis, offset + start, length}}]
      {source, _other} -> [{source, {axis, start, length}}]
      nil -> nil
    end
  end

  # An operand is read as a whole where it has no such axis, or repeats its one element along it.
  defp own_range(%T{shape: shape}, axis, start, length) do
    if axis != nil and axis >= 0 and elem(shape, axis) > 1, do: {axis, start, length}, else: :all
  end

  # The axis of a tensor before it is reshaped that goes through the same elements.
  defp same_axis(before, dims, axis) do
    {outer, [dim | _]} = Enum.split(dims, axis)
    size = Enum.product(outer)

    before
    |> Enum.scan({1, 1}, fn dim, {outer, last} -> {outer * last, dim} end)
    |> Enum.find_index(&(&1 == {size, dim}))
  end

  # The tensor as it was, of operands with their slices in other places. Equal constants have one id, whatever their names are.
  defp whole(%T{data: %Expr{op: :constant}} = tensor, state), do: {tensor, state}

  defp whole(tensor, state) do
    once(tensor, :all, state, fn ->
      with {source, range} <- sliced(tensor),
           true <- state.read[id(source)] == range and of_range(source, range) != nil do
        {part, state} = part(source, range, state)
        {%{part | names: tensor.names}, state}
      else
        _ ->
          {args, state} = Tree.apply_args(tensor, :scope, state, &whole/2)
          {%{tensor | data: %{tensor.data | args: args}}, state}
      end
    end)
  end

  # A range of the tensor, of ranges of its operands where no more of it is read.
  defp part(tensor, :all, state), do: whole(tensor, state)

  defp part(tensor, range, state) do
    once(tensor, range, state, fn ->
      with true <- state.read[id(tensor)] == range or tensor.data.op == :constant,
           operands when operands != nil <- of_range(tensor, range) do
        {parts, state} =
          Enum.map_reduce(operands, state, fn {t, range}, state -> part(t, range, state) end)

        {of_parts(tensor, parts, range), state}
      else
        _ ->
          {whole, state} = whole(tensor, state)
          {slice(whole, range), state}
      end
    end)
  end

  defp once(tensor, range, state, make) do
    key = {id(tensor), range}

    case state.done do
      %{^key => done} ->
        {done, state}

      %{} ->
        {done, state} = make.()
        {done, put_in(state.done[key], done)}
    end
  end

  defp of_parts(%T{data: %Expr{op: :metadata}}, [part], _range), do: part

  defp of_parts(%T{data: %Expr{op: op, args: args} = expr} = tensor, parts, {axis, _, length}) do
    shape = put_elem(tensor.shape, axis, length)

    with :slice <- op, {_source, {^axis, _, _}} <- sliced(tensor) do
      %{hd(parts) | names: tensor.names}
    else
      _ ->
        {args, []} =
          Enum.map_reduce(args, parts, fn
            %T{}, [part | parts] -> {part, parts}
            option, parts -> {option, parts}
          end)

        args =
          case {op, args} do
            {:broadcast, [part, _shape, axes]} ->
              [part, shape, axes]

            {:slice, [part, starts, _lengths, strides]} ->
              [part, starts, Tuple.to_list(shape), strides]

            _ ->
              args
          end

        %{tensor | shape: shape, data: %{expr | id: make_ref(), args: args}}
    end
  end

  defp slice(%T{shape: shape, data: expr} = tensor, {axis, start, length}) do
    starts = List.replace_at(List.duplicate(0, tuple_size(shape)), axis, start)
    shape = put_elem(shape, axis, length)
    args = [tensor, starts, Tuple.to_list(shape), List.duplicate(1, tuple_size(shape))]
    %{tensor | shape: shape, data: %{expr | id: make_ref(), op: :slice, args: args}}
  end
end
