defmodule Nx.Vulkan.ReduceFunTest do
  @moduledoc "Reductions by Elixir functions, against `Nx.BinaryBackend`, and what cannot be traced."

  use Nx.Vulkan.Test.Case, async: true

  import Nx.Defn

  # By name: the function, what to start with, and the values it is good for.
  @functions [
    add: {&Nx.add/2, 0, :integers},
    not_commutative: {&__MODULE__.not_commutative/2, 1, :integers},
    horner: {&__MODULE__.horner/2, 0, :floats},
    larger: {&__MODULE__.larger/2, -1000, :all},
    last: {&__MODULE__.last/2, 0, :all},
    maths: {&__MODULE__.maths/2, 1, :floats},
    shifted: {&__MODULE__.shifted/2, 0, :integers}
  ]

  def not_commutative(x, acc), do: Nx.subtract(Nx.multiply(acc, 3), x)
  def horner(x, acc), do: x |> Nx.add(Nx.multiply(acc, 0.5)) |> Nx.as_type(Nx.type(x))
  def larger(x, acc), do: Nx.select(Nx.greater(x, acc), x, Nx.as_type(acc, Nx.type(x)))
  def last(x, _acc), do: x
  def maths(x, acc), do: Nx.as_type(Nx.sqrt(Nx.abs(Nx.subtract(x, acc))), Nx.type(x))
  def shifted(x, acc), do: Nx.bitwise_xor(Nx.left_shift(acc, 1), x)

  test "over any axes, of any type" do
    for {name, {fun, start, values}} <- @functions, _ <- 1..12 do
      type = Generators.pick(types(values))
      shape = Generators.pick(Generators.shapes() -- [{257}])
      tensor = Generators.tensor(shape, type, {:integer, 0..9})
      start = Nx.tensor(if(match?({:u, _}, type), do: abs(start), else: start), type: type)
      options = [axes: some_axes(tuple_size(shape)), keep_axes: Generators.pick([true, false])]
      options = if shape == {}, do: [], else: Generators.pick([options, []])
      same(name, [tensor, start], &Nx.reduce(&1, &2, options, fun), options ++ [type: type])
    end
  end

  test "an accumulator and a result of other types than the tensor's" do
    tensor = Generators.tensor({3, 5}, {:u, 8}, {:integer, 0..255})
    fun = fn x, acc -> Nx.add(Nx.multiply(acc, 0.5), x) end
    same(:reduce, [tensor, Nx.tensor(0.0)], &Nx.reduce(&1, &2, [axes: [1]], fun))

    same(
      :reduce,
      [tensor, Nx.tensor(0)],
      &Nx.reduce(&1, &2, [type: :s32], fn x, a -> Nx.add(x, a) end)
    )

    complex = Generators.tensor({4, 3}, {:c, 64}, {:float, -2.0, 2.0})

    same(
      :reduce,
      [complex, Nx.tensor(0)],
      &Nx.reduce(&1, &2, [axes: [0]], fn x, a -> Nx.add(x, a) end)
    )
  end

  test "of a view, of a scalar and of a vectorized tensor" do
    tensor = Generators.tensor({4, 6}, {:s, 32}, {:integer, -9..9})
    fun = &not_commutative/2
    same(:reduce, [tensor], &Nx.reduce(Nx.transpose(&1)[[1..4, 0..2]], 1, [axes: [0]], fun))
    same(:reduce, [Nx.tensor(5)], &Nx.reduce(&1, 1, fun))

    same(:reduce, [tensor], fn tensor ->
      Nx.devectorize(Nx.reduce(Nx.vectorize(tensor, :x), 1, fun))
    end)
  end

  test "window_reduce" do
    for _ <- 1..80, type = Generators.pick([{:s, 32}, {:f, 32}]) do
      rank = :rand.uniform(3)
      shape = List.to_tuple(for _ <- 1..rank, do: 3 + :rand.uniform(4))
      window = List.to_tuple(for _ <- 1..rank, do: :rand.uniform(2))
      several = fn largest -> for _ <- 1..rank, do: :rand.uniform(largest) end
      padding = for _ <- 1..rank, do: {:rand.uniform(3) - 1, :rand.uniform(3) - 1}

      options = [
        strides: several.(2),
        window_dilations: several.(2),
        padding: Generators.pick([:valid, :same, padding])
      ]

      tensor = Generators.tensor(shape, type, {:integer, -9..9})
      start = Nx.tensor(Generators.pick([0, 2]), type: type)

      {name, {fun, _, _}} =
        Generators.pick(Keyword.take(@functions, [:add, :not_commutative, :larger]))

      context = [window: window] ++ options
      same(name, [tensor, start], &Nx.window_reduce(&1, &2, window, options, fun), context)
    end
  end

  test "the function may close over tensors of any backend" do
    tensor = Generators.tensor({3, 4}, {:s, 32}, {:integer, -9..9})

    for bias <- [to_device(Nx.tensor(10)), Nx.tensor(10), to_device(Nx.tensor([10]))[0]] do
      fun = fn x, acc -> Nx.add(Nx.add(x, acc), bias) end
      expected = Nx.add(Nx.sum(tensor, axes: [1]), 40)
      assert_same(Nx.reduce(to_device(tensor), 0, [axes: [1]], fun), expected, :reduce)
    end
  end

  test "the function may move what it gets to where that is" do
    fun = fn x, acc -> Nx.add(Nx.backend_transfer(x, VulkanoBackend), acc) end
    assert Nx.to_number(Nx.reduce(to_device(Nx.iota({5})), 0, fun)) == 10
  end

  test "the function is called once" do
    parent = self()

    fun = fn x, acc ->
      send(parent, :called)
      Nx.add(x, acc)
    end

    Nx.reduce(to_device(Nx.iota({10})), 0, fun)
    assert_received :called
    refute_received :called
  end

  test "what the function raises" do
    assert_raise RuntimeError, "no", fn ->
      Nx.reduce(to_device(Nx.iota({3})), 0, fn _, _ -> raise "no" end)
    end
  end

  defn in_a_definition(tensor, scale) do
    Nx.reduce(tensor * scale, 1, [axes: [0]], fn x, acc -> Nx.max(x, acc) * 2 - 1 end)
  end

  test "within a definition" do
    tensor = Generators.tensor({4, 3}, {:s, 32}, {:integer, -9..9})
    same(:reduce, [tensor, Nx.tensor(3)], &in_a_definition/2)
  end

  describe "falls back, saying why," do
    for {what, fun, reason} <- [
          {"a function that reads values", quote(do: &__MODULE__.reads/2), "reads values"},
          {"a function that makes tensors", quote(do: &__MODULE__.makes/2),
           "more than element-wise"},
          {"a function that views tensors", quote(do: &__MODULE__.views/2),
           "more than element-wise"},
          {"Elixir's operators", quote(do: &(&1 + &2)), "Elixir's numbers"}
        ] do
      test what do
        Fallback.put_mode(:raise)
        tensor = to_device(Nx.iota({4}))

        assert_raise Fallback.Error, ~r/#{unquote(reason)}/, fn ->
          Nx.window_reduce(tensor, 0, {2}, unquote(fun))
        end
      end
    end

    test "and gives BinaryBackend's result" do
      Fallbacks.allow()
      tensor = Nx.iota({2, 3})
      same(:reduce, [tensor], &Nx.reduce(&1, 0, [axes: [1]], fn x, acc -> reads(x, acc) end))
      same(:reduce, [tensor], &Nx.reduce(&1, 0, [axes: [1]], fn x, acc -> views(x, acc) end))
    end
  end

  def reads(x, acc), do: if(Nx.to_number(x) > 1, do: Nx.add(x, acc), else: acc)
  def makes(x, acc), do: Nx.sum(Nx.broadcast(Nx.add(x, acc), {2}))

  def views(x, acc), do: Nx.add(Nx.squeeze(Nx.reverse(Nx.reshape(x, {1}))), acc)

  defp same(op, tensors, fun, context \\ []),
    do: assert_same(apply(fun, operands(tensors)), nearest(&apply(fun, &1), tensors), op, context)

  defp types(:integers), do: Generators.integer_types()
  defp types(:floats), do: Generators.float_types()
  defp types(:all), do: Generators.device_types()

  defp some_axes(0), do: []
  defp some_axes(rank), do: Enum.take_random(Enum.to_list(0..(rank - 1)), :rand.uniform(rank))
end
