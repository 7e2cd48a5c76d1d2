defmodule Nx.Vulkan.Compiler do
  @moduledoc """
  An `Nx.Defn.Compiler` for definitions that run on the device, wherever their inputs were.

      Nx.Defn.jit(fun, compiler: Nx.Vulkan.Compiler)
      Nx.Defn.default_options(compiler: Nx.Vulkan.Compiler)

  Element-wise operations that follow each other are fused into one kernel, and so is a reduction with those
  that lead to it; loops that count from a number to a number are unrolled first. Everything else runs
  as with `Nx.Defn.Evaluator`. Elements have the same bits as from operations that run one by one; sums
  of floats may be added up in another order.

  Inputs of other backends are copied to the device first, and tensors that the definition creates are created
  there. Which kernels an operation runs is decided by the backend.

  ## Options

  Those of `Nx.Defn.Evaluator`, and

    * `:cache` - whether `Nx.Defn.jit/2` keeps the trace of a function for later calls with inputs of the same
      types and shapes (default: `true`). Side effects of the function, such as those of
      `Nx.Defn.Kernel.print_expr/2`, then happen once, and changes of other modules that it calls are not seen. A
      function that closes over large tensors is traced in each call.
  """

  @behaviour Nx.Defn.Compiler

  alias Nx.Defn.{Composite, Evaluator, Expr, Tree}
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Compiler.{Fusion, LoopUnrolling}
  alias Nx.Vulkan.VulkanoBackend

  # Traces that are kept, as persistent terms, which are read without a copy.
  @most_kept 1024
  # Elements of all tensors that a kept trace holds.
  @most_elements 4096
  @on_load :make_counter

  @doc false
  def make_counter, do: :persistent_term.put(__MODULE__, :counters.new(1, []))

  @impl true
  defdelegate __partitions_options__(options), to: Evaluator

  @impl true
  def __to_backend__(_options), do: {VulkanoBackend, []}

  @impl true
  def __jit__(function, vars, fun, args_list, options) do
    {cache, options} = Keyword.pop(options, :cache, true)
    templates = Composite.traverse(List.to_tuple(vars), &Nx.to_template/1)
    key = {__MODULE__, version(function), templates, options}

    evaluate =
      with nil <- if(cache, do: :persistent_term.get(key, nil)) do
        expr = trace(vars, fun)
        evaluate = evaluator(function, vars, expr, options)
        if cache and elements(expr) <= @most_elements, do: keep(key, evaluate)
        evaluate
      end

    evaluate.(args_list)
  end

  # A function's name says nothing about a new version of its module; a closure is of one.
  defp version(fun) when is_function(fun) do
    with {:type, :external} <- Function.info(fun, :type),
         {:module, module} <- Function.info(fun, :module),
         do: {fun, module.module_info(:md5)},
         else: (_local -> fun)
  end

  defp version(key), do: key

  defp keep(key, evaluate) do
    counter = :persistent_term.get(__MODULE__)

    if :counters.get(counter, 1) < @most_kept do
      :counters.add(counter, 1, 1)
      :persistent_term.put(key, evaluate)
    end
  end

  # Elements of all tensors that the expression holds.
  defp elements(expr), do: Composite.reduce(expr, {%{}, 0}, &elements/2) |> elem(1)

  defp elements(%T{data: %Expr{id: id}}, {seen, _count} = state) when is_map_key(seen, id),
    do: state

  defp elements(%T{data: %Expr{id: id, op: op}} = tensor, {seen, count}) do
    count = if op == :tensor, do: count + Nx.size(tensor), else: count
    state = {Map.put(seen, id, true), count}
    Tree.apply_args(tensor, :all, state, &{&1, elements(&1, &2)}) |> elem(1)
  end

  @impl true
  def __compile__(key, vars, fun, options),
    do: evaluator(key, vars, trace(vars, fun), Keyword.delete(options, :cache))

  defp trace(vars, fun), do: fun.(vars) |> LoopUnrolling.unroll() |> Fusion.fuse()

  defp evaluator(key, vars, expr, options) do
    evaluate = Evaluator.__compile__(key, vars, fn _vars -> expr end, options)

    fn args_list ->
      args_list = for args <- args_list, do: Enum.map(args, &argument/1)
      results = Nx.with_default_backend(VulkanoBackend, fn -> evaluate.(args_list) end)
      # A definition may return a tensor that it captured, as it was.
      for result <- results, do: Composite.traverse(result, &on_device/1)
    end
  end

  # Copied once, even if it is asked for several times.
  defp argument(argument) do
    tensor = on_device(argument.())
    fn -> tensor end
  end

  @doc false
  def on_device(%T{data: %VulkanoBackend{}} = tensor), do: tensor
  def on_device(tensor), do: Nx.backend_copy(tensor, VulkanoBackend)
end
