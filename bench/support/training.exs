defmodule Bench.Training do
  @moduledoc """
  What the models of the set `models` have in common: random parameters, the loss of a classifier, optimizers, and the cases
  of a forward pass and a training step.
  """

  import Bench.Measure

  @runs 15

  @doc """
  The cases of a model in f32 and bf16. `model` has functions that make `parameters`, `averages` and a `batch`;
  `forward` of these three; `loss` of these three, which gives new averages beside the loss; whether a case of bf16 has the parameter of a
  name `converted?`; and its `optimizer`.

  A case prints a number on stderr that the peers print, too: the mean of the absolute results, or the loss after a step.
  """
  def cases(name, model) do
    for {kind, measure} <- [forward: &measure_forward/3, step: &measure_step/3],
        type <- [:f32, :bf16] do
      case = "#{name}_#{kind}_#{type}"
      {case, "ms", fn -> measure.(case, model, type) end}
    end
  end

  defp measure_forward(case, model, type) do
    parameters = converted(model.parameters.(), model, type, &Nx.as_type/2)
    inputs = [parameters, model.averages.(), model.batch.()]
    compiled = compile(model.forward, inputs)
    result = apply(compiled, inputs)
    print(case, result |> Nx.as_type(:f32) |> Nx.abs() |> Nx.mean())
    1.0e3 * median(fn -> apply(compiled, inputs) end, @runs)
  end

  # Each step goes on from the one before, as in training.
  defp measure_step(case, model, type) do
    batch = model.batch.()
    step = &step(&1, &2, model, type)
    state = state(model)
    compiled = compile(step, [state, batch])
    {_loss, state} = compiled.(state, batch)
    {loss, state} = compiled.(state, batch)
    print(case, loss)
    Process.put(:state, state)

    run = fn ->
      {_loss, state} = compiled.(Process.get(:state), batch)
      Process.put(:state, state)
    end

    1.0e3 * median(run, @runs)
  end

  defp compile(fun, inputs), do: Nx.Defn.compile(fun, inputs, compiler: Nx.Vulkan.Compiler)

  defp print(case, number), do: IO.puts(:stderr, "#{case}: #{Nx.to_number(number)}")

  @doc "What a training step starts from: parameters, averages, the number of steps, and the optimizer's moments."
  def state(model) do
    parameters = model.parameters.()
    zeros = Map.new(parameters, fn {name, x} -> {name, Nx.broadcast(0.0, x)} end)
    moments = if model.optimizer == :adam, do: {zeros, zeros}, else: {zeros}
    {parameters, model.averages.(), Nx.tensor(0, type: :s32), moments}
  end

  @doc "The loss and the state after one step."
  def step({parameters, averages, count, moments}, batch, model, type) do
    loss = fn parameters ->
      model.loss.(converted(parameters, model, type, &convert/2), averages, batch)
    end

    {{loss, averages}, gradients} =
      Nx.Defn.value_and_grad(parameters, loss, fn {loss, _averages} -> loss end)

    count = Nx.add(count, 1)
    {parameters, moments} = update(model.optimizer, parameters, gradients, moments, count)
    {loss, {parameters, averages, count, moments}}
  end

  # Kingma and Ba, 2014.
  defp update(:adam, parameters, gradients, {means, squares}, count) do
    means = moved(means, gradients, 0.9, 0.1)

    squares =
      moved(
        squares,
        Map.new(gradients, fn {name, g} -> {name, Nx.multiply(g, g)} end),
        0.999,
        0.001
      )

    corrected = fn moment, rate -> Nx.divide(moment, Nx.subtract(1, Nx.pow(rate, count))) end

    parameters =
      Map.new(parameters, fn {name, x} ->
        deviation = squares[name] |> corrected.(0.999) |> Nx.sqrt() |> Nx.add(1.0e-8)
        change = means[name] |> corrected.(0.9) |> Nx.divide(deviation)
        {name, Nx.subtract(x, Nx.multiply(change, 1.0e-4))}
      end)

    {parameters, {means, squares}}
  end

  defp update(:momentum, parameters, gradients, {velocities}, _count) do
    velocities = moved(velocities, gradients, 0.9, 1.0)

    parameters =
      Map.new(parameters, fn {name, x} ->
        {name, Nx.subtract(x, Nx.multiply(velocities[name], 0.01))}
      end)

    {parameters, {velocities}}
  end

  defp moved(moments, gradients, decay, rate) do
    Map.new(moments, fn {name, moment} ->
      {name, Nx.add(Nx.multiply(moment, decay), Nx.multiply(gradients[name], rate))}
    end)
  end

  defp converted(parameters, model, type, convert) do
    Map.new(parameters, fn {name, x} ->
      {name, if(model.converted?.(name), do: convert.(x, type), else: x)}
    end)
  end

  @doc """
  A tensor of a definition in another type, whose gradient is converted back, as PyTorch's and JAX's are: that of `Nx.as_type/2`
  keeps its type, and the products that it leads to would be of f32.
  """
  def convert(%{type: type} = x, type), do: x

  def convert(%{type: from} = x, type),
    do: Nx.Defn.Kernel.custom_grad(Nx.as_type(x, type), [x], &[Nx.as_type(&1, from)])

  @doc "A map of normally distributed tensors of f32 for `{name, shape, mean, deviation}`, whose seeds are their positions."
  def parameters(specifications) do
    for {{name, shape, mean, deviation}, seed} <- Enum.with_index(specifications), into: %{} do
      {name, normal(shape, seed) |> Nx.multiply(deviation) |> Nx.add(mean)}
    end
  end

  @doc "The mean cross-entropy of logits, whose last axis is the classes, and labels."
  def cross_entropy(logits, labels) do
    logits = convert(logits, {:f, 32})
    log_softmax = Nx.subtract(logits, Nx.logsumexp(logits, axes: [-1], keep_axes: true))
    classes = Nx.iota(Nx.shape(logits), axis: -1)
    chosen = Nx.select(Nx.equal(classes, Nx.new_axis(labels, -1)), log_softmax, 0.0)
    chosen |> Nx.sum(axes: [-1]) |> Nx.mean() |> Nx.negate()
  end
end
