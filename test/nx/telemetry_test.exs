defmodule Nx.Vulkan.TelemetryTest do
  use Nx.Vulkan.Test.Case, async: true

  import Bitwise, only: [<<<: 2]

  # Handlers run in the process that made the call, so each test sees its own events.
  setup context do
    id = {context.module, context.test}
    events = for name <- [:fallback, :compile, :memory], do: [:nx_vulkan, name]
    :telemetry.attach_many(id, events, &__MODULE__.tell/4, self())
    on_exit(fn -> :telemetry.detach(id) end)
  end

  def tell([:nx_vulkan, name], measurements, metadata, pid),
    do: if(self() == pid, do: send(pid, {name, measurements, metadata}))

  test "compile: what a call built, once" do
    ones = Nx.from_binary(<<1, 1, 1>>, :u8, backend: VulkanoBackend)
    fun = fn -> Nx.Vulkan.Native.again(:defer, {:run, :run_dirty}, chain(ones)) end
    assert {:ok, _} = fun.()
    assert_received {:compile, measurements, %{call: :run_dirty}}
    assert %{pipelines: 1, from_disk: from_disk, nanoseconds: nanoseconds} = measurements
    assert from_disk in 0..1
    assert nanoseconds > 0
    assert {:ok, _} = fun.()
    refute_received {:compile, _, _}
  end

  # A program that nothing else runs.
  defp chain(%{data: %{ref: ref}, type: type, shape: shape}) do
    nodes = for i <- 0..17, do: {:bitwise_xor, type, [0, i]}
    [nodes, [{ref, type, shape}], shape, nil]
  end

  test "memory: the pool's measurements before it grows" do
    assert {:ok, _} =
             Nx.Vulkan.Native.again(:collect, {:buf_alloc, :buf_alloc_dirty}, [1000, nil])

    assert_received {:memory, %{pool_bytes: _}, %{reason: :pool_grows}}
  end

  test "a pending call has its answer, also from a device that makes nobody look twice" do
    assert Nx.Vulkan.Native.again(:pending, {:sync, :sync_dirty}, [nil]) == :ok
    names = {:buf_alloc, :buf_alloc_dirty}
    assert {:error, :out_of_memory, _} = Nx.Vulkan.Native.again(:pending, names, [1 <<< 46, nil])
    refute_received {:memory, _, %{reason: :pool_grows}}
  end

  test "memory: the pool's measurements where it is short" do
    assert {:error, :out_of_memory, _} =
             Nx.Vulkan.Native.again(
               {:error, :out_of_memory, ""},
               {:buf_alloc, :buf_alloc_dirty},
               [1 <<< 46, nil]
             )

    assert_received {:memory, %{limit: limit, pool_bytes: _, used_bytes: _, buffers: _}, metadata}
    assert limit > 0
    assert metadata == %{reason: :out_of_memory}
  end
end
