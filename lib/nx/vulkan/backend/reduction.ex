defmodule Nx.Vulkan.Backend.Reduction do
  @moduledoc false
  # Reductions over axes of a tensor, whose shape is the program's iteration space. How the device reduces
  # is decided in src/kernels.

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Dispatch, Storage}
  alias Nx.Vulkan.ProgramBuilder

  def reduce(op, %T{type: type} = out, %T{shape: shape} = tensor, options) do
    attribute = attribute(op, shape, options)
    program = ProgramBuilder.single(op, type, [Storage.operand(tensor)], shape, attribute)
    Dispatch.run(op, out, [tensor, options], program)
  end

  # What the callback's options are to the program's op.
  @spec attribute(atom(), tuple(), keyword()) :: term()
  def attribute(op, _shape, options) when op in [:argmax, :argmin],
    do: {options[:axis], options[:tie_break]}

  def attribute(_op, shape, options),
    do: Enum.sort(options[:axes] || Enum.to_list(0..(tuple_size(shape) - 1)//1))
end
