# Runs Nx's own tests, from the checkout that Mix uses; suite.exs says how:
#
#     MIX_ENV=test mix run test/suite/nx.exs [FILE...]

Code.require_file("suite.exs", __DIR__)

files =
  ~w(nx_test nx/batch_test nx/complex_test nx/container_test nx/constants_test nx/lazy_container_test) ++
    ~w(nx/lin_alg_test nx/non_finite_test nx/optional_test nx/random_test nx/serving_test nx/shape_test) ++
    ~w(nx/tensor_test nx/testing_test nx/type_test nx/vectorize_test nx/defn_test) ++
    ~w(nx/defn/compiler_test nx/defn/composite_test nx/defn/evaluator_test nx/defn/expr_test) ++
    ~w(nx/defn/grad_test nx/defn/graph_test nx/defn/kernel_test nx/defn/tree_test)

# Files that compute nothing, or nothing with tensors: floating_test (Nx.Floating), heatmap_test,
# ryu_test, doctest_test and backend_documentation_test (test/nx/doctest_test.exs has the doctests),
# donation_test, runtime_call_evaluator_test and template_diff_test (Evaluator's bookkeeping).

# What no backend whose tensors are references can pass: the reason, the module and its tests.
expected = [
  {"a doctest: its tensors are compared where they are", Nx.Defn.CompositeTest,
   [
     "doctest Nx.Defn.Composite.flatten_list/2 (3)"
   ]},
  {"mixes tensors of the default backend with those of another", Nx.Defn.EvaluatorTest,
   [
     "test slice"
   ]},
  {"mixes tensors of the default backend with those of another", Nx.OptionalTest,
   [
     "test optional callbacks (defn) calls the default impl if custom does not exist"
   ]},
  {"closes over a tensor, or makes one into an expression, which Nx does for BinaryBackend only",
   Nx.Defn.ExprTest,
   [
     "test constant optimizations logsumexp",
     "test constant optimizations preserves names",
     "test constant optimizations upcast float constants when operating against higher precision types",
     "test inspect with fun",
     "test inspect with metadata",
     "test inspect with parameters",
     "test inspect with scalar",
     "test inspect with tensors"
   ]},
  {"closes over a tensor, or makes one into an expression, which Nx does for BinaryBackend only",
   Nx.Defn.GradTest,
   [
     "test conv rule computes gradient of kernel when image is a constant closure variable",
     "test multi-tensor ops with captured closure tensors clip grad wrt min and max with a captured target",
     "test multi-tensor ops with captured closure tensors put_slice grad wrt the update with a captured target",
     "test multi-tensor ops with captured closure tensors reduce and window_reduce raise their documented no-grad error, not a dispatch crash",
     "test solve computes the grad when the right-hand side is a constant",
     "test vectorization composed: sigmoid(x @ w + b) (exercises composed chain with captures)",
     "test vectorization conv with vectorized (exercises conv grad)",
     "test vectorization dot with captured matrix (exercises concrete tensor handling)",
     "test vectorization grad of non-vectorized target with vectorized capture",
     "test vectorization mixed: vectorized x * non-vectorized y (exercises broadcast_vectors)",
     "test vectorization non-vectorized input, vectorized output",
     "test vectorization supports combination of vectorized and non-vectorized tensors",
     "test vectorization supports combination of vectorized and non-vectorized tensors over composed function",
     "test vectorization vectorized grad through Nx.LinAlg.triangular_solve with captured a",
     "test vectorization window_scatter_max/min with vectorized inputs"
   ]},
  {"closes over a tensor, or makes one into an expression, which Nx does for BinaryBackend only",
   Nx.Defn.TreeTest,
   [
     "test apply_args handles concatenate",
     "test apply_args handles regular operations"
   ]},
  {"closes over a tensor, or makes one into an expression, which Nx does for BinaryBackend only",
   Nx.DefnTest,
   [
     "test block accepts a constant tensor argument",
     "test multi-tensor ops with captured closure tensors clip in a jit closure over a concrete target",
     "test multi-tensor ops with captured closure tensors gather in a jit closure over a concrete source",
     "test multi-tensor ops with captured closure tensors put_slice in a jit closure over a concrete target"
   ]},
  {"pins a tensor: references differ where the elements are the same", Nx.Defn.GradTest,
   [
     "test metadata computes custom grad"
   ]},
  {"pins a tensor: references differ where the elements are the same", Nx.ServingTest,
   [
     "test run/2 with client pre/post"
   ]},
  {"pins a tensor: references differ where the elements are the same", Nx.VectorizeTest,
   [
     "test cond only executes selected branches"
   ]},
  {"expects digits of a bf16 that BinaryBackend truncated", Nx.RandomTest,
   [
     "test types multivariate_normal",
     "test types uniform"
   ]},
  {"does not read the result: an index on the device that is out of bounds raises when that is read",
   NxTest,
   for(op <- ~w(indexed_add indexed_put gather), do: "test #{op} raises when out of bounds")},
  {"expects the error of Erlang's remainder; IEEE 754 says NaN", Nx.NonFiniteTest,
   [
     "test binary operations remainder"
   ]},
  {"expects of an infinite complex number what Elixir's Complex gives; C's annex G has another value",
   Nx.NonFiniteTest,
   for(op <- ~w(acos acosh asin asinh atan atanh tanh), do: "test unary operations #{op}")}
]

nx_0_13 =
  Nx.Vulkan.Suite.with_nx_0_13([
    {"expects the last digits of Nx 0.13's own qr", Nx.Defn.EvaluatorTest,
     ["test decompositions qr"]},
    {"expects the last digits of Nx 0.13's own qr", Nx.LinAlgTest,
     ["doctest Nx.LinAlg.qr/2 (58)"]},
    {"expects of Nx 0.13's own svd a singular vector of length 0.002", Nx.LinAlgTest,
     ["test svd finds the singular values of tall matrices"]}
  ])

# BinaryBackend computes in doubles and rounds once. test/nx/doctest_test.exs compares the same doctests as numbers.
float32 =
  Nx.Vulkan.Suite.without_float64([
    {"expects digits of f32 that doubles give", Nx.Defn.GradTest,
     ["test cholesky computes grad for composed {2,2}-tensor"]},
    {"expects digits of f32 that doubles give", Nx.LinAlgTest,
     [
       "doctest Nx.LinAlg.cholesky/1 (5)",
       "doctest Nx.LinAlg.determinant/1 (93)",
       "doctest Nx.LinAlg.determinant/1 (94)",
       "doctest Nx.LinAlg.least_squares/3 (106)",
       "doctest Nx.LinAlg.least_squares/3 (107)",
       "doctest Nx.LinAlg.least_squares/3 (108)",
       "doctest Nx.LinAlg.lu/1 (79)",
       "doctest Nx.LinAlg.matrix_power/2 (87)",
       "doctest Nx.LinAlg.pinv/2 (67)",
       "doctest Nx.LinAlg.pinv/2 (68)",
       "doctest Nx.LinAlg.solve/2 (43)",
       "doctest Nx.LinAlg.solve/2 (46)",
       "doctest Nx.LinAlg.triangular_solve/3 (26)",
       "doctest Nx.LinAlg.triangular_solve/3 (29)"
     ]},
    {"expects digits of f32 that doubles give", NxTest,
     [
       "test covariance/1 calculates the covariance of a tensor",
       "test covariance/1 uses optional ddof",
       "test covariance/1 with tensor batch",
       "test fft/ifft Bluestein clause"
     ]}
  ])

# Servings over several BEAM nodes: a reference to device memory means nothing on another node.
Nx.Vulkan.Suite.run(:nx, files, expected ++ nx_0_13 ++ float32, [:distributed])
