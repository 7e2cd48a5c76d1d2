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
  doctest Nx.LinAlg
  doctest Nx.Random
  doctest Nx.Constants
  doctest Nx.Type
end
