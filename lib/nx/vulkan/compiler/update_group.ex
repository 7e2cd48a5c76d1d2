defmodule Nx.Vulkan.Compiler.UpdateGroup do
  @moduledoc false
  # A `put_slice` with what leads to its update, as a block of an expression: one kernel computes the update, or reads it as
  # the view that it is, and writes it to its place. It runs such groups; which operations form one is decided in
  # `Nx.Vulkan.Compiler.UpdateFusion`.

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Dispatch, Movement, Storage, StridedCopy}
  alias Nx.Vulkan.Compiler.{FusionGroup, Lowering}
  alias Nx.Vulkan.ProgramBuilder

  @enforce_keys [:steps, :program, :starts]
  defstruct @enforce_keys

  @typedoc "A coordinate of the update's place, or the index of the input that holds it."
  @type start :: integer() | {:input, non_neg_integer()}

  @typedoc """
  The operations that lead to the update, in order, their program, and where the update goes. The first input is the
  tensor that it is put into.
  """
  @type t :: %__MODULE__{
          steps: [Lowering.step()],
          program: ProgramBuilder.program(),
          starts: [start()]
        }

  @doc "The block of these steps; `inputs` are the templates of the tensors that it reads."
  @spec new([Lowering.step()], [T.t()], [start()]) :: {:ok, t()} | :error
  def new(steps, inputs, starts) do
    {builder, values} = Lowering.values(steps, inputs)

    case values[{:step, length(steps) - 1}] do
      {:node, _key} ->
        if ProgramBuilder.fits?(builder),
          do: {:ok, group(steps, ProgramBuilder.program(builder), starts)},
          else: :error

      # Only the width matters of what is copied.
      {:view, {ref, type, offset, strides}, shape} ->
        type = Movement.storage_type(type)
        copy = ProgramBuilder.single(:as_type, type, [{ref, type, offset, strides}], shape)
        {:ok, group(steps, copy, starts)}

      _dense ->
        :error
    end
  end

  defp group(steps, program, starts),
    do: %__MODULE__{steps: steps, program: program, starts: starts}

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
    regions = [StridedCopy.whole(out, target), Tuple.insert_at(region, 0, nodes)]

    with %T{} = result <- Dispatch.block(StridedCopy.assemble(out, regions), :fused, out),
         do: {result}
  end
end
