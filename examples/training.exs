# A small network learns to classify points of two interleaved half-moons. Nx.Defn.value_and_grad computes its
# gradients; every tensor is on the device. The same steps then run from the same initial parameters on
# Nx.BinaryBackend, and the two loss curves are compared step by step.

defmodule Moons do
  import Nx.Defn

  # Points {n, 2} and their classes, one-hot {n, 2}.
  def data(n) do
    half = div(n, 2)
    angle = Nx.linspace(0, :math.pi(), n: half)
    upper = Nx.stack([Nx.cos(angle), Nx.sin(angle)], axis: 1)
    lower = Nx.stack([Nx.subtract(1, Nx.cos(angle)), Nx.subtract(0.5, Nx.sin(angle))], axis: 1)
    {noise, _key} = Nx.Random.normal(Nx.Random.key(1), 0, 0.1, shape: {2 * half, 2})

    class = Nx.concatenate([Nx.broadcast(0, {half}), Nx.broadcast(1, {half})])
    one_hot = Nx.equal(Nx.new_axis(class, 1), Nx.iota({1, 2}))
    {Nx.add(Nx.concatenate([upper, lower]), noise), Nx.as_type(one_hot, :f32)}
  end

  # The weights of each layer are normal with variance 2 / (inputs + outputs) (Glorot and Bengio, 2010).
  def parameters(sizes) do
    {layers, _key} =
      sizes
      |> Enum.zip(tl(sizes))
      |> Enum.map_reduce(Nx.Random.key(2), fn {inputs, outputs}, key ->
        {w, key} =
          Nx.Random.normal(key, 0, :math.sqrt(2 / (inputs + outputs)), shape: {inputs, outputs})

        {{w, Nx.broadcast(0.0, {outputs})}, key}
      end)

    List.to_tuple(layers)
  end

  defn logits({{w1, b1}, {w2, b2}, {w3, b3}}, x) do
    hidden = Nx.tanh(Nx.dot(x, w1) + b1)
    hidden = Nx.tanh(Nx.dot(hidden, w2) + b2)
    Nx.dot(hidden, w3) + b3
  end

  # Mean cross-entropy.
  defn loss(parameters, x, y) do
    logits = logits(parameters, x)
    Nx.mean(Nx.logsumexp(logits, axes: [1]) - Nx.sum(logits * y, axes: [1]))
  end

  # One step of gradient descent with momentum on the whole set.
  defn step(parameters, velocity, x, y) do
    {loss, gradient} = value_and_grad(parameters, &loss(&1, x, y))
    velocity = zip_with(velocity, gradient, fn v, g -> 0.9 * v + g end)
    {loss, zip_with(parameters, velocity, fn p, v -> p - 0.1 * v end), velocity}
  end

  deftransformp zip_with(left, right, fun) do
    {zipped, []} =
      Nx.Defn.Composite.traverse(left, Nx.Defn.Composite.flatten_list([right]), fn l,
                                                                                   [r | rest] ->
        {fun.(l, r), rest}
      end)

    zipped
  end

  defn accuracy(parameters, x, y) do
    Nx.mean(Nx.equal(Nx.argmax(logits(parameters, x), axis: 1), Nx.argmax(y, axis: 1)))
  end

  @doc "Trains on `backend` and returns the loss before each step, the accuracy and the seconds."
  def train(backend, parameters, {x, y}, steps) do
    Nx.with_default_backend(backend, fn ->
      [x, y] = Enum.map([x, y], &Nx.backend_copy(&1, backend))
      start = Nx.backend_copy(parameters, backend)
      velocity = zip_with(start, start, fn p, _ -> Nx.broadcast(0.0, p) end)
      began = System.monotonic_time(:millisecond)

      {losses, {trained, _velocity}} =
        Enum.map_reduce(1..steps, {start, velocity}, fn _, {parameters, velocity} ->
          {loss, parameters, velocity} = step(parameters, velocity, x, y)
          {Nx.to_number(loss), {parameters, velocity}}
        end)

      seconds = (System.monotonic_time(:millisecond) - began) / 1000
      {losses, Nx.to_number(accuracy(trained, x, y)), seconds}
    end)
  end
end

alias Nx.Vulkan.{Fallback, VulkanoBackend}

steps = 100
{:ok, device} = Nx.Vulkan.device_info()
IO.puts("Two half-moons, 160 points; layers 2-16-16-2; #{steps} steps on #{device.name}")

Nx.default_backend(Nx.BinaryBackend)
data = Moons.data(160)
parameters = Moons.parameters([2, 16, 16, 2])

# An operation that cannot run on the device would run on the CPU unnoticed. This makes it raise.
Fallback.put_mode(:raise)
{on_device, accuracy, seconds} = Moons.train(VulkanoBackend, parameters, data, steps)
{on_cpu, cpu_accuracy, cpu_seconds} = Moons.train(Nx.BinaryBackend, parameters, data, steps)

IO.puts("\n step  loss, device     loss, CPU   difference")
compared = Enum.zip([1..steps, on_device, on_cpu])

for {step, loss, reference} <- compared, step == 1 or rem(step, 5) == 0 do
  bar = String.duplicate("#", round(60 * loss / hd(on_device)))
  :io.format("~5b ~13.6f ~13.6f ~12.2e  ~s~n", [step, loss, reference, loss - reference, bar])
end

:io.format("~naccuracy ~.3f on the device, ~.3f on the CPU~n", [accuracy, cpu_accuracy])
:io.format("~.2f s on the device, ~.2f s on Nx.BinaryBackend~n", [seconds, cpu_seconds])

# Both round to f32 at each operation but sum in different orders, and training accumulates the differences.
{step, worst} =
  compared
  |> Enum.map(fn {step, loss, reference} -> {step, abs(loss - reference) / reference} end)
  |> Enum.max_by(&elem(&1, 1))

:io.format("largest relative difference of the losses: ~.2e at step ~b~n", [worst, step])

if worst > 1.0e-4 or List.last(on_device) > 0.1 * hd(on_device) do
  IO.puts("The curves differ or the loss did not fall, which is a defect.")
  System.halt(1)
end
