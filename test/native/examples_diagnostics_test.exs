Code.require_file("../../examples/support/diagnostics.exs", __DIR__)

defmodule Examples.DiagnosticsTest do
  use ExUnit.Case, async: true

  alias Examples.Diagnostics

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
end
