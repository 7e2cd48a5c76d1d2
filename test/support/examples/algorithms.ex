defmodule Nx.Vulkan.Test.Examples.Algorithms do
  @moduledoc "Random calls of operations with built-in kernels: sorts and scans, transforms, linear algebra."

  import Nx.Vulkan.Test.Arguments
  import Nx.Vulkan.Test.Call
  import Nx.Vulkan.Test.Compare, only: [epsilon: 1, transform_error: 2]
  import Nx.Vulkan.Test.Generators, only: [pick: 1, tensor: 3]

  @scans Nx.Vulkan.Catalogue.names(family: :scan)

  @doc "A random call of the operation with tensors of the type, of the form that was begun."
  def example(op, type)

  ## Along an axis

  def example(op, type) when op in [:sort, :argsort] do
    shape = shape(1..4)
    options = [axis: choose(Nx.axes(shape)), direction: choose([:asc, :desc])]
    whole(op, [tensor(shape, type, pick([:any, :few]))], [options])
  end

  def example(:top_k, type) do
    shape = shape(1..3)
    k = :rand.uniform(elem(shape, tuple_size(shape) - 1))
    whole(:top_k, [tensor(shape, type, pick([:any, :few]))], [[k: k]])
  end

  # BinaryBackend's scan fails below a byte. Subnormals of f8 change when it reads and writes them.
  def example(op, type) when op in @scans do
    shape = shape(1..4)
    options = [axis: choose(Nx.axes(shape)), reverse: choose([true, false])]

    values =
      cond do
        integer?(type) -> :any
        op in [:cumulative_max, :cumulative_min] -> :few
        # BinaryBackend rounds each step: sums that floats of a byte hold.
        op == :cumulative_sum and elem(type, 1) == 8 -> {:integer, -1..1}
        op == :cumulative_product -> {:integer, -2..2}
        true -> small(type)
      end

    call = %{whole(op, [tensor(shape, type, values)], [options]) | as: :cumulative_sum}
    in_s64 = fn [t] -> Nx.as_type(apply(Nx, op, [Nx.as_type(t, :s64), options]), type) end
    if narrow?(type), do: %{call | expected: in_s64}, else: call
  end

  ## Fourier transforms

  # BinaryBackend puts the results of a transform along an axis before the last two elsewhere, and
  # loses real numbers of transforms of one point.
  def example(op, type) when op in [:fft, :ifft] do
    shape = shape(1..2)
    axis = choose(Nx.axes(shape))
    length = pick([nil, nil, :power_of_two, :rand.uniform(12)])
    tensor = tensor(shape, type, transformed(type))

    complex = fn [tensor, options] ->
      apply(Nx, op, [Nx.as_type(tensor, Nx.Type.to_complex(type)), options])
    end

    options = [axis: axis] ++ if(length, do: [length: length], else: [])

    %{
      near(op, [tensor], [options], transform_error(16, largest(tensor)))
      | expected: fn [tensor] -> complex.([tensor, options]) end
    }
  end

  # What is between the two is rounded to the result's type.
  def example(op, type) when op in [:fft2, :ifft2] do
    shape = tuple(for _ <- 1..2, do: 1 + :rand.uniform(5))
    tensor = tensor(shape, type, transformed(type))
    complex = fn [tensor] -> apply(Nx, op, [Nx.as_type(tensor, Nx.Type.to_complex(type))]) end
    error = 4 * 36 * largest(tensor) * epsilon(Nx.Type.to_complex(type))
    %{near(op, [tensor], [], error) | expected: complex}
  end

  # BinaryBackend's irfft takes no length below 3.
  def example(op, type) when op in [:rfft, :irfft] do
    shape = tuple(dims(shape(0..1)) ++ [1 + :rand.uniform(8)])
    tensor = tensor(shape, type, transformed(type))
    options = [length: 2 + :rand.uniform(12)]

    padded(
      near(op, [tensor], [options], transform_error(48, largest(tensor))),
      type,
      if(op == :rfft, do: :c64, else: :f32)
    )
  end

  ## Linear algebra: the factors' product is compared

  def example(:triangular_solve, type) do
    n = :rand.uniform(4)
    options = [lower: choose([true, false]), transform_a: choose([:none, :transpose])]
    a = regular(n, type)
    b = tensor(choose([{n}, {n, 2}]), type, small(type))
    linear(:triangular_solve, [a, b], [options], 16)
  end

  def example(:solve, type) do
    n = :rand.uniform(4)
    linear(:solve, [regular(n, type), tensor(choose([{n}, {n, 2}]), type, small(type))], [], 64)
  end

  # The caller computes what is expected, as the products of narrow floats are rounded to nearest even. Nx's own has
  # another type than Nx says, for f8_e4m3fn.
  def example(:determinant, type) do
    call = linear(:determinant, [regular(:rand.uniform(3), type)], [], 64)
    out = Nx.Type.to_floating(type)
    %{call | expected: fn [a] -> Nx.as_type(Nx.LinAlg.determinant(a), out) end}
  end

  def example(:cholesky, type) do
    product(:cholesky, positive(:rand.uniform(4), type), fn a ->
      lower = Nx.LinAlg.cholesky(a)
      [lower, Nx.transpose(if complex?(type), do: Nx.conjugate(lower), else: lower)]
    end)
  end

  def example(:lu, type) do
    a = regular(:rand.uniform(4), type)
    product(:lu, a, fn a -> a |> Nx.LinAlg.lu() |> Tuple.to_list() end)
  end

  def example(:qr, type) do
    a = matrix({:rand.uniform(4), :rand.uniform(4)}, type)
    product(:qr, a, fn a -> a |> Nx.LinAlg.qr() |> Tuple.to_list() end)
  end

  def example(:eigh, type) do
    a = positive(:rand.uniform(4), type)

    product(:eigh, a, fn a ->
      {values, vectors} = Nx.LinAlg.eigh(a)
      [Nx.multiply(vectors, values), Nx.conjugate(Nx.transpose(vectors))]
    end)
  end

  def example(:svd, type) do
    a =
      if narrow?(type),
        do: positive(3, type),
        else: matrix({:rand.uniform(4), :rand.uniform(4)}, type)

    product(:svd, a, fn a ->
      {u, s, vt} = Nx.LinAlg.svd(a, full_matrices?: false)
      [Nx.multiply(u, s), vt]
    end)
  end

  # BinaryBackend's result, within `factor` epsilons of its largest element.
  defp linear(op, tensors, args, factor) do
    fun = Function.capture(Nx.LinAlg, op, length(tensors) + length(args))
    expected = apply(fun, tensors ++ args)
    error = factor * epsilon(expected.type) * largest(expected)
    %{near(op, tensors, args, error, fun) | expected: fn _ -> expected end}
  end

  # The matrix, as the product of its factors: N. J. Higham, "Accuracy and Stability of Numerical
  # Algorithms", has the bounds.
  defp product(op, a, factors) do
    type = if complex?(a.type), do: {:c, 128}, else: {:f, 64}
    in_double = Nx.as_type(a, type)

    fun = fn a ->
      factors.(a) |> Enum.map(&Nx.as_type(&1, type)) |> Enum.reduce(&Nx.dot(&2, &1))
    end

    error = 10 * Nx.size(a) * epsilon(Nx.Type.to_floating(a.type)) * max(largest(in_double), 1.0)
    %{near(op, [a], [], error, fun) | expected: fn _ -> in_double end}
  end
end
