defmodule Nx.Vulkan.Test.Matrices do
  @moduledoc "Batches of matrices for tests of linear algebra, and arithmetic with them."

  alias Nx.Vulkan.Test.Generators

  @doc "Elements from -1 to 1, of complex types their parts."
  def random(shape, {:c, size}) do
    parts = for _ <- 1..2, do: random(shape, {:f, div(size, 2)})
    apply(Nx, :complex, parts)
  end

  def random(shape, type), do: Generators.tensor(shape, type, {:float, -1.0, 1.0})

  @doc "The Hilbert matrix, whose condition is about e^(3.5n)."
  def hilbert(n, type) do
    [i, j] = for axis <- [0, 1], do: Nx.iota({n, n}, axis: axis, type: {:f, 64})
    Nx.as_type(Nx.divide(1, Nx.add(Nx.add(i, j), 1)), type)
  end

  def transpose(a) do
    [last, before | batch] = Enum.reverse(Nx.axes(a))
    Nx.transpose(a, axes: Enum.reverse(batch) ++ [last, before])
  end

  @doc "The conjugate transposes."
  def adjoint(%{type: {:c, _}} = a), do: Nx.conjugate(transpose(a))
  def adjoint(a), do: transpose(a)

  @doc "The products of the matrices with those of `b`, or with a vector."
  def dot(a, %{shape: {_}} = b), do: Nx.dot(a, b)

  def dot(a, b) do
    batch = Enum.to_list(0..(Nx.rank(a) - 3)//1)
    Nx.dot(a, [-1], batch, b, [-2], batch)
  end
end
