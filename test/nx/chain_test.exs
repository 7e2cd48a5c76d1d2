defmodule Nx.Vulkan.ChainTest do
  @moduledoc "Chains of leapfrog steps against the integrator on `Nx.BinaryBackend`."

  use Nx.Vulkan.Test.Case, async: true

  alias Nx.Vulkan.Chain
  alias Nx.Vulkan.Chain.Lowering
  alias Nx.Vulkan.Test.ChainModels

  @steps 2
  @step_size 0.01

  # The states after each step, with gradients by Nx on BinaryBackend.
  defp reference(logp, template, data, q, p, step_size, inverse_mass, steps) do
    evaluate =
      Nx.Defn.jit(
        fn vector, data ->
          {value, gradient} =
            Nx.Defn.value_and_grad(Lowering.parts(vector, template), &logp.(&1, data))

          {value, Lowering.flat(gradient, {:f, 64})}
        end,
        compiler: Nx.Defn.Evaluator
      )

    # A number would be rounded to f32.
    {step_size, kick} = {Nx.f64(step_size), Nx.f64(step_size / 2)}
    {_value, gradient} = evaluate.(q, data)

    {states, _} =
      Enum.map_reduce(1..steps, {q, p, gradient}, fn _step, {q, p, gradient} ->
        p = Nx.add(p, Nx.multiply(kick, gradient))
        q = Nx.add(q, Nx.multiply(step_size, Nx.multiply(inverse_mass, p)))
        {value, gradient} = evaluate.(q, data)
        p = Nx.add(p, Nx.multiply(kick, gradient))
        {{q, p, gradient, value}, {q, p, gradient}}
      end)

    for {key, index} <- [q: 0, p: 1, grad: 2, logp: 3], into: %{} do
      {key, Nx.stack(Enum.map(states, &elem(&1, index)))}
    end
  end

  defp largest_error(result, expected) do
    expected = Nx.as_type(expected, :f64)
    scale = Nx.max(Nx.reduce_max(Nx.abs(expected)), 1.0)
    error = result |> Nx.backend_copy(Nx.BinaryBackend) |> Nx.subtract(expected) |> Nx.abs()
    error |> Nx.reduce_max() |> Nx.divide(scale) |> Nx.to_number()
  end

  for model <- ChainModels.all(), name = elem(model, 0) do
    test "the model: #{name}" do
      [name, template, data, logp | exact] =
        ChainModels.all() |> Enum.find(&(elem(&1, 0) == unquote(name))) |> Tuple.to_list()

      {:ok, chain} = Chain.compile(logp, template, data, type: :f64)
      d = chain.dimensions
      {q, p} = {Nx.multiply(ChainModels.numbers({d}), 0.6), ChainModels.numbers({d}, 1.1)}
      mass = Nx.add(ChainModels.numbers({d}, 0.7), 1.5)
      options = [steps: @steps, step_size: @step_size, inverse_mass: mass]
      {:ok, states} = Chain.leapfrog(chain, q, p, data, options)

      expected =
        reference(List.first(exact, logp), template, data, q, p, @step_size, mass, @steps)

      for key <- [:q, :p, :grad, :logp] do
        error = largest_error(states[key], expected[key])
        assert error < 1.0e-13, "#{name}: #{key} is off by #{error}"
      end
    end
  end
end
