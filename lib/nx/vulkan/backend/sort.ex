defmodule Nx.Vulkan.Backend.Sort do
  @moduledoc false
  # Sorting along an axis. The order is BinaryBackend's, which is stable whether that is asked for or
  # not: NaN above everything, the two zeros equal.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Dispatch, Storage}

  def sort(out, %T{shape: shape} = tensor, options) do
    axis = options[:axis]
    answer = run(tensor, axis, options[:direction], elem(shape, axis), true, nil)
    result(answer, 0, :sort, out, [tensor, options])
  end

  def argsort(out, %T{shape: shape} = tensor, options) do
    axis = options[:axis]
    answer = run(tensor, axis, options[:direction], elem(shape, axis), false, out.type)
    result(answer, 1, :argsort, out, [tensor, options])
  end

  # `{values, places}` of the first `k` in descending order along the last axis.
  def top_k({_values, places} = outs, %T{shape: shape} = tensor, k) do
    run(tensor, tuple_size(shape) - 1, :desc, k, true, places.type)
    |> Dispatch.block(:top_k, outs)
  end

  defp run(tensor, axis, direction, keep, values?, places) do
    descending? = direction == :desc
    Native.call(sort(Storage.buffer(tensor), axis, descending?, keep, values?, places))
  end

  defp result({:ok, refs}, i, op, out, args),
    do: Dispatch.result({:ok, elem(refs, i)}, op, out, args)

  defp result(error, _i, op, out, args), do: Dispatch.result(error, op, out, args)
end
