defmodule Nx.Vulkan.Compiler.IndexExpressions do
  @moduledoc false
  # Expressions that compute each element from its flat index and scalars alone: those of iotas, and with them random numbers.
  # Reshapes, contiguous slices and concatenations of such tensors are the same expressions of other indices, with nothing to
  # store. `Nx.Vulkan.Compiler.MovementRules` decides where that is wanted.

  alias Nx.Defn.Expr
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Catalogue

  @elementwise Catalogue.elementwise()

  @doc """
  The tensor as operations on its flat indices and scalars alone, at most so many. Its movements become operations, too.
  """
  @spec of_indices(T.t(), pos_integer()) :: {:ok, T.t()} | :error
  def of_indices(%T{vectorized_axes: []} = tensor, most) do
    at = like(:iota, tensor, {:u, 32}, [nil])

    case value(tensor, at, %{left: most, done: %{}, indexed: false}) do
      {value, %{indexed: true}} -> {:ok, %{tensor | data: value.data}}
      {_scalar, _state} -> :error
    end
  catch
    :other -> :error
  end

  def of_indices(_tensor, _most), do: :error

  @doc "The flat index at which a slice that is contiguous begins."
  @spec first_index(T.t()) :: {:ok, non_neg_integer()} | :error
  def first_index(%T{data: %Expr{op: :slice, args: [source, starts, lengths, strides]}}) do
    dims = Tuple.to_list(source.shape)

    if Enum.all?(starts, &is_integer/1) and Enum.all?(strides, &(&1 == 1)) and
         contiguous?(lengths, dims),
       do: {:ok, Enum.zip_reduce(starts, dims, 0, fn start, dim, at -> at * dim + start end)},
       else: :error
  end

  # One index along the first axes, then some along one, then all.
  defp contiguous?(lengths, dims) do
    {_ones, [_some | all]} =
      case Enum.split_while(lengths, &(&1 == 1)) do
        {ones, []} -> {Enum.drop(ones, -1), [1]}
        split -> split
      end

    all == Enum.take(dims, -length(all)) or all == []
  end

  # The element of a tensor at the flat index `at`, a tensor of the shape of the whole. Of what is computed twice from one index
  # there is one expression.
  defp value(_tensor, _at, %{left: 0}), do: throw(:other)
  defp value(%T{vectorized_axes: [_ | _]}, _at, _state), do: throw(:other)

  defp value(%T{data: %Expr{op: :constant}} = tensor, _at, state),
    do: {%{tensor | shape: {}, names: []}, state}

  defp value(%T{data: %Expr{id: id}} = tensor, at, state) do
    key = {id, at.data.id}

    case state.done do
      %{^key => done} ->
        {done, state}

      %{} ->
        state = %{state | left: state.left - 1}
        # What is broadcast has an index of its own.
        one? = Nx.size(tensor) == 1 and Nx.size(at) > 1
        {done, state} = if one?, do: {scalar(tensor), state}, else: new_value(tensor, at, state)
        {done, put_in(state.done[key], done)}
    end
  end

  defp scalar(%T{shape: {}} = tensor), do: tensor
  defp scalar(tensor), do: like(:reshape, %{tensor | shape: {}, names: []}, [tensor])

  defp new_value(%T{data: %Expr{op: :iota, args: [axis]}, type: type} = iota, at, state) do
    if axis != nil and elem(iota.shape, axis) != Nx.size(iota), do: throw(:other)
    {converted(at, type, Nx.size(iota)), %{state | indexed: true}}
  end

  defp new_value(%T{data: %Expr{op: op, args: [operand | _]}}, at, state)
       when op in [:reshape, :squeeze],
       do: value(operand, at, state)

  defp new_value(%T{data: %Expr{op: :slice, args: [source | _]}} = slice, at, state) do
    case first_index(slice) do
      {:ok, 0} -> value(source, at, state)
      {:ok, first} -> value(source, like(:add, at, [at, number(first, at)]), state)
      :error -> throw(:other)
    end
  end

  defp new_value(%T{data: %Expr{op: :concatenate, args: [parts, axis]}} = tensor, at, state) do
    before = tensor.shape |> Tuple.to_list() |> Enum.take(axis)

    if Enum.any?(before, &(&1 != 1)) or Enum.any?(parts, &(&1.type != tensor.type)),
      do: throw(:other)

    ends = parts |> Enum.scan(0, fn part, start -> start + Nx.size(part) end) |> Enum.drop(-1)

    within =
      Enum.reduce(ends, at, fn start, within ->
        select(at, start, within, like(:subtract, at, [at, number(start, at)]))
      end)

    {values, state} = Enum.map_reduce(parts, state, &value(&1, within, &2))
    [last | rest] = Enum.reverse(values)

    value =
      Enum.zip_reduce(rest, Enum.reverse(ends), last, fn value, stop, following ->
        select(at, stop, value, following)
      end)

    {value, state}
  end

  # Operands of fewer elements than the result, but for scalars, have other indices.
  defp new_value(%T{data: %Expr{op: op, args: args}, type: type} = tensor, at, state)
       when op in @elementwise do
    {args, state} =
      Enum.map_reduce(args, state, fn
        %T{data: %Expr{op: op}} = arg, state ->
          if op == :constant or Nx.size(arg) in [1, Nx.size(tensor)],
            do: value(arg, at, state),
            else: throw(:other)

        option, state ->
          {option, state}
      end)

    {like(op, at, type, args), state}
  end

  defp new_value(_tensor, _at, _state), do: throw(:other)

  # The index in another type. Numbers of a type that all indices fit are the same, however they are computed.
  defp converted(%T{data: %Expr{op: :iota}} = at, type, _count), do: like(:iota, at, type, [nil])

  defp converted(at, {kind, bits} = type, count) when kind in [:s, :u] do
    cond do
      count > 2 ** min(bits - 1, 32) -> throw(:other)
      type == at.type -> at
      true -> like(:as_type, at, type, [at])
    end
  end

  defp converted(_at, _type, _count), do: throw(:other)

  # One or the other, by whether the index is less than a number.
  defp select(at, number, below, above) do
    pred = like(:less, at, {:u, 8}, [at, number(number, at)])
    like(:select, at, below.type, [pred, below, above])
  end

  defp number(number, like), do: Expr.constant(%{like | shape: {}, names: []}, number, [])

  # An operation with the shape of a tensor. Those of unrolled loops have contexts that Nx's functions do not mix.
  defp like(op, tensor, type \\ nil, args) do
    names = List.duplicate(nil, tuple_size(tensor.shape))
    data = %{tensor.data | id: make_ref(), op: op, args: args}
    %{tensor | type: type || tensor.type, names: names, data: data}
  end
end
