defmodule Nx.Vulkan.DeviceControlFlowTest do
  @moduledoc """
  Loops within loops, conditions within loops and loops within conditions run on the device as one program, with the
  results of `Nx.Defn.Evaluator` on BinaryBackend.
  """

  use Nx.Vulkan.Test.Case, async: true

  import Nx.Defn

  alias Nx.Vulkan.Compiler
  alias Nx.Vulkan.Compiler.Closure
  alias Nx.Vulkan.Test.Definitions

  @definitions 12

  # Compares with the evaluation on BinaryBackend, in calls of which the third is the graph's, and counts the programs
  # that the host issues: none, where the device has all types.
  defp check(fun, args) do
    expected = apply(Nx.Defn.jit(fun, compiler: Nx.Defn.Evaluator), args)
    args = Enum.map(args, &to_device/1)
    compiled = Nx.Defn.jit(fun, compiler: Compiler)

    for _ <- 1..3 do
      programs = programs(fn -> send(self(), {:results, apply(compiled, args)}) end)
      if device_has_all_types?(), do: assert(programs == 0)
      assert_received {:results, results}

      for {got, want} <- Enum.zip(flat(results), flat(expected)),
          do: assert_same(got, host(want), :loop)
    end
  end

  defp flat(results), do: Nx.Defn.Composite.flatten_list([results])

  defp device_has_all_types? do
    {:ok, types} = Nx.Vulkan.Native.type_support()
    Enum.all?(types, &match?({_type, {:device, _bits}}, &1))
  end

  defp step(values),
    do: Generators.pick([Definitions.elementwise(values), Definitions.control(values, 2)])

  defp drawn(n) do
    type = Enum.at([{:f, 32}, {:s, 32}, {:u, 8}, {:bf, 16}], rem(n, 4))
    {steps, inputs} = Definitions.draw(type, &step/1)
    {steps, inputs |> List.to_tuple() |> Nx.backend_copy(VulkanoBackend)}
  end

  defp evaluated(fun, inputs) do
    Nx.with_default_backend(VulkanoBackend, fn ->
      Nx.Defn.jit(fun, compiler: Nx.Defn.Evaluator).(inputs)
    end)
  end

  test "definitions drawn at random give the bits of Nx.Defn.Evaluator" do
    for n <- 1..@definitions do
      {steps, inputs} = drawn(n)
      fun = Definitions.fun(steps)
      expected = flat(evaluated(fun, inputs))
      compiled = Nx.Defn.jit(fun, compiler: Compiler)

      for _ <- 1..3,
          {got, want} <- Enum.zip(flat(compiled.(inputs)), expected),
          do: assert_same(got, host(want), :definition, steps: steps)
    end
  end

  # Nx.Defn.Evaluator runs hooks again that a false predicate of a `cond` has run; with this compiler few of them come again.
  test "their hooks get each value, in the order in which operations read them" do
    for n <- 1..div(@definitions, 3) do
      {steps, inputs} = drawn(n)
      results = Definitions.results(steps)
      hooked = &send(self(), {:value, Nx.to_binary(&1)})
      fun = Definitions.fun(steps, results, &io_hook(&1, :value))
      got = Nx.Defn.jit(fun, compiler: Compiler, hooks: %{value: hooked}).(inputs)
      values = received()
      expected = Definitions.run(steps, results, inputs, &tap(&1, hooked))
      assert in_order?(received(), values)

      for {got, want} <- Enum.zip(flat(got), flat(expected)),
          do: assert_same(got, host(want), :hooks, steps: steps)
    end
  end

  defp in_order?([], _values), do: true
  defp in_order?([value | rest], [value | values]), do: in_order?(rest, values)
  defp in_order?(expected, [_again | values]), do: in_order?(expected, values)
  defp in_order?(_expected, []), do: false

  defp received do
    receive do
      {:value, value} -> [value | received()]
    after
      0 -> []
    end
  end

  # Numbers whose sequences of Collatz are long, all in one tensor.
  defn collatz(x, steps) do
    {steps, _, _} =
      while {steps, x, i = 0}, i < Nx.axis_size(x, 0) do
        {n, count} =
          while {n = x[i], count = 0}, n > 1 do
            n = if Nx.remainder(n, 2) == 0, do: Nx.quotient(n, 2), else: n * 3 + 1
            {n, count + 1}
          end

        {Nx.put_slice(steps, [i], Nx.new_axis(count + 0 * n, 0)), x, i + 1}
      end

    steps
  end

  test "a loop with a condition within a loop" do
    check(&collatz/2, [Nx.tensor([27, 1, 7, 97, 2, 871]), Nx.broadcast(0, {6})])
  end

  # Bubble sort: the inner loop's number of iterations is that of the outer loop's state.
  defn bubbles(x) do
    {x, _} =
      while {x, n = Nx.axis_size(x, 0) - 1}, n > 0 do
        {x, _, last} =
          while {x, i = 0, last = n}, i < last do
            {a, b} = {x[i], x[i + 1]}
            {Nx.put_slice(x, [i], Nx.stack([Nx.min(a, b), Nx.max(a, b)])), i + 1, last}
          end

        {x, last - 1}
      end

    x
  end

  test "a loop whose bounds are the state of the loop around it" do
    for type <- [:s32, :f32, :u8] do
      check(&bubbles/1, [Generators.tensor({17}, Nx.Type.normalize!(type), {:integer, 0..99})])
    end
  end

  defn branches(x, y) do
    {x, y, _} =
      while {x, y, i = 0}, i < 9 do
        {x, y} =
          cond do
            Nx.remainder(i, 3) == 0 -> {x + y, y}
            Nx.remainder(i, 3) == 1 and Nx.any(x > 30) -> {Nx.reverse(x), Nx.reduce_max(x) - y}
            true -> {x - i, y * 2 - x[0]}
          end

        {x, y, i + 1}
      end

    {x, y}
  end

  test "conditions of several clauses, with results that some of them leave as they are" do
    for n <- [1, 5, 40], do: check(&branches/2, [Nx.remainder(Nx.iota({n}), 13), Nx.tensor(n)])
  end

  # The loop makes no iteration for most x.
  defn loop_in_branch(x, y) do
    if Nx.sum(x) > 10 do
      {x, n, _} = while({x, n = 0, y}, Nx.all(x < y), do: {x * 2, n + 1, y})
      {x, n}
    else
      {x + y, Nx.tensor(-1)}
    end
  end

  test "a loop within a condition outside of loops" do
    for x <- [[1, 2], [5, 7], [200, 1]],
        do: check(&loop_in_branch/2, [Nx.tensor(x), Nx.tensor(100)])
  end

  defn condition_with_loop(x) do
    while x, steps_to_zero(x) > 3 do
      x - 1
    end
  end

  defn steps_to_zero(x) do
    {_, n} = while({x, n = 0}, Nx.any(x > 0), do: {Nx.quotient(x, 2), n + 1})
    n
  end

  defn condition_with_branches(x, n) do
    while {x, n}, if(Nx.all(x > 3), do: n > 0, else: Nx.sum(x) > 5) do
      {x - 1, n - 3}
    end
  end

  test "a condition with branches" do
    for n <- [0, 5], do: check(&condition_with_branches/2, [Nx.tensor([9, 7]), Nx.tensor(n)])
  end

  test "a loop within the condition of a loop" do
    for x <- [[3, 40], [0, 0], [99, 3]], do: check(&condition_with_loop/1, [Nx.tensor(x)])
  end

  defn three_deep(x, limit) do
    {x, _, _, _} =
      while {x, i = 0, total = 0, limit}, total < limit do
        {x, j, total, i} =
          while {x, j = 0, total, i}, j <= i do
            {x, k, total} =
              while {x, k = j, total}, k > 0 and total < 100 do
                x = if k > 1, do: Nx.reverse(x) + k, else: x * 3 - total
                {Nx.remainder(x, 1000), k - 1, total + 1}
              end

            {x + k, j + 1, total + 1, i}
          end

        {x, i + 1, total + j, limit}
      end

    x
  end

  test "three loops within each other that carry the same values" do
    check(&three_deep/2, [Nx.tensor([3, 1, 4, 1, 5, 9]), Nx.tensor(40)])
  end

  defn long(n) do
    {total, _, _} =
      while {total = 0, i = 0, n}, i < n do
        {total, _, _} =
          while {total, j = 0, i}, j < 1000 do
            total = if Nx.remainder(j + i, 7) == 0, do: total + 1, else: total
            {total, j + 1, i}
          end

        {total, i + 1, n}
      end

    total
  end

  test "an inner loop that one dispatch does not end goes on with the next" do
    check(&long/1, [Nx.tensor(150)])
  end

  defn long_counted(x) do
    {total, _} =
      while {total = x, i = 0}, i < 5000 do
        {total, _} = while({total, j = 0}, j < 30, do: {total + j, j + 1})
        {total, i + 1}
      end

    total
  end

  # Several updates are of one element: the last is put, and all are added.
  defn updated(x, i, j, n) do
    {x, _, _, _} =
      while {x, i, j, n}, n < 5 do
        x = Nx.indexed_put(x, Nx.stack([i, j], axis: -1), Nx.take(Nx.flatten(x), i))

        x =
          Nx.indexed_add(x, Nx.new_axis(j, -1), Nx.as_type(Nx.broadcast(n, {3, 4}), Nx.type(x)),
            axes: [1]
          )

        {x, Nx.remainder(i + 1, 4), Nx.reverse(j),
         Nx.as_type(n + 1 + 0 * Nx.sum(Nx.gather(x, Nx.stack([j, i], axis: -1))), :s32)}
      end

    x
  end

  test "updates by indices, and elements chosen by them" do
    for type <- [:s32, :u8, :s64] do
      x = Nx.remainder(Nx.iota({4, 4}, type: type), 9)
      check(&updated/4, [x, Nx.tensor([0, 1, 0]), Nx.tensor([2, 3, 2]), Nx.tensor(0)])
    end
  end

  # Each iteration adds to one element alone, whose zeros keep their signs, and puts two indices in order.
  defn updated_once(x, i, n) do
    {x, _, _, _} =
      while {x, i, _pair = Nx.stack([i, i]), n}, n < 3 do
        x = Nx.indexed_add(x, Nx.reshape(i, {1, 1}), Nx.new_axis(x[n] * 0.5, 0))
        pair = Nx.sort(Nx.stack([i, n]), direction: :desc)
        {x, Nx.remainder(pair[0] + 1, 4), pair, n + 1}
      end

    x
  end

  test "one float added to an element, and two integers in order" do
    for type <- [:f32, :f64, :f16, :bf16, :c64] do
      x = Nx.tensor([-0.0, 1.5, 0.75, -0.0, -0.0], type: type)
      check(&updated_once/3, [x, Nx.tensor(2), Nx.tensor(0)])
    end
  end

  # The host would run the sort.
  defn with_options(x, opts \\ []) do
    {x, _, _, _} =
      while {x, i = 0, sorts? = sorts(opts), step = 3}, i < 4 and Nx.any(x < 100) do
        x = if sorts?, do: Nx.sort(x, axis: 0), else: x + step
        {x, i + 1, sorts?, step}
      end

    x
  end

  deftransformp(sorts(opts), do: if(opts[:sorts], do: 1, else: 0))

  test "values that are constants and that no iteration changes choose branches at once" do
    x = Nx.tensor([5, 1, 4])
    check(&with_options/1, [x])
    check_results(&with_options(&1, sorts: true), [x])
  end

  test "what a loop captures comes in one order, however often it is traced" do
    values = Enum.to_list(1..40)

    orders =
      for _ <- 1..3 do
        fun = fn x -> Enum.reduce(values, x, &Nx.add(&2, Nx.tensor([&1, 0]))) end
        expr = Nx.Defn.debug_expr(fun).(Nx.template({2}, :s32))
        for tensor <- Closure.captured(expr), do: Nx.to_flat_list(hd(tensor.data.args))
      end

    assert [order] = Enum.uniq(orders)
    assert Enum.sort(order) == Enum.map(values, &[&1, 0])
  end

  defn marked(x, i) do
    {x, _} =
      while({x, i}, Nx.sum(x) < 9,
        do: {Nx.indexed_put(x, Nx.new_axis(i, -1), x[[0..1]] + 1), i + 1}
      )

    x
  end

  test "indices out of bounds raise" do
    for index <- [3, -7] do
      args = [to_device(Nx.tensor([0, 0, 0, 0])), to_device(Nx.tensor([0, index]))]

      assert_raise ArgumentError, ~r/out of bounds for axis 0 in shape \{4\}/, fn ->
        apply(Nx.Defn.jit(&marked/2, compiler: Compiler), args) |> Nx.to_flat_list()
      end
    end
  end

  test "counted loops within each other are part of their definition's graph" do
    check(&long_counted/1, [Nx.tensor([1, 7])])
  end

  defn endless_inner(x) do
    {x, _} = while({x, i = 0}, i < 3, do: {while(x, x >= 0, do: Nx.remainder(x + 1, 5)), i + 1})
    x
  end

  test "an inner loop that never ends dies with its process, and keeps no other from its work" do
    x = to_device(Nx.tensor(1))
    task = Task.async(fn -> Nx.Defn.jit(&endless_inner/1, compiler: Compiler).(x) end)
    Process.sleep(200)
    assert Nx.to_number(Nx.add(x, 1)) == 2
    assert Task.shutdown(task, :brutal_kill) == nil
  end

  defn shared(x, y) do
    sum = x + y
    product = sum * y
    result = if Nx.all(sum > 3), do: product - sum, else: sum * 7
    {result, product}
  end

  test "what branches share with the rest of the definition" do
    for x <- [1, 5], do: check_results(&shared/2, [Nx.tensor([x, 2]), Nx.tensor([4, 3])])
  end

  defn(sorted_branch(x), do: if(Nx.sum(x) > 5, do: Nx.sort(x), else: Nx.reverse(x)))

  test "branches with other operations are chosen by the host" do
    for x <- [[3, 1, 2], [1, 2, 1]], do: check_results(&sorted_branch/1, [Nx.tensor(x)])
  end

  defn rows_in_branches(x, y) do
    spread = spread(x)

    chosen =
      if Nx.any(y > 5) do
        {z, _} = while({z = x, i = 0}, Nx.any(z > 1), do: {Nx.sort(z / 2, axis: 1), i + 1})
        rows(z) + spread(z)
      else
        if Nx.any(y > 2), do: rows(x) - spread, else: rows(x * 2)
      end

    chosen * spread
  end

  # Reductions that share a kernel with each other, and with what reads them.
  defn(spread(x), do: reduced(x, &Nx.reduce_max/2) - reduced(x, &Nx.reduce_min/2))
  defn(rows(x), do: (x - reduced(x, &Nx.reduce_max/2)) * reduced(x, &Nx.sum/2))
  deftransformp(reduced(x, fun), do: fun.(x, axes: [1], keep_axes: true))

  test "a branch that is not chosen is not computed, whatever its kernels share" do
    x = Generators.tensor({3, 4}, {:f, 32}, {:integer, -9..9})

    for {y, sorts?} <- [{1, false}, {3, false}, {9, true}] do
      check_results(&rows_in_branches/2, [x, Nx.tensor([0, y])])
      args = [to_device(Nx.add(x, 20)), to_device(Nx.tensor([0, y]))]
      compiled = Nx.Defn.compile(&rows_in_branches/2, args, compiler: Compiler)
      assert programs(fn -> apply(compiled, args) end, sort: 6) > 0 == sorts?
    end
  end

  defn(unrolled(x, w), do: while({x, w, i = 0}, i < 3, do: {x * w, w, i + 1}))
  defn(until(x, w, end_), do: while({x, w, end_}, end_ > 0, do: {x * w, w, end_ - 1}))

  defn branching(x, w) do
    while({x, w, i = 0}, i < 3, do: {if(Nx.all(x > 0), do: x * w, else: x), w, i + 1})
  end

  defn(slope_unrolled(x, w), do: grad(x, &last(unrolled(&1, w))))
  defn(slope_until(x, w), do: grad(x, &last(until(&1, w, Nx.as_type(w[0] * 0 + 3, :s32)))))
  defn(slope_branching(x, w), do: grad(x, &last(branching(&1, w))))
  defnp(last({x, _w, _i}), do: Nx.sum(x))

  # Nx's gradient of a loop begins with f32, whatever the loop's type is.
  test "gradients of loops have the types of their expressions" do
    for fun <- [&slope_unrolled/2, &slope_until/2, &slope_branching/2],
        elements <- [3, 20_000],
        type <- Generators.float_types() do
      x = Nx.broadcast(Nx.tensor(2, type: type), {elements})
      w = Nx.tensor([0.5, 1.25, 1.5], type: type)
      w = w |> Nx.tile([div(elements, 3) + 1]) |> Nx.slice([0], [elements])
      compiled = Nx.Defn.jit(fun, compiler: Compiler)
      template = Nx.to_template(Nx.Defn.debug_expr(fun).(x, w))

      for _ <- 1..3 do
        got = compiled.(to_device(x), to_device(w))
        assert Nx.to_template(got) == template
        assert Nx.to_number(Nx.all_close(host(got), Nx.pow(w, 3), rtol: 1.0e-2)) == 1
      end
    end
  end

  defn(of_numbers(a, b), do: if(a > b, do: a - b, else: {a * 2, b} |> elem(0)))

  test "integers that the host holds stay there" do
    compiled = Nx.Defn.jit(&of_numbers/2, compiler: Compiler)

    for {a, b} <- [{5, 3}, {1, 2}] do
      assert %{data: %{scalar: {_, _}}} = result = compiled.(a, b)
      assert Nx.to_number(result) == Nx.to_number(of_numbers(a, b))
    end
  end

  defp check_results(fun, args) do
    expected = apply(Nx.Defn.jit(fun, compiler: Nx.Defn.Evaluator), args)
    compiled = Nx.Defn.jit(fun, compiler: Compiler)

    for _ <- 1..3 do
      results = apply(compiled, Enum.map(args, &to_device/1))

      for {got, want} <- Enum.zip(flat(results), flat(expected)),
          do: assert_same(got, host(want), :cond)
    end
  end
end
