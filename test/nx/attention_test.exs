defmodule Nx.Vulkan.AttentionTest do
  @moduledoc """
  Attention in its spellings: how many kernels a definition makes of it, and its error against `Nx.BinaryBackend` in f64. These
  tests run here, and again in a BEAM of their own with the kernels of GPUs.
  """

  use Nx.Vulkan.Test.Case, async: true

  import Bitwise
  import Nx.Defn

  require Nx.Vulkan.Native, as: Native

  alias Nx.Defn.Evaluator
  alias Nx.Vulkan.Compiler

  # A check of the dependencies would compile those from a folder anew, under the BEAMs that run already.
  @as_built "--no-compile --no-deps-check"

  @tag :parent
  test "a device without cpu gets the kernels of GPUs" do
    arguments = ~w(test #{@as_built} --seed #{ExUnit.configuration()[:seed]} --exclude parent)
    {output, status} = mix(arguments ++ [__ENV__.file], [{"NX_VULKAN_DISABLE", "cpu"}])
    assert status == 0 and output =~ ~r/[1-9]\d* tests?, 0 failures/, output
  end

  defp compiled(fun), do: Nx.Defn.jit(fun, compiler: Compiler, cache: false)
  defp one_by_one(fun), do: Nx.Defn.jit(fun, compiler: Evaluator)

  defp tensor(shape, type), do: Generators.tensor(shape, type, {:float, -2.0, 2.0})
  defp mask(shape), do: Generators.tensor(shape, :u8, {:integer, 0..1})

  # Calls of the NIFs that run kernels.
  defp calls(fun, args) do
    nifs = [run: 3, run_rows: 3, dot: 7, contract: 4, contract_with_epilogue: 5, assemble: 3]
    nifs = [{:attention, 5} | nifs]
    programs(fn -> apply(compiled(fun), Enum.map(args, &to_device/1)) end, nifs)
  end

  # Fails unless the definition is one call, where the device takes that for `queries` queries of a head or for these
  # sizes and this type, and its error is no greater than that of its operations one by one, but for some ulps of the
  # largest value.
  defp check(fun, args, queries) when is_integer(queries),
    do: check(fun, args, {{1, queries, 9, 8, 8}, nil})

  defp check(fun, args, {sizes, matrix_type}) do
    if Native.attention_pays(nil, sizes, matrix_type) == {:ok, true},
      do: assert(calls(fun, args) == 1, inspect(Function.info(fun, :name)))

    check_error(fun, args)
  end

  defp check_error(fun, args) do
    wide = for arg <- args, do: if(Nx.Type.float?(arg.type), do: Nx.as_type(arg, :f64), else: arg)
    exact = apply(one_by_one(fun), wide)
    on_device = Enum.map(args, &to_device/1)
    result = apply(compiled(fun), on_device)
    separate = apply(one_by_one(fun), on_device)

    assert {result.shape, result.type, result.names} ==
             {separate.shape, separate.type, separate.names}

    error = fn tensor ->
      tensor
      |> host()
      |> Nx.as_type(:f64)
      |> Nx.subtract(exact)
      |> Nx.abs()
      |> Nx.reduce_max()
      |> Nx.to_number()
    end

    largest = exact |> Nx.abs() |> Nx.reduce_max() |> Nx.to_number()
    ulps = 2 * epsilon(result.type) * largest

    assert error.(result) <= error.(separate) + ulps,
           inspect({error.(result), error.(separate), ulps})
  end

  # Nx's and most models' softmax.
  defnp softmax(x) do
    e = Nx.exp(x - Nx.reduce_max(x, axes: [-1], keep_axes: true))
    e / Nx.sum(e, axes: [-1], keep_axes: true)
  end

  defnp unsafe_softmax(x) do
    e = Nx.exp(x)
    e / Nx.new_axis(Nx.sum(e, axes: [-1]), -1)
  end

  # Axon's: no gradient of the largest element, the reciprocal of the sum.
  defnp axon_softmax(x) do
    e = Nx.exp(x - stop_grad(Nx.reduce_max(x, axes: [-1], keep_axes: true)))
    1 / Nx.sum(e, axes: [-1], keep_axes: true) * e
  end

  defn plain(q, k, v) do
    Nx.dot(q, [2], [0], k, [2], [0])
    |> Nx.multiply(0.125)
    |> softmax()
    |> Nx.dot([2], [0], v, [1], [0])
  end

  defn one_head(q, k, v) do
    Nx.dot(unsafe_softmax(Nx.dot(q, Nx.transpose(k)) / Nx.sqrt(Nx.tensor(8.0))), v)
  end

  # Heads are an axis in the middle of what projections give, and of the result.
  defn heads_transposed(q, k, v) do
    [q, k, v] = transpose_heads([q, k, v])
    weights = Nx.dot(q * 0.125, [3], [0, 1], k, [3], [0, 1]) |> axon_softmax()

    Nx.dot(weights, [3], [0, 1], v, [2], [0, 1])
    |> Nx.transpose(axes: [0, 2, 1, 3])
    |> merge_heads()
  end

  deftransformp(transpose_heads(list), do: Enum.map(list, &Nx.transpose(&1, axes: [0, 2, 1, 3])))

  deftransformp merge_heads(x) do
    {batch, length, heads, head} = x.shape
    Nx.reshape(x, {batch, length, heads * head})
  end

  # As Bumblebee writes it: bias where the mask is set, the least number elsewhere, and a mask of heads.
  defn with_bias(q, k, v, mask, bias, head_mask) do
    [q, k, v] = transpose_heads([q, k, v])
    weights = Nx.dot(q / Nx.sqrt(Nx.axis_size(q, -1)), [3], [0, 1], k, [3], [0, 1])
    mask = mask |> Nx.new_axis(1) |> Nx.new_axis(1) |> Nx.broadcast(weights)
    bias = Nx.select(mask, Nx.broadcast(bias, weights), Nx.Constants.min_finite({:f, 32}))
    weights = axon_softmax(weights + bias) * Nx.reshape(head_mask, {1, :auto, 1, 1})
    Nx.dot(weights, [3], [0, 1], v, [2], [0, 1]) |> Nx.transpose(axes: [0, 2, 1, 3])
  end

  defn causal(q, k, v) do
    scores = Nx.dot(q, [2], [0], k, [2], [0]) * 0.25
    {_, rows, columns} = Nx.shape(scores)
    mask = Nx.greater_equal(Nx.iota({rows, columns}, axis: 0), Nx.iota({rows, columns}, axis: 1))

    scores =
      Nx.select(Nx.broadcast(Nx.new_axis(mask, 0), scores), Nx.as_type(scores, :f32), -1.0e30)

    softmax(scores) |> Nx.as_type(Nx.type(v)) |> Nx.dot([2], [0], v, [1], [0])
  end

  # A cache of keys and values, the first of which are in use.
  defn decoding(q, k, v, position) do
    scores = Nx.dot(q, [2], [0], k, [2], [0]) * 0.25
    mask = Nx.iota({1, Nx.axis_size(k, 1)}, axis: 1) |> Nx.less_equal(position)

    wide =
      Nx.select(
        mask |> Nx.new_axis(0) |> Nx.broadcast(scores),
        scores,
        Nx.Constants.neg_infinity()
      )

    Nx.dot(softmax(wide), [2], [0], v, [1], [0])
  end

  # Each head of keys and values is that of several heads of queries.
  defn grouped(q, k, v) do
    [k, v] = repeat_heads([k, v], q)
    [q, k, v] = transpose_heads([q, k, v])
    weights = Nx.dot(q, [3], [0, 1], k, [3], [0, 1]) |> softmax()
    Nx.dot(weights, [3], [0, 1], v, [2], [0, 1])
  end

  deftransformp repeat_heads(list, q) do
    for x <- list do
      {batch, length, heads, head} = x.shape
      times = div(elem(q.shape, 2), heads)
      wide = Nx.broadcast(Nx.new_axis(x, 3), {batch, length, heads, times, head})
      Nx.reshape(wide, {batch, length, heads * times, head})
    end
  end

  # A branch of a condition, whose operations are steps of one kernel where the device runs it.
  defn branch(q, k, v) do
    if Nx.all(q < 3), do: Nx.dot(softmax(Nx.dot(q, Nx.transpose(k))), v), else: v[0..0]
  end

  defn weights_too(q, k, v) do
    weights = softmax(Nx.dot(q, Nx.transpose(k)))
    {weights, Nx.dot(weights, v)}
  end

  # The sum of the columns is none of the rows'.
  defn other_sum(q, k, v) do
    e = Nx.exp(Nx.dot(q, Nx.transpose(k)))
    Nx.dot(e / Nx.sum(e, axes: [0]), v)
  end

  # One query, few and many, of heads that are whole vectors, whole cooperative matrices and others.
  @sizes [f32: {1, 70, 6, 7}, f16: {3, 40, 8, 7}, f32: {33, 20, 16, 7}, bf16: {17, 20, 16, 7}] ++
           [f16: {40, 70, 32, 16}, bf16: {150, 33, 80, 96}, bf16: {16, 260, 64, 64}]

  describe "attention is one kernel" do
    test "of several heads, in all types and sizes" do
      for {type, {queries, keys, head, width}} <- @sizes do
        args = [
          tensor({3, queries, head}, type),
          tensor({3, keys, head}, type),
          tensor({3, keys, width}, type)
        ]

        aligned? = rem(head, 8) == 0 and rem(width, 8) == 0
        matrix_type = if aligned?, do: Nx.Type.normalize!(type)
        check(&plain/3, args, {{3, queries, keys, head, width}, matrix_type})
      end
    end

    test "of one head, without the largest score" do
      for queries <- [2, 6] do
        check(
          &one_head/3,
          [tensor({queries, 8}, :f32), tensor({10, 8}, :f32), tensor({10, 4}, :f32)],
          queries
        )
      end
    end

    test "with heads transposed before and after" do
      for {type, length} <- [f32: 1, bf16: 12] do
        q = tensor({2, length, 3, 8}, type)

        check(
          &heads_transposed/3,
          [q, tensor({2, 12, 3, 8}, type), tensor({2, 12, 3, 8}, type)],
          length
        )
      end
    end

    test "with a mask, a bias and a mask of heads" do
      for queries <- [2, 5] do
        args = for length <- [queries, 9, 9], do: tensor({2, length, 3, 4}, :f32)
        # Each query has a key.
        mask = Nx.put_slice(mask({2, 9}), [0, 0], Nx.broadcast(Nx.u8(1), {2, 1}))

        check(
          &with_bias/6,
          args ++ [mask, tensor({3, queries, 9}, :f32), tensor({3}, :f32)],
          queries
        )
      end
    end

    test "of a causal mask" do
      for {type, length} <- [f32: 4, f16: 21, bf16: 21] do
        check(&causal/3, for(_ <- 1..3, do: tensor({2, length, 16}, type)), length)
      end
    end

    test "of one query and a cache" do
      for type <- [:f32, :bf16] do
        args = [tensor({4, 1, 16}, type), tensor({4, 50, 16}, type), tensor({4, 50, 16}, type)]
        check(&decoding/4, args ++ [Nx.tensor(17)], 1)
      end
    end

    test "of grouped queries" do
      for length <- [1, 6] do
        q = tensor({2, length, 6, 8}, :f32)

        check(
          &grouped/3,
          [q, tensor({2, 11, 2, 8}, :f32), tensor({2, 11, 2, 8}, :f32)],
          3 * length
        )
      end
    end
  end

  test "a definition that comes again gives the same, on other inputs, too" do
    compiled = Nx.Defn.jit(&decoding/4, compiler: Compiler)

    for n <- 1..5 do
      args = [tensor({2, 1, 8}, :f32), tensor({2, 30, 8}, :f32), tensor({2, 30, 8}, :f32)]
      args = Enum.map(args ++ [Nx.tensor(5 * n)], &to_device/1)
      fresh = apply(compiled(&decoding/4), args)
      assert Nx.to_binary(apply(compiled, args)) == Nx.to_binary(fresh)
    end
  end

  test "a call that does not fit its operands is refused" do
    ref = to_device(Nx.iota({2, 4}, type: :f32)).data.ref
    views = List.to_tuple(List.duplicate({ref, {:f, 32}, 0}, 3))
    axes = {[], [{2, 4, 0, 0, 4}], {4, 1, 1, 0, 0}, {2, 0, 4, 4, 0}, {4, 0, 0, 1, 1}}

    attention = fn views, axes, programs, updates ->
      Native.call(attention({:f, 32}, views, axes, programs, updates))
    end

    none = {nil, nil}

    assert {:ok, {_}} = attention.(views, axes, none, none)

    for keys <- [3, 1 <<< 40],
        do:
          assert(
            {:error, :size_mismatch} =
              attention.(views, put_elem(axes, 3, {keys, 0, 4, 4, 0}), none, none)
          )

    update = {{ref, {:f, 32}, 4}, [], 1, 1}
    assert {:ok, {_, _, _}} = attention.(views, axes, none, {update, update})

    for {position, value} <- [{0, {ref, {:f, 32}, 5}}, {1, {ref, {:f, 32}, 1 <<< 40}}] do
      update = put_elem(put_elem(update, 0, value), 3, position)
      assert {:error, :size_mismatch} = attention.(views, axes, none, {update, nil})
    end

    for {index, value} <- [
          {0, {ref, {:f, 16}, 0}},
          {0, {nil, {:f, 32}, 0}},
          {0, {}},
          {1, [1]},
          {1, nil},
          {2, nil},
          {3, 2},
          {3, -1},
          {3, {ref, {:f, 32}, {}}},
          {3, {nil, {:s, 32}, {}}},
          {3, {:scalar, {:s, 32}, <<1::32>>}}
        ] do
      updates = {nil, put_elem(update, index, value)}
      assert_raise ArgumentError, fn -> attention.(views, axes, none, updates) end
    end

    for {views, axes, programs} <- [
          {{}, axes, {nil, nil}},
          {views, {}, {nil, nil}},
          {views, axes, {nil}},
          {views, axes, {[], nil}},
          {views, put_elem(axes, 2, {0, 1, 1, 0, 0}), {nil, nil}},
          {views, put_elem(axes, 2, {300, 0, 0, 0, 0}), {nil, nil}},
          {views, put_elem(axes, 4, {4, 0, 0, 1, 2}), {nil, nil}},
          {views, put_elem(axes, 0, List.duplicate({1, 0, 0, 0, 0}, 65)), {nil, nil}}
        ],
        do: assert_raise(ArgumentError, fn -> attention.(views, axes, programs, none) end)

    for updates <- [nil, {}, {nil}, {nil, []}, {nil, {}}],
        do: assert_raise(ArgumentError, fn -> attention.(views, axes, none, updates) end)

    assert_raise ArgumentError, fn -> Native.attention_pays(nil, {1, 2}, nil) end

    assert_raise ArgumentError, fn ->
      Native.attention_pays(nil, {1, 2, 3, 4, 5}, {:f, 17})
    end
  end

  describe "what is no attention" do
    test "stays as it is: weights that are a result, sums of columns" do
      args = [tensor({4, 8}, :f32), tensor({4, 8}, :f32), tensor({4, 5}, :f32)]
      assert calls(&weights_too/3, args) > 1
      assert calls(&other_sum/3, args) > 1
      check_error(&other_sum/3, args)
      assert calls(&plain/3, for(_ <- 1..3, do: tensor({2, 3, 4}, :f64))) > 1
    end

    test "runs in a branch of a condition" do
      check_error(
        &branch/3,
        [tensor({3, 8}, :f32), tensor({9, 8}, :f32), tensor({9, 5}, :f32)] |> wide()
      )
    end

    test "has a row of masked scores alone as NaN" do
      args = [tensor({1, 1, 4}, :f32), tensor({1, 3, 4}, :f32), tensor({1, 3, 4}, :f32)]
      args = Enum.map(args, &to_device/1)

      result =
        compiled(&decoding/4).(
          hd(args),
          Enum.at(args, 1),
          Enum.at(args, 2),
          to_device(Nx.tensor(-1))
        )

      assert Nx.to_flat_list(result) == [:nan, :nan, :nan, :nan]
    end
  end

  # The first of the branch's results has as many rows as the queries.
  defp wide([q, k, v]), do: [q[0..0], k, v]
end
