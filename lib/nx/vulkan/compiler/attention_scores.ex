defmodule Nx.Vulkan.Compiler.AttentionScores do
  @moduledoc false
  # From the weights of attention to queries and keys: the softmax, however it is written, and what is computed of a score
  # before it and of a weight after it. It follows operands for `Nx.Vulkan.Compiler.AttentionFusion` and builds neither
  # programs nor blocks.

  import Nx.Vulkan.Compiler.AttentionMatch

  alias Nx.Defn.Expr
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Catalogue
  alias Nx.Vulkan.Compiler.{AttentionAxes, AttentionMatch, Fusion}

  @compute_bound Catalogue.names(cost: :compute_bound)
  # The bits of a narrow float, which are computed as f32 here, and what has two indices.
  @unfit [:bitcast, :eye]
  # Operations that are computed for each score instead of once for all heads and layers: those of a causal mask.
  @most_inlined 6

  ## Weights

  @doc "Finds the softmax that weights come from, and all before it."
  @spec weights(T.t(), AttentionAxes.axes(), AttentionMatch.t()) ::
          {:ok, AttentionMatch.t()} | :error
  def weights(tensor, axes, match) do
    with {:ok, result, match} <- weight(Fusion.resolve(tensor), axes, match),
         do: {:ok, finish(match, :weight, result)}
  end

  defp finish(match, program, result) do
    match = %{match | program: program}

    {result, match} =
      case {result, match.nodes[program]} do
        {index, [{_, type, _, _} | _]} when is_integer(index) and type != {:f, 32} ->
          add(match, {:as_type, {:f, 32}, [result], nil})

        _ ->
          {result, match}
      end

    %{match | results: %{match.results | program => result}}
  end

  # The value of a weight in the program of weights, where it is in proportion to that of the softmax.
  defp weight(%T{data: %Expr{id: id, op: op, args: args}, type: type} = tensor, axes, match) do
    with :error <- softmax(tensor, axes, match) do
      match = own(match, id)
      args = for %T{} = arg <- args, do: Fusion.resolve(arg)

      case {op, args} do
        {:as_type, [operand]} ->
          if float?(type), do: weight(operand, axes, match), else: :error

        {:multiply, [left, right]} ->
          with :error <- factor(tensor, left, right, [0, 1], axes, match),
               do: factor(tensor, right, left, [1, 0], axes, match)

        {:divide, [left, right]} ->
          factor(tensor, left, right, [0, 1], axes, match)

        {:select, [predicate, left, right]} ->
          select(tensor, predicate, left, right, axes, match)

        _ ->
          with {:ok, operand, axes, match} <- descend(tensor, axes, match),
               do: weight(operand, axes, match)
      end
    end
  end

  defp factor(%T{data: %Expr{op: op}} = tensor, weight, other, order, axes, match) do
    with false <- scored?(other, match),
         {:ok, value, match} <- weight(weight, aligned(weight, axes), match),
         {:ok, other, match} <- value(other, aligned(other, axes), %{match | program: :weight}) do
      args = Enum.map(order, &Enum.at([value, other], &1))
      {index, match} = add(match, {op, computed(tensor.type), args, nil})
      {:ok, index, match}
    else
      _ -> :error
    end
  end

  # Weights where the predicate says so, and zeros elsewhere.
  defp select(tensor, predicate, left, right, axes, match) do
    {weight, zero, order} =
      if zero?(right), do: {left, right, [0, 1, 2]}, else: {right, left, [0, 2, 1]}

    with true <- zero?(zero) and not scored?(predicate, match),
         {:ok, weight, match} <- weight(weight, aligned(weight, axes), match),
         match = %{match | program: :weight},
         {:ok, predicate, match} <- value(predicate, aligned(predicate, axes), match),
         {:ok, zero, match} <- value(zero, [], match) do
      args = Enum.map(order, &Enum.at([predicate, weight, zero], &1))
      {index, match} = add(match, {:select, computed(tensor.type), args, nil})
      {:ok, index, match}
    else
      _ -> :error
    end
  end

  defp zero?(%T{data: %Expr{op: :constant, args: [number]}}), do: number == 0
  defp zero?(_tensor), do: false

  ## The softmax

  # exp of scores, times or by the sum of its row.
  defp softmax(%T{data: %Expr{id: id, op: op, args: args}} = tensor, axes, match)
       when op in [:multiply, :divide] do
    [left, right] = for arg <- args, do: Fusion.resolve(arg)

    ways =
      if op == :divide,
        do: [{left, right, :sum}],
        else: [{left, right, :reciprocal}, {right, left, :reciprocal}]

    Enum.find_value(ways, :error, fn {exponential, by, how} ->
      with true <- exponential.shape == tensor.shape,
           {:ok, exponential, match} <- exponential(exponential, own(match, id)),
           {:ok, sum, sum_axes, match} <- row_value(by, aligned(by, axes), how, match),
           {:ok, summed, match} <- reduced(sum, :sum, sum_axes, axes, match),
           {:ok, summed, match} <- exponential(summed, match),
           true <- summed.data.id == exponential.data.id,
           {:ok, match} <- scores(exponential, axes, match),
           do: {:ok, :element, match},
           else: (_ -> nil)
    end)
  end

  defp softmax(_tensor, _axes, _match), do: :error

  defp exponential(%T{data: %Expr{id: id, op: op, args: args}} = tensor, match) do
    case op do
      :exp ->
        {:ok, tensor, own(match, id)}

      :as_type ->
        if float?(tensor.type), do: exponential(Fusion.resolve(hd(args)), own(match, id))

      _ ->
        nil
    end
  end

  # The reduction that is the same for a whole row, by way of views, or of its reciprocal.
  defp row_value(%T{data: %Expr{id: id, op: op, args: args}} = tensor, axes, how, match) do
    match = own(match, id)

    case {op, how} do
      {op, :sum} when op in [:sum, :reduce_max] ->
        {:ok, tensor, axes, match}

      {:divide, :reciprocal} ->
        [one, sum] = for arg <- args, do: Fusion.resolve(arg)
        if one?(one), do: row_value(sum, aligned(sum, axes), :sum, match), else: :error

      {:as_type, _} ->
        if float?(tensor.type),
          do: row_value(Fusion.resolve(hd(args)), axes, how, match),
          else: :error

      _ ->
        with {:ok, operand, axes, match} <- descend(tensor, axes, match),
             do: row_value(operand, axes, how, match)
    end
  end

  defp one?(%T{data: %Expr{op: :constant, args: [number]}}), do: number == 1
  defp one?(_tensor), do: false

  # What the reduction `op` reduces, if it does so along the keys alone and has these axes.
  defp reduced(%T{data: %Expr{op: op, args: [operand, options]}}, op, own, axes, match) do
    operand = Fusion.resolve(operand)
    rank = tuple_size(operand.shape)

    with [axis] <- options[:axes] || Enum.to_list(0..(rank - 1)//1),
         keys = AttentionAxes.expand(match.keys, match.indices),
         kept = if(options[:keep_axes], do: List.delete_at(own, axis), else: own),
         true <- same?(List.insert_at(kept, axis, keys), axes, match),
         do: {:ok, operand, match},
         else: (_ -> :error)
  end

  defp reduced(_tensor, _op, _own, _axes, _match), do: :error

  # The scores that the argument of exp is made of, with or without the largest of the row subtracted.
  defp scores(%T{data: %Expr{args: [argument]}}, axes, match) do
    argument = Fusion.resolve(argument)

    {scores, match} =
      with %T{data: %Expr{id: id, op: :subtract, args: [scores, largest]}} <- argument,
           [scores, largest] = for(arg <- [scores, largest], do: Fusion.resolve(arg)),
           true <- scores.shape == argument.shape,
           {:ok, maximum, maximum_axes, match} <-
             row_value(largest, aligned(largest, axes), :sum, own(match, id)),
           {:ok, operand, match} <- reduced(maximum, :reduce_max, maximum_axes, axes, match),
           true <- operand.data.id == scores.data.id do
        {scores, match}
      else
        _ -> {argument, match}
      end

    with true <- float?(scores.type),
         {:ok, result, match} <- score(scores, axes, %{match | program: :score}),
         true <- match.product != nil,
         do: {:ok, finish(match, :score, result)},
         else: (_ -> :error)
  end

  ## Scores

  # The value of what depends on the product, in the program of scores.
  defp score(%T{data: %Expr{id: id, op: op, args: args}, type: type} = tensor, axes, match) do
    case {op, match.scope.kinds[id]} do
      {:dot, _} ->
        with :error <- product(tensor, axes, match), do: read(tensor, axes, match)

      {:as_type, :elementwise} when type in [{:f, 32}, {:f, 16}, {:bf, 16}] ->
        operand = Fusion.resolve(hd(args))

        if float?(operand.type),
          do: score(operand, axes, own(match, id)),
          else: operation(tensor, axes, own(match, id))

      {op, :elementwise} when op not in @unfit ->
        operation(tensor, axes, own(match, id))

      _ ->
        with {:ok, operand, axes, match} <- descend(tensor, axes, own(match, id)),
             do: score(operand, axes, match)
    end
  end

  defp operation(%T{data: %Expr{op: op, args: args}, type: type}, axes, match) do
    operands = for %T{} = arg <- args, do: Fusion.resolve(arg)

    with {:ok, values, match} <- values(operands, axes, match) do
      {index, match} = add(match, {op, computed(type), values, nil})
      {:ok, index, match}
    end
  end

  defp values(operands, axes, match) do
    Enum.reduce_while(operands, {:ok, [], match}, fn operand, {:ok, values, match} ->
      own = aligned(operand, axes)

      found =
        if match.program == :score and scored?(operand, match),
          do: score(operand, own, match),
          else: value(operand, own, match)

      case found do
        {:ok, value, match} -> {:cont, {:ok, values ++ [value], match}}
        _ -> {:halt, :error}
      end
    end)
  end

  defp scored?(%T{data: %Expr{id: id}}, match), do: id in match.scope.scored

  # The product of queries and keys, times the numbers that they were multiplied by.
  defp product(%T{data: %Expr{id: id}}, axes, %{product: {id, of}} = match),
    do: if(same?(axes, of, match), do: {:ok, :element, match}, else: :error)

  defp product(_tensor, _axes, %{product: {_, _}}), do: :error

  defp product(%T{data: %Expr{id: id, args: args}, type: type}, axes, match) do
    {left, right, depth, match} = factor_axes(args, axes, match)
    keys = AttentionAxes.expand(match.keys, match.indices)

    has_keys =
      for axes <- [left, right], do: Enum.any?(Enum.concat(expanded(axes, match)), &(&1 in keys))

    sides =
      case has_keys do
        [false, true] -> [{Enum.at(args, 0), left}, {Enum.at(args, 3), right}]
        [true, false] -> [{Enum.at(args, 3), right}, {Enum.at(args, 0), left}]
        _ -> nil
      end

    with [{query, query_axes}, {key, key_axes}] <- sides,
         true <- float?(type) and type != {:f, 64} and float?(query.type) and float?(key.type),
         {:ok, query, scales, match} <- source(query, query_axes, match),
         {:ok, key, more, match} <- source(key, key_axes, match) do
      match = own(%{match | query: query, key: key, depth: depth, product: {id, axes}}, id)
      scale(scales ++ more, :element, match)
    else
      _ -> :error
    end
  end

  defp scale([], value, match), do: {:ok, value, match}

  defp scale([{op, number} | scales], value, match) do
    with {:ok, number, match} <- value(number, aligned_to_one(number), match) do
      {index, match} = add(match, {op, {:f, 32}, [value, number], nil})
      scale(scales, index, match)
    end
  end

  defp aligned_to_one(%T{shape: shape}), do: List.duplicate([], tuple_size(shape))

  ## Values that depend on no score

  defp value(%T{data: %Expr{op: :constant}} = tensor, _axes, match),
    do: {:ok, {:constant, tensor}, match}

  defp value(%T{data: %Expr{id: id, op: op, args: args}} = tensor, axes, match) do
    kind = match.scope.kinds[id]

    cond do
      op == :iota and work(tensor, match, 4) <= @most_inlined ->
        iota(tensor, hd(args), axes, member(match, id))

      kind == :elementwise and work(tensor, match, 4) <= @most_inlined ->
        operation(tensor, axes, member(match, id))

      kind in [:view, :reshape] ->
        with {:ok, operand, own, viewed} <- descend(tensor, axes, member(match, id)),
             {:ok, _, _} = found <- value(operand, own, viewed),
             do: found,
             else: (_ -> read(tensor, axes, match))

      true ->
        read(tensor, axes, match)
    end
  end

  # How many operations a value takes, but for those of tensors that are read.
  defp work(_tensor, _match, 0), do: @most_inlined + 1

  defp work(%T{data: %Expr{id: id, op: op}} = tensor, match, depth) do
    operands = fn depth ->
      for operand <- Fusion.operands(tensor), reduce: 0 do
        work -> work + work(operand, match, depth)
      end
    end

    case match.scope.kinds[id] do
      :elementwise when op in @compute_bound or op in @unfit -> @most_inlined + 1
      :elementwise -> 1 + operands.(depth - 1)
      kind when kind in [:view, :reshape] -> operands.(depth)
      _ -> 0
    end
  end

  defp iota(%T{shape: shape, type: type} = tensor, axis, axes, match) do
    long = for {dim, i} <- Enum.with_index(Tuple.to_list(shape)), dim > 1, do: i

    case if(axis, do: [axis], else: long) do
      [axis] ->
        case AttentionAxes.expand(Enum.at(axes, axis), match.indices) do
          [index] ->
            {index, match} = add(match, {:iota, type, [], index})
            {:ok, index, match}

          _ ->
            read(tensor, axes, match)
        end

      _ ->
        read(tensor, axes, match)
    end
  end

  # A stored tensor. The scales of what is read belong to it.
  defp read(tensor, axes, match) do
    case source(tensor, axes, match) do
      {:ok, source, [], match} ->
        {:ok, source, match}

      {:ok, _source, _scales, _match} ->
        {:ok, source, [], match} = dense(tensor, axes, [], match)
        {:ok, source, match}

      :error ->
        :error
    end
  end
end
