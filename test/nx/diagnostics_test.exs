defmodule Nx.Vulkan.DiagnosticsTest do
  @moduledoc """
  Diagnostics of chains against ArviZ 0.23.4. The constants are what this prints, with `draws` below in Python:

      x.mean(), x.std(ddof=1), az.mcse(x), *np.quantile(x, [.05, .5, .95]), az.rhat(x), az.ess(x), az.ess(x, method="tail")
      az.bfmi(x)

      def draws(chains, count, phi, seed):
          x = np.zeros((chains, count))
          for c in range(chains):
              s, value = seed + 7 * c, 0.0
              for i in range(count):
                  s = (1103515245 * s + 12345) % 2**31
                  value = phi * value + s / 2**31 - 0.5
                  x[c, i] = value
          return x
  """

  use Nx.Vulkan.Test.Case, async: true

  alias Nx.Vulkan.MCMC.{Diagnostics, Plots}

  defp draws(chains, count, phi, seed) do
    for c <- 0..(chains - 1) do
      {values, _} =
        Enum.map_reduce(1..count, {seed + 7 * c, 0.0}, fn _, {s, value} ->
          s = rem(1_103_515_245 * s + 12345, 2 ** 31)
          value = phi * value + s / 2 ** 31 - 0.5
          {value, {s, value}}
        end)

      values
    end
    |> Nx.tensor(type: :f64)
  end

  defp drift do
    drift = Nx.multiply(Nx.f64(0.002), Nx.iota({200}, type: :f64))
    Nx.add(draws(4, 200, 0.5, 5), Nx.multiply(Nx.f64([[0], [0], [0], [1]]), drift))
  end

  defp mapped(tensor, fun),
    do:
      tensor |> Nx.to_flat_list() |> Enum.map(fun) |> Nx.tensor(type: :f64) |> Nx.reshape(tensor)

  # The draws, what ArviZ says of them, and E-BFMI with the draws as energies. ArviZ has no R-hat of one chain.
  defp cases do
    [
      {"correlated", draws(4, 250, 0.6, 1),
       [
         -0.019561678523684293,
         0.36023321509181483,
         0.024883485465106037,
         -0.5856261360325592,
         -0.04089613914349022,
         0.5948199806863167,
         1.0274295879843633,
         207.27426066079443,
         397.72356605206653
       ], [0.7191137775240338, 0.8679631948639572, 0.749776192208196, 0.8700051326398075]},
      {"one chain drifts", drift(),
       [
         0.04609900320826669,
         0.34667517165391987,
         0.02273128041137834,
         -0.5207608094668135,
         0.040138356100805794,
         0.6084612215707391,
         1.0351146419560067,
         229.57723172181718,
         296.1470846426007
       ], [1.0150619352263515, 1.05335398781688, 0.7701062889269039, 0.9849075240984448]},
      {"ties, and an odd number of draws", mapped(draws(3, 151, 0.3, 2), &round(8 * &1)),
       [
         -0.09050772626931568,
         2.5509364856916945,
         0.17239607258636436,
         -4.0,
         0.0,
         4.0,
         1.0280145127363864,
         212.54961051157832,
         334.8576573346805
       ], [1.1725746392271712, 1.2922769935703198, 1.3347984682468692]},
      {"long tails, negative correlation", mapped(draws(2, 300, -0.5, 3), &(1 / &1)),
       [
         -22.420215672690976,
         558.0528300679705,
         22.647743929080097,
         -23.13020152643417,
         -1.5102180315982077,
         19.334083191315788,
         0.9999469934132734,
         669.4208312211854,
         620.6249690673789
       ], [2.004254392194576, 2.0330502897456357]},
      {"one chain", draws(1, 100, 0.9, 4),
       [
         -0.4323103990614795,
         0.4537309447682531,
         0.25070267460128537,
         -1.0828102465342753,
         -0.48617461401920886,
         0.2987341070225068,
         nil,
         3.3146850796004594,
         31.07214355340803
       ], [0.3964413259499646]}
    ]
  end

  @keys [:mean, :sd, :mcse_mean, :q5, :median, :q95, :rhat, :ess_bulk, :ess_tail]

  # Nx's inverse error function on the host is within 1.0e-7.
  defp near(result, expected, context),
    do:
      assert(
        abs(result - expected) <= 1.0e-6 * max(abs(expected), 1.0),
        "#{context}: #{result}, not #{expected}"
      )

  test "diagnostics are ArviZ's, on the host and on the device" do
    for {name, draws, expected, e_bfmi} <- cases(), draws <- [draws, to_device(draws)] do
      result = %{draws: draws, stats: %{energy: draws, divergent: Nx.less(draws, -1.0e9)}}
      summary = Diagnostics.summary(result)
      [row] = summary.parameters

      for {key, expected} when expected != nil <- Enum.zip(@keys, expected),
          do: near(row[key], expected, "#{name}, #{key}")

      for {result, expected} <- Enum.zip(summary.e_bfmi, e_bfmi), do: near(result, expected, name)

      assert summary.divergences == 0
      assert {summary.chains, summary.draws} == {Nx.axis_size(draws, 0), Nx.axis_size(draws, 1)}
      assert Nx.to_number(Diagnostics.ess_bulk(draws)) == row.ess_bulk
    end
  end

  test "parameters are those of the container, in its shapes" do
    one = draws(2, 40, 0.2, 1)
    many = Nx.stack(for(seed <- 1..6, do: draws(2, 40, 0.1 * seed, seed)), axis: 2)
    result = %{draws: %{b: one, a: {Nx.reshape(many, {2, 40, 2, 3}), one}}}
    summary = Diagnostics.summary(result)

    assert Enum.map(summary.parameters, & &1.name) ==
             for(i <- 0..1, j <- 0..2, do: "a.0[#{i}][#{j}]") ++ ["a.1", "b"]

    rhat = Diagnostics.rhat(Nx.reshape(many, {2, 40, 2, 3}))
    assert rhat.shape == {2, 3}

    for i <- 0..1, j <- 0..2 do
      alone = Diagnostics.summary(%{draws: many[[.., .., 3 * i + j]]})
      in_all = Enum.at(summary.parameters, 3 * i + j)
      assert %{hd(alone.parameters) | name: in_all.name} == in_all
      assert Nx.to_number(rhat[i][j]) == in_all.rhat
    end

    assert summary.divergences == nil and summary.e_bfmi == nil
  end

  test "what has no diagnostic is NaN, and divergences are counted" do
    fine = draws(2, 20, 0.2, 1)
    constant = Nx.broadcast(Nx.f64(1.5), {2, 20})
    broken = Nx.indexed_put(fine, Nx.tensor([[1, 3]]), Nx.f64([:nan]))
    stats = %{divergent: Nx.greater(fine, 0.3)}

    summary =
      Diagnostics.summary(%{draws: Nx.stack([fine, constant, broken], axis: 2), stats: stats})

    assert summary.divergences == Nx.to_number(Nx.sum(stats.divergent)) and
             summary.divergences > 0

    [fine, constant, broken] = summary.parameters
    assert Enum.all?(@keys, &is_float(fine[&1]))

    assert {constant.mean, constant.sd, constant.rhat, constant.ess_bulk} ==
             {1.5, 0.0, :nan, :nan}

    assert Enum.all?(@keys, &(broken[&1] == :nan))

    assert_raise ArgumentError, ~r/draws: expected/, fn -> Diagnostics.rhat(Nx.f64([1, 2])) end
    assert_raise ArgumentError, ~r/draws: expected/, fn -> Diagnostics.rhat(Nx.iota({4, 3})) end
  end

  test "a summary inspects as a table" do
    draws = draws(4, 250, 0.6, 1)
    theta = Nx.stack([draws, Nx.multiply(draws, 1.0e9)], axis: 2)
    stats = %{energy: draws, divergent: Nx.greater(draws, 1.0e9)}
    summary = Diagnostics.summary(%{draws: %{mu: draws, theta: theta}, stats: stats})

    assert inspect(summary) <> "\n" == """
           #Nx.Vulkan.MCMC.Diagnostics<
             4 chains of 250 draws, 0 divergences, E-BFMI from 0.719 to 0.870

                             mean         sd       MCSE          5%         50%        95%  R-hat  ESS bulk  ESS tail
             mu          -0.01956     0.3602    0.02488     -0.5856    -0.04090     0.5948  1.027       207       398
             theta[0]    -0.01956     0.3602    0.02488     -0.5856    -0.04090     0.5948  1.027       207       398
             theta[1]  -1.956e+07  3.602e+08  2.488e+07  -5.856e+08  -4.090e+07  5.948e+08  1.027       207       398
           >
           """

    assert inspect(summary, limit: 1) =~ ~r/mu .*\n  \.\.\. 2 more\n>/
  end

  test "plots are VegaLite's specifications of draws and of ranks" do
    draws = draws(4, 250, 0.6, 1)
    trace = Plots.trace(draws, "mu")
    assert trace["mark"] == "line" and trace["encoding"]["y"]["title"] == "mu"
    assert %{"chain" => 0, "draw" => 1, "value" => value} = Enum.at(trace["data"]["values"], 1)
    assert value == Nx.to_number(draws[0][1])
    assert length(trace["data"]["values"]) == 1000
    assert length(Plots.trace(draws(4, 4000, 0.6, 1), "mu")["data"]["values"]) in 2500..5000

    # All chains together have each rank once, and a chain of the smallest draws the first ranks alone.
    low = Nx.put_slice(draws, [2, 0], Nx.subtract(draws[2..2], 100))

    for draws <- [draws, to_device(low)] do
      bars = Plots.ranks(draws, "mu")["data"]["values"]
      assert length(bars) == 4 * 20

      sums =
        Enum.group_by(bars, & &1["rank"], & &1["count"]) |> Map.values() |> Enum.map(&Enum.sum/1)

      assert sums == List.duplicate(50, 20)
    end

    bars = Plots.ranks(low, "mu")["data"]["values"]

    assert for(%{"chain" => 2, "count" => count} <- bars, do: count) ==
             List.duplicate(50, 5) ++ List.duplicate(0, 15)

    assert_raise ArgumentError, ~r/chains, draws/, fn -> Plots.trace(Nx.f64([1]), "mu") end
  end
end
