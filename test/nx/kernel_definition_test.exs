defmodule Nx.Vulkan.KernelDefinitionTest do
  @moduledoc "Kernels that users write, in definitions: on the device, by their defaults elsewhere, and in gradients."

  use Nx.Vulkan.Test.Case, async: true

  import Nx.Defn

  alias Nx.Vulkan.Kernel, as: OwnKernel

  @cube OwnKernel.new(
          name: "cube",
          inputs: [x: :f32],
          outputs: [y: :f32],
          source:
            "void main() { uint i = gl_GlobalInvocationID.x; if (i < x_size) y[i] = x[i] * x[i] * x[i]; }"
        )

  defn(plain_cube(x), do: x * x * x)
  defn(cube(x), do: OwnKernel.call(@cube, [x], x, grid: Nx.size(x), default: &plain_cube/1))
  defn(around(x), do: Nx.sum(cube(x + 1) * 2, axes: [1]))
  defn(gradient(x), do: grad(x, fn x -> Nx.sum(cube(x)) end))

  defn own_gradient(x) do
    grad(x, fn x -> custom_grad(cube(x), [x], fn g -> [g * 100] end) |> Nx.sum() end)
  end

  # The host cannot know how often.
  defn loop(x) do
    {_, x} =
      while {limit = Nx.sum(x) * 0 + 3, x}, limit > 0 do
        {limit - 1, cube(x) * 0.5}
      end

    x
  end

  defn counted(x) do
    {_, x} =
      while {i = 0, x}, i < 3 do
        {i + 1, cube(x) * 0.5}
      end

    x
  end

  defn branch(x) do
    if Nx.sum(x) > 0, do: cube(x), else: -x
  end

  # Different numbers by kernel and by default tell which has run.
  defn(which(x), do: OwnKernel.call(@cube, [x], x, grid: Nx.size(x), default: &Nx.negate/1))

  defn which_in_loop(x) do
    {_, x} =
      while {limit = Nx.sum(x) * 0 + 2, x}, limit > 0 do
        {limit - 1, which(x)}
      end

    x
  end

  test "a kernel is right among others, in loops, branches and gradients, in calls that repeat" do
    definitions = [&around/1, &gradient/1, &loop/1, &counted/1, &branch/1, &cube/1]

    for {fun, index} <- Enum.with_index(definitions), scale <- [0.125, -0.25] do
      x = Nx.multiply(Nx.iota({3, 5}, type: :f32), scale)
      expected = Nx.Defn.jit(fun, compiler: Nx.Defn.Evaluator).(x)
      on_device = Nx.Defn.jit(fun, compiler: Nx.Vulkan.Compiler)
      for _ <- 1..4, do: assert_all_close(host(on_device.(to_device(x))), expected, index)
    end

    ones = to_device(Nx.broadcast(1.0, {2}))
    own = Nx.Defn.jit(&own_gradient/1, compiler: Nx.Vulkan.Compiler)
    for _ <- 1..3, do: assert(Nx.to_list(own.(ones)) == [100.0, 100.0])
  end

  test "it runs on the device, and its default elsewhere" do
    x = Nx.tensor([2.0, 3.0], type: :f32)

    for compiler <- [Nx.Vulkan.Compiler, Nx.Defn.Evaluator] do
      assert Nx.Defn.jit(&which/1, compiler: compiler).(to_device(x)) |> Nx.to_list() == [
               8.0,
               27.0
             ]

      assert Nx.Defn.jit(&which_in_loop/1, compiler: compiler).(to_device(x)) |> Nx.to_list() ==
               [512.0, 19_683.0]
    end

    assert Nx.Defn.jit(&which/1, compiler: Nx.Defn.Evaluator).(x) |> Nx.to_list() == [
             -2.0,
             -3.0
           ]
  end

  test "it is part of the definition's graph" do
    # No other test calls it with this shape.
    x = to_device(Nx.iota({4, 7}, type: :f32))
    fun = Nx.Defn.jit(&around/1, compiler: Nx.Vulkan.Compiler)
    called = fn -> programs(fn -> fun.(x) end, tensor_kernel: 5) end
    assert called.() >= 1
    # The second time it is recorded.
    called.()
    for _ <- 1..3, do: assert(called.() == 0)
  end

  test "an index out of bounds before it is an error of its result" do
    fun =
      Nx.Defn.jit(fn x, i -> cube(Nx.take(x, i)) end, compiler: Nx.Vulkan.Compiler)

    x = to_device(Nx.iota({4}, type: :f32))

    for _ <- 1..4 do
      assert fun.(x, to_device(Nx.tensor([1, 2]))) |> Nx.to_list() == [1.0, 8.0]
      wrong = fun.(x, to_device(Nx.tensor([1, 9])))
      assert_raise ArgumentError, ~r/index 9/, fn -> Nx.to_binary(wrong) end
    end
  end

  test "it needs a default" do
    assert_raise ArgumentError, ~r/kernel cube: default: a definition needs/, fn ->
      Nx.Defn.jit(&OwnKernel.call(@cube, [&1], &1, grid: 1), compiler: Nx.Vulkan.Compiler).(1.0)
    end

    x = Nx.tensor([1.0], type: :f32)

    for wrong <- [fn _, _ -> x end, :no_function] do
      assert_raise ArgumentError, ~r/default: expected a function of the 1 inputs/, fn ->
        OwnKernel.call(@cube, [x], x, grid: 1, default: wrong)
      end
    end

    assert_raise ArgumentError, ~r/default: expected it to return/, fn ->
      OwnKernel.call(@cube, [x], x, grid: 1, default: &Nx.new_axis(&1, 0))
    end

    assert_raise ArgumentError, ~r/default: a backend that does not run kernels/, fn ->
      OwnKernel.call(@cube, [x], x, grid: 1)
    end
  end

  test "of vectorized tensors each entry is a call" do
    halves =
      OwnKernel.new(
        name: "halves",
        inputs: [x: :f32, w: :f32],
        outputs: [sum: :f32, first: :f32],
        source:
          "void main() { if (gl_GlobalInvocationID.x == 0u) { first[0] = x[0]; sum[0] = x[0] * w[0] + x[1] * w[1]; } }"
      )

    outs = {Nx.template({}, :f32), Nx.template({1}, :f32)}
    x = Nx.iota({3, 2}, type: :f32) |> Nx.vectorize(:a)
    w = Nx.iota({2, 2}, type: :f32) |> Nx.vectorize(:b)
    default = fn x, w -> {Nx.dot(x, w), x[0..0]} end
    run = fn x, w -> OwnKernel.call(halves, [x, w], outs, grid: 1, default: default) end
    expected = run.(x, w)

    for result <- [
          run.(to_device(x), to_device(w)),
          Nx.Defn.jit(run, compiler: Nx.Vulkan.Compiler).(to_device(x), to_device(w))
        ] do
      for i <- 0..1, do: assert(host(elem(result, i)) == elem(expected, i))
    end
  end

  defp assert_all_close(result, expected, context) do
    assert result.shape == expected.shape
    assert Nx.to_number(Nx.all_close(result, expected)) == 1, inspect({context, result, expected})
  end
end
