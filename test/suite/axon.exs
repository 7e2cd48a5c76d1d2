# Runs Axon's own tests, from the checkout that Mix uses; suite.exs says how:
#
#     MIX_ENV=test mix run test/suite/axon.exs [FILE...]

Code.require_file("suite.exs", __DIR__)
Nx.Defn.global_default_options(compiler: Nx.Vulkan.Compiler)

files =
  ~w(axon_test axon/activations_test axon/compiler_test axon/initializers_test axon/layers_test) ++
    ~w(axon/loop_test axon/loss_scale_test axon/losses_test axon/quantization_test) ++
    ~w(axon/serialization_guide_test)

# Axon's own run leaves integration_test out, too (8 minutes on lavapipe with two busy cores; of its 45
# tests one fails, "f64 input test", which does so on BinaryBackend: its types are not those of the model).
# Of the others, metrics_test, mixed_precision_test and shape_test are doctests alone.

# On BinaryBackend "gru computes forward pass with custom options" overflows in exp.
expected =
  Nx.Vulkan.Suite.with_nx_0_13([
    {"Nx 0.13's evaluator loses the value of a hook, on BinaryBackend too", CompilerTest,
     ["test inspect values prints intermediate layer values to the screen"]}
  ])

# The doctests print floats as Nx did when they were written.
Nx.Vulkan.Suite.run(:axon, files, expected, test_type: :doctest)
