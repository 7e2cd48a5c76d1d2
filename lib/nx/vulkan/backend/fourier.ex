defmodule Nx.Vulkan.Backend.Fourier do
  @moduledoc false
  # Discrete Fourier transforms along an axis. fft2 and ifft2 are two of them, by their blocks' default
  # bodies; how a length is decomposed is decided in src/kernels/fourier.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Dispatch, Storage}

  def fft(out, tensor, options), do: complex(:fft, out, tensor, options)
  def ifft(out, tensor, options), do: complex(:ifft, out, tensor, options)

  defp complex(kind, out, tensor, options) do
    kind
    |> transform(out, tensor, options[:axis], options[:length], options[:eps])
    |> Dispatch.result(kind, out, [tensor, options])
  end

  # The blocks: `:default` where the device cannot.

  def rfft(out, tensor, %Nx.Block.RFFT{axis: axis, length: length, eps: eps}),
    do: block(:rfft, out, tensor, axis, length, eps)

  # What the default body gives is wider than what Nx declares where the tensor is narrower than f32.
  def irfft(%T{} = out, tensor, %Nx.Block.IRFFT{axis: axis, length: length, eps: eps}) do
    type = tensor.type |> Nx.Type.to_complex() |> Nx.Type.to_real()
    block(:irfft, %{out | type: type}, tensor, axis, length, eps)
  end

  # Nx derives a length of 0 from a spectrum of one point, for which the default body raises.
  defp block(_kind, _out, _tensor, _axis, 0, _eps), do: :default

  defp block(kind, out, tensor, axis, length, eps),
    do: Dispatch.block(transform(kind, out, tensor, axis, length, eps), kind, out)

  defp transform(kind, %T{type: type}, tensor, axis, length, eps),
    do: Native.call(fft(kind, type, Storage.buffer(tensor), axis, length, eps / 1))
end
