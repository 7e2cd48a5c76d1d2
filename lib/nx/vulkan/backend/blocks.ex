defmodule Nx.Vulkan.Backend.Blocks do
  @moduledoc false
  # `Nx.Block` structs: those with built-in kernels go to their family, all others to their default body,
  # whose operations run on the device. Nothing is computed here.

  alias Nx.Block
  alias Nx.Vulkan.Backend.{Fourier, Indexed, LinearAlgebra, Scan, Sort, UserKernel}

  alias Nx.Vulkan.Compiler.{
    AttentionGroup,
    ContractionGroup,
    DeviceLoop,
    FusionGroup,
    HookValue,
    HostCond,
    HostLoop,
    MapGroup,
    RowGroup,
    SumGroup,
    UpdateGroup
  }

  alias Nx.Vulkan.VulkanoBackend, as: B

  def block(struct, output, args, fun) do
    case native(struct, output, args) do
      :default -> default(struct, args, fun)
      result -> result
    end
  end

  # A clause for each block; `:default` where its kernel does not apply.
  defp native(%FusionGroup{} = group, out, args), do: FusionGroup.run(group, out, args)
  defp native(%RowGroup{} = group, outs, args), do: RowGroup.run(group, outs, args)
  defp native(%SumGroup{} = group, outs, args), do: SumGroup.run(group, outs, args)
  defp native(%MapGroup{} = group, outs, args), do: MapGroup.run(group, outs, args)
  defp native(%UpdateGroup{} = group, outs, args), do: UpdateGroup.run(group, outs, args)
  defp native(%HostLoop{} = loop, outs, args), do: HostLoop.run(loop, outs, args)
  defp native(%HookValue{} = value, _out, [tensor]), do: HookValue.run(value, tensor)
  defp native(%HostCond{} = block, _out, [pred, result]), do: HostCond.run(block, pred, result)

  defp native(%ContractionGroup{} = group, outs, args),
    do: ContractionGroup.run(group, outs, args)

  defp native(%AttentionGroup{} = group, out, args), do: AttentionGroup.run(group, out, args)

  defp native(%DeviceLoop{} = loop, outs, args), do: DeviceLoop.run(loop, outs, args)

  defp native(%UserKernel{} = kernel, outs, args), do: UserKernel.run(kernel, outs, args)

  defp native(%Block.Take{axis: axis}, out, [tensor, indices]),
    do: Indexed.take(out, tensor, indices, axis)

  defp native(%Block.TakeAlongAxis{axis: axis}, out, [tensor, indices]),
    do: Indexed.take_along_axis(out, tensor, indices, axis)

  defp native(%Block.CumulativeSum{} = block, out, [tensor]),
    do: Scan.run(:sum, block, out, tensor)

  defp native(%Block.CumulativeProduct{} = block, out, [tensor]),
    do: Scan.run(:product, block, out, tensor)

  defp native(%Block.CumulativeMax{} = block, out, [tensor]),
    do: Scan.run(:max, block, out, tensor)

  defp native(%Block.CumulativeMin{} = block, out, [tensor]),
    do: Scan.run(:min, block, out, tensor)

  defp native(%Block.TopK{k: k}, outs, [tensor]), do: Sort.top_k(outs, tensor, k)
  defp native(%Block.RFFT{} = block, out, [tensor]), do: Fourier.rfft(out, tensor, block)
  defp native(%Block.IRFFT{} = block, out, [tensor]), do: Fourier.irfft(out, tensor, block)
  defp native(%Block.LinAlg.Cholesky{}, out, [a]), do: LinearAlgebra.cholesky(out, a)
  defp native(%Block.LinAlg.LU{}, outs, [a]), do: LinearAlgebra.lu(outs, a)
  defp native(%Block.LinAlg.Solve{}, out, [a, b]), do: LinearAlgebra.solve(out, a, b)
  defp native(%Block.LinAlg.Determinant{}, out, [a]), do: LinearAlgebra.determinant(out, a)
  defp native(%Block.LinAlg.QR{} = qr, outs, args), do: LinearAlgebra.qr(qr, outs, args)
  defp native(%Block.LinAlg.Eigh{} = eigh, outs, args), do: LinearAlgebra.eigh(eigh, outs, args)
  defp native(%Block.LinAlg.SVD{} = svd, outs, args), do: LinearAlgebra.svd(svd, outs, args)
  defp native(_struct, _output, _args), do: :default

  # The default body runs on the tensors' backend. Tensors that it creates must be there too, whatever the
  # caller's default backend is.
  defp default(struct, args, fun),
    do: Nx.with_default_backend(B, fn -> apply(fun, [struct | args]) end)
end
