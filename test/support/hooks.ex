defmodule Nx.Vulkan.Test.Hooks do
  @moduledoc "What versions of Nx name differently: hooks; tokens, which Nx 0.13 alone has; donation, which it has not."

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

  @doc "Whether this is a version after Nx 0.13."
  def nx_1_0?, do: @name == :io_call

  @doc "Whether a token can attach hooks to an expression."
  def tokens?, do: function_exported?(Code.ensure_loaded!(Nx.Defn.Kernel), :create_token, 0)

  @doc "The expression with a hook of another value, attached by a token."
  deftransform attach_hook(expr, value, name) do
    token = apply(Nx.Defn.Kernel, :create_token, [])
    {token, _value} = apply(Nx.Defn.Kernel, :hook_token, [token, value, name])
    apply(Nx.Defn.Kernel, :attach_token, [token, expr])
  end

  @doc "Whether inputs can be donated."
  def donation?, do: function_exported?(Code.ensure_loaded!(Nx), :donatable, 1)

  @doc "The tensors, donated where they can be."
  def donatable(tensors), do: if(donation?(), do: apply(Nx, :donatable, [tensors]), else: tensors)
end
