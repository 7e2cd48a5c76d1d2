# Runs the tests of Polaris, Axon's optimizers, from the checkout that Mix uses; suite.exs says how:
#
#     MIX_ENV=test mix run test/suite/polaris.exs [FILE...]

Code.require_file("suite.exs", __DIR__)
Nx.Defn.global_default_options(compiler: Nx.Vulkan.Compiler)

# The doctests print floats as Nx did when they were written.
Nx.Vulkan.Suite.run(
  :polaris,
  ~w(polaris/optimizers_test polaris/schedules_test polaris/updates_test),
  [],
  test_type: :doctest
)
