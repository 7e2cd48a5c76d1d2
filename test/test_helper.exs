ExUnit.start()

# Without Nx there is nothing to compare with.
if Code.ensure_loaded?(Nx.Vulkan.Test.Compare), do: Nx.Vulkan.Test.Compare.count()

# Two tensors of 2^32 bytes and more, on a GPU.
with {:ok, device} <- Nx.Vulkan.device_info() do
  if device.type == :cpu or device.heap_bytes < 24 * 2 ** 30,
    do: ExUnit.configure(exclude: [:huge])
end
