defmodule Nx.Vulkan.Chain.Lowering do
  @moduledoc false
  # From a log-density to the steps of a chain kernel: it traces the function, differentiates it, and has
  # `ProgramRecorder` keep the programs of its operations. What becomes of the steps is decided in
  # src/program/emit/chain.
  #
  # The position is one vector within the kernel. The log-density gets its parts in the shapes of the template.

  alias Nx.Defn.{Composite, Expr, Tree}
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Movement, ProgramRecorder, Storage}
  alias Nx.Vulkan.Chain.Differentiable
  alias Nx.Vulkan.Compiler.{Closure, LoopUnrolling, Simplification}
  alias Nx.Vulkan.HookOperation
  alias Nx.Vulkan.VulkanoBackend, as: B

  # Operations that no chain kernel has: they do more than compute, or need an order of all elements.
  @unsupported [
    :sort,
    :argsort,
    :conv,
    :fft,
    :ifft,
    :while,
    :cond,
    :reduce,
    :window_reduce,
    :window_sum,
    :window_product,
    :window_max,
    :window_min,
    :window_scatter_max,
    :window_scatter_min,
    :runtime_call
    | HookOperation.names()
  ]

  @typedoc """
  The argument of `chain_new`, and the tensors that the log-density captured, by reference and type. The operands
  of a kernel are the position, the leaves of the data, and these.
  """
  @type t :: {steps :: tuple(), captured :: [{reference(), Nx.Type.t()}]}

  @doc "The log-density's steps; `q` and `data` are templates."
  @spec lower(fun(), Nx.Container.t(), Nx.Container.t(), Nx.Type.t()) ::
          {:ok, t()} | {:error, String.t()}
  def lower(logp, q, data, type) do
    leaves = Composite.flatten_list([q])
    vector = Nx.template({Enum.sum(Enum.map(leaves, &Nx.size/1))}, type)
    data_leaves = Composite.flatten_list([data])

    with {:ok, expr} <- differentiated(logp, q, vector, data, type),
         :ok <- supported(expr) do
      params = for leaf <- [vector | data_leaves], do: %{leaf | data: %B{ref: make_ref()}}
      evaluate = Closure.evaluator(expr, params)

      with {:ok, results, steps} <- ProgramRecorder.record(fn -> evaluate.(params) end, :chain),
           do: {:ok, terms(params, results, steps)}
    end
  end

  ## Expressions

  # `{log-density, gradient}` of the vector and the leaves of the data.
  defp differentiated(logp, q, vector, data, type) do
    density = fn parts, data ->
      try do
        logp.(parts, data)
      rescue
        # The function's own errors are its caller's.
        error -> throw({__MODULE__, error, __STACKTRACE__})
      end
      |> scalar!()
      |> Nx.as_type(type)
      |> LoopUnrolling.unroll()
      |> Differentiable.rewrite()
    end

    whole = fn vector, data ->
      {value, gradient} = Nx.Defn.value_and_grad(parts(vector, q), &density.(&1, data))
      {value, flat(gradient, type)}
    end

    {:ok, whole |> Nx.Defn.debug_expr_apply([vector, data]) |> Simplification.simplify()}
  rescue
    error -> {:error, Exception.message(error)}
  catch
    {__MODULE__, error, stacktrace} -> reraise error, stacktrace
  end

  defp scalar!(%T{shape: {}, type: {kind, _}, vectorized_axes: []} = value)
       when kind in [:f, :bf, :f8],
       do: value

  defp scalar!(other) do
    error = ArgumentError.exception("logp: expected a float scalar, got: #{inspect(other)}")
    throw({__MODULE__, error, []})
  end

  @doc "The parts of a vector, or of the last axis of a tensor, in the shapes of the template's leaves."
  @spec parts(T.t(), Nx.Container.t()) :: Nx.Container.t()
  def parts(%T{shape: shape} = vector, template) do
    axis = tuple_size(shape) - 1
    leading = shape |> Tuple.delete_at(axis) |> Tuple.to_list()

    {parts, _} =
      Composite.traverse(template, 0, fn leaf, start ->
        size = Nx.size(leaf)
        shape = List.to_tuple(leading ++ Tuple.to_list(leaf.shape))

        part =
          if size == elem(vector.shape, axis),
            do: vector,
            else: Nx.slice_along_axis(vector, start, size, axis: axis)

        {Nx.reshape(part, shape, names: List.duplicate(nil, length(leading)) ++ leaf.names),
         start + size}
      end)

    parts
  end

  @doc "The leaves of a container as one vector of that type, along the last axis; `leading` are the axes before."
  @spec flat(Nx.Container.t(), Nx.Type.t(), [non_neg_integer()]) :: T.t()
  def flat(container, type, leading \\ []) do
    leaves =
      for leaf <- Composite.flatten_list([container]) do
        size = div(Nx.size(leaf), Enum.product(leading))
        leaf |> Nx.as_type(type) |> Nx.reshape(List.to_tuple(leading ++ [size]), names: nil)
      end

    case leaves do
      [leaf] -> leaf
      leaves -> Nx.concatenate(leaves, axis: length(leading))
    end
  end

  defp supported(expr) do
    case Composite.reduce(expr, %{}, &unsupported/2) do
      op when is_atom(op) -> {:error, "#{op} is not among the operations of chain kernels"}
      _seen -> :ok
    end
  end

  # The expressions that were seen, or the first operation that is not supported.
  defp unsupported(_tensor, op) when is_atom(op), do: op
  defp unsupported(%T{data: %Expr{op: op}}, _seen) when op in @unsupported, do: op
  defp unsupported(%T{data: %Expr{id: id}}, seen) when is_map_key(seen, id), do: seen

  defp unsupported(%T{data: %Expr{id: id}} = tensor, seen) do
    Tree.apply_args(tensor, :scope, Map.put(seen, id, true), &{&1, unsupported(&1, &2)})
    |> elem(1)
  end

  ## Steps

  defp terms(params, {logp, gradient}, steps) do
    refs = Enum.map(params, & &1.data.ref)
    made = for {_, _, _, ref, _} <- steps, uniq: true, do: ref
    {logp, steps} = made(logp, made, steps)
    {gradient, steps} = made(gradient, made, steps)
    known = MapSet.new(refs ++ made ++ [logp, gradient])
    captured = captured(steps, known)
    operands = refs ++ Enum.map(captured, &elem(&1, 0))
    numbers = Enum.uniq(operands ++ made ++ [logp, gradient]) |> Enum.with_index() |> Map.new()
    types = Enum.map(params, & &1.type) ++ Enum.map(captured, &elem(&1, 1))
    slot = &Map.fetch!(numbers, &1)
    [%T{shape: {d}} | _] = params

    matrices =
      for {{_, _, _, _, {:matrix, operation}}, step} <- Enum.with_index(steps),
          do: {step, Tuple.to_list(operation)}

    terms =
      {Enum.map(steps, &numbered(&1, slot)), matrices, types, slot.(logp), slot.(gradient), d}

    {terms, captured}
  end

  # The reference of a result, which a step makes: of what is an operand or a number, a copy is made.
  defp made(%T{data: %B{ref: ref}, type: type, shape: shape} = tensor, made, steps) do
    if ref in made do
      {ref, steps}
    else
      copy = make_ref()
      stored = Movement.storage_type(type)
      operand = tensor |> Storage.operand() |> put_elem(1, stored)
      {copy, steps ++ [{[{:as_type, stored, [0]}], [operand], shape, copy, nil}]}
    end
  end

  # The references that steps read and nothing makes, with their types: one that computes says more than one that moves.
  defp captured(steps, known) do
    read =
      for {_, inputs, _, _, _} <- steps,
          input <- inputs,
          ref = elem(input, 0),
          is_reference(ref) and ref not in known,
          do: {ref, elem(input, 1)}

    for {ref, types} <- Enum.group_by(read, &elem(&1, 0), &elem(&1, 1)),
        do: {ref, Enum.find(types, hd(types), fn {kind, _} -> kind not in [:u, :s] end)}
  end

  defp numbered({nodes, inputs, shape, ref, view}, slot) do
    inputs =
      for input <- inputs do
        case elem(input, 0) do
          :scalar -> input
          ref -> put_elem(input, 0, slot.(ref))
        end
      end

    {nodes, inputs, shape, slot.(ref), if(not match?({:matrix, _}, view), do: view)}
  end
end
