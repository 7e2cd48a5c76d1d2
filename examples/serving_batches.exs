# A network that tells which points of a square lie within a ring, trained by Axon and served by Nx.Serving: requests of many
# clients at a time are answered in batches.
#
#     mix run examples/serving_batches.exs
#
# Prints the requests a second of one client, which waits for each answer, and of 64 clients. Ends with status 1 where the served
# answers are not those of the model, or are right for less than 90 % of the points.

alias Nx.Vulkan.{Fallback, VulkanoBackend}

defmodule Ring do
  @doc "`n` points {n, 2} of the square from -1 to 1, and whether each is in the ring, {n, 1}."
  def draw(n, seed) do
    {points, _} = Nx.Random.uniform(Nx.Random.key(seed), -1.0, 1.0, shape: {n, 2})
    radius = points |> Nx.pow(2) |> Nx.sum(axes: [1], keep_axes: true) |> Nx.sqrt()
    {points, Nx.logical_and(Nx.greater(radius, 0.4), Nx.less(radius, 0.8))}
  end

  def model do
    Axon.input("points", shape: {nil, 2})
    |> Axon.dense(64, activation: :tanh)
    |> Axon.dense(64, activation: :tanh)
    |> Axon.dense(1, activation: :sigmoid)
  end

  def train do
    {points, within} = draw(2048, 1)

    model()
    |> Axon.Loop.trainer(:binary_cross_entropy, Polaris.Optimizers.adam(learning_rate: 2.0e-2),
      seed: 1,
      log: 0
    )
    |> Axon.Loop.run(
      Enum.zip(Nx.to_batched(points, 256), Nx.to_batched(within, 256)),
      Axon.ModelState.empty(),
      epochs: 80
    )
  end
end

Fallback.put_mode(:raise)
Nx.global_default_backend(VulkanoBackend)
Nx.Defn.global_default_options(compiler: Nx.Vulkan.Compiler)
{:ok, device} = Nx.Vulkan.device_info()
IO.puts("A network for points in a ring, served on #{device.name}")

state = Ring.train()
{_init, predict} = Axon.build(Ring.model())

# Requests and answers are on the host, where cutting them apart costs least: the device gets one upload, one definition and one read a
# batch. All batches are padded to one shape, for which kernels are built once.
serving =
  Nx.Serving.new(fn options ->
    predict = Nx.Defn.jit(predict, options)

    fn batch ->
      padded = Nx.Batch.pad(batch, 64 - batch.size)
      Nx.backend_transfer(predict.(state, padded), Nx.BinaryBackend)
    end
  end)
  |> Nx.Serving.client_preprocessing(&{Nx.Batch.concatenate([&1]), :ok})

{:ok, _} =
  Nx.Serving.start_link(serving: serving, name: Ring.Serving, batch_size: 64, batch_timeout: 2)

{clients, requests} = {64, 64}
{points, within} = Ring.draw(clients * requests, 2)
expected = predict.(state, points)
points = Nx.backend_transfer(points, Nx.BinaryBackend)
ask = &Nx.Serving.batched_run(Ring.Serving, points[[&1..&1]])

timed = fn fun ->
  {microseconds, result} = :timer.tc(fun)
  {microseconds / 1_000_000, result}
end

# The first batches compile.
for i <- 0..4, do: ask.(i)
{alone, _} = timed.(fn -> for i <- 0..99, do: ask.(i) end)

{together, answers} =
  timed.(fn ->
    0..(clients - 1)
    |> Task.async_stream(
      fn client ->
        for i <- (client * requests)..((client + 1) * requests - 1),
            do: ask.(i)
      end,
      max_concurrency: clients,
      timeout: 60_000
    )
    |> Enum.flat_map(fn {:ok, answers} -> answers end)
  end)

answers = Nx.concatenate(answers)
difference = answers |> Nx.subtract(expected) |> Nx.abs() |> Nx.reduce_max() |> Nx.to_number()
right = answers |> Nx.greater(0.5) |> Nx.equal(within) |> Nx.mean() |> Nx.to_number()

:io.format("one client:    ~6b requests/s~n", [round(100 / alone)])
:io.format("~b clients: ~8b requests/s~n", [clients, round(clients * requests / together)])
:io.format("right for ~.1f % of the points~n", [100 * right])

if difference > 1.0e-6 or right < 0.9 do
  IO.puts("The answers differ by #{difference} from the model's, or too few are right: a defect.")
  System.halt(1)
end
