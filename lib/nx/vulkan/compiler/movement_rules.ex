defmodule Nx.Vulkan.Compiler.MovementRules do
  @moduledoc false
  # Rules by which movement of elements becomes arithmetic, or comes after it: a kernel computes an index in less time
  # than it loads one, and what is computed of a concatenation's parts is computed where the parts are. They give the
  # same bits. `Nx.Vulkan.Compiler.Simplification` applies them; which operations share a kernel is
  # `Nx.Vulkan.Compiler.Fusion`'s.

  alias Nx.Defn.Expr
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Catalogue

  @elementwise Catalogue.names(family: :elementwise, entry: :callback) ++
                 Catalogue.names(family: :bitcast)

  @doc """
  The tensor, or one that has the same elements with less movement. `readers` has the number of readers of each tensor
  by its id.
  """
  @spec apply_to(T.t(), %{reference() => pos_integer()}) :: T.t()
  def apply_to(tensor, readers)

  # The flat indices of a contiguous part begin with that of its first element.
  def apply_to(
        %T{data: %Expr{op: :slice, args: [%T{data: %Expr{op: :iota, args: [nil]}} = iota | rest]}} =
          tensor,
        _readers
      ) do
    [starts, lengths, strides] = rest
    dims = Tuple.to_list(iota.shape)

    with true <- Enum.all?(starts, &is_integer/1) and Enum.all?(strides, &(&1 == 1)),
         true <- contiguous?(lengths, dims),
         offset = offset(starts, dims),
         true <- representable?(tensor.type, Nx.size(iota)) do
      shifted(tensor, offset)
    else
      _ -> tensor
    end
  end

  def apply_to(%T{data: %Expr{op: op, args: [operand | _]}} = tensor, _readers)
      when op in [:reshape, :squeeze] do
    case operand do
      %T{data: %Expr{op: :iota, args: [nil]}} ->
        iota(tensor)

      %T{data: %Expr{op: :add, args: [%T{data: %Expr{op: :iota, args: [nil]}}, offset]}} ->
        if constant?(offset), do: add(iota(tensor), offset), else: tensor

      _ ->
        # Back to the shape that it had.
        source = reshaped(operand)

        if {source.shape, source.vectorized_axes} == {tensor.shape, tensor.vectorized_axes},
          do: %{source | names: tensor.names},
          else: tensor
    end
  end

  # Elements of one part of a concatenation are that part's.
  def apply_to(%T{data: %Expr{op: :slice, args: [source | rest]}} = tensor, _readers) do
    with [starts, lengths, strides] <- rest,
         %T{data: %Expr{op: :concatenate, args: [parts, 0]}} <- reshaped(source),
         dims = Tuple.to_list(source.shape),
         true <- Enum.all?(starts, &is_integer/1) and Enum.all?(strides, &(&1 == 1)),
         true <- contiguous?(lengths, dims),
         {%T{} = part, 0} <- part(parts, offset(starts, dims)),
         true <- part.type == tensor.type and Nx.size(part) == Nx.size(tensor) do
      %{tensor | data: %{tensor.data | id: make_ref(), op: :reshape, args: [part]}}
    else
      _ -> tensor
    end
  end

  # Of parts that are computed element by element, results are so, too.
  def apply_to(%T{data: %Expr{op: op, args: args}} = tensor, readers) when op in @elementwise do
    with [%T{data: %Expr{op: :concatenate, id: id, args: [parts, axis]} = expr} = concatenate] <-
           Enum.reject(args, &constant?/1),
         1 <- readers[id],
         true <- tensor.shape == Enum.find(args, &(not constant?(&1))).shape,
         # A concatenation converts its parts to one type.
         true <- Enum.all?(parts, &(elementwise?(&1) and &1.type == concatenate.type)) do
      parts =
        for %T{shape: shape, names: names} = part <- parts do
          args = for arg <- args, do: if(constant?(arg), do: arg, else: part)
          own = %{tensor.data | id: make_ref(), args: args}
          %{tensor | shape: shape, names: names, data: own}
        end

      %{tensor | data: %{expr | id: make_ref(), args: [parts, axis]}}
    else
      _ -> tensor
    end
  end

  def apply_to(tensor, _readers), do: tensor

  defp reshaped(%T{data: %Expr{op: op, args: [source | _]}}) when op in [:reshape, :squeeze],
    do: reshaped(source)

  defp reshaped(tensor), do: tensor

  # The part that has the element at a flat index, and the index there.
  defp part([part | parts], index) do
    if index < Nx.size(part), do: {part, index}, else: part(parts, index - Nx.size(part))
  end

  defp elementwise?(%T{data: %Expr{op: op}}), do: op in @elementwise

  defp constant?(%T{data: %Expr{op: :constant}, shape: {}}), do: true
  defp constant?(%T{}), do: false
  defp constant?(_option), do: false

  # One index along the first axes, then some along one, then all.
  defp contiguous?(lengths, dims) do
    {_ones, [_some | all]} =
      case Enum.split_while(lengths, &(&1 == 1)) do
        {ones, []} -> {Enum.drop(ones, -1), [1]}
        split -> split
      end

    all == Enum.take(dims, -length(all)) or all == []
  end

  defp offset(starts, dims) do
    Enum.zip_reduce(starts, dims, 0, fn start, dim, offset -> offset * dim + start end)
  end

  # Numbers of a type that all indices fit are the same, however they are computed.
  defp representable?({kind, bits}, count) when kind in [:s, :u], do: count <= 2 ** (bits - 1)
  defp representable?(_type, _count), do: false

  defp shifted(tensor, 0), do: iota(tensor)

  defp shifted(tensor, offset) do
    template = %{tensor | shape: {}, names: []}
    add(iota(tensor), Expr.constant(template, offset, []))
  end

  defp iota(%T{data: expr} = tensor),
    do: %{tensor | data: %{expr | id: make_ref(), op: :iota, args: [nil]}}

  defp add(%T{data: expr} = iota, offset),
    do: %{iota | data: %{expr | id: make_ref(), op: :add, args: [iota, offset]}}
end
