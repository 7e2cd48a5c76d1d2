defmodule Nx.Vulkan.Compiler.AttentionMatch do
  @moduledoc false
  # What `Nx.Vulkan.Compiler.AttentionFusion` and `AttentionScores` know of an attention that they are following: the
  # axes of its tensors, the tensors that it reads and the nodes of its two programs. It decides nothing about what is attention.
  #
  # The programs are lists of nodes `{op, type, args, attribute}`, the latest first. An argument is `:element`, the
  # index of a node, a number `{:constant, tensor}` or a tensor that is read.

  alias Nx.Defn.Expr
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.Movement
  alias Nx.Vulkan.Compiler.{AttentionAxes, Fusion}

  @narrow_floats [{:f, 16}, {:bf, 16}]

  @enforce_keys [:scope, :indices]
  defstruct [
    :scope,
    :indices,
    :product,
    :query,
    :key,
    keys: [],
    depth: [],
    columns: [],
    members: MapSet.new(),
    own: MapSet.new(),
    program: :weight,
    nodes: %{weight: [], score: []},
    results: %{weight: :element, score: :element}
  ]

  @typedoc """
  A tensor that is read from the offset on, with the strides of indices, in elements. `axes` are those of one that is read whole.
  """
  @type source :: %{
          tensor: T.t(),
          offset: non_neg_integer(),
          strides: map(),
          axes: AttentionAxes.axes() | nil
        }

  @typedoc """
  What was found: the product of scores with its axes, queries and keys, the indices along keys, heads and columns of
  values, the ids of all operations, and of those that depend on scores.
  """
  @type t :: %__MODULE__{}

  @spec new(map(), AttentionAxes.t()) :: t()
  def new(scope, indices), do: %__MODULE__{scope: scope, indices: indices}

  @doc "With an operation that depends on scores."
  @spec own(t(), reference()) :: t()
  def own(match, id), do: %{member(match, id) | own: MapSet.put(match.own, id)}

  @doc "With an operation of the attention."
  @spec member(t(), reference()) :: t()
  def member(match, id), do: %{match | members: MapSet.put(match.members, id)}

  ## Axes

  @doc "The operand of a view, and its axes."
  @spec descend(T.t(), AttentionAxes.axes(), t()) ::
          {:ok, T.t(), AttentionAxes.axes(), t()} | :error
  def descend(%T{data: %Expr{op: op, args: [operand | options]}}, axes, match)
      when op in [:reshape, :squeeze, :transpose, :broadcast] do
    operand = Fusion.resolve(operand)

    with {:ok, axes, indices} <- operand_axes(op, options, operand.shape, axes, match.indices),
         do: {:ok, operand, axes, %{match | indices: indices}}
  end

  def descend(_tensor, _axes, _match), do: :error

  defp operand_axes(:transpose, [permutation], _shape, axes, indices) do
    axes = [permutation, axes] |> Enum.zip() |> Enum.sort() |> Enum.map(&elem(&1, 1))
    {:ok, axes, indices}
  end

  defp operand_axes(:broadcast, [_shape, positions], from, axes, indices) do
    axes =
      for {dim, position} <- Enum.zip(Tuple.to_list(from), positions),
          do: if(dim == 1, do: [], else: Enum.at(axes, position))

    {:ok, axes, indices}
  end

  defp operand_axes(_reshape, _options, shape, axes, indices),
    do: AttentionAxes.regroup(axes, shape, indices)

  @doc "The axes of an operand of an element-wise operation, which is broadcast from its last axes on."
  @spec aligned(T.t(), AttentionAxes.axes()) :: AttentionAxes.axes()
  def aligned(%T{shape: shape}, axes) do
    dims = Tuple.to_list(shape)

    Enum.zip_with(dims, Enum.take(axes, -length(dims)), fn dim, axis ->
      if dim == 1, do: [], else: axis
    end)
  end

  @doc "The axes of both factors of a product, from those of the product, and the indices of the contracted ones."
  @spec factor_axes([term()], AttentionAxes.axes(), t()) ::
          {AttentionAxes.axes(), AttentionAxes.axes(), [AttentionAxes.index()], t()}
  def factor_axes(
        [left, left_contract, left_batch, right, right_contract, right_batch],
        axes,
        match
      ) do
    extents = for axis <- left_contract, do: elem(left.shape, axis)
    {contracted, indices} = AttentionAxes.fresh(match.indices, extents)
    {batch, rest} = Enum.split(axes, length(left_batch))
    free = tuple_size(left.shape) - length(left_contract) - length(left_batch)
    {left_free, right_free} = Enum.split(rest, free)
    left = placed(left, [{left_contract, contracted}, {left_batch, batch}], left_free)
    right = placed(right, [{right_contract, contracted}, {right_batch, batch}], right_free)
    {left, right, Enum.concat(contracted), %{match | indices: indices}}
  end

  # The axes of a factor: those given, and the free ones in their order.
  defp placed(%T{shape: shape}, given, free) do
    given = for {positions, axes} <- given, pair <- Enum.zip(positions, axes), into: %{}, do: pair

    {axes, []} =
      Enum.map_reduce(0..(tuple_size(shape) - 1)//1, free, fn position, free ->
        case given do
          %{^position => axis} -> {axis, free}
          %{} -> {hd(free), tl(free)}
        end
      end)

    axes
  end

  @doc "The indices of the free axes of a product's factor."
  @spec free([term()], 0 | 1, AttentionAxes.axes()) :: [AttentionAxes.index()]
  def free(args, side, axes) do
    [_factor, contract, batch] = Enum.slice(args, 3 * side, 3)

    for {axis, position} <- Enum.with_index(axes),
        position not in contract and position not in batch,
        index <- axis,
        do: index
  end

  @doc "Whether these axes count through the same indices."
  @spec same?(AttentionAxes.axes(), AttentionAxes.axes(), t()) :: boolean()
  def same?(axes, other, match),
    do: expanded(axes, match) == expanded(other, match)

  @doc "The axes in terms of indices that were not split."
  @spec expanded(AttentionAxes.axes(), t()) :: AttentionAxes.axes()
  def expanded(axes, match), do: for(axis <- axes, do: AttentionAxes.expand(axis, match.indices))

  ## Tensors that are read

  @doc """
  The tensor that views lead to, as the kernel reads it. Products of it and of a single number leave those to the score:
  they are given with the operations that take them.
  """
  @spec source(T.t(), AttentionAxes.axes(), t()) ::
          {:ok, source(), [{:multiply | :divide, T.t()}], t()} | :error
  def source(tensor, axes, match), do: source(Fusion.resolve(tensor), axes, [], match)

  defp source(%T{data: %Expr{op: :constant}}, _axes, _scales, _match), do: :error

  defp source(%T{data: %Expr{id: id, op: op, args: args}} = tensor, axes, scales, match) do
    case {op, args} do
      {:slice, [operand, starts, _lengths, steps]} ->
        if Enum.all?(starts, &is_integer/1),
          do: sliced(Fusion.resolve(operand), {starts, steps}, axes, scales, member(match, id)),
          else: dense(tensor, axes, scales, match)

      {:as_type, [operand]} ->
        operand = Fusion.resolve(operand)

        if operand.type in @narrow_floats and tensor.type == {:f, 32},
          do: source(operand, axes, scales, member(match, id)),
          else: dense(tensor, axes, scales, match)

      {op, [left, right]} when op in [:multiply, :divide] ->
        case scaled(op, Fusion.resolve(left), Fusion.resolve(right), tensor) do
          {operand, scale} -> source(operand, axes, [scale | scales], member(match, id))
          nil -> dense(tensor, axes, scales, match)
        end

      _ ->
        with {:ok, operand, axes, match} <- descend(tensor, axes, match),
             {:ok, _, _, _} = found <- source(operand, axes, scales, member(match, id)),
             do: found,
             else: (:error -> dense(tensor, axes, scales, match))
    end
  end

  defp scaled(op, left, right, %T{shape: shape}) do
    cond do
      Nx.size(shape) == 1 -> nil
      left.shape == shape and Nx.size(right) == 1 -> {left, {op, right}}
      op == :multiply and right.shape == shape and Nx.size(left) == 1 -> {right, {op, left}}
      true -> nil
    end
  end

  defp sliced(%T{shape: shape} = operand, {starts, steps}, axes, scales, match) do
    dense = Movement.strides(shape)
    strides = Enum.zip_with(dense, steps, &*/2)
    offset = Enum.zip_reduce(starts, dense, 0, &(&1 * &2 + &3))
    strides = AttentionAxes.strides(axes, strides, match.indices)
    {:ok, %{tensor: operand, offset: offset, strides: strides, axes: nil}, scales, match}
  end

  @doc "The tensor itself as it is read, in the form of `source/3`."
  @spec dense(T.t(), AttentionAxes.axes(), list(), t()) :: {:ok, source(), list(), t()}
  def dense(%T{shape: shape} = tensor, axes, scales, match) do
    strides = AttentionAxes.strides(axes, Movement.strides(shape), match.indices)
    {:ok, %{tensor: tensor, offset: 0, strides: strides, axes: axes}, scales, match}
  end

  ## Nodes

  @doc "The index of a new node of the program that is being made."
  @spec add(t(), tuple()) :: {non_neg_integer(), t()}
  def add(%{program: program, nodes: nodes} = match, node) do
    list = [node | nodes[program]]
    {length(list) - 1, %{match | nodes: %{nodes | program => list}}}
  end

  @doc "The type that a node computes in: narrow floats are computed as f32."
  @spec computed(Nx.Type.t()) :: Nx.Type.t()
  def computed({kind, size}) when kind in [:f, :bf, :f8_e4m3fn] and size < 32, do: {:f, 32}
  def computed(type), do: type

  @doc "Whether a type has real floats."
  @spec float?(Nx.Type.t()) :: boolean()
  def float?({kind, _size}), do: kind in [:f, :bf, :f8_e4m3fn]
end
