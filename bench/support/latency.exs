defmodule Bench.Latency do
  @moduledoc """
  `layers/0` measures a small operation on its way to the device, layer by layer. Each case contains the ones
  before it.

  `processes/0` measures many processes that issue operations concurrently, in microseconds an operation of
  all processes. The value must not grow with the number of processes.
  """

  import Bench.Measure

  require Nx.Vulkan.Native, as: Native

  alias Nx.Vulkan.{NativeV, VulkanoBackend}

  @calls 2000

  def layers do
    [
      {"empty_nif", "us/op", each(fn a, _b -> NativeV.buf_byte_size(a.data.ref) end)},
      {"nif_run_add", "us/op",
       each(fn a, b ->
         {:ok, _} =
           Native.call(
             run(
               [{:add, {:f, 32}, [0, 1]}],
               [{a.data.ref, a.type, a.shape}, {b.data.ref, b.type, b.shape}],
               a.shape
             )
           )
       end)},
      {"backend_add", "us/op", each(fn a, b -> VulkanoBackend.add(a, a, b) end)},
      {"nx_add", "us/op", each(&Nx.add/2)},
      {"nx_add_and_read", "us/op", each(fn a, b -> Nx.to_binary(Nx.add(a, b)) end)},
      {"upload_and_read", "us/op",
       fn ->
         data = Nx.to_binary(normal({1000}, 0))
         repeated(fn -> Nx.to_binary(Nx.from_binary(data, :f32)) end)
       end}
    ]
  end

  def processes do
    for count <- [1, 4, 16, 64] do
      {"add_by_#{count}_processes", "us/op", fn -> concurrent(count) end}
    end
  end

  defp each(fun) do
    fn ->
      {a, b} = {normal({1000}, 0), normal({1000}, 1)}
      repeated(fn -> fun.(a, b) end)
    end
  end

  defp repeated(fun),
    do: median(fn -> Enum.each(1..@calls, fn _ -> fun.() end) end, 7) / @calls * 1.0e6

  # 64,000 operations, shared by `count` processes.
  defp concurrent(count) do
    {a, b} = {normal({1000}, 0), normal({1000}, 1)}
    calls = div(64_000, count)
    work = fn -> Enum.reduce(1..calls, a, fn _, x -> Nx.add(x, b) end) && :ok end

    run = fn ->
      1..count
      |> Enum.map(fn _ -> Task.async(work) end)
      |> Task.await_many(:infinity)
    end

    median(run, 5, 1) / (count * calls) * 1.0e6
  end
end
