defmodule Nx.Vulkan.TelemetryTest do
  use Nx.Vulkan.Test.Case, async: true

  import Bitwise, only: [<<<: 2]

  alias Nx.Vulkan.Test.Cells

  # Handlers run in the process that made the call, so each test sees its own events.
  setup context do
    id = {context.module, context.test}
    events = for name <- [:fallback, :compile, :memory], do: [:nx_vulkan, name]
    :telemetry.attach_many(id, events, &__MODULE__.tell/4, self())
    on_exit(fn -> :telemetry.detach(id) end)
  end

  def tell([:nx_vulkan, name], measurements, metadata, pid),
    do: if(self() == pid, do: send(pid, {name, measurements, metadata}))

  def tell_whole(event, measurements, metadata, pid),
    do: if(self() == pid, do: send(pid, {:event, event, measurements, metadata}))

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

  # A program that nothing else runs, by its last operand.
  defp chain(%{data: %{ref: ref}, type: type, shape: shape}, last \\ 17) do
    nodes = for i <- 0..last, do: {:bitwise_xor, type, [0, i]}
    [nodes, [{ref, type, shape}], shape, nil]
  end

  test "memory: the pool's measurements before it grows" do
    for collect <- [:collect, :collect_all] do
      names = {:buf_alloc, :buf_alloc_dirty}
      assert {:ok, _} = Nx.Vulkan.Native.again(collect, names, [1000, nil])
      assert_received {:memory, %{pool_bytes: _}, %{reason: :pool_grows}}
    end
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

  # Telemetry.Metrics is a package that is not installed here: what its metrics name is compared with events as they come.
  test "the metrics of the guide are measurements of events, with tags of their metadata" do
    [code] =
      for {"elixir", code, _} <- Cells.read("guides/telemetry.md"),
          code =~ "import Telemetry.Metrics",
          do: code

    quoted = Code.string_to_quoted!(code)
    {_, metrics} = Macro.prewalk(quoted, [], &{&1, metrics(&1) ++ &2})
    assert length(metrics) == 7
    names = for {event, _measurement, _tags} <- metrics, uniq: true, do: event
    :ok = :telemetry.attach_many({__MODULE__, :guide}, names, &__MODULE__.tell_whole/4, self())
    on_exit(fn -> :telemetry.detach({__MODULE__, :guide}) end)

    ones = Nx.from_binary(<<1, 1>>, :u8, backend: VulkanoBackend)
    assert {:ok, _} = Nx.Vulkan.Native.again(:defer, {:run, :run_dirty}, chain(ones, 16))

    assert {:ok, _} =
             Nx.Vulkan.Native.again(:collect, {:buf_alloc, :buf_alloc_dirty}, [1000, nil])

    Fallbacks.allow()
    Nx.reduce(ones, 0, fn x, acc -> if Nx.to_number(x) > 0, do: x, else: acc end)
    {_, [memory]} = Macro.prewalk(quoted, [], &{&1, memory(&1) ++ &2})
    Code.eval_quoted(memory)

    events = received(%{})

    for {event, measurement, tags} <- metrics do
      assert {%{^measurement => number}, metadata} = events[event], inspect(event)
      assert is_number(number)
      for tag <- tags, do: assert(is_map_key(metadata, tag), inspect({event, tag}))
    end
  end

  defp received(events) do
    receive do
      {:event, event, measurements, metadata} ->
        received(Map.put(events, event, {measurements, metadata}))
    after
      0 -> events
    end
  end

  defp metrics({kind, _, [name | options]})
       when kind in [:counter, :sum, :summary, :last_value] and is_binary(name) do
    # Telemetry.Metrics makes atoms of the name.
    {event, [measurement]} =
      name |> String.split(".") |> Enum.map(&String.to_existing_atom/1) |> Enum.split(-1)

    [{event, measurement, Keyword.get(List.flatten(options), :tags, [])}]
  end

  defp metrics(_quoted), do: []

  # What the poller of the guide calls.
  defp memory({:def, _, [{:memory, _, _}, [do: body]]}), do: [body]
  defp memory(_quoted), do: []
end
