defmodule Nx.Vulkan.Compiler.RowFusion do
  @moduledoc false
  # Finds the groups that can share one kernel because they go through the same rows: several reductions over
  # the same last axes, what is computed of their results, and what is computed of each element with them, as in
  # a softmax or a layer norm. It joins groups that `Nx.Vulkan.Compiler.Fusion` has found; how they become a
  # program is `Nx.Vulkan.Compiler.Lowering`'s.
  #
  # A group belongs to the rows of a reduction if it ends with a tensor of the reduced shape, an `:element` of the
  # rows, or with one value for each row, a `:row`. It joins where it reads a group that belongs to them already,
  # or reduces what one of them reads. It must not read what depends on them by way of another kernel, which would
  # have to run between their parts.

  import Bitwise

  alias Nx.Defn.{Expr, Tree}
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Catalogue
  alias Nx.Vulkan.Compiler.{Fusion, FusionGroup, RowGroup}

  @reductions Catalogue.names(family: :reduction)
  # Of the elements of a row, those of an operation on other elements are not at hand, and indices are others.
  @unfit [:transpose, :reverse, :iota, :eye]

  # Rows of more elements are reduced by many workgroups each.
  @most_row_elements 65_536
  # From this many elements on, few rows are too much for a workgroup each.
  @few_rows 16
  @most_few_row_elements 16_384
  # Bounds of a kernel, as in `Fusion`.
  @most_members 128
  @most_constants 100
  @most_outputs 8

  @typedoc "`shape` is the reduced shape, `row_axes` the number of its last axes that make a row."
  @type rows :: %{
          shape: tuple(),
          row_axes: pos_integer(),
          roots: %{reference() => :element | :row},
          members: MapSet.t(),
          outputs: [reference()]
        }

  @doc "The groups that share kernels, by the ids of the tensors that they end with."
  @spec find([T.t()], map()) :: %{reference() => rows()}
  def find(order, %{users: users} = state) do
    stored = for %T{data: %Expr{id: id}} = tensor <- order, is_map_key(users, id), do: tensor
    inputs = Map.new(stored, &{&1.data.id, inputs(&1, state)})
    state = state |> Map.put(:inputs, inputs) |> Map.merge(dependencies(stored, inputs))

    for %T{data: %Expr{id: id}} = tensor <- stored, state.kinds[id] == :reduction, reduce: %{} do
      found ->
        with false <- is_map_key(found, id),
             {_shape, _row_axes} = space <- space(tensor, state),
             %{} = rows <- grow(tensor, space, found, state),
             do: Map.merge(found, Map.new(rows.roots, fn {root, _kind} -> {root, rows} end)),
             else: (_ -> found)
    end
  end

  # For each tensor that is stored the tensors whose kernels read it, and `:outside`.
  @doc false
  def users(order, state) do
    for %T{data: %Expr{id: id}} = tensor <- Enum.reverse(order), reduce: %{} do
      users ->
        outside? = :outside in state.readers[id]

        case users do
          %{^id => _} when outside? -> read(tensor, update_in(users[id], &[:outside | &1]), state)
          %{^id => _} -> read(tensor, users, state)
          %{} when outside? -> read(tensor, Map.put(users, id, [:outside]), state)
          %{} -> users
        end
    end
  end

  defp read(%T{data: %Expr{id: id}} = tensor, users, state) do
    Enum.reduce(inputs(tensor, state), users, fn input, users ->
      Map.update(users, input, [id], &[id | &1])
    end)
  end

  # The ids of what a stored tensor's kernel reads.
  @doc false
  def inputs(%T{data: %Expr{id: id}} = tensor, state) do
    if state.kinds[id] in [:elementwise, :reduction] do
      MapSet.to_list(state.groups[id].inputs)
    else
      {_tensor, ids} =
        Tree.apply_args(tensor, :scope, [], fn arg, ids ->
          case Fusion.resolve(arg) do
            %T{data: %Expr{op: :constant}} -> {arg, ids}
            %T{data: %Expr{id: input}} -> {arg, [input | ids]}
          end
        end)

      Enum.uniq(ids)
    end
  end

  # The index of each tensor that is stored, and as bits the indices of all that it is computed from, its own included.
  defp dependencies(stored, inputs) do
    for {%T{data: %Expr{id: id}}, index} <- Enum.with_index(stored),
        reduce: %{indices: %{}, ancestors: %{}} do
      %{indices: indices, ancestors: ancestors} ->
        bits = Enum.reduce(inputs[id], 1 <<< index, &(ancestors[&1] ||| &2))
        %{indices: Map.put(indices, id, index), ancestors: Map.put(ancestors, id, bits)}
    end
  end

  ## The rows of a reduction

  # The reduced shape, and how many of its last axes a reduction of whole rows reduces.
  defp space(%T{data: %Expr{op: op, args: [operand, options]}}, _state) when op in @reductions do
    %T{shape: shape} = Fusion.resolve(operand)
    rank = tuple_size(shape)
    all = Enum.to_list(0..(rank - 1)//1)

    axes =
      if op in [:argmax, :argmin],
        do: if(options[:axis], do: [options[:axis]], else: rank == 1 && [0]),
        else: Enum.sort(options[:axes] || all)

    with [first | _] when axes != false <- axes || [],
         true <- axes == Enum.to_list(first..(rank - 1)),
         row_axes = rank - first,
         true <- fits?(shape, row_axes),
         do: {shape, row_axes},
         else: (_ -> nil)
  end

  defp fits?(shape, row_axes) do
    elements = row_elements(shape, row_axes)
    rows = div(Nx.size(shape), max(elements, 1))

    elements in 2..@most_row_elements and
      (rows >= @few_rows or elements <= @most_few_row_elements)
  end

  defp row_elements(shape, row_axes),
    do: shape |> Tuple.to_list() |> Enum.take(-row_axes) |> Enum.product()

  @doc false
  def row_count(%{shape: shape, row_axes: row_axes}), do: row_count({shape, row_axes})

  def row_count({shape, row_axes}), do: div(Nx.size(shape), row_elements(shape, row_axes))

  ## Joining

  # Goes through what reads these rows, in the order of the kernels, from those on that compute what the reduction reads.
  defp grow(%T{data: %Expr{id: id}}, space, found, state) do
    state = Map.put(state, :branch, state.branches[id])
    before = producers([id], space, found, state, MapSet.new())

    Enum.find_value([before, MapSet.new()], fn seeds ->
      seeds = MapSet.put(seeds, id)

      # `others` are, as bits, the indices of kernels that read these rows and are not of them. What depends on them runs later.
      start = %{
        roots: %{},
        others: 0,
        members: MapSet.new(),
        inputs: MapSet.new(),
        constants: MapSet.new(),
        open: open(:gb_sets.new(), seeds, state)
      }

      with %{} = rows <- grow_open(start, seeds, space, found, state),
           do: finish(rows, space, state)
    end)
  end

  defp grow_open(%{open: open} = rows, seeds, space, found, state) do
    if :gb_sets.is_empty(open) do
      rows
    else
      {{_position, id}, open} = :gb_sets.take_smallest(open)

      with %{} = rows <- join(id, seeds, space, %{rows | open: open}, found, state),
           do: grow_open(rows, seeds, space, found, state)
    end
  end

  defp open(open, ids, state),
    do: Enum.reduce(ids, open, &:gb_sets.add_element({state.positions[&1], &1}, &2))

  # The groups of elements that a reduction reads, by way of such groups too.
  defp producers(ids, space, found, state, seen) do
    for id <- ids,
        input <- state.inputs[id],
        input not in seen,
        kind(state.tensors[input], space, found, state) == :element,
        state.kinds[input] == :elementwise,
        reduce: seen do
      seen -> producers([input], space, found, state, MapSet.put(seen, input))
    end
  end

  # The rows with the tensor, or `nil` where a seed is none of them.
  defp join(id, seeds, space, rows, found, state) do
    tensor = state.tensors[id]
    inputs = state.inputs[id]
    waits? = Enum.any?(inputs, &((state.ancestors[&1] &&& rows.others) != 0))
    kind = if not waits?, do: kind(tensor, space, found, state)

    cond do
      kind != nil and reads_fit?(tensor, kind, rows, space, state) and
          small?(rows, id, kind, state) ->
        rows = add(rows, id, kind, state)
        update_in(rows.open, &open(&1, candidates(id, space, state), state))

      id in seeds ->
        nil

      Enum.any?(inputs, &is_map_key(rows.roots, &1)) ->
        update_in(rows.others, &(&1 ||| 1 <<< state.indices[id]))

      true ->
        rows
    end
  end

  # What may join after a tensor: what reads it, and reductions of the elements that it reads.
  defp candidates(id, {shape, _row_axes}, state) do
    beside =
      for input <- state.inputs[id],
          Nx.size(state.tensors[input]) == Nx.size(shape),
          user <- state.users[input],
          state.kinds[user] == :reduction and state.positions[user] > state.positions[id],
          do: user

    for user <- state.users[id] ++ beside, user != :outside, uniq: true, do: user
  end

  # What a kernel that goes through the rows computes: an `:element`'s value or a `:row`'s.
  defp kind(%T{data: %Expr{id: id}, shape: own} = tensor, {shape, row_axes} = space, found, state) do
    kind = state.kinds[id]
    group = state.groups[id]

    unfit? = fn ->
      group.gathers > 0 or Enum.any?(group.members, &(state.tensors[&1].data.op in @unfit))
    end

    cond do
      is_map_key(found, id) ->
        nil

      # A branch of a `cond` computes its own values alone.
      state.branches[id] != state.branch ->
        nil

      kind == :reduction ->
        if space(tensor, state) == space and not unfit?.(), do: :row

      kind not in [:elementwise, :reshape] ->
        nil

      kind == :elementwise and own == shape ->
        if not unfit?.() and not ends_product?(tensor, space, state), do: :element

      not row_shape?(own, shape, row_axes) ->
        nil

      kind == :elementwise and unfit?.() ->
        nil

      true ->
        :row
    end
  end

  # A product of one row takes what follows it in its own kernel, where the row that is computed from that may be part of the next
  # product's. A layer of GPT-2 adds its input to a product, and its norm leads to another one.
  defp ends_product?(%T{data: %Expr{id: id}} = tensor, {shape, row_axes} = space, state) do
    inputs = state.inputs[id]
    of_row? = fn input -> row_shape?(state.tensors[input].shape, shape, row_axes) end

    row_count(space) == 1 and not Enum.any?(inputs, of_row?) and
      Enum.any?(inputs, &product?(&1, tensor, state))
  end

  defp product?(id, %T{} = result, state) do
    case state.tensors[id] do
      %T{data: %Expr{op: :dot}} = product ->
        Nx.size(product) == Nx.size(result)

      %T{} = tensor ->
        state.kinds[id] == :reshape and Enum.any?(state.inputs[id], &product?(&1, tensor, state))

      nil ->
        false
    end
  end

  # The shape without the axes of a row, or with one element along each.
  defp row_shape?(own, shape, row_axes) do
    outer = shape |> Tuple.to_list() |> Enum.drop(-row_axes)
    Tuple.to_list(own) in [outer, outer ++ List.duplicate(1, row_axes)]
  end

  # Whether the group's operations take what they read of the others for what it is: an element for the element at
  # the same index, a row's value for all elements of the row.
  defp reads_fit?(%T{data: %Expr{id: id}}, kind, rows, space, state) do
    # What leads to a reduction is computed for each element.
    kind = if state.kinds[id] == :reduction, do: :element, else: kind

    Enum.all?(members(id, state), fn member ->
      tensor = state.tensors[member]

      Enum.all?(Fusion.operands(tensor), fn %T{data: %Expr{id: operand}} = read ->
        case rows.roots do
          %{^operand => read_kind} -> read_fits?(tensor, read, kind, read_kind, space, state)
          %{} -> true
        end
      end)
    end)
  end

  defp read_fits?(
         %T{data: %Expr{id: id, op: op, args: args}} = reader,
         read,
         kind,
         read_kind,
         space,
         state
       ) do
    {shape, row_axes} = space

    case {state.kinds[id], read_kind} do
      {:reduction, read_kind} ->
        read_kind == :element

      {:elementwise, :element} ->
        kind == :element and reader.shape == shape

      # Broadcast from the last axes on.
      {:elementwise, :row} ->
        (reader.shape == shape or row_shape?(reader.shape, shape, row_axes)) and
          (kind == :row or tuple_size(read.shape) == tuple_size(shape) or row_count(space) == 1)

      {:reshape, :row} ->
        row_shape?(reader.shape, shape, row_axes)

      {:view, :row} ->
        op == :broadcast and
          (reader.shape == shape or row_shape?(reader.shape, shape, row_axes)) and
          broadcasts_rows?(read, Enum.at(args, 2), space)

      _ ->
        false
    end
  end

  defp broadcasts_rows?(%T{shape: own}, axes, {shape, row_axes}) do
    outer = tuple_size(shape) - row_axes

    Enum.zip(Tuple.to_list(own), axes)
    |> Enum.all?(fn {dim, axis} -> dim == 1 or (axis < outer and dim == elem(shape, axis)) end)
  end

  defp members(id, state) do
    if state.kinds[id] == :reshape, do: [id], else: state.groups[id].members
  end

  defp small?(rows, id, kind, state) do
    rows = add(rows, id, kind, state)
    [members, inputs] = for set <- [rows.members, rows.inputs], do: MapSet.size(set)

    members <= @most_members and inputs + 2 <= FusionGroup.most_inputs() and
      MapSet.size(rows.constants) <= @most_constants
  end

  defp add(rows, id, kind, state) do
    roots = Map.put(rows.roots, id, kind)
    inputs = MapSet.union(rows.inputs, MapSet.new(state.inputs[id]))
    constants = if state.kinds[id] == :reshape, do: MapSet.new(), else: state.groups[id].constants

    %{
      rows
      | roots: roots,
        members: MapSet.union(rows.members, MapSet.new(members(id, state))),
        inputs: MapSet.reject(inputs, &is_map_key(roots, &1)),
        constants: MapSet.union(rows.constants, constants)
    }
  end

  ## What is gained

  # One kernel must take the place of several. Those of a reduction and of what is computed of its results are two
  # for many elements only where their elements are read again.
  defp finish(%{roots: roots} = rows, {shape, row_axes}, state) do
    outputs =
      for {id, _kind} <- roots, Enum.any?(state.users[id], &(not is_map_key(roots, &1))), do: id

    reductions = Enum.count(roots, fn {id, _kind} -> state.kinds[id] == :reduction end)
    kernels = Enum.count(roots, fn {id, _kind} -> state.kinds[id] != :reshape end)

    elements? =
      Enum.any?(roots, fn {id, kind} -> kind == :element and reads_row?(id, rows, state) end)

    if kernels > 1 and (elements? or reductions > 1) and length(outputs) <= @most_outputs do
      %{
        shape: shape,
        row_axes: row_axes,
        roots: roots,
        members: rows.members,
        outputs: Enum.sort_by(outputs, &state.positions[&1])
      }
    end
  end

  defp reads_row?(id, rows, state) do
    Enum.any?(state.inputs[id], fn input ->
      case rows.roots do
        %{^input => :row} -> true
        %{^input => :element} -> reads_row?(input, rows, state)
        %{} -> false
      end
    end)
  end

  ## Blocks

  @doc "The block of a row group, and the tensors that it reads."
  @spec block(rows(), map()) :: {:ok, RowGroup.t(), [T.t()]} | {:error, String.t()}
  def block(rows, state) do
    start = %{rows: rows, inputs: [], steps: [], values: %{}, state: state}

    {results, built} =
      Enum.map_reduce(rows.outputs, start, fn id, built ->
        {{:step, index}, built} = row_step(state.tensors[id], row_kind(id, nil, built), built)
        {index, built}
      end)

    {steps, inputs} = {Enum.reverse(built.steps), Enum.reverse(built.inputs)}

    if inputs == [],
      do: {:error, "nothing to choose a backend by"},
      else:
        with(
          {:ok, group} <- RowGroup.new(steps, inputs, results, {rows.shape, rows.row_axes}),
          do: {:ok, group, inputs}
        )
  end

  # `kind` is what the value is computed for, see `Lowering`.
  defp row_step(%T{data: %Expr{id: id, op: op, args: args}} = tensor, kind, %{rows: rows} = built) do
    key = if id in rows.members, do: {id, kind}, else: id

    case built.values do
      %{^key => value} ->
        {value, built}

      %{} when key == id ->
        {{:input, length(built.inputs)}, %{built | inputs: [tensor | built.inputs]}}
        |> then(fn {value, built} -> {value, put_in(built.values[id], value)} end)

      %{} ->
        read = if built.state.kinds[id] == :reduction, do: :element, else: kind
        {args, built} = Enum.map_reduce(args, built, &row_argument(&1, read, &2))
        step = {op, %{tensor | data: nil}, args, kind}
        value = {:step, length(built.steps)}
        {value, put_in(%{built | steps: [step | built.steps]}.values[key], value)}
    end
  end

  defp row_argument(%T{} = arg, kind, built) do
    case Fusion.resolve(arg) do
      %T{data: %Expr{op: :constant, args: [number]}} = tensor ->
        {{:constant, %{tensor | data: nil}, number}, built}

      %T{data: %Expr{id: id}} = tensor ->
        row_step(tensor, row_kind(id, kind, built), built)
    end
  end

  defp row_argument(other, _kind, built), do: {{:other, other}, built}

  defp row_kind(id, kind, %{rows: rows, state: state}) do
    case rows.roots do
      %{^id => :row} -> {:row, state.tensors[id].shape}
      %{^id => :element} -> :element
      %{} -> kind
    end
  end
end
