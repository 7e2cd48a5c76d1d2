defmodule Nx.Vulkan.Backend.Decompositions do
  @moduledoc false
  # QR, eigh and svd of batches of matrices. `:default` where Nx's own body is to run on the device.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Program, Storage}

  def qr(%Nx.Block.LinAlg.QR{mode: mode, eps: eps}, {q, _r} = outs, [a]) do
    Native.call(qr(q.type, Storage.buffer(a), mode == :complete, eps * 1.0))
    |> Program.block(:qr, outs)
  end

  # Within definitions Nx says that the vectors of integer matrices of 1 × 1 are integers.
  def eigh(_eigh, {_values, %T{type: {kind, _}}}, [_a]) when kind in [:s, :u], do: :default

  def eigh(%Nx.Block.LinAlg.Eigh{eps: eps}, {_values, vectors} = outs, [a]) do
    Native.call(eigh(vectors.type, Storage.buffer(a), eps * 1.0))
    |> Program.block(:eigh, outs)
  end

  # The examples of Nx.LinAlg show the rounding of Nx's own iteration on small matrices of integers.
  def svd(_svd, _outs, [%T{type: {kind, _}, shape: shape}])
      when kind in [:s, :u] and elem(shape, tuple_size(shape) - 1) <= 4 and
             elem(shape, tuple_size(shape) - 2) <= 4,
      do: :default

  def svd(%Nx.Block.LinAlg.SVD{full_matrices?: full?}, {u, _s, _vt} = outs, [a]) do
    Native.call(svd(u.type, Storage.buffer(a), full?))
    |> Program.block(:svd, outs)
  end
end
