defmodule Nx.Vulkan.Compiler.SumGroup do
  @moduledoc false
  # Sums of the same axes as a block of an expression, with several results: the operations that they are made of, and the
  # program that adds them up at once. It runs one or the other; which sums these are is decided in
  # `Nx.Vulkan.Compiler.SumFusion`.

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.Storage
  alias Nx.Vulkan.Compiler.{FusionGroup, Lowering}

  require Nx.Vulkan.Native, as: Native

  @enforce_keys [:steps, :results, :program]
  defstruct [:steps, :results, :program]

  @typedoc "The operations in order, the indices of the sums, which are the last, and the program."
  @type t :: %__MODULE__{
          steps: [Lowering.step()],
          results: [non_neg_integer()],
          program: Nx.Vulkan.ProgramBuilder.program()
        }

  @doc "The block of these steps, the last `count` of which are the sums; `inputs` are the templates of the tensors that they read."
  @spec new([Lowering.step()], [T.t()], pos_integer()) :: {:ok, t()} | {:error, String.t()}
  def new(steps, inputs, count) do
    with {:ok, program} <- Lowering.program(steps, inputs) do
      all = length(steps)
      results = Enum.to_list((all - count)..(all - 1)//1)
      {:ok, %__MODULE__{steps: steps, results: results, program: program}}
    end
  end

  @spec run(t(), tuple(), [T.t()]) :: tuple() | :default
  def run(%__MODULE__{program: {nodes, inputs, shape}, results: results}, outs, args) do
    FusionGroup.run_several(:sums, outs, args, fn operands ->
      inputs = Enum.map(inputs, &FusionGroup.bind(&1, operands))
      nodes = {nodes, length(results)}
      Native.call(run_sums(nodes, inputs, shape, Storage.default_device()))
    end)
  end
end
