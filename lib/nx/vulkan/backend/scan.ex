defmodule Nx.Vulkan.Backend.Scan do
  @moduledoc false
  # Cumulative operations along an axis, as blocks: `:default` where there is no kernel. How a scan runs is
  # decided in src/kernels.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Vulkan.Backend.{Dispatch, Storage}

  def run(operation, %{axis: axis, reverse: reverse}, out, tensor) do
    Native.call(scan(operation, Storage.buffer(tensor), axis, reverse))
    |> Dispatch.block(:"cumulative_#{operation}", out)
  end
end
