defmodule Nx.Vulkan.CatalogueTest do
  @moduledoc "`Nx.Vulkan.Catalogue` says of each operation what Rust's table of ops says, and each has an example."

  use ExUnit.Case, async: true

  alias Nx.Vulkan.{Catalogue, Support}
  alias Nx.Vulkan.Test.{Call, Examples}

  # A row of `OPS`: `op("add", 2, Own(Reals), cheap("…"), None)`, whose last two arguments are the formulas of
  # real and of complex numbers.
  @row ~r/^    op\("(\w+)", (\d+), (.+), (\w+)(?:\("[^"]*"\))?, (\w+)(?:\("[^"]*"\))?\),$/m

  defp rows do
    for [_, name, arity, typing, real, complex] <-
          Regex.scan(@row, File.read!("src/program/op.rs")),
        do: {String.to_atom(name), String.to_integer(arity), typing, real, complex}
  end

  test "its ops of programs are those of OPS, with their arities" do
    in_elixir =
      for %{arity: arity} = op when arity != nil <- Catalogue.operations(), do: {op.name, arity}

    in_rust = for {name, arity, _typing, _real, _complex} <- rows(), do: {name, arity}
    assert Enum.sort(in_elixir) == Enum.sort(in_rust)
  end

  test "its types of element-wise operations are those that OPS has formulas for" do
    for {name, _arity, typing, _real, complex} <- rows(),
        {:ok, %{family: :elementwise} = operation} <- [Catalogue.fetch(name)],
        not String.starts_with?(typing, ["Select", "Convert"]) do
      # Nx takes conjugates of all numbers, and the result is complex.
      integers_only? = String.starts_with?(typing, ["Own(Integers)", "Width"])
      types = if(integers_only?, do: [:u, :s], else: [:u, :s, :f, :bf])
      types = if complex == "None", do: types, else: types ++ [:c]
      assert {name, operation.types} == {name, types}
    end
  end

  test "its costs are those of the formulas of real numbers" do
    for {name, _arity, _typing, real, _complex} <- rows(),
        real != "None",
        {:ok, operation} <- [Catalogue.fetch(name)] do
      assert {name, Atom.to_string(operation.cost)} == {name, real}
    end
  end

  test "each name stands once" do
    names = Enum.map(Catalogue.operations(), & &1.name)
    assert names == Enum.uniq(names)
  end

  for %{group: group, name: name, types: types} when group != nil <- Catalogue.operations() do
    test "#{name} has example calls" do
      type = if :f in unquote(types), do: {:f, 32}, else: {:s, 32}
      assert %Call{} = Examples.example(unquote(name), type, 1)
    end
  end

  test "the support table has every operation that Nx asks for" do
    named = Enum.flat_map(Support.table(Support.all_types()), &elem(&1, 1))
    asked = Catalogue.names(entry: :callback) ++ Catalogue.names(entry: :block)
    assert Enum.sort(named) == Enum.sort(asked)
  end
end
