defmodule Nx.Vulkan.DeviceLoopTest do
  @moduledoc """
  A `while` of small tensors runs on the device from the first iteration to the last, with the bits of an evaluation
  operation by operation.
  """

  use Nx.Vulkan.Test.Case, async: true

  import Nx.Defn

  alias Nx.Vulkan.Compiler
  alias Nx.Vulkan.Test.Definitions

  @loops 16
  @types [{:f, 32}, {:s, 32}, {:u, 8}, {:s, 64}, {:bf, 16}, {:f, 64}]

  defp compiled(fun), do: Nx.Defn.jit(fun, compiler: Compiler, cache: false)

  # The results on the device, of a loop that issues no program from the host where the device has all types.
  defp on_device(fun, args) do
    compiled = compiled(fun)
    programs = programs(fn -> send(self(), {:results, apply(compiled, args)}) end)
    {:ok, types} = Nx.Vulkan.Native.type_support()
    if Enum.all?(types, &match?({_type, {:device, _bits}}, &1)), do: assert(programs == 0)
    assert_received {:results, results}
    results
  end

  defp evaluated(fun, args), do: apply(Nx.Defn.jit(fun, compiler: Nx.Defn.Evaluator), args)

  # Compares with the evaluation on BinaryBackend.
  defp check(fun, args) do
    expected = evaluated(fun, args)
    results = on_device(fun, Enum.map(args, &Nx.backend_copy(&1, VulkanoBackend)))
    assert_results(results, expected, [])
  end

  defp assert_results(results, expected, context) do
    for {got, want} <- Enum.zip(flat(results), flat(expected)),
        do: assert_same(got, host(want), :loop, context)
  end

  defp flat(results), do: Nx.Defn.Composite.flatten_list([results])

  defn repeat(values, opts \\ []) do
    {_, values} =
      while({i = 0, values}, i < opts[:most] and going(values), do: {i + 1, next(values, opts)})

    values
  end

  # Depends on the data, and is true for most.
  defn(going({a, _, _}), do: Nx.reduce_max(a) != 3)

  deftransform next(values, opts) do
    [opts[:step].(values), values]
    |> Enum.map(&Tuple.to_list/1)
    |> Enum.zip_with(fn [next, value] -> Definitions.fit(next, value) end)
    |> List.to_tuple()
  end

  # Sums of floats depend on the order.
  defp step(values) do
    case Generators.pick([
           Definitions.elementwise(values),
           Definitions.elementwise(values),
           Definitions.reduction(values)
         ]) do
      {:reduce, op, index, _keep} = drawn when op in [:sum, :product] ->
        if match?({kind, _} when kind in [:s, :u], Enum.at(values, index).type),
          do: drawn,
          else: step(values)

      drawn ->
        drawn
    end
  end

  test "bodies drawn at random give the bits of operations that run one by one" do
    for n <- 1..@loops, type = Enum.at(@types, rem(n, length(@types))) do
      {steps, inputs} = Definitions.draw(type, &step/1)
      inputs = inputs |> List.to_tuple() |> Nx.backend_copy(VulkanoBackend)
      step = Definitions.fun(steps)
      most = Generators.pick([0, 1, 2, 7])
      fun = &repeat(&1, step: step, most: most)
      expected = Nx.with_default_backend(VulkanoBackend, fn -> evaluated(fun, [inputs]) end)
      assert_results(on_device(fun, [inputs]), expected, steps: steps, type: type, most: most)
    end
  end

  defn relax(x) do
    {x, _change, i} =
      while {x, change = Nx.tensor(1.0), i = 0}, change > 1.0e-2 and i < 50 do
        new = Nx.put_slice(x, [1], (x[0..-3//1] + x[2..-1//1]) / 2)
        {new, Nx.reduce_max(Nx.abs(new - x)), i + 1}
      end

    {x, i}
  end

  test "loops run until the data says so" do
    for length <- [3, 100, 1000] do
      check(&relax/1, [Nx.divide(Generators.tensor({length}, {:f, 32}, {:integer, -99..99}), 8)])
    end
  end

  defn fibonacci(n) do
    {a, _, _} = while({a = 0, b = 1, n}, n > 0, do: {b, a + b, n - 1})
    a
  end

  test "values take each other's places" do
    for n <- [0, 1, 2, 10, 40], do: check(&fibonacci/1, [Nx.tensor(n)])
  end

  defn windows(x, n) do
    {x, _, _, total} =
      while {x, n, i = 0, total = 0}, i < n do
        part = x |> Nx.slice([i], [3]) |> Nx.reverse()
        {Nx.put_slice(x, [i * 2 - 3], part + 1), n, i + 1, total + Nx.sum(part) + x[2]}
      end

    {x, total}
  end

  test "slices start where the state says, within bounds" do
    check(&windows/2, [Nx.iota({11}), Nx.tensor(20)])
  end

  defn products(x, w) do
    {x, _, _} =
      while {x, w, i = 0}, i < 3 or Nx.any(x > 1_000_000) do
        {Nx.remainder(Nx.dot(x, [2], [0], w, [1], [0]), 1000) - 100, w, i + 1}
      end

    x
  end

  test "small products are steps of a loop" do
    for type <- [{:s, 32}, {:f, 32}, {:f, 64}] do
      x = Generators.tensor({2, 3, 4}, type, {:integer, 0..9})
      check(&products/2, [x, Generators.tensor({2, 4, 4}, type, {:integer, 0..9})])
    end
  end

  defn scalars(a, b) do
    while {a, b}, a < 1000 do
      {a * 2 + Nx.argmax(b, tie_break: :high) + Nx.argmin(b), Nx.remainder(b * 7 + a, 31)}
    end
  end

  test "numbers of the host are values of a loop" do
    for a <- [1, 5000], do: check(&scalars/2, [Nx.tensor(a), Nx.iota({4, 5})])
  end

  defn count(n) do
    {i, _} = while({i = 0, n}, i < n, do: {i + 1, n})
    i
  end

  test "a loop that one dispatch does not end goes on with the next" do
    check(&count/1, [Nx.tensor(100_000)])
  end

  defn constants(x) do
    {_, x} =
      while {i = 0, x}, i < 3000 do
        {i + 1, x + Nx.sum(Nx.iota({4, 4}) * Nx.tensor([1, 2, 3, 4]), axes: [0])}
      end

    x
  end

  test "what is the same in each iteration is computed once, and numbers are no results" do
    check(&constants/1, [Nx.tensor([0, 1, 2, 3])])
  end

  test "a counted loop is part of its definition's graph" do
    compiled = Nx.Defn.jit(&constants/1, compiler: Compiler)

    for n <- 1..5 do
      x = Nx.iota({4}) |> Nx.multiply(n)
      result = compiled.(Nx.backend_copy(x, VulkanoBackend))
      assert_results(result, evaluated(&constants/1, [x]), call: n)
    end
  end

  defn(sorted(x), do: while(x, Nx.any(x > 1), do: Nx.sort(x / 2)))
  defn(gathered(x), do: while(x, Nx.any(x > 1), do: Nx.take(x, Nx.as_type(x, :s32)) / 2))

  test "loops with other operations, and of many elements, are evaluated" do
    for {fun, shape} <- [{&sorted/1, {7}}, {&halved/1, {40_000}}] do
      x = Generators.tensor(shape, {:f, 32}, {:integer, 0..9})
      result = compiled(fun).(Nx.backend_copy(x, VulkanoBackend))
      assert_results(result, evaluated(fun, [x]), fun: fun)
    end

    message = ~r/out of bounds/

    assert_raise ArgumentError, message, fn ->
      compiled(&gathered/1).(Nx.backend_copy(Nx.tensor([3.0, 1.0]), VulkanoBackend))
    end
  end

  defn(halved(x), do: while(x, Nx.any(x > 1), do: x / 2))
  defn(forever(x), do: while(x, x > 0, do: Nx.remainder(x + 1, 100) + 1))

  test "a loop that never ends dies with its process, and keeps no other from its work" do
    x = Nx.backend_copy(Nx.tensor(1), VulkanoBackend)
    compiled(&fibonacci/1).(Nx.tensor(3))
    task = Task.async(fn -> compiled(&forever/1).(x) end)
    Process.sleep(200)
    assert Nx.to_number(Nx.add(x, 1)) == 2
    assert Task.shutdown(task, :brutal_kill) == nil
    assert Nx.to_number(compiled(&fibonacci/1).(Nx.tensor(10))) == 55
  end

  test "processes run loops side by side" do
    fun = compiled(&fibonacci/1)

    for {result, n} <-
          1..20 |> Task.async_stream(&fun.(Nx.tensor(&1)), max_concurrency: 4) |> Enum.zip(1..20) do
      {:ok, result} = result
      assert Nx.to_number(result) == Nx.to_number(evaluated(&fibonacci/1, [Nx.tensor(n)]))
    end
  end

  test "iterations are counted where a loop counts from a number to a number" do
    count = fn fun ->
      expr = Nx.Defn.debug_expr(fun).(Nx.tensor(1.0))
      %{data: %{op: :elem, args: [%{data: %{args: [initial, _, pred, block]}}, _]}} = expr
      Compiler.LoopBound.iterations(Tuple.to_list(initial), {pred, block})
    end

    assert count.(&counted(&1, first: 0, last: 10, step: 3)) == 4
    assert count.(&counted(&1, first: 0, last: 9, step: 3)) == 3
    assert count.(&counted(&1, first: 5, last: 5, step: 1)) == 0
    assert count.(&counted(&1, first: 0, last: 10, step: -1)) == nil
    assert count.(&counted(&1, first: 0, last: 2_147_483_647, step: 2)) == nil
    assert count.(&halving/1) == nil
  end

  defn counted(x, opts) do
    {_, x} = while({i = opts[:first], x}, i < opts[:last], do: {i + opts[:step], x * 2})
    x
  end

  defn halving(x) do
    {_, x} = while({i = 0, x}, x > 0.1, do: {i + 1, x / 2})
    x
  end
end
