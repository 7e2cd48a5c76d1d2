# The kernels of guides/kernels.md beside the plain definitions of the same results.
#
#     mix run -r bench/support/measure.exs bench/kernels.exs [SCALE]
#
# Prints JSON lines: the time of a call with the wait shared by all calls in a row, of the kernel and of the plain definition, both
# compiled by Nx.Vulkan.Compiler, in alternation. SCALE multiplies the rows; 1 is for a CPU, 16 for a GPU.

{:ok, _} = Application.ensure_all_started([:telemetry, :nx])
Application.ensure_all_started(:nx_vulkan)
Nx.default_backend(Nx.Vulkan.VulkanoBackend)
import Bench.Measure

scale = String.to_integer(List.first(System.argv()) || "1")

for [_, code] <-
      Regex.scan(~r/```elixir\n(defmodule .*?\nend\n)/s, File.read!("guides/kernels.md")),
    do: Code.eval_string(code)

rows = 512 * scale
side = 512 * round(:math.sqrt(scale))
codes = Nx.multiply(Nx.iota({rows, 512}, type: :u32), Nx.tensor(2_654_435_761, type: :u32))

cases = [
  {"row_softmax", {rows, 1024}, &RowSoftmax.softmax/1, &RowSoftmax.plain/1,
   [normal({rows, 1024}, 1)]},
  {"heat", {side, side}, &Heat.four_steps/1, &Heat.plain/1, [normal({side, side}, 2)]},
  {"quantised_matvec", {rows, 4096}, &Quantised.matvec/4, &Quantised.plain/4,
   [codes, normal({rows, 64}, 3), normal({16}, 4), normal({4096}, 5)]}
]

us = fn fun, args ->
  for _ <- 1..5, do: apply(fun, args)
  :ok = Nx.Vulkan.synchronize()
  start = System.monotonic_time(:nanosecond)
  for _ <- 1..50, do: apply(fun, args)
  :ok = Nx.Vulkan.synchronize()
  Float.round((System.monotonic_time(:nanosecond) - start) / 50_000, 1)
end

for {name, {m, n}, kernel, plain, args} <- cases do
  [kernel, plain] = for f <- [kernel, plain], do: Nx.Defn.jit(f, compiler: Nx.Vulkan.Compiler)
  close = Nx.all_close(apply(kernel, args), apply(plain, args), rtol: 1.0e-3, atol: 1.0e-3)
  [a, b] = for f <- [kernel, plain], do: for(_ <- 1..3, do: us.(f, args))

  IO.puts(
    ~s({"case": "#{name}", "size": "#{m}x#{n}", "kernel_us": #{inspect(a)}, "plain_us": #{inspect(b)}, "same": #{Nx.to_number(close)}})
  )
end
