defmodule Nx.Vulkan.Compiler.HostLoop do
  @moduledoc false
  # A `while` whose iterations the host starts, each as one native graph: the body, and the condition of the next
  # iteration. The host reads no more than whether the loop goes on. Loops of small tensors are
  # `Nx.Vulkan.Compiler.DeviceLoop`'s.
  #
  # Once there is a graph, iterations are recorded in chunks that grow, each iteration under the condition that the one
  # before has computed. While the device runs a chunk the next one is recorded; then the host reads how many iterations
  # of the first have run. The time that a chunk takes is bounded: a process that dies leaves two chunks on the device.
  # `Native` bounds the kernels of a chunk. Where the device has no conditional rendering, or an iteration has more kernels
  # or cannot be under a condition, the host reads each one.
  #
  # A loop whose end an induction variable decides, by a bound that no iteration changes, counts: the host reads both
  # once, and nothing after that.
  #
  # A loop with another within that the host reads stays what it was. As long as the host knows the condition, from
  # counters that it holds, the operations run one by one: nothing is read then, and the definition around the loop may
  # have a graph.

  alias Nx.Defn.{Composite, Expr, Tree}
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{ProgramRecorder, Storage}
  alias Nx.Vulkan.Compiler.{Closure, DefinitionGraph, DeviceLoop, Fusion, LoopBound}
  alias Nx.Vulkan.Compiler.Simplification
  alias Nx.Vulkan.Error
  alias Nx.Vulkan.VulkanoBackend, as: B

  require Nx.Vulkan.Native, as: Native

  # Milliseconds of a chunk up to which the next one is twice as long, and from which on it is half as long.
  @short_chunk 5
  @long_chunk 20

  @enforce_keys [:count, :induction, :condition, :step, :graph, :changed, :evaluate]
  defstruct [:count, :induction, :condition, :step, :graph, :changed, :evaluate]

  @typedoc """
  `count` is the number of values, which are the first arguments. `condition` and `step` are functions of the arguments:
  `step` gives the next condition and the next values, and `graph` is its graph. `changed` says of each argument whether
  iterations change it. `induction` has the induction variable and a function of the arguments that gives its bound.
  `evaluate` runs the loop operation by operation.
  """
  @type t :: %__MODULE__{
          count: pos_integer(),
          induction: {LoopBound.induction(), ([T.t()] -> T.t())} | nil,
          condition: ([T.t()] -> T.t()),
          step: ([T.t()] -> tuple()),
          graph: DefinitionGraph.t() | nil,
          changed: [boolean()],
          evaluate: ([T.t()] -> Nx.Container.t())
        }

  @doc """
  The `while` as a block, or as it is. `loop` has its operations in groups, `scope` are its condition and its body
  without groups. The arguments are its initial values and the tensors that it captured.
  """
  @spec lower(T.t(), {T.t(), Nx.Container.t()}) :: T.t()
  def lower(%T{data: %Expr{args: [initial, arg, pred, block]}} = loop, scope) do
    values = Composite.flatten_list([initial])
    count = length(values)
    args = values ++ Closure.captured({pred, block})

    if Closure.possible?({pred, block}, args) and not reads?({pred, block}) do
      known = for {arg, index} <- Enum.with_index(args), index >= count, do: {arg, index}
      scope_on_arguments = Closure.on_arguments(scope, known)
      step = step(scope_on_arguments, count)
      changed = changed(scope, args)
      {on_parameters, _} = Composite.traverse(initial, 0, &{Closure.parameter(&1, &2), &2 + 1})
      whole = Closure.with_outputs(loop, [on_parameters, arg, pred, block], values)

      block = %__MODULE__{
        count: count,
        induction:
          if(LoopBound.iterations(values, scope) == nil,
            do: induction(scope_on_arguments, args, changed)
          ),
        condition: pred |> Closure.on_arguments(known) |> Closure.evaluator(args),
        step: Closure.evaluator(step, args),
        graph: DefinitionGraph.new(step, changed, :iteration),
        changed: changed,
        evaluate: Closure.evaluator(whole, args)
      }

      Closure.block(loop, block, args, initial)
    else
      loop
    end
  end

  # Whether the host reads on the way: such an iteration has no graph.
  defp reads?(expr), do: Composite.reduce(expr, %{}, &reads/2) == :reads

  # The expressions without such an operation that were seen, or `:reads`.
  defp reads(_tensor, :reads), do: :reads
  defp reads(%T{data: %Expr{op: op}}, _seen) when op in [:while, :cond], do: :reads
  defp reads(%T{data: %Expr{op: :block, args: [%__MODULE__{} | _]}}, _seen), do: :reads
  defp reads(%T{data: %Expr{op: :block, args: [%DeviceLoop{bound: nil} | _]}}, _seen), do: :reads
  defp reads(%T{data: %Expr{id: id}}, seen) when is_map_key(seen, id), do: seen

  defp reads(%T{data: %Expr{id: id}} = tensor, seen),
    do: Tree.apply_args(tensor, :scope, Map.put(seen, id, true), &{&1, reads(&1, &2)}) |> elem(1)

  # Of each argument whether iterations change it.
  defp changed({_pred, block}, args) do
    next = Composite.flatten_list([block])

    for {_arg, index} <- Enum.with_index(args),
        do:
          index < length(next) and
            not match?(%T{data: %Expr{op: :parameter, args: [^index]}}, Enum.at(next, index))
  end

  # The induction variable with its bound, where no iteration changes that.
  defp induction(scope, args, changed) do
    with %{bound: bound} = induction <- LoopBound.induction(scope),
         false <- bound |> Closure.parameters() |> Enum.any?(&Enum.at(changed, &1)),
         do: {induction, Closure.evaluator(bound, args)},
         else: (_ -> nil)
  end

  # The next condition and the next values.
  defp step({pred, block}, count) do
    next = Composite.flatten_list([block])
    pred = pred |> Closure.with_values(Enum.take(next, count)) |> condition(next)
    [pred | next] |> List.to_tuple() |> Simplification.simplify() |> Fusion.fuse(:loop)
  end

  # The predicate as an integer of at most 32 bits that is no value of the loop: its memory is of its own.
  defp condition(%T{type: {kind, size}, data: %Expr{id: id, op: op}} = pred, next) do
    if kind in [:u, :s] and size <= 32 and op != :parameter and
         not Enum.any?(next, &(&1.data.id == id)),
       do: pred,
       else: Nx.not_equal(pred, Expr.constant(Nx.template({}, {:u, 8}), 0, []))
  end

  @spec run(t(), Nx.Container.t(), [T.t()]) :: Nx.Container.t()
  def run(%__MODULE__{count: count} = loop, outs, args) do
    if ProgramRecorder.recording?(), do: raise("the host reads the condition of this loop")
    {values, captured} = Enum.split(args, count)

    values =
      case iterations(loop, args) do
        nil ->
          iterate(loop, loop.condition.(args), values, captured)

        0 ->
          values

        iterations ->
          {values, captured, donate?} = start(loop, values, captured)
          repeat(loop, iterations, values, captured, donate?)
      end

    {outs, []} =
      Composite.traverse(outs, values, fn out, [value | rest] ->
        {%{out | data: value.data}, rest}
      end)

    outs
  end

  # How many iterations the loop makes, where that is known before the first one.
  defp iterations(%__MODULE__{induction: nil}, _args), do: nil

  defp iterations(%__MODULE__{induction: {induction, bound}}, args) do
    first = args |> Enum.at(induction.index) |> Nx.to_number()
    LoopBound.count(induction, first, Nx.to_number(bound.(args)))
  end

  defp repeat(_loop, 0, values, _captured, _donate?), do: values

  defp repeat(loop, iterations, values, captured, donate?) do
    [_pred | values] = evaluate(loop, values, captured, donate?)
    repeat(loop, iterations - 1, values, captured, true)
  end

  defp iterate(loop, %T{data: %B{scalar: {_, _}}} = pred, values, captured) do
    if Nx.to_number(pred) != 0 do
      [pred | values] = Tuple.to_list(loop.step.(values ++ captured))
      iterate(loop, pred, values, captured)
    else
      values
    end
  end

  defp iterate(loop, pred, values, captured) do
    {values, captured, donate?} = start(loop, values, captured)
    if Nx.to_number(pred) != 0, do: replay(loop, values, captured, donate?), else: values
  end

  # What the first iteration begins with, and whether it may write over the values that iterations change: the caller keeps
  # them. Values that share a buffer are copied first, as those of later iterations share none. Numbers of the host become
  # buffers once, and not in each iteration.
  defp start(loop, values, captured) do
    values = Enum.map(values, &Storage.in_buffer/1)
    captured = Enum.map(captured, &Storage.in_buffer/1)
    refs = Enum.map(values ++ captured, &ref/1)

    if Enum.uniq(refs) == refs,
      do: {values, captured, false},
      else: {Enum.zip_with(values, loop.changed, &own/2), captured, true}
  end

  defp ref(%T{data: %B{ref: ref}}), do: ref
  defp ref(_elsewhere), do: nil

  defp own(tensor, true), do: Storage.copy(tensor, B, [])
  defp own(tensor, false), do: tensor

  # From values whose iteration runs on to the last ones.
  defp replay(loop, values, captured, donate?) do
    with iterations when iterations != nil <-
           DefinitionGraph.iterations(loop.graph, values ++ captured, donate?),
         count when count > 0 <- record(iterations, 1) do
      case ahead(iterations, 1, System.monotonic_time(:millisecond)) do
        {:ended, results} -> values(results, values ++ captured)
        {:paused, results} -> step(loop, values(results, values ++ captured), captured, true)
      end
    else
      _ -> step(loop, values, captured, donate?)
    end
  end

  # Records a chunk before it waits for the one before, of `size` iterations, which began then.
  defp ahead(iterations, size, began) do
    next = record(iterations, size)

    case Native.call(iterations_finish(iterations)) do
      :goes_on ->
        now = System.monotonic_time(:millisecond)
        ahead(iterations, next_size(next, now - began), now)

      {:error, _} = error ->
        Error.raise!(:while, error)

      {:error, _, _} = error ->
        Error.raise!(:while, error)

      last ->
        last
    end
  end

  defp next_size(size, took) when took < @short_chunk, do: 2 * size
  defp next_size(size, took) when took > @long_chunk, do: max(div(size, 2), 1)
  defp next_size(size, _took), do: size

  defp record(iterations, count) do
    case Native.call(iterations_record(iterations, count)) do
      {:ok, recorded} -> recorded
      error -> Error.raise!(:while, error)
    end
  end

  defp values(results, given) do
    for {result, %T{} = like} <- Enum.zip(results, given) do
      if is_reference(result),
        do: %{like | data: %B{ref: result}},
        else: %{like | data: Enum.fetch!(given, result).data}
    end
  end

  # One iteration, whose condition the host reads.
  defp step(loop, values, captured, donate?) do
    [pred | values] = evaluate(loop, values, captured, donate?)
    if Nx.to_number(pred) != 0, do: replay(loop, values, captured, true), else: values
  end

  # The next condition and the next values: evaluated, or by the graph. Later iterations write over the values.
  defp evaluate(loop, values, captured, donate?) do
    evaluate = fn [inputs] -> [loop.step.(inputs)] end
    [results] = DefinitionGraph.run(loop.graph, [values ++ captured], evaluate, donate?)
    [pred | next] = Tuple.to_list(results)
    [pred | if(donate?, do: next, else: owned(loop, next, values))]
  end

  # The next values, with copies of those that are still the caller's.
  defp owned(loop, next, values) do
    kept = for {value, true} <- Enum.zip(values, loop.changed), do: ref(value)
    Enum.zip_with(next, loop.changed, &own(&1, &2 and ref(&1) in kept))
  end
end
