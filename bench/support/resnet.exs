defmodule Bench.ResNet do
  @moduledoc """
  ResNet-50 (He et al., 2015) with the stride in the 3 × 3 convolution of a bottleneck, and channels last, as Axon and Bumblebee have
  it. `bench/peers.py` has the same model.

  A forward pass normalizes by the running averages. A training step normalizes by the batch, updates the running averages, and
  all parameters by gradient descent with momentum. The cases of bf16 have parameters of bf16 in a forward pass; a training step keeps them in
  f32 and converts them. Batch norms, with their parameters, and the loss are of f32.
  """

  alias Bench.Training

  @doc "ResNet-50 on a GPU; one with a bottleneck a stage that a CPU measures in seconds."
  def sizes(:gpu), do: %{batch: 32, image: 224, width: 64, stages: [3, 4, 6, 3], classes: 1000}
  def sizes(:cpu), do: %{batch: 2, image: 64, width: 16, stages: [1, 1, 1, 1], classes: 10}

  def all(device), do: Training.cases("resnet50", model(sizes(device)))

  @doc "The model of these sizes, as `Bench.Training` takes it."
  def model(sizes) do
    %{
      parameters: fn -> parameters(sizes) end,
      averages: fn -> averages(sizes) end,
      batch: fn -> batch(sizes) end,
      forward: &forward(&1, &2, &3, sizes),
      loss: &loss(&1, &2, &3, sizes),
      converted?: &(not String.ends_with?(&1, [".gain", ".shift"])),
      optimizer: :momentum
    }
  end

  # Each convolution: its name, size, stride, and channels in and out. A batch norm follows it.
  defp convolutions(%{width: width} = sizes) do
    stem = {"stem", 7, 2, 3, width}

    {bottlenecks, _} =
      for {count, stage} <- Enum.with_index(sizes.stages), n <- 1..count, reduce: {[], width} do
        {before, from} ->
          inner = width * 2 ** stage
          {before ++ bottleneck("#{stage + 1}.#{n}.", n == 1, stage, from, inner), 4 * inner}
      end

    [stem | bottlenecks]
  end

  defp bottleneck(name, first?, stage, from, inner) do
    stride = if first? and stage > 0, do: 2, else: 1

    [
      {name <> "reduce", 1, 1, from, inner},
      {name <> "middle", 3, stride, inner, inner},
      {name <> "expand", 1, 1, inner, 4 * inner}
    ] ++ if(first?, do: [{name <> "shortcut", 1, stride, from, 4 * inner}], else: [])
  end

  @doc "The parameters by name, in f32."
  def parameters(sizes) do
    features = 4 * sizes.width * 2 ** (length(sizes.stages) - 1)

    Training.parameters(
      Enum.flat_map(convolutions(sizes), fn {name, size, _, from, to} ->
        [
          {name, {size, size, from, to}, 0, :math.sqrt(2 / (size * size * from))},
          {name <> ".gain", {to}, 1, 0.05},
          {name <> ".shift", {to}, 0, 0.02}
        ]
      end) ++
        [
          {"classes", {features, sizes.classes}, 0, :math.pow(features, -0.5)},
          {"classes.bias", {sizes.classes}, 0, 0.02}
        ]
    )
  end

  @doc "The running averages of the batch norms, by name."
  def averages(sizes) do
    for {name, _, _, _, to} <- convolutions(sizes), into: %{} do
      {name, {Nx.broadcast(0.0, {to}), Nx.broadcast(1.0, {to})}}
    end
  end

  @doc "Images and their classes."
  def batch(%{batch: batch, image: image, classes: classes}) do
    %{
      images: Bench.Measure.normal({batch, image, image, 3}, 1000),
      labels: Nx.iota({batch}) |> Nx.multiply(7919) |> Nx.remainder(classes)
    }
  end

  @doc "The logits, normalized by the running averages."
  def forward(parameters, averages, batch, sizes) do
    {logits, _} =
      network(parameters, batch.images, sizes, fn x, name, seen ->
        {mean, variance} = averages[name]
        {normalized(x, mean, variance, parameters, name), seen}
      end)

    logits
  end

  @doc "The mean cross-entropy, and the running averages after it."
  def loss(parameters, averages, batch, sizes) do
    {logits, averages} =
      network(parameters, batch.images, sizes, fn x, name, seen ->
        wide = Training.convert(x, {:f, 32})
        mean = Nx.mean(wide, axes: [0, 1, 2])
        variance = Nx.variance(wide, axes: [0, 1, 2])
        averages = Map.put(seen, name, moved(averages[name], mean, variance))
        {normalized(x, mean, variance, parameters, name), averages}
      end)

    {Training.cross_entropy(logits, batch.labels), averages}
  end

  defp moved({mean, variance}, batch_mean, batch_variance) do
    move = fn old, new -> Nx.add(Nx.multiply(old, 0.9), Nx.multiply(new, 0.1)) end
    {move.(mean, batch_mean), move.(variance, batch_variance)}
  end

  # `norm` normalizes the result of the convolution with that name, and has what the norms before it have seen.
  defp network(parameters, images, sizes, norm) do
    x = Nx.as_type(images, Nx.type(parameters["stem"]))
    convolution = &convolution(&1, parameters[&2], &3)
    unit = fn {x, seen}, name, stride -> norm.(convolution.(x, name, stride), name, seen) end

    {x, seen} = unit.({x, %{}}, "stem", 2)
    start = {x |> relu() |> max_pool(), seen}

    {x, seen} =
      for {count, stage} <- Enum.with_index(sizes.stages), n <- 1..count, reduce: start do
        {x, seen} ->
          name = "#{stage + 1}.#{n}."
          stride = if n == 1 and stage > 0, do: 2, else: 1
          {y, seen} = unit.({x, seen}, name <> "reduce", 1)
          {y, seen} = unit.({relu(y), seen}, name <> "middle", stride)
          {y, seen} = unit.({relu(y), seen}, name <> "expand", 1)
          {x, seen} = if n == 1, do: unit.({x, seen}, name <> "shortcut", stride), else: {x, seen}
          {relu(Nx.add(y, x)), seen}
      end

    logits = x |> Nx.mean(axes: [1, 2]) |> Nx.dot(parameters["classes"])
    {Nx.add(logits, parameters["classes.bias"]), seen}
  end

  defp convolution(x, kernel, stride) do
    padding = div(Nx.axis_size(kernel, 0), 2)

    Nx.conv(x, kernel,
      strides: stride,
      padding: [{padding, padding}, {padding, padding}],
      input_permutation: [0, 3, 1, 2],
      kernel_permutation: [3, 2, 0, 1],
      output_permutation: [0, 3, 1, 2]
    )
  end

  defp normalized(x, mean, variance, parameters, name) do
    Training.convert(x, {:f, 32})
    |> Nx.subtract(mean)
    |> Nx.multiply(Nx.rsqrt(Nx.add(variance, 1.0e-5)))
    |> Nx.multiply(parameters[name <> ".gain"])
    |> Nx.add(parameters[name <> ".shift"])
    |> Training.convert(Nx.type(x))
  end

  defp relu(x), do: Nx.max(x, 0)

  defp max_pool(x) do
    Nx.window_max(x, {1, 3, 3, 1},
      strides: [1, 2, 2, 1],
      padding: [{0, 0}, {1, 1}, {1, 1}, {0, 0}]
    )
  end
end
