defmodule Bench.Latency do
  @moduledoc """
  What a small operation costs on its way to the device, layer by layer: each case contains those before
  it. And what many processes cost that issue operations at once: microseconds an operation of all of
  them together, which must not grow with their number.
  """

  import Bench.Measure

  require Nx.Vulkan.Native, as: Native

  alias Nx.Vulkan.{NativeV, VulkanoBackend}

  @calls 2000

  def layers do
    [
      {"call_of_a_nif", "us/op", each(fn a, _b -> NativeV.buf_byte_size(a.data.ref) end)},
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
      {"add_by_#{count}_processes", "us/op", fn -> together(count) end}
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

  # 64,000 operations in all.
  defp together(count) do
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
