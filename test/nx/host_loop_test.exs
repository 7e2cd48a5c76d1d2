defmodule Nx.Vulkan.HostLoopTest do
  @moduledoc """
  Loops that one workgroup cannot run: the host starts each iteration as one graph, with the results of
  `Nx.Defn.Evaluator`.
  """

  use Nx.Vulkan.Test.Case, async: true

  import Nx.Defn

  alias Nx.Vulkan.Compiler

  defp flat(results), do: Nx.Defn.Composite.flatten_list([results])

  # Compares with the evaluation on BinaryBackend, and the arguments with what they were.
  defp check(fun, args) do
    expected = apply(Nx.Defn.jit(fun, compiler: Nx.Defn.Evaluator), args)
    given = Enum.map(args, &to_device/1)
    compiled = Nx.Defn.jit(fun, compiler: Compiler)

    for _ <- 1..2 do
      results = apply(compiled, given)

      for {got, want} <- Enum.zip(flat(results), flat(expected)),
          do: assert_same(got, host(want), :while)
    end

    for {got, want} <- Enum.zip(given, args), do: assert_same(got, want, :arguments)
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

  defn grown(x, table) do
    {x, table} = while({x, table}, Nx.sum(x) < 5000, do: {x + Nx.take(table, x), table})
    {x, table}
  end

  test "that fail in the 1,000th iteration say why" do
    table = Nx.broadcast(1, {1000})
    check(&grown/2, [Nx.tensor([0, 1]), Nx.broadcast(1, {6000})])

    assert_raise ArgumentError, ~r/index 1000 is out of bounds/, fn ->
      Nx.Defn.jit(&grown/2, compiler: Compiler).(to_device(Nx.tensor([0, 0])), to_device(table))
      |> elem(0)
      |> Nx.to_flat_list()
    end
  end

  defn(forever(x), do: while(x, Nx.all(x >= 0), do: Nx.sort(Nx.remainder(x + 1, 5))))

  test "that never end die with their process, and keep no other from its work" do
    x = to_device(Nx.tensor([1, 2]))
    task = Task.async(fn -> Nx.Defn.jit(&forever/1, compiler: Compiler).(x) end)
    Process.sleep(200)
    assert Nx.to_flat_list(Nx.add(x, 1)) == [2, 3]
    assert Task.shutdown(task, :brutal_kill) == nil
  end
end
