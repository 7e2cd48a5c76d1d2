# What quantized weights do to the predictions of a decoder of GPT-2 small's size with random weights: the divergence from those of f32, in
# nats a token, over a text of 128 random tokens.
#
#     mix run -r bench/support/decoder.exs bench/quantization.exs
#
# LAYERS=12, WIDTH=768, HEADS=12, TOKENS=50257 and LENGTH=128 choose another size. Prints JSON lines {case, value, unit}.

{:ok, _} = Application.ensure_all_started(:nx)
Nx.default_backend(Nx.Vulkan.VulkanoBackend)
setting = fn name, default -> String.to_integer(System.get_env(name, "#{default}")) end
tokens = setting.("TOKENS", 50257)
params = Bench.Decoder.parameters(setting.("LAYERS", 12), setting.("WIDTH", 768), tokens)
ids = Nx.remainder(Nx.multiply(Nx.iota({setting.("LENGTH", 128)}), 7919), tokens)
heads = setting.("HEADS", 12)

predict =
  Nx.Defn.jit(&Bench.Decoder.log_probabilities(&1, &2, heads: heads),
    compiler: Nx.Vulkan.Compiler
  )

expected = predict.(params, ids)

for options <- [
      [type: :s8],
      [type: :u8],
      [type: :s8, group: 64],
      [type: :s4, group: 32],
      [type: :u4, group: 32],
      [type: :s4, group: 64]
    ] do
  value =
    Bench.Decoder.divergence(expected, predict.(Bench.Decoder.quantize(params, options), ids))

  name = Enum.map_join(options, "_", fn {_, value} -> "#{value}" end)

  IO.puts(
    ~s({"case": "divergence_#{name}", "value": #{Float.round(value, 6)}, "unit": "nats/token"})
  )
end
