defmodule Nx.Vulkan.MutatedCallTest do
  @moduledoc """
  The NIF calls that operations and definitions make, with their arguments changed at random: each gives an answer or raises
  `ArgumentError`, and the device computes as before.
  """

  # Calls are traced.
  use Nx.Vulkan.Test.Case, async: false

  import Nx.Defn

  alias Nx.Vulkan.Chain
  alias Nx.Vulkan.Test.Definitions
  require Nx.Vulkan.Native, as: Native

  @definitions 12
  # Of those that are recorded of each NIF.
  @most_recorded 60
  @mutated_calls 3000

  # They free what other calls read, and change what all processes see; the last one is no NIF.
  @left_out [:buf_free, :reset, :profile_start, :profile_stop, :again]

  @integers [0, 1, -1, 2, 3, 5, 7, 31, 255, 256, 65_536, 2 ** 31 - 1, 2 ** 31, 2 ** 32, 2 ** 40] ++
              [2 ** 62, 2 ** 63 - 1, 2 ** 63, 2 ** 64, 2 ** 70, -(2 ** 31), -(2 ** 63)]
  @atoms [nil, true, false, :add, :sum, :reduce_max, :argmax, :iota, :gather, :as_type] ++
           [:sort, :f, :s, :u, :bf, :c, :none]

  test "no call with arguments of other calls, or that make no sense, is the last one" do
    calls = recorded(&operations/0)
    assert map_size(calls) > 25
    references = calls |> Map.values() |> references([]) |> Enum.uniq()
    names = Map.keys(calls)

    for _ <- 1..@mutated_calls do
      name = Generators.pick(names)
      args = mutated(Generators.pick(calls[name]), references)
      # What a call gives is garbage when its process ends.
      answer = Task.await(Task.async(fn -> answer(name, args) end), 60_000)
      refute match?({:raised, _}, answer), "#{inspect(answer)}: #{inspect({name, args})}"
    end

    x = to_device(Nx.iota({3, 3}, type: :f32))
    assert Nx.to_flat_list(Nx.dot(x, x)) == [15, 18, 21, 42, 54, 66, 69, 90, 111]
  end

  defp answer(name, args) do
    dirty = :"#{name}_dirty"
    names = {name, if(function_exported?(Native, dirty, length(args)), do: dirty, else: name)}
    Native.again(apply(Native, name, args), names, args)
  rescue
    ArgumentError -> :refused
    error -> {:raised, error}
  end

  ## Calls to change

  defn attention(x) do
    scores = Nx.dot(x, [2], [0], x, [2], [0]) * 0.5
    weights = Nx.exp(scores - Nx.reduce_max(scores, axes: [-1], keep_axes: true))
    Nx.dot(weights / Nx.sum(weights, axes: [-1], keep_axes: true), [2], [0], x, [1], [0])
  end

  defn doubled(x) do
    {x, _} = while({x, i = 0}, i < 5 and Nx.any(x < 100), do: {x * 2 + Nx.sum(x), i + 1})
    x
  end

  defp operations do
    for _ <- 1..@definitions do
      {steps, inputs} = Definitions.draw({:f, 32}, &Definitions.exact/1)
      compiled = Nx.Vulkan.jit(Definitions.fun(steps))
      for _ <- 1..3, do: compiled.(Nx.backend_copy(List.to_tuple(inputs), VulkanoBackend))
    end

    tensor = &to_device(Generators.tensor(&1, {:f, 32}, {:float, -2.0, 2.0}))
    [x, images, heads] = [tensor.({5, 5}), tensor.({2, 3, 8, 8}), tensor.({2, 4, 8})]
    definite = x |> Nx.dot(Nx.transpose(x)) |> Nx.add(Nx.eye(5))
    at = to_device(Nx.tensor([[0, 1], [3, 3]]))
    updates = tensor.({2})
    for _ <- 1..3, fun <- [&attention/1, &doubled/1], do: Nx.Vulkan.jit(fun).(heads)

    Nx.LinAlg.cholesky(definite) |> Nx.LinAlg.triangular_solve(x)
    for fun <- [&Nx.LinAlg.qr/1, &Nx.LinAlg.svd/1, &Nx.LinAlg.lu/1, &Nx.fft/1], do: fun.(x)
    Nx.LinAlg.eigh(definite)

    for fun <- [&Nx.sort/1, &Nx.argsort/1, &Nx.cumulative_product/1, &Nx.as_type(&1, :u4)],
        do: fun.(x)

    Nx.conv(images, tensor.({4, 3, 3, 3}), padding: :same, strides: [2, 1])
    Nx.window_scatter_max(images, tensor.({2, 3, 4, 4}), 0.0, {1, 1, 2, 2}, strides: [1, 1, 2, 2])
    for fun <- [&Nx.indexed_add/3, &Nx.indexed_put/3], do: fun.(x, at, updates)
    Nx.pad(Nx.gather(x, at), 0.0, [{1, 2, 1}])
    Nx.reduce(x, 0.0, [axes: [0]], &Nx.add/2)
    Nx.to_number(x[0][0])

    {:ok, chain} =
      Chain.compile(
        fn q, data -> Nx.sum(Nx.multiply(q, data)) end,
        Nx.template({4}, :f32),
        updates[[0]],
        type: :f32
      )

    {:ok, _states} =
      Chain.leapfrog(chain, tensor.({4}), tensor.({4}), updates[[0]], steps: 2, step_size: 0.1)
  end

  # The arguments of the NIF calls that `fun` makes, by the NIFs' names.
  defp recorded(fun) do
    tracer = spawn_link(fn -> collect(%{}) end)
    :erlang.trace_pattern({Native, :_, :_}, true, [:local])
    :erlang.trace(self(), true, [:call, {:tracer, tracer}])

    try do
      fun.()
    after
      :erlang.trace(self(), false, [:call])
      :erlang.trace_pattern({Native, :_, :_}, false, [:local])
    end

    delivered = :erlang.trace_delivered(self())
    receive do: ({:trace_delivered, _pid, ^delivered} -> send(tracer, {:calls, self()}))
    receive do: ({:calls, calls} -> calls)
  end

  defp collect(calls) do
    receive do
      {:trace, _pid, :call, {Native, name, args}} ->
        known = Map.get(calls, name, [])

        if nif?(name, length(args)) and length(known) < @most_recorded,
          do: calls |> Map.put(name, [args | known]) |> collect(),
          else: collect(calls)

      {:calls, pid} ->
        send(pid, {:calls, calls})
    end
  end

  # Of those that may be deferred the first call, not its twin on a dirty scheduler.
  defp nif?(name, arity) do
    function_exported?(Native, name, arity) and name not in @left_out and
      not String.ends_with?(Atom.to_string(name), "_dirty")
  end

  defp references(term, found) when is_reference(term), do: [term | found]
  defp references([head | tail], found), do: references(tail, references(head, found))
  defp references(term, found) when is_tuple(term), do: references(Tuple.to_list(term), found)
  defp references(_term, found), do: found

  ## Changes

  # One to three terms of the arguments are others.
  defp mutated(args, references) do
    for _ <- 1..Generators.pick([1, 1, 1, 2, 3]), reduce: args do
      args ->
        {changed, _left} = change(args, :rand.uniform(size(args)) - 1, references)
        if is_list(changed) and length(changed) == length(args), do: changed, else: args
    end
  end

  defp size(term) when is_tuple(term), do: size(Tuple.to_list(term))
  defp size(term) when is_list(term), do: 1 + Enum.sum_by(term, &size/1)
  defp size(_term), do: 1

  # Goes through the terms to the one of that number.
  defp change(term, left, _references) when left < 0, do: {term, left}
  defp change(term, 0, references), do: {other(term, references), -1}

  defp change(term, left, references) when is_tuple(term) do
    {list, left} = term |> Tuple.to_list() |> change(left, references)
    {List.to_tuple(list), left}
  end

  defp change(term, left, references) when is_list(term),
    do: Enum.map_reduce(term, left - 1, &change(&1, &2, references))

  defp change(term, left, _references), do: {term, left - 1}

  defp other(term, _references) when is_integer(term) do
    [Generators.pick(@integers), term + 1, term - 1, term * 2, -term, :a, nil, 1.5]
    |> Generators.pick()
  end

  defp other(term, references) when is_reference(term) do
    [nil, make_ref(), 0, {} | List.duplicate(Generators.pick(references), 8)]
    |> Generators.pick()
  end

  defp other(term, _references) when is_atom(term), do: Generators.pick([0, "" | @atoms])

  defp other(term, _references) when is_float(term),
    do: Generators.pick([0.0, -term, 1.0e308, 0, nil])

  defp other(term, _references) when is_binary(term) do
    [<<>>, <<0>>, term <> term, binary_part(term, 0, div(byte_size(term), 2)), nil]
    |> Generators.pick()
  end

  defp other(term, _references) when is_tuple(term) do
    list = Tuple.to_list(term)

    [tl(list ++ [0]), list ++ [0], Enum.reverse(list)]
    |> Enum.map(&List.to_tuple/1)
    |> Enum.concat([{}, nil, list])
    |> Generators.pick()
  end

  defp other([], references), do: Generators.pick([[0], [Generators.pick(references)], nil, {}])
  defp other([_ | tail] = list, _references), do: Generators.pick([tail, list ++ list, [], nil])
  defp other(_term, _references), do: nil
end
