defmodule Nx.Vulkan.DefinitionGraphTest do
  @moduledoc """
  A definition that comes again runs as one graph, and gives the bits that its evaluation gives, whatever its inputs are.
  """

  use Nx.Vulkan.Test.Case, async: true

  import Nx.Defn

  alias Nx.Vulkan.Compiler
  alias Nx.Vulkan.Test.Definitions

  @definitions 40
  # The first is evaluated, the second recorded.
  @calls 4

  defp compiled(fun), do: Nx.Defn.jit(fun, compiler: Compiler)
  defp evaluated(fun), do: Nx.Defn.jit(fun, compiler: Compiler, cache: false)
  defp numbers(tensor), do: Nx.to_flat_list(tensor)

  # The function, called until its definition has a graph.
  defp recorded(fun, args) do
    compiled = compiled(fun)
    for _ <- 1..3, do: apply(compiled, args)
    compiled
  end

  defp step(values) do
    Generators.pick([
      Definitions.elementwise(values),
      Definitions.reduction(values),
      Definitions.other(values)
    ])
  end

  # Other elements for inputs of these shapes and types.
  defp like(inputs) do
    for input <- inputs, into: [] do
      Generators.tensor(input.shape, input.type, {:integer, -9..9})
    end
  end

  test "definitions drawn at random give the same bits on other inputs, in several processes" do
    graphs =
      for n <- 1..@definitions do
        {steps, inputs} =
          Definitions.draw(Generators.pick([{:f, 32}, {:s, 32}, {:u, 8}]), &step/1)

        fun = Definitions.fun(steps)
        {compiled, evaluated} = {compiled(fun), evaluated(fun)}

        inputs =
          for _ <- 1..@calls,
              do: inputs |> like() |> List.to_tuple() |> Nx.backend_copy(VulkanoBackend)

        expected = Enum.map(inputs, &(evaluated.(&1) |> Nx.backend_copy(Nx.BinaryBackend)))
        context = [steps: steps, definition: n]

        for {inputs, expected} <- Enum.zip(inputs, expected) do
          assert_results(compiled.(inputs), expected, context)
          donated = inputs |> Nx.backend_copy(VulkanoBackend) |> donatable()
          assert_results(compiled.(donated), expected, [:donated | context])
        end

        Enum.zip(inputs, expected)
        |> Task.async_stream(fn {inputs, expected} -> {compiled.(inputs), expected} end)
        |> Enum.each(fn {:ok, {results, expected}} ->
          assert_results(results, expected, context)
        end)

        programs(fn -> compiled.(hd(inputs)) end) == 0
      end

    # Those without a loop whose condition is read.
    assert Enum.count(graphs, & &1) > div(@definitions, 3)
  end

  defp assert_results(results, expected, context) do
    for {got, want} <- Enum.zip(Tuple.to_list(results), Tuple.to_list(expected)),
        do: assert_same(got, want, :graph, context)
  end

  test "its kernels are no calls" do
    x = to_device(Nx.iota({3, 4}, type: :f32))
    chain = fn x -> Enum.reduce(1..20, x, fn _, y -> Nx.dot(Nx.tanh(y), Nx.eye(4)) end) end
    compiled = recorded(chain, [x])
    assert programs(fn -> compiled.(x) end) == 0
    assert_same(compiled.(x), host(evaluated(chain).(x)), :chain)
    precompiled = Nx.Defn.compile(chain, [x], compiler: Compiler)
    for _ <- 1..3, do: assert_same(precompiled.(x), host(evaluated(chain).(x)), :chain)
    assert programs(fn -> precompiled.(x) end) == 0
  end

  test "inputs that were one buffer may be two, and the reverse" do
    [a, b] = for k <- [1, 2], do: to_device(Nx.multiply(Nx.iota({5}), k))
    fun = fn x, y -> Nx.subtract(Nx.dot(x, Nx.multiply(y, 2)), y) end
    expected = fn x, y -> numbers(fun.(host(x), host(y))) end

    for calls <- [[{a, a}, {a, b}, {b, b}], [{a, b}, {a, a}, {b, a}]] do
      compiled = compiled(fun)

      for {x, y} <- List.duplicate(hd(calls), 3) ++ calls ++ calls,
          do: assert(numbers(compiled.(x, y)) == expected.(x, y))
    end
  end

  test "numbers of the host are inputs" do
    x = to_device(Nx.tensor([1.0, 2.0]))
    compiled = compiled(fn x, factor, count -> {Nx.multiply(x, factor), Nx.add(count, 1)} end)

    for n <- 1..6 do
      {scaled, next} = compiled.(x, n / 2, n)
      assert numbers(scaled) == [n / 2, n * 1.0]
      assert Nx.to_number(next) == n + 1
    end

    slice = compiled(fn x, start -> Nx.slice(x, [start], [1]) end)
    for start <- [0, 1, 0, 1, 0], do: assert(numbers(slice.(x, start)) == [start + 1.0])

    # What depends on them alone stays on the host.
    next = recorded(fn n -> Nx.add(n, 1) end, [1])
    assert %VulkanoBackend{scalar: {_, _}} = next.(5).data
    assert Nx.to_number(next.(5)) == 6
  end

  test "results are inputs, numbers, captured tensors, or one buffer" do
    x = to_device(Nx.iota({2, 3}))
    captured = Nx.tensor([7, 8])

    fun = fn x, n ->
      y = Nx.add(x, n)

      %{
        input: x,
        number: n,
        five: Nx.tensor(5),
        captured: captured,
        y: y,
        flat: {Nx.reshape(y, {6}), y}
      }
    end

    compiled = compiled(fun)

    for n <- 1..5 do
      results = compiled.(x, n)
      assert_same(results.input, host(x), :input)
      assert Nx.to_number(results.number) == n
      assert Nx.to_number(results.five) == 5
      assert numbers(results.captured) == [7, 8]
      assert numbers(results.y) == Enum.map(0..5, &(&1 + n))
      assert numbers(elem(results.flat, 0)) == numbers(elem(results.flat, 1))
      assert elem(results.flat, 0).shape == {6}
    end
  end

  test "what depends on no input is computed once, and as a result each time" do
    x = to_device(Nx.iota({64, 64}, type: :f32))
    mask = fn -> Nx.greater(Nx.iota({64, 64}, axis: 0), Nx.iota({64, 64}, axis: 1)) end
    masked = fn x -> Nx.dot(x, Nx.sort(Nx.as_type(mask.(), :f32))) end
    compiled = recorded(masked, [x])
    assert programs(fn -> compiled.(x) end) == 0
    assert_same(compiled.(x), host(evaluated(masked).(x)), :dot)

    returned = recorded(fn x -> {Nx.dot(x, x), Nx.sort(mask.())} end, [x])
    [{_, first}, {_, second}] = for _ <- 1..2, do: returned.(x)
    Nx.backend_deallocate(first)
    assert_same(second, Nx.sort(mask.()), :sort)
    {_, third} = returned.(x)
    assert_same(third, Nx.sort(mask.()), :sort)
  end

  test "results have memory of their own" do
    compiled = recorded(fn x -> {Nx.add(x, 1), Nx.dot(x, x)} end, [to_device(Nx.iota({4}))])
    kept = for k <- 0..20, do: compiled.(to_device(Nx.broadcast(k, {4})))

    for {{sum, product}, k} <- Enum.with_index(kept) do
      assert numbers(sum) == List.duplicate(k + 1, 4)
      assert Nx.to_number(product) == 4 * k * k
    end
  end

  test "an input that was deallocated is reported as it is when the definition is evaluated" do
    [x, gone] = for _ <- 1..2, do: to_device(Nx.iota({4}))
    fun = fn x -> Nx.dot(Nx.add(x, 1), x) end
    compiled = recorded(fun, [x])
    Nx.backend_deallocate(gone)

    [error, expected] =
      for f <- [compiled, evaluated(fun)], do: assert_raise(Nx.Vulkan.Error, fn -> f.(gone) end)

    assert error == expected
    assert Nx.to_number(compiled.(x)) == 20
  end

  defn(halved(x), do: while(x, Nx.any(x > 1), do: x / 2))

  defn branches(x, flag) do
    if flag > 0, do: Nx.dot(x, x), else: Nx.sum(x)
  end

  defn(hooked(x), do: io_hook(x * 2, :seen) + 1)

  test "definitions whose calls depend on elements, and those with hooks, are evaluated" do
    halved = compiled(&halved/1)
    for k <- 1..6, do: assert(numbers(halved.(to_device(Nx.tensor([2.0 ** k])))) == [1.0])

    branches = compiled(&branches/2)

    for flag <- [1, -1, 1, -1, 1, -1] do
      result = branches.(to_device(Nx.tensor([3, 4])), to_device(Nx.tensor([flag]))[0])
      assert Nx.to_number(result) == if(flag > 0, do: 25, else: 7)
    end

    test = self()

    hooked =
      Nx.Defn.jit(&hooked/1,
        compiler: Compiler,
        hooks: %{seen: &send(test, {:seen, numbers(&1)})}
      )

    for k <- 1..4 do
      assert numbers(hooked.(to_device(Nx.tensor([k])))) == [2 * k + 1]
      assert_received {:seen, [doubled]} when doubled == 2 * k
    end
  end

  test "indices are checked in each call, and nothing is read for it" do
    fun = fn x, i, j ->
      taken = Nx.take(x, i)
      {Nx.exp(taken), Nx.indexed_add(taken, Nx.new_axis(j, 1), Nx.iota({3}))}
    end

    x = to_device(Nx.iota({4}))
    compiled = compiled(fun)
    at = fn indices -> to_device(Nx.tensor(indices)) end

    expected =
      for result <- Tuple.to_list(fun.(host(x), Nx.tensor([3, 0, 1]), Nx.tensor([0, 0, 2]))),
          do: numbers(result)

    for _ <- 1..4 do
      {_, sums} = compiled.(x, at.([3, 4, 1]), at.([0, 0, 2]))
      assert_raise ArgumentError, ~r/^index 4 is .* \{4\}, by Nx.take$/, fn -> numbers(sums) end
      {_, sums} = compiled.(x, at.([3, 0, 1]), at.([0, -1, 2]))

      assert_raise ArgumentError, ~r/^index -1 is .* \{3\}, by Nx.indexed_add$/, fn ->
        numbers(sums)
      end

      results = compiled.(x, at.([3, 0, 1]), at.([0, 0, 2])) |> Tuple.to_list()
      assert [[exp | _], sums] = for(result <- results, do: numbers(result))
      assert_in_delta exp, :math.exp(3), 1.0e-4
      assert sums == Enum.at(expected, 1)
    end

    assert programs(fn -> compiled.(x, at.([3, 0, 1]), at.([0, 0, 2])) end) == 0
  end

  describe "donated inputs" do
    # Nx 0.13 has no donation.
    @describetag :donation

    defp gone?(tensor) do
      Nx.to_binary(tensor)
      false
    rescue
      error in Nx.Vulkan.Error -> error.reason == :deallocated
    end

    test "are written in place, and gone after the call" do
      step = fn cache, row, at -> Nx.put_slice(cache, [at, 0], Nx.multiply(row, 2)) end
      start = Nx.iota({5, 3}, type: :f32)
      row = to_device(Nx.tensor([[1.0, 2.0, 3.0]]))
      compiled = compiled(step)

      Enum.reduce(0..8, {start, Nx.donatable(to_device(start))}, fn n, {expected, cache} ->
        at = Nx.tensor(rem(n * 7, 5))
        next = compiled.(cache, row, to_device(at))
        assert gone?(cache) and not gone?(row) and not Nx.donatable?(next)
        expected = step.(expected, host(row), at)
        assert numbers(next) == numbers(expected)
        {expected, Nx.donatable(next)}
      end)
    end

    test "stay where they are results, or another input too" do
      new = fn -> to_device(Nx.tensor([1.0, 2.0])) end
      same = compiled(fn x, y -> {x, Nx.reshape(x, {2, 1}), Nx.add(x, y)} end)
      sum = compiled(fn x, y -> Nx.add(Nx.multiply(x, 2), y) end)

      for _ <- 1..4, x = new.(), donated = Nx.donatable(x) do
        {result, _, _} = same.(donated, 1.0)
        assert numbers(result) == [1.0, 2.0] and numbers(x) == [1.0, 2.0]
        refute Nx.donatable?(result)
        assert numbers(sum.(donated, x)) == [3.0, 6.0]
        assert numbers(x) == [1.0, 2.0]
        assert numbers(sum.(donated, new.())) == [3.0, 6.0]
        assert gone?(x)
      end
    end

    test "are one call's, of several at a time" do
      sum = recorded(&Nx.add(Nx.dot(&1, &1), &2), [to_device(Nx.eye(4)), 1])
      compiled = fn x -> sum.(Nx.donatable(x), 1) end
      for _ <- 1..3, do: compiled.(to_device(Nx.eye(4)))

      for _ <- 1..20, x = to_device(Nx.eye(4)) do
        results =
          1..4
          |> Task.async_stream(fn _ ->
            try do
              numbers(compiled.(x))
            rescue
              error in Nx.Vulkan.Error -> error.reason
            end
          end)
          |> Enum.map(fn {:ok, result} -> result end)

        expected = numbers(Nx.add(Nx.eye(4), 1))
        assert expected in results
        assert Enum.all?(results, &(&1 in [:deallocated, expected]))
      end
    end
  end

  test "a call that fails while it is recorded leaves nothing behind" do
    shift = compiled(fn x, n -> Nx.left_shift(Nx.add(x, 1), n) end)
    x = to_device(Nx.tensor([1, 2]))

    for n <- [1, -1, 1, 2], amount = to_device(Nx.tensor([n])) do
      if n < 0,
        do: assert_raise(ArgumentError, ~r/cannot left shift/, fn -> shift.(x, amount) end),
        else: assert(numbers(shift.(x, amount)) == [2 * 2 ** n, 3 * 2 ** n])
    end
  end
end

defmodule Nx.Vulkan.DefinitionGraphMemoryTest do
  @moduledoc "Graphs of definitions hold no memory but their constants."

  use Nx.Vulkan.Test.Case, async: false

  test "memory is flat over many calls, and free once the definition is gone" do
    x = to_device(Nx.iota({64, 64}, type: :f32))
    before = buffers()

    in_process(fn ->
      fun = fn x -> Enum.reduce(1..10, x, fn i, y -> Nx.dot(Nx.tanh(y), x) |> Nx.add(i) end) end
      compiled = Nx.Defn.compile(fun, [x], compiler: Nx.Vulkan.Compiler)
      for _ <- 1..3, do: compiled.(x)
      assert programs(fn -> compiled.(x) end) == 0

      counts =
        for _ <- 1..200 do
          compiled.(x)
          :erlang.garbage_collect()
          buffers()
        end

      assert Enum.max(counts) <= before + 4
    end)

    assert freed?(before)
    assert Nx.to_number(x[0][1]) == 1.0
  end

  # bench/soak.exs makes 100,000 such calls.
  test "definitions of changing shapes keep no memory, and a bounded number of graphs" do
    before = buffers()

    in_process(fn ->
      step = fn x -> Nx.add(Nx.multiply(x, 2), Nx.iota({3})) |> Nx.reverse(axes: [0]) end
      compiled = Nx.Defn.jit(step, compiler: Nx.Vulkan.Compiler)

      for n <- 1..1600, x = to_device(Nx.broadcast(1, {n, 3})) do
        assert Nx.shape(Enum.reduce(1..3, x, fn _, x -> compiled.(x) end)) == {n, 3}
      end

      :erlang.garbage_collect()
    end)

    # Each keeps its iota. The BEAM lets go of what it erases some time later.
    traces =
      Enum.count(:persistent_term.get(), &match?({{Nx.Vulkan.Compiler.TraceCache, _}, _}, &1))

    assert traces <= 1024
    assert freed?(before + 1300)
  end

  # Once the process is gone, so is what it held.
  defp in_process(fun), do: fun |> Task.async() |> Task.await(:infinity)

  # The BEAM lets go of erased persistent terms one after the other, and takes tens of milliseconds for each on a loaded machine. Those of
  # the tests before, some thousands, come first: the wait ends a minute after the last buffer went.
  @tries 3000

  defp freed?(most, tries \\ @tries, least \\ :infinity) do
    buffers = buffers()

    cond do
      buffers <= most ->
        true

      tries == 0 ->
        false

      true ->
        Process.sleep(20)
        freed?(most, if(buffers < least, do: @tries, else: tries - 1), min(buffers, least))
    end
  end

  defp buffers do
    :ok = Nx.Vulkan.synchronize()
    Nx.Vulkan.memory_info().buffers
  end

  # Commands of the call on the device.
  defp commands(fun), do: Enum.sum_by(Nx.Vulkan.profile(fun).kernels, & &1.runs)

  @tag :donation
  test "what is put into a donated input, or into what no one else reads, copies nothing" do
    start = Nx.iota({5, 3}, type: :f32)
    at = to_device(Nx.tensor([[1], [2]]))
    rows = to_device(Nx.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))

    for put <- [
          fn x, _at, rows -> Nx.put_slice(x, [2, 0], rows) end,
          &Nx.indexed_put(&1, &2, &3),
          &Nx.indexed_add(&1, &2, &3)
        ] do
      expected = Nx.to_binary(put.(start, host(at), host(rows)))

      [kept, donated, twice] =
        for {put, donate} <- [
              {put, & &1},
              {put, &Nx.donatable/1},
              {fn x, i, y -> put.(put.(x, i, y), i, y) end, &Nx.donatable/1}
            ] do
          compiled = Nx.Defn.jit(put, compiler: Nx.Vulkan.Compiler)
          call = fn x -> compiled.(donate.(x), at, rows) end
          for _ <- 1..3, do: call.(to_device(start))
          x = to_device(start)
          Nx.Vulkan.synchronize()
          commands(fn -> send(self(), {:result, call.(x)}) end)
        end

      for _ <- [:kept, :donated] do
        assert_received {:result, result}
        assert Nx.to_binary(result) == expected
      end

      assert_received {:result, _twice}
      assert donated == kept - 1
      assert twice == 2 * donated
    end
  end
end
