defmodule Nx.Vulkan.Error do
  @moduledoc """
  Raised by the backend when a call to the device failed.

      iex> tensor = Nx.iota({3}, backend: Nx.Vulkan.VulkanoBackend)
      iex> Nx.backend_deallocate(tensor)
      iex> Nx.add(tensor, 1)
      ** (Nx.Vulkan.Error) add: the buffer was deallocated

  `:reason` is the atom of the error tuple, such as `:out_of_memory`, `:deallocated`, `:no_device`, `:device_lost` or
  `:dispatch_failed`, or `:noconnection` where the tensor's node cannot be reached. The
  [troubleshooting guide](troubleshooting.md#errors-and-their-reasons) has all of them, with causes and what to do.
  """

  defexception [:reason, :message]

  @doc false
  @spec raise!(atom(), {:error, atom()} | {:error, atom(), String.t()}) :: no_return()
  def raise!(op, {:error, reason}),
    do: raise(__MODULE__, reason: reason, message: "#{op}: #{reason}")

  def raise!(op, {:error, reason, message}),
    do: raise(__MODULE__, reason: reason, message: "#{op}: #{message}")
end
