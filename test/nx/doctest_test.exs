defmodule Nx.Vulkan.DoctestTest do
  @moduledoc """
  Nx's own examples, with the backend as default. What has no kernel falls back.

  None is excluded for rounding.
  """

  use ExUnit.Case, async: true

  setup do
    Nx.default_backend(Nx.Vulkan.VulkanoBackend)
    :ok
  end

  doctest Nx
end
