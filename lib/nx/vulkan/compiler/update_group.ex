defmodule Nx.Vulkan.Compiler.UpdateGroup do
  @moduledoc false
  # A `put_slice` or a `pad` with what leads to its update, as a block of an expression: one kernel computes the update, or
  # reads it as the view that it is, and writes it to its place. It runs such groups; which operations form one is decided in
  # `Nx.Vulkan.Compiler.UpdateFusion`.

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Dispatch, Movement, Storage, StridedCopy}
  alias Nx.Vulkan.Compiler.{FusionGroup, Lowering}
  alias Nx.Vulkan.ProgramBuilder

  @enforce_keys [:steps, :program, :starts, :shape]
  defstruct @enforce_keys

  @typedoc "A coordinate of the update's place, or the index of the input that holds it."
  @type start :: integer() | {:input, non_neg_integer()}

  @typedoc """
  The operations that lead to the update, in order, their program, where the update goes, and the result's shape. The first
  input is the tensor that it is put into, or a number that is all of it.
  """
  @type t :: %__MODULE__{
          steps: [Lowering.step()],
          program: ProgramBuilder.program(),
          starts: [start()],
          shape: tuple()
        }

  @doc "The block of these steps; `inputs` are the templates of the tensors that it reads."
  @spec new([Lowering.step()], [T.t()], [start()], tuple()) :: {:ok, t()} | :error
  def new(steps, inputs, starts, shape) do
    {builder, values} = Lowering.values(steps, inputs)
    group = &%__MODULE__{steps: steps, program: &1, starts: starts, shape: shape}

    case values[{:step, length(steps) - 1}] do
      {:node, _key} ->
        if ProgramBuilder.fits?(builder),
          do: {:ok, group.(ProgramBuilder.program(builder))},
          else: :error

      # Only the width matters of what is copied.
      {:view, {ref, type, offset, strides}, over} ->
        type = Movement.storage_type(type)
        {:ok, group.(ProgramBuilder.single(:as_type, type, [{ref, type, offset, strides}], over))}

      _dense ->
        :error
    end
  end

  @doc "The coordinates, with tensors in place of the indices of inputs."
  @spec starts([start()], [T.t()]) :: [integer() | T.t()]
  def starts(starts, inputs) do
    for start <- starts, do: with({:input, index} <- start, do: Enum.at(inputs, index))
  end

  @spec run(t(), {T.t()}, [T.t()]) :: {T.t()} | :default
  def run(%__MODULE__{program: {nodes, inputs, shape}} = group, {out}, [target | _] = args) do
    operands = args |> Enum.map(&Storage.operand/1) |> List.to_tuple()

    inputs =
      for input <- inputs, do: put_elem(FusionGroup.bind(input, operands), 1, elem(input, 1))

    region = StridedCopy.at(out, starts(group.starts, args), inputs, shape)
    regions = [StridedCopy.whole(out, target), StridedCopy.computed(region, nodes)]

    with %T{} = result <- Dispatch.block(StridedCopy.assemble(out, regions), :fused, out),
         do: {result}
  end
end
