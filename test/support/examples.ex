defmodule Nx.Vulkan.Test.Examples do
  @moduledoc """
  Random calls of every operation of `Nx.Vulkan.Catalogue`, for each type that it takes. An element-wise
  operation of one or two operands gets its calls from its entry there.

  All that selects a kernel (ranks, axes, flags, a second type) is the example's form, see
  `Nx.Vulkan.Test.Arguments`.
  """

  import Nx.Vulkan.Test.Arguments
  import Nx.Vulkan.Test.Call
  import Nx.Vulkan.Test.Generators, only: [pick: 1, tensor: 3]

  alias Nx.Vulkan.Catalogue
  alias Nx.Vulkan.Test.Examples.Algorithms
  alias Nx.Vulkan.Test.{Generators, Hooks, Reference, Rounding}

  @shifts Catalogue.names(checks: :amount)
  @sums [:sum, :product]
  @extrema [:reduce_max, :reduce_min]
  @predicates [:all, :any]
  @positions [:argmax, :argmin]
  @windows [window_sum: :sum, window_product: :product] ++
             [window_max: :reduce_max, window_min: :reduce_min]
  @window_names Keyword.keys(@windows)
  @scatters Catalogue.names(family: :window_scatter)

  @doc "A random call (`Nx.Vulkan.Test.Call`) of the operation with tensors of the type, of the form of that number."
  def example(op, type, form) do
    form({op, type}, form)
    example(op, type)
  end

  ## Element by element, of operations that cannot take any values

  # Of real numbers that are not finite BinaryBackend's conjugate has +0.0i, of others -0.0i. An integer that is no
  # double is rounded twice, to f64 and to f32, where the device has f64, and once elsewhere.
  defp example(:conjugate, {kind, 64} = type) when kind in [:s, :u],
    do: of_one(:conjugate, type, {:integer, 0..(2 ** 53)})

  defp example(:conjugate, type) do
    values = if integer?(type) or complex?(type), do: :any, else: {:float, -9.0, 9.0}
    of_one(:conjugate, type, values)
  end

  # In c128 BinaryBackend's intermediate results leave the range of doubles before the numbers do.
  defp example(:divide, type) do
    values = if integer?(type), do: {:integer, 0..120}, else: floats(type)
    each(:divide, pair(type, values, values))
  end

  # Of complex numbers those that are real.
  defp example(:atan2, type) do
    values = if integer?(type), do: {:integer, 0..120}, else: floats(type)

    if complex?(type) do
      parts = pair({:f, div(elem(type, 1), 2)}, {:float, -3.0, 3.0}, {:float, -3.0, 3.0})
      each(:atan2, Enum.map(parts, &Nx.as_type(&1, type)))
    else
      each(:atan2, pair(type, values, values))
    end
  end

  defp example(:pow, type) do
    if integer?(type),
      do: each(:pow, pair(type, :any, up_to(type, 70))),
      else: each(:pow, pair(type, floats(type), floats(type)))
  end

  defp example(op, type) when op in @shifts, do: each(op, pair(type, :any, up_to(type, 70)))

  defp example(op, type) when op in [:quotient, :remainder] do
    divisors =
      case type do
        {:s, 2} -> {:integer, -2..-1}
        {:s, _} -> pick([{:integer, 1..7}, {:integer, -7..-1}, :any])
        {:u, 2} -> {:integer, 1..3}
        {:u, _} -> pick([{:integer, 1..15}, :any])
        _ -> pick([:any, :moderate])
      end

    each(op, pair(type, :any, divisors))
  end

  defp example(:clip, type) do
    values = pick([:any, :moderate, :few])
    whole(:clip, [tensor(shape(), type, values) | for(_ <- 1..2, do: tensor({}, type, values))])
  end

  defp example(:select, type) do
    shape = shape()
    # To BinaryBackend of Nx 0.13 a complex zero is true.
    own = if complex?(type) and not Hooks.nx_1_0?(), do: {:u, 8}, else: type
    predicate = tensor(choose([shape, {}]), choose([own, {:u, 8}]), :few)
    each(:select, [predicate, tensor(shape, type, :any), tensor(shape, type, :any)])
  end

  # Below a byte BinaryBackend fails, and differences wrap around.
  defp example(:all_close, type) do
    {values, tolerance} =
      if narrow?(type), do: {{:integer, 0..1}, 1.0e-8}, else: {:few, pick([1.0e-8, 1.5])}

    shape = shape()
    a = tensor(shape, type, values)
    b = pick([a, tensor(shape, type, values)])
    call = whole(:all_close, [a, b], [[equal_nan: choose([true, false]), atol: tolerance]])
    if narrow?(type), do: in_type(call, :s8, :u8), else: call
  end

  ## Creation and conversion

  defp example(:iota, type) do
    shape = shape()
    axis = if shape == {}, do: nil, else: choose([nil | Nx.axes(shape)])
    whole(:iota, [], [shape, [type: type, axis: axis]])
  end

  defp example(:eye, type), do: whole(:eye, [], [shape(2..3), [type: type]])

  defp example(:constant, type) do
    number = pick([0, 1, if(integer?(type), do: 1, else: pick([:nan, :neg_infinity, 1.1]))])
    shape = shape()
    fun = &Nx.broadcast(Nx.tensor(&1, type: type), &2)
    elements = List.duplicate(number, Tuple.product(shape))
    # Nx itself makes elements of a list, and truncates them.
    made = if Rounding.rounded?(type), do: {:f, 64}, else: type
    expected = &Nx.reshape(Nx.as_type(Nx.tensor(elements, type: made), type), &1)
    %{whole(:constant, [], [number, shape], fun) | expected: fn [] -> expected.(shape) end}
  end

  defp example(:as_type, type) do
    to = choose(Generators.all_types())

    # BinaryBackend makes complex numbers of large integers by way of a float, and integers of
    # complex numbers only if these are finite.
    values =
      cond do
        complex?(type) -> :finite
        complex?(to) and integer?(type) -> {:integer, 0..100}
        true -> :any
      end

    call = each(:as_type, [tensor(shape(), type, values)], [to])
    %{call | expected: fn [tensor] -> Reference.as_type(tensor, to) end}
  end

  defp example(:bitcast, {_, size} = type) do
    to = choose(for {_, ^size} = to <- Generators.all_types(), not complex?(to), do: to)
    whole(:bitcast, [tensor(shape(), type, :any)], [to])
  end

  ## Movement

  defp example(:reshape, type) do
    dims = dims(shape())
    whole(:reshape, [moved(dims, type)], [tuple(shuffle(dims))])
  end

  defp example(:squeeze, type),
    do: whole(:squeeze, [moved(shuffle([1, 1 | dims(shape(0..3))]), type)])

  # BinaryBackend cannot broadcast elements of less than a byte.
  defp example(:broadcast, type) do
    shape = shape()
    {spread, kept} = spread(shape)
    tensor = moved(dims(kept), type)

    %{
      whole(:broadcast, [tensor], [spread], &Nx.broadcast/2)
      | expected: fn [tensor] -> broadcast(tensor, spread) end
    }
  end

  defp example(:transpose, type) do
    shape = shape()
    whole(:transpose, [moved(dims(shape), type)], [[axes: shuffle(Nx.axes(shape))]])
  end

  defp example(:reverse, type) do
    shape = shape(1..5)
    whole(:reverse, [moved(dims(shape), type)], [[axes: some(Nx.axes(shape))]])
  end

  defp example(:slice, type) do
    shape = shape(1..4)
    lengths = Enum.map(dims(shape), &:rand.uniform/1)
    strides = Enum.map(lengths, fn _ -> :rand.uniform(3) end)
    whole(:slice, [moved(dims(shape), type)], [starts(shape), lengths, [strides: strides]])
  end

  defp example(:put_slice, type) do
    shape = shape(1..4)
    slice = moved(Enum.map(dims(shape), &:rand.uniform/1), type)
    fun = fn tensor, slice, starts -> Nx.put_slice(tensor, starts, slice) end
    whole(:put_slice, [moved(dims(shape), type), slice], [starts(shape)], fun)
  end

  defp example(:pad, type) do
    shape = shape(0..4)
    value = tensor({}, type, :any)
    whole(:pad, [moved(dims(shape), type), value], [Enum.map(dims(shape), &padding/1)])
  end

  defp example(:concatenate, type) do
    shape = shape(1..4)
    axis = choose(Nx.axes(shape))
    tensors = for _ <- 1..3, do: moved(dims(put_elem(shape, axis, :rand.uniform(4))), type)

    whole(:concatenate, tensors, [axis], fn a, b, c, axis ->
      Nx.concatenate([a, b, c], axis: axis)
    end)
  end

  defp example(:stack, type) do
    shape = shape(0..3)
    tensors = for _ <- 1..2, do: moved(dims(shape), type)
    axis = choose(Enum.to_list(0..tuple_size(shape)))
    whole(:stack, tensors, [axis], fn a, b, axis -> Nx.stack([a, b], axis: axis) end)
  end

  ## Access by index

  defp example(:gather, type) do
    shape = shape(1..4)
    axes = some(Nx.axes(shape))
    indices = indices(choose([{2}, {5}, {2, 3}]), Enum.map(axes, &elem(shape, &1)))
    whole(:gather, [moved(dims(shape), type), indices], [[axes: axes]])
  end

  defp example(:take, type) do
    shape = shape(1..3)
    axis = choose(Nx.axes(shape))
    indices = Nx.squeeze(indices(choose([{2}, {5}, {2, 3}]), [elem(shape, axis)]), axes: [-1])
    whole(:take, [moved(dims(shape), type), indices], [[axis: axis]])
  end

  defp example(:take_along_axis, type) do
    shape = shape(1..3)
    axis = choose(Nx.axes(shape))
    leading = put_elem(shape, axis, :rand.uniform(5))
    indices = Nx.squeeze(indices(leading, [elem(shape, axis)]), axes: [-1])
    whole(:take_along_axis, [moved(dims(shape), type), indices], [[axis: axis]])
  end

  # BinaryBackend decodes and encodes what it scatters, and subnormals of f8 do not come back.
  defp example(op, type) when op in [:indexed_add, :indexed_put] do
    shape = shape(1..3)
    axes = some(Nx.axes(shape))
    rows = :rand.uniform(9)
    others = Enum.map(Nx.axes(shape) -- axes, &elem(shape, &1))
    values = if integer?(type), do: :any, else: small(type)
    indices = indices({rows}, Enum.map(axes, &elem(shape, &1)))
    tensors = [tensor(shape, type, values), indices, tensor(tuple([rows | others]), type, values)]
    %{whole(op, tensors, [[axes: axes]]) | as: :sum}
  end

  ## Reductions and products: sums of small integers are exact in every order

  defp example(op, type) when op in @sums do
    values = if integer?(type), do: :any, else: {:integer, -2..2}

    # Up to 16 complex factors have an exact product in single precision, too: no part is beyond 8^(16/2).
    ranks = if op == :product and complex?(type), do: 0..1, else: 0..5
    tensor = tensor(shape(ranks), type, values)
    whole(op, [tensor], [over_axes(tensor)])
  end

  # BinaryBackend takes every complex number for true. Along no axis Nx converts to u8 instead.
  defp example(op, type) when op in @predicates do
    tensor = tensor(shape(1..5), type, :few)
    call = whole(op, [tensor], [over_axes(tensor)])

    if complex?(type) do
      true? = fn z -> Nx.logical_or(Nx.not_equal(Nx.real(z), 0), Nx.not_equal(Nx.imag(z), 0)) end
      %{call | expected: fn [z] -> apply(Nx, op, [true?.(z) | call.args]) end}
    else
      call
    end
  end

  defp example(op, type) when op in @extrema do
    tensor = tensor(shape(), type, pick([:any, :few]))
    whole(op, [tensor], [over_axes(tensor)])
  end

  defp example(op, type) when op in @positions do
    shape = shape()
    axis = choose([nil | Nx.axes(shape)])
    options = [axis: axis, tie_break: choose([:low, :high]), type: choose([:s32, :s64, :u8])]
    options = if axis, do: [{:keep_axis, choose([true, false])} | options], else: options
    whole(op, [tensor(shape, type, pick([:any, :few]))], [options])
  end

  defp example(:reduce, type) do
    tensors =
      [tensor | _] = [tensor(shape(1..4), type, small(type)), tensor({}, type, small(type))]

    fun = function(type)
    whole(:reduce, tensors, [over_axes(tensor)], &Nx.reduce(&1, &2, &3, fun))
  end

  defp example(:window_reduce, type) do
    {shape, window, options} = windows()
    tensors = [tensor(shape, type, small(type)), tensor({}, type, small(type))]
    fun = function(type)

    whole(:window_reduce, tensors, [window, options], fn tensor, start, window, options ->
      Nx.window_reduce(tensor, start, window, options, fun)
    end)
  end

  defp example(op, type) when op in @window_names do
    {shape, window, options} = windows()

    values =
      cond do
        op in [:window_max, :window_min] -> pick([:any, :few])
        integer?(type) -> :any
        op == :window_product -> {:integer, -2..2}
        true -> small(type)
      end

    %{whole(op, [tensor(shape, type, values)], [window, options]) | as: @windows[op]}
  end

  # BinaryBackend reads integers as floats, by their bits, once it has padded them with one, and
  # compares as s32 and f32.
  defp example(op, type) when op in @scatters do
    {shape, window, options} = windows()
    options = Keyword.delete(options, :window_dilations)
    tensor = tensor(shape, type, small(type))
    source = tensor(Nx.window_max(tensor, window, options).shape, type, small(type))
    fun = fn tensor, source, options -> apply(Nx, op, [tensor, source, 0, window, options]) end
    padded(%{whole(op, [tensor, source], [options], fun) | as: :sum}, type, type)
  end

  defp example(:dot, type) do
    {left, right} = choose([{{5}, {5}}, {{3, 4}, {4}}, {{2, 3}, {3, 4}}, {{2, 2, 3}, {3, 2}}])
    values = if integer?(type), do: :any, else: small(type)
    whole(:dot, [tensor(left, type, values), tensor(right, type, values)])
  end

  defp example(:conv, type) do
    groups = choose([1, 1, 2])
    channels = :rand.uniform(2)
    [height, width] = for _ <- 1..2, do: 3 + :rand.uniform(3)
    kernel = {groups * :rand.uniform(2), channels, :rand.uniform(2), :rand.uniform(2)}
    two = fn -> for(_ <- 1..2, do: :rand.uniform(2)) end
    padding = for _ <- 1..2, do: {:rand.uniform(4) - 2, :rand.uniform(3) - 1}

    options = [
      strides: two.(),
      padding: pick([padding, :same, :valid]),
      kernel_dilation: two.(),
      input_dilation: two.(),
      feature_group_size: groups
    ]

    input = tensor({:rand.uniform(2), groups * channels, height, width}, type, small(type))
    tensors = [input, tensor(kernel, type, small(type))]
    padded(%{whole(:conv, tensors, [options]) | as: :dot}, type, type)
  end

  defp example(op, type) do
    case Catalogue.fetch(op) do
      {:ok, %{family: :elementwise, arity: 2, error: :exact}} -> each(op, pair(type, :any, :any))
      {:ok, %{family: :elementwise, arity: 2}} -> each(op, pair(type, floats(type), floats(type)))
      {:ok, %{family: :elementwise, error: :function}} -> function_of_one(op, type)
      {:ok, %{family: :elementwise, arity: 3}} -> raise ArgumentError, "#{op} has no example"
      {:ok, %{family: :elementwise}} -> of_one(op, type, :any)
      {:ok, _operation} -> Algorithms.example(op, type)
    end
  end

  defp of_one(op, type, values),
    do: %{each(op, [tensor(shape(), type, values)]) | expected: Reference.unary(op)}

  # Beyond 2^24 an integer is no f32, and the function of the nearest one is another number.
  defp function_of_one(op, type) do
    values = if integer?(type), do: {:integer, 0..100}, else: floats(type)
    reference = if complex?(type), do: Reference.complex(op), else: Reference.unary(op)
    %{each(op, [tensor(shape(), type, values)]) | expected: reference}
  end
end
