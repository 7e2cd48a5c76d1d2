defmodule Nx.Vulkan.DistributionTest do
  @moduledoc "Tensors of other nodes, and servings there. Each node has a device of its own, as two machines have."

  # This BEAM becomes a node for it.
  use Nx.Vulkan.Test.Case, async: false

  alias Nx.Vulkan.Test.Remote

  setup_all do
    {_, 0} = System.cmd("epmd", ["-daemon"])
    # It returns before it listens.
    Enum.find(1..100, fn _ ->
      {_, status} = System.cmd("epmd", ["-names"], stderr_to_stdout: true)
      status == 0 or Process.sleep(50) != :ok
    end)

    {:ok, _} = Node.start(:"nx_vulkan_#{System.pid()}@127.0.0.1", :longnames)
    on_exit(&Node.stop/0)
    {_peer, node} = Remote.start_node(:"nx_vulkan_peer_#{System.pid()}")
    %{node: node}
  end

  # Tensors that are on the node's device, and what keeps them there.
  defp there(node, hosts), do: Remote.hold(node, Remote, :tensors, [hosts])

  describe "a tensor of another node" do
    test "is read, of every type", %{node: node} do
      hosts =
        for type <- Generators.all_types(),
            shape <- [{}, {7}, {2, 3, 4}],
            do: Generators.tensor(shape, type, :moderate)

      {tensors, _} = there(node, List.to_tuple(hosts))

      for [host, tensor] <- zip_all([hosts, Tuple.to_list(tensors)]) do
        assert %VulkanoBackend{} = tensor.data
        assert {tensor.type, tensor.shape} == {host.type, host.shape}
        assert Nx.to_binary(tensor) == Nx.to_binary(host)
        assert Nx.to_binary(tensor, limit: 1) == Nx.to_binary(host, limit: 1)
        # Nx 0.13 shows whole bytes.
        if nx_1_0?() or elem(host.type, 1) >= 8, do: assert(inspect(tensor) == inspect(host))
      end
    end

    test "is an operand, with tensors of this node and in any position", %{node: node} do
      hosts = {Nx.iota({3, 4}, type: :f32), Nx.tensor([2, 0]), Nx.tensor(1), Nx.tensor([[5.0]])}
      {{matrix, rows, one, corner}, _} = there(node, hosts)
      here = to_device(elem(hosts, 0))

      for fun <- [
            fn {m, _, _, _}, here -> Nx.add(m, here) end,
            fn {m, _, _, _}, here -> Nx.dot(here, Nx.transpose(m)) end,
            fn {m, rows, _, _}, _ -> Nx.take(m, rows) end,
            fn {_, rows, _, _}, here -> Nx.take(here, rows) end,
            fn {_, _, one, _}, here -> Nx.slice(here, [one, one], [2, 2]) end,
            fn {_, _, one, corner}, here -> Nx.put_slice(here, [one, 0], corner) end,
            fn {m, _, _, _}, here -> Nx.concatenate([m, here]) end,
            fn {m, _, _, _}, _ -> Nx.sort(Nx.reshape(m, {2, 6}), direction: :desc) end,
            fn {m, _, one, _}, _ -> Nx.pow(m, one) end
          ] do
        result = fun.({matrix, rows, one, corner}, here)
        assert %VulkanoBackend{} = result.data
        assert_same(result, fun.(hosts, elem(hosts, 0)), :distributed)
      end
    end

    test "is copied and serialized, in containers too", %{node: node} do
      hosts = %{a: Nx.iota({5}), b: {Nx.tensor(1.5), Nx.iota({2, 2}, type: :u4)}}
      {tensors, _} = there(node, hosts)

      for copy <- [
            Nx.backend_copy(tensors),
            Nx.backend_copy(tensors, VulkanoBackend),
            tensors |> Nx.serialize() |> IO.iodata_to_binary() |> Nx.deserialize()
          ] do
        assert Nx.to_binary(copy.a) == Nx.to_binary(hosts.a)
        assert Nx.to_number(elem(copy.b, 0)) == 1.5
        assert Nx.to_binary(elem(copy.b, 1)) == Nx.to_binary(elem(hosts.b, 1))
      end

      assert node(tensors.a.data.ref) == node
      assert node(Nx.backend_copy(tensors.a, VulkanoBackend).data.ref) == node()
    end

    test "is freed there by a transfer, and by deallocating it", %{node: node} do
      for backend <- [Nx.BinaryBackend, VulkanoBackend], host <- [Nx.iota({6}), Nx.tensor(6)] do
        {tensor, holder} = there(node, host)
        moved = Nx.backend_transfer(tensor, backend)
        assert Nx.to_binary(moved) == Nx.to_binary(host)
        assert Nx.backend_deallocate(tensor) == :already_deallocated

        original = :erpc.call(node, Agent, :get, [holder, Function, :identity, []])
        assert :erpc.call(node, Nx, :backend_deallocate, [original]) == :already_deallocated
      end

      {tensor, _} = there(node, Nx.iota({6}))
      assert Nx.backend_deallocate(tensor) == :ok
      assert %Nx.Vulkan.Error{reason: :deallocated} = catch_error(Nx.to_binary(tensor))
    end

    test "that comes home is the same memory", %{node: node} do
      tensor = to_device(Nx.iota({6}))
      {returned, _} = Remote.hold(node, Function, :identity, [tensor])
      assert returned.data.ref == tensor.data.ref
      assert Nx.to_flat_list(Nx.add(returned, 1)) == [1, 2, 3, 4, 5, 6]
    end

    test "whose memory is gone is refused, and says where it was", %{node: node} do
      {{tensor, number}, holder} = there(node, {Nx.iota({6}), Nx.tensor(6)})
      :erpc.call(node, Agent, :stop, [holder])

      for fun <- [&Nx.to_binary/1, &Nx.add(&1, 1), &Nx.backend_copy/1, &Nx.serialize/1] do
        error = assert_raise Nx.Vulkan.Error, fn -> fun.(tensor) end
        assert error.reason == :deallocated
        assert error.message =~ "#{node}"
      end

      assert inspect(tensor) =~ "deallocated"
      assert Nx.backend_deallocate(tensor) == :already_deallocated
      # Its bytes came along.
      assert Nx.to_number(Nx.add(number, 1)) == 7
    end

    test "whose node has gone is refused, and says so" do
      {peer, node} = Remote.start_node(:"nx_vulkan_gone_#{System.pid()}")
      {tensor, _} = there(node, Nx.iota({6}))
      :peer.stop(peer)

      for fun <- [
            &Nx.to_binary/1,
            &Nx.add(&1, 1),
            &Nx.backend_transfer/1,
            &Nx.backend_deallocate/1
          ] do
        error = assert_raise Nx.Vulkan.Error, fn -> fun.(tensor) end
        assert error.reason == :noconnection
        assert error.message =~ "#{node}"
      end

      assert inspect(tensor) =~ "noconnection"
    end
  end

  test "raw calls refuse a buffer of another node by the argument's name", %{node: node} do
    {{:ok, buffer}, _} = Remote.hold(node, Nx.Vulkan.NativeV, :buf_upload, [<<1, 2, 3, 4>>])

    for call <- [&Nx.Vulkan.NativeV.buf_download/1, &Nx.Vulkan.NativeV.buf_byte_size/1],
        do: assert_raise(ArgumentError, ~r/ref: .*this node/, fn -> call.(buffer) end)
  end

  describe "a serving on another node's device" do
    setup %{node: node} do
      Remote.start_serving(node, :vulkan_there, &Nx.backend_transfer/1)
      x = Nx.iota({3, 2}, type: :f32)
      %{x: x, expected: Remote.model(%{x: x})}
    end

    test "takes tensors of either backend and gives tensors that outlive it", context do
      for x <- [context.x, to_device(context.x)] do
        batch = Nx.Batch.concatenate([%{x: x}])
        result = wait_for(fn -> Nx.Serving.batched_run(:vulkan_there, batch) end)
        assert %Nx.BinaryBackend{} = result.wave.data
        assert_same(to_device(result.wave), context.expected.wave, :sin)
        assert_same(to_device(result.sum), context.expected.sum, :sum)
      end
    end
  end

  # Nodes tell each other of their servings when they come to it.
  defp wait_for(fun, tries \\ 100) do
    fun.()
  catch
    :exit, {:noproc, _} when tries > 0 ->
      Process.sleep(20)
      wait_for(fun, tries - 1)
  end
end
