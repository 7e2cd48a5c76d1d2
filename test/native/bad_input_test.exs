Code.require_file("support/native_case.exs", __DIR__)

defmodule Nx.Vulkan.BadInputTest do
  @moduledoc """
  Nothing that Elixir can pass takes the BEAM down: each call gives an error tuple, or an
  ArgumentError that names the argument, and the next valid call works.
  """

  use Nx.Vulkan.Test.NativeCase, async: true

  @moduletag timeout: 1_800_000

  setup do
    %{a: upload!([1.0, 2.0, 3.0, 4.0]), out: alloc!(4), path: spv("elementwise_binary")}
  end

  # What is never a buffer, a size or a path. A reference from elsewhere is no buffer.
  @no_buffer [:atom, 1, "binary", nil, {}, [1]]
  @no_size [-1, -(2 ** 63), 2 ** 64, 1.0, "1", :atom, nil]
  @no_path [1, :atom, nil, {}, <<255, 254>>]

  describe "an argument of the wrong kind" do
    test "is named, whichever call it is" do
      a = upload!([1.0, 2.0, 3.0, 4.0])
      path = spv("elementwise_binary")
      not_buffers = [make_ref() | @no_buffer]

      calls = [
        {:buf_alloc, [{"n_bytes", 4, @no_size}]},
        {:buf_upload, [{"data", "1234", [1, :atom, nil, [1, 2], <<1::3>>]}]},
        {:buf_upload_into,
         [{"ref", a, not_buffers}, {"data", <<0::128>>, [1, :atom, nil, <<1::3>>]}]},
        {:buf_download, [{"ref", a, not_buffers}]},
        {:buf_byte_size, [{"ref", a, not_buffers}]},
        {:apply_binary,
         [
           {"out", a, not_buffers},
           {"a", a, not_buffers},
           {"b", a, not_buffers},
           {"n", 4, @no_size},
           {"op_code", 0, [1.0, "0", nil]},
           {"spv_path", path, @no_path}
         ]},
        {:apply_unary,
         [
           {"out", a, not_buffers},
           {"a", a, not_buffers},
           {"n", 4, @no_size},
           {"op_code", 0, [1.0, "0", nil]},
           {"spv_path", path, @no_path}
         ]},
        {:reduce_axis,
         [
           {"out", a, not_buffers},
           {"a", a, not_buffers},
           {"outer", 1, @no_size},
           {"reduce_size", 4, @no_size},
           {"inner", 1, @no_size},
           {"op_code", 0, [1.0, "0", nil]},
           {"spv_path", path, @no_path}
         ]},
        {:matmul,
         [
           {"out", a, not_buffers},
           {"a", a, not_buffers},
           {"b", a, not_buffers},
           {"m", 2, @no_size},
           {"n", 2, @no_size},
           {"k", 2, @no_size},
           {"spv_path", path, @no_path}
         ]},
        {:transpose_2d,
         [
           {"out", a, not_buffers},
           {"a", a, not_buffers},
           {"m", 2, @no_size},
           {"n", 2, @no_size},
           {"spv_path", path, @no_path}
         ]},
        {:leapfrog_chain_synth,
         [
           {"q_init", <<>>, [1, nil]},
           {"p_init", <<>>, [1, nil]},
           {"extras", <<>>, [1, nil]},
           {"push", <<>>, [1, nil]},
           {"k", 1, @no_size},
           {"spv_path", path, @no_path}
         ]}
      ]

      for {call, arguments} <- calls, {{name, _, wrong}, i} <- Enum.with_index(arguments) do
        for value <- wrong do
          arguments = arguments |> Enum.map(&elem(&1, 1)) |> List.replace_at(i, value)
          error = assert_raise ArgumentError, fn -> apply(NativeV, call, arguments) end

          assert error.message =~ name,
                 "#{call}, #{name} = #{inspect(value)}: #{inspect(error.message)}"
        end

        assert_works()
      end
    end
  end

  describe "sizes that do not fit" do
    test "are size mismatches", %{a: a, out: out, path: path} do
      unary = spv("elementwise_unary")
      reduce = spv("reduce_axis")
      small = alloc!(1)
      huge = 2 ** 62

      for result <- [
            NativeV.apply_binary(out, a, a, 5, 0, path),
            NativeV.apply_binary(small, a, a, 4, 0, path),
            NativeV.apply_binary(out, small, a, 4, 0, path),
            NativeV.apply_binary(out, a, small, 4, 0, path),
            NativeV.apply_binary(out, a, a, huge, 0, path),
            NativeV.apply_unary(out, a, 5, 0, unary),
            NativeV.apply_unary(out, a, huge, 0, unary),
            NativeV.reduce_axis(out, a, 1, 5, 1, 0, reduce),
            NativeV.reduce_axis(small, a, 2, 1, 2, 0, reduce),
            NativeV.reduce_axis(out, a, huge, huge, huge, 0, reduce),
            NativeV.reduce_axis(out, a, 2 ** 32, 2 ** 32, 1, 0, reduce),
            NativeV.matmul(out, a, a, 2, 2, 3, spv("matmul")),
            NativeV.matmul(small, a, a, 2, 2, 2, spv("matmul")),
            NativeV.matmul(out, a, a, huge, huge, huge, spv("matmul")),
            NativeV.transpose_2d(out, a, 2, 3, spv("transpose")),
            NativeV.transpose_2d(out, a, 2 ** 33, 2 ** 33, spv("transpose"))
          ] do
        assert result == {:error, :size_mismatch}
      end

      # A shader of doubles needs buffers twice as large.
      path = spv("elementwise_binary", 64)
      assert NativeV.apply_binary(out, a, a, 4, 0, path) == {:error, :size_mismatch}
      assert_works()
    end

    test "more memory than there is", %{} do
      for n <- [2 ** 40, 2 ** 62, 2 ** 63 - 1] do
        assert {:error, :out_of_memory, message} = NativeV.buf_alloc(n)
        assert is_binary(message)
      end

      assert_works()
    end
  end

  test "an op code that is none", %{a: a, out: out} do
    for op <- [-1, 7, 15, 255, 2 ** 31, -(2 ** 31)] do
      assert NativeV.apply_binary(out, a, a, 4, op, spv("elementwise_binary")) ==
               {:error, :bad_op}

      assert NativeV.reduce_axis(out, a, 1, 4, 1, op, spv("reduce_axis")) == {:error, :bad_op}

      if op != 7,
        do:
          assert(
            NativeV.apply_unary(out, a, 4, op, spv("elementwise_unary")) == {:error, :bad_op}
          )
    end

    assert_works()
  end

  describe "a file that is no such shader" do
    test "is missing, a folder, text, or empty", %{a: a, out: out} do
      for path <- [
            "/nowhere/at/all.spv",
            System.tmp_dir!(),
            "",
            "with\0zero",
            temporary_file("text.spv", "This is no SPIR-V, but long enough to hold a header."),
            temporary_file("empty.spv", ""),
            temporary_file("header.spv", binary_part(spirv(:compute), 0, 20))
          ] do
        assert_all_fail(out, a, path)
      end
    end

    test "is cut off anywhere", %{a: a, out: out, path: path} do
      module = File.read!(path)

      for at <- 1..20 do
        length = div(byte_size(module) * at, 21)
        path = temporary_file("cut.spv", binary_part(module, 0, length))
        assert {:error, :dispatch_failed, message} = NativeV.apply_binary(out, a, a, 4, 0, path)
        assert is_binary(message)
      end

      assert_works()
    end

    test "has another byte order, another version, or another id bound", %{a: a, out: out} do
      <<magic::32-native, version::32-native, generator::32-native, bound::32-native,
        rest::binary>> =
        spirv(:compute, [{0, 0}, {0, 1}, {0, 2}])

      for header <- [
            <<magic + 1::32-native, version::32-native, generator::32-native, bound::32-native>>,
            <<magic::32-native, 0x00FF0000::32-native, generator::32-native, bound::32-native>>,
            <<magic::32-native, version::32-native, generator::32-native, 2::32-native>>,
            <<magic::32-native, version::32-native, generator::32-native, 0xFFFFFFFF::32-native>>
          ] do
        assert_all_fail(out, a, temporary_file("header.spv", header <> rest))
      end
    end

    test "has a graphics entry point, or no entry point", %{a: a, out: out} do
      assert_all_fail(out, a, temporary_file("vertex.spv", spirv(:vertex)))
    end

    test "has other bindings", %{a: a, out: out} do
      for bindings <- [[{0, 0}, {0, 9}], [{1, 0}, {1, 1}, {1, 2}], for(i <- 0..9, do: {0, i})] do
        assert_all_fail(out, a, temporary_file("bindings.spv", spirv(:compute, bindings)))
      end

      assert_all_fail(out, a, spv("leapfrog_regime"))
    end
  end

  test "a module made by hand with the right bindings runs", %{a: a, out: out} do
    path = temporary_file("nothing.spv", spirv(:compute, [{0, 0}, {0, 1}, {0, 2}]))
    assert NativeV.apply_binary(out, a, a, 4, 0, path) == :ok
    assert download!(out) == [0.0, 0.0, 0.0, 0.0]
  end

  test "deallocated buffers", %{a: a, out: out, path: path} do
    freed = upload!([1.0, 2.0, 3.0, 4.0])
    :ok = Native.buf_free(freed)
    assert {:error, :deallocated, _} = NativeV.apply_binary(freed, a, a, 4, 0, path)
    assert {:error, :deallocated, _} = NativeV.apply_binary(out, freed, a, 4, 0, path)
    assert {:error, :deallocated, _} = NativeV.apply_binary(out, a, freed, 4, 0, path)

    assert {:error, :deallocated, _} =
             Native.call(run([{:negate, {:f, 32}, [0]}], [{freed, {:f, 32}, {4}}], {4}))

    assert_works()
  end

  describe "leapfrog_chain_synth" do
    test "refuses what is no chain" do
      path = spv("leapfrog_regime")
      q = floats(List.duplicate(0.5, 8))
      extras = floats([0.1, 0.2] ++ List.duplicate(1.0, 8))

      push = fn k, n_obs, d ->
        <<k::32-little, n_obs::32-little, d::32-little, 0::32, 0.1::float-32-little>>
      end

      assert {:ok, _} = NativeV.leapfrog_chain_synth(q, q, extras, push.(3, 2, 8), 3, path)

      for {q, p, extras, push, k} <- [
            {q, q, extras, push.(0, 2, 8), 0},
            {q, q, extras, push.(3, 2, 0), 3},
            {"", "", extras, push.(3, 2, 0), 3},
            {q, q, extras, push.(3, 2, 257), 3},
            {floats(List.duplicate(0.1, 257)), floats(List.duplicate(0.1, 257)),
             floats(List.duplicate(1.0, 259)), push.(3, 2, 257), 3},
            {q, q, extras, push.(4, 2, 8), 3},
            {q, q, extras, push.(3, 3, 8), 3},
            {q, q, extras, push.(3, 0xFFFFFFFF, 8), 3},
            {binary_part(q, 0, 28), q, extras, push.(3, 2, 8), 3},
            {q, q <> <<0>>, extras, push.(3, 2, 8), 3},
            {q, q, binary_part(extras, 0, 36), push.(3, 2, 8), 3},
            {q, q, extras, binary_part(push.(3, 2, 8), 0, 19), 3},
            {q, q, extras, push.(3, 2, 8) <> <<0>>, 3},
            {q, q, extras, push.(3, 2, 8) <> :binary.copy(<<0>>, 112), 3},
            {q, q, extras, "", 3},
            {q, q, extras, push.(2 ** 32 - 1, 2, 8), 2 ** 32 - 1},
            {q, q, extras, push.(3, 2, 8), 2 ** 62}
          ] do
        result = NativeV.leapfrog_chain_synth(q, p, extras, push, k, path)
        assert elem(result, 0) == :error, inspect(result)
      end

      assert {:error, :dispatch_failed, _} =
               NativeV.leapfrog_chain_synth(q, q, extras, push.(3, 2, 8), 3, "/nowhere.spv")

      assert {:ok, _} = NativeV.leapfrog_chain_synth(q, q, extras, push.(3, 2, 8), 3, path)
    end
  end

  describe "programs" do
    @f32 {:f, 32}

    test "that make no sense", %{a: a} do
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
            {[{:iota, @f32, [], 1}], [], {4}},
            {[{:eye, @f32, []}], [], {4}},
            {[{:bitcast, {:f, 64}, [0]}], [input], {4}},
            {[{:bitwise_and, @f32, [0, 0]}], [input], {4}},
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

      assert_works()
    end

    test "of types that there are not", %{a: a} do
      for type <- [{:u, 3}, {:f, 128}, {:c, 32}, {:x, 32}, {:f8_e4m3fn, 16}, {:bf, 8}] do
        nodes = [{:add, type, [0, 0]}]
        call = fn -> Native.call(run(nodes, [{a, @f32, {2}}], {2})) end
        assert_refused(call, {nodes, type})
      end
    end

    test "views that leave their buffers, or make no sense", %{a: a} do
      data = {a, @f32, 0}
      row = fn axis -> {[], [axis], [{2, 0, 1, 1}], [{2, 1, 2, 0}], []} end

      border = fn column, depth, border ->
        {[], [{2, 1, 0, 2}], [column], [depth], [border]}
      end

      part = fn inputs, offset, strides, starts -> [{inputs, {2}, offset, strides, starts}] end
      [input, one] = [{a, @f32, {2}}, {a, {:s, 32}, {}}]

      assert {:ok, _} = Native.call(contract(@f32, data, data, row.({2, 2, 0, 2})))
      {column, depth} = {{2, 0, 1, 1, 0, 1}, {2, 2, 1, 0, 0, 1}}

      assert {:ok, _} =
               Native.call(contract(@f32, data, data, border.(column, depth, {-1, 4, 1})))

      assert {:ok, _} = Native.call(assemble(@f32, {4}, part.([input, one], 0, [1], [{1, 3, 1}])))

      for call <- [
            fn -> Native.call(contract(@f32, {a, @f32, 1}, data, row.({2, 2, 0, 2}))) end,
            fn -> Native.call(contract(@f32, {a, @f32, -1}, data, row.({2, 2, 0, 2}))) end,
            fn -> Native.call(contract(@f32, data, data, row.({2, 2, 0, 3}))) end,
            fn -> Native.call(contract(@f32, data, data, row.({2, 2, 1, 2}))) end,
            fn -> Native.call(contract(@f32, data, data, row.({2 ** 62, 0, 0, 2}))) end,
            fn -> Native.call(contract(@f32, data, data, {[], [], []})) end,
            fn -> Native.call(contract(@f32, data, data, border.(column, depth, {-1, 5, 1}))) end,
            fn -> Native.call(contract(@f32, data, data, border.(column, depth, {-1, 4, 2}))) end,
            fn -> Native.call(contract(@f32, data, data, border.(column, depth, {-1, 4}))) end,
            fn ->
              Native.call(contract(@f32, data, data, border.(column, depth, {2 ** 48, 4, 1})))
            end,
            fn ->
              depth = put_elem(depth, 1, 3)
              Native.call(contract(@f32, data, data, border.(column, depth, {-1, 4, 1})))
            end,
            fn ->
              depth = put_elem(depth, 4, 1)
              Native.call(contract(@f32, data, data, border.(column, depth, {-1, 4, 1})))
            end,
            fn ->
              depth = {2, 2, 1, 0}
              Native.call(contract(@f32, data, data, border.(column, depth, {-1, 4, 1})))
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

    test "random terms", %{a: a} do
      :rand.seed(:exsss, {ExUnit.configuration()[:seed], 0, 0})

      for _ <- 1..500 do
        arguments = [term(a, 3), term(a, 3), term(a, 2)]

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
  end

  defp assert_all_fail(out, a, path) do
    for result <- [
          NativeV.apply_binary(out, a, a, 4, 0, path),
          NativeV.apply_unary(out, a, 4, 0, path),
          NativeV.reduce_axis(out, a, 1, 4, 1, 0, path),
          NativeV.matmul(out, a, a, 2, 2, 2, path),
          NativeV.transpose_2d(out, a, 2, 2, path)
        ] do
      assert {:error, :dispatch_failed, message} = result
      assert String.valid?(message) and message != ""
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
