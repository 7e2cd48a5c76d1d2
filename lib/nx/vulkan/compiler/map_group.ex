defmodule Nx.Vulkan.Compiler.MapGroup do
  @moduledoc false
  # Element-wise groups that one kernel computes, as a block of an expression with several results: the operations
  # that they are made of, and the programs that do them at once. It runs one or the other; which groups these are
  # is decided in `Nx.Vulkan.Compiler.MapFusion`.

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Movement, Storage}
  alias Nx.Vulkan.Compiler.{FusionGroup, Lowering}

  require Nx.Vulkan.Native, as: Native

  @enforce_keys [:steps, :results, :outs, :parts]
  defstruct [:steps, :results, :outs, :parts]

  @typedoc "Where a value of a part goes: the position of the result, and the view of it."
  @type store :: {result :: non_neg_integer(), offset :: integer(), strides :: [integer()]}

  @typedoc "Operations over one iteration space, and what is stored: the index of a step, and where it goes."
  @type part :: {steps :: Range.t(), shape :: tuple(), [{non_neg_integer(), store()}]}

  @typedoc "A result by the indices of steps: one of them, or several along an axis."
  @type result ::
          {:step, non_neg_integer()} | {:concatenate, [non_neg_integer()], non_neg_integer()}

  @typedoc "The operations in order, the results, and the arguments of `Nx.Vulkan.Native.run_maps/2`."
  @type t :: %__MODULE__{
          steps: [Lowering.step()],
          results: [result()],
          outs: [{Nx.Type.t(), non_neg_integer()}],
          parts: [tuple()]
        }

  @doc """
  The block of these steps; `inputs` are the templates of the tensors that they read, `outs` those of the results.
  """
  @spec new([Lowering.step()], [T.t()], [result()], [T.t()], [part()]) ::
          {:ok, t()} | {:error, String.t()}
  def new(steps, inputs, results, outs, parts) do
    with {:ok, parts} <- Lowering.map_parts(steps, inputs, parts) do
      outs = for %T{type: type, shape: shape} <- outs, do: {type, Nx.size(shape)}
      {:ok, %__MODULE__{steps: steps, results: results, outs: outs, parts: parts}}
    end
  end

  @doc "Where a dense result has its elements: all of them, or those from an index along an axis on."
  @spec store(non_neg_integer(), tuple(), {non_neg_integer(), non_neg_integer()}) :: store()
  def store(result, shape, {axis, start} \\ {0, 0}) do
    strides = Movement.strides(shape)
    {result, start * Enum.at(strides, axis, 0), strides}
  end

  @spec run(t(), tuple(), [T.t()]) :: tuple() | :default
  def run(%__MODULE__{outs: results, parts: parts}, outs, args) do
    FusionGroup.run_several(:maps, outs, args, fn operands ->
      parts =
        for {nodes, inputs, shape, stores} <- parts,
            do: {nodes, Enum.map(inputs, &FusionGroup.bind(&1, operands)), shape, stores}

      Native.call(run_maps(results, parts, Storage.default_device()))
    end)
  end
end
