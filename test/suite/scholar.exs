# Runs Scholar's own tests of the models in examples/scholar.exs, from the checkout that Mix uses;
# suite.exs says how:
#
#     MIX_ENV=test mix run test/suite/scholar.exs [FILE...]

Code.require_file("suite.exs", __DIR__)
Nx.Defn.global_default_options(compiler: Nx.Vulkan.Compiler)

files =
  ~w(scholar/cluster/k_means_test scholar/decomposition/pca_test) ++
    ~w(scholar/linear/linear_regression_test scholar/linear/logistic_regression_test) ++
    ~w(scholar/neighbors/brute_knn_test scholar/neighbors/knn_classifier_test) ++
    ~w(scholar/neighbors/knn_regressor_test)

# Of the other files, cross_decomposition/pls_svd_test and decomposition/truncated_svd_test expect the
# digits of Nx's own svd, which end at about 1.0e-3; this backend's are scikit-learn's.
expected = [
  {"one weighted sample less its weighted mean is rounding, on BinaryBackend too",
   Scholar.Linear.LinearRegressionTest,
   ["test fit test for shapes {1, 1}, {1, 1} and type {:f, 32} and sample_weights"]}
]

# The doctests print floats as Nx did when they were written, and one downloads its data.
Nx.Vulkan.Suite.run(:scholar, files, expected, test_type: :doctest)
