defmodule Nx.Vulkan.Backend.Fold do
  @moduledoc false
  # Reductions by a function of the caller. It is called once, with traced scalars, and what it does
  # becomes the body of a kernel that goes through the elements in BinaryBackend's order, the results
  # side by side. A function that cannot be traced is the fallback's.

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Program, Storage, Trace, Window}
  alias Nx.Vulkan.Fallback

  def reduce(out, %T{shape: shape} = tensor, acc, options, fun) do
    axes = Enum.sort(options[:axes] || Nx.axes(shape))
    args = [tensor, acc, options, fun]
    fold(:reduce, out, args, Storage.input(tensor), acc, shape, axes, fun)
  end

  def window_reduce(%T{type: type} = out, tensor, acc, window, options, fun) do
    args = [tensor, acc, window, options, fun]
    padding = for {low, high} <- options[:padding], do: {low, high, 0}

    padded =
      if Enum.all?(padding, &(&1 == {0, 0, 0})),
        do: tensor,
        else: Nx.pad(tensor, Nx.as_type(acc, type), padding)

    {input, shape, axes} = Window.windows(padded, out, window, options)
    fold(:window_reduce, out, args, input, acc, shape, axes, fun)
  end

  defp fold(op, %T{type: type} = out, args, input, acc, shape, axes, fun) do
    element = Trace.tensor(elem(input, 1), {}, input)
    so_far = Trace.tensor(type, {}, {:accumulator, [Storage.input(acc)]})

    with {:ok, %T{shape: {}} = next} <- Trace.call(fun, [element, so_far]) do
      operands = [Trace.operand(so_far), Trace.operand(next)]
      {inputs, nodes, results} = Trace.program(operands)
      Program.run(op, out, args, nodes ++ [{:fold, type, results, axes}], inputs, shape)
    else
      {:ok, _tensor} -> Fallback.call(op, out, args, "the function gives no scalar")
      {:error, reason} -> Fallback.call(op, out, args, reason)
    end
  end
end
