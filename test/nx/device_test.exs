defmodule Nx.Vulkan.DeviceTest do
  @moduledoc """
  Several devices in one BEAM. The tests run in a BEAM of their own, in which `NX_VULKAN_DEVICES` makes two devices of the one
  that is in use here.
  """

  use Nx.Vulkan.Test.Case, async: true

  require Nx.Vulkan.Native, as: Native

  alias Nx.Vulkan.NativeV

  @other {VulkanoBackend, device: 1}

  @tag :parent
  test "two devices of one physical device" do
    [index] = for %{default: true, index: index} <- Nx.Vulkan.devices(), do: index

    env = [{"NX_VULKAN_DEVICES", "#{index},#{index}"}, {"NX_VULKAN_DEVICE", nil}]
    arguments = ~w(test --no-compile --no-deps-check --seed #{ExUnit.configuration()[:seed]})
    {output, status} = mix(arguments ++ [__ENV__.file], env)

    assert status == 0 and output =~ ~r/[1-9]\d* tests?, 0 failures/, output
  end

  defp on?(%Nx.Tensor{data: %VulkanoBackend{ref: ref}}, device),
    do: Native.call(buf_on_device(ref, device)) == {:ok, true}

  defp put(tensor), do: Nx.backend_copy(tensor, @other)

  # The same call on the host and on the other device, four times: the third and fourth are replayed.
  defp assert_there(fun, args, op) do
    there = Enum.map(args, &put/1)
    expected = apply(fun, args)

    for _ <- 1..4 do
      result = apply(fun, there)
      assert on?(result, 1), "#{op} is on another device"
      assert_same(result, expected, op)
    end
  end

  describe "two devices:" do
    @describetag :two_devices

    test "they are listed, described and measured one by one" do
      assert [
               %{index: 0, default: true, partition: true} = first,
               %{index: 1, default: false} = second
             ] =
               Nx.Vulkan.devices()

      assert {first.name, first.type, first.uuid} == {second.name, second.type, second.uuid}

      for {device, index} <- [{nil, 0}, {0, 0}, {1, 1}, {first.uuid, 0}] do
        assert {:ok, %{index: ^index}} = Nx.Vulkan.device_info(device)
        assert Nx.Vulkan.synchronize(device) == :ok
      end

      before = for device <- 0..1, do: Nx.Vulkan.memory_info(device).used_bytes
      tensor = Nx.iota({1000}, type: :f32, backend: @other)

      assert [0, bytes] =
               for(
                 {device, used} <- Enum.zip(0..1, before),
                 do: Nx.Vulkan.memory_info(device).used_bytes - used
               )

      assert bytes >= 4000
      assert on?(tensor, 1)

      assert {:ok, report} = Nx.Vulkan.Doctor.report(1)
      assert report =~ ~r/1: .*this one/
      assert {:error, :no_device, message} = Nx.Vulkan.device_info(2)
      assert message =~ "no device 2"
    end

    test "tensors are made on the device that the backend names" do
      for device <- [1, String.upcase(hd(Nx.Vulkan.devices()).uuid)] do
        backend = {VulkanoBackend, device: device}
        index = if device == 1, do: 1, else: 0
        key = Nx.Random.key(7)

        Nx.with_default_backend(backend, fn ->
          made = [
            Nx.tensor([1, 2, 3]),
            Nx.iota({3, 4}),
            Nx.eye(3),
            Nx.broadcast(2.0, {5}),
            Nx.stack([Nx.tensor(1.0), Nx.tensor(2.0)]),
            Nx.add(Nx.tensor(1.5), 2),
            elem(Nx.Random.uniform(key, shape: {4}), 0)
          ]

          for tensor <- made, do: assert(on?(tensor, index))
        end)
      end

      assert on?(Nx.tensor([1, 2], backend: VulkanoBackend), 0)
    end

    test "operations run on the device of their operands" do
      matrix = Nx.tensor([[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]])
      vector = Nx.tensor([3.0, 1.0, 2.0])
      index = Nx.tensor([[2], [0]])

      for {op, fun, args} <- [
            {:add, &Nx.add/2, [matrix, vector]},
            {:sum, &Nx.sum/1, [matrix]},
            {:softmax, fn x -> Nx.divide(Nx.exp(x), Nx.sum(Nx.exp(x))) end, [vector]},
            {:dot, &Nx.dot/2, [matrix, vector]},
            {:sort, &Nx.sort/1, [vector]},
            {:transpose, &Nx.transpose/1, [matrix]},
            {:concatenate, fn a, b -> Nx.concatenate([a, b]) end, [vector, vector]},
            {:gather, &Nx.gather/2, [vector, index]},
            {:indexed_add, &Nx.indexed_add/3, [vector, index, Nx.tensor([1.0, 2.0])]},
            {:window_sum, &Nx.window_sum(&1, {2, 2}), [matrix]},
            {:cumulative_sum, &Nx.cumulative_sum/1, [vector]},
            {:cholesky, &Nx.LinAlg.cholesky/1, [matrix]},
            {:triangular_solve, &Nx.LinAlg.triangular_solve/2, [Nx.tril(matrix), vector]}
          ],
          do: assert_there(fun, args, op)
    end

    test "what the host holds belongs to any device" do
      host = Nx.tensor([1.0, 2.0, 3.0])
      number = Nx.tensor(2.0, backend: VulkanoBackend)

      for device <- [0, 1], _ <- 1..3 do
        there = Nx.backend_copy(host, {VulkanoBackend, device: device})

        for {op, fun} <- [
              {:add, &Nx.add/2},
              {:concatenate, fn a, b -> Nx.concatenate([a, b]) end},
              {:dot, &Nx.dot/2},
              {:select, fn a, b -> Nx.select(Nx.greater(a, 1.5), b, a) end}
            ],
            args <- [[host, there], [there, host]] do
          result = apply(fun, args)
          assert on?(result, device)
          assert_same(result, apply(fun, [host, host]), op)
        end

        for {tensor, expected} <- [
              {Nx.multiply(there, number), Nx.multiply(host, 2.0)},
              {Nx.indexed_put(there, Nx.tensor([1]), number),
               Nx.indexed_put(host, Nx.tensor([1]), 2.0)},
              {Nx.window_scatter_max(there, number |> Nx.reshape({1}), 0.0, {3}),
               Nx.window_scatter_max(host, Nx.tensor([2.0]), 0.0, {3})}
            ] do
          assert on?(tensor, device)
          assert_same(tensor, expected, :number)
        end
      end
    end

    test "operands of two devices are an error that names both" do
      [a, b] =
        for device <- [0, 1],
            do: Nx.iota({4}, type: :f32, backend: {VulkanoBackend, device: device})

      for fun <- [
            &Nx.add/2,
            &Nx.dot/2,
            &Nx.concatenate([&1, &2]),
            &Nx.gather(&1, Nx.new_axis(Nx.as_type(&2, :s32), 1))
          ],
          {a, b} <- [{a, b}, {b, a}] do
        error = assert_raise ArgumentError, fn -> fun.(a, b) end
        assert error.message =~ "device 0 ("
        assert error.message =~ "device 1 ("
        assert error.message =~ "Nx.backend_transfer"
      end

      {:ok, out} = NativeV.buf_alloc(16)
      spv = Application.app_dir(:nx_vulkan, "priv/shaders/elementwise_binary.spv")
      call = fn -> NativeV.apply_binary(out, a.data.ref, b.data.ref, 4, 0, spv) end
      assert_raise ArgumentError, ~r/device 0.*device 1/, call
    end

    test "tensors of every type move and are copied between them" do
      for type <- Generators.all_types() do
        tensor = Generators.tensor({2, 3}, type, :any)
        there = put(tensor)
        assert on?(there, 1)
        back = Nx.backend_copy(there, {VulkanoBackend, device: 0})
        assert on?(back, 0)
        assert Nx.to_binary(back) == Nx.to_binary(tensor)
        copy = Nx.backend_copy(there, @other)
        assert on?(copy, 1) and copy.data.ref != there.data.ref
        assert Nx.backend_transfer(there, @other).data.ref == there.data.ref
        assert on?(Nx.backend_transfer(there, VulkanoBackend), 0)
        assert_raise Nx.Vulkan.Error, ~r/deallocated/, fn -> Nx.to_binary(there) end
      end
    end

    test "wrong devices are refused" do
      for device <- [-1, :cuda, 1.0],
          do:
            assert_raise(ArgumentError, ~r/:device/, fn ->
              Nx.tensor([1], backend: {VulkanoBackend, device: device})
            end)

      for device <- [2, "no such name"] do
        error =
          assert_raise Nx.Vulkan.Error, fn ->
            Nx.tensor([1], backend: {VulkanoBackend, device: device})
          end

        assert error.reason == :no_device
      end
    end

    test "a definition runs on its device, and takes inputs from any" do
      fun = fn x, y ->
        z = Nx.add(Nx.multiply(x, 2.0), Nx.iota({4}))
        {Nx.sum(Nx.dot(z, y)), Nx.sort(z), Nx.stack([Nx.tensor(1.0), Nx.tensor(2.0)])}
      end

      host = Nx.tensor([3.0, 1.0, 4.0, 1.5])

      inputs = [
        host | for(device <- [0, 1], do: Nx.backend_copy(host, {VulkanoBackend, device: device}))
      ]

      expected = Nx.Defn.jit(fun, compiler: Nx.Defn.Evaluator).(host, host)

      for device <- [0, 1],
          jit = Nx.Vulkan.jit(fun, device: device),
          x <- inputs,
          y <- inputs,
          _ <- 1..3 do
        results = jit.(x, y)

        for {result, expected} <- Enum.zip(Tuple.to_list(results), Tuple.to_list(expected)) do
          assert on?(result, device)
          assert_same(result, expected, :definition)
        end
      end

      there = Nx.with_default_backend(@other, fn -> Nx.Vulkan.jit(&Nx.add(&1, 1)).(host) end)
      assert on?(there, 1)
      assert Nx.Defn.to_backend(compiler: Nx.Vulkan.Compiler, device: 1) == @other
    end

    test "loops of a definition run on its device" do
      jit = Nx.Vulkan.jit(&count/2, device: 1)

      for limit <- [1, 5, 9], _ <- 1..3 do
        {_, x} = jit.(limit, Nx.tensor([1.0, 2.0]))
        assert on?(x, 1)
        assert_same(x, Nx.tensor([1.0 + limit, 2.0 + limit]), :while)
      end
    end

    test "a serving with partitions uses all devices" do
      assert [[device: 0, a: 1], [device: 1, a: 1]] =
               Nx.Vulkan.Compiler.__partitions_options__(a: 1)

      assert [[device: 1]] = Nx.Vulkan.Compiler.__partitions_options__(device: 1)

      serving =
        Nx.Serving.new(
          fn options -> Nx.Defn.jit(&Nx.multiply(&1, 2.0), options) end,
          compiler: Nx.Vulkan.Compiler
        )

      start_supervised!(
        {Nx.Serving,
         name: __MODULE__.Serving,
         serving: serving,
         partitions: true,
         batch_size: 2,
         batch_timeout: 1}
      )

      results =
        1..24
        |> Task.async_stream(
          fn i ->
            batch = Nx.Batch.concatenate([Nx.tensor([[1.0 * i], [2.0 * i]])])
            {i, Nx.Serving.batched_run(__MODULE__.Serving, batch)}
          end,
          max_concurrency: 8
        )
        |> Enum.map(fn {:ok, result} -> result end)

      for {i, result} <- results,
          do: assert_same(result, Nx.tensor([[2.0 * i], [4.0 * i]]), :serving)

      assert results
             |> Enum.map(fn {_, result} -> on?(result, 1) end)
             |> Enum.uniq()
             |> Enum.sort() == [false, true]
    end

    test "processes work on both at a time" do
      1..16
      |> Task.async_stream(
        fn i ->
          backend = {VulkanoBackend, device: rem(i, 2)}

          sum =
            Enum.reduce(
              1..50,
              Nx.broadcast(Nx.tensor(0, backend: backend), {100}),
              &Nx.add(&2, &1 * i)
            )

          sum = Nx.backend_copy(sum, backend)
          assert Nx.to_flat_list(sum) == List.duplicate(1275 * i, 100)
        end,
        timeout: 60_000
      )
      |> Enum.each(&assert({:ok, true} = &1))
    end

    test "a reset loses the tensors of its device alone" do
      host = Nx.tensor([1.0, 2.0, 3.0])

      [kept, lost] =
        for device <- 0..1, do: Nx.backend_copy(host, {VulkanoBackend, device: device})

      number = Nx.tensor(2.0, backend: @other)
      fun = fn x -> Nx.add(Nx.multiply(x, 2.0), Nx.tensor([1.0, 2.0, 3.0])) end
      jit = Nx.Vulkan.jit(fun, device: 1)
      loop = Nx.Vulkan.jit(&accumulate/1, device: 1)
      calls = [fun, &Nx.sum/1, jit, loop]
      for _ <- 1..3, call <- calls, do: call.(lost)
      expected = for call <- calls, do: Nx.backend_copy(call.(kept), Nx.BinaryBackend)

      assert Nx.Vulkan.reset(1) == :ok

      for use <- [
            &Nx.to_binary/1,
            &Nx.add(&1, 1),
            &Nx.add(&1, Nx.tensor([1.0, 1.0, 1.0])),
            &Nx.add(&1, put(host)),
            &Nx.add(put(host), &1),
            &Nx.concatenate([put(host), &1]),
            &Nx.backend_copy(&1, VulkanoBackend),
            &Nx.backend_transfer/1,
            jit,
            loop
          ] do
        error = assert_raise Nx.Vulkan.Error, fn -> use.(lost) end
        assert error.reason == :device_lost
        assert error.message =~ ~r/device 1 \(.*was lost, and its tensors with it: it was reset/
      end

      assert inspect(lost) =~ "device_lost"
      assert {:error, :device_lost, _} = NativeV.buf_download(lost.data.ref)
      assert {:error, :device_lost, _} = NativeV.buf_upload_into(lost.data.ref, <<0::96>>)
      assert Nx.to_binary(kept) == Nx.to_binary(host)
      assert Nx.to_number(number) == 2.0

      # Calls, definitions and loops go on with new tensors, also those that were captured before.
      for {call, expected} <- Enum.zip(calls, expected), _ <- 1..4 do
        result = call.(put(host))
        assert on?(result, 1)
        assert_same(result, expected, :reset)
      end

      assert Nx.backend_deallocate(lost) == :ok
      assert {:error, :no_device, _} = Nx.Vulkan.reset(2)
    end

    test "what a process does while its device is reset ends, and so does a profile" do
      tasks =
        for _ <- 1..6 do
          Task.async(fn ->
            Enum.map(1..30, fn i ->
              try do
                x = Nx.broadcast(Nx.tensor(i, backend: @other), {1000})
                sum = Nx.Vulkan.jit(&Nx.sum(Nx.multiply(&1, 2)), device: 1).(Nx.add(x, 1))
                assert Nx.to_number(sum) == 2000 * (i + 1)
                :right
              rescue
                error in Nx.Vulkan.Error -> error.reason
              end
            end)
          end)
        end

      for _ <- 1..3, do: assert(Nx.Vulkan.reset(1) == :ok)

      assert_raise Nx.Vulkan.Error, ~r/it was reset/, fn ->
        Nx.Vulkan.profile(fn -> Nx.Vulkan.reset(1) end, 1)
      end

      outcomes = tasks |> Task.await_many(120_000) |> List.flatten()
      assert Enum.uniq(outcomes) -- [:right, :device_lost] == []
      assert Enum.all?(tasks, &(not Process.alive?(&1.pid)))
      assert Nx.to_flat_list(Nx.add(put(Nx.tensor([1, 2])), 1)) == [2, 3]
    end

    test "a supervised serving goes on after its restart" do
      serving =
        Nx.Serving.new(
          fn options ->
            weight = Nx.backend_copy(Nx.tensor([2.0]), Nx.Defn.to_backend(options))
            jit = Nx.Defn.jit(&Nx.multiply/2, options)
            &jit.(&1, weight)
          end,
          compiler: Nx.Vulkan.Compiler,
          device: 1
        )

      name = __MODULE__.LostServing
      start_supervised!({Nx.Serving, name: name, serving: serving, batch_timeout: 1})
      run = fn -> Nx.Serving.batched_run(name, Nx.Batch.stack([Nx.tensor([3.0])])) end
      assert_same(run.(), Nx.tensor([[6.0]]), :serving)

      assert Nx.Vulkan.reset(1) == :ok

      ExUnit.CaptureLog.capture_log(fn ->
        failure = catch_exit(run.())
        assert inspect(failure) =~ "was lost"
      end)

      Process.exit(Process.whereis(name), :kill)

      answer = fn _ ->
        try do
          run.()
        catch
          :exit, _restarting -> Process.sleep(50) && nil
        end
      end

      assert_same(Enum.find_value(1..100, answer), Nx.tensor([[6.0]]), :serving)
    end

    test "a profile is of one device" do
      tensor = Nx.iota({64}, type: :f32, backend: @other)
      Nx.to_binary(tensor)

      runs = fn device ->
        Nx.Vulkan.profile(fn -> Nx.to_binary(Nx.exp(tensor)) end, device).commands
      end

      assert runs.(0) == []
      assert runs.(1) != []
    end
  end

  import Nx.Defn

  # The loop runs on the device with constants of its own.
  defnp accumulate(x) do
    {_, x} =
      while {i = 0, x}, i < 70 do
        {i + 1, x + Nx.take(Nx.tensor([1.0, 2.0, 3.0]), Nx.remainder(i, 3))}
      end

    x
  end

  defnp count(limit, x) do
    {i, _, x} =
      while {i = 0, limit, x}, i < limit do
        {i + 1, limit, x + 1}
      end

    {i, x}
  end
end
