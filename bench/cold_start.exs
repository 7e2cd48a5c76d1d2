# Cold start: the time of the first operation of a BEAM, step by step, in milliseconds. The BEAM's own start and the
# loading of modules do not count.
#
#     export NX_VULKAN_CACHE_DIR=$(mktemp -d)
#     mix run bench/cold_start.exs      # with an empty disk cache
#     mix run bench/cold_start.exs      # with a warm one
#
# Prints JSON lines {case, value, unit}.

alias Nx.Vulkan.Native

{:ok, _} = Application.ensure_all_started(:nx)
{:ok, _} = Application.ensure_all_started(:telemetry)
_ = Application.load(:nx_vulkan)

# A release has all modules in memory from the start. The step "library" below loads the module with the NIF library.
for app <- [:nx, :nx_vulkan, :complex, :telemetry] do
  {:ok, modules} = :application.get_key(app, :modules)
  :ok = Code.ensure_all_loaded(modules -- [Native])
end

step = fn name, fun ->
  start = System.monotonic_time(:microsecond)
  result = fun.()
  value = (System.monotonic_time(:microsecond) - start) / 1000
  IO.puts(~s({"case": "cold_#{name}", "value": #{value}, "unit": "ms"}))
  {result, value}
end

data = for i <- 1..1000, into: <<>>, do: <<i::float-32-native>>

{_, library} = step.("library", fn -> {:module, _} = Code.ensure_loaded(Native) end)
{%{}, device} = step.("device", fn -> Nx.Vulkan.memory_info() end)

{_, operation} =
  step.("operation", fn ->
    Nx.default_backend(Nx.Vulkan.VulkanoBackend)
    x = Nx.from_binary(data, :f32)
    Nx.to_binary(Nx.add(x, x))
  end)

step.("second_operation", fn ->
  x = Nx.from_binary(data, :f32)
  Nx.to_binary(Nx.multiply(x, x))
end)

total = library + device + operation
IO.puts(~s({"case": "cold_first_operation", "value": #{Float.round(total, 3)}, "unit": "ms"}))
