# Runs Nx's own tests, from the checkout that Mix uses, with the backend as default and nothing allowed
# to fall back:
#
#     MIX_ENV=test mix run test/suite/nx.exs [FILE...]
#
# The tests compare tensors with ==, which compares where they are, too. So both sides of == and != are
# copied to BinaryBackend first, in the files' syntax trees, where all NaN are one. Tensors in module attributes are made by the
# compiler, on BinaryBackend, and go to the device where they are read. Nothing else changes.

defmodule Nx.Vulkan.Suite do
  @moduledoc false

  @files ~w(nx_test nx/batch_test nx/complex_test nx/container_test nx/constants_test nx/lazy_container_test) ++
           ~w(nx/lin_alg_test nx/non_finite_test nx/optional_test nx/random_test nx/serving_test nx/shape_test) ++
           ~w(nx/tensor_test nx/testing_test nx/type_test nx/vectorize_test nx/defn_test) ++
           ~w(nx/defn/compiler_test nx/defn/composite_test nx/defn/evaluator_test nx/defn/expr_test) ++
           ~w(nx/defn/grad_test nx/defn/graph_test nx/defn/kernel_test nx/defn/tree_test)

  # Files that compute nothing, or nothing with tensors: floating_test (Nx.Floating), heatmap_test,
  # ryu_test, doctest_test and backend_documentation_test (test/nx/doctest_test.exs has the doctests),
  # donation_test, runtime_call_evaluator_test and template_diff_test (Evaluator's bookkeeping).

  # What no backend whose tensors are references can pass: the reason, the module and its tests.
  @expected [
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
    {"expects the error of Erlang's remainder; IEEE 754 says NaN", Nx.NonFiniteTest,
     [
       "test binary operations remainder"
     ]}
  ]

  def run(arguments) do
    nx = Mix.Project.deps_paths()[:nx]

    if File.dir?(Path.join(nx, "test")) do
      files = if arguments == [], do: Enum.map(@files, &"#{&1}.exs"), else: arguments
      run(nx, files)
    else
      IO.puts("Left out: this Nx comes without its tests (a checkout of elixir-nx/nx has them).")
    end
  end

  defp run(nx, files) do
    ExUnit.start(
      autorun: false,
      assert_receive_timeout: 1000,
      timeout: 1_800_000,
      # Servings over several BEAM nodes: a reference to device memory means nothing on another node.
      exclude: [:distributed],
      formatters: [Nx.Vulkan.Suite.Outcome]
    )

    # The tests read fixtures and name their files by paths of the checkout.
    File.cd!(nx)
    support = Enum.sort(Path.wildcard("test/support/*.ex"))
    Enum.each(support ++ Enum.map(files, &Path.join("test", &1)), &compile/1)
    Application.put_env(:nx_vulkan, :fallback, :raise)
    Nx.global_default_backend(Nx.Vulkan.VulkanoBackend)
    :persistent_term.put(Nx.Vulkan.Suite.Outcome, expected())
    ExUnit.run()
    System.halt(Nx.Vulkan.Suite.Outcome.report())
  end

  defp expected do
    for {reason, module, names} <- @expected,
        name <- names,
        into: %{},
        do: {{module, name}, reason}
  end

  defp compile(file) do
    file
    |> File.read!()
    |> Code.string_to_quoted!(file: file, columns: true)
    |> rewrite()
    |> Code.compile_quoted(file)
  end

  # In defn, == compares elements.
  defp rewrite({skipped, _, _} = node) when skipped in [:defn, :defnp, :when, :quote], do: node

  defp rewrite({op, meta, [left, right]}) when op in [:==, :!=] do
    host = fn side -> quote(do: Nx.Vulkan.Suite.host(unquote(rewrite(side)))) end
    {op, meta, [host.(left), host.(right)]}
  end

  defp rewrite({:@, _, [{_name, _, context}]} = attribute) when is_atom(context),
    do: quote(do: Nx.Vulkan.Suite.to_default_backend(unquote(attribute)))

  defp rewrite({form, meta, arguments}), do: {rewrite(form), meta, rewrite(arguments)}
  defp rewrite({left, right}), do: {rewrite(left), rewrite(right)}
  defp rewrite(list) when is_list(list), do: Enum.map(list, &rewrite/1)
  defp rewrite(other), do: other

  @doc "The term with all tensors of the device copied to BinaryBackend."
  def host(term), do: copy(term, Nx.Vulkan.VulkanoBackend, Nx.BinaryBackend)

  @doc "The term with all tensors of BinaryBackend copied to the default backend."
  def to_default_backend(term), do: copy(term, Nx.BinaryBackend, elem(Nx.default_backend(), 0))

  defp copy(%Nx.Tensor{data: %from{}} = tensor, from, to),
    do: tensor |> Nx.backend_copy(to) |> one_nan()

  defp copy(%Nx.Tensor{} = tensor, _from, _to), do: tensor
  defp copy(%Range{} = range, _from, _to), do: range

  defp copy(%module{} = struct, from, to),
    do: Map.merge(%{__struct__: module}, copy(Map.from_struct(struct), from, to))

  defp copy(map, from, to) when is_map(map),
    do: Map.new(map, fn {key, value} -> {key, copy(value, from, to)} end)

  defp copy([head | tail], from, to), do: [copy(head, from, to) | copy(tail, from, to)]

  defp copy(tuple, from, to) when is_tuple(tuple),
    do: tuple |> Tuple.to_list() |> copy(from, to) |> List.to_tuple()

  defp copy(other, _from, _to), do: other

  # NaN has many bit patterns; BinaryBackend writes one.
  defp one_nan(%Nx.Tensor{data: %Nx.BinaryBackend{}, type: {kind, _}} = tensor)
       when kind in [:f, :bf, :c] do
    numbers = tensor |> Nx.devectorize() |> Nx.to_flat_list()
    binary = for number <- numbers, into: <<>>, do: number_to_binary(number, tensor.type)
    Nx.BinaryBackend.from_binary(tensor, binary, [])
  end

  defp one_nan(tensor), do: tensor

  defp number_to_binary(number, type),
    do: Nx.to_binary(Nx.tensor(number, type: type, backend: Nx.BinaryBackend))
end

defmodule Nx.Vulkan.Suite.Outcome do
  @moduledoc false
  # An ExUnit formatter that shows the failures that were not expected, and remembers all.
  use GenServer

  def init(_options), do: {:ok, %{passed: MapSet.new(), failed: MapSet.new()}}

  def handle_cast({:test_finished, %{state: nil} = test}, outcome),
    do: {:noreply, put(outcome, :passed, test)}

  def handle_cast({:test_finished, %{state: {:failed, failures}} = test}, outcome) do
    unless Map.has_key?(expected(), name(test)) do
      plain = fn _key, text -> text end
      number = MapSet.size(outcome.failed) + 1
      IO.puts(ExUnit.Formatter.format_test_failure(test, failures, number, 100, plain))
    end

    {:noreply, put(outcome, :failed, test)}
  end

  def handle_cast({:test_finished, %{state: {:invalid, _}} = test}, outcome),
    do: {:noreply, put(outcome, :failed, test)}

  def handle_cast({:module_finished, %{name: module, tests: tests}}, outcome) do
    IO.puts("#{inspect(module)}: #{length(tests)} tests")
    {:noreply, outcome}
  end

  def handle_cast({:suite_finished, _}, outcome) do
    :persistent_term.put({__MODULE__, :outcome}, outcome)
    {:noreply, outcome}
  end

  def handle_cast(_event, outcome), do: {:noreply, outcome}

  defp put(outcome, key, test), do: Map.update!(outcome, key, &MapSet.put(&1, name(test)))
  defp name(test), do: {test.module, to_string(test.name)}
  defp expected, do: :persistent_term.get(__MODULE__)

  @doc "Prints the outcome; the exit status."
  def report do
    %{passed: passed, failed: failed} = :persistent_term.get({__MODULE__, :outcome})
    known = MapSet.new(Map.keys(expected()))
    unexpected = MapSet.difference(failed, known)
    passing = MapSet.intersection(passed, known)

    IO.puts("Nx's own tests: #{MapSet.size(passed)} passed, #{MapSet.size(failed)} failed")

    for {reason, tests} <- Enum.group_by(MapSet.intersection(failed, known), &expected()[&1]) do
      IO.puts("  as expected, #{length(tests)}: #{reason}")
    end

    for {module, name} <- Enum.sort(unexpected),
        do: IO.puts("  FAILED: #{inspect(module)} #{name}")

    for {module, name} <- passing, do: IO.puts("  listed, but passes: #{inspect(module)} #{name}")
    if Enum.empty?(unexpected) and Enum.empty?(passing), do: 0, else: 1
  end
end

Nx.Vulkan.Suite.run(System.argv())
