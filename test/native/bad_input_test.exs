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

      buffer = &{&1, a, not_buffers}
      sizes = &for({name, size} <- &1, do: {Atom.to_string(name), size, @no_size})
      [out, left, right] = Enum.map(["out", "a", "b"], buffer)
      op_code = {"op_code", 0, [1.0, "0", nil]}
      spv_path = {"spv_path", path, @no_path}

      calls = [
        {:buf_alloc, [{"n_bytes", 4, @no_size}]},
        {:buf_upload, [{"data", "1234", [1, :atom, nil, [1, 2], <<1::3>>]}]},
        {:buf_upload_into, [buffer.("ref"), {"data", <<0::128>>, [1, :atom, nil, <<1::3>>]}]},
        {:buf_download, [buffer.("ref")]},
        {:buf_byte_size, [buffer.("ref")]},
        {:apply_binary, [out, left, right] ++ sizes.(n: 4) ++ [op_code, spv_path]},
        {:apply_unary, [out, left] ++ sizes.(n: 4) ++ [op_code, spv_path]},
        {:reduce_axis,
         [out, left] ++ sizes.(outer: 1, reduce_size: 4, inner: 1) ++ [op_code, spv_path]},
        {:matmul, [out, left, right] ++ sizes.(m: 2, n: 2, k: 2) ++ [spv_path]},
        {:transpose_2d, [out, left] ++ sizes.(m: 2, n: 2) ++ [spv_path]},
        {:leapfrog_chain_synth,
         [
           {"q_init", <<>>, [1, nil]},
           {"p_init", <<>>, [1, nil]},
           {"extras", <<>>, [1, nil]},
           {"push", <<>>, [1, nil]},
           {"k", 1, @no_size},
           spv_path
         ]}
      ]

      for {call, arguments} <- calls, {{name, _, wrong}, i} <- Enum.with_index(arguments) do
        for value <- wrong do
          arguments = arguments |> Enum.map(&elem(&1, 1)) |> List.replace_at(i, value)
          error = assert_raise ArgumentError, fn -> apply(NativeV, call, arguments) end

          assert String.starts_with?(error.message, name <> ": "),
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
end
