defmodule Nx.Vulkan.Backend.LinearAlgebra do
  @moduledoc false
  # Triangular systems and the blocks that factor matrices. Built-in kernels take a tensor of matrices as
  # `{ref, type, shape}`, over whose leading axes they batch; what is element-wise around them are programs.
  # How a matrix is factored, and in which type, is decided in src/kernels/linalg.
  #
  # A block is `:default` where its kernel does not apply.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Block.LinAlg
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Dispatch, Movement, ProgramRecorder, Storage}
  alias Nx.Vulkan.ProgramBuilder

  @index {:u, 32}
  @flag {:u, 8}

  ## Systems

  def triangular_solve(out, a, b, opts) do
    side = if opts[:left_side], do: [], else: [:right]
    triangle = if opts[:lower], do: [], else: [:upper]
    transform = if opts[:transform_a] == :none, do: [], else: [opts[:transform_a]]
    options = side ++ triangle ++ transform
    matrices = Storage.buffer(a)
    right = right_hand_side(b, a, opts[:left_side])

    answer =
      if ProgramRecorder.mode() == :chain do
        flags = {opts[:lower], opts[:transform_a] != :none, opts[:left_side]}
        recorded_solve(out, flags, matrices, right)
      else
        with :ok <- check_singular(matrices),
             do: Native.call(triangular_solve(out.type, matrices, right, nil, options))
      end

    Dispatch.result(answer, :triangular_solve, out, [a, b, opts])
  end

  # As a step of a chain: one matrix of the type of the result.
  defp recorded_solve(
         %T{type: type},
         {lower?, transposed?, left?},
         {_, type, {n, n}} = a,
         {_, type, {_, _} = shape} = b
       ),
       do:
         ProgramRecorder.matrix(
           {:triangular_solve, lower?, transposed?, left?, n},
           type,
           [b, a],
           shape
         )

  defp recorded_solve(_out, _flags, _a, _b),
    do:
      raise(
        ArgumentError,
        "triangular_solve of several matrices, or of two types, is not among the operations of chain kernels"
      )

  # A kernel cannot raise, so the diagonal is reduced to one byte first, which is read.
  defp check_singular(matrices) do
    {diagonal, shape} = diagonal(matrices)
    axes = Enum.to_list(0..(tuple_size(shape) - 1))

    with {:ok, ref} <-
           Dispatch.compute(ProgramBuilder.single(:all, @flag, [diagonal], shape, axes)),
         {:ok, <<regular>>} <- Native.call(buf_read(ref, 0, 1)) do
      if regular == 0,
        do: raise(ArgumentError, "can't solve for singular matrix"),
        else: :ok
    end
  end

  # L·U = transpose(P)·A, so L·Y = transpose(P)·B and U·X = Y.
  def solve(%T{type: type} = out, a, b) do
    answer =
      with {:ok, {packed, permutation}} <- factor(Nx.Type.to_floating(a.type), a),
           :ok <- check_singular(packed),
           {_ref, _type, shape} = right = right_hand_side(b, a, true),
           # What is packed are the transposes.
           lower = [:upper, :transpose, :unit],
           {:ok, y} <- Native.call(triangular_solve(type, packed, right, permutation, lower)),
           do: Native.call(triangular_solve(type, packed, {y, type, shape}, nil, [:transpose]))

    Dispatch.block(answer, :solve, out)
  end

  # Vectors have a rank less than the matrices: columns, or rows on the left.
  defp right_hand_side(%T{shape: b_shape} = b, %T{shape: a_shape}, left?) do
    {ref, type, shape} = Storage.buffer(b)
    rank = tuple_size(b_shape)

    cond do
      rank == tuple_size(a_shape) -> {ref, type, shape}
      left? -> {ref, type, Tuple.insert_at(shape, rank, 1)}
      true -> {ref, type, Tuple.insert_at(shape, rank - 1, 1)}
    end
  end

  ## Factors

  def cholesky(out, tensor) do
    if ProgramRecorder.mode() == :chain,
      do: Dispatch.block(recorded_cholesky(out, Storage.buffer(tensor)), :cholesky, out),
      else:
        Dispatch.block(Native.call(cholesky(out.type, Storage.buffer(tensor))), :cholesky, out)
  end

  defp recorded_cholesky(%T{type: type}, {_, type, {n, n} = shape} = a),
    do: ProgramRecorder.matrix({:cholesky, n}, type, [a], shape)

  defp recorded_cholesky(_out, _a),
    do:
      raise(
        ArgumentError,
        "cholesky of several matrices is not among the operations of chain kernels"
      )

  def lu({p, l, u} = outs, tensor) do
    answer =
      with {:ok, {packed, permutation}} <- factor(l.type, tensor),
           {:ok, permutation} <- Dispatch.compute(permutation_matrix(p, permutation)),
           {:ok, lower} <- Dispatch.compute(lower(l, packed)),
           {:ok, upper} <- Dispatch.compute(upper(u, packed)),
           do: {:ok, {permutation, lower, upper}}

    Dispatch.block(answer, :lu, outs)
  end

  # `packed` holds, transposed, the matrices that have L below their diagonal and U on and above it.
  # Row i of L·U is row `permutation[i]` of the tensor's matrix.
  defp factor(type, tensor) do
    {_ref, _type, shape} = matrices = Storage.buffer(tensor)

    with {:ok, {packed, working_type, permutation}} <- Native.call(lu(type, matrices)),
         do: {:ok, {{packed, working_type, shape}, permutation}}
  end

  # P has a one in row i and column j where row j of L·U is row i of A.
  defp permutation_matrix(%T{type: type, shape: shape}, permutation) do
    {row, _column} = last_axes(shape)
    {batch, _strides} = batch(shape, 1)

    ProgramBuilder.new(shape)
    |> ProgramBuilder.input(:permutation, {permutation, @index, 0, batch ++ [0, 1]})
    |> ProgramBuilder.op(:row, :iota, @index, [], row)
    |> ProgramBuilder.op(:one?, :equal, @flag, [:permutation, :row])
    |> ProgramBuilder.op(:matrix, :as_type, type, [:one?])
    |> ProgramBuilder.program()
  end

  # Added to the identity: as Nx's, L has no negative zeros.
  defp lower(%T{type: type}, packed) do
    packed
    |> triangle(:greater, type)
    |> ProgramBuilder.op(:diagonal, :equal, @flag, [:row, :column])
    |> ProgramBuilder.op(:lower, :add, type, [:kept, :diagonal])
    |> ProgramBuilder.program()
  end

  defp upper(%T{type: type}, packed),
    do: packed |> triangle(:less_equal, type) |> ProgramBuilder.program()

  # The elements of the unpacked matrices whose row compares so with their column; zeros elsewhere.
  defp triangle({ref, packed, shape}, comparison, type) do
    {row, column} = last_axes(shape)
    {batch, [row_stride, column_stride]} = batch(shape, 0)

    ProgramBuilder.new(shape)
    |> ProgramBuilder.input(:packed, {ref, packed, 0, batch ++ [column_stride, row_stride]})
    |> ProgramBuilder.input(:zero, Storage.integer(0, @index))
    |> ProgramBuilder.op(:row, :iota, @index, [], row)
    |> ProgramBuilder.op(:column, :iota, @index, [], column)
    |> ProgramBuilder.op(:kept?, comparison, @flag, [:row, :column])
    |> ProgramBuilder.op(:kept, :select, type, [:kept?, :packed, :zero])
  end

  def qr(%LinAlg.QR{mode: mode, eps: eps}, {q, _r} = outs, [a]) do
    Native.call(qr(q.type, Storage.buffer(a), mode == :complete, eps * 1.0))
    |> Dispatch.block(:qr, outs)
  end

  # Within definitions Nx says that the vectors of integer matrices of 1 × 1 are integers.
  def eigh(_eigh, {_values, %T{type: {kind, _}}}, [_a]) when kind in [:s, :u], do: :default

  def eigh(%LinAlg.Eigh{eps: eps}, {_values, vectors} = outs, [a]) do
    Native.call(eigh(vectors.type, Storage.buffer(a), eps * 1.0))
    |> Dispatch.block(:eigh, outs)
  end

  # The examples of Nx.LinAlg show the rounding of Nx's own iteration on small matrices of integers.
  def svd(_svd, _outs, [%T{type: {kind, _}, shape: shape}])
      when kind in [:s, :u] and elem(shape, tuple_size(shape) - 1) <= 4 and
             elem(shape, tuple_size(shape) - 2) <= 4,
      do: :default

  def svd(%LinAlg.SVD{full_matrices?: full?}, {u, _s, _vt} = outs, [a]) do
    Native.call(svd(u.type, Storage.buffer(a), full?))
    |> Dispatch.block(:svd, outs)
  end

  ## Determinants

  # The closed formulas of Nx for matrices of order 2 and 3: the signs, and the row and column of each
  # factor.
  @formulas %{
    2 => [{:add, [{0, 0}, {1, 1}]}, {:subtract, [{0, 1}, {1, 0}]}],
    3 => [
      {:add, [{0, 0}, {1, 1}, {2, 2}]},
      {:add, [{0, 1}, {1, 2}, {2, 0}]},
      {:add, [{0, 2}, {1, 0}, {2, 1}]},
      {:subtract, [{0, 2}, {1, 1}, {2, 0}]},
      {:subtract, [{0, 1}, {1, 0}, {2, 2}]},
      {:subtract, [{0, 0}, {1, 2}, {2, 1}]}
    ]
  }

  def determinant(%T{type: type} = out, %T{shape: shape} = tensor) do
    n = elem(shape, tuple_size(shape) - 1)

    answer =
      if n in [2, 3] do
        formula(out, Storage.buffer(tensor), @formulas[n])
      else
        with {:ok, {packed, permutation}} <- factor(type, tensor),
             {:ok, product} <- Dispatch.compute(of_diagonal(:product, packed)),
             {:ok, nonzero} <- Dispatch.compute(of_diagonal(:all, packed)),
             {:ok, inversions} <- Dispatch.compute(inversions(packed, permutation)) do
          {_ref, working_type, _shape} = packed
          parts = [product: {product, working_type}, nonzero?: {nonzero, @flag}]
          Dispatch.compute(signed(out, parts ++ [inversions: {inversions, @index}]))
        end
      end

    Dispatch.block(answer, :determinant, out)
  end

  # Each product rounds once, to the type that Nx.product/2 has for it; each step of one does where the device has no wider type.
  defp formula(out, {_ref, from, _matrices} = operand, formula) do
    rounded = Nx.Type.to_aggregate(from)
    compute = &Dispatch.compute(formula_program(out, operand, formula, rounded, &1))

    with {:error, :unsupported, _reason} <- compute.(widest(rounded)), do: compute.(rounded)
  end

  defp formula_program(
         %T{type: type, shape: shape},
         {ref, from, matrices},
         formula,
         rounded,
         product_type
       ) do
    {batch, [n, 1]} = batch(matrices, 0)

    elements =
      for i <- 0..(n - 1), j <- 0..(n - 1), do: {{i, j}, {ref, from, i * n + j, batch}}

    builder =
      Enum.reduce(elements, ProgramBuilder.new(shape), fn {at, operand}, builder ->
        ProgramBuilder.input(builder, at, operand)
      end)

    {sum, builder} =
      Enum.reduce(formula, {nil, builder}, fn {sign, [first | factors]}, {sum, builder} ->
        {product, builder} =
          Enum.reduce(factors, {first, builder}, fn factor, {product, builder} ->
            both = {product, factor}
            {both, ProgramBuilder.op(builder, both, :multiply, product_type, [product, factor])}
          end)

        term = {:rounded, product}
        builder = ProgramBuilder.op(builder, term, :as_type, rounded, [product])

        if sum,
          do:
            {{sign, term}, ProgramBuilder.op(builder, {sign, term}, sign, rounded, [sum, term])},
          else: {term, builder}
      end)

    builder |> ProgramBuilder.op(:determinant, :as_type, type, [sum]) |> ProgramBuilder.program()
  end

  defp widest({:c, _}), do: {:c, 128}
  defp widest({kind, _}) when kind in [:s, :u], do: {kind, 64}
  defp widest(_type), do: {:f, 64}

  # A reduction of U's diagonal, for each matrix.
  defp of_diagonal(op, {_ref, working_type, _shape} = packed) do
    {diagonal, shape} = diagonal(packed)
    type = if op == :all, do: @flag, else: working_type
    ProgramBuilder.single(op, type, [diagonal], shape, [tuple_size(shape) - 1])
  end

  # How often an earlier row came from a later one, for each matrix.
  defp inversions({_ref, _type, shape}, permutation) do
    {row, column} = last_axes(shape)
    {batch, _strides} = batch(shape, 1)

    ProgramBuilder.new(shape)
    |> ProgramBuilder.input(:of_row, {permutation, @index, 0, batch ++ [1, 0]})
    |> ProgramBuilder.input(:of_column, {permutation, @index, 0, batch ++ [0, 1]})
    |> ProgramBuilder.op(:later?, :greater, @flag, [:of_row, :of_column])
    |> ProgramBuilder.op(:row, :iota, @index, [], row)
    |> ProgramBuilder.op(:column, :iota, @index, [], column)
    |> ProgramBuilder.op(:earlier?, :less, @flag, [:row, :column])
    |> ProgramBuilder.op(:inverted?, :logical_and, @flag, [:later?, :earlier?])
    |> ProgramBuilder.op(:inversions, :sum, @index, [:inverted?], [row, column])
    |> ProgramBuilder.program()
  end

  # The product of U's diagonal, zero where one of it is, negated for an odd permutation.
  defp signed(%T{type: type, shape: shape}, parts) do
    {_ref, working_type} = parts[:product]

    builder =
      Enum.reduce(parts, ProgramBuilder.new(shape), fn {key, {ref, type}}, builder ->
        ProgramBuilder.input(builder, key, {ref, type, shape})
      end)

    builder
    |> ProgramBuilder.input(:one, Storage.integer(1, @index))
    |> ProgramBuilder.input(:zero, Storage.integer(0, @index))
    |> ProgramBuilder.op(:negated, :negate, working_type, [:product])
    |> ProgramBuilder.op(:odd?, :bitwise_and, @index, [:inversions, :one])
    |> ProgramBuilder.op(:signed, :select, working_type, [:odd?, :negated, :product])
    |> ProgramBuilder.op(:determinant, :select, type, [:nonzero?, :signed, :zero])
    |> ProgramBuilder.program()
  end

  ## Views of matrices

  # The diagonals: an operand, and the shape over which it is read.
  defp diagonal({ref, type, shape}) do
    {batch, [n, 1]} = batch(shape, 0)
    rank = tuple_size(shape)
    {{ref, type, 0, batch ++ [n + 1]}, Tuple.delete_at(shape, rank - 1)}
  end

  # Strides along the leading axes of dense matrices, or of what has `fewer` axes for each, and along the
  # others.
  defp batch(shape, fewer) do
    dims = Tuple.to_list(shape)
    dense = dims |> Enum.drop(-fewer) |> List.to_tuple() |> Movement.strides()
    Enum.split(dense, length(dims) - 2)
  end

  defp last_axes(shape), do: {tuple_size(shape) - 2, tuple_size(shape) - 1}
end
