defmodule Nx.Vulkan.Compiler.RowGroup do
  @moduledoc false
  # Groups that go through the same rows as a block of an expression, with several results: the operations that
  # they are made of, and the row program that does them at once. It runs one or the other; which groups these are
  # is decided in `Nx.Vulkan.Compiler.RowFusion`.

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.Storage
  alias Nx.Vulkan.Compiler.{FusionGroup, Lowering}

  require Nx.Vulkan.Native, as: Native

  @enforce_keys [:steps, :results, :program]
  defstruct [:steps, :results, :program]

  @typedoc "The operations in order, the indices of those that are results, and the row program."
  @type t :: %__MODULE__{
          steps: [Lowering.step()],
          results: [non_neg_integer()],
          program: {tuple(), [tuple()], tuple()}
        }

  @doc "The block of these steps; `inputs` are the templates of the tensors that they read."
  @spec new([Lowering.row_step()], [T.t()], [non_neg_integer()], {tuple(), pos_integer()}) ::
          {:ok, t()} | {:error, String.t()}
  def new(steps, inputs, results, space) do
    with {:ok, program} <- Lowering.row_program(steps, inputs, results, space) do
      steps = for {op, out, args, _kind} <- steps, do: {op, out, args}
      {:ok, %__MODULE__{steps: steps, results: results, program: program}}
    end
  end

  @spec run(t(), tuple(), [T.t()]) :: tuple() | :default
  def run(%__MODULE__{program: {nodes, inputs, shape}}, outs, args) do
    FusionGroup.run_several(:rows, outs, args, fn operands ->
      inputs = Enum.map(inputs, &FusionGroup.bind(&1, operands))
      Native.call(run_rows(nodes, inputs, shape, Storage.default_device()))
    end)
  end

  @doc "The row program on these tensors, as the NIF `contract` takes an operand."
  @spec operand(t(), [T.t()]) :: {tuple(), [Nx.Vulkan.ProgramBuilder.operand()], tuple()}
  def operand(%__MODULE__{program: {nodes, inputs, shape}}, args) do
    operands = args |> Enum.map(&Storage.operand/1) |> List.to_tuple()
    {nodes, Enum.map(inputs, &FusionGroup.bind(&1, operands)), shape}
  end
end
