defmodule Nx.Vulkan.Compiler.Closure do
  @moduledoc false
  # A part of an expression, such as a loop, as a function of the tensors that it reads, and as a block whose arguments
  # they are. It knows nothing of what the block does.

  alias Nx.Defn.{Composite, Evaluator, Expr, Tree}
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.HookOperation
  alias Nx.Vulkan.VulkanoBackend, as: B

  # Arguments of a block that other backends may run: `default/1` has a clause for each number.
  @most_arguments 24
  # Operations that do more than compute, or that this process must not run to find out.
  @effects [:runtime_call | HookOperation.names()]

  @doc "Whether an expression may become a block of these arguments."
  @spec possible?(Nx.Container.t(), [T.t()]) :: boolean()
  def possible?(expr, args),
    do: arguments?(args) and Composite.reduce(expr, %{}, &effects/2) != :effect

  # Another backend runs a block when all of its arguments are literals, which are tensors of the host.
  defp arguments?(args) do
    length(args) in 1..@most_arguments or
      Enum.any?(args, &(&1.data.op not in [:tensor, :constant]))
  end

  # The expressions without such an operation that were seen, or `:effect`.
  defp effects(_tensor, :effect), do: :effect
  defp effects(%T{data: %Expr{op: op}}, _seen) when op in @effects, do: :effect
  defp effects(%T{data: %Expr{id: id}}, seen) when is_map_key(seen, id), do: seen

  defp effects(%T{data: %Expr{id: id}} = tensor, seen),
    do: Tree.apply_args(tensor, :all, Map.put(seen, id, true), &{&1, effects(&1, &2)}) |> elem(1)

  @doc "The expression's tensor as that block; `block.evaluate` runs it operation by operation."
  @spec block(T.t(), struct(), [T.t()], Nx.Container.t()) :: T.t()
  def block(%T{data: expr} = tensor, block, args, outs),
    do: %{tensor | data: %{expr | op: :block, args: [block, args, outs, default(length(args))]}}

  # The block's default implementation, for that number of arguments.
  for count <- 1..@most_arguments do
    args = Macro.generate_arguments(count, __MODULE__)

    defp default(unquote(count)),
      do: fn block, unquote_splicing(args) -> block.evaluate.(unquote(args)) end
  end

  # A function has at most 255 arguments.
  defp default(_count),
    do: fn _block, _args ->
      raise "a block of more than #{@most_arguments} arguments runs on #{inspect(B)} alone"
    end

  @doc "The tensors that an expression captured, in the order in which it reads them: each trace gives the same program."
  @spec captured(Nx.Container.t()) :: [T.t()]
  def captured(expr), do: expr |> tensors() |> Enum.filter(&(&1.data.op == :tensor))

  @doc "The indices of the parameters that an expression reads."
  @spec parameters(Nx.Container.t()) :: [non_neg_integer()]
  def parameters(expr),
    do: for(%T{data: %Expr{op: :parameter, args: [index]}} <- tensors(expr), do: index)

  # All tensors of the scope, each before those that it reads.
  defp tensors(expr) do
    {_seen, tensors} = Composite.reduce(expr, {%{}, []}, &tensors/2)
    Enum.reverse(tensors)
  end

  defp tensors(%T{data: %Expr{id: id}}, {seen, _tensors} = state) when is_map_key(seen, id),
    do: state

  defp tensors(%T{data: %Expr{id: id}} = tensor, {seen, tensors}) do
    state = {Map.put(seen, id, true), [tensor | tensors]}
    Tree.apply_args(tensor, :scope, state, &{&1, tensors(&1, &2)}) |> elem(1)
  end

  @doc """
  The tensors that the scope of the expression with this id reads and does not compute itself, because others read them,
  too. `readers` are the operations that read each one, by their ids.
  """
  @spec arguments(Nx.Container.t(), reference(), map()) :: [T.t()]
  def arguments(scope, id, readers) do
    state = %{args: [], seen: %{}, readers: readers, inner: %{id => true, outside: false}}
    Enum.reverse(Composite.reduce(scope, state, &argument/2).args)
  end

  # The parameters of a function are its own.
  defp argument(%T{data: %Expr{op: op}}, state) when op in [:constant, :fun], do: state

  defp argument(%T{data: %Expr{id: id}}, %{seen: seen} = state) when is_map_key(seen, id),
    do: state

  defp argument(%T{data: %Expr{id: id, op: op, args: args}} = tensor, state) do
    {inner?, state} = inner?(id, put_in(state.seen[id], true))
    # An element of a tuple is computed where the tuple is.
    {tuple?, state} = if op == :elem, do: inner?(hd(args).data.id, state), else: {true, state}

    if inner? and tuple? and op not in [:parameter, :tensor],
      do: Tree.apply_args(tensor, :scope, state, &{&1, argument(&1, &2)}) |> elem(1),
      else: %{state | args: [tensor | state.args]}
  end

  # Whether nothing outside of the branches reads it.
  defp inner?(id, %{inner: inner} = state) when is_map_key(inner, id), do: {inner[id], state}

  defp inner?(id, state) do
    # Without readers it is a part of an operation that is inside.
    {inner?, state} =
      Enum.reduce(Map.get(state.readers, id, []), {true, state}, fn reader, {inner?, state} ->
        {reader?, state} = inner?(reader, state)
        {inner? and reader?, state}
      end)

    {inner?, put_in(state.inner[id], inner?)}
  end

  @doc "The expression with parameters of these indices in place of these tensors."
  @spec on_arguments(Nx.Container.t(), [{T.t(), non_neg_integer()}]) :: Nx.Container.t()
  def on_arguments(expr, args) do
    known = for {tensor, index} <- args, into: %{}, do: {tensor.data.id, parameter(tensor, index)}
    {expr, _known} = Composite.traverse(expr, known, &on_arguments_each/2)
    expr
  end

  defp on_arguments_each(%T{data: %Expr{op: :constant}} = tensor, known), do: {tensor, known}

  defp on_arguments_each(%T{data: %Expr{id: id} = expr} = tensor, known) do
    case known do
      %{^id => %T{data: data}} ->
        {%{tensor | data: data}, known}

      %{} ->
        {args, known} = Tree.apply_args(tensor, :scope, known, &on_arguments_each/2)
        tensor = %{tensor | data: %{expr | args: args}}
        {tensor, Map.put(known, id, tensor)}
    end
  end

  @doc "The expression with these values in place of its first parameters."
  @spec with_values(Nx.Container.t(), [T.t()]) :: Nx.Container.t()
  def with_values(expr, values) do
    {expr, _done} =
      Composite.traverse(expr, %{}, &with_values_each(&1, List.to_tuple(values), &2))

    expr
  end

  # The parameters of a function are its own.
  defp with_values_each(%T{data: %Expr{op: op}} = tensor, _values, done)
       when op in [:constant, :fun],
       do: {tensor, done}

  defp with_values_each(%T{data: %Expr{op: :parameter, args: [index]}} = tensor, values, done)
       when index < tuple_size(values),
       do: {%{tensor | data: elem(values, index).data}, done}

  defp with_values_each(%T{data: %Expr{id: id} = expr} = tensor, values, done) do
    case done do
      %{^id => data} ->
        {%{tensor | data: data}, done}

      %{} ->
        {args, done} = Tree.apply_args(tensor, :scope, done, &with_values_each(&1, values, &2))
        data = %{expr | id: make_ref(), args: args}
        {%{tensor | data: data}, Map.put(done, id, data)}
    end
  end

  @doc "A parameter like the tensor."
  @spec parameter(T.t(), non_neg_integer()) :: T.t()
  def parameter(value, index), do: Expr.parameter(%{value | names: names(value)}, :root, index)

  @doc "No names, for a tensor that an evaluation is given."
  @spec names(T.t()) :: [nil]
  def names(%T{shape: shape}), do: List.duplicate(nil, tuple_size(shape))

  @doc "The expression with these arguments, or the tuple of its elements, which are like `outs`."
  @spec with_outputs(T.t(), [term()], [T.t()]) :: T.t() | tuple()
  def with_outputs(%T{data: expr} = tensor, args, outs) do
    tensor = %{tensor | data: %{expr | id: make_ref(), args: args}}

    if match?({:tuple, _}, tensor.type) do
      for {out, index} <- Enum.with_index(outs) do
        %{out | data: %{expr | id: make_ref(), op: :elem, args: [tensor, index]}}
      end
      |> List.to_tuple()
    else
      tensor
    end
  end

  @doc "The expression on parameters as a function of the arguments, which are like `values`."
  @spec evaluator(Nx.Container.t(), [T.t()]) :: ([T.t()] -> Nx.Container.t())
  def evaluator(expr, values) do
    evaluate = Evaluator.__compile__(__MODULE__, values, fn _vars -> expr end, [])

    fn tensors ->
      [result] =
        Nx.with_default_backend(B, fn -> evaluate.([for(t <- tensors, do: fn -> t end)]) end)

      result
    end
  end
end
