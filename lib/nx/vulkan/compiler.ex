defmodule Nx.Vulkan.Compiler do
  @moduledoc """
  An `Nx.Defn.Compiler` for definitions that run on the device, wherever their inputs were.

      Nx.Defn.jit(fun, compiler: Nx.Vulkan.Compiler)
      Nx.Defn.default_options(compiler: Nx.Vulkan.Compiler)

  Element-wise operations that follow each other become one kernel, and so does a reduction with those
  that lead to it; loops that count from a number to a number are written out first. Everything else runs
  as with `Nx.Defn.Evaluator`, whose options it takes. Results have the same bits as those of operations
  that run one by one.

  Inputs that are elsewhere are copied to the device first, and what the definition creates is created
  there. `Nx.Defn.jit/2` traces a function once for inputs of the same types and shapes: what it does
  besides computing, such as `Nx.Defn.Kernel.print_expr/2`, it does then.
  """

  @behaviour Nx.Defn.Compiler

  alias Nx.Defn.{Composite, Evaluator}
  alias Nx.Vulkan.Compiler.{Fusion, Loops}
  alias Nx.Vulkan.VulkanoBackend

  # What is traced is kept, for so many functions and inputs: persistent terms are read without a copy.
  @kept 1024
  @on_load :make_counter

  @doc false
  def make_counter, do: :persistent_term.put(__MODULE__, :counters.new(1, []))

  @impl true
  defdelegate __partitions_options__(options), to: Evaluator

  @impl true
  def __to_backend__(_options), do: {VulkanoBackend, []}

  @impl true
  def __jit__(key, vars, fun, args_list, options) do
    templates = Composite.traverse(List.to_tuple(vars), &Nx.to_template/1)
    place = {__MODULE__, key, templates, options}

    evaluate =
      with nil <- :persistent_term.get(place, nil),
           do: keep(place, __compile__(key, vars, fun, options))

    evaluate.(args_list)
  end

  defp keep(place, evaluate) do
    counter = :persistent_term.get(__MODULE__)

    if :counters.get(counter, 1) < @kept do
      :counters.add(counter, 1, 1)
      :persistent_term.put(place, evaluate)
    end

    evaluate
  end

  @impl true
  def __compile__(key, vars, fun, options) do
    expr = fn vars -> fun.(vars) |> Loops.unroll() |> Fusion.fuse() end
    evaluate = Evaluator.__compile__(key, vars, expr, options)

    fn args_list ->
      args_list = for args <- args_list, do: Enum.map(args, &argument/1)
      results = Nx.with_default_backend(VulkanoBackend, fn -> evaluate.(args_list) end)
      # A definition may return a tensor that it captured, as it was.
      for result <- results, do: Composite.traverse(result, &on_device/1)
    end
  end

  # Copied once, however often it is asked for.
  defp argument(argument) do
    tensor = on_device(argument.())
    fn -> tensor end
  end

  @doc false
  def on_device(%Nx.Tensor{data: %VulkanoBackend{}} = tensor), do: tensor
  def on_device(tensor), do: Nx.backend_copy(tensor, VulkanoBackend)
end
