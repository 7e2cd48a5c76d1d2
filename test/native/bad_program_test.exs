Code.require_file("support/native_case.exs", __DIR__)

defmodule Nx.Vulkan.BadProgramTest do
  @moduledoc """
  No program, view or product that Elixir can pass takes the BEAM down: each call gives an error tuple, or
  an ArgumentError that names the argument, and the next valid call works.
  """

  use Nx.Vulkan.Test.NativeCase, async: true

  @moduletag timeout: 1_800_000

  setup do
    %{a: upload!([1.0, 2.0, 3.0, 4.0])}
  end

  @f32 {:f, 32}

  test "row programs that make no sense", %{a: a} do
    input = {a, @f32, {2, 2}}
    max = {:reduce_max, @f32, [0], [1]}
    less = {:subtract, @f32, [0, 1]}
    rows = fn nodes -> Native.call(run_rows(nodes, [input], {2, 2})) end
    # A driver may be unable to build kernels of several loops: row_group_test.exs says which.
    unsupported? = &match?({:error, :unsupported, _}, &1)
    right = rows.({[max, less], 1, [{1, false}, {2, true}]})
    assert match?({:ok, {_, _}}, right) or unsupported?.(right)

    for nodes <- [
          :rows,
          {[max, less], 1},
          {[], 1, [{0, true}]},
          {[max, less], 0, [{2, true}]},
          {[max, less], 3, [{2, true}]},
          {[max, less], -1, [{2, true}]},
          {[max, less], 2 ** 70, [{2, true}]},
          {[max, less], 1, []},
          {[max, less], 1, [2]},
          {[max, less], 1, [{2, :all}]},
          {[max, less], 1, [{2, false}]},
          {[max, less], 1, [{1, true}]},
          {[max, less], 1, [{0, true}]},
          {[max, less], 1, [{3, true}]},
          {[max, less], 1, List.duplicate({2, true}, 9)},
          {[max, less], 1, :all},
          {[{:reduce_max, @f32, [0], [0]}, less], 1, [{2, true}]},
          {[{:reduce_max, @f32, [0], [0, 1]}, less], 1, [{2, true}]},
          {[{:argmax, @f32, [0], {nil, :low}}, less], 1, [{2, true}]},
          {[{:accumulator, @f32, [0]}, {:fold, @f32, [1, 0], [1]}], 1, [{2, false}]},
          {[{:subtract, @f32, [0, 1]}], 1, [{1, true}]}
        ] do
      assert_refused(fn -> rows.(nodes) end, nodes)
    end

    short = Native.call(run_rows({[max, less], 1, [{2, true}]}, [{a, @f32, {3, 3}}], {3, 3}))
    assert short == {:error, :size_mismatch} or unsupported?.(short)
  end

  test "programs of several sums that make no sense", %{a: a} do
    input = {a, @f32, {2, 2}}
    sum = {:sum, @f32, [0], [0]}
    sums = fn nodes -> Native.call(run_sums(nodes, [input], {2, 2})) end
    assert {:ok, {_, _}} = sums.({[sum, sum], 2})

    for nodes <- [
          :sums,
          [sum],
          {[sum, sum], 1},
          {[sum, sum], 3},
          {[sum], 0},
          {[sum], -1},
          {[sum], 2 ** 70},
          {[sum, sum], :all},
          {List.duplicate(sum, 5), 5},
          {[], 1},
          {[{:negate, @f32, [0]}], 1},
          {[sum, {:sum, @f32, [0], [1]}], 2},
          {[sum, {:sum, @f32, [1], [0]}], 2},
          {[sum, {:sum, {:s, 32}, [0], [0]}], 2},
          {[sum, {:reduce_max, @f32, [0], [0]}], 2},
          {[{:accumulator, @f32, [0]}, {:fold, @f32, [1, 0], [0]}], 1}
        ] do
      assert_refused(fn -> sums.(nodes) end, nodes)
    end

    assert {:error, :size_mismatch} =
             Native.call(run_sums({[sum, sum], 2}, [{a, @f32, {3, 3}}], {3, 3}))
  end

  test "programs that make no sense", %{a: a} do
    input = {a, @f32, {4}}
    add = {:add, @f32, [0, 0]}

    for {nodes, inputs, shape} <- [
          {[], [input], {4}},
          {:add, [input], {4}},
          {[add], input, {4}},
          {[add], [input], [4]},
          {[add], [input], {-4}},
          {[add], [input], {2 ** 64}},
          {[add], [input], {2 ** 40, 2 ** 40}},
          {[add], [input], {3}},
          {[add], [input], {1.0}},
          {[{:no_such_op, @f32, [0]}], [input], {4}},
          {[{"add", @f32, [0, 0]}], [input], {4}},
          {[{:add, @f32, [0]}], [input], {4}},
          {[{:add, @f32, [0, 0, 0]}], [input], {4}},
          {[{:add, @f32, [0, 1]}], [input], {4}},
          {[{:add, @f32, [0, -1]}], [input], {4}},
          {[{:add, @f32, [0, 2 ** 70]}], [input], {4}},
          {[{:add, @f32, 0}], [input], {4}},
          {[{:add, :f32, [0, 0]}], [input], {4}},
          {[{:add, {:f, 32.0}, [0, 0]}], [input], {4}},
          {[{:add, @f32}], [input], {4}},
          {[{:add, @f32, [0, 0], nil, nil}], [input], {4}},
          {[{:sum, @f32, [0], [0]}, {:negate, @f32, [1]}], [input], {4}},
          {[{:sum, @f32, [0], [1]}], [input], {4}},
          {[{:sum, @f32, [0], [0, 0]}], [input], {4}},
          {[{:sum, @f32, [0], [-1]}], [input], {4}},
          {[{:sum, @f32, [0], 0}], [input], {4}},
          {[{:sum, @f32, [0]}], [input], {4}},
          {[{:argmax, {:s, 32}, [0], {1, :low}}], [input], {4}},
          {[{:argmax, {:s, 32}, [0], {0, :middle}}], [input], {4}},
          {[{:argmax, {:s, 32}, [0], 0}], [input], {4}},
          {[{:fold, @f32, [], [0]}], [input], {4}},
          {[{:accumulator, @f32, [0]}, {:fold, @f32, [1], [0]}], [input], {4}},
          {[{:iota, @f32, [], 1}], [], {4}},
          {[{:eye, @f32, []}], [], {4}},
          {[{:bitcast, {:f, 64}, [0]}], [input], {4}},
          {[{:bitwise_and, @f32, [0, 0]}], [input], {4}},
          {[{:conjugate, @f32, [0]}], [input], {4}},
          {[add], [{a, @f32}], {4}},
          {[add], [{make_ref(), @f32, {4}}], {4}},
          {[add], [{a, @f32, {5}}], {5}},
          {[add], [{a, @f32, {2}}], {4}},
          {[add], [{a, {:f, 64}, {4}}], {4}},
          {[add], [{:scalar, @f32, <<1>>}], {4}},
          {[add], [{:scalar, @f32, 1.0}], {4}},
          {[add], [{a, @f32, 1, [1]}], {4}},
          {[add], [{a, @f32, -1, [1]}], {4}},
          {[add], [{a, @f32, 0, [-1]}], {4}},
          {[add], [{a, @f32, 0, [2]}], {4}},
          {[add], [{a, @f32, 0, []}], {4}},
          {[add], [{a, @f32, 0, [1, 1]}], {4}},
          {[add], [{a, @f32, 2 ** 62, [2 ** 62]}], {4}},
          {[add], [{a, @f32, 0, [2 ** 80]}], {4}},
          {[add], [{a, @f32, 0, {1}}], {4}}
        ] do
      assert_refused(fn -> Native.call(run(nodes, inputs, shape)) end, {nodes, inputs, shape})
    end

    zero = <<0::32>>

    for padding <- [
          :padding,
          {zero, :axes},
          {0, [{-1, 4, 1, [1]}]},
          {<<0>>, [{-1, 4, 1, [1]}]},
          {zero, [{-1, 4, 1}]},
          {zero, [{-1, -4, 1, [1]}]},
          {zero, [{-1, 4, 1, []}]},
          {zero, [{-1, 4, 1, [1, 1]}]},
          {zero, [{-1, 5, 1, [1]}]},
          {zero, [{-1, 4, -1, [1]}]},
          {zero, [{-1, 4, 2, [1]}]},
          {zero, [{2 ** 62, 4, 1, [1]}]},
          {zero, [{0, 1, 2 ** 40, [2 ** 40]}]},
          {zero, [{-1, 4, 1, [2 ** 80]}]}
        ] do
      padded = {a, @f32, 0, [0], padding}
      assert_refused(fn -> Native.call(run([add], [padded], {4})) end, padding)
    end

    padded = {a, @f32, 0, [0], {zero, [{-1, 4, 1, [1]}]}}
    assert {:ok, _ref} = Native.call(run([add], [padded], {4}))
    rows = {[{:reduce_max, @f32, [0], [1]}, {:subtract, @f32, [0, 1]}], 1, [{2, true}]}
    row = {a, @f32, 0, [2, 0], {zero, [{-1, 2, 1, [0, 1]}]}}
    assert {:error, :unsupported, _} = Native.call(run_rows(rows, [row], {2, 2}))
    gather = {:gather, @f32, [0, 1], [{4, 1}]}
    index = {:scalar, {:u, 32}, zero}
    assert_refused(fn -> Native.call(run([gather], [padded, index], {4})) end, gather)

    assert_works()
  end

  test "programs of types that there are not", %{a: a} do
    for type <- [{:u, 3}, {:f, 128}, {:c, 32}, {:x, 32}, {:f8_e4m3fn, 16}, {:bf, 8}] do
      nodes = [{:add, type, [0, 0]}]
      call = fn -> Native.call(run(nodes, [{a, @f32, {2}}], {2})) end
      assert_refused(call, {nodes, type})
    end
  end

  test "products of rows that make no sense", %{a: a} do
    nodes = [{:reduce_max, @f32, [0], [1]}, {:subtract, @f32, [0, 1]}]
    [row, inputs] = [{nodes, 1, [{2, true}]}, [{a, @f32, {1, 4}}]]
    data = {a, @f32, 0}
    axes = fn k -> {[], [], [{2, 0, 1, 1}], [{k, 1, 2, 0}], []} end

    if Nx.Vulkan.Test.Case.builds_loops?() do
      assert {:ok, _} = Native.call(contract(@f32, {row, inputs, {1, 4}}, data, axes.(2)))
    end

    for {a, b, axes} <- [
          # Two rows, a row of too few elements, and of none.
          {{row, [{a, @f32, {2, 2}}], {2, 2}}, data, axes.(2)},
          {{{nodes, 1, [{2, true}]}, [{a, @f32, {1, 1}}], {1, 1}}, data, axes.(2)},
          {{row, [], {1, 4}}, data, axes.(2)},
          # More results than a row, and one that is none.
          {{{nodes, 1, [{2, true}, {2, true}]}, inputs, {1, 4}}, data, axes.(2)},
          {{{nodes, 1, [{1, false}]}, inputs, {1, 4}}, data, axes.(2)},
          {{{nodes, 1, []}, inputs, {1, 4}}, data, axes.(2)},
          {{{nodes, 1, [{7, true}]}, inputs, {1, 4}}, data, axes.(2)},
          {{row, inputs, {1, 4}}, {row, inputs, {1, 4}}, axes.(2)},
          {{row, inputs, {1, 4}}, data, axes.(8)},
          {{row, [{a, @f32, {1, 400}}], {1, 400}}, data, axes.(2)},
          {{{nodes, 1}, inputs, {1, 4}}, data, axes.(2)},
          {{row, :inputs, {1, 4}}, data, axes.(2)},
          {{row, inputs, :shape}, data, axes.(2)}
        ],
        Nx.Vulkan.Test.Case.builds_loops?() do
      assert_refused(fn -> Native.call(contract(@f32, a, b, axes)) end, {a, b, axes})
    end

    assert_works()
  end

  test "views that leave their buffers, or make no sense", %{a: a} do
    data = {a, @f32, 0}
    row = fn axis -> {[], [axis], [{2, 0, 1, 1}], [{2, 1, 2, 0}], []} end

    padded = fn column, depth, padding ->
      {[], [{2, 1, 0, 2}], [column], [depth], [padding]}
    end

    copy = [{:as_type, @f32, [0]}]

    part = fn inputs, offset, strides, starts ->
      [{copy, inputs, {2}, offset, strides, starts}]
    end

    [input, one] = [{a, @f32, {2}}, {a, {:s, 32}, {}}]

    # Two queries, and keys and values that are such strides apart from `first` on.
    attention = fn first, keys, values ->
      axes =
        {[], [{2, 2, 0, 0, 2}], {2, 1, 1, 0, 0}, {2, 0, keys, values, 0}, {2, 0, 0, 1, 1}}

      from = {a, @f32, first}
      Native.call(attention(@f32, {data, from, from}, axes, {nil, nil}, {nil, nil}))
    end

    assert {:ok, _} = attention.(0, 2, 2)
    # No keys, and heads of no elements and of more than kernels take.
    for sizes <- [{2, 4, 0, 8, 8}, {2, 4, 4, 0, 8}, {2, 4, 4, 8, 2 ** 40}],
        do: assert({:ok, false} == Native.call(attention_pays(nil, sizes, nil)))

    assert {:ok, _} = Native.call(contract(@f32, data, data, row.({2, 2, 0, 2})))
    {column, depth} = {{2, 0, 1, 1, 0, 1}, {2, 2, 1, 0, 0, 1}}

    assert {:ok, _} =
             Native.call(contract(@f32, data, data, padded.(column, depth, {-1, 4, 1})))

    assert {:ok, _} = Native.call(assemble(@f32, {4}, part.([input, one], 0, [1], [{1, 3, 1}])))

    for call <- [
          fn -> Native.call(contract(@f32, {a, @f32, 1}, data, row.({2, 2, 0, 2}))) end,
          fn -> Native.call(contract(@f32, {a, @f32, -1}, data, row.({2, 2, 0, 2}))) end,
          fn -> attention.(1, 2, 2) end,
          fn -> attention.(1, -2, 0) end,
          fn -> Native.call(contract(@f32, {a, @f32, 1}, data, row.({2, -2, 0, 2}))) end,
          fn -> Native.call(contract(@f32, data, data, row.({2, 2, 0, 3}))) end,
          fn -> Native.call(contract(@f32, data, data, row.({2, 2, 1, 2}))) end,
          fn -> Native.call(contract(@f32, data, data, row.({2 ** 62, 0, 0, 2}))) end,
          fn -> Native.call(contract(@f32, data, data, {[], [], []})) end,
          fn -> Native.call(contract(@f32, data, data, padded.(column, depth, {-1, 5, 1}))) end,
          fn -> Native.call(contract(@f32, data, data, padded.(column, depth, {-1, 4, 2}))) end,
          fn -> Native.call(contract(@f32, data, data, padded.(column, depth, {-1, 4}))) end,
          fn ->
            Native.call(contract(@f32, data, data, padded.(column, depth, {2 ** 48, 4, 1})))
          end,
          fn ->
            depth = put_elem(depth, 1, 3)
            Native.call(contract(@f32, data, data, padded.(column, depth, {-1, 4, 1})))
          end,
          fn ->
            depth = put_elem(depth, 4, 1)
            Native.call(contract(@f32, data, data, padded.(column, depth, {-1, 4, 1})))
          end,
          fn ->
            depth = {2, 2, 1, 0}
            Native.call(contract(@f32, data, data, padded.(column, depth, {-1, 4, 1})))
          end,
          fn -> Native.call(assemble(@f32, {4}, part.([input], 3, [1], []))) end,
          fn -> Native.call(assemble(@f32, {4}, part.([input], 0, [1, 1], []))) end,
          fn -> Native.call(assemble(@f32, {4}, part.([input, one], 0, [1], [{1, 4, 1}]))) end,
          fn -> Native.call(assemble(@f32, {4}, part.([input, one], 0, [1], [{1, 0, 1}]))) end,
          fn -> Native.call(assemble(@f32, {4}, part.([input], 0, [1], [{1, 2, 1}]))) end,
          fn ->
            Native.call(assemble(@f32, {4}, part.([input, input], 0, [1], [{1, 2, 1}])))
          end,
          fn -> Native.call(assemble(@f32, {4}, part.([], 0, [1], []))) end,
          fn -> Native.call(assemble(@f32, {2 ** 62, 4}, [])) end,
          fn -> scatter(a, {5}, [1], [{0, 0}]) end,
          fn -> scatter(a, {2}, [0], [{0, 0}]) end,
          fn -> scatter(a, {2, 2}, [1], [{0, 0}]) end,
          fn -> scatter(a, {2}, [1], [{9, 0}]) end,
          fn -> scatter(a, {2}, [1], [{2 ** 62, 2 ** 62}]) end
        ] do
      assert_refused(call, call)
    end
  end

  test "operands in reverse are read as they are, also where vectors are loaded" do
    numbers = fn count -> for _ <- 1..count, do: :rand.uniform(9) - 5.0 end

    [x, y] =
      for {rows, columns} <- [{12, 8}, {8, 16}], do: for(_ <- 1..rows, do: numbers.(columns))

    [a, b] = Enum.map([x, y], &uploaded/1)
    axes = {[], [{12, -8, 0, 16}], [{16, 0, 1, 1}], [{8, 1, 16, 0}], []}
    {:ok, ref} = Native.call(contract(@f32, {a, @f32, 88}, {b, @f32, 0}, axes))
    columns = Enum.zip_with(y, & &1)

    assert read(ref) ==
             for(
               row <- Enum.reverse(x),
               column <- columns,
               do: Enum.sum(Enum.zip_with(row, column, &*/2))
             )

    # Three batches of a query, and four keys and values of the first or the last batch first.
    attention = fn ref, first, batch ->
      axes =
        {[{3, 8, batch, batch, 8}], [{1, 0, 0, 0, 8}], {8, 1, 1, 0, 0}, {4, 0, 8, 8, 0},
         {8, 0, 0, 1, 1}}

      from = {ref, @f32, first}
      operands = {{a, @f32, 0}, from, from}
      {:ok, {ref}} = Native.call(attention(@f32, operands, axes, {nil, nil}, {nil, nil}))
      read(ref)
    end

    reversed = x |> Enum.chunk_every(4) |> Enum.reverse() |> Enum.concat() |> uploaded()
    assert attention.(a, 64, -32) == attention.(reversed, 0, 32)
  end

  defp uploaded(rows) do
    {:ok, ref} = Native.call(buf_upload(floats(Enum.concat(rows))))
    ref
  end

  defp read(ref) do
    {:ok, binary} = Native.call(buf_download(ref))
    list(binary)
  end

  defp scatter(a, window, strides, padding) do
    tensor = {a, @f32, {4}}

    Native.call(
      window_scatter(
        :window_scatter_max,
        @f32,
        tensor,
        tensor,
        {a, @f32, {}},
        window,
        strides,
        padding
      )
    )
  end

  test "dots that make no sense", %{a: a} do
    x = {a, @f32, {2, 2}}

    for {left, c1, b1, right, c2, b2} <- [
          {x, [2], [], x, [0], []},
          {x, [1], [], x, [], []},
          {x, [-1], [], x, [0], []},
          {x, [1, 1], [], x, [0, 0], []},
          {x, [0], [0], x, [0], [0]},
          {x, [1], [], {a, @f32, {4}}, [0], []},
          {x, [1], [], {a, @f32, {3, 2}}, [0], []},
          {x, [1], [], {a, @f32, {8, 2}}, [0], []},
          {x, 1, [], x, [0], []},
          {{make_ref(), @f32, {2, 2}}, [1], [], x, [0], []},
          {{a, @f32}, [1], [], x, [0], []},
          {{:scalar, @f32, <<0::32>>}, [], [], x, [], []}
        ] do
      assert_refused(
        fn -> Native.call(dot(@f32, left, c1, b1, right, c2, b2)) end,
        {left, c1, b1, right, c2, b2}
      )
    end

    assert_works()
  end

  test "programs of random terms", %{a: a} do
    :rand.seed(:exsss, {ExUnit.configuration()[:seed], 0, 0})

    for _ <- 1..500 do
      arguments = [term(a, 3), term(a, 3), term(a, 2), nil]

      try do
        apply(Native, :run_dirty, arguments)
      rescue
        ArgumentError -> :ok
      else
        {:ok, ref} -> assert is_reference(ref), inspect(arguments)
        error -> assert elem(error, 0) == :error, inspect(arguments)
      end
    end

    assert_works()
  end

  defp assert_refused(fun, context) do
    case fun.() do
      {:error, reason} -> assert is_atom(reason)
      {:error, reason, message} -> assert is_atom(reason) and is_binary(message)
      other -> flunk("#{inspect(context)} gave #{inspect(other)}")
    end
  rescue
    error in ArgumentError -> assert error.message =~ ~r/^\w+: /, inspect({context, error})
  end

  # Anything, often with the parts of a real program in it. Shapes stay small: this is not about memory.
  defp term(a, depth) do
    leaf = fn ->
      Enum.random(
        [a, make_ref(), :add, :sum, :iota, :as_type, :select, :scalar, :f, nil] ++
          [
            {:f, 32},
            {:s, 64},
            {:u, 8},
            0,
            1,
            2,
            -1,
            4,
            1.5,
            "abcd",
            <<0::32>>,
            [0],
            [0, 1],
            {4},
            {2, 2},
            {}
          ]
      )
    end

    case :rand.uniform(4) do
      _ when depth == 0 -> leaf.()
      1 -> leaf.()
      2 -> for _ <- 1..:rand.uniform(4)//1, do: term(a, depth - 1)
      3 -> List.to_tuple(for _ <- 1..:rand.uniform(4)//1, do: term(a, depth - 1))
      4 -> [{Enum.random([:add, :negate, :sum, :iota]), {:f, 32}, [0], term(a, 1)}]
    end
  end
end
