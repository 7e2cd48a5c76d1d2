defmodule Nx.Vulkan.HookOperation do
  @moduledoc false
  # The operation of an expression that runs a hook, by its name in each version of Nx: `:hook` in 0.13, `:io_call` later.
  # Its arguments are `[value, callback, template, ref]` in all of them. It knows nothing of what a hook does.

  @names [:io_call, :hook]

  @doc "Its names."
  @spec names() :: [atom()]
  def names, do: @names

  @doc "Whether the operation runs a hook."
  defguard is_hook(op) when op in @names

  @doc "The operation's arguments with what the hook gets changed. A token of Nx 0.13 hooks another value than the operation's."
  @spec update_value([term()], (Nx.Container.t() -> Nx.Container.t())) :: [term()]
  def update_value([own, {:token_hook, value, callback} | rest], fun),
    do: [own, {:token_hook, fun.(value), callback} | rest]

  def update_value([value | rest], fun), do: [fun.(value) | rest]
end
