# Axon's training loop on the device: a network of two layers learns the heights of a cliff by gradient descent. The
# same loop then runs from the same initial parameters on Nx.BinaryBackend. Loss and gradients are compared at every
# step.
#
#     mix run examples/axon_training_loop.exs
#
# Ends with status 1 where a loss or an element of a gradient differs by more than 2e-6, or where the loss does not
# fall to a twentieth.

alias Nx.Vulkan.{Fallback, VulkanoBackend}

defmodule Cliff do
  @doc "The points (x, y) of a grid over the square from -2 to 2, {side * side, 2}, and their heights."
  def map(side) do
    axis = Nx.linspace(-2, 2, n: side)
    [x, y] = for axes <- [[1], [0]], do: Nx.broadcast(axis, {side, side}, axes: axes)
    heights = Nx.sigmoid(Nx.multiply(3, Nx.add(x, Nx.divide(y, 2))))

    {Nx.reshape(Nx.stack([x, y], axis: 2), {side * side, 2}),
     Nx.reshape(heights, {side * side, 1})}
  end

  def model do
    Axon.input("points", shape: {nil, 2})
    |> Axon.dense(16)
    |> Axon.sigmoid()
    |> Axon.dense(1)
  end

  @doc "Trains on `backend` and returns the loss and gradients of each step, the model state, and the seconds."
  def train(backend, start, map, steps) do
    Nx.with_default_backend(backend, fn ->
      map = Nx.backend_copy(map, backend)
      descent = keep_gradients(Polaris.Optimizers.sgd(learning_rate: 0.1))
      began = System.monotonic_time(:millisecond)

      final =
        model()
        |> Axon.Loop.trainer(:mean_squared_error, descent, log: 10)
        |> Axon.Loop.handle_event(:iteration_completed, &record/1)
        |> Map.put(:output_transform, & &1)
        |> Axon.Loop.run(Stream.repeatedly(fn -> map end), Nx.backend_copy(start, backend),
          iterations: steps
        )

      seconds = (System.monotonic_time(:millisecond) - began) / 1000
      {Enum.reverse(final.handler_metadata.steps), final.step_state.model_state, seconds}
    end)
  end

  # An optimizer that keeps the gradients of the last step in its state, where a handler can read them.
  defp keep_gradients({init, update}) do
    {fn parameters -> %{own: init.(parameters), gradients: parameters} end,
     fn gradients, state, parameters ->
       {updates, own} = update.(gradients, state.own, parameters)
       {updates, %{own: own, gradients: gradients}}
     end}
  end

  defp record(%{step_state: %{y_true: heights, y_pred: predicted} = step_state} = state) do
    loss = Axon.Losses.mean_squared_error(heights, predicted, reduction: :mean)
    gradients = Nx.Defn.Composite.flatten_list([step_state.optimizer_state.gradients])
    step = {Nx.to_number(loss), Enum.flat_map(gradients, &Nx.to_flat_list/1)}
    {:continue, update_in(state.handler_metadata[:steps], &[step | &1 || []])}
  end

  @doc "The heights as lines of text."
  def draw(heights, side) do
    shades = String.graphemes(" .:-=+*#%@")
    shade = fn height -> Enum.at(shades, (height * 10) |> floor() |> max(0) |> min(9)) end

    heights
    |> Nx.to_flat_list()
    |> Enum.chunk_every(side)
    |> Enum.map(fn row -> Enum.map_join(row, &String.duplicate(shade.(&1), 2)) end)
  end
end

{side, steps, tolerance} = {11, 100, 2.0e-6}
{:ok, device} = Nx.Vulkan.device_info()

IO.puts("A cliff of #{side * side} points; layers 2-16-1; #{steps} steps on #{device.name}\n")

Nx.default_backend(Nx.BinaryBackend)
map = {points, heights} = Cliff.map(side)
{init, predict} = Axon.build(Cliff.model(), seed: 1)
start = init.(points, Axon.ModelState.empty())

# An operation that cannot run on the device would run on the CPU unnoticed. This makes it raise.
Fallback.put_mode(:raise)
{on_device, trained, seconds} = Cliff.train(VulkanoBackend, start, map, steps)
IO.puts("\nThe same on Nx.BinaryBackend:")
{on_cpu, _trained, cpu_seconds} = Cliff.train(Nx.BinaryBackend, start, map, steps)

parameters = Nx.Defn.Composite.flatten_list([trained.data])
true = Enum.all?(parameters, &is_struct(&1.data, VulkanoBackend))

IO.puts("\n\n      the cliff               before training         after training\n")

[heights, predict.(start, points), predict.(trained, points)]
|> Enum.map(&Cliff.draw(&1, side))
|> Enum.zip_with(&IO.puts("  " <> Enum.join(&1, "  ")))

differences =
  for {{loss, gradients}, {cpu_loss, cpu_gradients}} <- Enum.zip(on_device, on_cpu) do
    {loss, abs(loss - cpu_loss), Enum.max(Enum.zip_with(gradients, cpu_gradients, &abs(&1 - &2)))}
  end

{first, _, _} = hd(differences)
{last, _, _} = List.last(differences)
IO.puts("\n                   difference from BinaryBackend")
IO.puts(" step       loss      in loss in gradients")

for {{loss, of_loss, of_gradients}, step} <- Enum.with_index(differences, 1),
    step == 1 or rem(step, 10) == 0 do
  bar = String.duplicate("#", round(40 * loss / first))
  :io.format("~5b ~10.6f ~12.2e ~12.2e  ~s~n", [step, loss, of_loss, of_gradients, bar])
end

worst = differences |> Enum.map(fn {_, a, b} -> max(a, b) end) |> Enum.max()

:io.format("~nlargest difference: ~.2e; the loss fell to 1/~b~n", [
  worst,
  floor(first / last)
])

:io.format("~.2f s on the device, ~.2f s on Nx.BinaryBackend~n", [seconds, cpu_seconds])

if worst > tolerance or last > first / 20 do
  IO.puts(
    "A difference above #{tolerance}, or a loss above a twentieth of the first, is a defect."
  )

  System.halt(1)
end
