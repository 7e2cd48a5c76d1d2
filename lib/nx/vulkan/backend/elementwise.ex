defmodule Nx.Vulkan.Backend.Elementwise do
  @moduledoc false
  # Callbacks whose elements come each from those at the same index of the operands, or from the index
  # alone. Each is a program of one op, to which broadcasting and conversions are left.

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Dispatch, Trace}
  alias Nx.Vulkan.ProgramBuilder

  def unary(op, %T{type: type, shape: shape} = out, tensor) do
    program = ProgramBuilder.single(op, type, [Trace.operand(tensor)], shape)
    Dispatch.run(op, out, [tensor], program)
  end

  def binary(op, %T{type: type, shape: shape} = out, left, right) do
    operands = [Trace.operand(left), Trace.operand(right)]
    Dispatch.run(op, out, [left, right], ProgramBuilder.single(op, type, operands, shape))
  end

  def ternary(op, %T{type: type, shape: shape} = out, first, second, third) do
    operands = [Trace.operand(first), Trace.operand(second), Trace.operand(third)]
    program = ProgramBuilder.single(op, type, operands, shape)
    Dispatch.run(op, out, [first, second, third], program)
  end

  def iota(%T{type: type, shape: shape} = out, axis, options),
    do:
      Dispatch.create(
        :iota,
        out,
        [axis, options],
        ProgramBuilder.single(:iota, type, [], shape, axis),
        options
      )

  def eye(%T{type: type, shape: shape} = out, options),
    do:
      Dispatch.create(:eye, out, [options], ProgramBuilder.single(:eye, type, [], shape), options)

  # The catalogue's checks. Negative amounts and exponents of integers raise in Nx, and a kernel cannot. A
  # signed tensor of them is reduced and read first; literals and unsigned tensors cost nothing.

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

  # The operands that a check of the catalogue reads: of the others their types say that they pass it.
  @spec read_by(atom(), T.t(), [T.t()]) :: [T.t()]
  def read_by(:amount, _out, [_, right]), do: signed(right)
  def read_by(:exponent, %T{type: {kind, _}}, [_, right]) when kind in [:s, :u], do: signed(right)
  def read_by(:real, _out, operands), do: Enum.filter(operands, &match?({:c, _}, &1.type))
  def read_by(_check, _out, _operands), do: []

  defp signed(%T{type: {:u, _}}), do: []
  defp signed(tensor), do: [tensor]

  defp imaginary?(%T{type: {:c, _}} = tensor), do: Nx.to_number(Nx.any(Nx.imag(tensor))) == 1
  defp imaginary?(%T{}), do: false

  defp minimum(%T{type: {:u, _}}), do: 0
  defp minimum(%T{shape: {}} = tensor), do: Nx.to_number(tensor)
  defp minimum(tensor), do: Nx.to_number(Nx.reduce_min(tensor))
end
