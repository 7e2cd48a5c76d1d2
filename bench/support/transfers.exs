defmodule Bench.Transfers do
  @moduledoc """
  A served model with large inputs and results: clients of one `Nx.Serving` process and clients that each call the model
  themselves. A call uploads a matrix, has the device multiply it with the parameters, and reads the result back. Milliseconds
  a call of all clients.
  """

  import Bench.Measure

  @calls 16

  @doc "Calls with 64 MiB in and out on a GPU, and with 4 MiB on a CPU device."
  def all(sizes) do
    rows = if sizes == :gpu, do: 4096, else: 1024

    for {way, clients} <- [client: 1, client: 4, client: 8, serving: 4] do
      {"model_#{div(4 * rows * rows, 1_048_576)}_mib_in_and_out_#{way}_#{clients}", "ms/call",
       fn -> measure(way, clients, rows) end}
    end
  end

  defp measure(way, clients, rows) do
    weights = Nx.multiply(normal({rows, rows}, 0), 1 / :math.sqrt(rows))
    data = Nx.to_binary(normal({rows, rows}, 1))
    predict = Nx.Defn.jit(&Nx.max(Nx.dot(&1, &2), 0), compiler: Nx.Vulkan.Compiler)
    call = call(way, predict, weights, rows)
    expected = call.(data)

    # To compare 64 MiB would take the host as long as the call.
    client = fn ->
      for _ <- 1..div(@calls, clients), do: true = byte_size(call.(data)) == byte_size(expected)
      :ok
    end

    run = fn ->
      1..clients |> Enum.map(fn _ -> Task.async(client) end) |> Task.await_many(:infinity)
    end

    milliseconds = median(run, 7, 2) / @calls * 1.0e3
    ^expected = call.(data)
    milliseconds
  end

  defp call(:client, predict, weights, rows),
    do: &Nx.to_binary(predict.(Nx.reshape(Nx.from_binary(&1, :f32), {rows, rows}), weights))

  # A request is a batch of one matrix: it waits for no other one.
  defp call(:serving, predict, weights, rows) do
    serving =
      Nx.Serving.batch_size(Nx.Serving.new(fn _options -> &predict.(&1, weights) end), rows)

    name = :"transfers_#{System.unique_integer([:positive])}"
    {:ok, _pid} = Nx.Serving.start_link(serving: serving, name: name, batch_timeout: 0)

    fn data ->
      matrix = Nx.reshape(Nx.from_binary(data, :f32), {rows, rows})
      Nx.to_binary(Nx.Serving.batched_run(name, Nx.Batch.concatenate([matrix])))
    end
  end
end
