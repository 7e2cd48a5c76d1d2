# The host's part of a call of a compiled definition that is replayed from its graph: processor time of the BEAM's scheduler
# in microseconds, as Linux counts it.
#
#     ELIXIR_ERL_OPTIONS="+S 1:1 +sbwt none" mix run bench/calls.exs
#
# Prints JSON lines. `call_us` is a whole call, `nx_us` the same with a compiler that does nothing, `native_us` the NIF that
# replays the graph, and `ours_us` the rest, garbage collections among it: the second least of seven repetitions each.
#
# Where Nx's protocols are not consolidated, as with MIX_ENV=test, a call takes longer: docs/performance/compiled_definitions.md says how much.

{:ok, _} = Application.ensure_all_started(:nx)
Nx.default_backend(Nx.Vulkan.VulkanoBackend)
require Nx.Vulkan.Native, as: Native

defmodule Bench.NoCompiler do
  def __jit__(_key, _vars, _fun, _args_list, _options), do: [nil]
end

processor_time = fn ->
  for path <- Path.wildcard("/proc/self/task/*/comm"),
      File.read!(path) =~ "erts_sched",
      [nanoseconds | _] =
        path |> Path.dirname() |> Path.join("schedstat") |> File.read!() |> String.split(),
      reduce: 0,
      do: (sum -> sum + String.to_integer(nanoseconds))
end

microseconds = fn count, fun ->
  for _ <- 1..7 do
    :ok = Nx.Vulkan.synchronize()
    start = processor_time.()
    for _ <- 1..count, do: fun.()
    (processor_time.() - start) / count / 1000
  end
  |> Enum.sort()
  |> Enum.at(1)
end

# The arguments of the NIF in a call.
native = fn fun ->
  :erlang.trace_pattern({Native, :definition_run, 2}, true, [])
  test = self()

  tracer =
    spawn_link(fn -> receive do: ({:trace, _, :call, {_, _, args}} -> send(test, args)) end)

  :erlang.trace(self(), true, [:call, tracer: tracer])
  fun.()
  :erlang.trace(self(), false, [:call])
  receive do: ([_definition, _inputs] = args -> args)
end

tensor = fn -> Nx.backend_copy(Nx.tensor([1.0, 2.0]), Nx.Vulkan.VulkanoBackend) end
ten = 1..10 |> Enum.map(fn _ -> tensor.() end) |> List.to_tuple()
layer = fn -> Map.new(1..12, &{"weight_#{&1}", tensor.()}) end
layers = Map.new(1..14, &{"layer_#{&1}", layer.()})

quantized =
  Map.new(1..48, &{"weight_#{&1}", Nx.Vulkan.Quantization.quantize(Nx.iota({8, 8}, type: :f32))})

flat = &Nx.Defn.Composite.flatten_list([&1])
sum = fn tensors -> Enum.reduce(tensors, &Nx.add/2) end

cases = [
  {"1 input", 1, &Nx.add(&1, 1), tensor.()},
  {"10 inputs in a tuple", 10, &sum.(flat.(&1)), ten},
  {"10 inputs and results", 10, &Nx.Defn.Composite.traverse(&1, fn x -> Nx.multiply(x, 2) end),
   ten},
  {"4 of 168 in nested maps", 168, &(flat.(&1) |> Enum.take(4) |> sum.()), layers},
  {"168 inputs in nested maps", 168, &sum.(flat.(&1)), layers},
  {"96 inputs in 48 structs", 96, &sum.(flat.(&1)), quantized}
]

for {name, inputs, fun, arg} <- cases do
  call = Nx.Defn.jit(fun, compiler: Nx.Vulkan.Compiler)
  for _ <- 1..3, do: call.(arg)
  [definition, operands] = native.(fn -> call.(arg) end)
  none = Nx.Defn.jit(fun, compiler: Bench.NoCompiler)
  time = &microseconds.(div(100_000, 10 + inputs), &1)
  call_us = time.(fn -> call.(arg) end)
  nx_us = time.(fn -> none.(arg) end)
  native_us = time.(fn -> Native.call(definition_run(definition, operands)) end)

  [call_us, nx_us, native_us, ours_us] =
    Enum.map([call_us, nx_us, native_us, call_us - nx_us - native_us], &Float.round(&1, 2))

  IO.puts(
    ~s({"case": "#{name}", "call_us": #{call_us}, "nx_us": #{nx_us}, "native_us": #{native_us}, "ours_us": #{ours_us}})
  )
end
