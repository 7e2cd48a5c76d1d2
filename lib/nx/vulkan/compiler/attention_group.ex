defmodule Nx.Vulkan.Compiler.AttentionGroup do
  @moduledoc false
  # Attention as a block of an expression: one kernel, or two where the native side splits the keys. It runs it; where in
  # an expression attention is, is decided in `Nx.Vulkan.Compiler.AttentionFusion`.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Dispatch, ProgramRecorder, Storage}
  alias Nx.Vulkan.Compiler.{FusionGroup, Lowering}

  @enforce_keys [:steps, :operands, :axes, :programs]
  defstruct @enforce_keys

  @typedoc """
  The operations in order. Queries, keys and values are `{index of the tensor, offset}`; `axes` are those of
  `Nx.Vulkan.Native.attention/4`. The programs, of the scores and of the weights, are `nil` or nodes, inputs, shape and the
  index of the input that stands for the element, which is not among these.
  """
  @type t :: %__MODULE__{
          steps: [Lowering.step()],
          operands: [{non_neg_integer(), non_neg_integer()}],
          axes: tuple(),
          programs: [nil | {[tuple()], [tuple()], tuple(), non_neg_integer()}]
        }

  @spec run(t(), T.t(), [T.t()]) :: T.t() | :default
  def run(%__MODULE__{operands: operands, axes: axes, programs: programs}, out, args) do
    # A step of a loop on the device is a program.
    if ProgramRecorder.recording?() do
      :default
    else
      tensors = List.to_tuple(args)

      operands =
        for {index, offset} <- operands do
          {ref, type, _shape} = Storage.buffer(elem(tensors, index))
          {ref, type, offset}
        end

      bound = args |> Enum.map(&Storage.operand/1) |> List.to_tuple()
      programs = Enum.map(programs, &bind(&1, bound))
      [operands, programs] = Enum.map([operands, programs], &List.to_tuple/1)
      Dispatch.block(Native.call(attention(out.type, operands, axes, programs)), :attention, out)
    end
  end

  defp bind(nil, _operands), do: nil

  defp bind({nodes, inputs, shape, element}, operands),
    do: {nodes, Enum.map(inputs, &FusionGroup.bind(&1, operands)), shape, element, false}
end
