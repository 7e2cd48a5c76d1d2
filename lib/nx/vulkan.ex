defmodule Nx.Vulkan do
  @moduledoc """
  GPU tensors on any Vulkan driver.

  `Nx.Vulkan.VulkanoBackend` is the `Nx` backend:

      Nx.default_backend(Nx.Vulkan.VulkanoBackend)
      Nx.sum(Nx.iota({1000, 1000}, type: :f32))

  `Nx.Vulkan.NativeV` is the layer below, buffers and SPIR-V kernels, and needs no Nx.

  ## The device

  There is one device for the whole BEAM. It is chosen at the first call: a discrete GPU before an
  integrated one, a virtual one, and a driver that runs on the CPU (Mesa's lavapipe).

  | environment variable | meaning |
  | --- | --- |
  | `NX_VULKAN_DEVICE` | the device to use: its index, or part of its name |
  | `NX_VULKAN_MEMORY_LIMIT` | bytes that the pool of buffers may take from the device |
  | `NX_VULKAN_DISABLE` | features to do without, to test what other devices do: some of `float64,int64,int8,int16,float16,denorm_preserve,fma,push_descriptor,subgroup` |

  They are read once, when the device is made.

  ## Memory

  A tensor's memory returns to the pool once the BEAM has collected every reference to it and the
  device has finished with it. When there is none left, the calls finish the work recorded so far,
  release what is free, collect the calling process's garbage and try again; only then is it an
  error. `Nx.backend_deallocate/1` frees a tensor at once.

  ## Configuration

      config :nx_vulkan, fallback: :allow

  What happens when an operation cannot run on the device: see `Nx.Vulkan.Fallback`.

  ## Telemetry

  | event | measurements | metadata |
  | --- | --- | --- |
  | `[:nx_vulkan, :fallback]` | `:duration` in native time units | `:op`, `:shapes`, `:types`, `:reason` |
  | `[:nx_vulkan, :compile]`: a call built kernels | `:pipelines`, `:from_disk` of them, `:nanoseconds` | `:call` |
  | `[:nx_vulkan, :memory]`: the pool is about to grow, or is exhausted | those of `memory_info/0` | `:reason`: `:pool_grows` or `:out_of_memory` |
  """

  require Nx.Vulkan.Native, as: Native

  @doc """
  What the pool of device memory holds, in bytes.

    * `:limit`: what the pool may take at most
    * `:pool_bytes`: what it has taken from the device
    * `:used_bytes`: what live buffers hold
    * `:buffers`: how many live buffers there are
  """
  @spec memory_info() ::
          %{
            limit: non_neg_integer(),
            pool_bytes: non_neg_integer(),
            used_bytes: non_neg_integer(),
            buffers: non_neg_integer()
          }
          | {:error, :no_device, String.t()}
  def memory_info, do: Native.call(memory_info())

  @doc """
  The device in use: `:name`, `:type` (such as `:discrete_gpu` or `:cpu`), `:driver`, `:api_version`,
  `:heap_bytes`, `:features` (a list of atoms) and `:devices`, all that could be chosen.

  Without a usable device it is `{:error, :no_device, message}`, and the message says what to install.
  """
  @spec device_info() :: {:ok, map()} | {:error, :no_device, String.t()}
  def device_info, do: Native.call(device_info())

  @doc """
  Waits until everything recorded so far has run.

  Only measurements need it: reading a tensor waits by itself.
  """
  @spec synchronize() :: :ok | {:error, atom(), String.t()}
  def synchronize, do: Native.call(sync())

  if Code.ensure_loaded?(Nx) do
    @doc """
    Prints which operations run on the device, are emulated there or fall back to the CPU, by type.
    `Nx.Vulkan.Support.table/1` has it as data.
    """
    @spec support() :: :ok | {:error, atom(), String.t()}
    def support do
      with {:ok, places} <- Nx.Vulkan.Support.device_types(),
           do: IO.write(Nx.Vulkan.Support.text(places))
    end
  end
end
