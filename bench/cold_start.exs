# Cold start: from the loading of the library to the first result of a BEAM, step by step, in milliseconds. The BEAM's own start and
# the loading of other modules do not count.
#
#     export NX_VULKAN_CACHE_DIR=$(mktemp -d) MESA_SHADER_CACHE_DIR=$(mktemp -d)
#     mix run bench/cold_start.exs      # the first operation, with empty disk caches
#     mix run bench/cold_start.exs      # with warm ones
#     mix run bench/cold_start.exs cnn  # the first training step of the network of examples/axon_cnn.exs, a batch of 16
#
# Prints JSON lines {case, value, unit}.

alias Nx.Vulkan.Native

case = List.first(System.argv(), "operation")
{:ok, _} = Application.ensure_all_started(:nx)
{:ok, _} = Application.ensure_all_started(:telemetry)
_ = Application.load(:nx_vulkan)

# A release has all modules in memory from the start. The step "library" below loads the module with the NIF library.
for app <- [:nx, :nx_vulkan, :complex, :telemetry, :axon, :polaris],
    Application.load(app) in [:ok, {:error, {:already_loaded, app}}] do
  {:ok, modules} = :application.get_key(app, :modules)
  :ok = Code.ensure_all_loaded(modules -- [Native])
end

print = fn name, value ->
  IO.puts(~s({"case": "cold_#{name}", "value": #{Float.round(value, 3)}, "unit": "ms"}))
end

step = fn name, fun ->
  start = System.monotonic_time(:microsecond)
  result = fun.()
  value = (System.monotonic_time(:microsecond) - start) / 1000
  print.(name, value)
  {result, value}
end

opened = fn ->
  {_, library} = step.("library", fn -> {:module, _} = Code.ensure_loaded(Native) end)
  {%{}, device} = step.("device", fn -> Nx.Vulkan.memory_info() end)
  Nx.default_backend(Nx.Vulkan.VulkanoBackend)
  library + device
end

case case do
  "operation" ->
    data = for i <- 1..1000, into: <<>>, do: <<i::float-32-native>>
    before = opened.()

    operation = fn fun ->
      x = Nx.from_binary(data, :f32)
      Nx.to_binary(fun.(x, x))
    end

    {_, first} = step.("operation", fn -> operation.(&Nx.add/2) end)
    step.("second_operation", fn -> operation.(&Nx.multiply/2) end)
    print.("first_operation", before + first)

  "cnn" ->
    Code.require_file("../examples/support/digits.exs", __DIR__)
    [batch] = Digits.draw(16) |> Digits.batches(16)
    Nx.Defn.default_options(compiler: Nx.Vulkan.Compiler)
    adam = Polaris.Optimizers.adam(learning_rate: 1.0e-3)
    loss = :categorical_cross_entropy
    {init, train} = Axon.Loop.train_step(Digits.model(), loss, adam, seed: 1998)
    before = opened.()
    jit = fn fun, args -> Nx.Defn.jit_apply(fun, args) end

    {state, initialised} =
      step.("initialisation", fn -> jit.(init, [batch, Axon.ModelState.empty()]) end)

    {state, first} =
      step.("training_step", fn ->
        jit.(train, [batch, state]) |> tap(&Nx.to_number(&1.loss))
      end)

    step.("second_training_step", fn -> jit.(train, [batch, state]).loss |> Nx.to_number() end)
    print.("first_training_step", before + initialised + first)
end
