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

  def ternary(op, %T{type: type, shape: shape} = out, first, second, third) do
    inputs = [Trace.operand(first), Trace.operand(second), Trace.operand(third)]
    Program.run(op, out, [first, second, third], [{op, type, [0, 1, 2]}], inputs, shape)
  end

  # The catalogue's checks. Negative amounts and exponents of integers raise in Nx, and a kernel cannot. A signed
  # tensor of them is reduced and read first; literals and unsigned tensors cost nothing.

  def amount(op, out, left, right) do
    amount = minimum(right)

    if amount < 0 do
      direction = if op == :left_shift, do: "left", else: "right"
      raise ArgumentError, "cannot #{direction} shift by #{amount}"
    end

    binary(op, out, left, right)
  end

  def exponent(op, %T{type: {kind, _}} = out, left, right) do
    if kind in [:s, :u] and minimum(right) < 0 do
      raise ArithmeticError,
            "bad argument in arithmetic expression: negative exponent of integers"
    end

    binary(op, out, left, right)
  end

  # Of complex numbers Nx takes the real ones and raises for the others.
  def real(op, %T{type: {kind, _}} = out, left, right) do
    if kind == :c and Enum.any?([left, right], &imaginary?/1) do
      raise ArithmeticError, "Complex.#{op} only accepts real numbers as arguments"
    end

    binary(op, out, left, right)
  end

  defp imaginary?(%T{type: {:c, _}} = tensor), do: Nx.to_number(Nx.any(Nx.imag(tensor))) == 1
  defp imaginary?(%T{}), do: false

  defp minimum(%T{type: {:u, _}}), do: 0
  defp minimum(%T{shape: {}} = tensor), do: Nx.to_number(tensor)
  defp minimum(tensor), do: Nx.to_number(Nx.reduce_min(tensor))

  def iota(%T{type: type, shape: shape} = out, axis, options),
    do: Program.run(:iota, out, [axis, options], [{:iota, type, [], axis}], [], shape)

  def eye(%T{type: type, shape: shape} = out, options),
    do: Program.run(:eye, out, [options], [{:eye, type, []}], [], shape)
end
