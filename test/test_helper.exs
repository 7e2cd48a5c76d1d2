# Tensors of 2^32 bytes and more need a GPU that holds two.
large? =
  case Nx.Vulkan.device_info() do
    {:ok, device} -> device.type != :cpu and device.heap_bytes >= 24 * 2 ** 30
    _no_device -> false
  end

# What tests tagged :timing measure says something on a quiet machine only: `mix test --only timing`.
ExUnit.start(exclude: if(large?, do: [:timing], else: [:timing, :huge]))

# Without Nx there is nothing to compare with.
if Code.ensure_loaded?(Nx.Vulkan.Test.Compare) do
  Nx.Vulkan.Test.Compare.count()
  Nx.Vulkan.Test.Fallbacks.watch()
end
