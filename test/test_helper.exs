# Tensors of 2^32 bytes and more need a GPU that holds two.
# A kernel that never ends would stop what a GPU displays.
{large?, cpu?} =
  case Nx.Vulkan.device_info() do
    {:ok, %{type: :cpu}} -> {false, true}
    {:ok, device} -> {device.heap_bytes >= 24 * 2 ** 30, false}
    _no_device -> {false, false}
  end

# Nx 0.13 has no donation, and other names and defaults.
nx_1_0? = Code.ensure_loaded?(Nx) and function_exported?(Nx, :io_call, 2)
donation? = Code.ensure_loaded?(Nx) and function_exported?(Nx, :donatable, 1)

# Tests of several devices have a BEAM of their own, in which there are two.
two_devices? = System.get_env("NX_VULKAN_DEVICES") != nil

# What f64 alone is tested for: without doubles it falls back to BinaryBackend, whose own results have other bounds.
excluded =
  for {tag, false} <- [
        huge: large?,
        endless: cpu?,
        donation: donation?,
        nx_1_0: nx_1_0?,
        two_devices: two_devices?,
        parent: not two_devices?,
        float64: Nx.Vulkan.has_f64()
      ],
      do: {tag, true}

# What tests tagged :timing measure says something on a quiet machine only: `mix test --only timing`.
# Those tagged :posteriors sample for minutes on a CPU: `mix test --only posteriors`.
# A test that hangs ends; one that waits for busy cores does not.
ExUnit.start(exclude: [:timing, :posteriors | excluded], timeout: 600_000)

# Without Nx there is nothing to compare with.
if Code.ensure_loaded?(Nx.Vulkan.Test.Compare) do
  Nx.Vulkan.Test.Compare.count()
  Nx.Vulkan.Test.Fallbacks.watch()
end
