defmodule Nx.Vulkan.Backend.Elementwise do
  @moduledoc false
  # One node a callback, broadcasting left to the program.

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Program, Storage}

  def unary(op, %T{type: type, shape: shape} = out, tensor),
    do: Program.run(op, out, [tensor], [{op, type, [0]}], [Storage.input(tensor)], shape)

  def binary(op, %T{type: type, shape: shape} = out, left, right) do
    nodes = [{op, type, [0, 1]}]
    Program.run(op, out, [left, right], nodes, [Storage.input(left), Storage.input(right)], shape)
  end

  # Negative amounts and exponents of integers raise in Nx, and a kernel cannot. So a signed tensor is
  # reduced and read first; literals and unsigned tensors cost nothing.

  def shift(op, out, left, right) do
    amount = minimum(right)

    if amount < 0 do
      direction = if op == :left_shift, do: "left", else: "right"
      raise ArgumentError, "cannot #{direction} shift by #{amount}"
    end

    binary(op, out, left, right)
  end

  def pow(%T{type: {kind, _}} = out, left, right) do
    if kind in [:s, :u] and minimum(right) < 0 do
      raise ArithmeticError,
            "bad argument in arithmetic expression: negative exponent of integers"
    end

    binary(:pow, out, left, right)
  end

  defp minimum(%T{type: {:u, _}}), do: 0
  defp minimum(%T{shape: {}} = tensor), do: Nx.to_number(tensor)
  defp minimum(tensor), do: Nx.to_number(Nx.reduce_min(tensor))

  def select(%T{type: type, shape: shape} = out, pred, on_true, on_false) do
    inputs = [Storage.input(pred), Storage.input(on_true), Storage.input(on_false)]
    args = [pred, on_true, on_false]
    Program.run(:select, out, args, [{:select, type, [0, 1, 2]}], inputs, shape)
  end

  def clip(%T{type: type, shape: shape} = out, tensor, min, max) do
    inputs = [Storage.input(tensor), Storage.input(min), Storage.input(max)]
    Program.run(:clip, out, [tensor, min, max], [{:clip, type, [0, 1, 2]}], inputs, shape)
  end

  def iota(%T{type: type, shape: shape} = out, axis, options),
    do: Program.run(:iota, out, [axis, options], [{:iota, type, [], axis}], [], shape)

  def eye(%T{type: type, shape: shape} = out, options),
    do: Program.run(:eye, out, [options], [{:eye, type, []}], [], shape)
end
