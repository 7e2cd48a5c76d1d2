# Requests a second of a served network, on one device and on every device of the process.
#
#     mix run bench/partitions.exs gpu|cpu
#
# NX_VULKAN_DEVICES=0,0 makes two devices of one. A network of dense layers in f32; 32 clients send whole batches that are on the host, and read
# the answers. The rounds alternate between a serving with `device: 0` and one with `partitions: true`.
#
# Prints JSON lines {case, devices, value, unit} a round, the value in batches a second. Ends with status 1 where an answer is wrong.

alias Nx.Vulkan.VulkanoBackend

{width, layers, rows, seconds} =
  case System.argv() do
    ["gpu"] ->
      {4096, 8, 256, 4}

    ["cpu"] ->
      {128, 4, 64, 2}

    _ ->
      IO.puts(:stderr, "usage: partitions.exs gpu|cpu")
      System.halt(2)
  end

# Without Mix nothing has been started.
{:ok, _} = Application.ensure_all_started(:nx)
clients = 32
features = 16

Nx.default_backend(VulkanoBackend)
key = Nx.Random.key(1)

# Drawn on the device: on the host this would take minutes.
normal = fn shape ->
  {tensor, _key} = Nx.Random.normal(key, 0.0, 1 / :math.sqrt(width), shape: shape)
  Nx.backend_transfer(tensor, Nx.BinaryBackend)
end

params =
  [normal.({features, width})] ++
    for(_ <- 2..layers//1, do: normal.({width, width})) ++ [normal.({width, features})]

predict = fn params, x ->
  params |> Tuple.to_list() |> Enum.reduce(x, &Nx.tanh(Nx.dot(&2, &1)))
end

copy = fn params, backend ->
  params |> Enum.map(&Nx.backend_copy(&1, backend)) |> List.to_tuple()
end

serving = fn options ->
  Nx.Serving.new(
    fn options ->
      params = copy.(params, Nx.Defn.to_backend(options))
      predict = Nx.Defn.jit(predict, options)
      fn batch -> Nx.backend_transfer(predict.(params, batch), Nx.BinaryBackend) end
    end,
    [compiler: Nx.Vulkan.Compiler] ++ options
  )
end

count = Enum.count(Nx.Vulkan.devices(), & &1.partition)
servings = [{"one", 1, [device: 0]}, {"all", count, []}]

for {name, _count, options} <- servings do
  {:ok, _} =
    Nx.Serving.start_link(
      serving: serving.(options),
      name: String.to_atom(name),
      partitions: true,
      batch_size: rows
    )
end

x = normal.({rows, features})
batch = Nx.Batch.concatenate([x])

expected =
  predict
  |> Nx.Defn.jit(compiler: Nx.Vulkan.Compiler)
  |> then(& &1.(copy.(params, VulkanoBackend), Nx.backend_copy(x, VulkanoBackend)))
  |> Nx.backend_transfer(Nx.BinaryBackend)

round = fn name, seconds ->
  finish = System.monotonic_time(:millisecond) + round(1000 * seconds)

  ask = fn ask, done ->
    answer = Nx.Serving.batched_run(name, batch)

    cond do
      not (Nx.to_binary(answer) == Nx.to_binary(expected)) -> System.halt(1)
      System.monotonic_time(:millisecond) < finish -> ask.(ask, done + 1)
      true -> done + 1
    end
  end

  {microseconds, done} =
    :timer.tc(fn ->
      1..clients
      |> Enum.map(fn _ -> Task.async(fn -> ask.(ask, 0) end) end)
      |> Task.await_many(:infinity)
      |> Enum.sum()
    end)

  done / microseconds * 1_000_000
end

# The first rounds build the kernels of each device.
for {name, _count, _options} <- servings, do: round.(String.to_atom(name), 1)

for _ <- 1..3, {name, count, _options} <- servings do
  rate = round.(String.to_atom(name), seconds)

  :io.format(~s({"case": "partitions", "devices": ~b, "value": ~.1f, "unit": "batches/s"}~n), [
    count,
    rate
  ])
end
