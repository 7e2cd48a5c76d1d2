for file <- ~w(diagnostics hmc),
    do: Code.require_file("../../examples/support/#{file}.exs", __DIR__)

defmodule Examples.HMCSupportTest do
  use ExUnit.Case, async: true

  alias Examples.{Diagnostics, HMC}

  # x' = phi x + noise, with variance 1 throughout.
  defp ar1(phi, n, mean \\ 0.0) do
    1..n
    |> Enum.scan(:rand.normal(), fn _, x ->
      phi * x + :math.sqrt(1 - phi * phi) * :rand.normal()
    end)
    |> Enum.map(&(&1 + mean))
  end

  defp chains(count, fun) do
    :rand.seed(:exsss, 1)
    for _ <- 1..count, do: fun.()
  end

  describe "ess/1" do
    # The autocorrelation time of an AR(1) chain is (1 + phi) / (1 - phi).
    for {phi, tolerance} <- [{-0.5, 0.1}, {0.0, 0.05}, {0.5, 0.1}, {0.9, 0.15}] do
      test "is that of an AR(1) chain with phi = #{phi}" do
        n = 5000
        expected = 4 * n * (1 - unquote(phi)) / (1 + unquote(phi))
        ess = Diagnostics.ess(chains(4, fn -> ar1(unquote(phi), n) end))
        assert_in_delta ess / expected, 1.0, unquote(tolerance)
      end
    end

    test "of a perfectly antithetic chain is bounded" do
      total = 1000
      assert_in_delta Diagnostics.ess([alternating(total)]), total * :math.log10(total), 1.0e-6
    end

    test "of chains around different means is little more than their number" do
      assert Diagnostics.ess(
               for mean <- [0.0, 10.0], do: chains(1, fn -> ar1(0.0, 1000, mean) end) |> hd()
             ) < 10
    end
  end

  defp alternating(n), do: for(i <- 1..n, do: 1.0 - 2.0 * rem(i, 2))

  describe "split_rhat/1" do
    test "is 1 for chains of one distribution" do
      for phi <- [0.0, 0.5, 0.9] do
        assert_in_delta Diagnostics.split_rhat(chains(4, fn -> ar1(phi, 5000) end)), 1.0, 0.01
      end
    end

    test "is sqrt(1 + B / W) for chains around different means" do
      chains = for mean <- [-1.0, 1.0], do: hd(chains(1, fn -> ar1(0.0, 20_000, mean) end))
      # The halves' means are -1, -1, 1, 1: a variance of 4/3 between them, 1 within.
      assert_in_delta Diagnostics.split_rhat(chains), :math.sqrt(1 + 4 / 3), 0.02
    end

    test "sees a single chain that drifts" do
      assert Diagnostics.split_rhat([for(i <- 1..1000, do: i / 1000)]) > 1.5
    end
  end

  test "draws that do not vary are refused" do
    for diagnostic <- [&Diagnostics.ess/1, &Diagnostics.split_rhat/1] do
      assert_raise ArgumentError, fn -> diagnostic.([List.duplicate(1.0, 100)]) end
    end
  end

  describe "sample/3" do
    # Independent normals of very different scale, so that only the adapted mass makes them easy.
    @scales [0.1, 1.0, 10.0]

    defp logp(q), do: -0.5 * Enum.sum(Enum.zip_with(q, @scales, &(&1 * &1 / (&2 * &2))))

    defp integrate(q, p, inverse_mass, eps, steps) do
      kick = fn q, p ->
        Enum.zip_with([q, p, @scales], fn [q, p, s] -> p - 0.5 * eps * q / (s * s) end)
      end

      {q, p} =
        Enum.reduce(1..steps, {q, p}, fn _, {q, p} ->
          p = kick.(q, p)
          q = Enum.zip_with([q, p, inverse_mass], fn [q, p, m] -> q + eps * m * p end)
          {q, kick.(q, p)}
        end)

      # As the device does where numbers leave f32.
      if Enum.any?(q ++ p, &(abs(&1) > 1.0e30)), do: :diverged, else: {q, p, logp(q)}
    end

    defp sample(seed) do
      HMC.sample(&integrate/5, [0.3, -3.0, 20.0], warm_up: 400, draws: 2000, seed: seed)
    end

    test "draws from the density, and adapts" do
      results = for seed <- 1..2, do: sample(seed)

      for {scale, at} <- Enum.with_index(@scales) do
        draws = for result <- results, do: Enum.map(result.draws, &Enum.at(&1, at))
        all = Enum.concat(draws)
        error = scale / :math.sqrt(Diagnostics.ess(draws))
        assert_in_delta Diagnostics.mean(all), 0.0, 4 * error
        assert_in_delta Diagnostics.sd(all) / scale, 1.0, 0.1
        assert Diagnostics.split_rhat(draws) < 1.02

        for result <- results,
            do:
              assert_in_delta(:math.log(Enum.at(result.inverse_mass, at) / scale ** 2), 0.0, 0.6)
      end

      for result <- results do
        assert result.divergences == 0
        assert result.acceptance > 0.7 and result.acceptance < 0.98
      end
    end

    test "repeats with the same seed" do
      assert sample(5).draws == sample(5).draws
      assert sample(5).draws != sample(6).draws
    end

    test "rejects and counts trajectories that diverge, and stays where it was" do
      broken = fn q, _, _, eps, _ -> if eps == 0.0, do: {q, [0.0], 0.0}, else: :diverged end
      result = HMC.sample(broken, [1.0], warm_up: 40, draws: 20, seed: 1)
      assert result.divergences == 20
      assert result.draws == List.duplicate([1.0], 20)
    end

    test "refuses a start without density" do
      assert_raise ArgumentError, ~r/not finite/, fn ->
        HMC.sample(fn _, _, _, _, _ -> :diverged end, [1.0], warm_up: 10, draws: 10, seed: 1)
      end
    end
  end
end
