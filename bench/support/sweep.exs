defmodule Bench.Sweep do
  @moduledoc """
  What an eager operation costs from 1 to 10⁸ elements, as `bench/plot.py` draws it: the sets `sweep` (the
  device) and `binary` (`Nx.BinaryBackend`, as far as it stays below a second), and the set `sweep` of
  `bench/peers.py`.

  A run is as many calls as take 20 ms, 1000 at most, and one wait.
  """

  import Bench.Measure

  @operations [add: &Nx.add/2, exp: &Nx.exp/1, sum: &Nx.sum/1]

  def all(largest) do
    for {name, fun} <- @operations, exponent <- 0..largest do
      {"#{name}_1e#{exponent}", "us/op", fn -> cost(fun, 10 ** exponent) end}
    end
  end

  # The data come from the device whatever the backend is: quickly, and the same.
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
