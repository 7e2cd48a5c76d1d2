defmodule Nx.Vulkan.Backend.Reduction do
  @moduledoc false
  # Reductions over axes of the program's iteration space, which is the tensor's shape, and dot.

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Program, Storage}

  def reduce(op, %T{type: type} = out, %T{shape: shape} = tensor, options) do
    axes = Enum.sort(options[:axes] || Nx.axes(shape))
    nodes = [{op, type, [0], axes}]
    Program.run(op, out, [tensor, options], nodes, [Storage.input(tensor)], shape)
  end

  def arg(op, %T{type: type} = out, %T{shape: shape} = tensor, options) do
    nodes = [{op, type, [0], {options[:axis], options[:tie_break]}}]
    Program.run(op, out, [tensor, options], nodes, [Storage.input(tensor)], shape)
  end

  def dot(out, left, left_contract, left_batch, right, right_contract, right_batch) do
    Program.dot(
      out,
      [left, left_contract, left_batch, right, right_contract, right_batch],
      Storage.buffer(left),
      left_contract,
      left_batch,
      Storage.buffer(right),
      right_contract,
      right_batch
    )
  end
end
