defmodule Nx.Vulkan.Compiler do
  @moduledoc """
  An `Nx.Defn.Compiler` for definitions that run on the device, wherever their inputs were.

      iex> softplus = Nx.Defn.jit(&Nx.log1p(Nx.exp(&1)), compiler: Nx.Vulkan.Compiler)
      iex> softplus.(Nx.tensor([-200.0, 20.0], type: :f32)) |> Nx.to_list()
      [0.0, 20.0]

  `Nx.Defn.default_options(compiler: Nx.Vulkan.Compiler)` makes it the compiler of all definitions of a process, and the
  application's environment that of all processes ([guide](definitions.md)).

  Element-wise operations that follow each other are fused into one kernel, and so is a reduction with those
  that lead to it, several reductions of the same rows with what is computed of them, several sums that read a tensor in
  common, a matrix product or a convolution with those
  that follow it, the parts of a concatenation, and results that no kernel reads, as an optimizer's;
  attention is one kernel that stores no scores, however it is written: with masks, biases, transposed heads and grouped queries;
  loops that count from a number to a number are unrolled first, and other loops and `cond` of small tensors run on the device as a whole.
  Everything else runs as with `Nx.Defn.Evaluator`. Elements have the same bits as from operations that run one by one; sums
  of floats may be added up in another order, and attention of narrow floats rounds its result alone.

  From the third call on, a definition that reads nothing on its way and has no hooks runs as one native graph: one
  call from Elixir for all its kernels.

  Inputs of other backends are copied to the device first, and tensors that the definition creates are created
  there. Which kernels an operation runs is decided by the backend.

  An input that `Nx.donatable/1` marks is gone after the call, and results are written in its memory where kernels allow it:
  `put_slice`, `indexed_put` and `indexed_add` into such an input copy nothing. Reading it later raises
  `Nx.Vulkan.Error`. It stays where it is a result itself, or where another input has the same buffer.

  ## Options

  Those of `Nx.Defn.Evaluator`, and

    * `:cache` - whether `Nx.Defn.jit/2` keeps the trace of a function for later calls with inputs of the same
      types and shapes (default: `true`). Side effects of the function, such as those of
      `Nx.Defn.Kernel.print_expr/2`, then happen once, and changes of other modules that it calls are not seen. A
      path, which EXLA takes for a file with the compiled definition, counts as `true`: the kernels of all definitions
      are on disk in any case.

    * `:device` - the device that the definition runs on: its index in `Nx.Vulkan.devices/0`, its UUID or part of its name
      (default: that of the process's default backend, or the global device). Its inputs are copied there if they are on
      another, in each call: place what comes again, such as parameters, by `Nx.backend_transfer/2` and
      `Nx.Defn.to_backend/1`. `Nx.Serving` with `partitions: true` runs one partition on each device.

  Other compilers' options are ignored.

  At most 1,024 traces are kept, and the least recently used ones make room for new ones. A trace holds no device
  memory of its callers: a function that closes over tensors on the device, for a hook say, is traced in each call, and
  so is one that closes over large tensors. Take such tensors as arguments. Hooks are those of each call.
  """

  @behaviour Nx.Defn.Compiler

  require Nx.Vulkan.Native, as: Native

  alias Nx.Defn.{Composite, Evaluator, Expr, Tree}
  alias Nx.Tensor, as: T

  alias Nx.Vulkan.Compiler.{
    DefinitionGraph,
    Fusion,
    HookValue,
    LoopUnrolling,
    Simplification,
    SingleBlock,
    SlicePropagation,
    TraceCache
  }

  alias Nx.Vulkan.Backend.Storage
  alias Nx.Vulkan.VulkanoBackend

  @impl true
  def __partitions_options__(options) do
    case options[:device] || Nx.Vulkan.devices() do
      [_ | _] = devices ->
        case for(%{index: index, partition: true} <- devices, do: index) do
          [_the_only] -> [options]
          indices -> for index <- indices, do: Keyword.put(options, :device, index)
        end

      {:error, _reason, _message} = error ->
        Nx.Vulkan.Error.raise!(:devices, error)

      _device ->
        [options]
    end
    |> Enum.flat_map(&Evaluator.__partitions_options__/1)
  end

  @impl true
  def __to_backend__(options),
    do: {VulkanoBackend, VulkanoBackend.init(Keyword.take(options, [:device]))}

  @impl true
  def __jit__(function, vars, fun, args_list, options) do
    cache? = !!Keyword.get(options, :cache, true)
    hooks = Keyword.get(options, :hooks, %{})
    device = device(options)
    options = evaluator_options(options)
    # A trace may hold constants of a loop on the device, which are lost with it.
    key = {version(function), templates(vars), options, device, Native.call(losses())}

    evaluate =
      with nil <- if(cache?, do: TraceCache.get(key)) do
        expr = fun.(vars)
        evaluate = evaluator(function, vars, expr, options, device)
        if cache? and TraceCache.keeps?(key, expr), do: TraceCache.put(key, evaluate)
        evaluate
      end

    evaluate.(args_list, hooks)
  end

  # What the trace depends on of the inputs, of a different form for tensors, tuples, maps and structs. Each call makes it:
  # tuples and lists are made, hashed and compared in less time than the containers and templates that they stand for.
  defp templates([input | inputs]), do: [template(input) | templates(inputs)]
  defp templates([]), do: []

  defp template(%T{type: type, shape: shape, names: names} = input),
    do: {type, shape, names, input.vectorized_axes, DefinitionGraph.donated?(input)}

  defp template(%_{} = container), do: Composite.traverse(container, &template/1)
  defp template(map) when is_map(map), do: {:map, map |> :maps.to_list() |> map_templates()}
  defp template(tuple) when is_tuple(tuple), do: tuple |> Tuple.to_list() |> templates()

  defp map_templates([{key, input} | inputs]),
    do: [key, template(input) | map_templates(inputs)]

  defp map_templates([]), do: []

  # What the trace depends on: the names of the hooks, not the hooks.
  defp evaluator_options(options) do
    hooks = for {name, hook} <- Keyword.get(options, :hooks, %{}), hook != nil, do: name
    [hooks: Enum.sort(hooks)] ++ Keyword.take(options, [:garbage_collect])
  end

  # A function's name says nothing about a new version of its module; a closure is of one.
  defp version(fun) when is_function(fun) do
    with {:type, :external} <- Function.info(fun, :type),
         {:module, module} <- Function.info(fun, :module),
         do: {fun, module.module_info(:md5)},
         else: (_local -> fun)
  end

  defp version(key), do: key

  @impl true
  def __compile__(key, vars, fun, options) do
    evaluate = evaluator(key, vars, fun.(vars), evaluator_options(options), device(options))
    hooks = Keyword.get(options, :hooks, %{})
    &evaluate.(&1, hooks)
  end

  @impl true
  def __shard_jit__(_key, _mesh, _vars, _fun, _args_list, _options),
    do: raise("sharding is not supported by #{inspect(__MODULE__)}")

  # The device of the option, or that of the process.
  defp device(options) do
    case options[:device] do
      nil -> Storage.default_device()
      device -> Storage.options(device: device)[:device]
    end
  end

  # What makes tensors meanwhile makes them on the device.
  defp with_device(nil, fun), do: Nx.with_default_backend(VulkanoBackend, fun)
  defp with_device(index, fun), do: Nx.with_default_backend({VulkanoBackend, device: index}, fun)

  # A function of the arguments and the hooks of a call.
  defp evaluator(key, vars, expr, options, device),
    do: with_device(device, fn -> evaluator_on(device, key, vars, expr, options) end)

  defp evaluator_on(device, key, vars, expr, options) do
    arguments = arguments(expr)

    expr =
      expr
      |> HookValue.wrap()
      |> LoopUnrolling.unroll()
      |> SlicePropagation.propagate()
      |> Simplification.simplify()
      |> Fusion.fuse()

    options = Keyword.update!(options, :hooks, &Map.new(&1, fn name -> {name, hook(name)} end))

    evaluate =
      SingleBlock.compile(key, vars, expr, options) ||
        Evaluator.__compile__(key, vars, fn _vars -> expr end, options)

    inputs = for {var, true} <- Enum.zip(Composite.flatten_list(vars), arguments), do: var
    graph = DefinitionGraph.new(expr, Enum.map(inputs, &DefinitionGraph.donated?/1))

    fn args_list, hooks ->
      inputs_list = for args <- args_list, do: inputs(args, arguments, device)
      # Without a graph nobody else looks where the inputs are.
      inputs_list =
        if graph,
          do: inputs_list,
          else: Enum.map(inputs_list, &DefinitionGraph.moved(&1, device))

      DefinitionGraph.run(graph, inputs_list, fn inputs_list ->
        args_list = Enum.zip_with(args_list, inputs_list, &with_inputs(&1, arguments, &2))

        results =
          with_hooks(hooks, fn ->
            with_device(device, fn -> evaluate.(args_list) end)
          end)

        # A definition may return a tensor that it captured, as it was, or a donated argument.
        for result <- results,
            do: Composite.traverse(result, &DefinitionGraph.not_donated(on_device(&1, device)))
      end)
    end
  end

  # The hook of that name in the call that runs: an evaluator outlives the call that it was made for.
  defp hook(name), do: fn value -> Process.get(__MODULE__)[name].(value) end

  defp with_hooks(hooks, fun) do
    previous = Process.put(__MODULE__, hooks)

    try do
      fun.()
    after
      if previous, do: Process.put(__MODULE__, previous), else: Process.delete(__MODULE__)
    end
  end

  # For each argument, up to the last one that the definition uses, whether it does.
  defp arguments(expr) do
    {_seen, indices} = Composite.reduce(expr, {%{}, MapSet.new()}, &arguments/2)
    for index <- 0..Enum.max(indices, fn -> -1 end)//1, do: index in indices
  end

  defp arguments(%T{data: %Expr{op: :parameter, args: [index]}}, {seen, indices}),
    do: {seen, MapSet.put(indices, index)}

  # The parameters of a function are its own.
  defp arguments(%T{data: %Expr{op: :fun}}, state), do: state

  defp arguments(%T{data: %Expr{id: id}}, {seen, _indices} = state) when is_map_key(seen, id),
    do: state

  defp arguments(%T{data: %Expr{id: id}} = tensor, {seen, indices}) do
    state = {Map.put(seen, id, true), indices}
    Tree.apply_args(tensor, :scope, state, &{&1, arguments(&1, &2)}) |> elem(1)
  end

  # The tensors of the arguments that the definition uses, on the device. The others may be templates or lazy, and are
  # not made.
  defp inputs([arg | args], [true | arguments], device),
    do: [on_device(arg.(), device) | inputs(args, arguments, device)]

  defp inputs([_arg | args], [false | arguments], device), do: inputs(args, arguments, device)
  defp inputs(_args, [], _device), do: []

  # The arguments with the inputs in their places: each is made once, even if it is asked for several times.
  defp with_inputs([_arg | args], [true | arguments], [input | inputs]),
    do: [fn -> input end | with_inputs(args, arguments, inputs)]

  defp with_inputs([arg | args], [false | arguments], inputs),
    do: [arg | with_inputs(args, arguments, inputs)]

  defp with_inputs(args, [], []), do: args

  @doc false
  def on_device(tensor), do: on_device(tensor, Storage.default_device())

  defp on_device(%T{data: %VulkanoBackend{}} = tensor, _device), do: tensor
  defp on_device(tensor, device), do: Nx.backend_copy(tensor, {VulkanoBackend, device: device})
end
