defmodule Nx.Vulkan.ProgramBuilderTest do
  @moduledoc "The terms that `Nx.Vulkan.ProgramBuilder` makes of keys."

  use ExUnit.Case, async: true

  alias Nx.Vulkan.ProgramBuilder

  @index {:u, 32}

  test "numbers inputs before ops, in whatever order they are added" do
    a = {:a, {:f, 32}, {2, 3}}
    zero = {:scalar, @index, <<0::32>>}

    program =
      ProgramBuilder.new({2, 3})
      |> ProgramBuilder.op(:row, :iota, @index, [], 0)
      |> ProgramBuilder.input(:a, a)
      |> ProgramBuilder.op(:first?, :equal, {:u, 8}, [:row, :row])
      |> ProgramBuilder.input(zero, zero)
      |> ProgramBuilder.op(:kept, :select, {:f, 32}, [:first?, :a, zero])
      |> ProgramBuilder.op(:sum, :sum, {:f, 32}, [:kept], [1])
      |> ProgramBuilder.program()

    nodes = [
      {:iota, @index, [], 0},
      {:equal, {:u, 8}, [2, 2]},
      {:select, {:f, 32}, [3, 0, 1]},
      {:sum, {:f, 32}, [4], [1]}
    ]

    assert program == {nodes, [a, zero], {2, 3}}
  end

  test "an operand that is its own key is one input" do
    a = {:a, {:f, 32}, {4}}

    builder =
      Enum.reduce(1..2, ProgramBuilder.new({4}), fn _, b -> ProgramBuilder.input(b, a, a) end)

    {_nodes, inputs, _shape} =
      builder |> ProgramBuilder.op(:x, :add, {:f, 32}, [a, a]) |> ProgramBuilder.program()

    assert inputs == [a]
  end

  test "a program of one op is what the builder makes of it" do
    for arity <- 0..3, attribute <- [:none, [0]] do
      operands = for i <- 1..arity//1, do: {i, {:f, 32}, {4}}

      built =
        Enum.reduce(operands, ProgramBuilder.new({4}), &ProgramBuilder.input(&2, &1, &1))
        |> ProgramBuilder.op(:x, :op, {:f, 32}, operands, attribute)
        |> ProgramBuilder.program()

      single =
        if attribute == :none,
          do: ProgramBuilder.single(:op, {:f, 32}, operands, {4}),
          else: ProgramBuilder.single(:op, {:f, 32}, operands, {4}, attribute)

      assert single == built
    end
  end

  test "knows when a program has too many values" do
    fill = fn count ->
      Enum.reduce(
        1..count,
        ProgramBuilder.new({}),
        &ProgramBuilder.op(&2, &1, :iota, @index, [], nil)
      )
    end

    assert ProgramBuilder.fits?(fill.(255))
    refute ProgramBuilder.fits?(fill.(256))
  end

  test "a view of a scalar is the scalar" do
    assert ProgramBuilder.view({:scalar, @index, <<1::32>>}, 3, [0]) ==
             {:scalar, @index, <<1::32>>}

    assert ProgramBuilder.view({:a, @index, {2, 3}}, 1, [0, -1]) == {:a, @index, 1, [0, -1]}

    assert ProgramBuilder.padded({:a, @index, {2}}, 0, [0, 0], <<1::32>>, [{-1, 2, 1, [1, 1]}]) ==
             {:a, @index, 0, [0, 0], {<<1::32>>, [{-1, 2, 1, [1, 1]}]}}
  end
end
