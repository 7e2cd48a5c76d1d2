defmodule Nx.Vulkan.Node do
  @moduledoc """
  The device as eXMC asks for it: whether it can be used, and calls that do not wait for it forever.

      iex> Nx.Vulkan.Node.with_node(fn -> 1 + 1 end)
      2
  """

  require Nx.Vulkan.Native, as: Native

  # Beyond the time after which a wait for the device itself fails.
  @timeout 120_000

  @doc "Whether a device can be used."
  @spec alive?() :: boolean()
  def alive?, do: match?({:ok, _}, Native.call(device_info()))

  @doc """
  What the function returns, or `{:error, :node_timeout}` where it has not returned after `timeout` milliseconds, as when
  a kernel hangs.

  The function runs in a process of its own. What it raises, throws or exits with is that of this call.
  """
  @spec with_node((-> result), timeout()) :: result | {:error, :node_timeout} when result: term()
  def with_node(fun, timeout \\ @timeout) when is_function(fun, 0) do
    caller = self()
    answer = make_ref()

    {pid, monitor} =
      spawn_monitor(fn ->
        result =
          try do
            {:returned, fun.()}
          catch
            kind, reason -> {:raised, kind, reason, __STACKTRACE__}
          end

        send(caller, {answer, result})
      end)

    receive do
      {^answer, {:returned, result}} ->
        Process.demonitor(monitor, [:flush])
        result

      {^answer, {:raised, kind, reason, stacktrace}} ->
        Process.demonitor(monitor, [:flush])
        :erlang.raise(kind, reason, stacktrace)

      {:DOWN, ^monitor, :process, ^pid, reason} ->
        exit(reason)
    after
      timeout ->
        Process.demonitor(monitor, [:flush])
        Process.exit(pid, :kill)
        # It may have answered meanwhile.
        receive do
          {^answer, _result} -> :ok
        after
          0 -> :ok
        end

        {:error, :node_timeout}
    end
  end
end
