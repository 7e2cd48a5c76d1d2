defmodule Nx.Vulkan.Compiler.ContractionFusion do
  @moduledoc false
  # Decides which products become a group with what leads to them and follows them: a group of element-wise
  # operations that goes through the product's elements ends its kernel, as does a reduction of all these to one, an `argmax` of a decoder's
  # next token say, a transpose of it says in which order it is written, and operands that are transposes or slices are read as they are. A convolution is a product here, whose
  # operands are tensors. It knows the groups of `Nx.Vulkan.Compiler.Fusion` and changes none of them.
  #
  # A product that others read as well is kept: the kernel writes it beside what follows. What follows may then read
  # nothing else that depends on the product, or the group would wait for itself.
  #
  # A row group whose one result is a row that a product alone reads, as a norm before a layer, becomes part of the product's
  # group. Whether a kernel computes both is the native side's choice.

  alias Nx.Defn.{Expr, Tree}
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Catalogue
  alias Nx.Vulkan.Compiler.{ContractionGroup, Fusion, FusionGroup, RowFusion}

  @products [:dot, :conv]
  @views [:transpose, :slice, :squeeze]
  # Sums share a kernel with other sums: see `Nx.Vulkan.Compiler.SumFusion`.
  @reductions Catalogue.names(family: :reduction) -- [:sum]

  @typedoc "A group with the tensors that it reads, the one that it ends with, and its product."
  @type contraction :: %{
          group: ContractionGroup.t(),
          inputs: [T.t()],
          result: T.t(),
          product: T.t()
        }

  @doc """
  The groups by the ids of their results, and of the products that are kept. `order` has all tensors, each after those
  that it reads, `state` what `Nx.Vulkan.Compiler.Fusion` knows of them, and `steps` gives the steps of a tensor from
  members' ids, with the tensors that they read.
  """
  @spec contractions([T.t()], map(), (T.t(), MapSet.t() -> {[tuple()], [T.t()]})) ::
          %{reference() => contraction()}
  def contractions(order, state, steps) do
    state = Map.merge(state, %{steps: steps, found: %{}})

    if Enum.any?(order, &(&1.data.op in @products)) do
      state = Map.put(state, :readers, stored_readers(order, state))
      # Both branches of a condition may read a product, one of them with what follows it.
      state = Map.put(state, :keeps?, not Enum.any?(order, &(&1.data.op == :cond)))
      state = Map.put(state, :spans, row_spans(state))
      stored = Enum.filter(order, &is_map_key(state.readers, &1.data.id))
      state = Enum.reduce(stored, state, &follow/2)
      joined = MapSet.new(state.found, fn {_id, %{product: product}} -> product.data.id end)
      state = Enum.reduce(stored, Map.put(state, :joined, joined), &lead/2)
      Map.new(state.found, fn {id, contraction} -> {id, compute_row(contraction, state)} end)
    else
      %{}
    end
  end

  # The readers of each tensor that is stored: results of the definition, and groups by what they end with.
  defp stored_readers(order, state) do
    outside =
      for {id, readers} <- state.readers, :outside in readers, into: %{}, do: {id, [:outside]}

    order
    |> Enum.reverse()
    |> Enum.reduce(outside, fn %T{data: %Expr{id: id}} = tensor, readers ->
      if is_map_key(readers, id),
        do: Enum.reduce(read(tensor, state), readers, &add_reader(&1, id, &2)),
        else: readers
    end)
  end

  defp add_reader(id, reader, readers), do: Map.update(readers, id, [reader], &[reader | &1])

  # The ids of what it reads: the inputs of its group, if it ends one.
  defp read(%T{data: %Expr{id: id}} = tensor, state) do
    if state.kinds[id] in [:elementwise, :reduction],
      do: MapSet.to_list(state.groups[id].inputs),
      else: arguments(tensor)
  end

  defp arguments(tensor) do
    {_args, ids} =
      Tree.apply_args(tensor, :scope, [], fn arg, ids ->
        {arg, if(id = id(arg), do: [id | ids], else: ids)}
      end)

    Enum.uniq(ids)
  end

  defp id(%T{} = arg) do
    with %T{data: %Expr{op: op, id: id}} when op != :constant <- Fusion.resolve(arg),
         do: id,
         else: (_ -> nil)
  end

  ## What follows a product

  defp follow(%T{data: %Expr{id: id, op: op}} = tensor, state) do
    cond do
      is_map_key(state.rows, id) ->
        state

      state.kinds[id] == :elementwise or (op in @reductions and Nx.size(tensor) == 1) ->
        %{members: members, inputs: inputs} = state.groups[id]
        # In one order: a trace that is made again has the same kernels.
        inputs = Enum.sort_by(inputs, &state.positions[&1])
        Enum.find_value(inputs, state, &join(tensor, members, &1, state))

      op == :transpose ->
        Enum.find_value(
          arguments(tensor),
          state,
          &join(tensor, MapSet.new([id]), &1, state)
        )

      true ->
        state
    end
  end

  # The state with the group of a tensor and the product that it reads as the input, or nil.
  defp join(%T{data: %Expr{id: id}} = result, members, input, state) do
    with {:ok, product, reshapes} <- product(input, [], state),
         true <- Nx.size(product) == followed(result) and Nx.size(product) > 0,
         false <- is_map_key(state.found, product.data.id),
         keeps? = keeps?(product, reshapes, id, state),
         true <- not keeps? or state.keeps?,
         members =
           members
           |> MapSet.union(MapSet.new([product.data.id | reshapes]))
           |> views(product, state),
         {:ok, contraction} <- contraction(result, members, product, keeps?, state),
         true <- not keeps? or not waits_for?(contraction, state) do
      found = Map.put(state.found, id, contraction)

      if keeps? do
        found = Map.put(found, product.data.id, contraction)
        %{state | found: found, spans: [span([product.data.id, id], state) | state.spans]}
      else
        %{state | found: found}
      end
    else
      _ -> nil
    end
  end

  # The number of elements that the operation goes through.
  defp followed(%T{data: %Expr{op: op, args: [operand | _]}}) when op in @reductions,
    do: Nx.size(operand)

  defp followed(result), do: Nx.size(result)

  # The product that an input is, and the reshapes in between, which cost nothing.
  defp product(id, reshapes, state) do
    case state.tensors[id] do
      %T{data: %Expr{op: op}} = product when op in @products ->
        {:ok, product, reshapes}

      tensor ->
        with :reshape <- state.kinds[id],
             [operand] <- arguments(tensor),
             do: product(operand, [id | reshapes], state)
    end
  end

  # Whether others read the product, or a reshape of it.
  defp keeps?(product, reshapes, result, state) do
    own = [result | reshapes]

    Enum.any?([product.data.id | reshapes], fn id ->
      Enum.any?(state.readers[id], &(&1 not in own))
    end)
  end

  defp contraction(result, members, product, keeps?, state) do
    {steps, inputs} = state.steps.(result, members)

    with true <- inputs != [],
         {:ok, group} <- ContractionGroup.new(steps, inputs, keeps?),
         do: {:ok, %{group: group, inputs: inputs, result: result, product: product}}
  end

  # Whether a tensor that the group reads is computed from the product, by way of the groups that were found.
  defp waits_for?(%{inputs: inputs, product: product}, state) do
    ids = for input <- inputs, do: input.data.id
    cut = cut(state.positions[product.data.id] - 1, state.spans)
    reaches?(ids, product.data.id, cut, MapSet.new(), state)
  end

  defp reaches?([], _product, _cut, _seen, _state), do: false
  defp reaches?([product | _ids], product, _cut, _seen, _state), do: true

  defp reaches?([id | ids], product, cut, seen, state) do
    if state.positions[id] <= cut or id in seen do
      reaches?(ids, product, cut, seen, state)
    else
      read =
        case state.found do
          %{^id => %{inputs: inputs}} -> for(input <- inputs, do: input.data.id)
          %{} -> read_by_kernel(id, state)
        end

      reaches?(read ++ ids, product, cut, MapSet.put(seen, id), state)
    end
  end

  # The last position, from this one back, that no kernel has results on both sides of. What stands up to there depends on
  # nothing behind it.
  defp cut(position, spans) do
    case for({first, last} <- spans, first <= position and last > position, do: first) do
      [] -> position
      firsts -> cut(Enum.min(firsts) - 1, spans)
    end
  end

  # The positions of the first and the last result of a kernel.
  defp span(ids, state), do: ids |> Enum.map(&state.positions[&1]) |> Enum.min_max()

  defp row_spans(%{rows: rows} = state),
    do: for({_id, %{roots: roots}} <- rows, uniq: true, do: span(Map.keys(roots), state))

  # What a kernel reads that stores the tensor: of a row group all that its parts read.
  defp read_by_kernel(id, state) do
    case state.rows do
      %{^id => %{roots: roots}} ->
        Enum.flat_map(roots, fn {id, _} -> read(state.tensors[id], state) end)

      %{} ->
        arguments(state.tensors[id])
    end
  end

  ## What leads to a product

  # A product that nothing follows is a group where an operand is a view or a row that is computed for it.
  defp lead(%T{data: %Expr{id: id, op: :dot}} = product, state) do
    own = MapSet.new([id])
    members = views(own, product, state)

    with false <- is_map_key(state.found, id) or id in state.joined,
         true <- MapSet.size(members) > 1 or reads_row?(product, state),
         {:ok, contraction} <- contraction(product, members, product, false, state) do
      put_in(state.found[id], contraction)
    else
      _ -> state
    end
  end

  defp lead(_tensor, state), do: state

  defp reads_row?(product, state),
    do: Enum.any?(Fusion.operands(product), &row?(&1, product, state))

  ## Rows that a product reads

  # The contraction with the row group whose result it reads, where nothing else does.
  defp compute_row(%{group: group, inputs: inputs, product: product} = contraction, state) do
    with true <- state.keeps?,
         {%T{data: %Expr{id: id}}, index} <-
           Enum.find(Enum.with_index(inputs), fn {input, index} ->
             ContractionGroup.operand?(group, index) and row?(input, product, state)
           end),
         {:ok, row, of_row} <- RowFusion.block(state.rows[id], state),
         inputs = of_row ++ List.delete_at(inputs, index),
         true <- length(inputs) <= FusionGroup.most_inputs() do
      group = ContractionGroup.with_row(group, index, row, length(of_row))
      %{contraction | group: group, inputs: inputs}
    else
      _ -> contraction
    end
  end

  defp row?(%T{data: %Expr{id: id}}, %T{data: %Expr{id: product}}, state) do
    case state.rows do
      %{^id => %{outputs: [^id], roots: %{^id => :element}} = rows} ->
        RowFusion.row_count(rows) == 1 and state.users[id] == [product]

      %{} ->
        false
    end
  end

  # The members with the views that the product's operands are.
  defp views(members, %T{data: %Expr{op: :conv}}, _state), do: members

  defp views(members, %T{data: %Expr{op: :dot, args: [left, _, _, right, _, _]}}, state) do
    for operand <- [left, right],
        id = id(operand),
        state.kinds[id] == :view and state.tensors[id].data.op in @views,
        view <- view(id, state),
        into: members,
        do: view
  end

  @doc false
  # The view, and those that it is a view of.
  def view(id, state) do
    case arguments(state.tensors[id]) do
      [operand] when is_map_key(state.kinds, operand) ->
        if state.kinds[operand] == :view and state.tensors[operand].data.op in @views,
          do: [id | view(operand, state)],
          else: [id]

      _ ->
        [id]
    end
  end
end
