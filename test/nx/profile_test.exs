defmodule Nx.Vulkan.ProfileTest do
  @moduledoc "`Nx.Vulkan.profile/1`: what ran, how often, and for how long."

  # A profile has what all processes do.
  use Nx.Vulkan.Test.Case, async: false

  alias Nx.Vulkan.Profile

  defp kernel(profile, name), do: Enum.filter(profile.kernels, &(&1.name =~ name))

  test "has each kernel with its operations, runs, sizes and times" do
    x = to_device(Nx.iota({1000}, type: :f32))

    profile =
      Nx.Vulkan.profile(fn ->
        for _ <- 1..5, do: Nx.exp(x)
        Nx.to_number(Nx.sum(x))
      end)

    assert profile.result == 499_500.0
    assert [%{runs: 5, device_us: device, host_us: host} = exp] = kernel(profile, "exp")
    assert device > 0 and host > 0
    assert exp.read >= 4000 and exp.written >= 4000
    assert {_, _, 1} = exp.grid
    assert [_ | _] = kernel(profile, "sum")
    assert [%{grid: nil, read: 4}] = kernel(profile, "copy to host")
    assert profile.device_us <= profile.wall_us
    assert profile.dropped == 0
  end

  test "has one copy of a read that waits for long" do
    x = to_device(Nx.broadcast(0.001, {1000, 1000}))
    product = fn -> Enum.reduce(1..20, x, fn _, y -> Nx.dot(y, x) end)[0][0] |> Nx.to_number() end
    product.()
    profile = Nx.Vulkan.profile(product)
    assert_in_delta profile.result, 0.001, 1.0e-6
    assert [%{runs: 1}] = kernel(profile, "copy to host")
  end

  test "has the kernels of a definition that is replayed" do
    fun = Nx.Vulkan.jit(fn x -> {Nx.tanh(Nx.add(x, 1)), Nx.dot(x, x)} end)
    x = to_device(Nx.iota({8, 8}, type: :f32))
    for _ <- 1..4, do: fun.(x)
    profile = Nx.Vulkan.profile(fn -> for _ <- 1..3, do: fun.(x) end)
    assert [%{runs: 3, name: name}] = kernel(profile, "tanh")
    assert name =~ "add"
    assert Enum.all?(profile.kernels, &(rem(&1.runs, 3) == 0))
  end

  test "has two kernels of a product and the largest of its many elements" do
    greedy = fn x, w -> x |> Nx.dot(w) |> Nx.multiply(0.5) |> Nx.argmax(axis: -1) end
    args = for shape <- [{1, 64}, {64, 40_000}], do: to_device(Nx.iota(shape, type: :f32))
    fun = Nx.Vulkan.jit(greedy)
    for _ <- 1..3, do: apply(fun, args)
    profile = Nx.Vulkan.profile(fn -> apply(fun, args) end)
    if builds_loops?(), do: assert(Enum.sum_by(profile.kernels, & &1.runs) == 2)
  end

  test "has the pipelines that were made, the most memory and a copy's rate" do
    x = to_device(Nx.iota({262_144}, type: :f32))
    # No other test has these operations in this order.
    ops = for _ <- 1..20, do: Enum.random([&Nx.negate/1, &Nx.abs/1, &Nx.floor/1, &Nx.sign/1])
    new = Nx.Vulkan.jit(fn x -> Enum.reduce(ops, x, & &1.(&2)) end)
    first = Nx.Vulkan.profile(fn -> Nx.to_number(new.(x)[0]) end)
    again = Nx.Vulkan.profile(fn -> Nx.to_number(new.(x)[0]) end)
    assert %{count: count, from_disk: from_disk, us: us} = first.pipelines
    assert count >= 1 and from_disk in 0..count and us > 0
    assert again.pipelines == %{count: 0, from_disk: 0, us: 0.0}
    assert first.copy_gbps > 0 and first.copy_gbps == again.copy_gbps

    %{result: results} = held = Nx.Vulkan.profile(fn -> for _ <- 1..3, do: Nx.exp(x) end)
    assert held.most_used_bytes >= 4 * Nx.byte_size(x)
    Enum.each(results, &Nx.backend_deallocate/1)
    memory = Nx.Vulkan.memory_info()
    assert memory.most_used_bytes >= memory.used_bytes + 3 * Nx.byte_size(x)
  end

  test "has the arithmetic operations of products, attention and fused kernels" do
    tensor = fn shape -> to_device(Nx.divide(Nx.iota(shape, type: :f32), 1000)) end

    [x, y, image, filter] =
      for shape <- [{40, 50}, {50, 60}, {2, 3, 16, 16}, {4, 3, 3, 3}], do: tensor.(shape)

    [rows, heads] = [tensor.({3, 50}), tensor.({2, 8, 16})]

    attention =
      Nx.Vulkan.jit(fn q ->
        scores = Nx.dot(q, [2], [0], q, [2], [0])
        weights = Nx.exp(Nx.subtract(scores, Nx.reduce_max(scores, axes: [-1], keep_axes: true)))
        weights = Nx.divide(weights, Nx.sum(weights, axes: [-1], keep_axes: true))
        Nx.dot(weights, [2], [0], q, [1], [0])
      end)

    fused = Nx.Vulkan.jit(fn x -> Nx.sum(Nx.multiply(Nx.add(x, 1), 2), axes: [1]) end)

    softmax =
      Nx.Vulkan.jit(fn x ->
        e = Nx.exp(x)
        Nx.divide(e, Nx.sum(e, axes: [1], keep_axes: true))
      end)

    for {fun, operations} <- [
          {fn -> Nx.dot(x, y) end, 2 * 40 * 50 * 60},
          {fn -> Nx.dot(rows, y) end, 2 * 3 * 50 * 60},
          {fn -> Nx.conv(image, filter) end, 2 * 2 * 4 * 14 * 14 * 3 * 3 * 3},
          # Where it is no kernel of its own, its softmax has five operations an element.
          {fn -> attention.(heads) end, [2 * 2 * 8 * 8 * 32, 2 * 2 * 8 * 8 * 32 + 5 * 2 * 8 * 8]},
          {fn -> fused.(x) end, 3 * 40 * 50},
          # An exponential, a sum and a division for each element.
          {fn -> softmax.(x) end, 3 * 40 * 50},
          {fn -> Nx.as_type(x, :s32) end, 0},
          {fn -> Nx.sort(x) end, 0}
        ],
        # The third call is replayed.
        _ <- 1..3 do
      profile = Nx.Vulkan.profile(fun)

      # Sums may be in two passes, whose second adds up as many partial sums as the device was given workgroups.
      counted =
        for %{operations: count, runs: runs, name: name} <- profile.kernels,
            count && not (name =~ "combine"),
            do: count * runs

      assert Enum.sum(counted) in List.wrap(operations), inspect(profile)
    end

    assert %{product_gops: gops} =
             profile = Nx.Vulkan.profile(fn -> {Nx.dot(x, y), Nx.sort(x)} end)

    assert gops > 0
    [header | rows] = profile |> Profile.table() |> String.split("\n") |> tl()
    assert header =~ "Gop/s  of-product"
    assert Enum.any?(rows, &(&1 =~ ~r/\d+\.\d +\d+% +\S+  (matmul|panel)/))
    assert Enum.any?(rows, &(&1 =~ ~r/ - +- +\S+  (mergesort|radix)/))
  end

  test "times of the device are in order, and begin after they were recorded" do
    x = to_device(Nx.iota({64}, type: :f32))

    %{commands: commands} =
      Nx.Vulkan.profile(fn -> Enum.reduce(1..200, x, fn _, x -> Nx.add(x, 1) end) end)

    assert length(commands) == 200

    for [one, next] <- Enum.chunk_every(commands, 2, 1, :discard) do
      assert one.begin_us + one.device_us <= next.begin_us + 0.002
      assert one.recorded_us <= one.begin_us + 0.002
    end
  end

  test "nothing is kept of what runs outside, or where the function raises" do
    x = to_device(Nx.iota({64}, type: :f32))
    assert_raise RuntimeError, "no", fn -> Nx.Vulkan.profile(fn -> raise "no" end) end
    Nx.exp(x)
    assert Nx.Vulkan.profile(fn -> :none end).commands == []
  end

  test "there is one profile at a time, which ends with its process" do
    Nx.Vulkan.profile(fn ->
      assert_raise ArgumentError, ~r/on already/, fn -> Nx.Vulkan.profile(fn -> :ok end) end
    end)

    parent = self()

    {pid, monitor} =
      spawn_monitor(fn ->
        Nx.Vulkan.profile(fn ->
          send(parent, :on)
          Process.sleep(:infinity)
        end)
      end)

    assert_receive :on, 5000
    Process.exit(pid, :kill)
    assert_receive {:DOWN, ^monitor, _, _, _}
    assert profile_soon(50).result == :mine
  end

  # A process that was killed drops what it refers to some time later.
  defp profile_soon(tries) do
    Nx.Vulkan.profile(fn -> :mine end)
  rescue
    error in ArgumentError ->
      if tries == 0, do: reraise(error, __STACKTRACE__)
      Process.sleep(20)
      profile_soon(tries - 1)
  end

  @tag :tmp_dir
  test "of a script, by mix nx_vulkan.profile", %{tmp_dir: folder} do
    [script, trace] = for name <- ~w(script.exs trace.json), do: Path.join(folder, name)

    File.write!(script, """
    [runs] = System.argv()
    x = Nx.iota({64}, type: :f32, backend: Nx.Vulkan.VulkanoBackend)
    for _ <- 1..String.to_integer(runs), do: Nx.sin(x)
    """)

    arguments = System.argv()
    on_exit(fn -> System.argv(arguments) end)
    Mix.shell(Mix.Shell.Process)
    on_exit(fn -> Mix.shell(Mix.Shell.IO) end)
    Mix.Tasks.NxVulkan.Profile.run(["--trace", trace, script, "3"])
    assert_received {:mix_shell, :info, [table]}
    assert table =~ ~r/^ +3 .* map sin → f32$/m
    assert length(String.split(File.read!(trace), "map sin")) == 1 + 2 * 3

    for arguments <- [[], ["--trace"], ["missing.exs"], ["--other", script]],
        do: assert_raise(Mix.Error, fn -> Mix.Tasks.NxVulkan.Profile.run(arguments) end)
  end

  test "inspects as a table, and is a trace for Chrome" do
    x = to_device(Nx.iota({64}, type: :f32))
    profile = Nx.Vulkan.profile(fn -> Nx.to_number(Nx.sum(Nx.cos(x))) end)
    text = inspect(profile)
    assert text =~ ~r/^#Nx.Vulkan.Profile<\n  \d+ commands, device [\d.]+ µs/
    for %{name: name} <- profile.kernels, do: assert(text =~ name)

    trace = Profile.to_chrome_trace(profile)
    on_device = Regex.scan(~r/^{"name":"([^"]*)","ph":"X","pid":1,"tid":2,/m, trace)
    assert Enum.map(on_device, &List.last/1) == Enum.map(profile.commands, & &1.name)
    assert trace =~ ~s({"name":"wait","ph":"X")
  end
end
