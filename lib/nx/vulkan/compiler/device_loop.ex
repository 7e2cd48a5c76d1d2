defmodule Nx.Vulkan.Compiler.DeviceLoop do
  @moduledoc false
  # A `while` or a `cond` of small tensors as a block that the device runs as a whole: nothing is read in between.
  # It records what the block computes and runs dispatches until it has ended. Which ones are small, and how
  # much a dispatch does, is decided in src/tuning/device_loop.rs.
  #
  # The conditions and the bodies are evaluated once, on tensors without memory, while `ProgramRecorder` keeps the
  # programs of their operations. A block within another is recorded as a statement of it. What needs more than
  # programs stays what it was: with hooks, with a `sort`, with indices that have to be checked. So does what the
  # device refuses.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Defn.{Composite, Expr, Tree}
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{ProgramRecorder, Storage}
  alias Nx.Vulkan.Compiler.{Closure, LoopBound, WorkgroupLowering}
  alias Nx.Vulkan.Error
  alias Nx.Vulkan.VulkanoBackend, as: B

  @enforce_keys [:statement, :bound, :evaluate]
  defstruct [:statement, :bound, :evaluate, :ref, :captured, :sources]

  @typedoc """
  `statement` has the functions of a `while` or of a `cond`, from arguments to tensors, and `evaluate` runs it operation
  by operation. `bound` says how often conditions of loops are evaluated at most, where that is known. `ref` is the
  native program, `captured` are the tensors that it reads besides its arguments, and `sources` says of each result
  whether the program makes it or it is an argument.
  """
  @type t :: %__MODULE__{
          statement: statement(),
          bound: non_neg_integer() | nil,
          evaluate: evaluator(),
          ref: reference() | nil,
          captured: [reference()] | nil,
          sources: [:made | {:argument, non_neg_integer()}] | nil
        }

  @typep evaluator :: ([T.t()] -> Nx.Container.t())
  @type statement ::
          {:while, values :: pos_integer(), condition :: evaluator(), body :: evaluator()}
          | {:cond, clauses :: [{evaluator(), evaluator()}], last :: evaluator()}

  @doc """
  The `while` as a block, or as it is. `loop` has its operations in groups, `scope` are its condition and its body
  without groups. The arguments are its initial values and the tensors that it captured.
  """
  @spec lower_while(T.t(), {T.t(), Nx.Container.t()}) :: T.t()
  def lower_while(%T{data: %Expr{args: [initial, _arg, pred, block]}} = loop, scope) do
    values = Composite.flatten_list([initial])
    count = length(values)
    args = values ++ Closure.captured({pred, block})

    lower(loop, {pred, block}, args, initial, fn ->
      known = for {arg, index} <- Enum.with_index(args), index >= count, do: {arg, index}
      {pred, block} = Closure.on_arguments({pred, block}, known)
      {initial, _} = Composite.traverse(initial, 0, &{Closure.parameter(&1, &2), &2 + 1})
      [_initial | rest] = loop.data.args

      %__MODULE__{
        statement: {:while, count, Closure.evaluator(pred, args), Closure.evaluator(block, args)},
        bound: LoopBound.conditions(values, scope, {bounds(pred), bounds(block)}),
        evaluate: Closure.evaluator(Closure.with_outputs(loop, [initial | rest], values), args)
      }
    end)
  end

  @doc """
  The `cond` as a block, or as it is, with its operations in groups. `readers` are the operations that read each
  one, by their ids: what others read, too, is an argument.
  """
  @spec lower_cond(T.t(), %{reference() => [reference() | :outside]}) :: T.t()
  def lower_cond(%T{data: %Expr{id: id, args: [clauses, last]}} = branches, readers) do
    scope = {List.to_tuple(Enum.flat_map(clauses, &Tuple.to_list/1)), last}
    args = Closure.arguments(scope, id, readers)

    lower(branches, scope, args, last, fn ->
      {scope, last} = Closure.on_arguments(scope, Enum.with_index(args))
      clauses = for [pred, body] <- Enum.chunk_every(Tuple.to_list(scope), 2), do: {pred, body}
      bounds = bounds({scope, last})
      outs = Composite.flatten_list([last])

      %__MODULE__{
        statement:
          {:cond,
           for(
             {pred, body} <- clauses,
             do: {Closure.evaluator(pred, args), Closure.evaluator(body, args)}
           ), Closure.evaluator(last, args)},
        bound: if(nil not in bounds, do: Enum.sum(bounds)),
        evaluate: Closure.evaluator(Closure.with_outputs(branches, [clauses, last], outs), args)
      }
    end)
  end

  defp lower(tensor, scope, args, outs, new) do
    with true <- Closure.possible?(scope, args),
         {:ok, block} <- native(new.(), outs, args) do
      Closure.block(tensor, block, args, outs)
    else
      _ -> tensor
    end
  end

  # The bounds of the blocks in an expression; those within a block are part of its own.
  defp bounds(expr), do: Composite.reduce(expr, {[], %{}}, &bounds/2) |> elem(0)

  defp bounds(%T{data: %Expr{id: id}}, {_bounds, seen} = state) when is_map_key(seen, id),
    do: state

  defp bounds(%T{data: %Expr{id: id, op: op, args: args}} = tensor, {bounds, seen}) do
    bounds =
      case {op, args} do
        {:block, [%__MODULE__{bound: bound} | _]} -> [bound | bounds]
        _ -> bounds
      end

    Tree.apply_args(tensor, :scope, {bounds, Map.put(seen, id, true)}, &{&1, bounds(&1, &2)})
    |> elem(1)
  end

  ## Recording

  # The block with its native program.
  defp native(block, outs, values) do
    operands =
      for value <- values, do: %{value | names: Closure.names(value), data: %B{ref: make_ref()}}

    record = fn -> Composite.flatten_list([record(block, outs, operands)]) end

    with {:ok, results, statements} <- ProgramRecorder.record(record),
         refs = Enum.map(operands, & &1.data.ref),
         made = Enum.reject(results, &(&1.data.ref in refs)),
         {terms, captured} = WorkgroupLowering.terms(statements, refs, made),
         {:ok, ref} <- Native.call(loop_new(terms, Storage.default_device())) do
      sources = for result <- results, do: source(Enum.find_index(refs, &(&1 == result.data.ref)))
      {:ok, %{block | ref: ref, captured: captured, sources: sources}}
    end
  end

  defp source(nil), do: :made
  defp source(index), do: {:argument, index}

  # Adds the statement to the recording, and gives its results.
  defp record(%__MODULE__{statement: {:while, count, condition, body}}, outs, args) do
    {values, captured} = Enum.split(args, count)

    params =
      for value <- values, do: %{value | names: Closure.names(value), data: %B{ref: make_ref()}}

    {predicate, condition} = ProgramRecorder.nested(fn -> condition.(params ++ captured) end)

    {next, body} =
      ProgramRecorder.nested(fn -> Composite.flatten_list([body.(params ++ captured)]) end)

    ProgramRecorder.add(
      WorkgroupLowering.while(values, params, {predicate, condition}, {next, body})
    )

    value = fn [value, param, next] -> if param.data == next.data, do: value, else: param end
    put_data(outs, Enum.zip_with([values, params, next], value))
  end

  defp record(%__MODULE__{statement: {:cond, clauses, last}}, outs, args) do
    results =
      for out <- Composite.flatten_list([outs]),
          do: %{out | names: Closure.names(out), data: %B{ref: make_ref()}}

    {statements, []} = branch(clauses, last, args, results)
    ProgramRecorder.add(statements)
    put_data(outs, results)
  end

  # Statements, and their values with the results that they are copied to.
  defp branch([{condition, body} | clauses], last, args, results) do
    {predicate, statements} = ProgramRecorder.nested(fn -> condition.(args) end)
    then = branch([], body, args, results)
    {statements ++ [{:branch, predicate, then, branch(clauses, last, args, results)}], []}
  end

  defp branch([], body, args, results) do
    {values, statements} = ProgramRecorder.nested(fn -> Composite.flatten_list([body.(args)]) end)
    {statements, Enum.zip(values, results)}
  end

  defp put_data(outs, tensors) do
    {outs, []} =
      Composite.traverse(outs, tensors, fn out, [tensor | rest] ->
        {%{out | data: tensor.data}, rest}
      end)

    outs
  end

  ## Running

  @spec run(t(), Nx.Container.t(), [T.t()]) :: Nx.Container.t()
  def run(%__MODULE__{} = block, outs, args) do
    cond do
      ProgramRecorder.recording?() -> record(block, outs, args)
      on_host?(block, args) -> block.evaluate.(args)
      true -> dispatch(block, outs, args)
    end
  end

  # Integers that the host holds stay there, and what it decides by them takes no kernel.
  defp on_host?(%__MODULE__{statement: {:cond, _, _}}, args) do
    Enum.all?(args, fn %T{type: {kind, _}, data: data} ->
      kind in [:s, :u] and match?(%B{scalar: {_, _}}, data)
    end)
  end

  defp on_host?(_block, _args), do: false

  defp dispatch(block, outs, args) do
    case dispatch(block, Enum.map(args, &operand/1) ++ block.captured, nil, 0) do
      {:ok, results} -> results(block, outs, args, results)
      {:error, :unsupported, _reason} -> block.evaluate.(args)
      error -> Error.raise!(elem(block.statement, 0), error)
    end
  end

  # What the program takes: a reference, or the bytes of a number.
  defp operand(tensor) do
    case Storage.operand(tensor) do
      {:scalar, _type, binary} -> binary
      {ref, _type, _shape} -> ref
    end
  end

  # Dispatches until the program has ended.
  defp dispatch(%{ref: ref, bound: bound} = block, operands, state, index) do
    with {:ok, {state, unfinished, results}} <-
           Native.call(loop_run(ref, operands, state, {index, bound})) do
      case bound == nil and unfinished?(unfinished) do
        false ->
          {:ok, results}

        true ->
          for result <- results, do: Native.call(buf_free(result))
          dispatch(block, operands, state, index + 1)

        error ->
          error
      end
    end
  end

  defp unfinished?(ref) do
    with {:ok, <<word::32-native>>} <- Native.call(buf_read(ref, 0, 4)), do: word != 0
  end

  defp results(block, outs, args, refs) do
    {tensors, []} =
      Enum.map_reduce(block.sources, refs, fn
        :made, [ref | refs] -> {%{data: %B{ref: ref}}, refs}
        {:argument, index}, refs -> {Enum.fetch!(args, index), refs}
      end)

    put_data(outs, tensors)
  end
end
