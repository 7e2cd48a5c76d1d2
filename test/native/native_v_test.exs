Code.require_file("support/native_case.exs", __DIR__)

defmodule Nx.Vulkan.NativeVTest do
  @moduledoc "The raw calls with valid input, against Elixir's own arithmetic."

  use Nx.Vulkan.Test.NativeCase, async: true

  @tag :parent
  test "the same where descriptors cannot be pushed" do
    disabled = Enum.join([System.get_env("NX_VULKAN_DISABLE", ""), "push_descriptor"], ",")
    env = [{"NX_VULKAN_DISABLE", disabled}, {"MIX_ENV", "test"}]
    arguments = ~w(test --no-compile --no-deps-check --exclude parent) ++ [__ENV__.file]
    # Mix may ask whether to install Hex, and would wait for the answer.
    command = ["-c", ~S(exec mix "$@" < /dev/null), "mix" | arguments]
    {output, status} = System.cmd("sh", command, env: env, stderr_to_stdout: true)
    assert status == 0 and output =~ ~r/[1-9]\d* tests, 0 failures/, output
  end

  describe "buffers" do
    test "hold what was uploaded, of any size" do
      for size <- [0, 1, 3, 4, 255, 65_536, 65_537, 1_000_003] do
        data = :rand.bytes(size)
        assert {:ok, ref} = NativeV.buf_upload(data)
        assert is_reference(ref)
        assert NativeV.buf_byte_size(ref) == size
        assert NativeV.buf_download(ref) == {:ok, data}
      end
    end

    test "begin as zeros, also where others have written before" do
      for size <- [0, 1, 4, 1000, 70_000], _ <- 1..4 do
        {:ok, used} = NativeV.buf_upload(:binary.copy(<<255>>, size))
        NativeV.buf_byte_size(used)
        :erlang.garbage_collect()
        {:ok, ref} = NativeV.buf_alloc(size)
        assert NativeV.buf_download(ref) == {:ok, :binary.copy(<<0>>, size)}
      end
    end

    test "are overwritten by data of their size alone" do
      {:ok, ref} = NativeV.buf_alloc(8)
      assert NativeV.buf_upload_into(ref, "12345678") == :ok
      assert NativeV.buf_upload_into(ref, "1234567") == {:error, :size_mismatch}
      assert NativeV.buf_upload_into(ref, "123456789") == {:error, :size_mismatch}
      assert NativeV.buf_upload_into(ref, "") == {:error, :size_mismatch}
      assert NativeV.buf_download(ref) == {:ok, "12345678"}
    end

    test "are read in parts" do
      {:ok, ref} = NativeV.buf_upload("0123456789")
      assert Native.call(buf_read(ref, 0, 10)) == {:ok, "0123456789"}
      assert Native.call(buf_read(ref, 3, 4)) == {:ok, "3456"}
      assert Native.call(buf_read(ref, 10, 0)) == {:ok, ""}
      assert Native.call(buf_read(ref, 8, 3)) == {:error, :size_mismatch}
    end

    test "are freed once and know their size afterwards" do
      {:ok, ref} = NativeV.buf_alloc(100)
      assert Native.buf_free(ref) == :ok
      assert Native.buf_free(ref) == :already_deallocated
      assert NativeV.buf_byte_size(ref) == 100
      assert {:error, :deallocated, message} = NativeV.buf_download(ref)
      assert is_binary(message)
      assert {:error, :deallocated, _} = NativeV.buf_upload_into(ref, :binary.copy(<<0>>, 100))
    end

    test "a binary that was downloaded stays as it is" do
      {:ok, ref} = NativeV.buf_upload(:binary.copy("a", 1_000_000))
      {:ok, before} = NativeV.buf_download(ref)
      :ok = NativeV.buf_upload_into(ref, :binary.copy("b", 1_000_000))
      {:ok, later} = NativeV.buf_download(ref)
      assert before == :binary.copy("a", 1_000_000)
      assert later == :binary.copy("b", 1_000_000)
    end
  end

  @binary [
    {0, &Kernel.+/2},
    {1, &Kernel.*/2},
    {2, &Kernel.-/2},
    {3, &Kernel.//2},
    {4, &:math.pow/2},
    {5, &Kernel.max/2},
    {6, &Kernel.min/2}
  ]

  test "apply_binary" do
    for bits <- widths(), {op, fun} <- @binary, n <- [1, 255, 256, 1000] do
      a = for _ <- 1..n, do: exact(:rand.uniform() * 4 + 0.5)
      b = for _ <- 1..n, do: exact(:rand.uniform() * 4 - 2)
      out = alloc!(n, bits)
      path = spv("elementwise_binary", bits)
      assert NativeV.apply_binary(out, upload!(a, bits), upload!(b, bits), n, op, path) == :ok
      assert_close(download!(out, bits), Enum.zip_with(a, b, fun), bits)
    end
  end

  test "apply_unary" do
    ops = [
      &:math.exp/1,
      &:math.log/1,
      &:math.sqrt/1,
      &abs/1,
      &(-&1),
      &(1 / (1 + :math.exp(-&1))),
      &:math.tanh/1,
      &max(&1, 0.0),
      &:math.ceil/1,
      &:math.floor/1,
      &(&1 / abs(&1)),
      &(1 / &1),
      &(&1 * &1),
      &:math.erf/1,
      &(2 * :math.sinh(&1 / 2) * :math.exp(&1 / 2))
    ]

    for bits <- widths(), {fun, op} <- Enum.with_index(ops) do
      a = for _ <- 1..300, do: exact(:rand.uniform() * 4 - 2)
      a = if op in [1, 2], do: Enum.map(a, &(abs(&1) + 0.125)), else: a
      out = alloc!(300, bits)

      assert NativeV.apply_unary(out, upload!(a, bits), 300, op, spv("elementwise_unary", bits)) ==
               :ok

      assert_close(download!(out, bits), Enum.map(a, fun), bits)
    end
  end

  test "an output may be an input, and calls run in their order" do
    a = upload!([1.0, 2.0, 3.0])
    path = spv("elementwise_binary")
    for _ <- 1..10, do: :ok = NativeV.apply_binary(a, a, a, 3, 0, path)
    assert download!(a) == [1024.0, 2048.0, 3072.0]
  end

  test "n elements are written, and none beyond" do
    out = upload!([9.0, 9.0, 9.0, 9.0])
    a = upload!([1.0, 2.0, 3.0, 4.0])
    assert NativeV.apply_unary(out, a, 2, 4, spv("elementwise_unary")) == :ok
    assert download!(out) == [-1.0, -2.0, 9.0, 9.0]
    assert NativeV.apply_unary(out, a, 0, 4, spv("elementwise_unary")) == :ok
    assert download!(out) == [-1.0, -2.0, 9.0, 9.0]
  end

  test "reduce_axis over the middle of (outer, reduce, inner)" do
    for bits <- widths(),
        {outer, size, inner} <- [
          {1, 1, 1},
          {3, 5, 4},
          {1, 1000, 1},
          {7, 1, 3},
          {1, 3, 500},
          {2, 257, 2}
        ] do
      values = for _ <- 1..(outer * size * inner), do: exact(:rand.uniform() * 8 - 4)
      at = List.to_tuple(values)

      for {op, fun} <- [{0, &Enum.sum/1}, {1, &Enum.max/1}, {2, &Enum.min/1}] do
        expected =
          for o <- 0..(outer - 1), i <- 0..(inner - 1) do
            fun.(for r <- 0..(size - 1), do: elem(at, (o * size + r) * inner + i))
          end

        out = alloc!(outer * inner, bits)
        a = upload!(values, bits)
        path = spv("reduce_axis", bits)
        assert NativeV.reduce_axis(out, a, outer, size, inner, op, path) == :ok

        for [got, want] <- zip_all([download!(out, bits), expected]),
            do: assert_in_delta(got, want, 1.0e-3)
      end
    end
  end

  test "reduce_axis of millions of elements to one" do
    n = 3_000_017
    {:ok, a} = NativeV.buf_upload(:binary.copy(floats([0.5]), n))
    out = alloc!(1)
    assert NativeV.reduce_axis(out, a, 1, n, 1, 0, spv("reduce_axis")) == :ok
    assert download!(out) == [n * 0.5]
  end

  test "matmul and transpose_2d" do
    for bits <- widths(), {m, n, k} <- [{1, 1, 1}, {3, 4, 5}, {17, 33, 65}, {64, 16, 1}] do
      a = for _ <- 1..(m * k), do: exact(:rand.uniform() * 2 - 1)
      b = for _ <- 1..(k * n), do: exact(:rand.uniform() * 2 - 1)
      {at, bt} = {List.to_tuple(a), List.to_tuple(b)}

      product =
        for i <- 0..(m - 1), j <- 0..(n - 1) do
          Enum.sum(for l <- 0..(k - 1), do: elem(at, i * k + l) * elem(bt, l * n + j))
        end

      out = alloc!(m * n, bits)
      path = spv("matmul", bits)
      assert NativeV.matmul(out, upload!(a, bits), upload!(b, bits), m, n, k, path) == :ok

      for [got, want] <- zip_all([download!(out, bits), product]),
          do: assert_in_delta(got, want, 1.0e-4)

      transposed = for l <- 0..(k - 1), i <- 0..(m - 1), do: elem(at, i * k + l)
      out = alloc!(m * k, bits)
      assert NativeV.transpose_2d(out, upload!(a, bits), m, k, spv("transpose", bits)) == :ok
      assert download!(out, bits) == transposed
    end
  end

  test "memory_info counts allocated memory" do
    before = Nx.Vulkan.memory_info()
    assert before.pool_bytes <= before.limit
    {:ok, ref} = NativeV.buf_alloc(1_000_000)
    during = Nx.Vulkan.memory_info()
    assert during.used_bytes >= 1_000_000
    assert during.buffers >= 1
    assert during.pool_bytes >= during.used_bytes
    assert NativeV.buf_byte_size(ref) == 1_000_000
  end

  test "device_info names the device and all there are" do
    assert {:ok, info} = Nx.Vulkan.device_info()
    assert is_binary(info.name)
    assert info.type in [:discrete_gpu, :integrated_gpu, :virtual_gpu, :cpu, :other]
    assert Enum.all?(info.features, &is_atom/1)
    assert info.devices != []
  end

  # Exactly representable in f32, so that both sides begin with the same number, and never zero.
  defp exact(x), do: (Float.round(x * 256) + 0.5) / 256

  defp assert_close(got, want, bits) do
    relative = if bits == 32, do: 2.0e-7, else: 1.0e-15

    for [got, want] <- zip_all([got, want]) do
      assert is_number(got) and abs(got - want) <= relative * abs(want) + 1.0e-300,
             "#{inspect(got)} is not #{inspect(want)}"
    end
  end
end
