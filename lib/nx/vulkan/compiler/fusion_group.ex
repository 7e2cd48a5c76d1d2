defmodule Nx.Vulkan.Compiler.FusionGroup do
  @moduledoc false
  # A fusion group as a block of an expression: the operations that it is made of, and the program that does
  # them at once. It runs one or the other; which operations form a group is decided in
  # `Nx.Vulkan.Compiler.Fusion`.

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Dispatch, ProgramRecorder, Storage}

  alias Nx.Vulkan.Compiler.{
    AttentionGroup,
    AttentionUpdate,
    ContractionGroup,
    Lowering,
    MapGroup,
    RowGroup,
    SumGroup,
    UpdateGroup
  }

  alias Nx.Vulkan.ProgramBuilder
  alias Nx.Vulkan.VulkanoBackend, as: B

  @enforce_keys [:steps, :program]
  defstruct [:steps, :program]

  @typedoc "The operations in order, and the program, whose inputs have `{:input, index}` for a reference."
  @type t :: %__MODULE__{steps: [Lowering.step()], program: ProgramBuilder.program()}

  # Tensors that a group may read: `default/1` has a clause for each number.
  @most_inputs 18
  def most_inputs, do: @most_inputs

  # The block of these steps, only the last of which may be a reduction; `inputs` are the templates of the
  # tensors that they read.
  @spec new([Lowering.step()], [T.t()]) :: {:ok, t()} | {:error, String.t()}
  def new(steps, inputs) do
    with {:ok, program} <- Lowering.program(steps, inputs),
         do: {:ok, %__MODULE__{steps: steps, program: program}}
  end

  @spec run(t(), T.t(), [T.t()]) :: T.t() | :default
  def run(%__MODULE__{program: {nodes, inputs, shape}}, out, args) do
    operands = operands(args)
    inputs = Enum.map(inputs, &bind(&1, operands))
    Dispatch.block(Dispatch.compute({nodes, inputs, shape}), :fused, out)
  end

  # The results of a block of several: what `call` gives of the operands of the arguments. Fallbacks are counted by `name`.
  @spec run_several(atom(), tuple(), [T.t()], (tuple() -> term())) :: tuple() | :default
  def run_several(name, outs, args, call) do
    # A loop that runs on the device has one result a step.
    if ProgramRecorder.recording?() do
      :default
    else
      args |> operands() |> call.() |> Dispatch.block(name, outs)
    end
  end

  defp operands(args), do: args |> Enum.map(&Storage.operand/1) |> List.to_tuple()

  # The input with the memory of the tensor that it reads.
  @spec bind(ProgramBuilder.operand(), tuple()) :: ProgramBuilder.operand()
  def bind({{:input, index}, type, shape}, operands) do
    case elem(operands, index) do
      {:scalar, _type, _binary} = scalar -> scalar
      {ref, _type, _shape} -> {ref, type, shape}
    end
  end

  def bind({{:input, index}, _type, offset, strides}, operands),
    do: ProgramBuilder.view(elem(operands, index), offset, strides)

  def bind(scalar, _operands), do: scalar

  # The block's default implementation, one step after the other, for a block of that number of inputs.
  for count <- 1..(@most_inputs + 1) do
    args = Macro.generate_arguments(count, __MODULE__)

    def default(unquote(count)),
      do: fn group, unquote_splicing(args) -> default(group, unquote(args)) end
  end

  defp default(%group{steps: steps, results: results}, inputs)
       when group in [RowGroup, SumGroup] do
    values = values(steps, inputs)
    results |> Enum.map(&Map.fetch!(values, {:step, &1})) |> List.to_tuple()
  end

  defp default(%MapGroup{steps: steps, results: results}, inputs) do
    values = values(steps, inputs)
    results |> Enum.map(&result(&1, values)) |> List.to_tuple()
  end

  defp default(%UpdateGroup{steps: steps} = group, [target | _] = inputs) do
    values = values(steps, inputs)
    update = Map.fetch!(values, {:step, length(steps) - 1})
    whole = target |> Nx.as_type(update.type) |> Nx.broadcast(group.shape)
    {Nx.put_slice(whole, UpdateGroup.starts(group.starts, inputs), update)}
  end

  defp default(%AttentionGroup{updates: [_ | _] = updates} = group, inputs) do
    updated =
      for %AttentionUpdate{steps: steps, value: value} = update <- updates,
          do: AttentionUpdate.put(update, inputs, Map.fetch!(values(steps, inputs), value))

    after_updates =
      Enum.zip_reduce(updates, updated, inputs, &List.replace_at(&3, &1.input, &2))

    List.to_tuple([default(%{group | updates: []}, after_updates) | updated])
  end

  defp default(%ContractionGroup{row: {index, row, count}} = group, inputs) do
    {of_row, others} = Enum.split(inputs, count)
    {row} = default(row, of_row)
    default(%{group | row: nil}, List.insert_at(others, index, row))
  end

  defp default(%ContractionGroup{keeps_contraction: true} = group, inputs) do
    values = values(group.steps, inputs)

    {Map.fetch!(values, {:step, length(group.steps) - 1}),
     Map.fetch!(values, {:step, group.contraction})}
  end

  defp default(%{steps: steps}, inputs),
    do: Map.fetch!(values(steps, inputs), {:step, length(steps) - 1})

  defp result({:concatenate, steps, axis}, values),
    do: Nx.concatenate(for(step <- steps, do: Map.fetch!(values, {:step, step})), axis: axis)

  defp result(step, values), do: Map.fetch!(values, step)

  defp values(steps, inputs) do
    values =
      for {input, index} <- Enum.with_index(inputs), into: %{}, do: {{:input, index}, input}

    for {{op, out, args}, index} <- Enum.with_index(steps), reduce: values do
      values ->
        Map.put(values, {:step, index}, call(op, out, Enum.map(args, &value(&1, values))))
    end
  end

  defp value({:constant, template, number}, _values), do: Lowering.constant(template, number)
  defp value({:other, option}, _values), do: option
  defp value(reference, values), do: Map.fetch!(values, reference)

  defp call(:take, _out, [tensor, indices, axis]), do: Nx.take(tensor, indices, axis: axis)

  defp call(:dynamic_slice, _out, [tensor | args]) do
    {starts, [lengths, steps]} = Enum.split(args, -2)
    Nx.slice(tensor, starts, lengths, strides: steps)
  end

  defp call(op, out, args) when op in [:iota, :eye], do: apply(B, op, [out | args] ++ [[]])
  defp call(op, out, args), do: apply(Nx.Shared.list_impl!(args), op, [out | args])
end
