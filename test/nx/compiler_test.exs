defmodule Nx.Vulkan.CompilerTest do
  @moduledoc """
  Definitions through `Nx.Vulkan.Compiler` give what the same operations give one by one, with fewer
  kernels.
  """

  use Nx.Vulkan.Test.Case, async: true

  import Nx.Defn

  alias Nx.Defn.{Composite, Evaluator}
  alias Nx.Vulkan.Compiler
  alias Nx.Vulkan.Test.Definitions

  @definitions 40

  defmodule Pair do
    @moduledoc false
    @derive {Nx.Container, containers: [:first, :second], keep: [:kind]}
    defstruct [:first, :second, :kind]
  end

  describe "definitions drawn at random" do
    test "of element-wise operations, views and conversions give the same bits" do
      for n <- 1..@definitions do
        type = Generators.pick([{:f, 32} | Generators.all_types()])
        {steps, inputs} = Definitions.draw(type, &Definitions.elementwise/1)
        compare(steps, inputs, [{:steps, steps}, {:definition, n}], :bits)
      end
    end

    test "with reductions in between are as close as their sums" do
      for n <- 1..@definitions do
        step = &Generators.pick([Definitions.elementwise(&1), Definitions.reduction(&1)])
        {steps, inputs} = Definitions.draw({:f, 32}, step)
        compare(steps, inputs, [{:steps, steps}, {:definition, n}], :near)
      end
    end

    test "of all kinds of operations on small integers are exact, also of other inputs" do
      for n <- 1..@definitions do
        {steps, inputs} =
          Definitions.draw(Generators.pick([{:f, 32}, {:bf, 16}, {:s, 32}]), &Definitions.exact/1)

        fun = Definitions.fun(steps)
        compiled = compiled(fun)

        # Evaluated, recorded, and replayed.
        for call <- 1..3 do
          inputs =
            for %{shape: shape, type: type} <- inputs,
                do: Generators.tensor(shape, type, {:integer, -4..4})

          inputs = List.to_tuple(inputs)
          got = compiled.(Nx.backend_copy(inputs, VulkanoBackend))

          want = compiled(fun, Evaluator).(inputs)

          for {got, want} <- Enum.zip(Tuple.to_list(got), Tuple.to_list(want)),
              do: assert_near(got, want, 0.0, steps: steps, definition: n, call: call)
        end
      end
    end
  end

  describe "kernels" do
    test "a chain of operations is one, whatever it reads" do
      x = device({4, 6})

      assert kernels(fn x -> x |> Nx.sin() |> Nx.multiply(2) |> Nx.add(x) |> Nx.tanh() end, [x]) ==
               1

      assert kernels(fn x, y -> Nx.subtract(Nx.exp(x), Nx.multiply(y, y)) end, [x, device({6})]) ==
               1

      assert kernels(fn x -> Nx.add(Nx.transpose(x), x[[0, 0..3]]) end, [x]) ==
               1

      assert kernels(fn x -> Nx.reshape(Nx.negate(x), {24}) |> Nx.abs() end, [x]) == 1
      assert kernels(fn x -> Nx.add(Nx.iota({4, 6}), x) |> Nx.as_type(:s16) end, [x]) == 1
      assert kernels(fn x, y -> Nx.multiply(x, Nx.add(Nx.negate(y), 1)) end, [x, device({})]) == 1
    end

    test "a reduction is one with what leads to it" do
      x = device({4, 6})
      assert kernels(fn x -> Nx.sum(Nx.multiply(x, x), axes: [1]) end, [x]) == 1
      assert kernels(fn x -> Nx.argmax(Nx.negate(Nx.abs(x)), axis: 0) end, [x]) == 1
      assert kernels(fn x -> Nx.all(Nx.less(Nx.abs(x), 10)) end, [x]) == 1
    end

    test "elements that indices choose are one with what is computed of them" do
      {x, y, rows} = {device({6, 4}), device({3, 4}), to_device(Nx.tensor([5, 0, 3]))}
      at = to_device(Nx.tensor(2))
      slice = &Nx.slice(&1, [&2, 0], [3, 4])

      assert kernels(&Nx.add(Nx.take(&1, &2), &3), [x, rows, y]) == 1
      assert kernels(&Nx.multiply(slice.(&1, &2), &3), [x, at, y]) == 1
      assert kernels(&Nx.exp(Nx.add(Nx.take(&1, &2), slice.(&1, &3))), [x, rows, at]) == 1

      # Each of several readers would choose them again. Beside a product there is one.
      assert kernels(&{Nx.add(Nx.take(&1, &2), 1), Nx.take(&1, &2)}, [x, rows]) == 2
      assert kernels(&Nx.add(Nx.dot(&1, &2), Nx.take(&3, &4)), [y, device({4, 4}), x, rows]) == 1
    end

    test "elements that indices choose are the same for every type" do
      for {_, bits} = type when bits >= 8 <- Generators.all_types() do
        shape = Generators.pick([{6, 5, 4}, {9, 3}, {7}])
        axis = Generators.pick(Nx.axes(shape))
        chosen = Generators.pick([{}, {4}, {2, 3}])
        indices = Generators.tensor(chosen, {:s, 32}, {:integer, 0..(elem(shape, axis) - 1)})
        # All results are exact in 8 bits.
        x = Generators.tensor(shape, type, {:integer, 0..3})
        starts = for dim <- Tuple.to_list(shape), do: Nx.tensor(:rand.uniform(2 * dim) - dim)
        lengths = shape |> Tuple.to_list() |> Enum.map(&max(&1 - 2, 1))
        steps = Enum.map(lengths, fn _ -> Enum.random(1..2) end)

        for fun <- [
              &Nx.negate(Nx.take(&1, &2, axis: axis)),
              fn x, i, _starts ->
                Nx.multiply(Nx.take(Nx.add(x, 1), i, axis: axis), Nx.take(x, i, axis: axis))
              end,
              fn x, _i, starts ->
                Nx.add(Nx.slice(x, Tuple.to_list(starts), lengths, strides: steps), 1)
              end
            ] do
          fun = if is_function(fun, 2), do: fn x, i, _starts -> fun.(x, i) end, else: fun
          args = {x, indices, List.to_tuple(starts)}
          want = apply(compiled(fun, Evaluator), Tuple.to_list(args))
          compiled = compiled(fun)

          for _ <- 1..3 do
            got = apply(compiled, Tuple.to_list(Nx.backend_copy(args, VulkanoBackend)))
            assert_same(got, want, :take, type: type, shape: shape, axis: axis, steps: steps)
          end
        end
      end
    end

    test "what is read several times and comes together again is computed there" do
      x = device({4, 6})

      gelu = fn x ->
        inner = Nx.add(x, Nx.multiply(Nx.multiply(x, x), x))
        Nx.multiply(x, Nx.add(1, Nx.tanh(inner)))
      end

      assert kernels(fn x -> gelu.(Nx.add(Nx.exp(x), x)) end, [x]) == 1
      assert kernels(fn x -> Nx.sum(gelu.(Nx.add(Nx.exp(x), x)), axes: [1]) end, [x]) == 1

      sigmoid = fn x -> x |> Nx.exp() |> then(&Nx.divide(&1, Nx.add(&1, 1))) end
      assert kernels(sigmoid, [x]) == 1
      # One of its readers reads other elements.
      assert kernels(fn x -> x |> Nx.exp() |> then(&Nx.add(&1, Nx.reverse(&1))) end, [x]) == 2
    end

    test "equal expressions are one, and squares are products" do
      x = device({4, 6})
      twice = fn x -> Nx.divide(Nx.sum(Nx.exp(x)), Nx.add(Nx.sum(Nx.exp(x)), 1)) end
      assert kernels(twice, [x]) == 2

      for type <- [{:f, 32}, {:f, 64}, {:s, 32}, {:u, 8}], exponent <- [2, 2.0] do
        values = if elem(type, 0) == :f, do: {:float, -9.0, 9.0}, else: :any
        x = Generators.tensor({40}, type, values)
        result = compiled(&Nx.pow(&1, exponent)).(to_device(x))

        assert_same(
          result,
          Nx.multiply(Nx.as_type(x, result.type), Nx.as_type(x, result.type)),
          :multiply
        )
      end
    end

    defn shifted(x, n) do
      checked = if n[0] >= 0, do: Nx.left_shift(x, n) + 1, else: x
      again = if n[0] >= 0, do: Nx.left_shift(x, n) + 2, else: x
      {checked, again}
    end

    test "of one branch are not those of another, nor of what follows" do
      x = to_device(Nx.tensor([1, 2]))

      for {n, sums} <- [{1, {[3, 5], [4, 6]}}, {-1, {[1, 2], [1, 2]}}] do
        {a, b} = compiled(&shifted/2).(x, to_device(Nx.tensor([n, n])))
        assert {Nx.to_flat_list(a), Nx.to_flat_list(b)} == sums
      end
    end

    test "a view of a view is right, also beside the view itself" do
      x = device({5, 5})

      for first <- [&Nx.reverse/1, &Nx.transpose/1, &Nx.slice(&1, [1, 0], [4, 4])],
          second <- [&Nx.transpose/1, &Nx.reverse/1, & &1[0], &Nx.new_axis(&1, 0)] do
        fun = fn x ->
          view = first.(x)
          Nx.add(view, second.(view))
        end

        assert_same(compiled(fun).(x), host(fun.(x)), :add, [])
      end
    end

    test "what is stored anyway is not computed again" do
      x = device({4, 6})

      two = fn x ->
        y = Nx.add(Nx.negate(x), 1)
        {y, Nx.multiply(y, 2), Nx.subtract(y, 3)}
      end

      assert kernels(two, [x]) == 2
      assert kernels(fn x -> Nx.dot(Nx.add(Nx.abs(x), 1), Nx.transpose(x)) end, [x]) <= 3
    end

    test "hundreds of operations are at most eight kernels" do
      x = device({4, 6})
      few = fn x -> Enum.reduce(1..150, x, fn i, x -> x |> Nx.add(i) |> Nx.remainder(7) end) end
      many = fn x -> Enum.reduce(1..300, x, &Nx.subtract(&1 + 0.5, &2)) end
      sliced = fn x -> Enum.reduce(1..100, x, &Nx.max(Nx.negate(&2), Nx.add(x[[0, 0]], &1))) end

      sums = fn x -> Enum.reduce(1..40, x, &Nx.add(&2, Nx.dot(x, Nx.eye(6)) |> Nx.pow(&1))) end

      picks = fn x ->
        Enum.reduce(1..20, x, &Nx.select(Nx.sort(&2), Nx.sort(x), Nx.add(&2, &1)))
      end

      # Remainders are functions, of which SwiftShader is given eight in a kernel at most.
      fused = if builds_loops?(), do: [few, many, sliced], else: [many, sliced]
      for chain <- fused, do: assert(kernels(chain, [x]) in 2..8)

      for chain <- [few, many, sliced, sums, picks],
          do: assert_same(compiled(chain).(x), compiled(chain, Evaluator).(x) |> host(), :chain)
    end

    test "numbers of Nx.Random are made by few" do
      key = to_device(Nx.Random.key(7))
      uniform = fn key -> Nx.Random.uniform(key, shape: {30, 3}) end
      assert kernels(uniform, [key]) <= 10

      {expected, expected_key} = uniform.(host(key))
      {numbers, next} = compiled(uniform).(key)
      assert_same(numbers, expected, :uniform)
      assert_same(next, expected_key, :key)
    end
  end

  describe "loops" do
    defn power(x, opts \\ []) do
      {_, result} =
        while({i = 0, y = x}, i < opts[:n], do: {i + 1, y * 1.5 + Nx.as_type(i, :f32)})

      result
    end

    defn nested(x) do
      while x, i <- 0..4//2 do
        {x, _} =
          while {x, i}, j <- Nx.tensor([3, 1, 2]) do
            {x + i * j, i}
          end

        x
      end
    end

    defn halve(x) do
      while(x, Nx.any(x > 1), do: x / 2)
    end

    defn bounded(x, n) do
      {_, x} = while({n, x}, n > 0, do: {n - 1, x * 2 + n})
      x
    end

    defn halve_later(x) do
      while x, _ <- 0..2 do
        while(x, Nx.any(x > 1), do: x / 2)
      end
    end

    test "that count are one kernel, and those that are too long still count right" do
      x = Nx.tensor([1.0, -2.0, 3.0])

      for n <- [0, 1, 7, 600] do
        result = Nx.Defn.jit(&power/2, compiler: Compiler).(to_device(x), n: n)
        expected = Nx.Defn.jit(&power/2, compiler: Evaluator).(to_device(x), n: n)
        assert_same(result, host(expected), :power)
      end

      assert kernels(&power(&1, n: 7), [to_device(x)]) == 1
      assert kernels(&nested/1, [to_device(Nx.tensor([1, 2]))]) == 1
    end

    test "within loops" do
      x = Nx.tensor([[1, 2], [3, -4]])
      assert_same(compiled(&nested/1).(to_device(x)), nested(x), :nested)
    end

    test "whose end depends on a tensor run as long" do
      for values <- [[0.5], [7.0, 100.0], [-3.0, 1.5]] do
        x = Nx.tensor(values)
        assert_same(compiled(&halve/1).(to_device(x)), halve(x), :halve)
        assert_same(compiled(&halve_later/1).(to_device(x)), halve_later(x), :halve)
      end

      for n <- [0, 3] do
        x = Nx.tensor([1, 5])
        result = compiled(&bounded/2).(to_device(x), to_device(Nx.tensor(n)))
        assert_same(result, bounded(x, n), :bounded)
      end
    end
  end

  describe "what else is in a definition" do
    defn branches(x, flag) do
      y = Nx.sin(x) * 2

      cond do
        flag == 0 -> y + 1
        flag == 1 -> Nx.exp(y) - Nx.sum(y)
        true -> x - 1
      end
    end

    defn hooked(x) do
      y = io_hook(x * 2 + 1, :seen)
      {y, %{sum: Nx.sum(y - 3)}}
    end

    test "conditions, hooks and containers" do
      x = Nx.tensor([[1.0, 2.0], [-0.5, 4.0]])

      for flag <- 0..2 do
        args = [to_device(x), to_device(Nx.tensor(flag))]

        [result, expected] =
          for c <- [Compiler, Evaluator], do: apply(compiled(&branches/2, c), args)

        assert_same(result, host(expected), :branches)
      end

      test = self()
      hooks = %{seen: &send(test, {:seen, &1})}
      {y, %{sum: sum}} = Nx.Defn.jit(&hooked/1, compiler: Compiler, hooks: hooks).(to_device(x))
      assert_received {:seen, seen}
      assert_same(seen, host(y), :hook)
      assert_same(y, Nx.add(Nx.multiply(x, 2), 1), :hooked)
      assert_same(sum, Nx.sum(Nx.subtract(host(y), 3)), :hooked)
    end

    test "vectorized tensors" do
      x = Nx.vectorize(Nx.tensor([[1.0, 2.0], [3.0, 5.0], [-1.0, 0.5]]), :rows)
      fun = fn x -> Nx.subtract(Nx.multiply(x, x), Nx.sum(Nx.add(x, 1))) end
      result = compiled(fun).(to_device(x))
      assert result.vectorized_axes == [rows: 3]
      assert_same(Nx.devectorize(result), Nx.devectorize(fun.(x)), :vectorized)
    end

    test "slices that start where a tensor says" do
      fun = fn x, i -> Nx.add(Nx.multiply(x[i][1..2], 2), x[[1, i]]) end
      [x, i] = [Nx.iota({3, 4}), Nx.tensor(2)]
      assert_same(compiled(fun).(to_device(x), to_device(i)), fun.(x, i), :slice)
    end

    test "results of a function of the host" do
      fun = fn x ->
        y = Nx.runtime_call(x, x, fn x, _ -> Nx.backend_copy(x, Nx.BinaryBackend) end)
        Nx.sum(Nx.add(Nx.multiply(y, 2), 1), axes: [0])
      end

      x = Nx.tensor([[1, 2], [3, 4]])
      assert_same(compiled(fun).(to_device(x)), Nx.tensor([10, 14]), :runtime_call)
    end

    test "what Nx refuses is refused with the same words" do
      for {fun, message} <- [
            {fn x -> Nx.left_shift(Nx.add(x, 1), Nx.subtract(x, 9)) end,
             ~r/cannot left shift by -/},
            {fn x -> Nx.pow(Nx.add(x, 1), Nx.subtract(x, 9)) end, ~r/negative exponent/}
          ] do
        error = assert_raise_any(fn -> compiled(fun).(to_device(Nx.tensor([1, 2]))) end)
        assert Exception.message(error) =~ message
      end
    end
  end

  describe "a function is traced" do
    test "once for inputs of the same types and shapes" do
      fun = traced(fn x -> Nx.add(x, 1) end)
      for input <- [{2}, {2}, {3}, {2}], do: compiled(fun).(device(input))
      assert times_traced() == 2
      for _ <- 1..2, do: compiled(fun).(Nx.as_type(device({2}), :s32))
      assert times_traced() == 1
      for _ <- 1..2, do: Nx.Defn.jit(fun, compiler: Compiler, cache: false).(device({2}))
      assert times_traced() == 2
    end

    test "once for containers of the same form" do
      t = device({2})

      containers = [
        t,
        Nx.rename(t, [:x]),
        Nx.vectorize(t, :x),
        {t},
        {{t}},
        {t, t},
        {t, {t}},
        {{t}, t},
        {{t, t}},
        %{a: t},
        %{b: t},
        %{"a" => t},
        %{a: {t}},
        {%{a: t}},
        %{a: t, b: t},
        %{a: %{b: t}},
        Map.new(0..40, &{&1, t}),
        %Pair{first: t, second: t, kind: 1},
        %Pair{first: t, second: t, kind: 2},
        %Pair{first: {t}, second: t}
      ]

      fun = traced(&Composite.traverse(&1, fn x -> Nx.add(x, 1) end))

      for _ <- 1..4, container <- containers do
        incremented = Composite.traverse(container, &host(Nx.add(&1, 1)))
        assert Composite.traverse(compiled(fun).(container), &host/1) == incremented
      end

      assert times_traced() == length(containers)
    end

    test "anew where it closes over a large tensor" do
      large = Generators.tensor({100, 100}, {:u, 8}, :any)
      fun = traced(fn x -> Nx.add(x, large) end)
      for _ <- 1..2, do: compiled(fun).(device({100}))
      assert times_traced() == 2
    end

    test "anew where its module is new" do
      for number <- 1..2 do
        Code.put_compiler_option(:ignore_module_conflict, true)
        source = "defmodule #{inspect(__MODULE__)}.New, do: def(add(x), do: Nx.add(x, #{number}))"
        [{module, _}] = Code.compile_string(source)

        assert_same(
          compiled(&module.add/1).(to_device(Nx.tensor(5))),
          Nx.tensor(5 + number),
          :new
        )
      end
    after
      Code.put_compiler_option(:ignore_module_conflict, false)
    end
  end

  defp traced(fun) do
    test = self()

    fn x ->
      send(test, :traced)
      fun.(x)
    end
  end

  defp times_traced do
    receive do
      :traced -> 1 + times_traced()
    after
      0 -> 0
    end
  end

  defp assert_raise_any(fun) do
    fun.()
    flunk("nothing was raised")
  rescue
    error in [ArgumentError, ArithmeticError] -> error
  end

  defp compare(steps, inputs, context, how) do
    fun = Definitions.fun(steps)
    args = Nx.backend_copy(List.to_tuple(inputs), VulkanoBackend)

    [got, want] =
      for compiler <- [Compiler, Evaluator], do: Tuple.to_list(compiled(fun, compiler).(args))

    for [got, want] <- zip_all([got, want]) do
      case how do
        :bits -> assert_same(got, host(want), :compiled, context)
        :near -> assert_near(got, host(want), 0.0, context)
      end
    end
  end

  defp device(shape), do: to_device(Generators.tensor(shape, {:f, 32}, {:float, -2.0, 2.0}))

  defp compiled(fun, compiler \\ Compiler), do: Nx.Defn.jit(fun, compiler: compiler)

  # Of the first call, as what it creates may be kept.
  defp kernels(fun, args),
    do: programs(fn -> apply(compiled(fun), args) end, run: 4, run_maps: 3)
end

defmodule Nx.Vulkan.CompilerProfileTest do
  @moduledoc "Which kernels definitions have, by a profile, which has those of all processes."

  use Nx.Vulkan.Test.Case, async: false

  alias Nx.Defn.Evaluator
  alias Nx.Vulkan.Compiler

  test "a choice between numbers divided by another one is a choice of exact quotients" do
    x = Generators.tensor({7, 5}, {:f, 32}, {:float, -2.0, 2.0})
    y = Nx.quotient(Nx.iota({7, 5}), 3)

    quotient = fn {a, b}, {c, d}, type ->
      fn x, y ->
        choice = &Nx.select(&1, Nx.tensor(&2, type: type), Nx.tensor(&3, type: type))
        Nx.divide(choice.(Nx.greater(x, 0), a, b), choice.(Nx.equal(y, 2), c, d))
      end
    end

    for type <- [{:f, 32}, {:bf, 16}, {:s, 32}],
        {above, below, divides?} <- [
          {{1, 0}, {2, 1}, false},
          {{-1, 3}, {4, 4}, false},
          {{1, 2}, {3, 1}, true},
          # The floats nearest to these have a quotient of their own.
          {{0.9, 1}, {0.1, 1}, true},
          {{1, 2}, {0, 1}, true}
        ],
        type == {:f, 32} or is_integer(elem(above, 0)) do
      fun = quotient.(above, below, type)
      profile = Nx.Vulkan.profile(fn -> compiled(fun).(to_device(x), to_device(y)) end)

      assert {type, below, Enum.any?(profile.kernels, &(&1.name =~ "divide"))} ==
               {type, below, divides?}

      evaluated = Nx.Defn.jit(fun, compiler: Evaluator).(to_device(x), to_device(y))
      assert_same(profile.result, host(evaluated), :divide)
    end

    # The gradient of a maximum: half of it where both are equal.
    x = Nx.tensor([-1.0, 0.0, 2.0])
    gradient = Nx.Defn.grad(&Nx.sum(Nx.max(&1, 0)))
    assert_same(compiled(gradient).(to_device(x)), Nx.tensor([0.0, 0.5, 1.0]), :max)
  end

  defp compiled(fun), do: Nx.Defn.jit(fun, compiler: Compiler)
end
