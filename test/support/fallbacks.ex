defmodule Nx.Vulkan.Test.Fallbacks do
  @moduledoc """
  Forbids fallbacks to the CPU in tests, but for those of types that the device lacks.

  A device with floats and integers of 64 bits computes with every type, and the mode `:raise` forbids all fallbacks.
  Elsewhere f64 and c128 run on the CPU, and sorts and indexed operations of 64-bit integers do, and tests compare that, too:
  the mode is `:allow`, and a fallback for any other reason ends the process that asked for it.
  """

  alias Nx.Vulkan.Fallback

  @lacks ~r" has no (f64|c128|[us]64|64-bit integers)"

  @doc "Forbids fallbacks in the calling process."
  def forbid do
    Process.put(__MODULE__, :forbidden)
    Fallback.put_mode(mode())
  end

  @doc "Allows them again."
  def allow do
    Process.delete(__MODULE__)
    Fallback.put_mode(:allow)
  end

  @doc "Forbids fallbacks in all processes without a mode of their own."
  def forbid_everywhere do
    Application.put_env(:nx_vulkan, :fallback, mode())
    watch(:everywhere)
  end

  @doc "Watches for what is forbidden: called once, before tests run."
  def watch(where \\ :marked),
    do: :telemetry.attach(__MODULE__, [:nx_vulkan, :fallback], &__MODULE__.check/4, where)

  @doc false
  def check(_event, _measurements, %{reason: reason} = fallback, where) do
    forbidden? = where == :everywhere or Process.get(__MODULE__) == :forbidden
    if forbidden? and not (reason =~ @lacks), do: Process.exit(self(), {:fell_back, fallback})
  end

  defp mode do
    {:ok, %{features: features}} = Nx.Vulkan.device_info()
    if :float64 in features and :int64 in features, do: :raise, else: :allow
  end
end
