defmodule Nx.Vulkan.WindowTest do
  @moduledoc "Reductions over windows and scatters from them, against `Nx.BinaryBackend`."

  use Nx.Vulkan.Test.Case, async: true

  @types Generators.device_types() ++ Generators.narrow_types()
  @shapes [{7}, {1}, {4, 5}, {3, 1, 6}, {2, 3, 4}, {2, 2, 3, 4}]

  # `any_zero?` by the name of the reduction: which zero wins a maximum depends on the order.
  for {op, as} <- [window_max: :reduce_max, window_min: :reduce_min] do
    test "#{op} over windows with strides, padding and dilations" do
      for type <- @types, _ <- 1..3 do
        {shape, window, options} = random_windows()
        tensor = Generators.tensor(shape, type, Generators.pick([:any, :few, :near_zero]))
        fun = &apply(Nx, unquote(op), [&1, window, options])

        assert_same(
          fun.(to_device(tensor)),
          nearest(fun, tensor),
          unquote(as),
          context(tensor, options)
        )
      end
    end
  end

  # Sums and products of small integers are exact in every type, or wrap around, or overflow.
  for {op, as, values} <- [
        {:window_sum, :sum, {:integer, -9..9}},
        {:window_product, :product, {:integer, -2..2}}
      ] do
    test "#{op} over windows with strides, padding and dilations" do
      for type <- Generators.device_types(), _ <- 1..3 do
        {shape, window, options} = random_windows()
        tensor = Generators.tensor(shape, type, unquote(Macro.escape(values)))
        fun = &apply(Nx, unquote(op), [&1, window, options])

        assert_same(
          fun.(to_device(tensor)),
          nearest(fun, tensor),
          unquote(as),
          context(tensor, options)
        )
      end
    end

    test "#{op} of large integers wraps around" do
      for type <- Generators.integer_types() do
        {shape, window, options} = random_windows()
        tensor = Generators.tensor(shape, type, :any)
        fun = &apply(Nx, unquote(op), [&1, window, options])

        assert_same(
          fun.(to_device(tensor)),
          nearest(fun, tensor),
          unquote(as),
          context(tensor, options)
        )
      end
    end
  end

  test "a window in the padding alone is the identity" do
    for type <- Generators.device_types(),
        {op, as} <- [window_max: :reduce_max, window_sum: :sum] do
      tensor = Generators.tensor({2}, type, {:integer, 1..5})
      fun = &apply(Nx, op, [&1, {2}, [padding: [{2, 3}], strides: [2]]])
      assert_same(fun.(to_device(tensor)), nearest(fun, tensor), as, type: type)
    end
  end

  # From 65,536 windows on kernels hold them unrolled.
  for {op, as, values} <- [
        {:window_max, :reduce_max, :few},
        {:window_sum, :sum, {:integer, -9..9}}
      ] do
    test "many windows: #{op} of images, their channels first and last" do
      for type <- [{:f, 32}, {:bf, 16}, {:s, 32}],
          {shape, window, strides} <- [
            {{2, 4, 96, 92}, {1, 1, 3, 2}, [1, 1, 1, 1]},
            {{1, 190, 184, 8}, {1, 3, 3, 1}, [1, 2, 1, 1]}
          ] do
        padding =
          for size <- Tuple.to_list(window), do: {div(size, 2), Enum.random(0..1) * (size - 1)}

        options = [strides: strides, padding: padding]
        tensor = Generators.tensor(shape, type, unquote(Macro.escape(values)))
        fun = &apply(Nx, unquote(op), [&1, window, options])

        assert_same(
          fun.(to_device(tensor)),
          nearest(fun, tensor),
          unquote(as),
          context(tensor, options)
        )
      end
    end
  end

  test "window_mean and vectorized windows" do
    tensor = Generators.tensor({3, 4, 5}, {:f, 32}, {:integer, 0..9})
    fun = &Nx.window_mean(&1, {1, 2, 2}, strides: [1, 2, 1])
    assert_same(fun.(to_device(tensor)), nearest(fun, tensor), :sum)

    fun = fn t -> t |> Nx.vectorize(:x) |> Nx.window_sum({2, 3}) |> Nx.devectorize() end
    assert_same(fun.(to_device(tensor)), nearest(fun, tensor), :sum)
  end

  for op <- [:window_scatter_max, :window_scatter_min] do
    test "#{op}: ties, overlaps, padding, NaN" do
      for type <- Generators.sorted_types(), _ <- 1..4 do
        {shape, window, options} = random_windows()
        options = Keyword.delete(options, :window_dilations)
        tensor = Generators.tensor(shape, type, Generators.pick([:few, comparable(type)]))
        scatters(unquote(op), tensor, window, options)
      end
    end
  end

  # BinaryBackend compares the elements in f32.
  @tag :float64
  test "scatters compare f64 elements as such" do
    for {small, large} <- [{1.0, 1.0 + 2 ** -52}, {5.0e-324, 1.0e-323}, {-1.0e-323, -5.0e-324}] do
      source = to_device(Nx.tensor([7.0, 9.0], type: :f64))
      pairs = to_device(Nx.tensor([small, large, large, small], type: :f64))
      scatter = &apply(Nx, &1, [pairs, source, 0, {2}, [strides: [2]]])
      assert Nx.to_flat_list(scatter.(:window_scatter_max)) == [0.0, 7.0, 9.0, 0.0]
      assert Nx.to_flat_list(scatter.(:window_scatter_min)) == [7.0, 0.0, 0.0, 9.0]
    end
  end

  test "gradients of pooling" do
    tensor = Generators.tensor({1, 2, 6, 6}, {:f, 32}, {:integer, 0..5})

    for op <- [:window_max, :window_min, :window_sum],
        options <- [[strides: [1, 1, 2, 2]], [padding: :same], [strides: [1, 1, 1, 2]]] do
      loss = fn t ->
        pooled = apply(Nx, op, [t, {1, 1, 2, 3}, options])
        Nx.sum(Nx.multiply(pooled, pooled))
      end

      grad = &Nx.Defn.grad(&1, loss)
      assert_same(grad.(to_device(tensor)), grad.(tensor), op, options)
    end
  end

  defp scatters(op, tensor, window, options) do
    shape = Nx.window_max(tensor, window, options).shape
    source_type = Generators.pick(Generators.sorted_types())
    source = Generators.tensor(shape, source_type, {:integer, 0..9})
    init = Generators.pick([0, 1, Nx.tensor(3, type: source_type)])

    # BinaryBackend reads integers as floats, by their bits, once it has padded them with one.
    type = Nx.add(tensor, Nx.to_number(Nx.tensor(init))).type

    expected =
      nearest(
        fn [tensor, source] ->
          apply(Nx, op, [Nx.as_type(tensor, type), source, init, window, options])
        end,
        [tensor, source]
      )

    [tensor, source] = operands([tensor, source])
    init = if is_number(init), do: init, else: Generators.pick([init, to_device(init)])
    result = apply(Nx, op, [tensor, source, init, window, options])
    assert_same(result, expected, op, context(tensor, [window: window, init: init] ++ options))
  end

  # Integers are compared as what they are converted to, a float of 8 bits for one, and BinaryBackend compares as s32 and f32:
  # beyond what all of these hold exactly they choose others.
  defp comparable({kind, size}) when kind in [:u, :s] or size == 64, do: {:integer, 0..5}
  defp comparable(_type), do: Generators.pick([:any, :near_zero])

  defp context(tensor, options), do: [type: tensor.type, shape: tensor.shape] ++ options

  # Windows that fit, with options as Nx takes them.
  defp random_windows do
    shape = Generators.pick(@shapes)

    axes =
      for dim <- Tuple.to_list(shape) do
        {low, high} = {:rand.uniform(4) - 2, :rand.uniform(4) - 2}
        {low, high} = if dim + low + high < 1, do: {0, 0}, else: {low, high}
        padded = dim + low + high
        window = :rand.uniform(min(padded, 3))
        dilation = if (window - 1) * 2 + 1 <= padded, do: :rand.uniform(2), else: 1
        {window, :rand.uniform(3), {low, high}, dilation}
      end

    [window, strides, padding, dilations] =
      axes |> Enum.map(&Tuple.to_list/1) |> Enum.zip_with(& &1)

    padding = Generators.pick([padding, padding, :valid, :same])

    dilations =
      if padding == :valid, do: List.duplicate(1, tuple_size(shape)), else: dilations

    window =
      if padding == :valid,
        do: Enum.zip_with(window, Tuple.to_list(shape), &min/2),
        else: window

    {shape, List.to_tuple(window),
     [strides: strides, padding: padding, window_dilations: dilations]}
  end
end
