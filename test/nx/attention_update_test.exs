defmodule Nx.Vulkan.AttentionUpdateTest do
  @moduledoc """
  Attention that puts the keys and values of new tokens into the caches that it reads has the bits of an attention that reads
  them afterwards, and so have the caches. These tests run here, and again in a BEAM of their own with the kernels of GPUs.
  """

  # Kernels are counted.
  use Nx.Vulkan.Test.Case, async: false

  require Nx.Vulkan.Native, as: Native

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
  defp tensor(shape, type), do: to_device(Generators.tensor(shape, type, {:float, -2.0, 2.0}))

  defp softmax(x) do
    e = Nx.exp(Nx.subtract(x, Nx.reduce_max(x, axes: [-1], keep_axes: true)))
    Nx.divide(e, Nx.sum(e, axes: [-1], keep_axes: true))
  end

  # Queries, keys and values of one token, as {heads, 1, head}, of a row {1, 3 · heads · head}.
  defp split(row, heads) do
    split = Nx.reshape(row, {1, 3, heads, :auto})
    for i <- 0..2, do: split[[.., i]] |> Nx.transpose(axes: [1, 0, 2])
  end

  # Attention to the keys up to the position, all as {heads, keys, head}.
  defp attend(q, k, v, position) do
    scores = Nx.dot(q, [2], [0], k, [2], [0]) |> Nx.multiply(Nx.tensor(0.25, type: q.type))
    mask = Nx.iota({1, 1, Nx.axis_size(k, 1)}, axis: 2) |> Nx.less_equal(position)
    wide = Nx.select(Nx.broadcast(mask, scores), Nx.as_type(scores, :f32), -1.0e30)
    softmax(wide) |> Nx.as_type(v.type) |> Nx.dot([2], [0], v, [1], [0])
  end

  # What is put where, and what then reads it. `put` says of keys and values whether they are put.
  defp caches(row, k, v, position, [put_key?, put_value?]) do
    [_q, new_k, new_v] = split(row, Nx.axis_size(k, 0))

    for {cache, new, put?} <- [{k, new_k, put_key?}, {v, new_v, put_value?}],
        do: if(put?, do: Nx.put_slice(cache, [0, position, 0], new), else: cache)
  end

  def token(row, k, v, position, put) do
    [k, v] = caches(row, k, v, position, put)
    {attend(hd(split(row, Nx.axis_size(k, 0))), k, v, position), k, v}
  end

  # The same in two definitions.
  defp apart(put) do
    caches = compiled(&List.to_tuple(caches(&1, &2, &3, &4, put)))
    attend = compiled(&attend(hd(split(&1, Nx.axis_size(&2, 0))), &2, &3, &4))

    fn row, k, v, position ->
      {k, v} = caches.(row, k, v, position)
      {attend.(row, k, v, position), k, v}
    end
  end

  defp assert_same(results, expected) do
    for {result, expected} <- Enum.zip(Tuple.to_list(results), Tuple.to_list(expected)) do
      assert {result.type, result.shape, result.names} ==
               {expected.type, expected.shape, expected.names}

      assert Nx.to_binary(result) == Nx.to_binary(expected)
    end
  end

  # A call that has to build a kernel may run those before it twice.
  defp kernels_of(fun, args) do
    compiled = compiled(fun)
    apply(compiled, args)
    length(kernels(fn -> apply(compiled, args) end))
  end

  # Heads of whole vectors and others, and keys of one part and of several.
  @sizes [{3, 9, 8}, {2, 70, 5}, {4, 600, 64}]

  test "results and caches have the bits of operations one after the other" do
    for type <- [:f32, :f16, :bf16],
        {heads, keys, head} <- @sizes,
        put <- [[true, true], [true, false], [false, true]] do
      row = tensor({1, 3 * heads * head}, type)
      [k, v] = for _ <- 1..2, do: tensor({heads, keys, head}, type)
      fun = &token(&1, &2, &3, &4, put)
      [compiled, apart] = [compiled(fun), apart(put)]

      for {position, type} <-
            [{0, :s32}, {div(keys, 2), :u32}, {keys - 1, :s64}] ++
              [{keys + 3, :s32}, {-2, :s64}, {-1, :s8}] do
        position = Nx.tensor(position, type: type)
        expected = apart.(row, k, v, to_device(position))
        for _ <- 1..2, do: assert_same(compiled.(row, k, v, to_device(position)), expected)
        # A number of the host.
        assert_same(compiled.(row, k, v, position), expected)
      end

      # A number that the definition has.
      for position <- [0, keys - 1, keys],
          do:
            assert_same(
              compiled(&fun.(&1, &2, &3, position)).(row, k, v),
              apart.(row, k, v, Nx.tensor(position))
            )
    end
  end

  test "a token's row takes no kernel of its own" do
    for {heads, keys, head} <- @sizes do
      row = tensor({1, 3 * heads * head}, :f32)
      [k, v] = for _ <- 1..2, do: tensor({heads, keys, head}, :f32)
      args = [row, k, v, to_device(Nx.tensor(3))]
      attention = kernels_of(&attend(hd(split(&1, heads)), &2, &3, &4), args)

      for {put, copies} <- [{[true, true], 2}, {[true, false], 1}, {[false, true], 1}] do
        assert kernels_of(&token(&1, &2, &3, &4, put), args) == attention + copies
        # The caches need not be results.
        assert kernels_of(&elem(token(&1, &2, &3, &4, put), 0), args) == attention + copies
      end
    end
  end

  # Nx 0.13 has no donation.
  @tag :donation
  test "caches that are given away are updated where they are" do
    {heads, keys, head} = {3, 70, 8}
    row = tensor({1, 3 * heads * head}, :f32)
    [k, v] = for _ <- 1..2, do: tensor({heads, keys, head}, :f32)
    attend = &attend(hd(split(&1, heads)), &2, &3, &4)
    attention = kernels_of(attend, [row, k, v, to_device(Nx.tensor(3))])
    compiled = Nx.Vulkan.jit(&token(&1, &2, &3, &4, [true, true]))
    apart = apart([true, true])

    Enum.reduce(0..5, {k, v, k, v}, fn n, {k, v, expected_k, expected_v} ->
      position = to_device(Nx.tensor(n))
      given = for cache <- [k, v], do: Nx.donatable(Nx.backend_copy(cache, VulkanoBackend))
      args = [row] ++ given ++ [position]
      expected = {_, expected_k, expected_v} = apart.(row, expected_k, expected_v, position)
      parent = self()
      kernels = kernels(fn -> send(parent, apply(compiled, args)) end)
      assert_receive {_, k, v} = result
      assert_same(result, expected)
      # From the third time on it is a graph.
      if n > 2, do: assert(length(kernels) == attention)
      {k, v, expected_k, expected_v}
    end)
  end

  test "an error is no greater than that of numbers of the host" do
    for {heads, keys, head} <- @sizes, position <- [0, keys - 1] do
      args = [tensor({1, 3 * heads * head}, :f32)]

      args =
        args ++
          for(_ <- 1..2, do: tensor({heads, keys, head}, :f32)) ++
          [to_device(Nx.tensor(position))]

      exact = fn row, k, v, position ->
        [row, k, v] = for x <- [row, k, v], do: Nx.as_type(host(x), :f64)
        token(row, k, v, host(position), [true, true])
      end

      {result, k, v} = apply(compiled(&token(&1, &2, &3, &4, [true, true])), args)
      {exact_result, exact_k, exact_v} = apply(exact, args)
      error = Nx.reduce_max(Nx.abs(Nx.subtract(Nx.as_type(host(result), :f64), exact_result)))
      assert Nx.to_number(error) < 1.0e-6
      assert_same({host(k), host(v)}, {Nx.as_type(exact_k, :f32), Nx.as_type(exact_v, :f32)})
    end
  end

  # The kernels that combine parts of keys in a definition's third call, which is replayed; its results are `expected`.
  defp combining(fun, args, expected) do
    compiled = Nx.Defn.jit(fun, compiler: Compiler)
    for _ <- 1..3, do: assert_same(apply(compiled, args), expected)
    Enum.filter(kernels(fn -> apply(compiled, args) end), &(&1 =~ "combine attention"))
  end

  test "a product of a token's attention combines the parts of the keys" do
    for type <- [:f32, :bf16, :f16], {heads, keys, head} <- [{4, 700, 16}, {3, 300, 64}] do
      row = tensor({1, 3 * heads * head}, type)
      [k, v] = for _ <- 1..2, do: tensor({heads, keys, head}, type)
      [matrix, position] = [tensor({heads * head, 12}, type), to_device(Nx.tensor(keys - 2))]
      project = fn x, matrix -> x |> Nx.reshape({1, heads * head}) |> Nx.dot(matrix) end

      projected = fn row, k, v, position, matrix ->
        {out, k, v} = token(row, k, v, position, [true, true])
        {project.(out, matrix), k, v}
      end

      {out, new_k, new_v} = compiled(&token(&1, &2, &3, &4, [true, true])).(row, k, v, position)
      product = compiled(project).(out, matrix)
      args = [row, k, v, position, matrix]
      by_product = combining(projected, args, {product, new_k, new_v})

      # A result needs a kernel of its own.
      with_result = fn row, k, v, position, matrix ->
        {out, k, v} = token(row, k, v, position, [true, true])
        {out, project.(out, matrix), k, v}
      end

      alone = combining(with_result, args, {out, product, new_k, new_v})

      if System.get_env("NX_VULKAN_DISABLE") == "cpu" do
        assert ["combine attention, reduce" <> _] = by_product
        assert ["combine attention 1" <> _, "combine attention, reduce" <> _] = Enum.sort(alone)
      else
        assert Enum.all?(by_product, &String.starts_with?(&1, "combine attention, reduce"))
      end
    end
  end

  # Caches as {batch, keys, heads, head}; each head of keys is that of `times` heads of queries.
  defp grouped(q, k, v, cached_k, cached_v, position, times) do
    [k, v] =
      for {new, cache} <- [{k, cached_k}, {v, cached_v}],
          do: Nx.put_slice(cache, [0, position, 0, 0], new)

    {grouped_queries(q, k, v, times), k, v}
  end

  defp grouped_queries(q, k, v, times) do
    [k, v] =
      for x <- [k, v] do
        {batch, keys, heads, head} = x.shape
        x = Nx.broadcast(Nx.new_axis(x, 3), {batch, keys, heads, times, head})
        Nx.transpose(Nx.reshape(x, {batch, keys, heads * times, head}), axes: [0, 2, 1, 3])
      end

    q = Nx.transpose(q, axes: [0, 2, 1, 3])
    Nx.dot(softmax(Nx.dot(q, [3], [0, 1], k, [3], [0, 1])), [3], [0, 1], v, [2], [0, 1])
  end

  test "batches of grouped queries put each key and value once" do
    for {batch, keys, heads, times, head} <- [
          {2, 11, 2, 3, 8},
          {1, 70, 3, 2, 16},
          {3, 9, 2, 8, 4}
        ],
        position <- [0, 5, 99] do
      q = tensor({batch, 1, heads * times, head}, :f32)
      [k, v] = for _ <- 1..2, do: tensor({batch, 1, heads, head}, :f32)
      [cached_k, cached_v] = for _ <- 1..2, do: tensor({batch, keys, heads, head}, :f32)
      position = to_device(Nx.tensor(position))
      put = &Nx.put_slice(&1, [0, &3, 0, 0], &2)

      [put_k, put_v] =
        for {cache, new} <- [{cached_k, k}, {cached_v, v}],
            do: compiled(put).(cache, new, position)

      expected = {compiled(&grouped_queries(&1, &2, &3, times)).(q, put_k, put_v), put_k, put_v}
      args = [q, k, v, cached_k, cached_v, position]
      fun = &grouped(&1, &2, &3, &4, &5, &6, times)
      assert_same(apply(compiled(fun), args), expected)

      if Native.attention_pays(nil, {batch * heads, times, keys, head, head}, nil) == {:ok, true} do
        attention = kernels_of(&grouped_queries(&1, &2, &3, times), [q, cached_k, cached_v])
        assert kernels_of(fun, args) == attention + 2
      end
    end
  end

  defmodule Loop do
    @moduledoc "Tokens, each of which is made of the one before."

    import Nx.Defn

    defn decode(row, k, v, position) do
      {row, k, v, position, _last} =
        while {row, k, v, position, last = position + 7}, position < last do
          {out, k, v} = token(row, k, v, position)
          {next(row, out), k, v, position + 1, last}
        end

      {row, k, v, position}
    end

    defn next(row, out) do
      size = Nx.size(out)
      Nx.as_type(Nx.tanh(row * 0.5 + Nx.tile(Nx.reshape(out, {1, size}), [1, 3])), Nx.type(row))
    end

    deftransformp(token(row, k, v, position),
      do: Nx.Vulkan.AttentionUpdateTest.token(row, k, v, position, [true, true])
    )
  end

  test "a loop's caches are those of its tokens one by one" do
    for {type, {heads, keys, head}} <- [f32: {2, 600, 64}, bf16: {4, 1030, 64}] do
      row = tensor({1, 3 * heads * head}, type)
      [k, v] = for _ <- 1..2, do: tensor({heads, keys, head}, type)
      position = to_device(Nx.tensor(2))
      looped = compiled(&Loop.decode/4).(row, k, v, position)

      [apart, next] = [apart([true, true]), compiled(&Loop.next/2)]

      expected =
        Enum.reduce(1..7, {row, k, v, position}, fn _, {row, k, v, position} ->
          {out, k, v} = apart.(row, k, v, position)
          {next.(row, out), k, v, to_device(Nx.add(host(position), 1))}
        end)

      assert_same(looped, expected)
    end
  end

  test "what others read, too, is put by itself" do
    {heads, keys, head} = {2, 12, 8}
    row = tensor({1, 3 * heads * head}, :f32)
    [k, v] = for _ <- 1..2, do: tensor({heads, keys, head}, :f32)
    args = [row, k, v, to_device(Nx.tensor(5))]

    several = fn row, k, v, position ->
      [k, v] = caches(row, k, v, position, [true, true])
      q = hd(split(row, heads))
      first = attend(q, k, v, position)
      {attend(Nx.add(q, first), k, v, position), k, v}
    end

    query = fn row, k, v, position ->
      q = hd(split(row, heads))
      attend(Nx.add(q, attend(q, k, v, position)), k, v, position)
    end

    {put_k, put_v} = apply(compiled(&List.to_tuple(caches(&1, &2, &3, &4, [true, true]))), args)
    expected = compiled(query).(row, put_k, put_v, List.last(args))
    assert_same(apply(compiled(several), args), {expected, put_k, put_v})

    # The same cache for keys and values, and a query that is made of a cache.
    same = fn row, k, position ->
      [_q, new, _] = split(row, heads)
      k = Nx.put_slice(k, [0, position, 0], new)
      {attend(Nx.add(k[[.., 0..0]], 1), k, k, position), k}
    end

    put_k = compiled(&hd(caches(&1, &2, &2, &3, [true, false]))).(row, k, List.last(args))
    expected = compiled(&attend(Nx.add(&1[[.., 0..0]], 1), &1, &1, &2)).(put_k, List.last(args))
    assert_same(compiled(same).(row, k, List.last(args)), {expected, put_k})
  end

  test "more than one position, and updates of a part of the heads, are put by themselves" do
    {heads, keys, head} = {3, 12, 8}
    [q, k, v] = for n <- [1, keys, keys], do: tensor({heads, n, head}, :f32)
    position = to_device(Nx.tensor(4))

    for shape <- [{heads, 2, head}, {2, 1, head}, {heads, 1, 4}] do
      new = tensor(shape, :f32)
      put = &Nx.put_slice(&1, [1, &3, 2], &2)
      fun = &attend(&1, put.(&2, &4, &5), &3, &5)
      put_k = compiled(put).(k, new, position)
      expected = compiled(&attend(&1, &2, &3, &4)).(q, put_k, v, position)
      assert_same({compiled(fun).(q, k, v, new, position)}, {expected})
    end
  end

  test "a row that is computed, of another type or a view of the cache" do
    {heads, keys, head} = {2, 30, 8}
    [q, k, v] = for n <- [1, keys, keys], do: tensor({heads, n, head}, :f32)
    new = tensor({heads, 1, head}, :f32)
    position = to_device(Nx.tensor(4))

    for row <- [
          fn _k, new -> Nx.add(new, 1) end,
          fn _k, new -> Nx.multiply(new, 3) end,
          fn _k, new -> Nx.as_type(Nx.as_type(new, :bf16), :f32) end,
          fn _k, new -> Nx.as_type(Nx.multiply(new, 100), :s32) end,
          fn k, _new -> k[[.., 7..7]] end,
          fn _k, new -> Nx.reverse(new, axes: [2]) end
        ] do
      put = &Nx.put_slice(&1, [0, &3, 0], row.(&1, &2))

      fun = fn q, k, v, new, position ->
        k = put.(k, new, position)
        {attend(q, k, v, position), k}
      end

      put_k = compiled(put).(k, new, position)
      expected = compiled(&attend(&1, &2, &3, &4)).(q, put_k, v, position)
      compiled = compiled(fun)
      for _ <- 1..3, do: assert_same(compiled.(q, k, v, new, position), {expected, put_k})
    end
  end
end
