defmodule Nx.Vulkan.Backend do
  @moduledoc """
  Another name of `Nx.Vulkan.VulkanoBackend`, for projects that know the backend by it.

      iex> Nx.tensor([1, 2], backend: Nx.Vulkan.Backend) |> Nx.add(1) |> Nx.to_list()
      [2, 3]

  Every callback is that backend's, and so are the tensors: their backend is `Nx.Vulkan.VulkanoBackend`.
  """

  @behaviour Nx.Backend

  @backend Code.ensure_compiled!(Nx.Vulkan.VulkanoBackend)

  for {name, arity} <- Nx.Backend.behaviour_info(:callbacks),
      function_exported?(@backend, name, arity) do
    @impl true
    defdelegate unquote(name)(unquote_splicing(Macro.generate_arguments(arity, __MODULE__))),
      to: @backend
  end
end
