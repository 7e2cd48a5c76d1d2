defmodule Nx.Vulkan.Compiler.AttentionGroup do
  @moduledoc false
  # Attention as a block of an expression: one kernel, or two where the native side splits the keys. It runs it; where in
  # an expression attention is, is decided in `Nx.Vulkan.Compiler.AttentionFusion`.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Dispatch, ProgramRecorder, Storage}
  alias Nx.Vulkan.Compiler.{AttentionUpdate, FusionGroup, Lowering}

  @enforce_keys [:steps, :operands, :axes, :programs]
  defstruct @enforce_keys ++ [updates: []]

  @typedoc """
  The operations in order. Queries, keys and values are `{index of the tensor, offset}`; `axes` are those of
  `Nx.Vulkan.Native.attention/5`. The programs, of the scores and of the weights, are `nil` or nodes, inputs, shape and the
  index of the input that stands for the element, which is not among these. The updates are those of the keys and the values,
  in this order; with some, the block has several results, the updated tensors after the attention's.
  """
  @type t :: %__MODULE__{
          steps: [Lowering.step()],
          operands: [{non_neg_integer(), non_neg_integer()}],
          axes: tuple(),
          programs: [nil | {[tuple()], [tuple()], tuple(), non_neg_integer()}],
          updates: [AttentionUpdate.t()]
        }

  @spec run(t(), T.t() | tuple(), [T.t()]) :: T.t() | tuple() | :default
  def run(%__MODULE__{} = group, %T{} = out, args),
    do: with({result} <- run(group, {out}, args), do: result)

  def run(%__MODULE__{operands: operands, axes: axes, programs: programs} = group, outs, args) do
    # A step of a loop on the device is a program.
    if ProgramRecorder.recording?() do
      :default
    else
      tensors = List.to_tuple(args)
      operands = Enum.map(operands, &view(&1, tensors))
      {keys, _, _, _, _} = elem(axes, 3)

      updates =
        for operand <- [1, 2] do
          with %AttentionUpdate{} = update <- Enum.find(group.updates, &(&1.operand == operand)),
               do:
                 {view(update.row, tensors), update.batch, update.head,
                  AttentionUpdate.position(update, args, keys)}
        end

      bound = args |> Enum.map(&Storage.operand/1) |> List.to_tuple()
      programs = Enum.map(programs, &bind(&1, bound))

      [operands, programs, updates] =
        Enum.map([operands, programs, updates], &List.to_tuple/1)

      answer = Native.call(attention(elem(outs, 0).type, operands, axes, programs, updates))
      Dispatch.block(answer, :attention, outs)
    end
  end

  defp view({index, offset}, tensors) do
    {ref, type, _shape} = Storage.buffer(elem(tensors, index))
    {ref, type, offset}
  end

  defp bind(nil, _operands), do: nil

  defp bind({nodes, inputs, shape, element}, operands),
    do: {nodes, Enum.map(inputs, &FusionGroup.bind(&1, operands)), shape, element, false}
end
