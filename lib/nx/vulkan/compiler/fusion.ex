defmodule Nx.Vulkan.Compiler.Fusion do
  @moduledoc false
  # Fuses element-wise operations that follow each other, and a reduction with those that lead to it, into
  # one kernel: the values between them are never stored. It decides which operations form a fusion group;
  # how a group becomes a program is `Nx.Vulkan.Compiler.Lowering`'s.
  #
  # In a definition's expression each group becomes a block, `Nx.Vulkan.Compiler.FusionGroup`, whose
  # arguments are the tensors that the group reads. Everything else is left to `Nx.Defn.Evaluator`.
  #
  # An operation joins the group of an operation that reads it if both go through the same elements. Where
  # several read it, it joins all their groups and is recomputed in each, if that is less work than storing
  # and loading its result: if it loads few tensors itself and is not compute-bound. A result of the
  # definition, and what another kind of operation reads, is stored, and all read it from there.
  #
  # What chooses elements by indices, `Nx.take` or a slice that starts where a tensor says, joins the one operation that reads
  # them element by element. It reads what is stored, and rows, products and kernels of several maps read its group's result
  # from memory.
  #
  # Terms: a group's `members` are the ids of its operations, `inputs` the ids of the tensors that it reads,
  # and `constants` its numbers, all sets. It is `flat` where it computes an element from those at the same
  # index in row-major order, whatever the shape, and `index_dependent` where it computes one from its
  # index. `compute_bound` counts its operations of that cost, `divisions` its divisions, `gathers` those that choose by indices.

  alias Nx.Block
  alias Nx.Defn.{Composite, Expr, Tree}
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.Elementwise
  alias Nx.Vulkan.Catalogue

  alias Nx.Vulkan.Compiler.{
    AttentionFusion,
    Branches,
    ContractionFusion,
    ContractionGroup,
    Convergence,
    DeviceLoop,
    FusionGroup,
    Gathers,
    GroupSteps,
    HostCond,
    HostLoop,
    MapFusion,
    RowFusion,
    SumFusion,
    UpdateFusion
  }

  @views Catalogue.names(family: :view)
  @reductions Catalogue.names(family: :reduction)
  @elementwise Catalogue.elementwise() ++ Catalogue.names(family: :creation)
  @compute_bound Catalogue.names(cost: :compute_bound)
  @divisions [:divide, :quotient, :remainder]

  # Bounds of a group: what compilers and registers take, and the values of a program.
  @most_members 160
  @most_values 240
  # Operands of an operation besides the one that joins its group, each of which may be an input.
  @other_operands 2
  # Operations of a group that is recomputed for each element that it broadcasts to.
  @most_broadcast_members 8
  # Elements for which a division is recomputed. It takes a dozen instructions: of 2^23 elements an H200 takes 3 µs, as for a
  # kernel that stores its results.
  @most_broadcast_divisions 2 ** 23

  @doc """
  The expression of a definition or of a loop's body, a tensor or a container of tensors, with its groups as blocks.
  """
  @spec fuse(Nx.Container.t(), :definition | :loop | :device_loop) :: Nx.Container.t()
  def fuse(expr, scope \\ :definition) do
    # Attention, row groups and map groups have several results, which the steps of a loop on the device have not.
    shares? = scope != :device_loop
    expr = if shares?, do: AttentionFusion.fuse(expr), else: expr
    {order, readers} = scope(expr)
    kinds = if shares?, do: order |> kinds() |> with_gathers(order), else: kinds(order)
    tensors = Map.new(order, &{&1.data.id, &1})

    positions =
      order |> Enum.with_index() |> Map.new(fn {tensor, index} -> {tensor.data.id, index} end)

    state = %{kinds: kinds, tensors: tensors, readers: readers, groups: %{}, positions: positions}
    state = Map.put(state, :branches, Branches.find(order, readers))
    state = Map.put(state, :meetings, Convergence.find(order, state))
    state = Enum.reduce(order, state, &put_in(&2.groups[&1.data.id], group(&1, &2)))
    state = if shares?, do: Map.put(state, :users, RowFusion.users(order, state)), else: state
    rows = if shares?, do: RowFusion.find(order, state), else: %{}
    state = Map.merge(state, %{rows: rows, scope: scope})
    contractions = ContractionFusion.contractions(order, state, &GroupSteps.steps/2)
    state = Map.put(state, :contractions, contractions)
    sums = if shares?, do: SumFusion.find(order, state), else: %{}
    maps = if shares?, do: MapFusion.find(order, state), else: %{}
    updates = UpdateFusion.find(order, state)
    state = with_shared(state, Enum.reduce([sums, maps, updates], rows, &Map.merge(&2, &1)))
    {expr, _done} = Composite.traverse(expr, %{}, &rebuild_output(&1, state, &2))
    expr
  end

  # Each block is read by its results.
  defp with_shared(%{readers: readers} = state, shared) do
    ids = for {_id, %{outputs: outputs}} <- shared, into: %{}, do: {outputs, make_ref()}
    shared = Map.new(shared, fn {id, group} -> {id, Map.put(group, :id, ids[group.outputs])} end)
    readers = Map.merge(readers, Map.new(ids, fn {outputs, id} -> {id, outputs} end))
    Map.merge(state, %{shared: shared, readers: readers})
  end

  ## The operations and what reads them

  # All tensors of the scope, each after those that it reads, and the readers of each.
  @doc false
  def scope(expr) do
    {order, readers} = Composite.reduce(expr, {[], %{}}, &visit(Nx.devectorize(&1), :outside, &2))
    {Enum.reverse(order), readers}
  end

  defp visit(tensor, reader, {order, readers}) do
    case resolve(tensor) do
      %T{data: %Expr{op: :constant}} ->
        {order, readers}

      %T{data: %Expr{id: id}} = tensor ->
        {seen, readers} =
          Map.get_and_update(readers, id, fn
            nil -> {nil, [reader]}
            list -> {list, Enum.uniq([reader | list])}
          end)

        if seen do
          {order, readers}
        else
          {_args, {order, readers}} =
            Tree.apply_args(tensor, :scope, {order, readers}, &{&1, visit(&1, id, &2)})

          {[tensor | order], readers}
        end
    end
  end

  # Metadata change no value. Operations are of tensors without vectorized axes; what a hook gets may have them.
  @doc false
  def resolve(%T{data: %Expr{op: :metadata, args: [%T{} = tensor, _]}}), do: resolve(tensor)
  def resolve(%T{} = tensor), do: Nx.devectorize(tensor)

  # What each tensor of a scope is to a group.
  @doc false
  def kinds(order), do: Enum.reduce(order, %{}, &Map.put(&2, &1.data.id, kind(&1, &2)))

  defp kind(%T{data: %Expr{op: op}} = tensor, kinds) do
    cond do
      op in @reductions -> :reduction
      op == :squeeze and Enum.all?(operands(tensor), &(kinds[&1.data.id] == :view)) -> :view
      op in [:reshape, :squeeze] -> :reshape
      op in @views and operands(tensor) != [] and Gathers.static?(tensor) -> :view
      op in @elementwise and checked?(tensor) -> :elementwise
      true -> :other
    end
  end

  # Loops on the device and chains look at each element that they choose.
  defp with_gathers(kinds, order) do
    for tensor <- order, Gathers.gather?(tensor), into: kinds, do: {tensor.data.id, :gather}
  end

  # Shifts and powers of integers look at their operands before they run: constants are known to pass.
  defp checked?(%T{data: %Expr{op: op, args: args}} = tensor) do
    {:ok, %{checks: checks}} = Catalogue.fetch(op)
    Enum.all?(Elementwise.read_by(checks, tensor, args), &passes?(resolve(&1)))
  end

  defp passes?(%T{data: %Expr{op: :constant, args: [number]}}),
    do: is_integer(number) and number >= 0

  defp passes?(_tensor), do: false

  ## Groups

  # The group that ends with the tensor if its result is stored, and whether it joins those of all its
  # readers.
  defp group(%T{data: %Expr{id: id, op: op}, shape: shape} = tensor, state) do
    kind = state.kinds[id]

    start = %{
      members: MapSet.new([id]),
      inputs: MapSet.new(),
      constants: constants(tensor),
      flat: kind not in [:view, :gather],
      index_dependent: op in [:iota, :eye],
      reshaped: kind == :reshape,
      compute_bound: if(op in @compute_bound, do: 1, else: 0),
      divisions: if(op in @divisions, do: 1, else: 0),
      gathers: if(kind == :gather, do: 1, else: 0)
    }

    group =
      if(kind == :other, do: [], else: operands(tensor))
      |> Enum.sort_by(&state.groups[&1.data.id].gathers)
      |> Enum.reduce(start, fn %T{data: %Expr{id: operand}}, group ->
        joined = state.groups[operand]
        both = merge(group, joined)

        if (kind not in [:view, :gather] or op == :squeeze) and joined.joins and
             small?(both, @other_operands) and Gathers.fit?(both, state),
           do: both,
           else: %{group | inputs: MapSet.put(group.inputs, operand)}
      end)

    same? = fn id -> Nx.size(state.tensors[id]) in [1, Nx.size(shape)] end
    flat = group.flat and not group.index_dependent and Enum.all?(group.inputs, same?)
    group = %{group | flat: flat}
    Map.put(group, :joins, joins?(tensor, kind, group, state))
  end

  # The tensors that it computes with, but for constants, which are part of the kernel.
  @doc false
  def operands(%T{data: %Expr{op: :block, args: [%Block.Take{}, args | _]}}), do: operands(args)

  def operands(%T{data: %Expr{op: :slice, args: [tensor, starts | _]}}),
    do: operands([tensor | starts])

  def operands(%T{data: %Expr{args: args}}), do: operands(args)

  def operands(args) when is_list(args) do
    for %T{} = arg <- args,
        %T{data: %Expr{op: op}} = operand <- [resolve(arg)],
        op != :constant,
        do: operand
  end

  defp constants(%T{data: %Expr{args: args}}) do
    for %T{type: type} = arg <- args,
        %T{data: %Expr{op: :constant, args: [number]}} <- [resolve(arg)],
        into: MapSet.new(),
        do: {type, number}
  end

  defp merge(a, b) do
    %{
      members: MapSet.union(a.members, b.members),
      inputs: MapSet.union(a.inputs, b.inputs),
      constants: MapSet.union(a.constants, b.constants),
      flat: a.flat and b.flat,
      index_dependent: a.index_dependent or b.index_dependent,
      reshaped: a.reshaped or b.reshaped,
      compute_bound: a.compute_bound + b.compute_bound,
      divisions: a.divisions + b.divisions,
      gathers: a.gathers + b.gathers
    }
  end

  # Whether a kernel takes what the sets name, and that many more inputs.
  @doc false
  def small?(%{members: members, inputs: inputs, constants: constants}, more_inputs \\ 0) do
    [members, inputs, constants] = Enum.map([members, inputs, constants], &MapSet.size/1)

    members <= @most_members and inputs + more_inputs <= FusionGroup.most_inputs() and
      members + inputs + constants <= @most_values
  end

  defp joins?(_tensor, kind, _group, _state) when kind in [:other, :reduction], do: false

  defp joins?(%T{data: %Expr{id: id}, shape: shape}, _kind, %{gathers: gathers}, state)
       when gathers > 0 do
    case state.readers[id] do
      [:outside] -> false
      [id] -> state.kinds[id] == :elementwise and state.tensors[id].shape == shape
      _several -> false
    end
  end

  # A reshape of what is stored costs nothing.
  defp joins?(%T{data: %Expr{id: id}} = tensor, kind, group, state) do
    readers = state.readers[id]

    (kind != :reshape or MapSet.size(group.members) > 1) and
      Enum.all?(readers, &joined_by?(&1, tensor, group, state)) and
      not divides_often?(readers, tensor, group, state) and
      recomputed?(readers, tensor, group, state)
  end

  defp joined_by?(:outside, _tensor, _group, _state), do: false

  defp joined_by?(reader, %T{data: %Expr{id: id}, shape: shape}, group, state) do
    case state.kinds[reader] do
      :elementwise -> state.tensors[reader].shape == shape or cheap_to_broadcast?(group)
      :reduction -> true
      :reshape -> group.flat
      # Of the views only a squeeze reads a view within a group.
      :view -> state.kinds[id] == :view and state.tensors[reader].data.op == :squeeze
      kind when kind in [:gather, :other] -> false
    end
  end

  # A group that is broadcast may be recomputed for each element of its reader where that is hardly more
  # than loading its result.
  defp cheap_to_broadcast?(group) do
    group.compute_bound == 0 and not group.index_dependent and not group.reshaped and
      MapSet.size(group.members) <= @most_broadcast_members and MapSet.size(group.inputs) <= 2
  end

  # Readers of one broadcast are in different kernels, as those of a batch norm's mean.
  defp divides_often?(_readers, _tensor, %{divisions: 0}, _state), do: false

  defp divides_often?(readers, tensor, _group, state) do
    sizes = for id <- readers, do: Nx.size(state.tensors[id])
    Enum.sum(for size <- sizes, size > Nx.size(tensor), do: size) >= @most_broadcast_divisions
  end

  defp recomputed?([_], _tensor, _group, _state), do: true

  # Readers that lead to one operation are of one group.
  defp recomputed?(_readers, %T{data: %Expr{id: id}}, _group, %{meetings: meetings})
       when is_map_key(meetings, id),
       do: true

  # Compares loading its inputs in each of the groups with loading them once, storing the result, and
  # loading that. A compute-bound operation takes as long as loading.
  defp recomputed?(readers, tensor, group, state) do
    size = Nx.size(tensor)
    loads = Enum.count(group.inputs, &(Nx.size(state.tensors[&1]) * 2 > size))
    groups = length(readers)
    group.compute_bound == 0 and groups * loads <= loads + 1 + groups
  end

  ## Building

  # A tensor is vectorized only outside of definitions.
  defp rebuild_output(%T{} = tensor, state, done) do
    {flat, done} = rebuild(Nx.devectorize(tensor), state, done)
    {%{tensor | data: flat.data}, done}
  end

  defp rebuild(tensor, state, done) do
    %T{data: %Expr{id: id}} = tensor = resolve(tensor)

    case done do
      %{^id => rebuilt} ->
        {rebuilt, done}

      %{} ->
        case state.contractions do
          %{^id => contraction} ->
            done = rebuild_contraction(contraction, state, done)
            {Map.fetch!(done, id), done}

          %{} ->
            {rebuilt, done} = rebuild_shared(state.shared[id], tensor, state, done)
            {rebuilt, Map.put(done, id, rebuilt)}
        end
    end
  end

  defp rebuild_contraction(contraction, state, done) do
    %{group: group, inputs: inputs, result: result, product: product} = contraction
    {inputs, done} = Enum.map_reduce(inputs, done, &rebuild(&1, state, &2))
    {rebuilt, kept} = ContractionGroup.expressions(group, inputs, result, product)
    done = Map.put(done, result.data.id, rebuilt)
    if kept, do: Map.put(done, product.data.id, kept), else: done
  end

  # The result of the kernel that the tensor shares with others, whose block is rebuilt once.
  defp rebuild_shared(
         %{outputs: outputs} = shared,
         %T{data: %Expr{id: id} = expr} = tensor,
         state,
         done
       ) do
    position = Enum.find_index(outputs, &(&1 == id))

    case position && shared_block(shared, state, done) do
      {%T{} = block, done} ->
        {%{tensor | data: %{expr | op: :elem, args: [block, position]}}, done}

      _ ->
        rebuild(state.kinds[id], tensor, state, done)
    end
  end

  defp rebuild_shared(nil, %T{data: %Expr{id: id}} = tensor, state, done),
    do: rebuild(state.kinds[id], tensor, state, done)

  defp shared_block(%{outputs: outputs} = shared, state, done) do
    key = {:shared, outputs}

    case done do
      %{^key => block} ->
        block && {block, done}

      %{} ->
        with {:ok, group, inputs} <- fused_shared(shared, state) do
          {inputs, done} = Enum.map_reduce(inputs, done, &rebuild(&1, state, &2))
          outs = for id <- outputs, do: state.tensors[id]
          args = [group, inputs, List.to_tuple(outs), FusionGroup.default(length(inputs))]
          expr = %{hd(outs).data | id: shared.id, op: :block, args: args}
          type = {:tuple, length(outs)}
          block = %T{shape: {}, names: [], type: type, data: expr}
          {block, Map.put(done, key, block)}
        else
          _ -> nil
        end
    end
  end

  defp rebuild(kind, %T{data: %Expr{id: id} = expr} = tensor, state, done)
       when kind in [:elementwise, :reduction] do
    # A group of one operation gains nothing, and one that reads nothing has no tensor to choose a backend by.
    with {[_, _ | _] = steps, [_ | _] = inputs} <-
           GroupSteps.steps(tensor, state.groups[id].members),
         {:ok, fused} <- FusionGroup.new(steps, inputs) do
      {inputs, done} = Enum.map_reduce(inputs, done, &rebuild(&1, state, &2))
      args = [fused, inputs, tensor, FusionGroup.default(length(inputs))]
      {%{tensor | data: %{expr | op: :block, args: args}}, done}
    else
      _ -> rebuild(:other, tensor, state, done)
    end
  end

  # The scope of a loop is its own: its operations refer to none outside.
  defp rebuild(
         _kind,
         %T{data: %Expr{op: :while, args: [initial, arg, pred, block]} = expr} = tensor,
         state,
         done
       ) do
    {initial, done} = Composite.traverse(initial, done, &rebuild(&1, state, &2))
    {fused_pred, fused_block} = fuse({pred, block}, :device_loop)
    loop = %{tensor | data: %{expr | args: [initial, arg, fused_pred, fused_block]}}

    case DeviceLoop.lower_while(loop, {pred, block}) do
      %T{data: %Expr{op: :block}} = device_loop ->
        {device_loop, done}

      loop ->
        scope = if state.scope == :device_loop, do: :device_loop, else: :loop
        {fused_pred, fused_block} = fuse({pred, block}, scope)
        loop = %{loop | data: %{loop.data | args: [initial, arg, fused_pred, fused_block]}}
        {HostLoop.lower(loop, {pred, block}), done}
    end
  end

  # What has several results is no step of a program on the device: its operations are groups of their own there.
  defp rebuild(_kind, %T{data: %Expr{op: :cond, id: id}} = tensor, state, done) do
    {within, others} =
      Map.split_with(state.shared, fn {output, group} ->
        not is_map_key(group, :update) and Branches.within?(state.branches[output], id)
      end)

    with true <- within != %{},
         {%T{data: %Expr{op: :block}}, _done} = lowered <-
           lower_cond(tensor, %{state | shared: others}, done) do
      lowered
    else
      _ ->
        case lower_cond(tensor, state, done) do
          {%T{data: %Expr{op: :cond}} = branches, done} -> {HostCond.lower(branches), done}
          lowered -> lowered
        end
    end
  end

  defp rebuild(_kind, %T{data: %Expr{op: op, args: args} = expr} = tensor, state, done) do
    {args, done} =
      case {op, args} do
        {:constant, _} ->
          {args, done}

        {:tensor, [captured]} ->
          {[Nx.Vulkan.Compiler.on_device(captured)], done}

        _ ->
          Tree.apply_args(tensor, :scope, done, &rebuild(&1, state, &2))
      end

    {%{tensor | data: %{expr | args: args}}, done}
  end

  defp lower_cond(%T{data: expr} = tensor, state, done) do
    {args, done} = Tree.apply_args(tensor, :scope, done, &rebuild(&1, state, &2))
    {DeviceLoop.lower_cond(%{tensor | data: %{expr | args: args}}, state.readers), done}
  end

  defp fused_shared(%{parts: _} = maps, state), do: MapFusion.block(maps, state)
  defp fused_shared(%{update: _} = update, state), do: UpdateFusion.block(update, state)
  defp fused_shared(%{roots: _} = rows, state), do: RowFusion.block(rows, state)
  defp fused_shared(sums, state), do: SumFusion.block(sums, state)
end
