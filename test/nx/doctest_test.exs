defmodule Nx.Vulkan.DoctestTest do
  @moduledoc """
  Nx's own examples, all of them, with the backend as default and nothing allowed to fall back. None is
  excluded for rounding.
  """

  use ExUnit.Case, async: true

  alias Nx.Vulkan.Fallback

  @moduletag timeout: 1_800_000

  setup do
    Nx.default_backend(Nx.Vulkan.VulkanoBackend)
    Fallback.put_mode(:raise)
    :ok
  end

  doctest Nx
  doctest Nx.LinAlg
  doctest Nx.Random
  doctest Nx.Constants
  doctest Nx.Type
end
