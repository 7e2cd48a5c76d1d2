defmodule Nx.Vulkan.HostLoopTest do
  @moduledoc """
  Loops that one workgroup cannot run: the host starts each iteration as one graph, several ahead where the device has
  conditional rendering, with the results of `Nx.Defn.Evaluator`.
  """

  use Nx.Vulkan.Test.Case, async: true

  import Nx.Defn

  alias Nx.Vulkan.Compiler

  defp flat(results), do: Nx.Defn.Composite.flatten_list([results])

  # Compares with the evaluation on BinaryBackend, and the arguments with what they were.
  defp check(fun, args) do
    expected = apply(Nx.Defn.jit(fun, compiler: Nx.Defn.Evaluator), args)
    given = Enum.map(args, &Nx.Defn.Composite.traverse(&1, fn tensor -> to_device(tensor) end))
    compiled = Nx.Defn.jit(fun, compiler: Compiler)

    # Evaluated, recorded, and replayed from the first iteration on.
    for _ <- 1..3 do
      results = apply(compiled, given)

      for {got, want} <- Enum.zip(flat(results), flat(expected)),
          do: assert_same(got, host(want), :while)
    end

    for {got, want} <- Enum.zip(Enum.flat_map(given, &flat/1), Enum.flat_map(args, &flat/1)),
        do: assert_same(got, want, :arguments)
  end

  defn(halved(x), do: while(x, Nx.any(x > 1), do: x / 2))

  test "of many elements" do
    check(&halved/1, [Generators.tensor({40_000}, {:f, 32}, {:integer, 0..999})])
    check(&halved/1, [Nx.broadcast(Nx.tensor(0.5), {40_000})])
  end

  # Values that change places, one that stays, and one that is the copy of another.
  defn sorted(x, y, n) do
    while {x, y, n, total = Nx.sum(x) * 0, _last = y}, total < 40 do
      {Nx.sort(y), x + n, n, total + n, x}
    end
  end

  test "whose values take each other's places" do
    check(&sorted/3, [Nx.tensor([3, 1, 2]), Nx.tensor([9, 8, 7]), Nx.tensor(3)])
  end

  defn counted(x, n) do
    {x, _, _} = while({x, i = 0, n}, i < n, do: {Nx.sort(Nx.reverse(x) + i), i + 1, n})
    x
  end

  test "whose condition the host knows have no graph of their own, and are part of their definition's" do
    x = to_device(Nx.tensor([3, 1, 2]))
    compiled = Nx.Defn.jit(&counted(&1, 9), compiler: Compiler)
    for _ <- 1..3, do: assert_same(compiled.(x), counted(Nx.tensor([3, 1, 2]), 9), :while)
    assert programs(fn -> compiled.(x) end) == 0
  end

  defn nested(x) do
    while x, Nx.sum(x) < 4000 do
      {y, _} = while({y = Nx.sort(x), n = x[0]}, Nx.sum(y) < n * 9, do: {Nx.sort(y + 1), n})
      Nx.reverse(y) + 1
    end
  end

  test "within each other" do
    check(&nested/1, [Nx.tensor([5, 1, 40])])
  end

  # Sorting keeps a loop of few elements with the host.
  defn drawn(a, b, v, n, opts \\ []) do
    {a, b, v, i, _n} =
      while {a, b, v = Nx.sort(v), i = 0, n}, ahead(i, n, opts[:bound]) do
        {a, b, v} = steps(a, b, v, i, opts[:steps])
        {a, b, Nx.sort(v), i + 1, n}
      end

    {a, b, v, i}
  end

  deftransformp(steps(a, b, v, i, steps),
    do: Enum.reduce(steps, {a, b, v}, fn step, abv -> step(step, abv, i) end)
  )

  @steps [:exchange, :shift, :copy, :product, :take, :put, :constant, :reset, :reverse, :counter]
  deftransformp step(step, {a, b, v}, i) do
    case step do
      :exchange -> {b, a, v}
      :shift -> {bounded(Nx.add(a, b)), a, v}
      :copy -> {a, a, v}
      :product -> {bounded(Nx.dot(a, b)), b, v}
      :take -> {a, b, Nx.take(v, Nx.remainder(Nx.abs(v), Nx.size(v)))}
      :put -> {a, b, Nx.put_slice(v, [Nx.remainder(i, Nx.size(v))], Nx.reshape(i, {1}))}
      :constant -> {a, Nx.broadcast(Nx.tensor(7, type: b.type), b.shape), v}
      :reset -> {Nx.iota(a.shape, type: a.type), b, v}
      :reverse -> {Nx.reverse(a), b, Nx.reverse(v)}
      :counter -> {Nx.add(a, i), b, Nx.add(v, i)}
    end
  end

  deftransformp(ahead(i, n, :known), do: Nx.less(i, n[0]))
  deftransformp(ahead(i, n, :computed), do: Nx.less(Nx.multiply(i, 2), Nx.multiply(n[0], 2)))

  defp bounded(tensor), do: Nx.remainder(tensor, 97)

  test "drawn at random, of any number of iterations" do
    for _ <- 1..8 do
      steps = Enum.take_random(@steps, :rand.uniform(4))
      size = Enum.random([2, 5, 40])
      matrix = fn -> Generators.tensor({size, size}, {:s, 32}, {:integer, -9..9}) end
      v = Generators.tensor({7}, {:s, 32}, {:integer, -20..20})
      loop = &drawn(&1, &2, &3, &4, steps: steps, bound: Enum.random([:known, :computed]))
      iterations = Nx.tensor([Enum.random([0, 1, 2, 5, 70])], type: :s32)
      check(loop, [matrix.(), matrix.(), v, iterations])
    end
  end

  defn awaited(x, go) do
    {x, _go} = while({x, go = go[0]}, go, do: {Nx.sort(x * 2), Nx.any(x < 100)})
    x
  end

  test "whose condition is one of their values" do
    for go <- [0, 1], do: check(&awaited/2, [Nx.tensor([3, 1]), Nx.tensor([go], type: :u8)])
  end

  # Ends by what it computes: no bound is known before.
  defn counting(x, n) do
    {x, i, _} =
      while({x, i = 0, n}, i * 2 < n[0] * 2, do: {Nx.sort(Nx.reverse(x) + i), i + 1, n})

    {x, i}
  end

  test "the host reads the conditions of several iterations at once" do
    x = to_device(Nx.tensor([3, 1, 2]))
    compiled = Nx.Defn.jit(&counting/2, compiler: Compiler)
    run = fn n -> compiled.(x, to_device(Nx.tensor([n]))) end

    # Evaluated, recorded in vain as it reads, and evaluated from then on; its iterations have a graph by then.
    for _ <- 1..2, do: run.(3)

    waits = programs(fn -> run.(500) end, iterations_finish: 1)
    {:ok, %{features: features}} = Nx.Vulkan.device_info()
    # The first chunks grow to 32 kernels, and slow ones shrink.
    assert waits in if(:conditional_rendering in features, do: 8..250, else: 0..0)
  end

  defn long(x, n) do
    {x, _, _} = while({x, i = 0, n}, i * 2 < n[0] * 2, do: {sorted(x, i), i + 1, n})
    x
  end

  deftransformp(sorted(x, i),
    do: Enum.reduce(1..33, x, fn _, x -> Nx.sort(Nx.reverse(Nx.add(x, i))) end)
  )

  test "the host reads each condition where an iteration has more kernels than are started ahead" do
    check(&long/2, [Nx.tensor([3, 1, 2]), Nx.tensor([5])])
    compiled = Nx.Defn.jit(&long/2, compiler: Compiler)
    args = Enum.map([Nx.tensor([3, 1, 2]), Nx.tensor([5])], &to_device/1)
    assert programs(fn -> apply(compiled, args) end, iterations_finish: 1) == 0
  end

  # The loop that goes by steps of `step` while the counter compares so to the bound, in each order of the two.
  defn towards(x, first, last, opts \\ []) do
    {x, i, last} =
      while {x, i = first[0], last}, compared(i, last[0], opts) do
        {Nx.sort(Nx.reverse(x) + Nx.as_type(i, :s32)), advanced(i, opts), last}
      end

    {x, i, last}
  end

  deftransformp compared(i, last, opts) do
    [a, b] = if opts[:reversed], do: [last, i], else: [i, last]
    apply(Nx, opts[:comparison], [a, b])
  end

  deftransformp advanced(i, opts) do
    step = Nx.tensor(abs(opts[:step]), type: i.type)
    if opts[:step] < 0, do: Nx.subtract(i, step), else: Nx.add(step, i)
  end

  test "that an induction variable ends read no condition" do
    x = Nx.tensor([3, 1, 2])

    for comparison <- [:less, :less_equal, :greater, :greater_equal],
        reversed <- [false, true],
        type <- [s: 8, s: 32, s: 64],
        bound_type <- [type, {:u, 8}] do
      up? = comparison in [:less, :less_equal]
      # Towards the bound.
      sign = if up? == reversed, do: -1, else: 1
      step = sign * Enum.random([1, 3])
      distance = Enum.random([-2, 0, 1, 3, 4, 9])
      last = Enum.random(12..40)

      first = Nx.tensor([last - sign * distance], type: type)
      last = Nx.tensor([last], type: bound_type)

      opts = [comparison: comparison, reversed: reversed, step: step]
      check(&towards(&1, &2, &3, opts), [x, first, last])
      compiled = Nx.Defn.jit(&towards(&1, &2, &3, opts), compiler: Compiler)
      args = Enum.map([x, first, last], &to_device/1)
      for _ <- 1..3, do: apply(compiled, args)
      assert programs(fn -> apply(compiled, args) end, buf_read: 3) == 2
      assert programs(fn -> apply(compiled, args) end, iterations_finish: 1) == 0
    end
  end

  test "whose induction variable wraps end as they do on BinaryBackend" do
    # 120, 127, and then -122: above the bound after it was reached.
    args = [Nx.tensor([3, 1]), Nx.tensor([113], type: :s8), Nx.tensor([125], type: :s8)]
    check(&towards(&1, &2, &3, comparison: :less_equal, step: 7), args)
    # The bound is what the counter cannot reach.
    args = [Nx.tensor([3, 1]), Nx.tensor([-100], type: :s8), Nx.tensor([-120], type: :s8)]
    check(&towards(&1, &2, &3, comparison: :greater, step: -9), args)
  end

  defn many(values, n) do
    {values, _i, _n} = while({values, i = 0, n}, i < n, do: {shifted(values), i + 1, n})
    values
  end

  deftransformp(shifted(values),
    do: values |> Tuple.to_list() |> Enum.map(&Nx.sort(Nx.add(&1, 1))) |> List.to_tuple()
  )

  test "of many values" do
    values = for(i <- 1..40, do: Nx.tensor([i, -i])) |> List.to_tuple()
    check(&many/2, [values, Nx.tensor(4)])
    compiled = Nx.Defn.jit(&many/2, compiler: Compiler)

    args = [
      values |> Tuple.to_list() |> Enum.map(&to_device/1) |> List.to_tuple(),
      to_device(Nx.tensor(4))
    ]

    for _ <- 1..3, do: apply(compiled, args)
    # The first iterations are evaluated and recorded.
    assert programs(fn -> apply(compiled, args) end, definition_run: 3) in 4..5
  end

  defn grown(x, table) do
    {x, table} = while({x, table}, Nx.sum(x) < 5000, do: {x + Nx.take(table, x), table})
    {x, table}
  end

  test "that fail in the 1,000th iteration say why" do
    table = Nx.broadcast(1, {1000})
    check(&grown/2, [Nx.tensor([0, 1]), Nx.broadcast(1, {6000})])

    compiled = Nx.Defn.jit(&grown/2, compiler: Compiler)

    for _ <- 1..3, x = Nx.tensor([0, 0]) do
      compiled.(to_device(x), to_device(Nx.multiply(table, 3000)))

      assert_raise ArgumentError, ~r/index 1000 is out of bounds/, fn ->
        compiled.(to_device(x), to_device(table)) |> elem(0) |> Nx.to_flat_list()
      end
    end
  end

  defn(forever(x), do: while(x, Nx.all(x >= 0), do: Nx.sort(Nx.remainder(x + 1, 5))))

  test "that never end die with their process, and keep no other from its work" do
    x = to_device(Nx.tensor([1, 2]))
    task = Task.async(fn -> Nx.Defn.jit(&forever/1, compiler: Compiler).(x) end)
    Process.sleep(200)
    assert Nx.to_flat_list(Nx.add(x, 1)) == [2, 3]
    assert Task.shutdown(task, :brutal_kill) == nil
    assert Nx.to_flat_list(Nx.add(x, 2)) == [3, 4]
  end
end
