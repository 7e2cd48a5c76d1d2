defmodule Nx.Vulkan.DoctestTest do
  @moduledoc """
  Nx's own examples, all of them, with the backend as default and nothing allowed to fall back but what the device lacks. None is
  excluded for rounding. Those of `Nx.LinAlg` print the digits of doubles: where the device has none, they are compared as numbers.
  """

  use ExUnit.Case, async: true

  alias Nx.Vulkan.Test.{Compare, Doctests, Fallbacks}

  @moduletag timeout: 1_800_000

  setup do
    Nx.default_backend(Nx.Vulkan.VulkanoBackend)
    Fallbacks.forbid()
    :ok
  end

  doctest Nx

  # The digits of Nx 0.13's example are those of its own algorithm.
  own_digits = if Nx.Vulkan.Test.Hooks.nx_1_0?(), do: [], else: [qr: 2]
  doctest Nx.LinAlg, except: own_digits, tags: [:float64]

  # Matrices of the examples have up to four rows; the bound is that of linear_system_test.exs.
  if not Nx.Vulkan.has_f64() do
    for {{{name, arity} = function, steps}, i} <- Enum.with_index(Doctests.read(Nx.LinAlg)),
        function not in own_digits do
      test "example #{i}, of Nx.LinAlg.#{name}/#{arity}" do
        Doctests.run(unquote(steps), 10 * 4 * Compare.epsilon({:f, 32}))
      end
    end
  end

  doctest Nx.Random
  doctest Nx.Constants
  doctest Nx.Type
end
