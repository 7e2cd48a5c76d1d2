defmodule Bench.Sweep do
  @moduledoc """
  The cost of an eager operation from 1 to 10⁸ elements, as `bench/plot.py sweep` draws it: the sets `sweep` (the
  device) and `binary_backend` (`Nx.BinaryBackend`, up to sizes that take a second). The set `sweep` of
  `bench/peers.py` has the same cases.

  A run is the number of calls that takes 20 ms, 1000 at most, and one wait.
  """

  import Bench.Measure

  @operations [add: &Nx.add/2, exp: &Nx.exp/1, sum: &Nx.sum/1]

  def all(largest) do
    for {name, fun} <- @operations, exponent <- 0..largest do
      {"#{name}_1e#{exponent}", "us/op", fn -> cost(fun, 10 ** exponent) end}
    end
  end

  # The device makes the data for both backends: it is fast, and both get the same numbers.
  defp cost(fun, elements) do
    backend = Nx.default_backend(Nx.Vulkan.VulkanoBackend)
    {:arity, arity} = Function.info(fun, :arity)
    data = for seed <- 1..arity, do: Nx.backend_transfer(normal({elements}, seed), backend)
    Nx.default_backend(backend)

    each = fn calls, runs ->
      median(fn -> Enum.each(1..calls, fn _ -> apply(fun, data) end) end, runs, 1) / calls
    end

    calls = if each.(1, 1) > 0.02, do: 1, else: (0.02 / each.(10, 1)) |> ceil() |> min(1000)
    each.(calls, 7) * 1.0e6
  end
end
