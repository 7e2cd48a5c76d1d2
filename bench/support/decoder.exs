defmodule Bench.Decoder do
  @moduledoc """
  A decoder as GPT-2 with random weights, whose embedding is the last layer, too: what quantized weights do to its predictions.
  """

  import Nx.Defn

  alias Nx.Vulkan.Quantization

  @doc "Logarithms of the probabilities of each next token, `{length, tokens}`."
  defn log_probabilities(params, ids, opts \\ []) do
    logits =
      params.embedding
      |> embed(ids)
      |> layers(params.layers, opts)
      |> norm()
      |> product(params.head)

    logits = Nx.as_type(logits, :f32)
    logits - Nx.logsumexp(logits, axes: [1], keep_axes: true)
  end

  deftransformp(layers(x, layers, opts),
    do: layers |> Tuple.to_list() |> Enum.reduce(x, &layer(&2, &1, opts))
  )

  defnp layer(x, layer, opts) do
    normal = norm(x)
    [q, k, v] = [product(normal, layer.q), product(normal, layer.k), product(normal, layer.v)]
    x = x + product(attention(q, k, v, opts), layer.out)
    x + product(Nx.sigmoid(product(norm(x), layer.up)), layer.down)
  end

  defnp attention(q, k, v, opts) do
    [q, k, v] = [heads(q, opts), heads(k, opts), heads(v, opts)]
    {_heads, length, width} = Nx.shape(q)
    later = Nx.less(Nx.iota({1, length, 1}), Nx.iota({1, 1, length}))
    scores = Nx.dot(q, [2], [0], k, [2], [0]) / Nx.sqrt(width)
    scores = Nx.select(Nx.broadcast(later, scores), -1.0e9, scores)
    weights = Nx.exp(scores - Nx.reduce_max(scores, axes: [2], keep_axes: true))
    weights = weights / Nx.sum(weights, axes: [2], keep_axes: true)

    Nx.dot(weights, [2], [0], v, [1], [0])
    |> Nx.transpose(axes: [1, 0, 2])
    |> Nx.reshape({length, :auto})
  end

  # As {heads, length, width of a head}.
  deftransformp heads(x, opts) do
    Nx.reshape(x, {Nx.axis_size(x, 0), opts[:heads], :auto}) |> Nx.transpose(axes: [1, 0, 2])
  end

  defnp norm(x) do
    x = x - Nx.mean(x, axes: [1], keep_axes: true)
    x * Nx.rsqrt(Nx.mean(x * x, axes: [1], keep_axes: true) + 1.0e-5)
  end

  deftransformp(product(x, %Quantization{} = weights), do: Quantization.dot(x, weights))
  deftransformp(product(x, weights), do: Nx.dot(x, weights))
  deftransformp(embed(%Quantization{} = weights, ids), do: Quantization.take(weights, ids))
  deftransformp(embed(weights, ids), do: Nx.take(weights, ids))

  @doc "Normal weights of a deviation of 1.5 by the root of the width, of the default backend."
  def parameters(layers, width, tokens) do
    seed = :counters.new(1, [])

    normal = fn shape ->
      :counters.add(seed, 1, 1)
      key = Nx.Random.key(:counters.get(seed, 1))
      {weights, _} = Nx.Random.normal(key, 0.0, 1.5 / :math.sqrt(width), shape: shape)
      weights
    end

    embedding = normal.({tokens, width})

    layer = fn ->
      Map.new([:q, :k, :v, :out], &{&1, normal.({width, width})})
      |> Map.merge(%{up: normal.({width, 4 * width}), down: normal.({4 * width, width})})
    end

    layers = for(_ <- 1..layers, do: layer.()) |> List.to_tuple()
    %{embedding: embedding, head: Nx.transpose(embedding), layers: layers}
  end

  @doc "The parameters with quantized weights."
  def quantize(params, options) do
    embedding = Quantization.quantize(params.embedding, [axis: 1] ++ options)
    %{Quantization.quantize(%{params | embedding: 0}, options) | embedding: embedding}
  end

  @doc """
  The Kullback-Leibler divergence of predictions from those expected, in nats a token: what the logarithm of the perplexity grows by.
  """
  def divergence(expected, result) do
    Nx.multiply(Nx.exp(expected), Nx.subtract(expected, result))
    |> Nx.sum(axes: [1])
    |> Nx.mean()
    |> Nx.to_number()
  end
end
