# Two models in one BEAM that share the memory of a device, and the replacement of one of them while clients use it.
#
#     NX_VULKAN_MEMORY_LIMIT=100000000 mix run examples/serving_models.exs
#
# Ends with status 1 where a request fails or is answered by neither version of its model, or where the memory of the version that
# was replaced is not free afterwards.

alias Nx.Vulkan.{Fallback, VulkanoBackend}

defmodule Models do
  @features 1024

  def model do
    Axon.input("features", shape: {nil, @features})
    |> Axon.dense(@features, activation: :relu)
    |> Axon.dense(@features, activation: :tanh)
  end

  @doc "The parameters of a version, which follow from the seed."
  def parameters(seed) do
    {init, _predict} = Axon.build(model(), seed: seed)
    init.(Nx.template({1, @features}, :f32), Axon.ModelState.empty())
  end

  def predict(parameters, features),
    do: Axon.predict(model(), parameters, Nx.new_axis(features, 0))[0]

  def random(i), do: Nx.Random.key(i) |> Nx.Random.uniform(shape: {@features}) |> elem(0)

  @doc """
  Serves a version of the model of that name. Requests go to it from then on; the version before it ends once it has answered.
  """
  def deploy(name, seed) do
    parameters = parameters(seed)

    serving =
      Nx.Serving.new(fn options ->
        {_init, predict} = Axon.build(model(), options)
        &predict.(parameters, &1)
      end)

    version = Module.concat(name, "Version#{seed}")
    options = [serving: serving, name: version, batch_size: 16, batch_timeout: 2]
    {:ok, pid} = DynamicSupervisor.start_child(Models.Supervisor, {Nx.Serving, options})
    # Its kernels are built before the first client asks.
    Nx.Serving.batched_run(version, Nx.Batch.stack([random(0)]))
    before = :persistent_term.get(name, nil)
    :persistent_term.put(name, {version, pid})

    with {_version, pid} <- before do
      # Clients that have looked up the version before this one have asked it by then.
      Process.sleep(1000)
      :ok = DynamicSupervisor.terminate_child(Models.Supervisor, pid)
    end
  end

  def ask(name, features) do
    {version, _pid} = :persistent_term.get(name)
    Nx.Serving.batched_run(version, Nx.Batch.stack([features]))[0]
  end
end

Fallback.put_mode(:raise)
Nx.global_default_backend(VulkanoBackend)
Nx.Defn.global_default_options(compiler: Nx.Vulkan.Compiler)
{:ok, device} = Nx.Vulkan.device_info()
megabytes = &:io_lib.format("~.1f MB", [&1 / 1_000_000])

used = fn ->
  Nx.Vulkan.synchronize()
  Enum.each(Process.list(), &:erlang.garbage_collect/1)
  Nx.Vulkan.memory_info().used_bytes
end

IO.puts("Two models share #{megabytes.(Nx.Vulkan.memory_info().limit)} of #{device.name}")
{:ok, _} = DynamicSupervisor.start_link(name: Models.Supervisor, strategy: :one_for_one)
for name <- [Photos, Letters], do: Models.deploy(name, 1)
served = used.()

# In a process of its own, whose tensors go with it.
versions =
  fn ->
    clients =
      for client <- 1..8, name <- [Photos, Letters] do
        Task.async(fn ->
          features = Models.random(client)
          {name, features, for(_ <- 1..60, do: Models.ask(name, features))}
        end)
      end

    Process.sleep(200)
    Models.deploy(Photos, 2)
    parameters = for seed <- [1, 2], do: {seed, Models.parameters(seed)}

    for {name, features, answers} <- Task.await_many(clients, 120_000),
        predictions = for({seed, p} <- parameters, do: {seed, Models.predict(p, features)}),
        answer <- answers do
      near? = fn {_seed, prediction} ->
        Nx.to_number(Nx.all_close(prediction, answer, atol: 1.0e-5)) == 1
      end

      {version, _prediction} = Enum.find(predictions, {:neither, nil}, near?)
      {name, version}
    end
  end
  |> Task.async()
  |> Task.await(:infinity)

for {{name, version}, count} <- versions |> Enum.frequencies() |> Enum.sort(),
    do: IO.puts("#{inspect(name)}: #{count} answers of version #{version}")

after_replacement = used.()

IO.puts(
  "Used before the replacement: #{megabytes.(served)}, after it: #{megabytes.(after_replacement)}"
)

if Enum.any?(versions, &match?({_name, :neither}, &1)) or after_replacement > served + 1_000_000 do
  IO.puts("An answer is of neither version, or the replaced one's memory is not free: a defect.")
  System.halt(1)
end
