# Measures cases on the device, through Nx.
#
#     mix run bench/run.exs gpu|cpu [set|case...]
#
# gpu and cpu choose the sizes. The sets are
#
#   * peers (the default): the cases of ../shared/bench/peers.py
#   * irregular: shapes and types that are no multiple of a tile
#   * networks: operations of neural networks and models besides matmul
#   * models: forward passes and training steps of whole models, compiled by Nx.Vulkan.Compiler
#   * compiled: definitions of the sets above, compiled by Nx.Vulkan.Compiler; only the set's name chooses them
#   * sweep, binary_backend: an operation's cost from 1 to 10^8 elements, on the device and on Nx.BinaryBackend
#   * latency: the time of a small operation, layer by layer
#   * processes: 1 to 64 processes that issue operations concurrently
#   * transfers: a model with large inputs and results, called by several clients at once
#
# Prints JSON lines {case, value, unit}, with {peer} for BinaryBackend. Prints on stderr the device and the cases
# that it leaves out because they have no kernel. Ends with status 1 when a case failed.

for file <- ~w(measure models cases irregular networks training bert resnet sweep latency
           transfers),
    do: Code.require_file("support/#{file}.exs", __DIR__)

alias Nx.Vulkan.{Fallback, VulkanoBackend}

{sizes, names} =
  case System.argv() do
    [sizes | names] when sizes in ["gpu", "cpu"] ->
      {String.to_atom(sizes), names}

    _ ->
      IO.puts(:stderr, "usage: run.exs gpu|cpu [set|case...]")
      System.halt(2)
  end

sets = [
  {"peers", VulkanoBackend, Bench.Cases.all(sizes)},
  {"irregular", VulkanoBackend, Bench.Irregular.all(sizes)},
  {"networks", VulkanoBackend, Bench.Networks.all(sizes)},
  {"models", VulkanoBackend, Bench.Bert.all(sizes) ++ Bench.ResNet.all(sizes)},
  {"compiled", VulkanoBackend, Bench.Cases.compiled(sizes) ++ Bench.Networks.compiled(sizes)},
  {"sweep", VulkanoBackend, Bench.Sweep.all(8)},
  {"binary_backend", Nx.BinaryBackend, Bench.Sweep.all(6)},
  {"latency", VulkanoBackend, Bench.Latency.layers()},
  {"processes", VulkanoBackend, Bench.Latency.processes()},
  {"transfers", VulkanoBackend, Bench.Transfers.all(sizes)}
]

names = if names == [], do: ["peers"], else: names
known = Enum.flat_map(sets, fn {set, _, cases} -> [set | Enum.map(cases, &elem(&1, 0))] end)

with [_ | _] = unknown <- names -- known do
  IO.puts(:stderr, "no such case: #{Enum.join(unknown, ", ")}")
  System.halt(2)
end

# Without Mix nothing has been started.
{:ok, _} = Application.ensure_all_started(:nx)

device =
  case Nx.Vulkan.device_info() do
    {:ok, device} ->
      device

    {:error, :no_device, message} ->
      IO.puts(:stderr, message)
      System.halt(1)
  end

IO.puts(:stderr, "#{Date.utc_today()}, #{device.name} (#{device.type}), driver #{device.driver}")

# Each case runs in a process of its own, whose end frees its tensors before the next case starts.
measure = fn backend, fun ->
  Task.async(fn ->
    Nx.default_backend(backend)
    Fallback.put_mode(:raise)

    try do
      {:ok, fun.()}
    rescue
      error in Fallback.Error -> {:left_out, error.message}
      error -> {:failed, Exception.format(:error, error, __STACKTRACE__)}
    end
  end)
  |> Task.await(:infinity)
end

results =
  for {set, backend, cases} <- sets,
      {name, unit, fun} <- cases,
      set in names or (name in names and backend == VulkanoBackend and set != "compiled") do
    {result, detail} = measure.(backend, fun)
    peer = if backend == VulkanoBackend, do: "", else: ~s("peer": "BinaryBackend", )

    case result do
      :ok -> IO.puts(~s({"case": "#{name}", #{peer}"value": #{detail}, "unit": "#{unit}"}))
      :left_out -> IO.puts(:stderr, "#{name} left out: #{detail}")
      :failed -> IO.puts(:stderr, "#{name} FAILED: #{detail}")
    end

    result
  end

if :failed in results, do: System.halt(1)
