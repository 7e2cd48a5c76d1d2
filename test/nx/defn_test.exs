defmodule Nx.Vulkan.DefnTest do
  @moduledoc "Numerical definitions evaluated on the device, against `Nx.BinaryBackend`."

  use Nx.Vulkan.Test.Case, async: true

  import Nx.Defn

  defn loss({w1, b1, w2}, x, y) do
    hidden = Nx.tanh(Nx.dot(x, w1) + b1)
    Nx.mean((Nx.sigmoid(Nx.dot(hidden, w2)) - y) ** 2)
  end

  defn step({w1, b1, w2} = params, x, y) do
    {loss, {g1, gb, g2}} = value_and_grad(params, &loss(&1, x, y))
    {loss, {w1 - 0.5 * g1, b1 - 0.5 * gb, w2 - 0.5 * g2}}
  end

  defn factorial(n) do
    {_, result} = while({n, acc = Nx.as_type(n, :s64) * 0 + 1}, n > 1, do: {n - 1, acc * n})
    result
  end

  defn classify(x) do
    cond do
      Nx.all(x > 0) -> Nx.sum(x)
      Nx.any(x > 0) -> Nx.reduce_max(x)
      true -> Nx.product(x)
    end
  end

  test "training follows BinaryBackend step by step" do
    params =
      {Generators.tensor({4, 8}, {:f, 32}, {:float, -1.0, 1.0}),
       Generators.tensor({8}, {:f, 32}, {:float, -1.0, 1.0}),
       Generators.tensor({8, 1}, {:f, 32}, {:float, -1.0, 1.0})}

    x = Generators.tensor({16, 4}, {:f, 32}, {:float, -1.0, 1.0})
    y = Nx.greater(Nx.sum(x, axes: [1], keep_axes: true), 0)
    device = Nx.backend_copy({params, x, y}, VulkanoBackend)

    losses = fn {params, x, y} ->
      {losses, _} =
        Enum.map_reduce(1..20, params, fn _, params ->
          {loss, params} = step(params, x, y)
          {Nx.to_number(loss), params}
        end)

      losses
    end

    expected = losses.({params, x, y})
    assert List.last(expected) < hd(expected)

    for [got, want] <- zip_all([losses.(device), expected]),
        do: assert_in_delta(got, want, 1.0e-5)
  end

  test "loops and conditions read the device" do
    assert Nx.to_number(factorial(to_device(Nx.tensor(15)))) == Enum.product(1..15)

    for list <- [[1.0, 2.0], [-1.0, 2.0], [-1.0, -2.0]] do
      tensor = Nx.tensor(list)
      assert_same(classify(to_device(tensor)), classify(tensor), :classify)
    end
  end

  test "random numbers are the same bits" do
    for {fun, type} <- [
          {&Nx.Random.uniform(&1, shape: {5, 3}, type: :f32), :f32},
          {&Nx.Random.randint(&1, -100, 100, shape: {20}, type: :s32), :s32},
          {&Nx.Random.randint(&1, 0, 200, shape: {20}, type: :u8), :u8}
        ] do
      {expected, key} = fun.(Nx.Random.key(42))
      Nx.default_backend(VulkanoBackend)
      {result, device_key} = fun.(Nx.Random.key(42))
      Nx.default_backend(Nx.BinaryBackend)
      assert_same(result, expected, :random, type: type)
      assert_same(device_key, key, :key)
    end
  end
end
