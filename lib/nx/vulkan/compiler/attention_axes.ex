defmodule Nx.Vulkan.Compiler.AttentionAxes do
  @moduledoc false
  # The axes of tensors that are views of each other, as lists of indices: an axis of a tensor is a list of indices, outermost
  # first, that it counts through. Reshapes regroup the indices, and split them where an axis ends within one;
  # transposes permute the lists, and a broadcast axis has none. It knows shapes and no operations but these.

  @enforce_keys [:next, :sizes, :parts]
  defstruct @enforce_keys

  @typedoc "An index; its number stands for it."
  @type index :: non_neg_integer()
  @typedoc "The indices of each axis of a tensor."
  @type axes :: [[index()]]
  @typedoc "The extents of all indices, and those that some were split into."
  @type t :: %__MODULE__{
          next: index(),
          sizes: %{index() => pos_integer()},
          parts: %{index() => [index()]}
        }

  @spec new() :: t()
  def new, do: %__MODULE__{next: 0, sizes: %{}, parts: %{}}

  @doc "Indices of their own for axes of these extents."
  @spec fresh(t(), [pos_integer()]) :: {axes(), t()}
  def fresh(state, extents), do: Enum.map_reduce(extents, state, &axis/2)

  defp axis(1, state), do: {[], state}

  defp axis(extent, %{next: next} = state) do
    {[next], %{state | next: next + 1, sizes: Map.put(state.sizes, next, extent)}}
  end

  @doc "The indices that are left of these after all splits."
  @spec expand([index()], t()) :: [index()]
  def expand(indices, %{parts: parts} = state) do
    Enum.flat_map(indices, fn index ->
      case parts do
        %{^index => split} -> expand(split, state)
        %{} -> [index]
      end
    end)
  end

  @doc "The extent of an index that was not split."
  @spec extent(index(), t()) :: pos_integer()
  def extent(index, %{sizes: sizes}), do: Map.fetch!(sizes, index)

  @doc "The axes of the tensor, of as many elements, that a tensor with these axes was reshaped from."
  @spec regroup(axes(), tuple(), t()) :: {:ok, axes(), t()} | :error
  def regroup(axes, shape, state) do
    indices = axes |> Enum.concat() |> expand(state) |> Enum.reverse()

    shape
    |> Tuple.to_list()
    |> Enum.reverse()
    |> Enum.reduce_while({[], indices, state}, fn extent, {axes, indices, state} ->
      case take(extent, indices, [], state) do
        {:ok, axis, rest, state} -> {:cont, {[axis | axes], rest, state}}
        :error -> {:halt, :error}
      end
    end)
    |> case do
      {axes, [], state} -> {:ok, axes, state}
      _ -> :error
    end
  end

  # The innermost indices that an axis of the extent counts through, from the innermost on.
  defp take(1, indices, axis, state), do: {:ok, axis, indices, state}

  defp take(extent, [index | indices], axis, state) do
    own = extent(index, state)

    cond do
      rem(extent, own) == 0 ->
        take(div(extent, own), indices, [index | axis], state)

      rem(own, extent) == 0 ->
        {[[outer], [inner]], state} = fresh(state, [div(own, extent), extent])
        state = put_in(state.parts[index], [outer, inner])
        {:ok, [inner | axis], [outer | indices], state}

      true ->
        :error
    end
  end

  defp take(_extent, [], _axis, _state), do: :error

  @doc "The stride of each index, from those of a tensor's axes."
  @spec strides(axes(), [integer()], t()) :: %{index() => integer()}
  def strides(axes, strides, state) do
    for {axis, stride} <- Enum.zip(axes, strides),
        pair <- within(axis, stride, state),
        into: %{},
        do: pair
  end

  # The strides of an axis' indices, the innermost of which has the axis' own.
  defp within(axis, stride, state) do
    {pairs, _stride} =
      axis
      |> expand(state)
      |> Enum.reverse()
      |> Enum.map_reduce(stride, &{{&1, &2}, &2 * extent(&1, state)})

    pairs
  end

  @doc "The same strides after later splits."
  @spec expand_strides(%{index() => integer()}, t()) :: %{index() => integer()}
  def expand_strides(strides, state) do
    for {index, stride} <- strides, pair <- within([index], stride, state), into: %{}, do: pair
  end

  @doc "Extent and strides of these indices as one, if they are one in all of the tensors with these strides."
  @spec merge([index()], [%{index() => integer()}], t()) :: {pos_integer(), [integer()]} | :error
  def merge([], tensors, _state), do: {1, Enum.map(tensors, fn _ -> 0 end)}

  def merge(indices, tensors, state) do
    indices = Enum.reverse(indices)
    [last | _] = indices
    first = for strides <- tensors, do: Map.get(strides, last, 0)

    Enum.reduce_while(indices, {1, first}, fn index, {extent, first} ->
      own = for strides <- tensors, do: Map.get(strides, index, 0)

      if own == Enum.map(first, &(&1 * extent)),
        do: {:cont, {extent * extent(index, state), first}},
        else: {:halt, :error}
    end)
  end
end
