Code.require_file("../native/support/native_case.exs", __DIR__)

defmodule Nx.Vulkan.HungDeviceTest do
  @moduledoc """
  A device that is really lost: a kernel of a user's loops without end, in a BEAM of its own. It takes one of the CPU's cores until
  that BEAM exits. On a GPU it would stop what the machine displays.
  """

  use Nx.Vulkan.Test.Case, async: true

  import Nx.Vulkan.Test.NativeCase, only: [in_own_beam: 2]

  # Mesa ends a loop after 65,535 iterations on some drivers: those of five loops within each other take years.
  @kernel """
  {:ok, _} = Application.ensure_all_started(:nx_vulkan)
  Nx.default_backend(Nx.Vulkan.VulkanoBackend)

  defmodule Doubling do
    # Doubles the input. Where its first element is negative it never ends.
    @kernel Nx.Vulkan.Kernel.new(
              name: "doubling",
              inputs: [x: :f32],
              outputs: [y: :f32],
              workgroup: 1,
              source: \"""
              void main() {
                y[0] = x[0];
                while (y[0] < 0.0)
                  while (y[0] < 0.0)
                    while (y[0] < 0.0)
                      while (y[0] < 0.0)
                        while (y[0] < 0.0) y[0] = y[0] * 1.5 - 1.0;
                for (uint i = 0u; i < y_size; i++) y[i] = x[i] * 2.0;
              }
              \"""
            )

    def run(x), do: Nx.Vulkan.Kernel.call(@kernel, [x], x, grid: 1, default: &Nx.multiply(&1, 2))
  end

  lost? = fn text -> text =~ ~r/^(.*: )?device 0 \\(.*\\) was lost, and its tensors with it: the device has finished nothing for 2 s$/ end
  now = fn -> System.monotonic_time(:millisecond) end
  """

  @env [{"NX_VULKAN_TIMEOUT", "2"}]

  # The last thing that the BEAM says is when it exits.
  defp exits_soon(output) do
    assert [_, exiting] = Regex.run(~r/exits at (\d+)$/, String.trim(output)), output
    assert System.os_time(:second) - String.to_integer(exiting) < 60
  end

  @moduletag :endless

  test "a kernel without an end is an error of each call, and of no other process" do
    output =
      in_own_beam(
        @kernel <>
          """
          kept = Nx.add(Nx.iota({4}, type: :f32), 1)
          [1.0, 2.0, 3.0, 4.0] = Nx.to_list(kept)
          [2.0, 4.0, 6.0, 8.0] = Nx.to_list(Doubling.run(kept))

          # A process that needs no device is never held up.
          ticks = :counters.new(1, [])
          tick = fn tick -> :counters.add(ticks, 1, 1); Process.sleep(10); tick.(tick) end
          spawn(fn -> tick.(tick) end)

          began = now.()
          endless = Doubling.run(Nx.negate(kept))
          waiting = for _ <- 1..3, do: Task.async(fn ->
            try do Nx.to_binary(endless) rescue error in Nx.Vulkan.Error -> error end
          end)
          errors = Task.await_many(waiting, 60_000)
          took = now.() - began
          IO.inspect(took, label: "took")
          true = took in 1_900..30_000
          true = Enum.all?(errors, &(&1.reason == :device_lost and lost?.(&1.message)))
          # Beside a busy thread some machines wake a process every 150 ms.
          true = :counters.get(ticks, 1) > 5

          # Later calls fail at once, by the first failure.
          began = now.()
          for use <- [&Nx.to_binary/1, &Nx.add(&1, 1), &Nx.sum/1, &Doubling.run/1], tensor <- [kept, endless] do
            error = try do use.(tensor) rescue error in Nx.Vulkan.Error -> error end
            true = error.reason == :device_lost and lost?.(error.message)
          end
          {:error, :device_lost, text} = Nx.Vulkan.NativeV.buf_download(kept.data.ref)
          true = lost?.(text)
          true = now.() - began < 1_000

          # A new tensor opens the device anew.
          [2.0, 4.0] = Nx.to_list(Doubling.run(Nx.tensor([1.0, 2.0])))
          IO.puts("exits at \#{System.os_time(:second)}")
          """,
        @env
      )

    exits_soon(output)
  end

  test "a supervised serving goes on after its restart" do
    output =
      in_own_beam(
        @kernel <>
          """
          # The weight is made where the serving starts.
          serving = Nx.Serving.new(fn options ->
            weight = Nx.backend_copy(Nx.tensor([10.0, 20.0]), Nx.Defn.to_backend(options))
            jit = Nx.Defn.jit(fn x, weight -> Nx.add(Doubling.run(x), weight) end, options)
            &jit.(&1, weight)
          end, compiler: Nx.Vulkan.Compiler)

          {:ok, _} = Supervisor.start_link([{Nx.Serving, name: Served, serving: serving, batch_timeout: 1}], strategy: :one_for_one)
          run = fn first -> Nx.to_flat_list(Nx.Serving.batched_run(Served, Nx.Batch.stack([Nx.tensor([first, 2.0])]))) end
          caught = fn first ->
            try do
              run.(first)
            rescue
              error in Nx.Vulkan.Error -> error.message
            catch
              :exit, reason -> inspect(reason, limit: :infinity, printable_limit: :infinity)
            end
          end

          outside = Nx.add(Nx.iota({4}, type: :f32), 1)
          [12.0, 24.0] = run.(1.0)

          # The call that hangs fails where its result is read, and later ones as the weight is lost. Neither ends the serving.
          pid = Process.whereis(Served)
          for first <- [-1.0, 1.0], do: true = caught.(first) =~ ~r/device 0 .* was lost, and its tensors with it: the device has finished nothing for 2 s/
          ^pid = Process.whereis(Served)

          Process.exit(pid, :kill)
          again = Enum.find_value(1..100, fn _ ->
            case caught.(1.0) do
              answer when is_list(answer) -> answer
              _restarting -> Process.sleep(50) && nil
            end
          end)
          [12.0, 24.0] = again
          error = try do Nx.to_binary(outside) rescue error in Nx.Vulkan.Error -> error end
          true = error.reason == :device_lost and lost?.(error.message)
          IO.puts("exits at \#{System.os_time(:second)}")
          """,
        @env
      )

    exits_soon(output)
  end
end
