defmodule Bench.Bert do
  @moduledoc """
  BERT (Devlin et al., 2018) as Bumblebee and the `transformers` of Python have it: three products for queries, keys and values,
  norms after the residuals, GELU by erf, a mask of padded tokens, and no dropout. `bench/peers.py` has the same model.

  A forward pass gives the hidden states of the last layer. A training step predicts a token at each position, with the
  embeddings as the output's matrix, and updates all parameters by Adam. The cases of bf16 have parameters of bf16 in a forward pass;
  a training step keeps them in f32 and converts them. Norms, softmax and the loss are of f32.
  """

  alias Bench.Training

  @doc "BERT-base on a GPU; a small one that a CPU measures in seconds."
  def sizes(:gpu),
    do: %{batch: 8, tokens: 128, layers: 12, width: 768, heads: 12, vocabulary: 30_522}

  def sizes(:cpu),
    do: %{batch: 2, tokens: 32, layers: 2, width: 128, heads: 2, vocabulary: 1000}

  def all(device), do: Training.cases("bert_base", model(sizes(device)))

  @doc "The model of these sizes, as `Bench.Training` takes it."
  def model(sizes) do
    %{
      parameters: fn -> parameters(sizes) end,
      averages: fn -> {} end,
      batch: fn -> batch(sizes) end,
      forward: fn parameters, {}, batch -> forward(parameters, batch, sizes) end,
      loss: fn parameters, {}, batch -> {loss(parameters, batch, sizes), {}} end,
      converted?: fn _name -> true end,
      optimizer: :adam
    }
  end

  @doc "The parameters by name, in f32."
  def parameters(%{width: width} = sizes) do
    Training.parameters(
      [
        {"word", {sizes.vocabulary, width}, 0, 0.05},
        {"position", {512, width}, 0, 0.05},
        {"type", {2, width}, 0, 0.05}
      ] ++
        norm("embedding", width) ++
        Enum.flat_map(1..sizes.layers, fn n ->
          dense("#{n}.query", width, width) ++
            dense("#{n}.key", width, width) ++
            dense("#{n}.value", width, width) ++
            dense("#{n}.attention", width, width) ++
            norm("#{n}.attention", width) ++
            dense("#{n}.intermediate", width, 4 * width) ++
            dense("#{n}.output", 4 * width, width) ++ norm("#{n}.output", width)
        end) ++
        dense("transform", width, width) ++
        norm("transform", width) ++ [{"vocabulary.bias", {sizes.vocabulary}, 0, 0.02}]
    )
  end

  defp dense(name, from, to),
    do: [{name, {from, to}, 0, :math.pow(from, -0.5)}, {name <> ".bias", {to}, 0, 0.02}]

  defp norm(name, width),
    do: [{name <> ".gain", {width}, 1, 0.05}, {name <> ".shift", {width}, 0, 0.02}]

  @doc "Tokens, their labels, and a mask without the last four tokens of every other sequence."
  def batch(%{batch: batch, tokens: tokens, vocabulary: vocabulary}) do
    numbers = Nx.iota({batch, tokens})

    padded =
      Nx.logical_and(
        Nx.iota({batch, tokens}, axis: 1) |> Nx.greater_equal(tokens - 4),
        odd(batch)
      )

    %{
      tokens: numbers |> Nx.multiply(7919) |> Nx.add(13) |> Nx.remainder(vocabulary),
      labels: numbers |> Nx.multiply(104_729) |> Nx.add(7) |> Nx.remainder(vocabulary),
      mask: Nx.logical_not(padded)
    }
  end

  defp odd(batch), do: Nx.iota({batch, 1}) |> Nx.remainder(2)

  @doc "The hidden states of the last layer."
  def forward(parameters, batch, sizes) do
    {_, tokens} = Nx.shape(batch.tokens)

    embeddings =
      Nx.take(parameters["word"], batch.tokens)
      |> Nx.add(parameters["position"][[0..(tokens - 1)]])
      |> Nx.add(parameters["type"][0])
      |> layer_norm(parameters, "embedding")

    Enum.reduce(1..sizes.layers, embeddings, &layer(&2, batch.mask, parameters, "#{&1}.", sizes))
  end

  @doc "The mean negative log-likelihood of the labels."
  def loss(parameters, batch, sizes) do
    hidden =
      forward(parameters, batch, sizes)
      |> linear(parameters, "transform")
      |> gelu()
      |> layer_norm(parameters, "transform")

    Nx.dot(hidden, [2], parameters["word"], [1])
    |> Nx.add(parameters["vocabulary.bias"])
    |> Training.cross_entropy(batch.labels)
  end

  defp layer(x, mask, parameters, prefix, sizes) do
    [query, key, value] =
      for name <- ~w(query key value), do: x |> linear(parameters, prefix <> name) |> heads(sizes)

    x =
      attention(query, key, value, mask)
      |> Nx.reshape(x)
      |> linear(parameters, prefix <> "attention")
      |> Nx.add(x)
      |> layer_norm(parameters, prefix <> "attention")

    x
    |> linear(parameters, prefix <> "intermediate")
    |> gelu()
    |> linear(parameters, prefix <> "output")
    |> Nx.add(x)
    |> layer_norm(parameters, prefix <> "output")
  end

  defp heads(x, %{heads: heads}) do
    {batch, tokens, width} = Nx.shape(x)
    x |> Nx.reshape({batch, tokens, heads, div(width, heads)}) |> Nx.transpose(axes: [0, 2, 1, 3])
  end

  # Operands are {batch, heads, tokens, width of a head}, the result {batch, tokens, heads, width of a head}.
  defp attention(query, key, value, mask) do
    scale = Nx.tensor(:math.pow(Nx.axis_size(query, 3), -0.5), type: Nx.type(query))
    scores = Nx.dot(Nx.multiply(query, scale), [3], [0, 1], key, [3], [0, 1])
    seen = mask |> Nx.new_axis(1) |> Nx.new_axis(1) |> Nx.broadcast(scores)
    scores = Nx.select(seen, Training.convert(scores, {:f, 32}), -1.0e30)

    powers = Nx.exp(Nx.subtract(scores, Nx.reduce_max(scores, axes: [-1], keep_axes: true)))

    powers
    |> Nx.divide(Nx.sum(powers, axes: [-1], keep_axes: true))
    |> Training.convert(Nx.type(value))
    |> Nx.dot([3], [0, 1], value, [2], [0, 1])
    |> Nx.transpose(axes: [0, 2, 1, 3])
  end

  defp linear(x, parameters, name),
    do: Nx.dot(x, parameters[name]) |> Nx.add(parameters[name <> ".bias"])

  defp layer_norm(x, parameters, name) do
    wide = Training.convert(x, {:f, 32})
    centred = Nx.subtract(wide, Nx.mean(wide, axes: [-1], keep_axes: true))
    variance = Nx.mean(Nx.multiply(centred, centred), axes: [-1], keep_axes: true)

    centred
    |> Nx.multiply(Nx.rsqrt(Nx.add(variance, 1.0e-12)))
    |> Nx.multiply(parameters[name <> ".gain"])
    |> Nx.add(parameters[name <> ".shift"])
    |> Training.convert(Nx.type(x))
  end

  defp gelu(x) do
    distribution = Nx.divide(Nx.add(Nx.erf(Nx.multiply(x, :math.sqrt(0.5))), 1), 2)
    Nx.multiply(x, distribution)
  end
end
