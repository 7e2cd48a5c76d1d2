defmodule Nx.Vulkan.Test.Hooks do
  @moduledoc "Hooks under one name for each version of Nx."

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
end
