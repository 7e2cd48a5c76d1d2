defmodule Nx.Vulkan.LinearSystemTest do
  @moduledoc """
  Triangular systems, Cholesky, LU, solve and determinant: by what they must satisfy, and head to head
  against `Nx.BinaryBackend` where matrices are small.

  An error counts as rounding within 10·n·eps of the norms that it scales with: N. J. Higham,
  "Accuracy and Stability of Numerical Algorithms", 2nd edition, chapters 8 to 10. A device without doubles agrees with
  BinaryBackend to within that, times the condition of the matrices.
  """

  use Nx.Vulkan.Test.Case, async: true

  import Nx.Vulkan.Test.Matrices

  # Around one block, two and three; blocks have 32 rows, 16 of c128.
  @orders [1, 2, 3, 5, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 97]
  @batches [{}, {1}, {3}, {2, 2}, {2, 1, 2}]

  describe "triangular_solve" do
    @options for lower <- [true, false],
                 left_side <- [true, false],
                 transform_a <- [:none, :transpose, :conjugate],
                 do: [lower: lower, left_side: left_side, transform_a: transform_a]

    test "solves op(a) x = b and x op(a) = b" do
      for type <- types(), options <- @options, _ <- 1..2 do
        n = Generators.pick(@orders)
        batch = if n > 40, do: {}, else: Generators.pick(@batches)
        a = triangular(n, type, batch)
        columns = Generators.pick([1, 2, 7, 8, 9, 20])
        b_shape = if options[:left_side], do: [n, columns], else: [columns, n]
        b = random(append(batch, b_shape), type)
        x = Nx.LinAlg.triangular_solve(to_device(a), to_device(b), options)

        assert x.type == type
        residual = fn op, x -> if options[:left_side], do: dot(op, x), else: dot(x, op) end
        op = apply_transform(triangle(a, options[:lower]), options[:transform_a])
        assert_near(residual.(op, host(x)), b, n, type, scale(op, x, b), {n, type, options})
      end
    end

    test "agrees with BinaryBackend bit by bit, in every option, for vectors and matrices" do
      for {a_type, b_type} <- [
            {{:f, 32}, {:f, 32}},
            {{:f, 64}, {:f, 64}},
            {{:s, 32}, {:u, 8}},
            {{:f, 32}, {:s, 64}},
            {{:s, 16}, {:f, 64}},
            {{:f, 16}, {:f, 16}},
            {{:bf, 16}, {:f, 32}},
            {{:bf, 16}, {:bf, 16}}
          ],
          computed?(a_type, b_type),
          options <- @options,
          vector? <- [true, false] do
        n = Generators.pick([1, 2, 3, 4, 6, 9])
        batch = Generators.pick(@batches)
        a = Generators.tensor(append(batch, [n, n]), a_type, {:integer, 1..7})
        m = Generators.pick([1, 2, 5])
        matrix = if options[:left_side], do: [n, m], else: [m, n]
        b_shape = append(batch, if(vector?, do: [n], else: matrix))
        b = Generators.tensor(b_shape, b_type, {:integer, 0..9})
        solve = fn [a, b] -> Nx.LinAlg.triangular_solve(a, b, options) end

        assert_agrees(
          solve.(operands([a, b])),
          nearest(solve, [a, b]),
          :triangular_solve,
          triangle(a, options[:lower]),
          [types: {a_type, b_type}, n: n, batch: batch] ++ options
        )
      end
    end

    test "raises for a zero on the diagonal, wherever it is, and for nothing else" do
      for type <- [{:s, 32} | types()], row <- [0, 1, 2], batch <- [0, 1] do
        regular =
          Nx.broadcast(Nx.tensor([[2, 0, 0], [1, 3, 0], [0, 5, 1]], type: type), {2, 3, 3})

        zero = Nx.tensor([[batch, row, row]])
        singular = Nx.indexed_put(regular, zero, Nx.tensor([0], type: type))
        b = Nx.tensor([[1, 2, 3], [4, 5, 6]])

        assert_raise ArgumentError, "can't solve for singular matrix", fn ->
          Nx.LinAlg.triangular_solve(to_device(singular), b)
        end

        assert %Nx.Tensor{} = Nx.LinAlg.triangular_solve(to_device(regular), b)
      end

      nan = to_device(Nx.tensor([[:nan, 0.0], [1.0, 2.0]]))
      x = Nx.LinAlg.triangular_solve(nan, Nx.tensor([1.0, 2.0]))
      assert Nx.to_flat_list(x) == [:nan, :nan]
    end

    test "does not read the other triangle" do
      a = Nx.tensor([[2.0, :nan, :infinity], [1.0, 4.0, :nan], [3.0, 5.0, 8.0]])
      b = Nx.tensor([2.0, 5.0, 16.0])
      assert Nx.to_flat_list(Nx.LinAlg.triangular_solve(to_device(a), b)) == [1.0, 1.0, 1.0]
    end
  end

  describe "cholesky" do
    test "gives the lower triangle L with L L* = A" do
      for type <- types(), n <- some_orders() do
        batch = if n > 40, do: {}, else: Generators.pick(@batches)
        a = positive_definite(n, type, batch)
        l = Nx.LinAlg.cholesky(to_device(a))

        assert {l.type, l.shape} == {type, a.shape}
        l = host(l)
        assert_near(dot(l, adjoint(l)), a, n, type, scale(l, l, a), {n, type})
        assert l == triangle(l, true)
        diagonal = Nx.take_diagonal(l)
        assert Nx.to_number(Nx.all(Nx.greater(Nx.real(diagonal), 0))) == 1
      end
    end

    test "agrees with BinaryBackend bit by bit for small real matrices" do
      for type <- [{:f, 32}, {:s, 32}, {:u, 8}], n <- 1..6, _ <- 1..4 do
        factor = Generators.tensor({n, n}, {:s, 32}, {:integer, 0..3})
        a = Nx.as_type(Nx.add(dot(factor, adjoint(factor)), Nx.eye(n)), type)
        l = Nx.LinAlg.cholesky(to_device(a))
        assert_agrees(l, Nx.LinAlg.cholesky(a), :cholesky, a, n: n)
      end
    end

    test "reads the lower triangle alone" do
      a = Nx.tensor([[4.0, :nan], [2.0, 10.0]])
      assert Nx.to_flat_list(Nx.LinAlg.cholesky(to_device(a))) == [2.0, 0.0, 1.0, 3.0]
    end

    test "is NaN from where a matrix turns out not to be positive definite, in that matrix alone" do
      a = Nx.tensor([[[1.0, 2.0], [2.0, 1.0]], [[4.0, 2.0], [2.0, 10.0]]])
      l = Nx.LinAlg.cholesky(to_device(a))
      assert Nx.to_flat_list(l) == [1.0, 0.0, 2.0, :nan, 2.0, 0.0, 1.0, 3.0]

      negative = Nx.negate(Nx.eye(70)) |> Nx.as_type({:f, 32}) |> to_device()
      assert Nx.to_number(Nx.all(Nx.is_nan(Nx.take_diagonal(host(Nx.LinAlg.cholesky(negative))))))
    end

    test "of a semidefinite matrix has columns of zeros" do
      a = Nx.tensor([[0, 0, 0], [0, 4, 2], [0, 2, 1]])
      expected = [0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 1.0, 0.0]
      assert Nx.to_flat_list(Nx.LinAlg.cholesky(to_device(a))) == expected
    end

    test "of Hilbert matrices is backward stable" do
      for {type, n} <- [{{:f, 32}, 5}, {{:f, 64}, 10}], type in types() do
        a = hilbert(n, type)
        l = host(Nx.LinAlg.cholesky(to_device(a)))
        assert_near(dot(l, adjoint(l)), a, n, type, scale(l, l, a), {n, type})
      end
    end
  end

  describe "lu" do
    test "gives a permutation, a unit lower and an upper triangle with P L U = A" do
      for type <- types(), n <- some_orders() do
        batch = if n > 40, do: {}, else: Generators.pick(@batches)
        a = random(append(batch, [n, n]), type)
        {p, l, u} = Nx.LinAlg.lu(to_device(a))

        assert [p.type, l.type, u.type] == [type, type, type]
        assert [p.shape, l.shape, u.shape] == [a.shape, a.shape, a.shape]
        [p, l, u] = Enum.map([p, l, u], &host/1)
        assert_near(dot(p, dot(l, u)), a, n, type, scale(l, u, a), {n, type})
        assert l == Nx.add(strict_lower(l), identity(a))
        assert u == Nx.subtract(u, strict_lower(u))
        assert dot(p, adjoint(p)) == identity(a)
        # Of partial pivoting.
        assert Nx.to_number(Nx.reduce_max(Nx.abs(l))) <= 1 + 4 * epsilon(type)
      end
    end

    test "agrees with BinaryBackend bit by bit, pivots included" do
      for type <- Generators.computed([{:f, 32}, {:f, 64}, {:s, 32}, {:u, 8}, {:s, 64}]),
          values <- [{:integer, 0..1}, {:integer, 0..9}, {:float, 0.0, 5.0}],
          n <- [1, 2, 3, 4, 7] do
        a = Generators.tensor({2, n, n}, type, values)
        got = factors(to_device(a))

        # One by one: in a batch BinaryBackend divides by the zeros that it then ignores.
        for i <- 0..1,
            [got, want] <- zip_all([got, factors(a[i])]),
            do: assert_same(got[i], want, :lu, type: type, n: n)
      end
    end

    test "takes the first of equal pivots" do
      a = Nx.tensor([[1, 5, 2], [-1, 3, 3], [1, 1, 4]])
      {p, _l, _u} = Nx.LinAlg.lu(to_device(a))
      {expected, _l, _u} = Nx.LinAlg.lu(a)
      assert_same(p, expected, :lu)
      assert Nx.to_flat_list(p[0]) == [1, 0, 0]
    end

    test "of 16-bit floats and of integers" do
      for {type, out} <- [{{:f, 16}, {:f, 16}}, {{:bf, 16}, {:bf, 16}}, {{:u, 16}, {:f, 32}}] do
        a = Generators.tensor({3, 9, 9}, type, {:integer, 0..9})
        {p, l, u} = Nx.LinAlg.lu(to_device(a))
        assert [p.type, l.type, u.type] == [type, out, out]
        [p, l, u] = Enum.map([p, l, u], &Nx.as_type(host(&1), {:f, 64}))
        assert_near(dot(p, dot(l, u)), Nx.as_type(a, {:f, 64}), 9, out, scale(l, u, a), type)
      end
    end
  end

  describe "solve" do
    test "leaves a small residual" do
      for type <- types(), n <- some_orders() do
        batch = if n > 40, do: {}, else: Generators.pick(@batches)
        a = random(append(batch, [n, n]), type)
        vector? = Generators.pick([true, false])
        b = random(append(batch, if(vector?, do: [n], else: [n, 5])), type)
        x = Nx.LinAlg.solve(to_device(a), to_device(b))
        assert {x.type, x.shape} == {type, b.shape}

        [x, b] = if vector?, do: [Nx.new_axis(x, -1), Nx.new_axis(b, -1)], else: [x, b]
        x = host(x)
        assert_near(dot(a, x), b, n, type, scale(a, x, b), {n, type})
      end
    end

    test "agrees with BinaryBackend bit by bit for small real matrices" do
      for {a_type, b_type} <- [
            {{:f, 32}, {:f, 32}},
            {{:s, 32}, {:s, 32}},
            {{:f, 64}, {:f, 64}},
            {{:s, 32}, {:f, 64}},
            {{:f, 32}, {:u, 8}}
          ],
          computed?(a_type, b_type),
          n <- 1..5,
          vector? <- [true, false] do
        batch = Generators.pick([{}, {2}])
        noise = Generators.tensor(append(batch, [n, n]), a_type, {:integer, 0..6})
        a = Nx.as_type(Nx.add(noise, Nx.multiply(9, identity(noise))), a_type)
        b_shape = append(batch, if(vector?, do: [n], else: [n, 3]))
        b = Generators.tensor(b_shape, b_type, {:integer, 0..9})
        [a_in, b_in] = operands([a, b])
        context = [types: {a_type, b_type}, n: n, batch: batch]
        x = Nx.LinAlg.solve(a_in, b_in)
        assert_agrees(x, Nx.LinAlg.solve(a, b), :solve, a, context)
      end
    end

    test "of ill-conditioned systems is backward stable" do
      for {type, n} <- [{{:f, 32}, 8}, {{:f, 64}, 14}], type in types() do
        a = hilbert(n, type)
        b = random({n, 2}, type)
        x = host(Nx.LinAlg.solve(to_device(a), to_device(b)))
        assert_near(dot(a, x), b, n, type, scale(a, x, b), {n, type})
      end
    end

    test "raises for a singular matrix, as BinaryBackend does" do
      for a <- [
            Nx.tensor([[1.0, 2.0], [2.0, 4.0]]),
            Nx.tensor([[[1, 0], [0, 1]], [[0, 0], [0, 3]]]),
            Nx.broadcast(Nx.tensor(0.0), {40, 40})
          ] do
        b = Nx.broadcast(1.0, Tuple.delete_at(a.shape, tuple_size(a.shape) - 1))

        assert_raise ArgumentError, "can't solve for singular matrix", fn ->
          Nx.LinAlg.solve(to_device(a), b)
        end
      end
    end
  end

  describe "determinant" do
    test "agrees with BinaryBackend bit by bit" do
      for type <- Generators.computed([{:f, 32}, {:f, 64}, {:s, 32}, {:u, 8}, {:s, 64}]),
          n <- [1, 2, 3, 4, 5, 6],
          values <- [{:integer, 0..1}, {:integer, 0..9}] do
        a = Generators.tensor({2, n, n}, type, values)
        got = Nx.LinAlg.determinant(to_device(a))

        for i <- 0..1,
            do:
              assert_agrees(
                got[i],
                Nx.LinAlg.determinant(a[i]),
                :determinant,
                a[i],
                &hadamard/2,
                type: type,
                n: n
              )
      end
    end

    test "changes sign with an exchange of rows, and not when transposed" do
      for type <- types(), n <- [2, 3, 4, 20, 40] do
        a = Nx.as_type(Nx.add(random({n, n}, type), Nx.multiply(Nx.eye(n), 2)), type)
        det = determinant(a)
        order = Nx.tensor([1, 0 | Enum.to_list(2..(n - 1)//1)])
        [swapped, transposed] = [determinant(Nx.take(a, order)), determinant(Nx.transpose(a))]
        bound = 1000 * n * epsilon(type) * size(det)
        assert size(Complex.add(det, swapped)) <= bound
        assert size(Complex.subtract(det, transposed)) <= bound
      end
    end

    test "of a singular matrix is zero" do
      for type <- [{:bf, 16}, {:f, 16}, {:s, 32} | types()], n <- [2, 3, 4, 33, 70] do
        row = Nx.tensor(for(i <- 1..n, do: rem(i * i, 7) + 1), type: type)
        a = Nx.broadcast(row, {n, n})
        assert size(determinant(a)) == 0
      end
    end
  end

  test "batches beyond the grid of one axis" do
    a = Nx.broadcast(Nx.tensor([[4.0, 2.0], [2.0, 10.0]]), {70_000, 2, 2}) |> to_device()
    expected = [2.0, 0.0, 1.0, 3.0]
    assert Nx.to_flat_list(Nx.LinAlg.cholesky(a)[69_999]) == expected
    {_p, l, _u} = Nx.LinAlg.lu(a)
    assert Nx.to_flat_list(l[69_999]) == [1.0, 0.0, 0.5, 1.0]
    assert Nx.to_flat_list(Nx.LinAlg.determinant(a)[[69_990..69_999]]) == List.duplicate(36.0, 10)
  end

  test "vectorized axes are batches" do
    a = Generators.tensor({2, 3, 4, 4}, {:f, 32}, {:float, -2.0, 2.0})
    b = Generators.tensor({2, 3, 4}, {:f, 32}, {:float, -2.0, 2.0})
    vectorized = fn t -> Nx.vectorize(to_device(t), x: 2, y: 3) end
    x = Nx.LinAlg.solve(vectorized.(a), vectorized.(b))
    assert x.vectorized_axes == [x: 2, y: 3]
    x = Nx.devectorize(x, keep_names: false)
    assert_agrees(x, Nx.LinAlg.solve(a, b), :solve, a, [])
  end

  # By what products with a few vectors show: whole products take longer than the factors.
  test "large matrices" do
    for {n, type} <- [{513, {:f, 64}}, {1024, {:f, 32}}], type in types() do
      host = Nx.as_type(large({n, n}), type)
      a = to_device(host)
      b = to_device(Nx.as_type(large({n, 3}), type))
      to_f64 = &Nx.as_type(&1, {:f, 64})
      product = fn x, y -> Nx.dot(to_f64.(x), to_f64.(y)) end
      near = &assert_near(host(&1), host(&2), n, type, &3, {&4, n, type})

      {p, l, u} = Nx.LinAlg.lu(a)
      lu_b = product.(p, product.(l, product.(u, b)))
      near.(lu_b, product.(a, b), scale(l, u, a) * norm(b), :lu)

      x = Nx.LinAlg.solve(a, b)
      near.(product.(a, x), b, scale(a, x, b), :solve)

      # The eigenvalues of a symmetric matrix of such elements are below 0.6 sqrt(n) in magnitude.
      shift = Nx.multiply(Nx.eye(n), :math.sqrt(n))
      symmetric = Nx.add(Nx.divide(Nx.add(host, Nx.transpose(host)), 2), shift)
      symmetric = to_device(Nx.as_type(symmetric, type))
      l = Nx.LinAlg.cholesky(symmetric)
      l_lt_b = product.(l, product.(Nx.transpose(l), b))
      near.(l_lt_b, product.(symmetric, b), scale(l, l, symmetric) * norm(b), :cholesky)

      x = Nx.LinAlg.triangular_solve(l, b)
      near.(product.(l, x), b, scale(l, x, b), :triangular_solve)
    end
  end

  test "calls with sizes that do not fit are refused" do
    %{data: %{ref: ref}} = to_device(Nx.broadcast(1.0, {4, 4}))
    f32 = {:f, 32}
    native = Nx.Vulkan.Native
    assert {:error, :size_mismatch} = native.lu_dirty(f32, {ref, f32, {1, 4, 5}})
    assert {:error, :size_mismatch} = native.lu_dirty(f32, {ref, f32, {2, 4, 4}})

    assert {:error, :size_mismatch} =
             native.cholesky_dirty(f32, {ref, f32, {2 ** 40, 2 ** 20, 2 ** 20}})

    a = {ref, f32, {1, 4, 4}}

    for {b, permutation, options} <- [
          {{ref, f32, {1, 3, 4}}, nil, []},
          {{ref, f32, {1, 4, 3}}, nil, [:right]},
          {{ref, f32, {2, 4, 2}}, nil, []},
          {{ref, f32, {1, 4, 5}}, nil, []}
        ] do
      answer = native.triangular_solve_dirty(f32, a, b, permutation, options)
      assert {:error, :size_mismatch} = answer
    end

    assert_raise ArgumentError, ~r/options/, fn ->
      native.triangular_solve_dirty(f32, a, a, nil, [:sideways])
    end

    assert_raise ArgumentError, ~r/type/, fn -> native.lu_dirty({:s, 32}, a) end
  end

  ## Matrices

  defp types, do: Generators.computed([{:f, 32}, {:f, 64}, {:c, 64}, {:c, 128}])
  defp computed?(a, b), do: Generators.computed([a, b]) == [a, b]

  defp some_orders, do: Enum.take_random(@orders, 6)

  defp append(batch, shape), do: List.to_tuple(Tuple.to_list(batch) ++ shape)

  defp large(shape) do
    bits =
      for _ <- 1..Tuple.product(shape), into: <<>>, do: <<:rand.uniform() - 0.5::float-native>>

    Nx.reshape(Nx.from_binary(bits, {:f, 64}), shape)
  end

  # Well conditioned: random triangles are not.
  defp triangular(n, type, batch) do
    a = random(append(batch, [n, n]), type)
    Nx.add(Nx.divide(a, n), Nx.multiply(identity(a), 2)) |> Nx.as_type(type)
  end

  defp positive_definite(n, type, batch) do
    a = random(append(batch, [n, n]), type)
    Nx.add(dot(a, adjoint(a)), Nx.multiply(identity(a), 0.1)) |> Nx.as_type(type)
  end

  defp identity(a) do
    n = Nx.axis_size(a, -1)
    Nx.broadcast(Nx.eye(n, type: a.type), a.shape)
  end

  defp triangle(a, true), do: Nx.tril(a)
  defp triangle(a, false), do: Nx.triu(a)

  defp strict_lower(a), do: Nx.tril(a, k: -1)

  defp apply_transform(a, :none), do: a
  defp apply_transform(%{type: {:c, _}} = a, :conjugate), do: Nx.conjugate(a)
  defp apply_transform(a, :conjugate), do: a
  defp apply_transform(a, :transpose), do: transpose(a)

  defp factors(a), do: Tuple.to_list(Nx.LinAlg.lu(a))
  defp determinant(a), do: Nx.to_number(Nx.LinAlg.determinant(to_device(a)))
  defp size(number), do: Complex.abs(number)

  ## Errors

  # The scale of the rounding errors of a product of two matrices that should be the third.
  defp scale(a, b, c), do: norm(a) * norm(b) + norm(c)

  # The largest sum of magnitudes of a row or a column, over the batch.
  defp norm(a) do
    magnitudes = Nx.as_type(Nx.abs(host(a)), {:f, 64})

    [rows, columns] =
      for axis <- [-1, -2], do: Nx.to_number(Nx.reduce_max(Nx.sum(magnitudes, axes: [axis])))

    max(rows, columns)
  end

  # BinaryBackend computes in doubles. A device that does, too, gives its bits; in single precision `scale`, a function of
  # the largest number expected and of the matrices, says what the rounding errors scale with.
  defp assert_agrees(actual, expected, op, a, scale \\ &(&1 * condition(&2)), context) do
    if Nx.Vulkan.has_f64() do
      assert_same(actual, expected, op, context)
    else
      [a, got, want] = for x <- [host(a), host(actual), expected], do: Nx.as_type(x, {:f, 64})
      assert actual.type == expected.type, inspect(context)
      scale = scale.(Nx.to_number(Nx.reduce_max(Nx.abs(want))), a)
      assert_near(got, want, Nx.axis_size(a, -1), actual.type, scale, {op, context})
    end
  end

  defp condition(a), do: norm(a) * norm(Nx.LinAlg.invert(a))

  # A cofactor is at most the product of the norms of the other rows.
  defp hadamard(_determinant, a), do: norm(a) ** Nx.axis_size(a, -1)

  defp assert_near(actual, expected, n, type, scale, context) do
    compared()
    assert actual.shape == expected.shape, inspect(context)
    error = Nx.to_number(Nx.reduce_max(Nx.abs(Nx.subtract(actual, expected))))
    bound = 10 * n * epsilon(type) * scale

    assert is_number(error) and error <= bound,
           "#{inspect(context)}: #{inspect(error)} > #{bound}, seed #{ExUnit.configuration()[:seed]}"
  end
end
