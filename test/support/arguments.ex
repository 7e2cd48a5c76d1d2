defmodule Nx.Vulkan.Test.Arguments do
  @moduledoc """
  Draws the arguments of random calls: shapes, axes, options and tensors.

  All that selects a kernel is drawn by `choose/1` from a random state of its own, which `form/2` sets; extents and
  values are drawn from ExUnit's seed. Calls of one form have other tensors each, and run the kernel that was
  built for the form.
  """

  import Nx.Vulkan.Test.Generators, only: [pick: 1, tensor: 3]

  @doc "Begins the form with that number, of the operation and type that the label names."
  def form(label, number) do
    seed = ExUnit.configuration()[:seed]
    Process.put(__MODULE__, :rand.seed_s(:exsss, {seed, :erlang.phash2(label), number}))
  end

  @doc "One of the list, the same in each call of a form."
  def choose(list) do
    {n, state} = :rand.uniform_s(length(list), Process.get(__MODULE__))
    Process.put(__MODULE__, state)
    Enum.at(list, n - 1)
  end

  def shuffle(list) do
    list
    |> Enum.map(&{choose(Enum.to_list(1..1000)), &1})
    |> Enum.sort()
    |> Enum.map(&elem(&1, 1))
  end

  ## Types

  def integer?({kind, _}), do: kind in [:u, :s]
  def complex?({kind, _}), do: kind == :c
  def narrow?({_, size}), do: size < 8

  def floats(type), do: if(complex?(type), do: :moderate, else: pick([:any, :moderate]))

  # Integers that every one of the types holds.
  def small({:u, 2}), do: {:integer, 0..3}
  def small({:u, _}), do: {:integer, 0..7}
  def small({:s, 2}), do: {:integer, -2..1}
  def small(_type), do: {:integer, -4..4}

  def up_to({kind, size}, most),
    do: {:integer, 0..min(most, 2 ** if(kind == :s, do: size - 1, else: size) - 1)}

  def transformed(type), do: if(integer?(type), do: small(type), else: {:float, -10.0, 10.0})

  def largest(tensor),
    do: tensor |> Nx.as_type(:c128) |> Nx.abs() |> Nx.reduce_max() |> Nx.to_number()

  ## Shapes and tensors

  def shape(ranks \\ 0..5) do
    rank = choose(Enum.to_list(ranks))
    # One element along an axis is a form too: the axis falls out of the kernel.
    tuple(for _ <- 1..rank//1, do: choose([1, 2, 2, 2]) |> extent(if rank > 3, do: 2, else: 4))
  end

  defp extent(1, _more), do: 1
  defp extent(2, more), do: 1 + :rand.uniform(more)

  def dims(shape), do: Tuple.to_list(shape)
  def tuple(list), do: List.to_tuple(list)
  def some([]), do: []

  def some(axes),
    do: axes |> shuffle() |> Enum.take(choose(Enum.to_list(1..length(axes)))) |> Enum.sort()

  def moved(dims, type), do: tensor(tuple(dims), type, :any)

  # Two tensors that broadcast, on either side and on both.
  def pair(type, left, right) do
    shape = shape()
    [a, b] = for _ <- 1..2, do: 1 + :rand.uniform(4)

    {left_shape, right_shape} =
      choose([
        {shape, shape},
        {shape, shape},
        {{}, shape},
        {shape, {}},
        {{a, 1}, {b}},
        {{2, a, b}, {a, 1}}
      ])

    [tensor(left_shape, type, left), tensor(right_shape, type, right)]
  end

  # The shape, and one that broadcasts to it.
  def spread(shape) do
    kept = Enum.map(dims(shape), &choose([&1, &1, 1]))
    {shape, tuple(Enum.drop(kept, choose(Enum.to_list(0..length(kept)))))}
  end

  @doc "The tensor in that shape: BinaryBackend cannot broadcast elements of less than a byte."
  def broadcast(%{shape: shape} = tensor, shape), do: tensor

  def broadcast(%{type: type} = tensor, shape) do
    if narrow?(type),
      do: tensor |> Nx.as_type(:s8) |> Nx.broadcast(shape) |> Nx.as_type(type),
      else: Nx.broadcast(tensor, shape)
  end

  # Numbers, or tensors from before the tensor to beyond it, which are clamped.
  def starts(shape) do
    numbers = Enum.map(dims(shape), &(:rand.uniform(&1 + 2) - 2))

    if choose([true, false]),
      do: Enum.map(numbers, &max(&1, 0)),
      else: Enum.map(numbers, &Nx.tensor(&1, type: :s32, backend: Nx.BinaryBackend))
  end

  # Something is left, and BinaryBackend can do it: no more is cut than there is.
  def padding(dim) do
    interior = pick([0, 0, 1, 2])
    length = dim + (dim - 1) * interior
    [low, high] = for _ <- 1..2, do: :rand.uniform(length + 2) - length
    if length + min(low, 0) + min(high, 0) > 0, do: {low, high, interior}, else: {1, 0, interior}
  end

  def indices(shape, dims) do
    elements = for _ <- 1..Tuple.product(shape), dim <- dims, do: :rand.uniform(dim) - 1
    shape = Tuple.insert_at(shape, tuple_size(shape), length(dims))

    elements
    |> Nx.tensor(type: choose([:s32, :u8, :s64]), backend: Nx.BinaryBackend)
    |> Nx.reshape(shape)
  end

  def over_axes(tensor) do
    axes = choose([nil, some(Nx.axes(tensor))])
    [axes: axes, keep_axes: choose([true, false])]
  end

  def function(type) do
    sum = fn x, acc -> Nx.as_type(Nx.add(x, acc), type) end
    larger = fn x, acc -> Nx.as_type(Nx.select(Nx.greater(x, acc), x, acc), type) end
    last = fn x, _acc -> Nx.as_type(x, type) end
    choose([sum, last, if(complex?(type), do: sum, else: larger)])
  end

  # Windows that fit, with options as Nx takes them.
  def windows do
    rank = choose([1, 2, 3])
    shape = tuple(for _ <- 1..rank, do: 2 + :rand.uniform(3))
    several = fn fun -> for _ <- 1..rank, do: fun.() end
    padding = several.(fn -> {:rand.uniform(4) - 2, :rand.uniform(3) - 1} end)

    options = [
      strides: several.(fn -> :rand.uniform(2) end),
      padding: pick([padding, :valid, :same])
    ]

    dilations = if options[:padding] == :same, do: several.(fn -> :rand.uniform(2) end)
    window = tuple(several.(fn -> :rand.uniform(2) end))
    {shape, window, if(dilations, do: [{:window_dilations, dilations} | options], else: options)}
  end

  def matrix(shape, type), do: tensor(shape, type, small(type))

  # Diagonally dominant, or of ones where there are no numbers for it.
  def regular(n, type) do
    if narrow?(type) do
      Nx.as_type(
        Nx.select(Nx.eye(n), 1, Nx.triu(tensor({n, n}, {:s, 32}, {:integer, 0..1}))),
        type
      )
    else
      Nx.as_type(
        Nx.add(tensor({n, n}, {:s, 32}, {:integer, 0..2}), Nx.multiply(Nx.eye(n), 9)),
        type
      )
    end
  end

  # Symmetric and positive definite.
  def positive(n, type) do
    if narrow?(type) do
      Nx.as_type(Nx.eye(n), type)
    else
      a = tensor({n, n}, {:s, 32}, {:integer, 0..1})
      Nx.as_type(Nx.add(Nx.add(a, Nx.transpose(a)), Nx.multiply(Nx.eye(n), 9)), type)
    end
  end
end
