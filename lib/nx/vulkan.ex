defmodule Nx.Vulkan do
  @moduledoc """
  GPU tensors on any Vulkan driver.

  `Nx.Vulkan.VulkanoBackend` is the `Nx` backend:

      iex> Nx.default_backend(Nx.Vulkan.VulkanoBackend)
      iex> Nx.iota({100, 100}, type: :f32) |> Nx.sum() |> Nx.to_number()
      49995000.0

  `Nx.Vulkan.NativeV` is the layer below, buffers and SPIR-V kernels, and needs no Nx.

  ## The device

  Tensors and definitions are on the global device unless they name another. It is chosen at the first call: a discrete GPU
  before an integrated one, a virtual one, and a driver that runs on the CPU (Mesa's lavapipe). Others are used as
  `{Nx.Vulkan.VulkanoBackend, device: 1}` and by `Nx.Defn.jit(fun, compiler: Nx.Vulkan.Compiler, device: 1)`; `devices/0` lists them.

  | environment variable | meaning |
  | --- | --- |
  | `NX_VULKAN_DEVICE` | the global device: its index, its UUID, or part of its name |
  | `NX_VULKAN_DEVICES` | the devices that may be used, separated by commas; `0,0` makes two of one |
  | `NX_VULKAN_MEMORY_LIMIT` | bytes that the pool of buffers may take from the device |
  | `NX_VULKAN_CACHE_DIR` | folder of the pipeline cache |
  | `NX_VULKAN_CACHE_LIMIT` | bytes that the files of the pipeline cache may take |
  | `NX_VULKAN_HOLD_CLOCK` | `1` or `0`: whether a CUDA context holds the device's clock up; by default NVIDIA's |
  | `NX_VULKAN_TIMEOUT` | seconds that the device may finish nothing while a call waits; then it counts as lost |
  | `NX_VULKAN_DISABLE` | features not to use, to test what other devices do: some of `float64`, `int64`, `int8`, `int16`, `float16`, `denorm_preserve`, `compares_subnormals`, `subnormal_doubles`, `fma`, `fast_float64`, `push_descriptor`, `conditional_rendering`, `subgroup`, `cooperative_matrix`, `cooperative_matrix2`, `cpu`, separated by commas |

  They are read once, when the first device is made.

  ## What eXMC calls

  [eXMC](https://github.com/borodark/eXMC), a library for Bayesian models, finds here the functions that it calls on its
  Vulkan package, and can depend on this one unchanged: `init/0`, `jit/2`, `device_name/0`, `has_f64/0`,
  `upload_binary/1`, `download_binary/2` and `leapfrog_chain_normal/7`, `Nx.Vulkan.Backend` and
  `Nx.Vulkan.Compiler`, and in `Nx.Vulkan.NativeV` chains of models whose shaders it writes itself, one
  or many in a dispatch. Most are other names of functions of this package.

  ## Memory

  A tensor's memory returns to the pool once the BEAM has collected every reference to it and the
  device has finished with it. When there is none left, a call finishes the work
  recorded so far, releases free memory, collects the calling process's garbage and tries again; only then it
  is an error. `Nx.backend_deallocate/1` frees a tensor at once.

  ## Configuration

      config :nx_vulkan, fallback: :allow

  Where an operation cannot run on the device: see `Nx.Vulkan.Fallback`.

  ## Telemetry

  | event | measurements | metadata |
  | --- | --- | --- |
  | `[:nx_vulkan, :fallback]` | `:duration` in native time units | `:op`, `:shapes`, `:types`, `:reason` |
  | `[:nx_vulkan, :compile]`: a call compiled kernels, which the driver may build on | `:pipelines`, `:from_disk` of them, `:nanoseconds` of the call | `:call` |
  | `[:nx_vulkan, :memory]`: a process collects its garbage before the pool grows, or as it is exhausted | those of `memory_info/0` | `:reason`: `:pool_grows` or `:out_of_memory` |

  The [guide](telemetry.md) has metrics of them for `Telemetry.Metrics`.
  """

  require Nx.Vulkan.Native, as: Native

  alias Nx.Vulkan.NativeV

  @typedoc "A device: its index in `devices/0`, its UUID or part of its name; `nil` is the global one."
  @type device :: non_neg_integer() | String.t() | nil

  @doc """
  The devices that this BEAM may use, by their indices.

  `:default` is true for the global device. `:partition` is true for those that `Nx.Serving` takes with
  `partitions: true`: all that `NX_VULKAN_DEVICES` lists, or where it is not set those of the global device's type.
  """
  @spec devices() ::
          [
            %{
              index: non_neg_integer(),
              name: String.t(),
              type: atom(),
              uuid: String.t(),
              default: boolean(),
              partition: boolean()
            }
          ]
          | {:error, :no_device, String.t()}
  def devices do
    with {:ok, {devices, default, listed?}} <- Native.call(device_list()) do
      type = Enum.at(devices, default).type

      for device <- devices do
        partition? = listed? or device.type == type
        Map.merge(device, %{default: device.index == default, partition: partition?})
      end
    end
  end

  # What a NIF answers for the device.
  defp on_device(nil, call), do: call.(nil)
  defp on_device(index, call) when is_integer(index) and index >= 0, do: call.(index)

  defp on_device(device, call) when is_binary(device),
    do: with({:ok, index} <- Native.call(device_index(device)), do: call.(index))

  @doc """
  What the pool of a device's memory holds, in bytes.

    * `:limit`: what the pool may take at most
    * `:pool_bytes`: what it has taken from the device
    * `:used_bytes`: what live buffers hold
    * `:most_used_bytes`: the most that they held at a time, since the start or the beginning of the last `profile/1`
    * `:buffers`: how many live buffers there are
  """
  @spec memory_info(device()) ::
          %{
            limit: non_neg_integer(),
            pool_bytes: non_neg_integer(),
            used_bytes: non_neg_integer(),
            most_used_bytes: non_neg_integer(),
            buffers: non_neg_integer()
          }
          | {:error, :no_device, String.t()}
  def memory_info(device \\ nil), do: on_device(device, &Native.call(memory_info(&1)))

  @doc """
  The processes whose tensors are in the devices' memory, the one with the most bytes first.

  A tensor counts for the process that made it, wherever it was sent since, until it is freed or collected. What captured
  definitions keep, such as constants, and what kernels need while they run counts for no process.

      iex> tensor = Nx.iota({1000}, type: :f32, backend: Nx.Vulkan.VulkanoBackend)
      iex> entry = Enum.find(Nx.Vulkan.memory_by_process(), &(&1.pid == self()))
      iex> entry.bytes >= Nx.byte_size(tensor) and entry.buffers >= 1
      true
  """
  @spec memory_by_process() :: [
          %{pid: pid(), bytes: non_neg_integer(), buffers: non_neg_integer()}
        ]
  def memory_by_process,
    do: Enum.sort_by(Native.call(memory_by_process()), & &1.bytes, :desc)

  @doc """
  The global device, or another: `:index`, `:name`, `:type` (such as `:discrete_gpu` or `:cpu`), `:driver`, `:api_version`,
  `:heap_bytes`, `:features` (a list of atoms), `:refused` (features whose kernels failed when the driver
  was tried, with the reasons) and `:devices`, those of `devices/0`.

  Without a usable device it is `{:error, :no_device, message}`, and the message says what to install.
  """
  @spec device_info(device()) :: {:ok, map()} | {:error, :no_device, String.t()}
  def device_info(device \\ nil) do
    with {:ok, info} <- on_device(device, &Native.call(device_info(&1))),
         [_ | _] = devices <- devices(),
         do: {:ok, Map.put(info, :devices, devices)}
  end

  @doc """
  Waits until everything recorded so far on the global device, or another, has run.

  Only measurements need it: reading a tensor waits by itself. An index out of bounds is an error of what is read, and not of this.
  """
  @spec synchronize(device()) :: :ok | {:error, atom(), String.t()}
  def synchronize(device \\ nil), do: on_device(device, &Native.call(sync(&1)))

  @doc """
  Calls `fun`, and returns what a device did meanwhile, by default the global one: each kernel with its operations, its runs, its times and its bytes.

      Nx.Vulkan.profile(fn -> Nx.sum(Nx.exp(x)) end)

  See `Nx.Vulkan.Profile`, which prints as a table and writes a trace for Chrome or Perfetto. What other processes have the device
  do in this time is part of it. There is one profile at a time.
  """
  @spec profile((-> term()), device()) :: Nx.Vulkan.Profile.t()
  def profile(fun, device \\ nil),
    do: on_device(device, &Nx.Vulkan.Profile.run(fun, &1))

  @doc """
  Makes the global device anew, or another. Its tensors are lost: each pending and later call on one raises `Nx.Vulkan.Error` with the reason
  `:device_lost` and the device's name, or returns `{:error, :device_lost, message}`.

  A device that fails needs no reset, as the next call that makes a tensor opens it anew. See
  [A device that is lost](devices.md#a-device-that-is-lost).
  """
  @spec reset(device()) :: :ok | {:error, atom(), String.t()}
  def reset(device \\ nil), do: on_device(device, &Native.call(reset(&1)))

  @doc """
  Makes the device ready: `:ok`, or why there is none. Every other call does so by itself.
  """
  @spec init() :: :ok | {:error, :no_device, String.t()}
  def init, do: with({:ok, _} <- device_info(), do: :ok)

  @doc "The name of the device in use, `nil` where there is none; `device_info/0` says why."
  @spec device_name() :: String.t() | nil
  def device_name do
    with {:ok, %{name: name}} <- device_info(), do: name, else: (_ -> nil)
  end

  @doc "Whether the device in use computes with 64-bit floats; `false` where there is no device."
  @spec has_f64() :: boolean()
  def has_f64 do
    with {:ok, %{features: features}} <- device_info(),
         do: :float64 in features,
         else: (_ -> false)
  end

  @doc "The same as `has_f64/0`."
  @spec has_f64?() :: boolean()
  defdelegate has_f64?, to: __MODULE__, as: :has_f64

  @doc "The same as `Nx.Vulkan.NativeV.buf_upload/1`."
  @spec upload_binary(binary()) :: {:ok, NativeV.buffer()} | NativeV.error()
  defdelegate upload_binary(data), to: NativeV, as: :buf_upload

  @doc """
  All bytes of a buffer, which must be `n_bytes`: `{:error, :size_mismatch}` otherwise.

  See `Nx.Vulkan.NativeV.buf_download/1`.
  """
  @spec download_binary(NativeV.buffer(), non_neg_integer()) ::
          {:ok, binary()} | NativeV.error()
  def download_binary(ref, n_bytes) do
    if NativeV.buf_byte_size(ref) == n_bytes,
      do: NativeV.buf_download(ref),
      else: {:error, :size_mismatch}
  end

  @doc """
  `k` leapfrog steps of Hamiltonian dynamics for `d` independent coordinates, each N(`mu`, `sigma`) with
  standard deviation `sigma`, in one dispatch.

  `q`, `p` and `inv_mass` are buffers of `d` 32-bit floats each (see `upload_binary/1`), `d` from 1 to
  256: position, momentum and the diagonal of the inverse mass. `k`, `eps`, `mu` and `sigma` are
  numbers; a negative step size `eps` runs backwards in time. The scheme is that of
  `Nx.Vulkan.NativeV.leapfrog_chain_synth/6`.

  Returns `{:ok, {q, p, grad, logp}}` at once, buffers of the state after each step: `k * d` floats, step
  by step, and of `logp` `k` floats, the log density with its normalising constant. `download_binary/2`
  waits for them.

  `{:error, :size_mismatch}`: the three buffers differ in size or hold no whole number of floats.
  `{:error, :invalid_argument, message}`: `k` or `d` is out of range, a number is none that 32-bit floats
  hold, or `sigma` is not positive. Other errors: `Nx.Vulkan.NativeV`.
  """
  @spec leapfrog_chain_normal(
          NativeV.buffer(),
          NativeV.buffer(),
          NativeV.buffer(),
          pos_integer(),
          number(),
          number(),
          number()
        ) :: {:ok, NativeV.chain()} | NativeV.error()
  def leapfrog_chain_normal(q, p, inv_mass, k, eps, mu, sigma),
    do: normal_chain(q, p, inv_mass, k, eps, mu, sigma, "leapfrog_normal.spv")

  @doc "`leapfrog_chain_normal/7` with 64-bit floats in all buffers, on a device that has them."
  @spec leapfrog_chain_normal_f64(
          NativeV.buffer(),
          NativeV.buffer(),
          NativeV.buffer(),
          pos_integer(),
          number(),
          number(),
          number()
        ) :: {:ok, NativeV.chain()} | NativeV.error()
  def leapfrog_chain_normal_f64(q, p, inv_mass, k, eps, mu, sigma),
    do: normal_chain(q, p, inv_mass, k, eps, mu, sigma, "leapfrog_normal_f64.spv")

  defp normal_chain(q, p, inv_mass, k, eps, mu, sigma, file) do
    path = Application.app_dir(:nx_vulkan, Path.join("priv/shaders", file))
    Native.call(leapfrog_chain_normal(q, p, inv_mass, k, eps, mu, sigma, path))
  end

  if Code.ensure_loaded?(Nx) do
    @doc """
    `Nx.Defn.jit/2` with `Nx.Vulkan.Compiler`, unless the options name another compiler.

        Nx.Vulkan.jit(&Nx.sum/1).(Nx.iota({1000}))
    """
    @spec jit(function(), keyword()) :: function()
    def jit(fun, options \\ []),
      do: Nx.Defn.jit(fun, Keyword.put_new(options, :compiler, Nx.Vulkan.Compiler))

    @doc """
    Prints which operations run on the device, are emulated there or fall back to the CPU, by type.
    `Nx.Vulkan.Support.table/1` has it as data.
    """
    @spec support() :: :ok | {:error, atom(), String.t()}
    def support do
      with {:ok, targets} <- Nx.Vulkan.Support.device_types(),
           do: IO.write(Nx.Vulkan.Support.text(targets))
    end
  end
end
