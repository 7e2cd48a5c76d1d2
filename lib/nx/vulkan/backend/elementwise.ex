defmodule Nx.Vulkan.Backend.Elementwise do
  @moduledoc false
  # One node a callback, broadcasting left to the program.

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Program, Trace}

  def unary(op, %T{type: type, shape: shape} = out, tensor),
    do: Program.run(op, out, [tensor], [{op, type, [0]}], [Trace.operand(tensor)], shape)

  def binary(op, %T{type: type, shape: shape} = out, left, right) do
    nodes = [{op, type, [0, 1]}]
    Program.run(op, out, [left, right], nodes, [Trace.operand(left), Trace.operand(right)], shape)
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

  # Of complex numbers Nx takes the real ones and raises for the others.
  def atan2(%T{type: {kind, _}} = out, left, right) do
    if kind == :c and Enum.any?([left, right], &imaginary?/1) do
      raise ArithmeticError, "Complex.atan2 only accepts real numbers as arguments"
    end

    binary(:atan2, out, left, right)
  end

  defp imaginary?(%T{type: {:c, _}} = tensor), do: Nx.to_number(Nx.any(Nx.imag(tensor))) == 1
  defp imaginary?(%T{}), do: false

  defp minimum(%T{type: {:u, _}}), do: 0
  defp minimum(%T{shape: {}} = tensor), do: Nx.to_number(tensor)
  defp minimum(tensor), do: Nx.to_number(Nx.reduce_min(tensor))

  def select(%T{type: type, shape: shape} = out, pred, on_true, on_false) do
    inputs = [Trace.operand(pred), Trace.operand(on_true), Trace.operand(on_false)]
    args = [pred, on_true, on_false]
    Program.run(:select, out, args, [{:select, type, [0, 1, 2]}], inputs, shape)
  end

  def clip(%T{type: type, shape: shape} = out, tensor, min, max) do
    inputs = [Trace.operand(tensor), Trace.operand(min), Trace.operand(max)]
    Program.run(:clip, out, [tensor, min, max], [{:clip, type, [0, 1, 2]}], inputs, shape)
  end

  def iota(%T{type: type, shape: shape} = out, axis, options),
    do: Program.run(:iota, out, [axis, options], [{:iota, type, [], axis}], [], shape)

  def eye(%T{type: type, shape: shape} = out, options),
    do: Program.run(:eye, out, [options], [{:eye, type, []}], [], shape)
end
