defmodule Nx.Vulkan.Compiler.MovementRules do
  @moduledoc false
  # Rules by which movement of elements becomes arithmetic, or comes after it: a kernel computes an index in less time
  # than it loads one, and what is computed of a concatenation's parts is computed where the parts are. They give the
  # same bits. `Nx.Vulkan.Compiler.Simplification` applies them; which operations share a kernel is
  # `Nx.Vulkan.Compiler.Fusion`'s.

  alias Nx.Defn.Expr
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Catalogue
  alias Nx.Vulkan.Compiler.IndexExpressions

  @elementwise Catalogue.elementwise()

  # Elements that take a kernel no longer than one.
  @few_elements 64
  # Elements that are computed from their indices where they are used, and the operations of each; of few, by each that uses them.
  @most_recomputed_elements 2 ** 18
  @most_operations 192
  @few_operations 8

  @doc """
  The tensor, or one that has the same elements with less movement. `readers` has the number of readers of each tensor
  by its id.
  """
  @spec apply_to(T.t(), %{reference() => pos_integer()}) :: T.t()
  def apply_to(tensor, readers)

  def apply_to(%T{data: %Expr{op: op, args: [operand | _]}} = tensor, _readers)
      when op in [:reshape, :squeeze] do
    with :error <- IndexExpressions.of_indices(tensor, @few_operations) do
      # Back to the shape that it had.
      source = reshaped(operand)

      if {source.shape, source.vectorized_axes} == {tensor.shape, tensor.vectorized_axes},
        do: %{source | names: tensor.names},
        else: tensor
    else
      {:ok, computed} -> computed
    end
  end

  # Of a whole axis each start is the first index.
  def apply_to(
        %T{
          shape: shape,
          vectorized_axes: vectorized_axes,
          data: %Expr{
            op: :slice,
            args: [%T{shape: shape, vectorized_axes: vectorized_axes} = source | _]
          }
        } = tensor,
        _readers
      ),
      do: %{source | names: tensor.names}

  # Elements of one part of a concatenation are that part's. Where others read other parts of few elements, as of the keys that one is
  # split into, one kernel computes all of them: a second one would take longer than storing and loading them.
  def apply_to(%T{data: %Expr{op: :slice, args: [source | _]}} = tensor, readers) do
    with :error <- IndexExpressions.of_indices(tensor, @few_operations),
         true <- Nx.size(source) > @few_elements or read_once?(source, readers),
         %T{data: %Expr{op: :concatenate, args: [parts, 0]}} <- reshaped(source),
         {:ok, first} <- IndexExpressions.first_index(tensor),
         {%T{} = part, 0} <- part(parts, first),
         true <- part.type == tensor.type and Nx.size(part) == Nx.size(tensor) do
      %{tensor | data: %{tensor.data | id: make_ref(), op: :reshape, args: [part]}}
    else
      {:ok, %T{} = computed} -> computed
      _ -> tensor
    end
  end

  def apply_to(%T{data: %Expr{op: op}} = tensor, readers) when op in @elementwise do
    case of_parts(tensor, readers) do
      ^tensor -> tensor |> of_indices(readers) |> before_transposes(readers)
      parts -> parts
    end
  end

  # Two transposes are one, that of a product the product of the operands in the other order, and what is computed of a product's
  # elements follows their transpose: the product's kernel does both where it stores them.
  def apply_to(%T{data: %Expr{op: :transpose, args: [operand, axes]} = expr} = tensor, readers) do
    case {sole_reader?(operand, readers), operand} do
      {true, %T{data: %Expr{op: :transpose, args: [source, first]}}} ->
        axes = for axis <- axes, do: Enum.at(first, axis)
        %{tensor | data: %{expr | id: make_ref(), args: [source, axes]}}

      {true, %T{data: %Expr{op: :dot} = dot}} ->
        if swaps?(operand, axes),
          do: %{tensor | data: %{dot | id: make_ref(), args: swapped(dot.args)}},
          else: tensor

      {true, %T{data: %Expr{op: op} = computed}} when op in @elementwise ->
        with {%T{} = source, build} <- sole_operand(operand),
             true <- product?(source, readers) do
          moved = %{source | shape: tensor.shape, names: tensor.names}
          moved = %{moved | data: %{expr | id: make_ref(), args: [source, axes]}}
          %{tensor | data: %{computed | id: make_ref(), args: build.(apply_to(moved, readers))}}
        else
          _ -> tensor
        end

      _ ->
        tensor
    end
  end

  def apply_to(tensor, _readers), do: tensor

  # Few random numbers, which are concatenated, are computed where they are used: in less time than a kernel takes that stores them.
  defp of_indices(%T{data: %Expr{args: args} = expr} = tensor, readers) do
    args =
      for arg <- args do
        with %T{data: %Expr{op: op}} when op in [:reshape, :squeeze, :slice, :concatenate] <- arg,
             true <- Nx.size(arg) in (@few_elements + 1)..@most_recomputed_elements,
             true <- Nx.size(arg) == Nx.size(tensor) and read_once?(arg, readers),
             {:ok, computed} <- IndexExpressions.of_indices(arg, @most_operations),
             do: computed,
             else: (_ -> arg)
      end

    %{tensor | data: %{expr | args: args}}
  end

  # Whether the axes of the right operand come before those of the left one, each in their order, after those of both.
  defp swaps?(%T{shape: shape, data: %Expr{args: [left, contracted, batch | _]}}, axes) do
    batches = length(batch)
    rows = tuple_size(left.shape) - length(contracted) - batches
    {batch_axes, rest} = Enum.split(Enum.to_list(0..(tuple_size(shape) - 1)//1), batches)
    {row_axes, column_axes} = Enum.split(rest, rows)
    axes == batch_axes ++ column_axes ++ row_axes
  end

  defp swapped([left, left_contracted, left_batch, right, right_contracted, right_batch]),
    do: [right, right_contracted, right_batch, left, left_contracted, left_batch]

  # What is computed element by element with numbers alone of a tensor in another order is computed before, with what computes
  # that tensor, unless it would be stored in a wider type.
  defp before_transposes(%T{type: type} = tensor, readers) do
    with {%T{} = operand, build} <- sole_operand(tensor),
         true <- elem(type, 1) <= elem(operand.type, 1),
         {%T{} = source, [_ | _] = movements} <- movements(operand, readers, []),
         true <- Enum.any?(movements, &(&1.data.op == :transpose)),
         true <- sole_reader?(source, readers) and elementwise?(source) do
      data = %{tensor.data | id: make_ref(), args: build.(source)}

      movements
      |> Enum.reduce(%{source | type: type, data: data}, fn movement, moved ->
        [_ | options] = movement.data.args
        %{movement | type: type, data: %{movement.data | id: make_ref(), args: [moved | options]}}
      end)
      |> Map.put(:names, tensor.names)
    else
      _ -> tensor
    end
  end

  # The tensor that movements begin with, and those, from the first one on.
  defp movements(%T{data: %Expr{op: op, args: [source | _]}} = tensor, readers, following)
       when op in [:transpose, :reshape, :squeeze] do
    if sole_reader?(tensor, readers),
      do: movements(source, readers, [tensor | following]),
      else: nil
  end

  defp movements(tensor, _readers, following), do: {tensor, following}

  # The one operand of the operation's shape that is no number, and the arguments with another in its place.
  defp sole_operand(%T{shape: shape, data: %Expr{args: args}}) do
    computed? = &(is_struct(&1, T) and not constant?(&1))

    case Enum.filter(args, computed?) do
      [%T{shape: ^shape} = operand] ->
        {operand, fn other -> for(arg <- args, do: if(computed?.(arg), do: other, else: arg)) end}

      _ ->
        nil
    end
  end

  defp sole_reader?(%T{data: %Expr{id: id}}, readers), do: readers[id] == 1

  # Whether the tensor is a product, or a transpose of one, that nothing else reads.
  defp product?(%T{data: %Expr{op: op, args: [operand | _]}} = tensor, readers) do
    sole_reader?(tensor, readers) and
      (op in [:dot, :conv] or (op == :transpose and product?(operand, readers)))
  end

  defp product?(_tensor, _readers), do: false

  # Of parts that are computed element by element, results are so, too.
  defp of_parts(%T{data: %Expr{args: args}} = tensor, readers) do
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

  defp reshaped(%T{data: %Expr{op: op, args: [source | _]}}) when op in [:reshape, :squeeze],
    do: reshaped(source)

  defp reshaped(tensor), do: tensor

  # Whether nothing else reads the tensor, or what it is a reshape or a slice of.
  defp read_once?(%T{data: %Expr{op: op, args: [source | _]}} = tensor, readers)
       when op in [:reshape, :squeeze, :slice],
       do: sole_reader?(tensor, readers) and read_once?(source, readers)

  defp read_once?(tensor, readers), do: sole_reader?(tensor, readers)

  # The part that has the element at a flat index, and the index there.
  defp part([part | parts], index) do
    if index < Nx.size(part), do: {part, index}, else: part(parts, index - Nx.size(part))
  end

  defp elementwise?(%T{data: %Expr{op: op}}), do: op in @elementwise

  defp constant?(%T{data: %Expr{op: :constant}, shape: {}}), do: true
  defp constant?(%T{}), do: false
  defp constant?(_option), do: false
end
