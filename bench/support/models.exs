defmodule Bench.Models do
  @moduledoc "The numerical definitions among the cases, written as a user of Nx writes them."

  import Nx.Defn

  @doc "Eight operations on three tensors of one shape."
  def chain(a, b, c) do
    Nx.multiply(a, b)
    |> Nx.add(c)
    |> Nx.sigmoid()
    |> Nx.multiply(Nx.tanh(a))
    |> Nx.subtract(Nx.exp(Nx.multiply(Nx.negate(b), b)))
  end

  defn one_hot(labels, opts \\ []) do
    Nx.as_type(Nx.equal(Nx.new_axis(labels, 1), Nx.iota({1, opts[:classes]})), :f32)
  end

  defn loss({{w1, b1}, {w2, b2}, {w3, b3}}, x, y) do
    hidden = Nx.max(Nx.dot(x, w1) + b1, 0)
    hidden = Nx.max(Nx.dot(hidden, w2) + b2, 0)
    logits = Nx.dot(hidden, w3) + b3
    log_softmax = logits - Nx.logsumexp(logits, axes: [1], keep_axes: true)
    -Nx.mean(Nx.sum(y * log_softmax, axes: [1]))
  end

  defn step(parameters, x, y) do
    {{dw1, db1}, {dw2, db2}, {dw3, db3}} = grad(parameters, &loss(&1, x, y))
    {{w1, b1}, {w2, b2}, {w3, b3}} = parameters

    {{w1 - 0.01 * dw1, b1 - 0.01 * db1}, {w2 - 0.01 * dw2, b2 - 0.01 * db2},
     {w3 - 0.01 * dw3, b3 - 0.01 * db3}}
  end

  @doc "The centres after one iteration: points {n, d}, centres {k, d}."
  defn kmeans(points, centres) do
    distance =
      Nx.sum(points * points, axes: [1], keep_axes: true) -
        2 * Nx.dot(points, [1], centres, [1]) + Nx.sum(centres * centres, axes: [1])

    nearest = one_hot(Nx.argmin(distance, axis: 1), classes: Nx.axis_size(centres, 0))
    Nx.dot(nearest, [0], points, [0]) / Nx.max(Nx.new_axis(Nx.sum(nearest, axes: [0]), 1), 1)
  end
end
