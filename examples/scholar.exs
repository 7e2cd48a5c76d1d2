# Five models of Scholar on the device: linear regression (by SVD), principal components, k-means, logistic regression
# and k nearest neighbours. Their results are compared with those of Nx.BinaryBackend and of scikit-learn.
#
#     mix run examples/scholar.exs [FILE]
#
# FILE is the output of `bench/scikit_learn.py` (default: support/scikit_learn.txt, a recorded run). Ends with status 1
# where results differ by more than their tolerance.

unless Code.ensure_loaded?(Scholar.Linear.LinearRegression) do
  IO.puts(:stderr, "Scholar is not among this project's dependencies: see NX_VULKAN_DEPS.")
  System.halt(1)
end

defmodule Data do
  # The same numbers as in bench/scikit_learn.py.
  @train 240
  @test 60
  @centres [[0.0, 0.0, 0.0, 0.0], [3.0, 1.0, -1.0, 2.0], [-2.0, 3.0, 2.0, -1.0]]
  @scales [1.0, 0.8, 1.2, 0.6]
  @slopes [2.0, -1.0, 0.5, 3.0]

  @doc "`{train, test}`, each `{x, class, y}`: points, their class of three, and a linear function of the points with noise."
  def split(backend) do
    {rows, _} = Enum.map_reduce(0..(@train + @test - 1), 20_260_101, &row/2)
    {train, test} = Enum.split(rows, @train)
    {tensors(train, backend), tensors(test, backend)}
  end

  defp row(i, state) do
    {x, state} =
      @centres
      |> Enum.at(rem(i, 3))
      |> Enum.zip(@scales)
      |> Enum.map_reduce(state, fn {centre, scale}, state ->
        {noise, state} = normal(state)
        {centre + scale * noise, state}
      end)

    {noise, state} = normal(state)
    y = x |> Enum.zip(@slopes) |> Enum.reduce(1.5 + 0.1 * noise, fn {x, s}, y -> y + s * x end)
    {{x, rem(i, 3), y}, state}
  end

  # The sum of twelve uniform numbers of the minimal standard generator (Park and Miller, 1988), less 6.
  defp normal(state) do
    {sum, state} =
      Enum.reduce(1..12, {0.0, state}, fn _, {sum, state} ->
        state = rem(state * 48_271, 2_147_483_647)
        {sum + state / 2_147_483_647, state}
      end)

    {sum - 6.0, state}
  end

  defp tensors(rows, backend) do
    column = fn i, type ->
      Nx.tensor(Enum.map(rows, &elem(&1, i)), type: type, backend: backend)
    end

    {column.(0, :f32), column.(1, :s32), column.(2, :f32)}
  end
end

defmodule Models do
  alias Scholar.Cluster.KMeans
  alias Scholar.Decomposition.PCA
  alias Scholar.Linear.{LinearRegression, LogisticRegression}
  alias Scholar.Neighbors.{BruteKNN, KNNClassifier}

  @doc "The results of all models on `backend` as `%{name => values}`, and the seconds of each model."
  def results(backend) do
    Nx.with_default_backend(backend, fn ->
      {train, test} = Data.split(backend)

      models = [
        linear_regression: &linear_regression/2,
        pca: &pca/2,
        k_means: &k_means/2,
        logistic_regression: &logistic_regression/2,
        k_nearest: &k_nearest/2
      ]

      {results, seconds} =
        for {name, model} <- models do
          {microseconds, results} = :timer.tc(fn -> model.(train, test) end)

          {for({result, values} <- results, do: {"#{name}.#{result}", values}),
           {name, microseconds / 1.0e6}}
        end
        |> Enum.unzip()

      {Map.new(Enum.concat(results)), Map.new(seconds)}
    end)
  end

  defp linear_regression({x, _, y}, {test, _, _}) do
    model = LinearRegression.fit(x, y)

    [
      coefficients: numbers(model.coefficients),
      intercept: numbers(model.intercept),
      predictions: numbers(LinearRegression.predict(model, test))
    ]
  end

  defp pca({x, _, _}, {test, _, _}) do
    model = PCA.fit(x, num_components: 3)

    [
      components: Enum.flat_map(Nx.to_list(model.components), &upright/1),
      singular_values: numbers(model.singular_values),
      explained_variance_ratio: numbers(model.explained_variance_ratio),
      scores: numbers(Nx.abs(PCA.transform(model, test)))
    ]
  end

  # With the sign that makes its largest entry positive, because the sign of a singular vector is arbitrary.
  defp upright(row) do
    sign = if Enum.max_by(row, &abs/1) < 0, do: -1, else: 1
    Enum.map(row, &(sign * &1))
  end

  defp k_means({x, _, _}, {test, _, _}) do
    model = KMeans.fit(x, num_clusters: 3, num_runs: 1, tol: 1.0e-9, key: Nx.Random.key(2))
    # Sorted by their first coordinate, because clusters have no order.
    order = Nx.argsort(model.clusters[[.., 0]])

    [
      centres: numbers(Nx.take(model.clusters, order)),
      inertia: numbers(model.inertia),
      clusters: numbers(Nx.take(Nx.argsort(order), KMeans.predict(model, test)))
    ]
  end

  defp logistic_regression({x, class, _}, {test, _, _}) do
    model = LogisticRegression.fit(x, class, num_classes: 3, alpha: 0.05)

    [
      coefficients: numbers(model.coefficients),
      bias: numbers(Nx.subtract(model.bias, Nx.mean(model.bias))),
      classes: numbers(LogisticRegression.predict(model, test))
    ]
  end

  defp k_nearest({x, class, _}, {test, _, _}) do
    model = KNNClassifier.fit(x, class, num_classes: 3, num_neighbors: 5)
    {neighbours, distances} = BruteKNN.predict(model.algorithm, test)

    [
      distances: numbers(distances),
      neighbours: numbers(neighbours),
      classes: numbers(KNNClassifier.predict(model, test))
    ]
  end

  defp numbers(tensor), do: tensor |> Nx.flatten() |> Nx.to_list()
end

defmodule Results do
  # Relative to the largest value of a result. Gradient descent ends anywhere where the gradient is small, so its
  # tolerance is larger.
  @tolerances %{
    "logistic_regression.coefficients" => 5.0e-3,
    "logistic_regression.bias" => 5.0e-3
  }
  @tolerance 1.0e-5

  @doc "scikit-learn's results from the file, or `nil` where there is no file."
  def read(file) do
    if File.regular?(file) do
      for line <- File.stream!(file),
          [name | values] = String.split(line),
          name != "#",
          into: %{} do
        {name, Enum.map(values, &elem(Float.parse(&1), 0))}
      end
    end
  end

  @doc "Prints the differences of `results` from the others, and returns the names of those above their tolerance."
  def compare(results, others) do
    IO.puts("\nlargest difference, relative to the largest value from")
    line(["result" | Enum.map(others, &elem(&1, 0))] ++ ["tolerance"])

    for {name, values} <- Enum.sort(results) do
      tolerance = Map.get(@tolerances, name, @tolerance)
      distances = for {_, other} <- others, do: distance(values, Map.fetch!(other, name))
      line([name | Enum.map(distances ++ [tolerance], &:io_lib.format("~.2e", [&1 * 1.0]))])
      if Enum.any?(distances, &(&1 > tolerance)), do: name
    end
    |> Enum.reject(&is_nil/1)
  end

  defp line([name | cells]) do
    cells = Enum.map_join(cells, &String.pad_leading(to_string(&1), 16))
    IO.puts(String.pad_trailing(name, 36) <> cells)
  end

  defp distance(values, others) when length(values) == length(others) do
    largest = others |> Enum.map(&abs/1) |> Enum.max()
    difference = values |> Enum.zip_with(others, &abs(&1 - &2)) |> Enum.max()
    difference / max(largest, 1.0e-30)
  end
end

alias Nx.Vulkan.{Fallback, VulkanoBackend}

{:ok, device} = Nx.Vulkan.device_info()
IO.puts("240 points of 4 coordinates to fit, 60 to predict, in f32, on #{device.name}")

Nx.default_backend(Nx.BinaryBackend)
# An operation that cannot run on the device would run on the CPU unnoticed. This makes it raise.
Fallback.put_mode(:raise)
# The first run compiles the kernels.
{results, first} = Models.results(VulkanoBackend)
{_, seconds} = Models.results(VulkanoBackend)
{reference, cpu_seconds} = Models.results(Nx.BinaryBackend)

IO.puts("\nseconds to fit and predict    device, first   device, again   BinaryBackend")

for {name, again} <- Enum.sort(seconds) do
  :io.format("~-26s ~16.3f~16.3f~16.3f~n", [name, first[name], again, cpu_seconds[name]])
end

file = List.first(System.argv()) || Path.join(__DIR__, "support/scikit_learn.txt")
others = [{"BinaryBackend", reference}]

others =
  case Results.read(file) do
    nil ->
      IO.puts(
        "\nNo comparison with scikit-learn: there is no file #{file}; bench/scikit_learn.py makes one."
      )

      others

    sklearn ->
      others ++ [{"scikit-learn", sklearn}]
  end

differing = Results.compare(results, others)

if differing != [] do
  IO.puts("\nThese results differ, which is a defect: #{Enum.join(differing, ", ")}")
  System.halt(1)
end
