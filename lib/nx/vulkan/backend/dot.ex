defmodule Nx.Vulkan.Backend.Dot do
  @moduledoc false
  # Products of two tensors over any axes. Which kernels form them is decided in src/kernels, for products
  # with a vector, too. As a step of a loop a product is a program.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Vulkan.Backend.{Dispatch, Movement, ProgramRecorder, Storage}
  alias Nx.Vulkan.ProgramBuilder

  def dot(out, left, left_contract, left_batch, right, right_contract, right_batch) do
    args = [left, left_contract, left_batch, right, right_contract, right_batch]
    {a, b} = {Storage.buffer(left), Storage.buffer(right)}

    answer =
      if ProgramRecorder.recording?() do
        factors = [{a, left_contract, left_batch}, {b, right_contract, right_batch}]
        Dispatch.compute(program(out.type, factors))
      else
        Native.call(dot(out.type, a, left_contract, left_batch, b, right_contract, right_batch))
      end

    Dispatch.result(answer, :dot, out, args)
  end

  # The sum over the contracted axes, which come last, of products. Those of narrow floats are exact in f64.
  defp program(type, [{a, contract, batch}, {b, right_contract, right_batch}]) do
    {free, right_free} = {free(a, contract ++ batch), free(b, right_contract ++ right_batch)}
    dims = dims(a, batch) ++ dims(a, free) ++ dims(b, right_free)
    shape = List.to_tuple(dims ++ dims(a, contract))
    left = strides(a, batch) ++ strides(a, free) ++ zeros(right_free) ++ strides(a, contract)

    right =
      strides(b, right_batch) ++
        zeros(free) ++ strides(b, right_free) ++ strides(b, right_contract)

    reduced = Enum.to_list(length(dims)..(tuple_size(shape) - 1)//1)

    ProgramBuilder.new(shape)
    |> ProgramBuilder.input(:left, ProgramBuilder.view(a, 0, left))
    |> ProgramBuilder.input(:right, ProgramBuilder.view(b, 0, right))
    |> ProgramBuilder.op(:product, :multiply, widened(type), [:left, :right])
    |> ProgramBuilder.op(:sum, :sum, type, [:product], reduced)
    |> ProgramBuilder.program()
  end

  defp free({_ref, _type, shape}, axes), do: Enum.to_list(0..(tuple_size(shape) - 1)//1) -- axes
  defp dims({_ref, _type, shape}, axes), do: Enum.map(axes, &elem(shape, &1))

  defp strides({_ref, _type, shape}, axes) do
    strides = Movement.strides(shape)
    Enum.map(axes, &Enum.at(strides, &1))
  end

  defp zeros(axes), do: Enum.map(axes, fn _ -> 0 end)

  defp widened({kind, size}) when kind in [:s, :u, :c], do: {kind, size}
  defp widened(_float), do: {:f, 64}
end
