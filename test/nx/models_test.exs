defmodule Nx.Vulkan.ModelsTest do
  @moduledoc """
  The models of the benchmarks, small: a forward pass and a training step, compiled, give the numbers of `Nx.BinaryBackend` in f64.
  """

  use Nx.Vulkan.Test.Case, async: true

  for file <- ~w(measure training bert resnet),
      do: Code.require_file("../../bench/support/#{file}.exs", __DIR__)

  alias Bench.{Bert, ResNet, Training}

  # Of the largest number of a tensor. Gradients go through normalizations of a few elements.
  @error 512 * 2.0 ** -23

  test "BERT" do
    check(
      Bert.model(%{batch: 2, tokens: 6, layers: 2, width: 8, heads: 2, vocabulary: 11}),
      "1.query"
    )
  end

  test "ResNet" do
    check(
      ResNet.model(%{batch: 2, image: 32, width: 2, stages: [1, 1], classes: 3}),
      "1.1.middle"
    )
  end

  defp check(model, parameter) do
    start = Nx.with_default_backend(Nx.BinaryBackend, fn -> Training.state(model) end)
    batch = Nx.with_default_backend(Nx.BinaryBackend, fn -> model.batch.() end)
    {parameters, averages, _count, _moments} = start

    assert_close(fn _type -> model.forward end, [parameters, averages, batch])

    step = fn type -> &without_undefined(Training.step(&1, &2, model, type)) end
    {_loss, {_, _, _, moments}} = assert_close(step, [start, batch])
    # A gradient of zero would compare equal, too.
    assert moments |> elem(0) |> Map.fetch!(parameter) |> Nx.abs() |> Nx.sum() |> Nx.to_number() >
             0
  end

  # A bias of keys changes no softmax: its gradient is rounding errors, which Adam divides by each other.
  defp without_undefined({loss, {parameters, averages, count, moments}}) do
    defined = &Map.reject(&1, fn {name, _} -> String.ends_with?(name, "key.bias") end)
    moments = moments |> Tuple.to_list() |> Enum.map(defined) |> List.to_tuple()
    {loss, {defined.(parameters), averages, count, moments}}
  end

  # `fun` gives the function that computes in a type.
  defp assert_close(fun, inputs) do
    compiled = Nx.Vulkan.jit(fun.({:f, 32}))
    # Evaluated, captured and replayed.
    for _ <- 1..2, do: apply(compiled, inputs)
    result = apply(compiled, inputs)
    exact = apply(Nx.Defn.jit(fun.({:f, 64}), compiler: Nx.Defn.Evaluator), wide(inputs))

    [found, wanted] =
      for container <- [result, exact], do: Nx.Defn.Composite.flatten_list([container])

    for {found, wanted} <- Enum.zip(found, wanted) do
      scale = wanted |> Nx.abs() |> Nx.reduce_max() |> Nx.broadcast(wanted)
      assert_bound(Nx.as_type(found, :f64), wanted, scale, @error, found.shape)
    end

    result
  end

  defp wide(inputs) do
    Nx.Defn.Composite.traverse(List.to_tuple(inputs), fn tensor ->
      if Nx.Type.float?(tensor.type), do: Nx.as_type(tensor, :f64), else: tensor
    end)
    |> Tuple.to_list()
  end
end
