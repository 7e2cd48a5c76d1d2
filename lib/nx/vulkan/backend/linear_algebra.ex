defmodule Nx.Vulkan.Backend.LinearAlgebra do
  @moduledoc false
  # Triangular systems and the blocks that factor matrices. Kernels take a batch of matrices as
  # `{ref, type, {batch, rows, columns}}`; what is element-wise around them are programs.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Program, Storage}

  @zero {:scalar, {:u, 32}, <<0::32-native>>}
  @one {:scalar, {:u, 32}, <<1::32-native>>}

  def triangular_solve(out, a, b, opts) do
    side = if opts[:left_side], do: [], else: [:right]
    triangle = if opts[:lower], do: [], else: [:upper]
    transform = if opts[:transform_a] == :none, do: [], else: [opts[:transform_a]]
    options = side ++ triangle ++ transform
    matrices = matrices(a)
    right = right_hand_side(b, a, opts[:left_side])

    answer =
      with :ok <- check_singular(matrices),
           do: Native.call(triangular_solve(out.type, matrices, right, nil, options))

    Program.result(answer, :triangular_solve, out, [a, b, opts])
  end

  # A kernel cannot raise, so the diagonal is looked at first, and one byte is read.
  defp check_singular({ref, type, {batch, n, n}}) do
    diagonal = {ref, type, 0, [n * n, n + 1]}

    with {:ok, ref} <-
           Native.call(run([{:all, {:u, 8}, [0], [0, 1]}], [diagonal], {batch, n})),
         {:ok, <<regular>>} <- Native.call(buf_read(ref, 0, 1)) do
      if regular == 0,
        do: raise(ArgumentError, "can't solve for singular matrix"),
        else: :ok
    end
  end

  ## Blocks: `:default` where a kernel does not apply

  def cholesky(out, tensor),
    do: Program.block(Native.call(cholesky(out.type, matrices(tensor))), :cholesky, out)

  def lu({p, l, u} = outs, tensor) do
    answer =
      with {:ok, factors} <- factor(l.type, tensor),
           {:ok, permutation} <- permutation_matrix(p.type, factors),
           {:ok, lower} <- lower(l.type, factors),
           {:ok, upper} <- upper(u.type, factors),
           do: {:ok, {permutation, lower, upper}}

    Program.block(answer, :lu, outs)
  end

  # L·U = transpose(P)·A, so L·Y = transpose(P)·B and U·X = Y.
  def solve(%T{type: type} = out, a, b) do
    answer =
      with {:ok, %{packed: packed, permutation: permutation}} <-
             factor(Nx.Type.to_floating(a.type), a),
           :ok <- check_singular(packed),
           {_ref, _type, shape} = right = right_hand_side(b, a, true),
           # What is packed are the transposes.
           lower = [:upper, :transpose, :unit],
           {:ok, y} <- Native.call(triangular_solve(type, packed, right, permutation, lower)),
           do: Native.call(triangular_solve(type, packed, {y, type, shape}, nil, [:transpose]))

    Program.block(answer, :solve, out)
  end

  # The closed formulas of Nx for matrices of order 2 and 3: the signs and the places of the factors.
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

  def determinant(out, tensor) do
    answer =
      case matrices(tensor) do
        {_ref, _type, {_batch, n, n}} = matrices when n in [2, 3] ->
          formula(out.type, matrices, @formulas[n])

        _matrices ->
          with {:ok, factors} <- factor(out.type, tensor),
               do: signed_product(out.type, factors)
      end

    Program.block(answer, :determinant, out)
  end

  # Each product rounds once, in the type that Nx.product/2 has for it.
  defp formula(out_type, {ref, type, {batch, n, n}}, formula) do
    inputs = for i <- 0..(n * n - 1), do: {ref, type, i, [n * n]}
    rounded = Nx.Type.to_aggregate(type)
    exact = widest(rounded)

    {nodes, last} =
      Enum.reduce(formula, {[], nil}, fn {sign, places}, {nodes, sum} ->
        [first | factors] = for {i, j} <- places, do: n * i + j

        {nodes, product} =
          Enum.reduce(factors, {nodes, first}, fn factor, {nodes, product} ->
            append(nodes, n * n, {:multiply, exact, [product, factor]})
          end)

        {nodes, product} = append(nodes, n * n, {:as_type, rounded, [product]})
        if sum, do: append(nodes, n * n, {sign, rounded, [sum, product]}), else: {nodes, product}
      end)

    {nodes, _} = append(nodes, n * n, {:as_type, out_type, [last]})
    Native.call(run(Enum.reverse(nodes), inputs, {batch}))
  end

  defp append(nodes, inputs, node), do: {[node | nodes], inputs + length(nodes)}

  defp widest({:c, _}), do: {:c, 128}
  defp widest({kind, _}) when kind in [:s, :u], do: {kind, 64}
  defp widest(_type), do: {:f, 64}

  # The product of U's diagonal, zero where one of it is, negated for an odd permutation.
  defp signed_product(type, %{packed: {ref, packed, {batch, n, n}}, permutation: permutation}) do
    diagonal = {ref, packed, 0, [n * n, n + 1]}
    # Whether an earlier row came from a later one.
    from = [{permutation, {:u, 32}, 0, [n, 1, 0]}, {permutation, {:u, 32}, 0, [n, 0, 1]}]

    inversions = [
      {:greater, {:u, 8}, [0, 1]},
      {:iota, {:u, 32}, [], 1},
      {:iota, {:u, 32}, [], 2},
      {:less, {:u, 8}, [3, 4]},
      {:logical_and, {:u, 8}, [2, 5]},
      {:sum, {:u, 32}, [6], [1, 2]}
    ]

    result = [
      {:negate, packed, [0]},
      {:bitwise_and, {:u, 32}, [2, 3]},
      {:select, packed, [6, 5, 0]},
      {:select, type, [1, 7, 4]}
    ]

    with {:ok, product} <-
           Native.call(run([{:product, packed, [0], [1]}], [diagonal], {batch, n})),
         {:ok, nonzero} <- Native.call(run([{:all, {:u, 8}, [0], [1]}], [diagonal], {batch, n})),
         {:ok, odd} <- Native.call(run(inversions, from, {batch, n, n})) do
      parts = [
        {product, packed, {batch}},
        {nonzero, {:u, 8}, {batch}},
        {odd, {:u, 32}, {batch}},
        @one,
        @zero
      ]

      Native.call(run(result, parts, {batch}))
    end
  end

  ## Factors

  # `packed` holds, transposed, the matrices that have L below their diagonal and U on and above it.
  # Row i of L·U is row `permutation[i]` of the tensor's matrix.
  defp factor(type, tensor) do
    {_ref, _type, shape} = matrices = matrices(tensor)

    with {:ok, {packed, permutation}} <- Native.call(lu(type, matrices)),
         do: {:ok, %{packed: {packed, working(type), shape}, permutation: permutation}}
  end

  # The type that kernels factor in.
  defp working({kind, size}) when kind != :c and size < 32, do: {:f, 32}
  defp working(type), do: type

  # P has a one in row i and column j where row j of L·U is row i of A.
  defp permutation_matrix(type, %{permutation: permutation, packed: {_ref, _type, shape}}) do
    {_batch, n, n} = shape
    nodes = [{:iota, {:u, 32}, [], 1}, {:equal, {:u, 8}, [0, 1]}, {:as_type, type, [2]}]
    Native.call(run(nodes, [{permutation, {:u, 32}, 0, [n, 0, 1]}], shape))
  end

  # Added to the identity: as Nx's, L has no negative zeros.
  defp lower(type, %{packed: packed}) do
    nodes = [
      {:iota, {:u, 32}, [], 1},
      {:iota, {:u, 32}, [], 2},
      {:greater, {:u, 8}, [2, 3]},
      {:select, type, [4, 0, 1]},
      {:equal, {:u, 8}, [2, 3]},
      {:add, type, [5, 6]}
    ]

    triangle(nodes, packed)
  end

  defp upper(type, %{packed: packed}) do
    nodes = [
      {:iota, {:u, 32}, [], 1},
      {:iota, {:u, 32}, [], 2},
      {:less_equal, {:u, 8}, [2, 3]},
      {:select, type, [4, 0, 1]}
    ]

    triangle(nodes, packed)
  end

  defp triangle(nodes, {ref, type, {_batch, n, n} = shape}) do
    inputs = [{ref, type, 0, [n * n, 1, n]}, @zero]
    Native.call(run(nodes, inputs, shape))
  end

  ## Operands and results

  defp matrices(tensor) do
    {ref, type, shape} = Storage.buffer(tensor)
    [columns, rows | batch] = shape |> Tuple.to_list() |> Enum.reverse()
    {ref, type, {Enum.product(batch), rows, columns}}
  end

  # A batch of vectors has a rank less than the batch of matrices: columns, or rows on the left.
  defp right_hand_side(%T{shape: b_shape} = b, %T{shape: a_shape}, left?) do
    if tuple_size(b_shape) == tuple_size(a_shape) do
      matrices(b)
    else
      {ref, type, shape} = Storage.buffer(b)
      [n | batch] = shape |> Tuple.to_list() |> Enum.reverse()
      batch = Enum.product(batch)
      {ref, type, if(left?, do: {batch, n, 1}, else: {batch, 1, n})}
    end
  end
end
