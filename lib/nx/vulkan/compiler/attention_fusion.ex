defmodule Nx.Vulkan.Compiler.AttentionFusion do
  @moduledoc false
  # Finds attention in an expression, a product of queries and keys, what is computed of each score, a softmax of its rows, and
  # a product with values, and makes a block of it, `Nx.Vulkan.Compiler.AttentionGroup`. It runs before
  # `Nx.Vulkan.Compiler.Fusion`, for which the block is one operation, and knows no kernels.
  #
  # It goes from the second product to the operands of the first one. `Nx.Vulkan.Compiler.AttentionAxes` says on the way
  # which indices of the result each axis counts through, whatever reshapes, transposes and broadcasts lie between, and
  # hence with which strides a kernel reads each tensor. Values that depend on no score, a mask say, are read by the
  # kernel, or computed there where that is little work.
  #
  # The scores must be needed for nothing else, or they would be stored in any case.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Defn.{Composite, Expr, Tree}
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Movement, Storage}

  alias Nx.Vulkan.Compiler.{
    AttentionAxes,
    AttentionGroup,
    AttentionMatch,
    AttentionProgram,
    AttentionScores,
    AttentionUpdate,
    Fusion,
    FusionGroup,
    GroupSteps
  }

  @views [:reshape, :squeeze, :transpose]
  # Elements of a head: `MAX_HEAD_ELEMENTS` of src/kernels/attention/mod.rs.
  @most_head_elements 256
  @floats [{:f, 32}, {:f, 16}, {:bf, 16}]

  @doc "The expression with attention as blocks."
  @spec fuse(Nx.Container.t()) :: Nx.Container.t()
  def fuse(expr) do
    {order, readers} = Fusion.scope(expr)
    products = for %T{data: %Expr{op: :dot}} = tensor <- order, do: tensor

    with [_, _ | _] <- products,
         scope = scope(order, readers),
         found when found != %{} <- find_all(products, scope) do
      {expr, _done} = Composite.traverse(expr, %{}, &rebuild_output(&1, found, &2))
      expr
    else
      _ -> expr
    end
  end

  # What is known of the tensors. `scored` are those that a product leads to by way of element-wise operations and views.
  defp scope(order, readers) do
    kinds = Fusion.kinds(order)

    scored =
      for %T{data: %Expr{id: id, op: op}} = tensor <- order, reduce: MapSet.new() do
        scored ->
          leads? = Enum.any?(Fusion.operands(tensor), &(&1.data.id in scored))

          if op == :dot or (kinds[id] in [:elementwise, :reshape, :view] and leads?),
            do: MapSet.put(scored, id),
            else: scored
      end

    tensors = Map.new(order, &{&1.data.id, &1})
    %{readers: readers, kinds: kinds, scored: scored, tensors: tensors}
  end

  defp find_all(products, scope) do
    for product <- products,
        {:ok, found} <- [find(product, scope)],
        {out, position} <- Enum.with_index(found.outs),
        into: %{},
        do: {out.data.id, {found, position}}
  end

  # The attention that a product ends, with the views of it that nothing but the next view reads.
  defp find(%T{shape: shape, type: type} = product, scope) do
    ways =
      for result <- Enum.uniq([last_view(product, scope), product]),
          side <- [0, 1],
          do: {result, side}

    if type in @floats and Nx.size(shape) > 0,
      do:
        Enum.find_value(ways, :error, fn {result, side} -> match(result, product, side, scope) end),
      else: :error
  end

  defp last_view(%T{data: %Expr{id: id}} = tensor, scope) do
    with [reader] when reader != :outside <- scope.readers[id],
         %T{data: %Expr{op: op}} = view when op in @views <- scope.tensors[reader],
         do: last_view(view, scope),
         else: (_ -> tensor)
  end

  # `side` is the operand of the product that has the weights.
  defp match(result, product, side, scope) do
    {axes, indices} = AttentionAxes.fresh(AttentionAxes.new(), Tuple.to_list(result.shape))
    match = AttentionMatch.new(scope, indices)

    with {:ok, product_axes, match} <- views(result, product, axes, match),
         {:ok, factors, match} <- factors(product, side, product_axes, match),
         {weights, weights_axes, values, values_axes} = factors,
         {:ok, values, [], match} <- AttentionMatch.source(values, values_axes, match),
         {:ok, match} <- AttentionScores.weights(weights, weights_axes, match),
         true <- needed_only_here?(result, match),
         {:ok, group, inputs, updated} <- group(result, axes, values, match) do
      {:ok, %{outs: [result | updated], group: group, inputs: inputs, id: make_ref()}}
    else
      _ -> nil
    end
  end

  # The axes of the product that the result is a view of.
  defp views(%T{data: %Expr{id: id}}, %T{data: %Expr{id: id}}, axes, match),
    do: {:ok, axes, AttentionMatch.own(match, id)}

  defp views(%T{data: %Expr{id: id}} = view, product, axes, match) do
    with {:ok, operand, axes, match} <- AttentionMatch.descend(view, axes, match),
         do: views(operand, product, axes, AttentionMatch.own(match, id))
  end

  # Both operands of the product with their axes.
  defp factors(%T{data: %Expr{args: args}}, side, axes, match) do
    {left, right, contracted, match} = AttentionMatch.factor_axes(args, axes, match)
    [tensors, all] = [[Enum.at(args, 0), Enum.at(args, 3)], [left, right]]
    [weights, values] = for i <- [side, 1 - side], do: Fusion.resolve(Enum.at(tensors, i))
    [weights_axes, values_axes] = for i <- [side, 1 - side], do: Enum.at(all, i)
    free = AttentionMatch.free(args, 1 - side, values_axes)

    if contracted == [],
      do: :error,
      else:
        {:ok, {weights, weights_axes, values, values_axes},
         %{match | keys: contracted, columns: free}}
  end

  defp needed_only_here?(%T{data: %Expr{id: result}}, match) do
    Enum.all?(match.own, fn id ->
      id == result or Enum.all?(match.scope.readers[id], &(&1 in match.own))
    end)
  end

  ## The group

  # With the updates of keys and values that the kernel can do, or without any.
  defp group(result, axes, values, match) do
    with {[_ | _] = updates, updated} <- AttentionUpdate.find(match, values),
         {:ok, _, _, _} = found <- group(result, axes, values, updates, updated) do
      found
    else
      _ -> group(result, axes, values, [], match)
    end
  end

  defp group(result, result_axes, values, found, match) do
    indices = match.indices
    expand = &AttentionAxes.expand(&1, indices)
    [q, k, v] = for source <- [match.query, match.key, values], do: strides(source, indices)
    c = AttentionAxes.strides(result_axes, Movement.strides(result.shape), indices)
    columns = expand.(match.columns)
    outer = (result_axes |> Enum.concat() |> expand.()) -- columns
    {rows, batch} = Enum.split_with(outer, &(stride(k, &1) == 0 and stride(v, &1) == 0))
    keys = expand.(match.keys)
    {steps, inputs} = GroupSteps.steps(result, match.members)

    with {depth, [q_depth, k_depth]} <-
           AttentionAxes.merge(expand.(match.depth), [q, k], indices),
         {count, [k_key, v_key]} when count > 1 <- AttentionAxes.merge(keys, [k, v], indices),
         {width, [v_column, c_column]} <- AttentionAxes.merge(columns, [v, c], indices),
         true <- depth <= @most_head_elements and width <= @most_head_elements,
         [batches, queries] = for(axes <- [batch, rows], do: extent(axes, indices)),
         sizes = {batches, queries, count, depth, width},
         sources = [match.query, match.key, values],
         type = matrix_type(sources, [q_depth, k_depth, v_column], [q, k, v]),
         {:ok, true} <- Native.call(attention_pays(Storage.default_device(), sizes, type)),
         order = batch ++ rows ++ keys,
         {:ok, programs} <- AttentionProgram.programs(match, order, inputs),
         {:ok, operands} <- operands(sources, inputs),
         options = [
           indices: indices,
           queries: queries,
           batch: batch,
           keys: keys,
           heads: [expand.(match.depth), columns],
           strides: [k, v],
           reads: reads(operands, programs)
         ],
         {:ok, updates, inputs} <- AttentionUpdate.place(found, inputs, options),
         true <- length(inputs) <= FusionGroup.most_inputs() do
      axis = fn index ->
        {AttentionAxes.extent(index, indices), stride(q, index), stride(k, index),
         stride(v, index), stride(c, index)}
      end

      axes =
        {Enum.map(batch, axis), Enum.map(rows, axis), {depth, q_depth, k_depth, 0, 0},
         {count, 0, k_key, v_key, 0}, {width, 0, 0, v_column, c_column}}

      group = %AttentionGroup{
        steps: steps,
        operands: operands,
        axes: axes,
        programs: programs,
        updates: updates
      }

      {:ok, group, inputs, for(%{put: put} <- found, do: put)}
    else
      _ -> :error
    end
  end

  defp strides(%{strides: strides}, indices), do: AttentionAxes.expand_strides(strides, indices)
  defp stride(strides, index), do: Map.get(strides, index, 0)

  # The type of all three sources where runs of eight elements along their heads are aligned, for cooperative matrices.
  defp matrix_type([%{tensor: %T{type: type}} | _] = sources, along, strides) do
    across = for strides <- strides, {_, stride} when stride != 1 <- strides, do: stride
    steps = across ++ Enum.map(sources, & &1.offset)

    if Enum.all?(sources, &(&1.tensor.type == type)) and Enum.all?(along, &(&1 == 1)) and
         Enum.all?(steps, &(rem(&1, 8) == 0)),
       do: type
  end

  defp extent(axes, indices),
    do: Enum.product(for index <- axes, do: AttentionAxes.extent(index, indices))

  defp operands(sources, inputs) do
    operands =
      for %{tensor: %T{data: %Expr{id: id}}, offset: offset} <- sources,
          do: {Enum.find_index(inputs, &(&1.data.id == id)), offset}

    if Enum.any?(operands, &match?({nil, _}, &1)), do: :error, else: {:ok, operands}
  end

  # The inputs that operands and programs read, each as often as it is read.
  defp reads(operands, programs) do
    of_programs =
      for {_nodes, inputs, _shape, _element} <- programs,
          input <- inputs,
          {:input, index} <- [elem(input, 0)],
          do: index

    of_programs ++ for {index, _offset} <- operands, do: index
  end

  ## The expression

  # A tensor is vectorized only outside of definitions.
  defp rebuild_output(%T{} = tensor, found, done) do
    {flat, done} = rebuild(Nx.devectorize(tensor), found, done)
    {%{tensor | data: flat.data}, done}
  end

  defp rebuild(tensor, found, done) do
    %T{data: %Expr{id: id}} = tensor = Fusion.resolve(tensor)

    case done do
      %{^id => rebuilt} ->
        {rebuilt, done}

      %{} ->
        {rebuilt, done} = rebuild_args(found[id], tensor, found, done)
        {rebuilt, Map.put(done, id, rebuilt)}
    end
  end

  defp rebuild_args(nil, %T{data: %Expr{} = expr} = tensor, found, done) do
    {args, done} = Tree.apply_args(tensor, :scope, done, &rebuild(&1, found, &2))
    {%{tensor | data: %{expr | args: args}}, done}
  end

  defp rebuild_args({%{outs: [_]} = found, 0}, %T{data: expr} = tensor, all, done) do
    {args, done} = block(found, tensor, all, done)
    {%{tensor | data: %{expr | op: :block, args: args}}, done}
  end

  # One of several results.
  defp rebuild_args({%{outs: outs, id: id} = found, position}, %T{data: expr} = tensor, all, done) do
    {block, done} =
      case done do
        %{^id => block} ->
          {block, done}

        %{} ->
          {args, done} = block(found, List.to_tuple(outs), all, done)
          data = %{hd(outs).data | id: id, op: :block, args: args}
          block = %T{shape: {}, names: [], type: {:tuple, length(outs)}, data: data}
          {block, Map.put(done, id, block)}
      end

    {%{tensor | data: %{expr | op: :elem, args: [block, position]}}, done}
  end

  defp block(%{group: group, inputs: inputs}, outs, all, done) do
    {inputs, done} = Enum.map_reduce(inputs, done, &rebuild(&1, all, &2))
    {[group, inputs, outs, FusionGroup.default(length(inputs))], done}
  end
end
