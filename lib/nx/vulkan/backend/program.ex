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
  alias Nx.Vulkan.{Error, Fallback}
  alias Nx.Vulkan.VulkanoBackend, as: B

  # `args` are the callback's arguments after `out`: what the device cannot do, it says, and the
  # fallback does it from them.
  @spec run(atom(), T.t(), [term()], [tuple()], [tuple()], tuple()) :: T.t()
  def run(op, out, args, nodes, inputs, shape) do
    case Native.call(run(nodes, inputs, shape)) do
      {:ok, ref} -> %{out | data: %B{ref: ref}}
      {:error, :unsupported, reason} -> Fallback.call(op, out, args, reason)
      error -> Error.raise!(op, error)
    end
  end

  def dot(out, args, left, left_contract, left_batch, right, right_contract, right_batch) do
    result =
      Native.call(
        dot(out.type, left, left_contract, left_batch, right, right_contract, right_batch)
      )

    case result do
      {:ok, ref} -> %{out | data: %B{ref: ref}}
      {:error, :unsupported, reason} -> Fallback.call(:dot, out, args, reason)
      error -> Error.raise!(:dot, error)
    end
  end
end
