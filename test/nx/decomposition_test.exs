defmodule Nx.Vulkan.DecompositionTest do
  @moduledoc """
  QR, eigenvalues of Hermitian matrices and singular values: the factors' product is the matrix and
  orthonormal columns are orthonormal to within 10·n·eps of the type, for the largest side n; signs and
  order are those of `Nx.BinaryBackend`.
  """

  use Nx.Vulkan.Test.Case, async: true

  import Nx.Vulkan.Test.Matrices

  @real [{:f, 32}, {:f, 64}]
  @complex [{:c, 64}, {:c, 128}]
  @doubles [{:f, 64}, {:c, 128}]

  # Around the widths of panels (32) and where the algorithms change (16, 64).
  @shapes [{1, 1}, {1, 4}, {4, 1}, {2, 2}, {3, 5}, {7, 3}, {16, 16}, {17, 33}, {33, 32}] ++
            [{40, 31}, {64, 64}, {65, 65}, {70, 20}, {20, 70}, {97, 66}]
  @sizes [1, 2, 3, 4, 7, 16, 17, 31, 64, 65, 90]

  describe "qr" do
    for type <- @real ++ @complex do
      @tag float64: type in @doubles
      test "of #{inspect(type)} in both modes, of all shapes" do
        type = unquote(Macro.escape(type))
        shapes = if type in @complex, do: Enum.filter(@shapes, &(elem(&1, 0) < 40)), else: @shapes

        for {m, n} <- shapes, mode <- [:reduced, :complete] do
          check_qr(random({2, m, n}, type), mode)
        end
      end
    end

    test "of any batch" do
      for batch <- [{}, {3}, {2, 3}, {2, 1, 3}] do
        shape = List.to_tuple(Tuple.to_list(batch) ++ [4, 3])
        check_qr(random(shape, {:f, 32}), :reduced)
      end
    end

    test "of difficult matrices" do
      for type <- real(), {name, matrix} <- difficult(12), mode <- [:reduced, :complete] do
        check_qr(Nx.as_type(matrix, type), mode, name)
      end

      for type <- real(), n <- [9, 40] do
        # More columns than rank, and the other way round.
        left = random({n, 2}, {:f, 64})
        check_qr(Nx.as_type(Nx.dot(left, Nx.transpose(left)), type), :reduced, :rank_two)
      end
    end

    test "of zero is the identity and zero" do
      for {m, n} <- [{3, 3}, {4, 2}, {2, 4}] do
        {q, r} = Nx.LinAlg.qr(to_device(Nx.broadcast(0.0, {m, n})), mode: :complete)
        assert host(q) == Nx.eye(m, type: :f32)
        assert host(r) == Nx.broadcast(0.0, {m, n})
      end
    end

    # Those of Nx 0.13 are NaN for some matrices.
    @tag :nx_1_0
    test "has BinaryBackend's signs and digits" do
      for type <- real() ++ [{:c, 64}],
          {m, n} <- [{2, 2}, {3, 3}, {5, 3}, {3, 5}, {6, 6}],
          _ <- 1..3 do
        # The columns are far from parallel, which keeps the digits of both.
        draw = fn -> Nx.add(random({m, n}, type), Nx.multiply(2, Nx.eye({m, n}, type: type))) end
        matrix = draw |> Stream.repeatedly() |> Enum.find(&all_reflected?/1)

        for mode <- [:reduced, :complete] do
          {q, r} = Nx.LinAlg.qr(to_device(matrix), mode: mode)
          {expected_q, expected_r} = Nx.LinAlg.qr(matrix, mode: mode)

          # BinaryBackend's reflectors lose digits where a column is small below the diagonal: its residual
          # and what it leaves below the diagonal say how many.
          lost =
            norm(Nx.subtract(dot(expected_q, expected_r), matrix)) +
              norm(Nx.subtract(expected_r, Nx.triu(expected_r)))

          out = 200 * epsilon(type) + lost
          assert_within(q, expected_q, out, {type, mode, matrix})
          assert_within(r, expected_r, out * norm(matrix), {type, mode, matrix})
        end
      end
    end

    test "of integers and of narrow floats" do
      for type <- [{:s, 32}, {:u, 8}, {:s, 64}] do
        matrix = Generators.tensor({5, 4}, type, {:integer, 0..9})
        {q, r} = Nx.LinAlg.qr(to_device(matrix))
        assert {q.type, r.type} == {{:f, 32}, {:f, 32}}
        assert_within(dot(q, r), matrix, 40 * epsilon({:f, 32}) * norm(matrix), matrix)
      end

      for type <- [{:f, 16}, {:bf, 16}], do: check_qr(random({5, 4}, type), :reduced)
    end
  end

  describe "eigh" do
    for type <- @real ++ @complex do
      @tag float64: type in @doubles
      test "of #{inspect(type)} and all sizes" do
        type = unquote(Macro.escape(type))
        sizes = if type in @complex, do: Enum.filter(@sizes, &(&1 < 20)) ++ [65], else: @sizes
        for n <- sizes, do: check_eigh(hermitian(random({2, n, n}, type)))
      end
    end

    test "of difficult matrices" do
      for type <- real(), n <- [12, 40, 70], {name, matrix} <- difficult(n) do
        check_eigh(Nx.as_type(Nx.divide(hermitian(matrix), 2), type), name)
      end
    end

    test "finds known eigenvalues" do
      for type <- real(), n <- [5, 30, 80] do
        # The second difference has the eigenvalues 2 - 2·cos(kπ/(n+1)).
        matrix = for i <- 1..n, do: for(j <- 1..n, do: Enum.at([2, -1], abs(i - j), 0))
        known = for k <- n..1//-1, do: 2 - 2 * :math.cos(k * :math.pi() / (n + 1))
        {values, _} = Nx.LinAlg.eigh(to_device(Nx.tensor(matrix, type: type)))
        assert_within(values, Nx.tensor(known, type: :f64), 10 * n * epsilon(type) * 4, {type, n})
      end
    end

    test "finds repeated and clustered eigenvalues" do
      for type <- real(), n <- [6, 24, 72] do
        {q, _} = Nx.LinAlg.qr(to_device(random({n, n}, {:f, 64})))

        for spectrum <- [
              List.duplicate(3.0, n),
              Enum.map(1..n, &if(rem(&1, 2) == 0, do: 2.0, else: -2.0)),
              Enum.map(1..n, &(1 + &1 * 1.0e-9)),
              Enum.map(1..n, &if(&1 <= 2, do: 1.0, else: 0.0)),
              Enum.map(1..n, &(2.0 ** -&1))
            ] do
          values = Nx.tensor(spectrum, type: :f64)
          scaled = Nx.multiply(q, to_device(values))
          matrix = host(Nx.dot(scaled, Nx.transpose(q)))
          found = check_eigh(Nx.as_type(Nx.divide(hermitian(matrix), 2), type))

          expected = Enum.sort(spectrum)
          got = Enum.sort(Nx.to_flat_list(found))
          bound = 10 * n * epsilon(type) * norm(matrix)
          for [a, b] <- zip_all([got, expected]), do: assert(abs(a - b) <= bound)
        end
      end
    end

    test "of diagonal matrices is exact" do
      for n <- [3, 20, 70] do
        diagonal = Nx.add(Nx.iota({n}, type: :f64), 1)
        {values, vectors} = Nx.LinAlg.eigh(to_device(Nx.make_diagonal(diagonal)))
        assert host(values) == Nx.reverse(diagonal)
        assert host(vectors) == Nx.reverse(Nx.eye(n, type: :f64), axes: [0])
      end
    end

    test "has BinaryBackend's signs and order" do
      for type <- real() ++ [{:c, 64}], n <- [2, 3, 4, 5], _ <- 1..3 do
        matrix = hermitian(random({n, n}, type))
        {values, vectors} = Nx.LinAlg.eigh(to_device(matrix))
        {expected_values, expected_vectors} = Nx.LinAlg.eigh(matrix, eps: 1.0e-7)
        # BinaryBackend leaves off-diagonal elements of relative size 1e-5 alone.
        assert_within(values, expected_values, 1.0e-3, {type, matrix})
        assert_within(vectors, expected_vectors, 1.0e-2, {type, matrix})
      end
    end

    test "of any batch, and of integers" do
      for batch <- [{}, {3}, {2, 1, 2}] do
        shape = List.to_tuple(Tuple.to_list(batch) ++ [4, 4])
        check_eigh(hermitian(random(shape, {:f, 32})))
      end

      matrix = Nx.tensor([[2, 1], [1, 2]])
      {values, _} = Nx.LinAlg.eigh(to_device(matrix))
      assert_within(values, Nx.tensor([3.0, 1.0]), 1.0e-6, matrix)
    end
  end

  describe "svd" do
    for type <- @real do
      @tag float64: type in @doubles
      test "of #{inspect(type)}, full and reduced, of all shapes" do
        for {m, n} <- @shapes, full? <- [true, false] do
          check_svd(random({2, m, n}, unquote(Macro.escape(type))), full?)
        end
      end
    end

    test "of difficult matrices" do
      for type <- real(), n <- [12, 40], {name, matrix} <- difficult(n), full? <- [true, false] do
        check_svd(Nx.as_type(matrix, type), full?, name)
        check_svd(Nx.as_type(matrix[[.., 0..6]], type), full?, name)
        check_svd(Nx.as_type(matrix[[0..6, ..]], type), full?, name)
      end
    end

    @tag :float64
    test "finds small singular values to high relative accuracy" do
      # Columns of very different length, nearly orthogonal otherwise.
      scales = [1.0e8, 1.0, 1.0e-8]
      base = Nx.tensor([[1.0, 0.5, 0.1], [0.5, 1.0, 0.2], [0.1, 0.2, 1.0]], type: :f64)
      matrix = Nx.multiply(base, Nx.tensor(scales, type: :f64))
      {_, s, _} = Nx.LinAlg.svd(to_device(matrix))
      [_, _, smallest] = Nx.to_flat_list(s)

      # The product of the singular values is the determinant.
      [large, middle | _] = Nx.to_flat_list(s)
      determinant = 1 - 0.04 - 0.5 * (0.5 - 0.02) + 0.1 * (0.1 - 0.1)
      assert_in_delta large * middle * smallest / determinant, 1.0, 1.0e-13
    end

    test "leaves no rounding in reduced singular values of rank-deficient matrices" do
      for type <- real(), n <- [4, 20, 66] do
        left = random({n + 3, 2}, {:f, 64})
        matrix = Nx.as_type(Nx.dot(left, random({2, n}, {:f, 64})), type)
        {_, s, _} = Nx.LinAlg.svd(to_device(matrix), full_matrices?: false)
        assert [a, b | rest] = Nx.to_flat_list(s)
        assert a >= b and b > 0 and Enum.all?(rest, &(&1 == 0))
        assert Nx.to_number(Nx.LinAlg.matrix_rank(to_device(matrix))) == 2
      end
    end

    test "of one row or column of integers" do
      for type <- [:u8, :s8, :s32], matrix <- [[[1, 2, 3]], [[1], [2], [4], [5]]] do
        matrix = Nx.tensor(matrix, type: type)
        got = Nx.LinAlg.svd(to_device(matrix), full_matrices?: false)
        expected = Nx.LinAlg.svd(matrix, full_matrices?: false)

        for [a, b] <- zip_all([Tuple.to_list(got), Tuple.to_list(expected)]),
            do: assert_within(a, b, 1.0e-6, matrix)
      end
    end

    test "of zero gives identities" do
      for {m, n} <- [{3, 3}, {3, 4}, {4, 3}] do
        {u, s, vt} = Nx.LinAlg.svd(to_device(Nx.broadcast(0.0, {m, n})))
        assert host(u) == Nx.eye(m, type: :f32)
        assert host(s) == Nx.broadcast(0.0, {3})
        assert host(vt) == Nx.eye(n, type: :f32)
      end
    end

    test "has BinaryBackend's signs and order" do
      for type <- real(),
          {m, n} <- [{2, 2}, {3, 3}, {4, 3}, {3, 4}],
          full? <- [true, false],
          _ <- 1..3 do
        # Singular values far from each other and from zero: else vectors are not determined.
        {q, _} = Nx.LinAlg.qr(random({m, m}, {:f, 64}))
        {p, _} = Nx.LinAlg.qr(random({n, n}, {:f, 64}))
        k = min(m, n)
        values = Nx.tensor(Enum.map(1..k, &(2.0 ** &1)), type: :f64)
        matrix = Nx.dot(Nx.multiply(q[[.., 0..(k - 1)]], values), p[[0..(k - 1), ..]])
        matrix = Nx.as_type(matrix, type)

        got = Nx.LinAlg.svd(to_device(matrix), full_matrices?: full?)
        expected = Nx.LinAlg.svd(matrix, full_matrices?: full?)

        for [a, b] <- zip_all([Tuple.to_list(got), Tuple.to_list(expected)]) do
          # BinaryBackend's iteration ends at 1e-4 and there abouts.
          assert_within(a, b, 5.0e-3, {type, full?, matrix})
        end
      end
    end

    test "of any batch, and of narrow floats" do
      for batch <- [{}, {3}, {2, 1, 2}] do
        check_svd(random(List.to_tuple(Tuple.to_list(batch) ++ [4, 3]), {:f, 32}), true)
      end

      for type <- [{:f, 16}, {:bf, 16}], do: check_svd(random({5, 4}, type), true)
    end
  end

  describe "what is built on them" do
    test "pinv, least_squares, matrix_rank and the nuclear norm" do
      type = Generators.widest_float()
      # With room for the condition of the matrices.
      error = 2 ** 16 * epsilon(type)

      for {m, n} <- [{5, 3}, {3, 5}, {6, 6}] do
        matrix = random({m, n}, type)
        device = to_device(matrix)
        inverse = Nx.LinAlg.pinv(device)
        assert_within(dot(dot(device, inverse), device), matrix, error, matrix)
        assert Nx.to_number(Nx.LinAlg.matrix_rank(device)) == min(m, n)

        {_, s, _} = Nx.LinAlg.svd(device)
        nuclear = Nx.to_number(Nx.LinAlg.norm(device, ord: :nuclear))
        assert_in_delta nuclear, Nx.to_number(Nx.sum(s)), error
      end

      a = random({8, 3}, type)
      x = Nx.tensor([1.0, -2.0, 3.0], type: type)
      assert_within(Nx.LinAlg.least_squares(to_device(a), to_device(dot(a, x))), x, error, a)
    end
  end

  describe "larger matrices" do
    test "qr" do
      check_qr(random({1024, 40}, {:f, 32}), :reduced)
      check_qr(random({200, 200}, {:f, 32}), :complete)
    end

    test "eigh" do
      check_eigh(hermitian(random({200, 200}, {:f, 32})))
    end

    test "svd" do
      check_svd(random({150, 150}, {:f, 32}), true)
    end
  end

  ## Properties

  defp check_qr(matrix, mode, context \\ nil) do
    {q, r} = Nx.LinAlg.qr(to_device(matrix), mode: mode)
    context = {:qr, context, matrix.type, matrix.shape, mode}
    {m, n} = sides(matrix)
    k = if mode == :complete, do: m, else: min(m, n)
    assert {q.type, r.type} == {matrix.type, matrix.type}
    assert {sides(q), sides(r)} == {{m, k}, {k, n}}
    tolerance = 10 * max(m, n) * epsilon(matrix.type)
    [q, r, a] = in_double([q, r, matrix])
    assert_within(dot(q, r), a, tolerance * norm(matrix), context)
    assert_orthonormal(q, tolerance, context)
    if k <= 40, do: assert(host(r) == Nx.triu(host(r)), inspect(context))
  end

  # Whether BinaryBackend reflected each column of a real matrix. In f32 one that is below the diagonal less than
  # some 2^-12 of what it is on it is lost where squares are subtracted: one reflection fewer, and other signs.
  defp all_reflected?(%{type: {:c, _}}), do: true

  defp all_reflected?(matrix) do
    {m, n} = sides(matrix)
    {q, _r} = Nx.LinAlg.qr(matrix, mode: :complete)
    Nx.to_number(Nx.LinAlg.determinant(q)) * -1 ** min(m - 1, n) > 0
  end

  defp check_eigh(matrix, context \\ nil) do
    {values, vectors} = Nx.LinAlg.eigh(to_device(matrix))
    context = {:eigh, context, matrix.type, matrix.shape}
    {n, _} = sides(matrix)
    assert {values.type, vectors.type} == {matrix.type, matrix.type}
    assert values.shape == Tuple.delete_at(matrix.shape, tuple_size(matrix.shape) - 1)
    tolerance = 10 * n * epsilon(matrix.type)
    [l, v, a] = in_double([values, vectors, matrix])
    product = dot(Nx.multiply(v, Nx.new_axis(l, -2)), adjoint(v))
    assert_within(product, a, tolerance * norm(matrix), context)
    assert_orthonormal(v, tolerance, context)

    for row <- rows(Nx.abs(host(l)), n),
        do: assert(row == Enum.sort(row, :desc), inspect(context))

    values
  end

  defp check_svd(matrix, full?, context \\ nil) do
    {u, s, vt} = Nx.LinAlg.svd(to_device(matrix), full_matrices?: full?)
    context = {:svd, context, matrix.type, matrix.shape, full?}
    {m, n} = sides(matrix)
    k = min(m, n)
    assert {u.type, s.type, vt.type} == {matrix.type, matrix.type, matrix.type}
    assert {sides(u), sides(vt)} == if(full?, do: {{m, m}, {n, n}}, else: {{m, k}, {k, n}})
    tolerance = 10 * max(m, n) * epsilon(matrix.type)
    [u, s, vt, a] = in_double([u, s, vt, matrix])
    left = Nx.slice_along_axis(u, 0, k, axis: -1)
    right = Nx.slice_along_axis(vt, 0, k, axis: -2)
    product = dot(Nx.multiply(left, Nx.new_axis(s, -2)), right)
    assert_within(product, a, tolerance * norm(matrix), context)
    assert_orthonormal(u, tolerance, context)
    assert_orthonormal(adjoint(vt), tolerance, context)

    for row <- rows(host(s), k) do
      assert row == Enum.sort(row, :desc) and List.last(row) >= 0, inspect(context)
    end
  end

  defp assert_orthonormal(q, tolerance, context) do
    product = dot(adjoint(q), q)

    identity =
      Nx.broadcast(Nx.eye(elem(sides(product), 0), backend: VulkanoBackend), product.shape)

    assert_within(product, identity, tolerance, {:orthonormal, context})
  end

  # The largest difference, found where the first tensor is.
  defp assert_within(a, b, tolerance, context) do
    compared()
    b = if match?(%VulkanoBackend{}, a.data), do: to_device(b), else: host(b)
    assert a.shape == b.shape
    [a, b] = in_double([a, b])
    difference = Nx.to_number(Nx.reduce_max(Nx.abs(Nx.subtract(a, b))))

    assert is_number(difference) and difference <= tolerance,
           "#{inspect(context)}: #{inspect(difference)} is more than #{tolerance}, " <>
             "seed #{ExUnit.configuration()[:seed]}"
  end

  ## Matrices

  # Each with its name; square, of f64. The Kahan matrix is triangular and nearly singular without a
  # small diagonal element.
  defp difficult(n) do
    row = Nx.iota({n, n}, axis: 0, type: :f64)
    column = Nx.iota({n, n}, axis: 1, type: :f64)
    {sine, cosine} = {:math.sin(1.2), :math.cos(1.2)}
    above = Nx.select(Nx.less(row, column), -cosine, Nx.equal(row, column))
    vector = random({n, 1}, {:f, 64})

    [
      identity: Nx.eye(n, type: :f64),
      zero: Nx.broadcast(Nx.tensor(0.0, type: :f64), {n, n}),
      ones: Nx.broadcast(Nx.tensor(1.0, type: :f64), {n, n}),
      rank_one: Nx.dot(vector, Nx.transpose(vector)),
      large: Nx.multiply(random({n, n}, {:f, 64}), 1.0e20),
      small: Nx.multiply(random({n, n}, {:f, 64}), 1.0e-20),
      hilbert: hilbert(n, {:f, 64}),
      kahan: Nx.multiply(above, Nx.pow(sine, row))
    ]
  end

  defp real, do: Generators.computed(@real)

  defp hermitian(matrix), do: Nx.add(matrix, adjoint(matrix))

  ## Arithmetic

  # Real results are multiplied on the device in f64, complex ones on the host.
  defp in_double(tensors) do
    if Enum.any?(tensors, &Nx.Type.complex?(&1.type)),
      do: Enum.map(tensors, &Nx.as_type(host(&1), :c128)),
      else: Enum.map(tensors, &Nx.as_type(&1, :f64))
  end

  defp norm(matrix) do
    [a] = in_double([host(matrix)])
    :math.sqrt(Nx.to_number(Nx.sum(Nx.pow(Nx.abs(a), 2))))
  end

  defp sides(tensor) do
    rank = tuple_size(tensor.shape)
    {elem(tensor.shape, rank - 2), elem(tensor.shape, rank - 1)}
  end

  defp rows(tensor, n), do: tensor |> Nx.to_flat_list() |> Enum.chunk_every(n)
end
