defmodule Nx.Vulkan.Backend.Program do
  @moduledoc false
  # The one road from a callback to the device. A program is
  #
  #   * `nodes`, a list of `{op, type, args}` or `{op, type, args, attributes}`: `type` is the type of
  #     the result, `args` are indices, of the inputs first and then of the nodes. The last node is the
  #     program's result; only that one may be a reduction.
  #   * `inputs`, a list of `{ref, type, shape}` (dense, broadcast to the iteration space by trailing
  #     axes), `{ref, type, offset, strides}` (a view of the iteration space, in elements) and
  #     `{:scalar, type, binary}`
  #   * `shape`, the iteration space
  #
  # Arguments are converted to the type that the op works in: the node's own for arithmetic, the merged
  # type of the arguments for comparisons and logic.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Storage, Trace}
  alias Nx.Vulkan.{Catalogue, Error, Fallback}
  alias Nx.Vulkan.VulkanoBackend, as: B

  @host_integers Catalogue.names(host_integers: true)

  # `args` are the callback's arguments after `out`, for the fallback.
  @spec run(atom(), T.t(), [term()], [tuple()], [tuple()], tuple()) :: T.t()
  # Integers that the host holds, such as the counter of a loop, stay there: who asks for the result need
  # not wait for the device. BinaryBackend has no single one of less than a byte.
  def run(op, %T{type: {kind, size}} = out, args, nodes, [{:scalar, _, _} | _] = inputs, {})
      when op in @host_integers and kind in [:s, :u] and size >= 8 do
    if Enum.all?(inputs, &match?({:scalar, {k, size}, _} when k in [:s, :u] and size >= 8, &1)),
      do:
        Storage.from_host(apply(Nx.BinaryBackend, op, [out | Enum.map(args, &Storage.to_host/1)])),
      else: dispatch(op, out, args, nodes, inputs, {})
  end

  def run(op, out, args, nodes, inputs, shape), do: dispatch(op, out, args, nodes, inputs, shape)

  defp dispatch(op, out, args, nodes, inputs, shape) do
    if Trace.traced?(inputs),
      do: %{out | data: %B{ref: Trace.run(nodes, inputs)}},
      else: result(Native.call(run(nodes, inputs, shape)), op, out, args)
  end

  # What a NIF answered as the result of the callback `op`: what the device cannot do, it says, and the
  # fallback does it from the callback's arguments.
  @spec result(term(), atom(), T.t(), [term()]) :: T.t()
  def result({:ok, ref}, _op, out, _args), do: %{out | data: %B{ref: ref}}

  def result({:error, :unsupported, reason}, op, out, args),
    do: Fallback.call(op, out, args, reason)

  def result(error, op, _out, _args), do: Error.raise!(op, error)

  # As `result/4` for the block `op`, whose results are a tensor or a tuple of them: `:default` for what
  # the device cannot do, as the default body's operations may run there.
  @spec block(term(), atom(), T.t() | tuple()) :: T.t() | tuple() | :default
  def block({:ok, refs}, op, outs) when is_tuple(outs) do
    [Tuple.to_list(refs), Tuple.to_list(outs)]
    |> Enum.zip_with(fn [ref, out] -> block({:ok, ref}, op, out) end)
    |> List.to_tuple()
  end

  def block({:ok, ref}, _op, %T{} = out), do: %{out | data: %B{ref: ref}}
  def block({:error, :unsupported, _reason}, _op, _outs), do: :default
  def block(error, op, _outs), do: Error.raise!(op, error)
end
