# Measures the cases of ../shared/bench/peers.py on the device, through Nx.
#
#     mix run bench/run.exs gpu|cpu [case...]
#
# gpu and cpu choose the sizes, as with peers.py. Prints JSON lines {case, value, unit}; on stderr the
# device and, case by case, what was left out because it has no kernel. Ends with status 1 when a case
# failed.

for file <- ~w(measure models cases), do: Code.require_file("support/#{file}.exs", __DIR__)

alias Nx.Vulkan.{Fallback, VulkanoBackend}

{sizes, names} =
  case System.argv() do
    [sizes | names] when sizes in ["gpu", "cpu"] ->
      {String.to_atom(sizes), names}

    _ ->
      IO.puts(:stderr, "usage: run.exs gpu|cpu [case...]")
      System.halt(2)
  end

cases = Bench.Cases.all(sizes)

case names -- Enum.map(cases, &elem(&1, 0)) do
  [] ->
    :ok

  unknown ->
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

# Each case in a process of its own: what it held is gone before the next one starts.
measure = fn fun ->
  Task.async(fn ->
    Nx.default_backend(VulkanoBackend)
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
  for {name, unit, fun} <- cases, names == [] or name in names do
    {result, detail} = measure.(fun)

    case result do
      :ok -> IO.puts(~s({"case": "#{name}", "value": #{detail}, "unit": "#{unit}"}))
      :left_out -> IO.puts(:stderr, "#{name} left out: #{detail}")
      :failed -> IO.puts(:stderr, "#{name} FAILED: #{detail}")
    end

    result
  end

if :failed in results, do: System.halt(1)
