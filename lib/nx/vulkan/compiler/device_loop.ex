defmodule Nx.Vulkan.Compiler.DeviceLoop do
  @moduledoc false
  # A `while` of small tensors as a block that the device runs from the first iteration to the last: nothing is
  # read in between. It lowers the loop's operations to steps, and runs dispatches until the loop has ended. Which
  # loops are small, and how many iterations a dispatch makes, is decided in src/tuning/device_loop.rs.
  #
  # The condition and the body are evaluated once, on tensors without memory, while `ProgramRecorder` keeps the
  # programs of their operations. A loop that needs more than programs stays what it was: one with hooks, with
  # a `sort`, with indices that have to be checked. So does one that the device refuses.
  #
  # Slots are the loop's tensors by number: the operands, which are the initial values and the tensors that the loop
  # reads besides; the results; and scratch memory. A value that changes has two slots of scratch, its own and
  # that of its next value, which change places after each iteration.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Defn.{Composite, Evaluator, Expr, Tree}
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Movement, ProgramRecorder, Storage}
  alias Nx.Vulkan.Error
  alias Nx.Vulkan.VulkanoBackend, as: B

  @enforce_keys [:ref, :captured, :changed, :iterations, :evaluate]
  defstruct [:ref, :captured, :changed, :iterations, :evaluate]

  @typedoc """
  `ref` is the native loop, `captured` are the tensors that it reads besides its initial values, and `changed` says of
  each value whether iterations change it. `iterations` is their number where it is known. `evaluate` runs the loop's
  operations one by one.
  """
  @type t :: %__MODULE__{
          ref: reference(),
          captured: [reference()],
          changed: [boolean()],
          iterations: non_neg_integer() | nil,
          evaluate: ([T.t()] -> Nx.Container.t())
        }

  # Values of a loop: `default/1` has a clause for each number.
  @most_values 24
  # Operations that do more than compute, or that this process must not run to find out.
  @effects [:io_call, :runtime_call, :token, :attach_token]

  @doc """
  The loop as a block, or as it is. `loop` has its operations in groups, `scope` are its condition and its
  body without groups.
  """
  @spec lower(T.t(), {T.t(), Nx.Container.t()}) :: T.t()
  def lower(%T{data: %Expr{op: :while, args: [initial, _arg, pred, block]} = expr} = loop, scope) do
    values = Composite.flatten_list([initial])

    with true <- length(values) <= @most_values,
         true <- Composite.reduce({pred, block}, %{}, &effects/2) != :effect,
         {:ok, device_loop} <- new(loop, values, scope) do
      args = [device_loop, values, initial, default(length(values))]
      %{loop | data: %{expr | op: :block, args: args}}
    else
      _ -> loop
    end
  end

  # The expressions without such an operation that were seen, or `:effect`.
  defp effects(_tensor, :effect), do: :effect
  defp effects(%T{data: %Expr{op: op}}, _seen) when op in @effects, do: :effect
  defp effects(%T{data: %Expr{id: id}}, seen) when is_map_key(seen, id), do: seen

  defp effects(%T{data: %Expr{id: id}} = tensor, seen),
    do: Tree.apply_args(tensor, :all, Map.put(seen, id, true), &{&1, effects(&1, &2)}) |> elem(1)

  ## Lowering

  defp new(%T{data: %Expr{args: [_initial, _arg, pred, block]}} = loop, values, scope) do
    params = for value <- values, do: %{value | names: names(value), data: %B{ref: make_ref()}}
    evaluate = fn expr -> evaluator(expr, values).(params) end

    with {:ok, predicate, condition} <- ProgramRecorder.record(fn -> evaluate.(pred) end),
         {:ok, next, body} <-
           ProgramRecorder.record(fn -> Composite.flatten_list([evaluate.(block)]) end),
         {steps, captured, changed} = steps(params, predicate, condition, next, body),
         {:ok, ref} <- Native.call(loop_new(steps)) do
      {:ok,
       %__MODULE__{
         ref: ref,
         captured: captured,
         changed: changed,
         iterations: iterations(values, scope),
         evaluate: evaluator(on_parameters(loop, values), values)
       }}
    end
  end

  defp names(%T{shape: shape}), do: List.duplicate(nil, tuple_size(shape))

  # The loop on parameters in place of its initial values.
  defp on_parameters(%T{data: %Expr{args: [initial | rest]} = expr} = loop, values) do
    {initial, _} =
      Composite.traverse(initial, 0, fn value, index ->
        {Expr.parameter(%{value | names: names(value)}, :root, index), index + 1}
      end)

    loop = %{loop | data: %{expr | id: make_ref(), args: [initial | rest]}}

    if is_tuple(initial) do
      for {value, index} <- Enum.with_index(values) do
        %{value | data: %{expr | id: make_ref(), op: :elem, args: [loop, index]}}
      end
      |> List.to_tuple()
    else
      loop
    end
  end

  # A function of the values, which are tensors.
  defp evaluator(expr, values) do
    evaluate = Evaluator.__compile__(__MODULE__, values, fn _vars -> expr end, [])

    fn tensors ->
      [result] =
        Nx.with_default_backend(B, fn -> evaluate.([for(t <- tensors, do: fn -> t end)]) end)

      result
    end
  end

  # The terms of `loop_new`, the references of the captured tensors, and which values change.
  defp steps(params, predicate, condition, next, body) do
    refs = Enum.map(params, & &1.data.ref)
    changed = Enum.zip_with(params, next, &(&1.data != &2.data))
    captured = captured(condition ++ body, refs)
    fixed = for({ref, false} <- Enum.zip(refs, changed), do: ref) ++ captured
    invariant = invariant(condition ++ body, MapSet.new(fixed))
    invariant? = fn {_, _, _, ref, _} -> ref in invariant end
    {setup, [condition, body]} = hoist([condition, body], invariant?)

    slots = slots(params, changed, captured, setup ++ condition ++ body)
    number = fn steps -> Enum.map(steps, &numbered(&1, slots.numbers)) end
    {loads, stores} = state(params, changed, slots)
    made = MapSet.new(body, fn {_, _, _, ref, _} -> ref end)
    {copies, {swaps, slots, _made}} = next(params, next, {[], slots, made})
    # A predicate that is a number or a value is in a slot of its own, too.
    {slots, slot} = scratch(slots, :predicate)
    type = predicate.type
    predicate = {[{:as_type, type, [0]}], [source(predicate, slots)], {}, slot, nil}

    terms =
      {loads ++ number.(setup), number.(condition) ++ [predicate], number.(body) ++ copies,
       stores, swaps, {slot, type},
       {length(params) + length(captured), Enum.count(changed, & &1)}}

    {terms, captured, changed}
  end

  # The references that steps read, of no value and of no step.
  defp captured(steps, refs) do
    made = MapSet.new(steps, fn {_, _, _, ref, _} -> ref end)

    for {_, inputs, _, _, _} <- steps,
        input <- inputs,
        ref = elem(input, 0),
        is_reference(ref) and ref not in made and ref not in refs,
        uniq: true,
        do: ref
  end

  # The references of results that are the same in each iteration. Several steps may write one.
  defp invariant(steps, fixed) do
    steps
    |> Enum.chunk_by(fn {_, _, _, ref, _} -> ref end)
    |> Enum.reduce(fixed, fn [{_, _, _, ref, _} | _] = steps, fixed ->
      inputs = for {_, inputs, _, _, _} <- steps, input <- inputs, do: elem(input, 0)

      if Enum.all?(inputs, &(&1 == :scalar or &1 in fixed)),
        do: MapSet.put(fixed, ref),
        else: fixed
    end)
  end

  # The invariant steps of all lists, and the lists without them.
  defp hoist(lists, invariant?) do
    split = Enum.map(lists, &Enum.split_with(&1, invariant?))
    {Enum.flat_map(split, &elem(&1, 0)), Enum.map(split, &elem(&1, 1))}
  end

  # Copies of the operands into the values that change, and of these into the results.
  defp state(params, changed, %{numbers: numbers}) do
    for {{param, true}, index} <- Enum.with_index(Enum.zip(params, changed)) do
      %T{type: type, shape: shape, data: %B{ref: ref}} = param
      own = Map.fetch!(numbers, ref)
      result = Map.fetch!(numbers, {:result, index})
      {copy({index, type, shape}, param, own), copy({own, type, shape}, param, result)}
    end
    |> Enum.unzip()
  end

  # The copies of next values that have no slot of their own: those that were there before, and those of two values.
  # `made` are the results of the body that are no next value yet.
  defp next([param | params], [next | nexts], {swaps, slots, made}) do
    ref = param.data.ref
    own = Map.get(slots.numbers, ref)

    cond do
      next.data == param.data ->
        next(params, nexts, {swaps, slots, made})

      next.data.ref in made ->
        swap = {own, Map.fetch!(slots.numbers, next.data.ref)}
        next(params, nexts, {[swap | swaps], slots, MapSet.delete(made, next.data.ref)})

      true ->
        source = source(next, slots)
        {slots, slot} = scratch(slots, {:next, ref})
        {copies, state} = next(params, nexts, {[{own, slot} | swaps], slots, made})
        {[copy(source, next, slot) | copies], state}
    end
  end

  defp next([], [], state), do: {[], state}

  # The number of each slot, by reference; `{:result, index}` is that of a result.
  defp slots(params, changed, captured, steps) do
    values = Enum.with_index(Enum.zip(params, changed))

    operands =
      for {{param, changed?}, index} <- values,
          do: if(changed?, do: {:operand, index}, else: param.data.ref)

    results = for {{_param, true}, index} <- values, do: {:result, index}
    state = for {{param, true}, _index} <- values, do: param.data.ref
    made = for {_, _, _, ref, _} <- steps, uniq: true, do: ref
    start = %{numbers: %{}, count: 0}

    Enum.reduce(operands ++ captured ++ results ++ state ++ made, start, fn key, slots ->
      {slots, _slot} = scratch(slots, key)
      slots
    end)
  end

  defp scratch(%{numbers: numbers, count: count}, key),
    do: {%{numbers: Map.put(numbers, key, count), count: count + 1}, count}

  defp source(%T{data: %B{ref: nil}} = number, _slots), do: Storage.operand(number)

  defp source(%T{data: %B{ref: ref}, type: type, shape: shape}, %{numbers: numbers}),
    do: {Map.fetch!(numbers, ref), type, shape}

  # Copies bits.
  defp copy(operand, %T{type: type, shape: shape}, slot) do
    stored = Movement.storage_type(type)
    {[{:as_type, stored, [0]}], [put_elem(operand, 1, stored)], shape, slot, nil}
  end

  defp numbered({nodes, inputs, shape, ref, view}, numbers) do
    inputs =
      for input <- inputs do
        case elem(input, 0) do
          :scalar -> input
          ref -> put_elem(input, 0, Map.fetch!(numbers, ref))
        end
      end

    {nodes, inputs, shape, Map.fetch!(numbers, ref), view}
  end

  ## Counted loops

  # The number of iterations of a loop that counts from a number to a number, as `while x, i <- range` does, else
  # nil. Nothing has to be read to know that such a loop has ended.
  @spec iterations([T.t()], {T.t(), Nx.Container.t()}) :: non_neg_integer() | nil
  def iterations(values, {pred, block}) do
    with %T{data: %Expr{op: op, args: [counter, last]}} <- plain(pred),
         {:parameter, [index]} <- operation(counter),
         {:constant, [last]} when is_integer(last) <- operation(last),
         value = Enum.at(values, index),
         {:constant, [first]} when is_integer(first) <- operation(value),
         step when is_integer(step) <-
           step(Enum.at(Composite.flatten_list([block]), index), index),
         count when is_integer(count) <- count(op, first, step, last),
         # Counters do not wrap on the way.
         {:s, bits} <- value.type,
         true <- abs(first) + count * abs(step) < 2 ** (bits - 1) do
      count
    else
      _ -> nil
    end
  end

  defp count(:less, first, step, last) when step > 0,
    do: max(div(last - first + step - 1, step), 0)

  defp count(:less_equal, first, step, last), do: count(:less, first, step, last + 1)
  defp count(:greater, first, step, last), do: count(:less, -first, -step, -last)
  defp count(:greater_equal, first, step, last), do: count(:greater, first, step, last - 1)
  defp count(_op, _first, _step, _last), do: nil

  # What the value of that index is increased by.
  defp step(next, index) do
    with {op, [a, b]} <- operation(next) do
      case {op, operation(a), operation(b)} do
        {:add, {:constant, [step]}, {:parameter, [^index]}} -> step
        {:add, {:parameter, [^index]}, {:constant, [step]}} -> step
        {:subtract, {:parameter, [^index]}, {:constant, [step]}} -> -step
        _ -> nil
      end
    end
  end

  defp operation(tensor) do
    %T{data: %Expr{op: op, args: args}} = plain(tensor)
    {op, args}
  end

  # Metadata change no value.
  defp plain(%T{data: %Expr{op: :metadata, args: [%T{} = tensor, _]}}), do: plain(tensor)
  defp plain(%T{} = tensor), do: tensor

  ## Running

  @spec run(t(), Nx.Container.t(), [T.t()]) :: T.t() | tuple()
  def run(%__MODULE__{} = loop, outs, args) do
    case dispatch(loop, Enum.map(args, &operand/1), loop.iterations, 0) do
      {:ok, results} -> results(loop, outs, args, results)
      {:error, :unsupported, _reason} -> loop.evaluate.(args)
      error -> Error.raise!(:while, error)
    end
  end

  # What the loop takes: a reference, or the bytes of a number.
  defp operand(tensor) do
    case Storage.operand(tensor) do
      {:scalar, _type, binary} -> binary
      {ref, _type, _shape} -> ref
    end
  end

  # Dispatches until the loop has ended. `left` is how many iterations are left, where that is known.
  defp dispatch(loop, values, left, index) do
    with {:ok, {made, [unfinished | results]}} <-
           Native.call(loop_run(loop.ref, values ++ loop.captured, index)) do
      left = left && left - made

      case if(left, do: left > 0, else: unfinished?(unfinished)) do
        false ->
          {:ok, results}

        true ->
          if index > 0, do: free(loop, values)
          dispatch(loop, updated(values, loop.changed, results), left, index + 1)

        error ->
          error
      end
    end
  end

  defp unfinished?(ref) do
    with {:ok, <<word::32-native>>} <- Native.call(buf_read(ref, 0, 4)), do: word != 0
  end

  # The values with the results in place of those that change.
  defp updated([_ | values], [true | changed], [result | results]),
    do: [result | updated(values, changed, results)]

  defp updated([value | values], [false | changed], results),
    do: [value | updated(values, changed, results)]

  defp updated([], [], []), do: []

  # The results of the dispatch before, which nothing else refers to.
  defp free(loop, values) do
    for {ref, true} <- Enum.zip(values, loop.changed), do: Native.call(buf_free(ref))
  end

  defp results(loop, outs, args, refs) do
    {outs, _} =
      Composite.traverse(outs, {args, loop.changed, refs}, fn
        out, {[_ | args], [true | changed], [ref | refs]} ->
          {%{out | data: %B{ref: ref}}, {args, changed, refs}}

        out, {[arg | args], [false | changed], refs} ->
          {%{out | data: arg.data}, {args, changed, refs}}
      end)

    outs
  end

  # The block's default implementation, for a loop of that number of values.
  for count <- 1..@most_values do
    args = Macro.generate_arguments(count, __MODULE__)

    defp default(unquote(count)),
      do: fn loop, unquote_splicing(args) -> loop.evaluate.(unquote(args)) end
  end
end
