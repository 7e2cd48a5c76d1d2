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

  test "has the kernels of a definition that is replayed" do
    fun = Nx.Vulkan.jit(fn x -> {Nx.tanh(Nx.add(x, 1)), Nx.dot(x, x)} end)
    x = to_device(Nx.iota({8, 8}, type: :f32))
    for _ <- 1..4, do: fun.(x)
    profile = Nx.Vulkan.profile(fn -> for _ <- 1..3, do: fun.(x) end)
    assert [%{runs: 3, name: name}] = kernel(profile, "tanh")
    assert name =~ "add"
    assert Enum.all?(profile.kernels, &(rem(&1.runs, 3) == 0))
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
