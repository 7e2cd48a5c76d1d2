# An LSTM learns a short form of the temporal order problem of Hochreiter and Schmidhuber (1997). A sequence of
# random letters contains two letters that are X or Y. After the last letter the network predicts both, in order: XX,
# XY, YX or YY. Axon trains it with Adam, forward and backward on the device.
#
#     mix run examples/axon_lstm.exs
#
# Ends with status 1 where it is wrong on more than 5 % of the test sequences.

alias Nx.Vulkan.{Fallback, VulkanoBackend}

defmodule Order do
  @letters ~w(a b c d X Y)
  @orders ~w(XX XY YX YY)
  @length 10

  def orders, do: @orders
  def letters(sequence), do: Enum.map(sequence, &Enum.at(@letters, &1))

  @doc "`n` sequences as lists of letter indices, one-hot {n, 10, 6}, and their orders, one-hot {n, 4}."
  def draw(n) do
    {sequences, orders} = Enum.unzip(for _ <- 1..n, do: sequence())
    {sequences, one_hot(sequences, 6), one_hot(orders, 4)}
  end

  # The first X or Y is in the first half of the sequence, the second in the second half.
  defp sequence do
    half = div(@length, 2)
    [first, second] = for _ <- 1..2, do: :rand.uniform(2) - 1
    [at, later] = for _ <- 1..2, do: :rand.uniform(half) - 1

    noise = for _ <- 1..@length, do: :rand.uniform(4) - 1

    sequence =
      noise |> List.replace_at(at, 4 + first) |> List.replace_at(half + later, 4 + second)

    {sequence, 2 * first + second}
  end

  defp one_hot(numbers, classes) do
    numbers = Nx.new_axis(Nx.tensor(numbers), -1)
    Nx.as_type(Nx.equal(numbers, Nx.reshape(Nx.iota({classes}), {1, classes})), :f32)
  end

  # Unrolling reduces a step to a fifth of the operations, because the gradient of a loop runs the loop many times.
  @doc "The probabilities of the four orders after each letter: {batch, 10, 4}."
  def running do
    letters = Axon.input("letters", shape: {nil, @length, 6})
    {outputs, _state} = Axon.lstm(letters, 16, unroll: :static)
    Axon.dense(outputs, 4, activation: :softmax)
  end

  @doc "The probabilities of the four orders after the last letter: {batch, 4}."
  def model, do: Axon.nx(running(), & &1[[.., -1]])
end

{train_size, test_size, batch, epochs, required} = {480, 200, 24, 4, 0.95}
{:ok, device} = Nx.Vulkan.device_info()
IO.puts("An LSTM learns the order of X and Y from #{train_size} sequences, on #{device.name}\n")

# An operation that cannot run on the device would run on the CPU unnoticed. This makes it raise.
Fallback.put_mode(:raise)
Nx.default_backend(VulkanoBackend)
Nx.Defn.default_options(compiler: Nx.Vulkan.Compiler)
:rand.seed(:exsss, 1997)
{_, letters, orders} = Order.draw(train_size)
{sequences, unseen, expected} = Order.draw(test_size)
began = System.monotonic_time(:millisecond)

trained =
  Order.model()
  |> Axon.Loop.trainer(:categorical_cross_entropy, Polaris.Optimizers.adam(learning_rate: 2.0e-2),
    seed: 1997,
    log: 5
  )
  |> Axon.Loop.metric(:accuracy)
  |> Axon.Loop.run(
    Enum.zip(Nx.to_batched(letters, batch), Nx.to_batched(orders, batch)),
    Axon.ModelState.empty(),
    epochs: epochs
  )

seconds = (System.monotonic_time(:millisecond) - began) / 1000
parameters = Nx.Defn.Composite.flatten_list([trained.data])
true = Enum.all?(parameters, &is_struct(&1.data, VulkanoBackend))

running = Axon.predict(Order.running(), trained, unseen)
predicted = Nx.argmax(running[[.., -1]], axis: 1)
accuracy = Nx.to_number(Nx.mean(Nx.equal(predicted, Nx.argmax(expected, axis: 1))))

IO.puts("\nThe probabilities that it gives to test sequences, in per cent, letter by letter:")

for {sequence, i} <- Enum.with_index(Enum.take(sequences, 3)) do
  IO.puts("\n      " <> Enum.map_join(Order.letters(sequence), &String.pad_leading(&1, 5)))

  for {order, k} <- Enum.with_index(Order.orders()) do
    percent = running[[i, .., k]] |> Nx.multiply(100) |> Nx.round() |> Nx.as_type(:s32)
    cells = Enum.map_join(Nx.to_flat_list(percent), &String.pad_leading("#{&1}", 5))
    answer = if Nx.to_number(predicted[i]) == k, do: "  <- prediction", else: ""
    IO.puts("  #{order}  #{cells}#{answer}")
  end
end

:io.format("~naccuracy ~.1f % of ~b, trained in ~.1f s~n", [100 * accuracy, test_size, seconds])

if accuracy < required do
  IO.puts("The accuracy is below #{round(100 * required)} %, which is a defect.")
  System.halt(1)
end
