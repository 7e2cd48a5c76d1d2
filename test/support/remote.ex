defmodule Nx.Vulkan.Test.Remote do
  @moduledoc "What tests have other nodes do: functions that those call by name."

  import Nx.Defn

  alias Nx.Vulkan.VulkanoBackend

  @doc "Starts a node with this one's code. It ends with the calling process."
  def start_node(name) do
    paths = for path <- :code.get_path(), path != ~c".", arg <- [~c"-pa", path], do: arg
    # Its end is no network that parted.
    args = paths ++ [~c"-kernel", ~c"prevent_overlapping_partitions", ~c"false"]
    options = %{name: name, host: ~c"127.0.0.1", args: args, wait_boot: :timer.minutes(10)}
    {:ok, peer, node} = :peer.start_link(options)
    {:ok, _} = :erpc.call(node, Application, :ensure_all_started, [:nx])
    {peer, node}
  end

  @doc "Has the node keep what the function returns, which is returned too, with who keeps it."
  def hold(node, module, function, args) do
    {:ok, holder} = :erpc.call(node, Agent, :start, [module, function, args])
    {:erpc.call(node, Agent, :get, [holder, Function, :identity, []]), holder}
  end

  @doc "On the device of the node that calls it."
  def tensors(hosts), do: Nx.backend_copy(hosts, VulkanoBackend)

  defn(model(%{x: x}), do: %{wave: Nx.sin(x) * 2, sum: Nx.sum(x, axes: [1])})

  @doc "A serving of `model/1` that computes on the node's device, under a supervisor there."
  def start_serving(node, name, postprocessing) do
    serving =
      Nx.Serving.jit(&__MODULE__.model/1)
      |> Nx.Serving.distributed_postprocessing(postprocessing)

    options = [name: name, serving: serving, batch_size: 4, batch_timeout: 10]
    child = %{id: name, start: {__MODULE__, :start_on_device, [options]}}
    {:ok, _} = :erpc.call(node, :supervisor, :start_child, [:kernel_safe_sup, child])
  end

  @doc false
  def start_on_device(options) do
    Nx.global_default_backend(VulkanoBackend)
    Nx.Serving.start_link(options)
  end
end
