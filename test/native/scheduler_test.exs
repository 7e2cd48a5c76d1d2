Code.require_file("support/native_case.exs", __DIR__)

defmodule Nx.Vulkan.Native.SchedulerTest do
  @moduledoc """
  A call on a normal scheduler answers `:defer`, `:pending` or `:collect` where it would have to build, copy
  much, wait or allocate.

  These tests look at the answers and not at a clock: `Nx.Vulkan.SchedulerTest` does, on a quiet machine.
  """

  use Nx.Vulkan.Test.NativeCase, async: true

  @moduletag timeout: 1_800_000

  test "without a device every call is deferred" do
    in_own_beam(
      """
      alias Nx.Vulkan.Native
      :defer = Native.sync(nil)
      :defer = Native.buf_alloc(8, nil)
      :defer = Native.buf_upload(<<1>>, nil)
      """,
      []
    )
  end

  # Were a call to wait for the build, this would not end.
  @tag :tmp_dir
  test "while a pipeline is being built every call answers", %{tmp_dir: folder} do
    while_building(
      """
      {:ok, device} = Nx.Vulkan.device_info()
      # The pool has free memory of the sizes that are made below.
      for {:ok, ref} <- for(_ <- 1..20, do: NativeV.buf_alloc(4)), do: :ok = Native.buf_free(ref)

      # A kernel is built on a dirty scheduler, and then it is there.
      call = [[{:add, f32, [0, 0]}], [{x, f32, {1}}], {1}, nil]
      :defer = apply(Native, :run, call)
      {:built, %{pipelines: 1}, {:ok, _}} = apply(Native, :run_dirty, call)
      {:ok, sum} = apply(Native, :run, call)

      # A module of the caller is deferred as well.
      call = [sum, x, x, 1, 0, "#{spv("elementwise_binary")}"]
      :defer = apply(Native, :apply_binary, call)
      {:built, %{pipelines: 1}, :ok} = apply(Native, :apply_binary_dirty, call)
      :ok = apply(Native, :apply_binary, call)

      # Large copies.
      large = :binary.copy(<<0>>, 1_000_000)
      {:ok, buffer} = NativeV.buf_upload(large)
      :defer = Native.buf_upload(large, nil)
      :defer = Native.buf_upload_into(buffer, large)
      :defer = Native.pack(large, 2, 8)
      :defer = Native.unpack(large, 2, 8, 4_000_000)

      # Memory that the pool has not.
      :collect = Native.buf_alloc(100_000_000, nil)

      # Waiting for the device: a CPU device needs the scheduler's core.
      busy = if device.type == :cpu, do: [:defer], else: [:defer, :pending]
      answer = Native.buf_download(sum)
      true = match?({:ok, _}, answer) or match?({:pending, _}, answer) or answer == :defer
      true = Native.sync(nil) in [:ok | busy]
      IO.puts("release")
      receive do: ({:DOWN, ^builder, :process, _, :normal} -> :ok)
      """,
      folder
    )
  end
end
