defmodule Nx.Vulkan.Compiler do
  @moduledoc """
  An `Nx.Defn.Compiler` whose results are on the device, wherever its inputs were.

      Nx.Defn.jit(fun, compiler: Nx.Vulkan.Compiler)
      Nx.Defn.default_options(compiler: Nx.Vulkan.Compiler)

  It evaluates op by op, as `Nx.Defn.Evaluator` does, and takes its options. Inputs that are elsewhere
  are copied to the device first, and what the definition creates is created there.
  """

  @behaviour Nx.Defn.Compiler

  alias Nx.Defn.Evaluator
  alias Nx.Vulkan.VulkanoBackend

  @impl true
  defdelegate __partitions_options__(options), to: Evaluator

  @impl true
  def __to_backend__(_options), do: {VulkanoBackend, []}

  @impl true
  def __jit__(key, vars, fun, args_list, options),
    do: __compile__(key, vars, fun, options).(args_list)

  @impl true
  def __compile__(key, vars, fun, options) do
    evaluate = Evaluator.__compile__(key, vars, fun, options)

    fn args_list ->
      args_list = for args <- args_list, do: Enum.map(args, &argument/1)
      results = Nx.with_default_backend(VulkanoBackend, fn -> evaluate.(args_list) end)
      # A definition may return a tensor that it captured, as it was.
      for result <- results, do: Nx.Defn.Composite.traverse(result, &on_device/1)
    end
  end

  # Copied once, however often it is asked for.
  defp argument(argument) do
    tensor = on_device(argument.())
    fn -> tensor end
  end

  defp on_device(%Nx.Tensor{data: %VulkanoBackend{}} = tensor), do: tensor
  defp on_device(tensor), do: Nx.backend_copy(tensor, VulkanoBackend)
end
