# Softmax, norms and their gradients of rows, in f32: the time of one call among a hundred in a row, without waits between them.
#
#     mix run bench/row_kernels.exs
#
# ROWS=8192 and COLUMNS=1024 choose another shape. Prints JSON lines {case, value, unit}: the difference of 110 calls and 10, by 100, the median of
# nine. Gradients are whole definitions, with what they need of the forward pass. bench/row_kernels_peers.py has PyTorch's.

{:ok, _} = Application.ensure_all_started(:nx)

defmodule RowKernels do
  import Nx.Defn

  defn softmax(x) do
    e = Nx.exp(x - Nx.reduce_max(x, axes: [-1], keep_axes: true))
    e / Nx.sum(e, axes: [-1], keep_axes: true)
  end

  # As Axon writes it.
  defn softmax_of_stopped(x) do
    e = Nx.exp(x - stop_grad(Nx.reduce_max(x, axes: [-1], keep_axes: true)))
    e / Nx.sum(e, axes: [-1], keep_axes: true)
  end

  defn log_softmax(x) do
    shifted = x - Nx.reduce_max(x, axes: [-1], keep_axes: true)
    shifted - Nx.log(Nx.sum(Nx.exp(shifted), axes: [-1], keep_axes: true))
  end

  defn layer_norm(x) do
    centred = x - Nx.mean(x, axes: [-1], keep_axes: true)
    centred * Nx.rsqrt(Nx.mean(centred * centred, axes: [-1], keep_axes: true) + 1.0e-5)
  end

  defn(rms_norm(x), do: x * Nx.rsqrt(Nx.mean(x * x, axes: [-1], keep_axes: true) + 1.0e-5))

  defn(softmax_gradient(x, y), do: grad(x, &Nx.sum(y * softmax(&1))))
  defn(softmax_of_stopped_gradient(x, y), do: grad(x, &Nx.sum(y * softmax_of_stopped(&1))))
end

Nx.default_backend(Nx.Vulkan.VulkanoBackend)

[rows, columns] =
  for {name, n} <- [{"ROWS", "8192"}, {"COLUMNS", "1024"}],
      do: name |> System.get_env(n) |> String.to_integer()

{x, key} = Nx.Random.normal(Nx.Random.key(1), 0.0, 1.0, shape: {rows, columns}, type: :f32)
{y, _key} = Nx.Random.normal(key, 0.0, 1.0, shape: {rows, columns}, type: :f32)

for {name, fun, args} <- [
      {"softmax", &RowKernels.softmax/1, [x]},
      {"log_softmax", &RowKernels.log_softmax/1, [x]},
      {"layer_norm", &RowKernels.layer_norm/1, [x]},
      {"rms_norm", &RowKernels.rms_norm/1, [x]},
      {"softmax_gradient", &RowKernels.softmax_gradient/2, [x, y]},
      {"softmax_of_stopped_gradient", &RowKernels.softmax_of_stopped_gradient/2, [x, y]}
    ] do
  fun = Nx.Defn.jit(fun, compiler: Nx.Vulkan.Compiler)

  run = fn calls ->
    {us, :ok} =
      :timer.tc(fn ->
        for _ <- 1..calls, do: apply(fun, args)
        Nx.Vulkan.synchronize()
      end)

    us
  end

  for _ <- 1..3, do: run.(20)
  times = Enum.sort(for _ <- 1..9, do: (run.(110) - run.(10)) / 100)
  IO.puts(~s({"case": "#{name}", "value": #{Enum.at(times, 4)}, "unit": "us"}))
end
