defmodule Nx.Vulkan.Compiler.WorkgroupLowering do
  @moduledoc false
  # Makes of recorded statements the terms of a workgroup program. It decides where values are and which steps of a loop
  # are computed once; it evaluates nothing and does not know expressions.
  #
  # Slots are the program's tensors by number: the operands, the results, and scratch memory. A value that a loop changes
  # has two slots of scratch, its own and that of its next value, which change places after each iteration.
  #
  # Recorded statements name tensors by reference: the steps of `ProgramRecorder`, and
  #
  #     {:alias, reference, reference}                    the first is another name of the second
  #     {:while, condition, predicate, body, pairs}       `pairs` are the values that change, each with its next value
  #     {:branch, predicate, {then, pairs}, {otherwise, pairs}}  `pairs` are values of a branch, each with its result

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Movement, ProgramRecorder, Storage}
  alias Nx.Vulkan.VulkanoBackend, as: B

  @type statement ::
          ProgramRecorder.step()
          | {:alias, reference(), reference()}
          | {:while, [statement()], T.t(), [statement()], [{T.t(), T.t()}]}
          | {:branch, T.t(), branch(), branch()}
  @type branch :: {[statement()], [{T.t(), T.t()}]}

  ## Loops

  @doc """
  The statements of a loop: `args` are its initial values, `params` what its condition and its body know them by. What
  is the same in each iteration is computed before the loop.
  """
  @spec while([T.t()], [T.t()], {T.t(), [statement()]}, {[T.t()], [statement()]}) :: [statement()]
  def while(args, params, {predicate, condition}, {next, body}) do
    pairs =
      for {param, next} <- Enum.zip(params, next), param.data != next.data, do: {param, next}

    changed = MapSet.new(pairs, fn {param, _next} -> param.data.ref end)

    starts =
      for {arg, %T{data: %B{ref: ref}} = param} <- Enum.zip(args, params) do
        if is_reference(arg.data.ref) and ref not in changed,
          do: {:alias, ref, arg.data.ref},
          else: copy(Storage.operand(arg), param, ref)
      end

    variant = Enum.reduce(condition ++ body, changed, &changed/2)
    {before_condition, condition, variant} = hoist(condition, variant)
    {before_body, body, _variant} = hoist(body, variant)
    starts ++ before_condition ++ before_body ++ [{:while, condition, predicate, body, pairs}]
  end

  # The references whose values differ between iterations because loops and branches within change them.
  defp changed({:while, condition, _predicate, body, pairs}, refs) do
    refs = for {%T{data: %B{ref: ref}}, _next} <- pairs, into: refs, do: ref
    Enum.reduce(condition ++ body, refs, &changed/2)
  end

  defp changed({:branch, _predicate, {then, pairs}, {otherwise, other_pairs}}, refs) do
    refs = for {_value, %T{data: %B{ref: ref}}} <- pairs ++ other_pairs, into: refs, do: ref
    Enum.reduce(then ++ otherwise, refs, &changed/2)
  end

  defp changed(_statement, refs), do: refs

  # The statements that compute the same in each iteration, the others, and what these make besides `variant`. Several
  # steps may write one result.
  defp hoist(statements, variant) do
    {hoisted, kept, variant} =
      statements
      |> Enum.chunk_by(&target/1)
      |> Enum.reduce({[], [], variant}, fn [first | _] = chunk, {hoisted, kept, variant} ->
        targets = [target(first)]

        if Enum.any?(targets ++ Enum.flat_map(chunk, &reads/1), &(&1 in variant or &1 == :none)),
          do: {hoisted, [chunk | kept], MapSet.union(variant, made(chunk))},
          else: {[chunk | hoisted], kept, variant}
      end)

    {hoisted |> Enum.reverse() |> Enum.concat(), kept |> Enum.reverse() |> Enum.concat(), variant}
  end

  # What one statement makes, where it computes one result and nothing decides about it.
  defp target({:alias, ref, _other}), do: ref
  defp target({_nodes, _inputs, _shape, ref, _view}) when is_reference(ref), do: ref
  defp target(_statement), do: :none

  ## References

  # All that statements make.
  defp made(statements), do: statements |> Enum.flat_map(&made_by/1) |> MapSet.new()

  defp made_by({:while, condition, _predicate, body, _pairs}),
    do: Enum.flat_map(condition ++ body, &made_by/1)

  defp made_by({:branch, _predicate, then, otherwise}) do
    for {statements, pairs} <- [then, otherwise],
        ref <- Enum.flat_map(statements, &made_by/1) ++ Enum.map(pairs, &elem(&1, 1).data.ref),
        do: ref
  end

  defp made_by(statement), do: [target(statement)]

  # All that a statement reads, with what it reads of its own.
  defp reads({:alias, _ref, other}), do: [other]

  defp reads({:while, condition, predicate, body, pairs}),
    do:
      refs([predicate | Enum.map(pairs, &elem(&1, 1))]) ++
        Enum.flat_map(condition ++ body, &reads/1)

  defp reads({:branch, predicate, {then, pairs}, {otherwise, other_pairs}}) do
    refs([predicate | Enum.map(pairs ++ other_pairs, &elem(&1, 0))]) ++
      Enum.flat_map(then ++ otherwise, &reads/1)
  end

  defp reads({_nodes, inputs, _shape, _ref, _view}),
    do: for(input <- inputs, ref = elem(input, 0), is_reference(ref), do: ref)

  defp refs(tensors), do: for(%T{data: %B{ref: ref}} <- tensors, is_reference(ref), do: ref)

  ## Terms

  @doc """
  The terms of `loop_new` for statements on these operands, and the references of other tensors that they read, which
  are operands, too.
  """
  @spec terms([statement()], [reference()], [T.t()]) :: {tuple(), [reference()]}
  def terms(statements, operands, results) do
    read = Enum.flat_map(statements, &reads/1) ++ refs(results)
    own = statements |> made() |> MapSet.union(MapSet.new(operands))
    captured = read |> Enum.uniq() |> Enum.reject(&(&1 in own))
    first = length(operands) + length(captured)
    numbers = (operands ++ captured) |> Enum.with_index() |> Map.new()
    slots = %{numbers: numbers, count: first + length(results), scratch: first + length(results)}
    {list, slots} = list(statements, slots)

    finish =
      for {result, i} <- Enum.with_index(results),
          do: copy(source(result, slots), result, first + i)

    {{list, finish, {first, length(results)}}, captured}
  end

  defp list(statements, slots), do: Enum.flat_map_reduce(statements, slots, &statement/2)

  defp statement({:alias, ref, other}, slots),
    do: {[], put_in(slots.numbers[ref], Map.fetch!(slots.numbers, other))}

  defp statement({:while, condition, predicate, body, pairs}, slots) do
    {condition, slots} = list(condition, slots)
    {conversion, predicate, slots} = predicate(predicate, slots)
    made = made(body)
    {body, slots} = list(body, slots)
    {copies, swaps, slots} = next(pairs, made, slots)
    {[{:while, condition ++ conversion, predicate, body ++ copies, swaps}], slots}
  end

  defp statement({:branch, predicate, then, otherwise}, slots) do
    {conversion, predicate, slots} = predicate(predicate, slots)
    {then, slots} = branch(then, slots)
    {otherwise, slots} = branch(otherwise, slots)
    {conversion ++ [{:branch, predicate, then, otherwise}], slots}
  end

  defp statement({nodes, inputs, shape, ref, view}, slots) do
    inputs =
      for input <- inputs do
        if is_reference(elem(input, 0)),
          do: put_elem(input, 0, Map.fetch!(slots.numbers, elem(input, 0))),
          else: input
      end

    {slots, slot} = scratch(slots, ref)
    {[{nodes, inputs, shape, slot, view}], slots}
  end

  # The slot and the type of a predicate, which is in scratch memory. A number, or a value that is elsewhere, is copied.
  defp predicate(%T{data: %B{ref: ref}, type: type} = predicate, slots) do
    case slots.numbers do
      %{^ref => slot} when slot >= slots.scratch ->
        {[], {slot, type}, slots}

      %{} ->
        source = source(predicate, slots)
        {slots, slot} = scratch(slots, make_ref())
        {[{[{:as_type, type, [0]}], [source], {}, slot, nil}], {slot, type}, slots}
    end
  end

  # A branch computes its values where the results are, if it can.
  defp branch({statements, pairs}, slots) do
    slots =
      Enum.reduce(pairs, slots, fn {_, %T{data: %B{ref: ref}}}, slots ->
        elem(scratch(slots, ref), 0)
      end)

    {copied, {slots, _made}} =
      Enum.flat_map_reduce(pairs, {slots, made(statements)}, fn {value, result} = pair,
                                                                {slots, made} ->
        slot = Map.fetch!(slots.numbers, result.data.ref)

        if value.data.ref in made,
          do:
            {[],
             {put_in(slots.numbers[value.data.ref], slot), MapSet.delete(made, value.data.ref)}},
          else: {[pair], {slots, made}}
      end)

    {list, slots} = list(statements, slots)

    copies =
      for {value, result} <- copied,
          do: copy(source(value, slots), result, Map.fetch!(slots.numbers, result.data.ref))

    {list ++ copies, slots}
  end

  # Copies of next values that have no slot of their own, and the slots that change places. Those were there before, or
  # are those of two values. `made` are the results of the body that are no next value yet.
  defp next(pairs, made, slots) do
    {terms, {slots, _made}} =
      Enum.map_reduce(pairs, {slots, made}, fn {param, next}, {slots, made} ->
        own = Map.fetch!(slots.numbers, param.data.ref)

        if next.data.ref in made do
          swap = {own, Map.fetch!(slots.numbers, next.data.ref)}
          {{[], swap}, {slots, MapSet.delete(made, next.data.ref)}}
        else
          source = source(next, slots)
          {slots, slot} = scratch(slots, make_ref())
          {{[copy(source, next, slot)], {own, slot}}, {slots, made}}
        end
      end)

    {copies, swaps} = Enum.unzip(terms)
    {Enum.concat(copies), swaps, slots}
  end

  # The slot of a reference, a new one of scratch memory where it has none.
  defp scratch(%{numbers: numbers, count: count} = slots, ref) do
    case numbers do
      %{^ref => slot} -> {slots, slot}
      %{} -> {%{slots | numbers: Map.put(numbers, ref, count), count: count + 1}, count}
    end
  end

  defp source(%T{data: %B{ref: nil}} = number, _slots), do: Storage.operand(number)

  defp source(%T{data: %B{ref: ref}, type: type, shape: shape}, slots),
    do: {Map.fetch!(slots.numbers, ref), type, shape}

  # Copies bits.
  defp copy(operand, %T{type: type, shape: shape}, target) do
    stored = Movement.storage_type(type)
    {[{:as_type, stored, [0]}], [put_elem(operand, 1, stored)], shape, target, nil}
  end
end
