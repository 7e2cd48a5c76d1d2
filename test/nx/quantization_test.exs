defmodule Nx.Vulkan.QuantizationTest do
  @moduledoc "Quantized weights: how far they are from what they were, and products with them."

  use Nx.Vulkan.Test.Case, async: true

  import Nx.Defn

  Code.require_file("../../bench/support/decoder.exs", __DIR__)

  alias Bench.Decoder
  alias Nx.Vulkan.{Compiler, Quantization}

  @types [:s8, :u8, :s4, :u4]
  # Groups of a part of the axis, and of all of it.
  @groups [16, nil]
  @depth 128
  # Kernels load four columns at once, where their number is a multiple of that.
  @columns 20
  @odd_columns 19

  defp matrix(axis, columns \\ @columns) do
    shape = if axis == 0, do: {@depth, columns}, else: {columns, @depth}
    Generators.tensor(shape, {:f, 32}, {:float, -3.0, 2.0})
  end

  defp wide(tensor), do: Nx.as_type(tensor, :f64)
  defp fill(tensor, number), do: Nx.broadcast(number, tensor.shape)
  defp compiled(fun), do: Nx.Defn.jit(fun, compiler: Compiler, cache: false)

  # The largest scale of any group.
  defp scale(weights), do: weights.scales |> Nx.reduce_max() |> Nx.to_number()

  describe "quantize/2" do
    test "is off by half a scale at most, on the device as on the host" do
      for type <- @types, group <- @groups, axis <- 0..1 do
        matrix = matrix(axis, Generators.pick([@columns, @odd_columns]))
        options = [type: type, group: group, axis: axis]
        weights = Quantization.quantize(matrix, options)
        back = Quantization.dequantize(weights)
        assert {back.shape, back.type} == {matrix.shape, matrix.type}
        error = Nx.subtract(wide(back), wide(matrix)) |> Nx.abs() |> Nx.reduce_max()
        assert Nx.to_number(error) <= 0.5001 * scale(weights), inspect(options)

        there = matrix |> to_device() |> Quantization.quantize(options)
        on_device = there |> Quantization.dequantize() |> host()
        error = Nx.subtract(on_device, back) |> Nx.abs() |> Nx.reduce_max() |> Nx.to_number()

        # A number halfway between two may be rounded to either, as quotients are off by a last digit.
        assert error <= 1.0001 * scale(weights), inspect(options)
      end
    end

    test "takes an eighth to a quarter of the bytes" do
      matrix = Nx.iota({512, 256}, type: :f32)
      bytes = fn weights -> Nx.byte_size(weights.codes) + Nx.byte_size(weights.scales) end
      assert bytes.(Quantization.quantize(matrix)) / Nx.byte_size(matrix) < 0.26
      assert bytes.(Quantization.quantize(matrix, type: :s4)) / Nx.byte_size(matrix) < 0.15
    end

    test "leaves what is no matrix of floats, and what is quantized" do
      params = %{
        layers: {%{kernel: matrix(0), bias: Nx.iota({3}, type: :f32)}},
        ids: Nx.iota({2, 2}),
        rate: 0.5
      }

      quantized = Quantization.quantize(params)
      {%{kernel: %Quantization{} = kernel, bias: bias}} = quantized.layers
      {%{bias: expected}} = params.layers
      assert {bias, quantized.ids, quantized.rate} == {expected, params.ids, params.rate}
      assert Quantization.quantize(quantized, type: :u4) == quantized
      assert %{type: {:f, 32}, shape: {@depth, @columns}} = kernel
    end

    test "gives a container that moves between backends, and to a file and back" do
      for type <- @types do
        weights = Quantization.quantize(matrix(0), type: type)
        there = Nx.backend_copy(weights, VulkanoBackend)
        assert %Quantization{codes: %{data: %VulkanoBackend{}}} = there
        assert Nx.backend_transfer(there) == weights
        assert weights |> Nx.serialize() |> Nx.deserialize() == weights
      end
    end

    test "of equal weights is exact" do
      for type <- @types, value <- [0.0, 1.5, -2.0] do
        weights =
          Quantization.quantize(Nx.broadcast(Nx.tensor(value, type: :f32), {8, 3}), type: type)

        error =
          Nx.subtract(Quantization.dequantize(weights), value) |> Nx.abs() |> Nx.reduce_max()

        assert Nx.to_number(error) <= 1.0e-6
      end
    end
  end

  describe "dot/2" do
    test "is the product with the weights, for one row and for many, in definitions and without" do
      for type <- @types, group <- @groups, axis <- 0..1, shape <- [{}, {3}, {2, 17}] do
        float = Generators.pick([{:f, 32}, {:bf, 16}])
        matrix = matrix(axis, Generators.pick([@columns, @odd_columns]))
        weights = Quantization.quantize(matrix, type: type, group: group, axis: axis)
        rows = List.to_tuple(Tuple.to_list(shape) ++ [@depth])
        x = Generators.tensor(rows, float, {:float, -2.0, 2.0})
        context = [type: type, group: group, axis: axis, shape: rows, float: float]

        exact = %{weights | type: {:f, 64}} |> Quantization.dequantize() |> in_columns(axis)
        largest = Nx.add(Nx.reduce_max(Nx.abs(exact)), 15 * scale(weights))
        magnitude = Nx.multiply(Nx.sum(Nx.abs(wide(x)), axes: [-1], keep_axes: true), largest)
        exact = Nx.dot(wide(x), exact)
        magnitude = Nx.broadcast(magnitude, exact.shape)
        error = 6 * epsilon(float) + 2 * @depth * epsilon({:f, 32})

        there = Nx.Defn.Composite.traverse(weights, &to_device/1)

        for fun <- [&Quantization.dot/2, compiled(&Quantization.dot/2)], _ <- 1..3 do
          result = fun.(to_device(x), there)
          assert {result.shape, result.type} == {exact.shape, float}
          assert_bound(result, exact, magnitude, error, context)
        end
      end
    end

    defp in_columns(matrix, 0), do: matrix
    defp in_columns(matrix, 1), do: Nx.transpose(matrix)

    test "is one kernel for weights of 8 bits with a scale a column, and two for smaller groups" do
      for type <- [:s8, :u8],
          axis <- 0..1,
          {group, minimums} <- [{nil, 1}, {16, 2}],
          shape <- [{@depth}, {3, @depth}] do
        weights =
          matrix(axis)
          |> to_device()
          |> Quantization.quantize(type: type, group: group, axis: axis)

        x = to_device(Generators.tensor(shape, {:f, 32}, {:float, -2.0, 2.0}))
        kernels = if(group, do: 2, else: 1) + if(type == :u8, do: minimums, else: 0)
        nifs = [run: 4, dot: 7, contract: 4, contract_with_epilogue: 5, assemble: 4]
        count = programs(fn -> compiled(&Quantization.dot/2).(x, weights) end, nifs)
        assert count <= kernels, inspect({type, axis, group, shape, count})
      end
    end

    test "has a gradient by the tensor, and takes vectorized ones" do
      for type <- @types do
        weights = Quantization.quantize(matrix(0), type: type)
        there = Nx.Defn.Composite.traverse(weights, &to_device/1)
        x = Generators.tensor({1, @depth}, {:f, 32}, {:float, -2.0, 2.0})
        gradient = compiled(&gradient/2).(to_device(x), there)
        expected = weights |> Quantization.dequantize() |> Nx.sum(axes: [1], keep_axes: true)

        assert_bound(gradient, wide(Nx.transpose(expected)), fill(gradient, 100), 1.0e-6, type)

        rows = Generators.tensor({3, @depth}, {:f, 32}, {:float, -2.0, 2.0})
        plain = Quantization.dot(to_device(rows), there)
        vectorized = rows |> to_device() |> Nx.vectorize(:row) |> Quantization.dot(there)
        assert vectorized.vectorized_axes == [row: 3]
        vectorized = Nx.devectorize(vectorized, keep_names: false)
        assert_bound(vectorized, wide(host(plain)), fill(plain, 800), 1.0e-6, type)
      end
    end

    defn(gradient(x, weights), do: grad(x, fn x -> Nx.sum(Quantization.dot(x, weights)) end))
  end

  test "take/2 gives rows of an embedding" do
    for type <- @types, group <- @groups, shape <- [{}, {1}, {2, 3}] do
      matrix = matrix(1, @odd_columns)
      weights = Quantization.quantize(matrix, type: type, group: group, axis: 1)
      indices = Generators.tensor(shape, {:s, 32}, {:integer, 0..(@odd_columns - 1)})
      expected = Nx.take(Quantization.dequantize(weights), indices)
      there = Nx.Defn.Composite.traverse(weights, &to_device/1)

      for fun <- [&Quantization.take/2, compiled(&Quantization.take/2)] do
        taken = fun.(there, to_device(indices))
        assert_bound(taken, wide(expected), fill(taken, 8), epsilon({:f, 32}), {type, group})
      end
    end
  end

  test "what does not fit is refused" do
    weights = Quantization.quantize(matrix(0))

    for {message, fun} <- [
          {"type: expected one of", fn -> Quantization.quantize(matrix(0), type: :s16) end},
          {"axis: expected 0 or 1", fn -> Quantization.quantize(matrix(0), axis: 2) end},
          {"group: expected a divisor of 128",
           fn -> Quantization.quantize(matrix(0), group: 24) end},
          {"that 8 divides", fn -> Quantization.quantize(matrix(0), group: 4, type: :u4) end},
          {"tensor: expected a last axis of 128",
           fn -> Quantization.dot(Nx.iota({3}), weights) end},
          {"weights: expected weights of axis 1", fn -> Quantization.take(weights, 0) end}
        ] do
      error = assert_raise ArgumentError, fun
      assert error.message =~ message
    end
  end

  describe "a decoder's predictions" do
    test "lose little by weights of 8 bits, and more by those of 4" do
      Nx.default_backend(VulkanoBackend)
      params = Decoder.parameters(2, 64, 96)
      ids = Nx.remainder(Nx.multiply(Nx.iota({24}), 37), 96)
      predict = compiled(&Decoder.log_probabilities(&1, &2, heads: 2))
      expected = predict.(params, ids)

      for {options, bound} <- [
            {[type: :s8], 0.002},
            {[type: :u8], 0.002},
            {[type: :s8, group: 32], 0.002},
            {[type: :s4, group: 32], 0.2},
            {[type: :u4, group: 32], 0.2}
          ] do
        divergence =
          Decoder.divergence(expected, predict.(Decoder.quantize(params, options), ids))

        assert divergence > 0 and divergence < bound, inspect({options, divergence})
      end
    end
  end
end
