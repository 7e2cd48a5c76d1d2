defmodule Nx.Vulkan.Backend.Fold do
  @moduledoc false
  # Reductions by a function of the caller. It is called once, with traced scalars, and what it does becomes
  # the body of a kernel that goes through the elements in BinaryBackend's order, the results side by side.
  # A function that cannot be traced is the fallback's.

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Dispatch, Storage, Trace, Window}
  alias Nx.Vulkan.{Fallback, ProgramBuilder}

  def reduce(out, %T{shape: shape} = tensor, acc, options, fun) do
    axes = Enum.sort(options[:axes] || Nx.axes(shape))
    args = [tensor, acc, options, fun]
    fold(:reduce, out, args, {Storage.operand(tensor), shape, axes}, acc, fun)
  end

  def window_reduce(%T{type: type} = out, tensor, acc, window, options, fun) do
    args = [tensor, acc, window, options, fun]
    padding = for {low, high} <- options[:padding], do: {low, high, 0}

    padded =
      if Enum.all?(padding, &(&1 == {0, 0, 0})),
        do: tensor,
        else: Nx.pad(tensor, Nx.as_type(acc, type), padding)

    fold(:window_reduce, out, args, Window.windows(padded, out, window, options), acc, fun)
  end

  # `operand` is read over the iteration space `shape`, of which `axes` are reduced.
  defp fold(op, %T{type: type} = out, args, {operand, shape, axes}, acc, fun) do
    element = Trace.input(operand)
    so_far = Trace.op(:accumulator, type, [Storage.operand(acc)])

    with {:ok, %T{shape: {}} = next} <- Trace.call(fun, [element, so_far]) do
      {values, builder} =
        Enum.map_reduce([so_far, next], ProgramBuilder.new(shape), &Trace.add/2)

      builder = ProgramBuilder.op(builder, :result, :fold, type, values, axes)
      Dispatch.run(op, out, args, ProgramBuilder.program(builder))
    else
      {:ok, _tensor} -> Fallback.call(op, out, args, "the function gives no scalar")
      {:error, reason} -> Fallback.call(op, out, args, reason)
    end
  end
end
