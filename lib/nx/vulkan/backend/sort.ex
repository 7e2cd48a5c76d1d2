defmodule Nx.Vulkan.Backend.Sort do
  @moduledoc false
  # Sorting along an axis. It passes options to one NIF and picks its results; which algorithm sorts is
  # decided in src/kernels/sort. The order is BinaryBackend's, always stable: NaN above everything, the two
  # zeros equal.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Dispatch, ProgramRecorder, Storage}

  # As steps of a loop two integers are their minimum and their maximum.
  def sort(out, %T{shape: shape, type: {kind, _}} = tensor, options) do
    axis = options[:axis]

    if ProgramRecorder.recording?() and elem(shape, axis) == 2 and kind in [:s, :u],
      do: pair(out, tensor, axis, options[:direction]),
      else: sort(out, tensor, axis, options)
  end

  defp pair(out, tensor, axis, direction) do
    [a, b] = for index <- 0..1, do: Nx.slice_along_axis(tensor, index, 1, axis: axis)
    [low, high] = [Nx.min(a, b), Nx.max(a, b)]
    pair = if direction == :desc, do: [high, low], else: [low, high]
    %{out | data: Nx.concatenate(pair, axis: axis).data}
  end

  defp sort(out, %T{shape: shape} = tensor, axis, options) do
    answer = run(tensor, axis, options[:direction], elem(shape, axis), true, nil)
    result(answer, 0, :sort, out, [tensor, options])
  end

  def argsort(out, %T{shape: shape} = tensor, options) do
    axis = options[:axis]
    answer = run(tensor, axis, options[:direction], elem(shape, axis), false, out.type)
    result(answer, 1, :argsort, out, [tensor, options])
  end

  # `{values, indices}` of the first `k` in descending order along the last axis.
  def top_k({_values, indices} = outs, %T{shape: shape} = tensor, k) do
    run(tensor, tuple_size(shape) - 1, :desc, k, true, indices.type)
    |> Dispatch.block(:top_k, outs)
  end

  defp run(tensor, axis, direction, keep, values?, indices) do
    descending? = direction == :desc
    Native.call(sort(Storage.buffer(tensor), axis, descending?, keep, values?, indices))
  end

  defp result({:ok, refs}, i, op, out, args),
    do: Dispatch.result({:ok, elem(refs, i)}, op, out, args)

  defp result(error, _i, op, out, args), do: Dispatch.result(error, op, out, args)
end
