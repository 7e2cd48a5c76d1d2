defmodule Nx.Vulkan.Test.Hooks do
  @moduledoc "What versions of Nx name differently: hooks, and donation, which Nx 0.13 has not."

  import Nx.Defn, only: [deftransform: 2]

  @name if function_exported?(Code.ensure_loaded!(Nx.Defn.Kernel), :io_call, 2),
          do: :io_call,
          else: :hook

  @doc "`Nx.Defn.Kernel.io_call/2`, which is `hook/2` in Nx 0.13."
  deftransform(io_hook(expr, name_or_function),
    do: apply(Nx.Defn.Kernel, @name, [expr, name_or_function])
  )

  @doc "The same for a hook with a name and a function."
  deftransform(io_hook(expr, name, function),
    do: apply(Nx.Defn.Kernel, @name, [expr, name, function])
  )

  @doc "Whether inputs can be donated."
  def donation?, do: function_exported?(Code.ensure_loaded!(Nx), :donatable, 1)

  @doc "The tensors, donated where they can be."
  def donatable(tensors), do: if(donation?(), do: apply(Nx, :donatable, [tensors]), else: tensors)
end
