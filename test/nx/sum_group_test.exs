defmodule Nx.Vulkan.SumGroupTest do
  @moduledoc """
  Sums of the same axes that read a tensor in common are one kernel in a compiled definition, and give the numbers of
  `Nx.BinaryBackend` in f64.
  """

  # A profile counts the kernels of all processes.
  use Nx.Vulkan.Test.Case, async: false

  import Nx.Defn

  require Nx.Vulkan.Native, as: Native

  alias Nx.Vulkan.Compiler.SumFusion

  # `opts[:axes]` are the axes that are summed.
  defn batch_norm(x, opts \\ []) do
    mean = Nx.mean(x, axes: opts[:axes], keep_axes: true)
    centred = x - mean
    variance = Nx.mean(centred * centred, axes: opts[:axes], keep_axes: true)
    centred * Nx.rsqrt(variance + 1.0e-5)
  end

  defn(moments(x, y, opts \\ []), do: {total(x, opts), total(x * y, opts), total(x * x, opts)})
  defn(five(x, y, opts \\ []), do: {moments(x, y, opts), total(x - y, opts), total(x + y, opts)})
  defn(types(x, y, opts \\ []), do: {total(x, opts), total(Nx.as_type(x, :f64) * y, opts)})

  # The second sum reads what another kernel computes from the first one.
  defn dependent(x, y, opts \\ []) do
    first = total(x * y, opts)
    {first, total(x * Nx.tanh(first), opts)}
  end

  # Two sums read one tensor and two another, and one of each pair depends on one of the other pair: if each pair were a kernel, both
  # kernels would wait for each other.
  defn crossed(x, y, opts \\ []) do
    a = total(x, opts)
    b = total(y, opts)
    {a, b, total(x * Nx.tanh(b), opts), total(y * Nx.tanh(a), opts)}
  end

  # The second sum waits for a kernel that the first one does not need, and only results need both.
  defn waiting(x, y, opts \\ []) do
    {total(x, opts), total(x * Nx.cumulative_max(y, axis: 0), opts)}
  end

  defn(unlike(x, y, opts \\ []), do: {total(x, opts), Nx.reduce_max(x * y, axes: opts[:axes])})
  defn(apart(x, y, opts \\ []), do: {total(x, opts), total(y, opts)})

  defn gradient(x, y, opts \\ []) do
    grad({x, y}, fn {x, y} -> Nx.sum(y * Nx.max(batch_norm(x, axes: opts[:axes]), 0)) end)
  end

  defn conditional(p, x, y) do
    if p, do: moments(x, y, axes: [0]), else: moments(y, x, axes: [0])
  end

  deftransformp(total(x, opts), do: Nx.sum(x, axes: opts[:axes], keep_axes: true))

  # The number of kernels that sum elements of the inputs' shape, on a device with doubles and along axes that are not the last.
  @definitions [
    {&__MODULE__.moments/3, 1},
    {&__MODULE__.five/3, 2},
    {&__MODULE__.types/3, 2},
    {&__MODULE__.dependent/3, 2},
    {&__MODULE__.crossed/3, 4},
    {&__MODULE__.waiting/3, 1},
    {&__MODULE__.unlike/3, 2},
    {&__MODULE__.apart/3, 2},
    {&__MODULE__.gradient/3, 4}
  ]

  # Shapes and axes that take one pass or two, with and without vectors, several outputs a thread, and axes in the middle.
  @spaces [
    {{40, 33}, [0]},
    {{6, 7, 8, 16}, [0, 1, 2]},
    {{9, 4, 30}, [0, 2]},
    {{3, 200, 16}, [0, 1]},
    {{4000, 3}, [0]},
    {{12, 5}, [0, 1]},
    {{12, 70}, [1]}
  ]

  @error 512 * 2.0 ** -23

  defp results(container), do: Nx.Defn.Composite.flatten_list([container])

  defp exact(fun, inputs, opts) do
    inputs = for input <- inputs, do: Nx.as_type(input, :f64)
    results(apply(Nx.Defn.jit(fun, compiler: Nx.Defn.Evaluator), inputs ++ [opts]))
  end

  defp assert_sums(fun, compiled, inputs, opts, context) do
    on_device = Enum.map(inputs, &to_device/1)
    # Evaluated, then replayed.
    for _ <- 1..3 do
      results = results(apply(compiled, on_device ++ [opts]))

      for {result, exact} <- Enum.zip(results, exact(fun, inputs, opts)) do
        assert result.shape == exact.shape
        scale = Nx.max(Nx.abs(exact), Nx.reduce_max(Nx.abs(exact)))
        assert_bound(Nx.as_type(result, :f64), exact, scale, @error, context)
      end
    end
  end

  for {fun, kernels} <- @definitions do
    {:name, name} = Function.info(fun, :name)

    test "#{name} has #{kernels} kernels that sum" do
      fun = unquote(fun)
      compiled = Nx.Vulkan.jit(fun)

      for {shape, axes} <- @spaces do
        inputs = for _ <- 1..2, do: Generators.tensor(shape, {:f, 32}, {:float, -3.0, 3.0})
        assert_sums(fun, compiled, inputs, [axes: axes], {unquote(name), shape, axes})
      end

      # Without doubles sums are compensated, and a kernel adds up two at most.
      if builds_loops?() and Nx.Vulkan.has_f64() do
        inputs = for _ <- 1..2, do: to_device(Nx.iota({6, 7, 16}, type: :f32))
        profile = Nx.Vulkan.profile(fn -> apply(compiled, inputs ++ [[axes: [0, 1]]]) end)
        reducing = for %{name: "reduce " <> _, runs: runs} <- profile.kernels, do: runs
        assert Enum.sum(reducing) == unquote(kernels), inspect(profile.kernels)
      end
    end
  end

  test "a program takes as many sums as a definition gives it, and no more" do
    input = {to_device(Nx.iota({4, 3}, type: :f32)).data.ref, {:f, 32}, {4, 3}}
    sum = {:sum, {:f, 32}, [0], [0]}
    run = &Native.call(run_sums({List.duplicate(sum, &1), &1}, [input], {4, 3}))
    most = SumFusion.most_sums()
    assert {:ok, sums} = run.(most)
    assert tuple_size(sums) == most
    assert_raise ArgumentError, ~r/sums/, fn -> run.(most + 1) end
  end

  # One kernel computes the product and one of the results that read it through the reshape, and stores both.
  test "sums beside a product whose reshape is read twice" do
    [a, b] =
      for shape <- [{4, 3}, {3, 6}], do: Generators.tensor(shape, {:f, 32}, {:float, -1.0, 1.0})

    [x, y] = for _ <- 1..2, do: Generators.tensor({20, 4}, {:f, 32}, {:float, -3.0, 3.0})

    fun = fn a, b, x, y, _opts ->
      product = Nx.dot(a, b)
      flat = Nx.reshape(product, {24})
      total = &Nx.sum(&1, axes: [0])
      {product, Nx.tanh(flat), Nx.multiply(flat, 2), total.(x), total.(Nx.multiply(x, y))}
    end

    assert_sums(fun, Nx.Vulkan.jit(fun), [a, b, x, y], [], :product)
  end

  # `Fusion` recomputes a division for fewer than 2^23 elements.
  test "a quotient is computed once where many elements are multiplied by it" do
    definition = fn x, y -> Nx.multiply(x, Nx.divide(y, 3)) end
    compiled = Nx.Vulkan.jit(definition)

    for {rows, kernels} <- [{2 ** 20 - 1, 1}, {2 ** 20, 2}] do
      x = Nx.broadcast(to_device(Nx.tensor(1.0)), {rows, 8})
      y = to_device(Nx.iota({8}, type: :f32))
      assert_kernels(kernels..kernels, fn -> compiled.(x, y) end)
      last = compiled.(x, y)[rows - 1]
      assert Nx.to_binary(last) == Nx.to_binary(Nx.divide(Nx.iota({8}, type: :f32), 3))
    end
  end

  test "sums of every kind of type, in the branches of a condition" do
    types = [{:f, 32}, {:s, 32}, {:u, 64}, {:bf, 16}, {:f, 16}] ++ [{:f, 64}, {:c, 64}, {:c, 128}]

    for p <- [0, 1], type <- Generators.computed(types) do
      [x, y] =
        for n <- 1..2,
            do: {50, 7} |> Nx.iota() |> Nx.multiply(7 + n) |> Nx.remainder(3) |> Nx.as_type(type)

      p = Nx.tensor(p)
      expected = results(Nx.Defn.jit(&conditional/3, compiler: Nx.Defn.Evaluator).(p, x, y))
      given = Nx.Vulkan.jit(&conditional/3).(to_device(p), to_device(x), to_device(y))

      for {given, expected} <- Enum.zip(results(given), expected),
          do: assert_same(given, expected, :sum)
    end
  end

  # Steps of an expression on two tensors of one shape: an operation, and the indices of what it is of.
  defp drawn_steps do
    for count <- 2..(4 + :rand.uniform(10)) do
      op = Enum.random([:sum, :sum, :sum, :add, :multiply, :max, :scan])
      {op, :rand.uniform(count) - 1, :rand.uniform(count) - 1}
    end
  end

  # Small whole numbers, of which sums are exact in any order. The results are the last step and all sums.
  defp run_steps(steps, x, y) do
    {values, sums} =
      Enum.reduce(steps, {[x, y], []}, fn {op, i, j}, {values, sums} ->
        [a, b] = for index <- [i, j], do: Enum.at(values, index)

        value =
          case op do
            :sum -> Nx.sum(Nx.broadcast(a, x), axes: [0], keep_axes: true)
            :scan -> Nx.cumulative_max(Nx.broadcast(a, x), axis: 0)
            op -> apply(Nx, op, [a, b])
          end
          |> Nx.clip(-9, 9)

        {values ++ [value], if(op == :sum, do: [value | sums], else: sums)}
      end)

    List.to_tuple([List.last(values) | sums])
  end

  test "expressions of sums that depend on each other in drawn ways" do
    for _ <- 1..25 do
      steps = drawn_steps()
      shape = Enum.random([{40, 12}, {300, 5}, {9, 33}])
      [x, y] = for _ <- 1..2, do: to_device(Generators.tensor(shape, {:f, 32}, {:integer, -4..4}))
      fun = &run_steps(steps, &1, &2)
      numbers = fn tensors -> for x <- Tuple.to_list(tensors), do: Nx.to_flat_list(x) end
      exact = Nx.Defn.jit(fun, compiler: Nx.Defn.Evaluator).(host(x), host(y))

      # The third call is replayed.
      for _ <- 1..3,
          do: assert(numbers.(Nx.Vulkan.jit(fun).(x, y)) == numbers.(exact), inspect(steps))
    end
  end
end
