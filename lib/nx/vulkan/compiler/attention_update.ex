defmodule Nx.Vulkan.Compiler.AttentionUpdate do
  @moduledoc false
  # A `put_slice` of one position along the keys into attention's keys or values, as a decoder appends a token's to its
  # caches: the kernel of the attention does it, and the updated tensor is a result of its block. It finds these, says how
  # the kernel reads what is put, and does them one by one for the block's default.

  alias Nx.Defn.Expr
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.Movement
  alias Nx.Vulkan.Compiler.{AttentionAxes, AttentionMatch, Fusion, GroupSteps, Lowering}

  # Queries of an attention that may put rows, at most: more are computed by cooperative matrices, which are loaded from one
  # buffer (`of_matrices` of src/tuning/attention.rs), and are no decoder's.
  @most_queries 15

  @enforce_keys [:operand, :input, :axis, :start, :steps, :value, :row, :batch, :head]
  defstruct @enforce_keys

  @typedoc """
  The index of the operand, 1 for keys and 2 for values; that of the input that it is before; the axis of the keys, and the
  start along it or the input that holds it; the steps that lead to what is put, and its value; the input that the kernel
  reads for that with the first element, and its strides along the batch axes and a head.
  """
  @type t :: %__MODULE__{
          operand: 1 | 2,
          input: non_neg_integer(),
          axis: non_neg_integer(),
          start: integer() | {:input, non_neg_integer()},
          steps: [Lowering.step()],
          value: {:input | :step, non_neg_integer()},
          row: {non_neg_integer(), integer()},
          batch: [integer()],
          head: integer()
        }

  @typedoc "An update of an operand that was found in an expression."
  @type found :: %{
          operand: 1 | 2,
          put: T.t(),
          axis: non_neg_integer(),
          row: AttentionMatch.source(),
          members: MapSet.t()
        }

  @doc "The updates of keys and values that a kernel can do, and what is known of the attention with them."
  @spec find(AttentionMatch.t(), AttentionMatch.source()) :: {[found()], AttentionMatch.t()}
  def find(match, values) do
    {found, match} =
      Enum.flat_map_reduce([{1, match.key}, {2, values}], match, fn {operand, source}, match ->
        case update(source, match) do
          {:ok, update, match} -> {[Map.put(update, :operand, operand)], match}
          :error -> {[], match}
        end
      end)

    if match.key.tensor.data.id == values.tensor.data.id, do: {[], match}, else: {found, match}
  end

  defp update(%{tensor: %T{data: %Expr{op: :put_slice}} = put, axes: axes}, match) do
    %T{data: %Expr{id: id, args: [target, _starts, update]}, shape: shape, type: type} = put
    [target, update] = Enum.map([target, update], &Fusion.resolve/1)

    with %T{type: ^type, data: %Expr{op: op}} when op != :constant <- target,
         true <- read_here?(id, match),
         axis when axis != nil <- Enum.find_index(axes, &keys?(&1, match)),
         true <- update.shape == put_elem(shape, axis, 1),
         kept = %{match | members: MapSet.new()},
         row_axes = List.replace_at(axes, axis, []),
         {:ok, %{tensor: %T{type: ^type}} = row, [], found} <-
           AttentionMatch.source(update, row_axes, kept) do
      update = %{put: put, axis: axis, row: row, members: found.members}
      {:ok, update, %{found | members: match.members}}
    else
      _ -> :error
    end
  end

  defp update(_source, _match), do: :error

  defp keys?(axis, match),
    do: AttentionMatch.same?([axis], [match.keys], match)

  # Whether nothing but the attention reads the tensor in its scope: no other input of the block depends on it.
  defp read_here?(id, match) do
    Enum.all?(match.scope.readers[id], fn reader ->
      reader == :outside or reader in match.own or
        (reader in match.members and read_here?(reader, match))
    end)
  end

  @doc """
  The updates as parts of a block, and its inputs with them. `inputs` are those of the attention alone, `reads` which of them
  operands and programs read, each as often as it is read. `batch`, `keys` and `heads` are the indices of the batch axes, of the
  axis of the keys and along a key and a value; `strides` are those of keys and values.
  """
  @spec place([found()], [T.t()], keyword()) :: {:ok, [t()], [T.t()]} | :error
  def place([], inputs, _options), do: {:ok, [], inputs}

  def place(found, inputs, options) do
    indices = for %{put: put} <- found, do: index(inputs, put)

    targets =
      for {%{put: put}, index} <- Enum.zip(found, indices),
          into: %{},
          do: {index, Fusion.resolve(hd(put.data.args))}

    before = for {input, index} <- Enum.with_index(inputs), do: Map.get(targets, index, input)

    with true <- options[:queries] <= @most_queries,
         true <-
           Enum.all?(indices, &(Enum.count(options[:reads], fn read -> read == &1 end) == 1)),
         true <- Enum.all?(found, &whole?(&1, options)) do
      {updates, inputs} =
        Enum.zip(found, indices)
        |> Enum.map_reduce(before, fn {found, index}, inputs ->
          place(found, index, inputs, options)
        end)

      if Enum.all?(updates, & &1), do: {:ok, updates, inputs}, else: :error
    else
      _ -> :error
    end
  end

  # Whether the attention reads all of what is updated, and each element in one batch.
  defp whole?(%{operand: operand, put: put}, options) do
    strides = Enum.at(options[:strides], operand - 1)
    own = options[:batch] ++ options[:keys] ++ Enum.at(options[:heads], operand - 1)

    Enum.all?(own, &(Map.get(strides, &1, 0) != 0)) and
      Enum.product(for index <- own, do: AttentionAxes.extent(index, options[:indices])) ==
        Nx.size(put)
  end

  defp place(%{operand: operand, put: put, axis: axis, row: row} = found, index, inputs, options) do
    %T{data: %Expr{args: [_target, starts, update]}} = put
    strides = AttentionAxes.expand_strides(row.strides, options[:indices])
    head = Enum.at(options[:heads], operand - 1)

    values =
      for {input, i} <- Enum.with_index(inputs), into: %{}, do: {input.data.id, {:input, i}}

    built = %{members: found.members, inputs: Enum.reverse(inputs), steps: [], values: values}
    {value, built} = GroupSteps.step(Fusion.resolve(update), built)
    {start, inputs} = start(Enum.at(starts, axis), Enum.reverse(built.inputs))

    case AttentionAxes.merge(head, [strides], options[:indices]) do
      {_extent, [along]} ->
        {%__MODULE__{
           operand: operand,
           input: index,
           axis: axis,
           start: start,
           steps: Enum.reverse(built.steps),
           value: value,
           row: {index(inputs, row.tensor), row.offset},
           batch: for(index <- options[:batch], do: Map.get(strides, index, 0)),
           head: along
         }, inputs}

      :error ->
        {nil, inputs}
    end
  end

  defp start(%T{} = start, inputs) do
    case Fusion.resolve(start) do
      %T{data: %Expr{op: :constant, args: [number]}} ->
        {number, inputs}

      tensor ->
        case index(inputs, tensor) do
          nil -> {{:input, length(inputs)}, inputs ++ [tensor]}
          index -> {{:input, index}, inputs}
        end
    end
  end

  defp start(number, inputs), do: {number, inputs}

  defp index(inputs, %T{data: %Expr{id: id}}), do: Enum.find_index(inputs, &(&1.data.id == id))

  @doc "The index of the key that an update is of, of that many, and where it is: a number or an operand of a program."
  @spec position(t(), [T.t()], pos_integer()) :: non_neg_integer() | tuple()
  def position(%__MODULE__{start: start}, args, keys) do
    case Movement.starts([tensor(start, args)], [keys], [1], [1]) do
      {position, [], []} -> position
      {0, [operand], _steps} -> operand
    end
  end

  @doc "The updated tensor; `value` is what is put."
  @spec put(t(), [T.t()], T.t()) :: T.t()
  def put(%__MODULE__{axis: axis, start: start, input: input}, args, value) do
    target = Enum.at(args, input)
    starts = List.replace_at(List.duplicate(0, Nx.rank(target)), axis, tensor(start, args))
    Nx.put_slice(target, starts, value)
  end

  defp tensor({:input, index}, args), do: Enum.at(args, index)
  defp tensor(number, _args), do: number
end
