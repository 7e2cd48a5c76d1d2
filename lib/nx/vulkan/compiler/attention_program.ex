defmodule Nx.Vulkan.Compiler.AttentionProgram do
  @moduledoc false
  # The programs of attention's scores and weights, from the nodes that `Nx.Vulkan.Compiler.AttentionScores` has found. It
  # decides how they read each tensor and nothing else.

  alias Nx.Defn.Expr
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.Storage
  alias Nx.Vulkan.Compiler.{AttentionAxes, AttentionMatch, Lowering}
  alias Nx.Vulkan.ProgramBuilder

  # Stands for the score or the weight that a program is applied to.
  @element {:element}

  @doc """
  The programs of the scores and of the weights over these indices; `inputs` are the tensors that the block reads. `nil`
  for one that gives the element itself.
  """
  @spec programs(AttentionMatch.t(), [AttentionAxes.index()], [T.t()]) ::
          {:ok, [nil | {[tuple()], [tuple()], tuple(), non_neg_integer()}]} | :error
  def programs(match, order, inputs) do
    programs = for program <- [:score, :weight], do: program(program, match, order, inputs)
    if :error in programs, do: :error, else: {:ok, programs}
  end

  defp program(program, match, order, inputs) do
    if match.results[program] == :element do
      nil
    else
      shape = for index <- order, do: AttentionAxes.extent(index, match.indices)
      builder = ProgramBuilder.new(List.to_tuple(shape))
      context = %{order: order, inputs: inputs, indices: match.indices}

      match.nodes[program]
      |> Enum.reverse()
      |> Enum.with_index()
      |> Enum.reduce_while(builder, fn {node, index}, builder ->
        case node(node, index, builder, context) do
          :error -> {:halt, :error}
          builder -> {:cont, builder}
        end
      end)
      |> result()
    end
  end

  defp result(:error), do: :error

  defp result(builder) do
    {nodes, inputs, shape} = ProgramBuilder.program(builder)

    case Enum.find_index(inputs, &(&1 == @element)) do
      nil ->
        :error

      element ->
        if ProgramBuilder.fits?(builder),
          do: {nodes, List.delete_at(inputs, element), shape, element},
          else: :error
    end
  end

  # An index that was split is that of no axis.
  defp node({:iota, type, [], iota}, index, builder, %{order: order}) do
    case Enum.find_index(order, &(&1 == iota)) do
      nil -> :error
      axis -> ProgramBuilder.op(builder, index, :iota, type, [], axis)
    end
  end

  defp node({op, type, args, nil}, index, builder, context) do
    {keys, builder} = Enum.map_reduce(args, builder, &key(&1, &2, context))
    if :error in keys, do: :error, else: ProgramBuilder.op(builder, index, op, type, keys)
  end

  defp key(index, builder, _context) when is_integer(index), do: {index, builder}
  defp key(:element, builder, _context), do: input(@element, builder)

  defp key({:constant, %T{data: %Expr{args: [number]}, type: type} = tensor}, builder, _context) do
    tensor = %{tensor | type: AttentionMatch.computed(type)}
    input(Storage.operand(Lowering.constant(tensor, number)), builder)
  end

  defp key(%{tensor: %T{data: %Expr{id: id}, type: type}} = source, builder, context) do
    strides = AttentionAxes.expand_strides(source.strides, context.indices)

    case Enum.find_index(context.inputs, &(&1.data.id == id)) do
      nil ->
        {:error, builder}

      input ->
        strides = for index <- context.order, do: Map.get(strides, index, 0)
        input({{:input, input}, type, source.offset, strides}, builder)
    end
  end

  defp input(operand, builder), do: {operand, ProgramBuilder.input(builder, operand, operand)}
end
