# Runs the tests of another package, from the checkout that Mix uses, with the backend as default and
# nothing allowed to fall back but what the device lacks.
#
# The tests compare tensors with ==, which compares where they are, too. So both sides of == and != are
# copied to BinaryBackend first, in the files' syntax trees, where all NaN are one. Tensors in module
# attributes are made by the compiler, on BinaryBackend, and go to the device where they are read.
# Definitions run by Nx.Vulkan.Compiler, but for Nx's own tests, many of which are about its evaluator.
# test_backend, by which packages name the backend that they test with, names this one. Nothing else
# changes.

defmodule Nx.Vulkan.Suite do
  @moduledoc false

  @doc "What is expected of tests with Nx 0.13 alone."
  def with_nx_0_13(expected) do
    Code.ensure_loaded!(Nx)
    if function_exported?(Nx, :io_call, 2), do: [], else: expected
  end

  @doc "What is expected of tests on a device that computes in single precision."
  def without_float64(expected), do: if(Nx.Vulkan.has_f64(), do: [], else: expected)

  @doc """
  Runs the tests of `app` and ends with status 1 where one fails that is not expected to, or where they
  needed no kernel at all: then they ran on another backend.

    * `files`: names of files in the package's folder `test`, without `.exs`; those of the command line
      win over them
    * `expected`: the tests that fail, `[{reason, module, [name]}]`; that one of them passes is a failure,
      too
    * `exclude`: ExUnit's option
  """
  def run(app, files, expected, exclude) do
    folder = Mix.Project.deps_paths()[app]

    if folder && File.dir?(Path.join(folder, "test")) do
      files = if System.argv() == [], do: Enum.map(files, &"#{&1}.exs"), else: System.argv()
      run_in(folder, app, files, expected, exclude)
    else
      IO.puts("Left out: the tests of #{app} (a checkout of the package has them).")
    end
  end

  defp run_in(folder, app, files, expected, exclude) do
    ExUnit.start(
      autorun: false,
      assert_receive_timeout: 1000,
      timeout: 1_800_000,
      exclude: exclude,
      formatters: [Nx.Vulkan.Suite.Outcome]
    )

    # The tests read fixtures and name their files by paths of the checkout.
    File.cd!(folder)
    support = Enum.sort(Path.wildcard("test/support/**/*.ex"))
    Enum.each(support ++ Enum.map(files, &Path.join("test", &1)), &compile/1)
    Nx.Vulkan.Test.Fallbacks.forbid_everywhere()
    Nx.global_default_backend(Nx.Vulkan.VulkanoBackend)
    reasons = for {reason, module, names} <- expected, name <- names, do: {{module, name}, reason}
    :persistent_term.put(Nx.Vulkan.Suite.Outcome, Map.new(reasons))
    kernels = :counters.new(1, [])
    :telemetry.attach(__MODULE__, [:nx_vulkan, :compile], &__MODULE__.count/4, kernels)
    ExUnit.run()
    System.halt(Nx.Vulkan.Suite.Outcome.report(app, :counters.get(kernels, 1)))
  end

  @doc false
  def count(_event, %{pipelines: built}, _metadata, kernels), do: :counters.add(kernels, 1, built)

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

  defp rewrite({definer, meta, [{:test_backend, _, _} = head, _body]})
       when definer in [:def, :defp],
       do: {definer, meta, [head, [do: quote(do: elem(Nx.default_backend(), 0))]]}

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
  def report(app, kernels) do
    %{passed: passed, failed: failed} = :persistent_term.get({__MODULE__, :outcome})
    known = MapSet.new(Map.keys(expected()))
    unexpected = MapSet.difference(failed, known)
    passing = MapSet.intersection(passed, known)

    {passes, failures} = {MapSet.size(passed), MapSet.size(failed)}
    IO.puts("Tests of #{app}: #{passes} passed, #{failures} failed, on #{kernels} kernels")

    for {reason, tests} <- Enum.group_by(MapSet.intersection(failed, known), &expected()[&1]) do
      IO.puts("  as expected, #{length(tests)}: #{reason}")
    end

    for {module, name} <- Enum.sort(unexpected),
        do: IO.puts("  FAILED: #{inspect(module)} #{name}")

    for {module, name} <- passing, do: IO.puts("  listed, but passes: #{inspect(module)} #{name}")
    if Enum.empty?(unexpected) and Enum.empty?(passing) and kernels > 0, do: 0, else: 1
  end
end
