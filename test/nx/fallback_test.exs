defmodule Nx.Vulkan.FallbackTest do
  @moduledoc "What has no kernel runs on BinaryBackend: counted, announced, forbidden if asked."

  # The counters are the whole BEAM's.
  use Nx.Vulkan.Test.Case, async: false

  import ExUnit.CaptureLog

  setup do
    Fallbacks.allow()
    Fallback.put_mode(nil)
    Fallback.reset()
    on_exit(fn -> Application.put_env(:nx_vulkan, :fallback, :allow) end)
  end

  # The one thing that cannot run on any device: a function that must know its numbers.
  defp larger(x, acc), do: if(Nx.to_number(x) > Nx.to_number(acc), do: x, else: acc)

  test "gives BinaryBackend's result, on the device" do
    tensor = Generators.tensor({3, 5}, {:f, 32}, {:float, -1.0, 1.0})

    for {op, fun} <- [
          reduce: &Nx.reduce(&1, 0.0, [axes: [1]], fn x, acc -> larger(x, acc) end),
          window_reduce: &Nx.window_reduce(&1, 0.0, {2, 2}, fn x, acc -> larger(x, acc) end)
        ] do
      before = Fallback.count(op)
      assert_same(fun.(to_device(tensor)), nearest(fun, tensor), op)
      assert Fallback.count(op) > before
      assert Fallback.counts()[op] == Fallback.count(op)
    end

    assert Fallback.count() == Fallback.counts() |> Map.values() |> Enum.sum()
    Fallback.reset()
    assert Fallback.count() == 0
    assert Fallback.counts() == %{}
  end

  test "floats of 8 and 16 bits are rounded to nearest even" do
    for type <- Generators.float_types(), other <- [{:f, 32}, {:f, 64}, {:s, 64}, type] do
      [x, y] = for t <- [type, other], do: Generators.tensor({60}, t, :moderate)
      doubles = Generators.tensor({300}, {:f, 64}, :any)

      for {op, args, fun} <- [
            {:as_type, [doubles], fn [x] -> Nx.as_type(x, type) end},
            {:add, [x, y], fn [x, y] -> Nx.add(x, y) end},
            {:multiply, [x, y], fn [x, y] -> Nx.multiply(x, y) end},
            {:concatenate, [[x, y], 0], fn [[x, y], 0] -> Nx.concatenate([x, y]) end}
          ] do
        expected = nearest(fun, args)
        out = Nx.template(expected.shape, expected.type)
        got = Fallback.call(op, out, args, "a test")
        assert_same(got, expected, op, type: type, other: other)
      end
    end
  end

  test "transforms of any axis and length are those of the device" do
    for _ <- 1..40, op <- [:fft, :ifft] do
      shape = Generators.pick([{1}, {5}, {1, 3}, {4, 2, 3}, {2, 1, 3, 2}])
      axis = :rand.uniform(tuple_size(shape)) - 1
      length = Generators.pick([1, 2, 3, elem(shape, axis)])
      tensor = Generators.tensor(shape, Generators.pick(u: 8, f: 32, c: 64), {:integer, 0..9})
      device = apply(Nx, op, [to_device(tensor), [axis: axis, length: length]])
      out = Nx.template(device.shape, device.type)
      got = Fallback.call(op, out, [tensor, [eps: 1.0e-5, axis: axis, length: length]], "a test")
      assert_near(got, host(device), transform_error(length, 9), {op, shape, axis, length})
    end
  end

  test "functions given to reduce see tensors of BinaryBackend and may close over device tensors" do
    Nx.default_backend(VulkanoBackend)
    tensor = Nx.tensor([[1, 2], [3, 4]])
    bias = Nx.tensor(10)
    parent = self()

    fun = fn x, acc ->
      send(parent, {x.data.__struct__, Nx.tensor(0).data.__struct__})
      assert Nx.to_number(x) > 0
      Nx.add(Nx.add(x, acc), bias)
    end

    result = Nx.reduce(tensor, 0, [axes: [1]], fun)
    assert Nx.to_flat_list(result) == [23, 27]
    assert %VulkanoBackend{} = result.data
    assert_received {Nx.BinaryBackend, Nx.BinaryBackend}
    assert Nx.default_backend() == {VulkanoBackend, []}
  end

  test "what runs on the device is not counted" do
    tensor = to_device(Nx.iota({4, 4}, type: :f32))
    Nx.sum(Nx.dot(Nx.add(tensor, 1), Nx.transpose(tensor)))
    assert Fallback.count() == 0
  end

  test "mode :warn logs the operation, its operands and why" do
    Fallback.put_mode(:warn)
    tensor = to_device(Nx.tensor([[3, 1]]))
    log = capture_log(fn -> Nx.reduce(tensor, 0, &larger/2) end)
    assert log =~ "reduce(s32[1, 2], s32[]) runs on the CPU"
    assert Fallback.count(:reduce) == 1
  end

  test "mode :raise does nothing else" do
    Fallback.put_mode(:raise)
    tensor = to_device(Nx.tensor([3, 1]))

    error = assert_raise Fallback.Error, fn -> Nx.reduce(tensor, 0, &larger/2) end
    assert error.op == :reduce
    assert error.message =~ "reduce(s32[2], s32[]) cannot run on the device"
    assert Fallback.count() == 0
  end

  test "the mode of a process wins over the configured one and is its own" do
    assert Fallback.mode() == :allow
    Application.put_env(:nx_vulkan, :fallback, :raise)
    assert Fallback.mode() == :raise
    assert Fallback.put_mode(:warn) == nil
    assert Fallback.mode() == :warn
    assert Task.await(Task.async(&Fallback.mode/0), :infinity) == :raise
    assert Fallback.put_mode(nil) == :warn
    assert Fallback.mode() == :raise

    Application.put_env(:nx_vulkan, :fallback, :never)
    assert_raise ArgumentError, ~r/:allow, :warn, :raise/, fn -> Fallback.mode() end
  end

  test "telemetry tells the operation and the shapes" do
    parent = self()
    id = make_ref()

    :telemetry.attach(id, [:nx_vulkan, :fallback], &__MODULE__.tell/4, {parent, id})
    on_exit(fn -> :telemetry.detach(id) end)

    Nx.reduce(to_device(Nx.iota({2, 3})), Nx.tensor(1, type: :u8), &larger/2)

    assert_received {^id, %{duration: duration}, metadata}
    assert duration > 0
    assert metadata.op == :reduce
    assert metadata.shapes == [{2, 3}, {}]
    assert metadata.types == [{:s, 32}, {:u, 8}]
    assert is_binary(metadata.reason)
  end

  def tell(_event, measurements, metadata, {pid, id}), do: send(pid, {id, measurements, metadata})

  describe "the default backend" do
    test "is the caller's again, whatever happens" do
      for default <- [{Nx.BinaryBackend, []}, {VulkanoBackend, []}] do
        Nx.default_backend(default)
        Nx.reduce(to_device(Nx.tensor([2, 1])), 0, &larger/2)
        assert Nx.default_backend() == default

        assert_raise RuntimeError, fn ->
          Nx.reduce(to_device(Nx.tensor([1])), 0, fn _, _ -> raise "no" end)
        end

        assert Nx.default_backend() == default
      end
    end

    test "does not leak into blocks" do
      for default <- [Nx.BinaryBackend, VulkanoBackend] do
        Nx.default_backend(default)
        tensor = to_device(Nx.tensor([[4.0, 1.0], [1.0, 3.0]]))

        for result <- [
              Nx.LinAlg.cholesky(tensor),
              Nx.LinAlg.determinant(tensor),
              Nx.cumulative_sum(tensor),
              Nx.logical_not(tensor),
              Nx.block(%{__struct__: __MODULE__}, [tensor], tensor, fn _, _ -> Nx.iota({2}) end)
            ] do
          assert %VulkanoBackend{} = result.data
        end

        assert Nx.default_backend() == {default, []}
      end
    end
  end
end
