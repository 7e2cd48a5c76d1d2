defmodule Nx.Vulkan.Compiler.TraceCache do
  @moduledoc false
  # The traces of functions that later calls reuse. It owns how many are kept and which are evicted; it runs none
  # and does not know what a trace is made of.
  #
  # Traces are persistent terms, which are read without a copy. An atomic beside each has the time of its last use,
  # so a look-up takes no lock. Two processes that trace the same function at the same time both do it: neither waits
  # for the other, and a process that dies meanwhile leaves nothing behind.
  #
  # Each process remembers the traces that it found last: keys are compared in a fifth of the time that hashing one takes.

  import Nx.Vulkan.HookOperation, only: [is_hook: 1]

  alias Nx.Defn.{Composite, Expr, Tree}
  alias Nx.Tensor, as: T

  require Nx.Vulkan.Native, as: Native

  @most_kept 1024
  # The BEAM looks at all processes when it erases a persistent term, so evictions are rare and of several.
  @evicted_at_once 64
  # Traces that a process remembers: those of a loop over a few definitions.
  @most_remembered 4
  # Elements of all tensors that a kept trace holds.
  @most_elements 4096
  @on_load :make_counter

  @doc false
  def make_counter do
    with nil <- :persistent_term.get(__MODULE__, nil),
         do: :persistent_term.put(__MODULE__, :counters.new(1, []))
  end

  @doc "The trace that is kept for the key, or `nil`."
  @spec get(term()) :: term()
  def get(key) do
    remembered = Process.get(__MODULE__, [])

    with {_key, last_use, trace} <- remembered(remembered, key) || find(key, remembered) do
      touch(last_use)
      trace
    end
  end

  defp remembered([{key, _last_use, _trace} = found | _], key), do: found
  defp remembered([_other | others], key), do: remembered(others, key)
  defp remembered([], _key), do: nil

  defp find(key, remembered) do
    with {last_use, trace} <- :persistent_term.get({__MODULE__, key}, nil) do
      found = {key, last_use, trace}
      Process.put(__MODULE__, [found | Enum.take(remembered, @most_remembered - 1)])
      found
    end
  end

  @doc """
  Keeps the trace for calls with an equal key, in place of the least recently used ones where there are too many.
  """
  @spec put(term(), term()) :: :ok
  def put(key, trace) do
    last_use = :atomics.new(1, [])
    touch(last_use)
    :persistent_term.put({__MODULE__, key}, {last_use, trace})
    kept = :persistent_term.get(__MODULE__)
    :counters.add(kept, 1, 1)
    if :counters.get(kept, 1) > @most_kept, do: evict(kept)
    :ok
  end

  defp touch(last_use), do: :atomics.put(last_use, 1, System.monotonic_time())

  defp evict(kept) do
    traces =
      for {{__MODULE__, _key} = name, {last_use, _trace}} <- :persistent_term.get(),
          do: {:atomics.get(last_use, 1), name}

    excess = max(length(traces) - @most_kept, 0)
    {evicted, left} = traces |> Enum.sort() |> Enum.split(excess + @evicted_at_once)
    for {_last_use, name} <- evicted, do: :persistent_term.erase(name)
    # Counted afresh, as two processes may have put the same key.
    :counters.put(kept, 1, length(left))
  end

  @doc """
  Whether a trace may be kept: neither its key nor the expression, as the function gave it, holds device memory
  of the caller or large tensors. What a function closes over counts.
  """
  @spec keeps?(term(), Nx.Container.t()) :: boolean()
  def keeps?(key, expr) do
    not device_memory?(key) and is_tuple(Composite.reduce(expr, {%{}, 0}, &expression/2))
  end

  # The operations that were seen and the elements of all tensors, or `:refused`.
  defp expression(_tensor, :refused), do: :refused

  defp expression(%T{data: %Expr{id: id}}, {seen, _elements} = state) when is_map_key(seen, id),
    do: state

  defp expression(%T{data: %Expr{id: id, op: op, args: args}} = tensor, {seen, elements}) do
    elements = if op == :tensor, do: elements + Nx.size(tensor), else: elements

    if elements > @most_elements or device_memory?(captured(op, args)) do
      :refused
    else
      state = {Map.put(seen, id, true), elements}
      Tree.apply_args(tensor, :all, state, &{&1, expression(&1, &2)}) |> elem(1)
    end
  end

  # What an operation has besides expressions and options. Nx lets a definition compute with captured tensors of the host only.
  defp captured(op, [_expr, callback, _template, _ref]) when is_hook(op), do: callback
  defp captured(:runtime_call, [_expr, fun, _template, options]), do: {fun, options}
  defp captured(:block, [struct, _args, _expr, fun]), do: {struct, fun}
  defp captured(:metadata, [_expr, metadata]), do: metadata
  defp captured(_op, _args), do: nil

  defp device_memory?([head | tail]), do: device_memory?(head) or device_memory?(tail)

  defp device_memory?(tuple) when is_tuple(tuple),
    do: tuple |> Tuple.to_list() |> device_memory?()

  # Reached by expression/2, once for all that refer to it.
  defp device_memory?(%Expr{}), do: false
  defp device_memory?(map) when is_map(map), do: map |> :maps.to_list() |> device_memory?()

  defp device_memory?(fun) when is_function(fun) do
    {:env, env} = Function.info(fun, :env)
    device_memory?(env)
  end

  defp device_memory?(ref) when is_reference(ref) do
    is_integer(Native.call(buf_byte_size(ref)))
  rescue
    # A reference to something else.
    ArgumentError -> false
  end

  defp device_memory?(_term), do: false
end
