# What `Nx.Vulkan.Compiler` and, beside it, `Nx.Defn.Evaluator` take to trace and compile a definition, without its kernels: a
# training step of BERT with parameters of bf16, by its number of layers. Layers are narrow, as shapes do not count. The first
# call compiles a step of one layer.
#
#     mix run -r bench/support/measure.exs -r bench/support/training.exs -r bench/support/bert.exs bench/compile_time.exs
#
# Prints JSON lines {case, value, unit}; of each case the least of three.

{:ok, _} = Application.ensure_all_started(:nx)
Nx.default_backend(Nx.Vulkan.VulkanoBackend)

compile = fn layers, compiler ->
  model = Bench.Bert.model(%{Bench.Bert.sizes(:cpu) | layers: layers})
  inputs = [Bench.Training.state(model), model.batch.()]
  step = &Bench.Training.step(&1, &2, model, :bf16)
  {us, _} = :timer.tc(fn -> Nx.Defn.compile(step, inputs, compiler: compiler) end)
  us / 1000
end

compile.(1, Nx.Vulkan.Compiler)

for layers <- [6, 12, 24, 48],
    {name, compiler} <- [evaluator: Nx.Defn.Evaluator, compiler: Nx.Vulkan.Compiler] do
  value = 1..3 |> Enum.map(fn _ -> compile.(layers, compiler) end) |> Enum.min() |> round()
  IO.puts(~s({"case": "#{name}_bert_step_of_#{layers}_layers", "value": #{value}, "unit": "ms"}))
end
