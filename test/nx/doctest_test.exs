defmodule Nx.Vulkan.DoctestTest do
  @moduledoc """
  Nx's own examples, all of them, with the backend as default and nothing allowed to fall back but what the device lacks. None is
  excluded for rounding.
  """

  use ExUnit.Case, async: true

  alias Nx.Vulkan.Test.Fallbacks

  @moduletag timeout: 1_800_000

  setup do
    Nx.default_backend(Nx.Vulkan.VulkanoBackend)
    Fallbacks.forbid()
    :ok
  end

  doctest Nx
  # The digits of Nx 0.13's example are those of its own algorithm.
  doctest Nx.LinAlg, except: if(Nx.Vulkan.Test.Hooks.nx_1_0?(), do: [], else: [qr: 2])
  doctest Nx.Random
  doctest Nx.Constants
  doctest Nx.Type
end
