defmodule Nx.Vulkan.StorageTest do
  @moduledoc "Making, reading, moving and freeing tensors."

  use Nx.Vulkan.Test.Case, async: true

  @non_finite [:nan, :infinity, :neg_infinity]

  describe "making and reading" do
    test "every type and rank comes back bit by bit" do
      for type <- Generators.all_types(), shape <- Generators.shapes() do
        tensor = Generators.tensor(shape, type, :moderate)
        copy = to_device(tensor)
        assert %VulkanoBackend{} = copy.data
        assert Nx.to_binary(copy) == Nx.to_binary(tensor)
        assert Nx.to_binary(Nx.backend_copy(copy)) == Nx.to_binary(tensor)
      end
    end

    test "a limit reads a prefix" do
      for type <- Generators.all_types(), limit <- [1, 3, 7, 24, 1000] do
        tensor = Generators.tensor({4, 6}, type, :moderate)
        assert Nx.to_binary(to_device(tensor), limit: limit) == Nx.to_binary(tensor, limit: limit)
      end
    end

    test "numbers become tensors of the default backend, non-finite and complex ones too" do
      Nx.default_backend(VulkanoBackend)

      for number <- [0, -1, 7, 1.5, -0.0, Complex.new(1, -2)] ++ @non_finite do
        tensor = Nx.tensor(number)
        assert %VulkanoBackend{} = tensor.data
        assert_same(tensor, Nx.tensor(number, backend: Nx.BinaryBackend), :constant)
      end

      for type <- Generators.float_types(), number <- [1.1 | @non_finite] do
        expected = nearest(&Nx.tensor(number, type: type, backend: &1), NearestBackend)
        assert_same(Nx.tensor(number, type: type), expected, :constant)
      end
    end

    test "constants of any shape" do
      for type <- Generators.device_types() ++ [{:c, 64}, {:f, 8}],
          shape <- Generators.shapes() do
        out = Nx.template(shape, type)
        constant = VulkanoBackend.constant(out, 3, [])
        assert_same(constant, Nx.BinaryBackend.constant(out, 3, []), :constant, type: type)
      end
    end

    test "iota along any axis" do
      for type <- Generators.device_types(),
          shape <- [{300} | Generators.shapes()],
          axis <- [nil | Enum.to_list(0..(tuple_size(shape) - 1)//1)] do
        fun = &Nx.iota(shape, axis: axis, type: type, backend: &1)

        assert_same(fun.(VulkanoBackend), nearest(fun, NearestBackend), :iota,
          type: type,
          axis: axis
        )
      end
    end

    test "eye, of one matrix and of many" do
      for type <- Generators.device_types(), shape <- [{3, 3}, {2, 5}, {5, 2}, {2, 3, 4, 4}] do
        fun = &Nx.eye(shape, type: type, backend: &1)
        assert_same(fun.(VulkanoBackend), nearest(fun, NearestBackend), :eye, type: type)
      end
    end

    test "operands from BinaryBackend are taken on either side" do
      host = Nx.tensor([1.0, 2.0])
      device = to_device(host)

      for {a, b} <- [{host, device}, {device, host}],
          do: assert_same(Nx.add(a, b), Nx.add(host, host), :add)

      assert_same(Nx.add(device, 1), Nx.add(host, 1), :add)
      assert_same(Nx.pow(2, device), Nx.pow(2, host), :pow)
    end

    test "the backend takes no other options than a device and has no pointers" do
      assert_raise ArgumentError, ~r/takes no options/, fn ->
        Nx.tensor(1, backend: {VulkanoBackend, a: 1}) |> Nx.backend_copy({VulkanoBackend, a: 1})
      end

      assert_raise ArgumentError, ~r/pointers/, fn -> Nx.to_pointer(to_device(Nx.tensor([1]))) end

      assert_raise ArgumentError, ~r/pointers/, fn ->
        Nx.from_pointer(VulkanoBackend, %Nx.Pointer{kind: :local, address: 0}, {:s, 32}, {1})
      end
    end
  end

  describe "inspect" do
    # Nx 0.13 shows whole bytes.
    @tag :nx_1_0
    test "shows what BinaryBackend shows" do
      for type <- Generators.all_types(), shape <- Generators.shapes() do
        tensor = Generators.tensor(shape, type, :moderate)

        for options <- [[], [limit: 2], [limit: :infinity]] do
          assert inspect(to_device(tensor), options) == inspect(tensor, options)
        end
      end
    end

    test "of a vectorized tensor with names" do
      tensor = Nx.iota({2, 3}, names: [:x, :y]) |> Nx.vectorize(:x)
      assert inspect(to_device(tensor)) == inspect(tensor)
    end

    test "of a deallocated tensor does not raise" do
      for tensor <- [Nx.tensor([1, 2]), Nx.tensor(1)] do
        tensor = to_device(tensor)
        Nx.backend_deallocate(tensor)
        assert inspect(tensor) =~ "deallocated"
      end
    end
  end

  describe "deallocating" do
    test "frees once, and says so" do
      for shape <- [{}, {1}, {100, 100}], type <- [{:f, 32}, {:u, 4}, {:c, 128}] do
        tensor = to_device(Generators.tensor(shape, type, :moderate))
        assert Nx.backend_deallocate(tensor) == :ok
        assert Nx.backend_deallocate(tensor) == :already_deallocated
        assert %{reason: :deallocated} = catch_error(Nx.to_binary(tensor))
      end
    end

    test "makes operations on the tensor raise, and nothing else" do
      for shape <- [{}, {3}] do
        tensor = to_device(Generators.tensor(shape, {:f, 32}, :moderate))
        sum = Nx.add(tensor, tensor)
        expected = Nx.to_binary(sum)
        Nx.backend_deallocate(tensor)
        assert %Nx.Vulkan.Error{reason: :deallocated} = catch_error(Nx.add(tensor, 1))
        assert Nx.to_binary(sum) == expected
      end
    end

    test "reaches the tensors that share the memory, and no copy" do
      tensor = to_device(Nx.iota({2, 3}))
      copy = Nx.backend_copy(tensor, VulkanoBackend)
      shared = Nx.reshape(tensor, {6})
      assert copy.data.ref != tensor.data.ref
      assert Nx.backend_deallocate(shared) == :ok
      assert Nx.backend_deallocate(tensor) == :already_deallocated
      assert Nx.to_flat_list(copy) == [0, 1, 2, 3, 4, 5]
    end

    test "of a container frees all its tensors" do
      a = to_device(Nx.tensor([1]))
      b = to_device(Nx.tensor([2]))
      assert Nx.backend_deallocate({a, %{b: b}}) == :ok
      assert Nx.backend_deallocate(a) == :already_deallocated
      assert Nx.backend_deallocate(b) == :already_deallocated
    end
  end

  describe "transfer" do
    test "to BinaryBackend frees the device's memory" do
      host = Nx.iota({3, 3}, type: :f64)
      tensor = to_device(host)
      back = Nx.backend_transfer(tensor)
      assert %Nx.BinaryBackend{} = back.data
      assert Nx.to_binary(back) == Nx.to_binary(host)
      assert Nx.backend_deallocate(tensor) == :already_deallocated
    end

    test "to the device it is on keeps the memory" do
      tensor = to_device(Nx.tensor([1, 2]))
      assert Nx.backend_transfer(tensor, VulkanoBackend).data.ref == tensor.data.ref
    end

    test "of every type within the device copies" do
      for type <- Generators.all_types(), shape <- [{}, {7}] do
        tensor = to_device(Generators.tensor(shape, type, :moderate))
        copy = Nx.backend_copy(tensor, VulkanoBackend)
        assert Nx.to_binary(copy) == Nx.to_binary(tensor)
        Nx.backend_deallocate(tensor)
        assert Nx.backend_deallocate(copy) == :ok
      end
    end
  end

  describe "memory by process" do
    # The bytes and the buffers that a process has made and that are in memory.
    defp made_by(pid) do
      case Enum.filter(Nx.Vulkan.memory_by_process(), &(&1.pid == pid)) do
        [%{bytes: bytes, buffers: buffers}] -> {bytes, buffers}
        [] -> {0, 0}
      end
    end

    defp make(agent, count),
      do: Agent.get(agent, fn _ -> for(i <- 1..count, do: to_device(Nx.iota({1000 * i}))) end)

    # Whether the caller has this once its garbage is collected: the BEAM frees what a NIF made soon after that.
    defp collected(expected) do
      Enum.any?(1..500, fn _ ->
        :erlang.garbage_collect()
        made_by(self()) == expected or (Process.sleep(10) && false)
      end)
    end

    test "is that of the process that made a tensor, wherever it is, until it is freed" do
      {:ok, agent} = Agent.start_link(fn -> nil end)
      tensors = make(agent, 3)
      assert made_by(agent) == {4000 + 8000 + 12000, 3}

      [first | _] = tensors
      assert Nx.backend_deallocate(first) == :ok
      assert made_by(agent) == {20_000, 2}
      assert Nx.backend_deallocate(first) == :already_deallocated
      assert made_by(agent) == {20_000, 2}

      # The process that made them ends before they do.
      Agent.stop(agent)
      assert made_by(agent) == {20_000, 2}
      for tensor <- tensors, do: Nx.backend_deallocate(tensor)
      assert made_by(agent) == {0, 0}
    end

    @tag :nx_1_0
    test "counts results of operations and definitions, and not what is donated" do
      Task.await(
        Task.async(fn ->
          step = Nx.Defn.jit(&Nx.add(&1, 1), compiler: Nx.Vulkan.Compiler)
          x = to_device(Nx.iota({500}))
          y = Nx.multiply(x, x)
          for _ <- 1..4, reduce: y, do: (y -> step.(y))
          assert collected({4000, 2})
          for _ <- 1..4, do: step.(Nx.donatable(to_device(Nx.iota({500}))))
          assert collected({4000, 2})
          assert [_, _] = for(tensor <- [x, y], do: Nx.to_binary(tensor))
        end),
        :infinity
      )
    end

    test "of all processes is sorted by bytes" do
      bytes = for entry <- Nx.Vulkan.memory_by_process(), do: entry.bytes
      assert bytes == Enum.sort(bytes, :desc)
    end
  end

  describe "to_batched" do
    test "in full batches" do
      tensor = Generators.tensor({6, 2, 3}, {:f, 32}, :any)
      check_batches(tensor, 2, [])
    end

    test "with what is left over, repeated or discarded" do
      # The last batch is made by concatenate, which has no kernel.
      Fallbacks.allow()
      tensor = Generators.tensor({7, 2}, {:s, 32}, :any)
      check_batches(tensor, 3, leftover: :repeat)
      check_batches(tensor, 3, leftover: :discard)
      check_batches(tensor, 7, leftover: :repeat)
    end
  end

  defp check_batches(tensor, size, options) do
    batches = Enum.to_list(Nx.to_batched(to_device(tensor), size, options))
    expected = Enum.to_list(Nx.to_batched(tensor, size, options))
    for [a, b] <- zip_all([batches, expected]), do: assert_same(a, b, :to_batched)
  end
end
