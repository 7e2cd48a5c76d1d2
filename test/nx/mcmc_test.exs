defmodule Nx.Vulkan.MCMCTest do
  @moduledoc "Samplers against their definition (`Nx.Vulkan.Test.Nuts`) and against known posteriors."

  use Nx.Vulkan.Test.Case, async: true

  alias Nx.Vulkan.{Chain, MCMC}
  alias Nx.Vulkan.MCMC.WarmUp
  alias Nx.Vulkan.Test.Nuts

  # Samplers compute in f64 unless told otherwise.
  @moduletag :float64

  # A normal distribution whose elements have scales from 1 to 3 and are correlated with their neighbours.
  defp precision(d) do
    for i <- 1..d do
      for j <- 1..d do
        cond do
          i == j -> 1.0 / (1 + 2 * rem(i, 3) / 2) ** 2
          abs(i - j) == 1 -> 0.04
          true -> 0.0
        end
      end
    end
  end

  defp normal(q, a), do: Nx.multiply(-0.5, Nx.dot(q, Nx.dot(a, q)))

  defp density(a) do
    fn q ->
      product = for row <- a, do: Enum.sum(Enum.zip_with(row, q, &(&1 * &2)))
      {-0.5 * Enum.sum(Enum.zip_with(q, product, &(&1 * &2))), Enum.map(product, &(-&1))}
    end
  end

  defp start(d), do: for(i <- 1..d, do: :math.sin(i * 1.37))
  defp f64(list), do: Nx.tensor(list, type: :f64)
  defp quiet(opts), do: [progress: false] ++ opts
  defp number(tensor), do: Nx.to_number(tensor)

  describe "the definition" do
    @tag float64: false
    test "has the generator's known answers" do
      assert Nuts.philox({0, 0, 0, 0}, {0, 0}) ==
               {0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}

      ones = 0xFFFFFFFF

      assert Nuts.philox({ones, ones, ones, ones}, {ones, ones}) ==
               {0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}

      assert_in_delta Nuts.normal(0.975), 1.959963984540054, 1.0e-13
    end

    # Dimensions below, at and above the number of invocations, and vectors that are in memory.
    for {d, step_size, max_depth} <- [
          {1, 0.5, 10},
          {3, 0.3, 10},
          {8, 0.05, 10},
          {11, 0.4, 3},
          {40, 0.35, 10},
          # Steps that are not stable.
          {3, 3.2, 10}
        ] do
      test "gives the draws of #{d} dimensions, step size #{step_size}, depth #{max_depth}" do
        {d, step_size, max_depth} = {unquote(d), unquote(step_size), unquote(max_depth)}
        a = precision(d)
        draws = 12

        %{draws: q, stats: stats} =
          MCMC.sample(
            &normal/2,
            f64(start(d)),
            f64(a),
            quiet(warmup: 0, draws: draws, chains: 2, seed: 2 ** 40 + 7) ++
              [step_size: step_size, max_depth: max_depth]
          )

        for chain <- 0..1 do
          expected =
            Nuts.sample(density(a), start(d),
              seed: 2 ** 40 + 7,
              chain: chain,
              transitions: draws,
              max_depth: max_depth,
              step_size: step_size
            )

          given = fn key -> Nx.to_flat_list(stats[key][chain]) end
          assert given.(:depth) == Enum.map(expected, & &1.depth)
          assert given.(:leapfrog_steps) == Enum.map(expected, & &1.steps)
          assert given.(:divergent) == Enum.map(expected, &if(&1.divergent, do: 1, else: 0))

          close(stats.accept[chain], Enum.map(expected, & &1.accept))
          close(stats.energy[chain], Enum.map(expected, & &1.energy))
          close(stats.logp[chain], Enum.map(expected, & &1.logp))
          close(q[chain], Enum.flat_map(expected, & &1.q))
        end
      end
    end

    for mass <- [:diagonal, :dense] do
      test "gives the warm-up: step sizes, and #{mass} masses at the ends of windows" do
        a = precision(4)
        opts = [warmup: 60, target_accept: 0.7, seed: 3, mass: unquote(mass)]

        %{draws: q, stats: stats} =
          MCMC.sample(&normal/2, f64(start(4)), f64(a), quiet([draws: 5, chains: 1] ++ opts))

        expected =
          Nuts.sample(
            density(a),
            start(4),
            [chain: 0, transitions: 65, max_depth: 10, windows: WarmUp.windows(60)] ++ opts
          )

        kept = Enum.drop(expected, 60)
        assert_in_delta number(stats.step_size[0]), hd(kept).step_size, 1.0e-6
        close(q[0], Enum.flat_map(kept, & &1.q), 1.0e-5)
      end
    end
  end

  defp close(tensor, expected, error \\ 1.0e-8) do
    for {x, y} <- Enum.zip(Nx.to_flat_list(tensor), expected),
        do: assert_in_delta(x, y, error * max(1, abs(y)))
  end

  @tag float64: false
  test "the windows of a warm-up are Stan's" do
    assert WarmUp.windows(1000) == [75, 100, 150, 250, 450, 950]
    assert WarmUp.windows(600) == [75, 100, 150, 250, 550]
    assert WarmUp.windows(150) == [75, 100]
    assert WarmUp.windows(100) == [15, 90]
    assert WarmUp.windows(20) == [3, 18]
    assert WarmUp.windows(19) == [19]

    for n <- 20..2000//13 do
      [first | ends] = WarmUp.windows(n)
      assert ends == Enum.sort(ends) and first < hd(ends) and List.last(ends) < n
      # A variance needs two draws.
      assert Enum.all?(Enum.zip_with([first | ends], ends, &(&2 - &1)), &(&1 >= 2))
    end
  end

  describe "posteriors" do
    # The mean and the variance of each element, within what independent draws of a quarter of the number would be off by.
    defp assert_moments(draws, means, variances) do
      {chains, count, d} = Nx.shape(draws)
      flat = draws |> host() |> Nx.reshape({chains * count, d})
      n = chains * count / 4

      for i <- 0..(d - 1) do
        {mean, variance} = {Enum.at(means, i), Enum.at(variances, i)}
        assert_in_delta number(Nx.mean(flat[[.., i]])), mean, 5 * :math.sqrt(variance / n)

        assert_in_delta number(Nx.variance(flat[[.., i]])) / variance,
                        1.0,
                        5 * :math.sqrt(2 / n)
      end
    end

    for {algorithm, type} <- [nuts: :f64, nuts: :f32, hmc: :f64] do
      @tag float64: type == :f64
      test "a normal distribution by #{algorithm} in #{type}" do
        scales = [0.1, 1.0, 7.0]

        logp = fn q, {mean, scale} ->
          Nx.multiply(-0.5, Nx.sum(Nx.pow(Nx.divide(Nx.subtract(q, mean), scale), 2)))
        end

        %{draws: draws, stats: stats} =
          MCMC.sample(
            logp,
            f64([0, 0, 0]),
            {f64([1, 2, 3]), f64(scales)},
            quiet(
              algorithm: unquote(algorithm),
              type: unquote(type),
              chains: 4,
              warmup: 300,
              draws: 500
            )
          )

        assert draws.type == Nx.Type.normalize!(unquote(type))
        assert_moments(Nx.as_type(draws, :f64), [1, 2, 3], Enum.map(scales, &(&1 * &1)))
        assert_in_delta number(Nx.mean(stats.accept)), 0.85, 0.12
        assert number(Nx.sum(stats.divergent)) == 0
      end
    end

    # A chi-square statistic of ten pairs of parts, which chance exceeds once in 10,000 times.
    @most_asymmetry 35.6

    for {algorithm, step_size} <- [nuts: 0.7, nuts: 1.6, hmc: 1.1] do
      test "draws are in detailed balance: #{algorithm} with steps of #{step_size}" do
        # The logarithm of an exponential variable, in five parts of the same probability.
        logp = fn q, _ -> Nx.sum(Nx.subtract(q, Nx.exp(q))) end
        starts = for _ <- 1..8192, do: :math.log(-:math.log(1 - :rand.uniform()))
        part = fn q -> trunc(5 * (1 - :math.exp(-:math.exp(q)))) end

        opts =
          quiet(algorithm: unquote(algorithm), chains: 8192, warmup: 0, draws: 1, steps: 4)

        opts = [step_size: unquote(step_size)] ++ opts
        start = fn chain -> f64([Enum.at(starts, chain)]) end
        %{draws: draws, stats: stats} = MCMC.sample(logp, start, {}, opts)
        # Points that are chosen by their weights, some of which are not.
        assert number(Nx.mean(stats.accept)) < 0.99

        counts =
          Enum.zip_with(starts, Nx.to_flat_list(draws), &{part.(&1), part.(&2)})
          |> Enum.frequencies()

        terms =
          for i <- 0..4, j <- 0..4, i < j do
            {there, back} = {Map.get(counts, {i, j}, 0), Map.get(counts, {j, i}, 0)}
            assert there + back > 20
            (there - back) ** 2 / (there + back)
          end

        assert Enum.sum(terms) < @most_asymmetry
      end
    end

    for {d, mass} <- [{5, :diagonal}, {5, :dense}, {20, :dense}] do
      test "a correlated normal distribution of #{d} elements with a #{mass} mass" do
        a = f64(precision(unquote(d)))
        opts = quiet(chains: 4, warmup: 300, draws: 500, mass: unquote(mass))
        %{draws: draws} = MCMC.sample(&normal/2, f64(start(unquote(d))), a, opts)
        variances = Nx.to_flat_list(Nx.take_diagonal(Nx.LinAlg.invert(a)))
        assert_moments(draws, List.duplicate(0, unquote(d)), variances)
      end
    end

    test "a dense mass needs fewer steps where parameters are correlated" do
      # Two elements with a correlation of 0.995.
      a = f64([[100.25, -99.75], [-99.75, 100.25]])

      [diagonal, dense] =
        for mass <- [:diagonal, :dense] do
          opts = quiet(chains: 2, warmup: 300, draws: 200, mass: mass)
          %{stats: stats} = MCMC.sample(&normal/2, f64([0, 0]), a, opts)
          number(Nx.sum(stats.leapfrog_steps))
        end

      assert dense < 0.5 * diagonal
    end

    test "a funnel, not centred" do
      # v of N(0, 3), and x of N(0, exp(v / 2)) as exp(v / 2) z.
      logp = fn q, _ ->
        Nx.multiply(-0.5, Nx.add(Nx.divide(Nx.pow(q.v, 2), 9), Nx.sum(Nx.pow(q.z, 2))))
      end

      q = %{v: Nx.f64(1), z: f64([0.1, 0.2, 0.3])}
      %{draws: draws} = MCMC.sample(logp, q, {}, quiet(chains: 4, warmup: 300, draws: 500))
      assert {Nx.shape(draws.v), Nx.shape(draws.z)} == {{4, 500}, {4, 500, 3}}
      assert_moments(Nx.new_axis(draws.v, -1), [0], [9])
      assert_moments(draws.z, [0, 0, 0], [1, 1, 1])
    end

    test "eight schools" do
      logp = fn q, data ->
        tau = Nx.exp(q.log_tau)
        theta = Nx.add(q.mu, Nx.multiply(tau, q.eta))
        residuals = Nx.divide(Nx.subtract(data.effect, theta), data.error)

        prior =
          Nx.add(
            Nx.pow(Nx.divide(q.mu, 5), 2),
            Nx.multiply(2, Nx.log1p(Nx.pow(Nx.divide(tau, 5), 2)))
          )

        squares = Nx.add(Nx.sum(Nx.pow(q.eta, 2)), Nx.sum(Nx.pow(residuals, 2)))
        Nx.subtract(q.log_tau, Nx.multiply(0.5, Nx.add(prior, squares)))
      end

      data = %{
        effect: f64([28, 8, -3, 7, -1, 1, 18, 12]),
        error: f64([15, 10, 16, 11, 9, 11, 10, 18])
      }

      q = %{mu: Nx.f64(0), log_tau: Nx.f64(0), eta: Nx.broadcast(Nx.f64(0), {8})}
      opts = quiet(chains: 4, warmup: 500, draws: 1000, target_accept: 0.9)
      %{draws: draws} = MCMC.sample(logp, q, data, opts)

      # The reference posterior of posteriordb, eight_schools_noncentered: mu 4.41 ± 3.31, tau 3.60 ± 3.17.
      mu = host(draws.mu)
      tau = Nx.exp(host(draws.log_tau))
      assert_in_delta number(Nx.mean(mu)), 4.41, 0.4
      assert_in_delta number(Nx.standard_deviation(mu)), 3.31, 0.3
      assert_in_delta number(Nx.mean(tau)), 3.60, 0.4
      assert_in_delta number(Nx.standard_deviation(tau)), 3.17, 0.5
    end
  end

  describe "reproducibility" do
    defp bits(result),
      do: for(tensor <- [result.draws | Map.values(result.stats)], do: Nx.to_binary(host(tensor)))

    for {algorithm, mass} <- [nuts: :diagonal, nuts: :dense, hmc: :diagonal] do
      test "the bits of #{algorithm} with a #{mass} mass do not depend on how the work is cut" do
        sample = fn opts ->
          opts = [algorithm: unquote(algorithm), mass: unquote(mass), chains: 3] ++ opts
          opts = [warmup: 25, draws: 10] ++ opts
          MCMC.sample(&normal/2, f64(start(11)), f64(precision(11)), quiet(opts))
        end

        [one | rest] =
          for steps <- [1, 7, 1000, nil], do: bits(sample.(steps_per_dispatch: steps))

        for other <- rest, do: assert(other == one)
        assert bits(sample.(seed: 1)) != one
      end
    end

    test "the first chains of many are those of few" do
      sample = fn chains ->
        MCMC.sample(
          &normal/2,
          &f64(Enum.map(start(3), fn x -> x + &1 end)),
          f64(precision(3)),
          quiet(chains: chains, warmup: 30, draws: 5)
        ).draws
      end

      assert Nx.to_binary(host(sample.(9)[0..2])) == Nx.to_binary(host(sample.(3)))
    end

    test "a draw of several transitions is the last of them" do
      sample = fn opts ->
        MCMC.sample(&normal/2, f64(start(3)), f64(precision(3)), quiet([warmup: 30] ++ opts))
      end

      thinned = sample.(draws: 4, thin: 5)
      all = sample.(draws: 20)
      last = &Nx.to_binary(host(&1[[.., 4..19//5]]))
      assert Nx.to_binary(host(thinned.draws)) == last.(all.draws)
      assert Nx.to_binary(host(thinned.stats.energy)) == last.(all.stats.energy)
    end
  end

  test "transitions that diverge, or meet NaN, are counted, and the chain goes on" do
    # Outside of (-1, 1) the logarithm is NaN.
    beta = fn q, _ -> Nx.sum(Nx.log(Nx.subtract(1, Nx.pow(q, 2)))) end

    %{draws: draws, stats: stats} =
      MCMC.sample(beta, f64([0.1, 0.2]), {}, quiet(warmup: 0, draws: 200, step_size: 0.9))

    divergent = host(stats.divergent)
    assert divergent.type == {:u, 8}
    assert number(Nx.sum(divergent)) in 50..750
    assert number(Nx.reduce_max(Nx.abs(draws))) < 1
    assert number(Nx.all(Nx.is_nan(host(stats.energy)) |> Nx.logical_not())) == 1
    # Beta(2, 2) on (-1, 1) has the variance 1/5.
    assert_in_delta number(Nx.variance(host(draws))), 0.2, 0.06
  end

  # Other tests sample at the same time, in other processes.
  def forward(_event, measurements, metadata, pid),
    do: if(self() == pid, do: send(pid, {:progress, measurements, metadata}))

  test "progress is a telemetry event" do
    handler = {__MODULE__, make_ref()}
    event = [:nx_vulkan, :mcmc, :progress]
    :telemetry.attach(handler, event, &__MODULE__.forward/4, self())
    opts = quiet(chains: 2, warmup: 20, draws: 10, steps_per_dispatch: 40)
    %{stats: stats} = MCMC.sample(&normal/2, f64(start(3)), f64(precision(3)), opts)
    :telemetry.detach(handler)

    {:messages, messages} = Process.info(self(), :messages)
    events = for {:progress, measurements, metadata} <- messages, do: {measurements, metadata}
    {first, %{phase: :warmup, chains: 2, total: 60}} = hd(events)
    {last, %{phase: :sampling}} = List.last(events)
    assert {first.transitions < last.transitions, last.transitions} == {true, 60}
    assert last.leapfrogs > number(Nx.sum(stats.leapfrog_steps))
    assert_in_delta last.step_size, number(Nx.mean(stats.step_size)), 1.0e-6
    assert last.accept > 0 and last.accept <= 1
  end

  test "on a terminal there is a bar" do
    report = fn transitions ->
      sum = %{transitions: transitions, least: 0, divergences: 3, leapfrogs: 9}
      run = %{chains: 2, warmup: 10, transitions: 24, bar?: true}

      ExUnit.CaptureIO.capture_io(:stderr, fn ->
        MCMC.Progress.report(Map.merge(sum, %{step_size: 0.5, accept: 0.75}), run)
      end)
    end

    said = "transitions of 2 chains, step size 0.5, acceptance 0.75, 3 divergences "
    half = String.duplicate("█", 12) <> String.duplicate("░", 12)
    assert report.(24) =~ "\r#{half} 24/48 #{said}"
    assert report.(48) =~ "\r#{String.duplicate("█", 24)} 48/48 #{said}\n"
  end

  test "a compiled log-density is sampled again with other data" do
    {:ok, chain} = Chain.compile(&normal/2, Nx.template({3}, :f64), Nx.template({3, 3}, :f64))
    opts = quiet(chains: 2, warmup: 50, draws: 5)

    for a <- [f64(precision(3)), Nx.eye(3, type: :f64)] do
      assert bits(MCMC.sample(chain, f64(start(3)), a, opts)) ==
               bits(MCMC.sample(&normal/2, f64(start(3)), a, opts))
    end
  end

  test "bad options, data and starts raise, and what no kernel computes is an error" do
    sample = fn opts ->
      MCMC.sample(&normal/2, f64(start(3)), f64(precision(3)), quiet(opts))
    end

    for {key, value} <- [
          algorithm: :gibbs,
          mass: :none,
          type: :bf16,
          chains: 0,
          draws: 0,
          draws: 1.5,
          thin: 0,
          warmup: -1,
          max_depth: 21,
          max_depth: 0,
          steps: 0,
          seed: -1,
          seed: 2 ** 64,
          target_accept: 1,
          target_accept: 0.0,
          step_size: 0,
          step_size: "small",
          steps_per_dispatch: 0,
          unknown: 1
        ] do
      assert_raise ArgumentError, ~r/#{key}/, fn -> sample.([{key, value}]) end
    end

    assert_raise ArgumentError, ~r/2\^31/, fn -> sample.(draws: 0x7FFFFFFF, chains: 4) end
    {:ok, chain} = Chain.compile(&normal/2, Nx.template({3}, :f64), Nx.template({3, 3}, :f64))

    assert_raise ArgumentError, ~r/data/, fn ->
      MCMC.sample(chain, f64(start(3)), {}, quiet([]))
    end

    assert_raise ArgumentError, ~r/q: expected tensors/, fn ->
      MCMC.sample(&normal/2, &f64(start(3 + &1)), f64(precision(3)), quiet([]))
    end

    log = fn q, _ -> Nx.sum(Nx.log(q)) end

    assert_raise ArgumentError, ~r/not finite where chain 1 starts/, fn ->
      MCMC.sample(log, fn chain -> f64([1 - chain]) end, {}, quiet(warmup: 0, draws: 5))
    end

    assert {:error, {:unsupported, text}} =
             MCMC.sample(fn q, _ -> Nx.sum(Nx.sort(q)) end, f64([1]), {}, quiet([]))

    assert text =~ "sort"

    assert_raise RuntimeError, "mine", fn ->
      MCMC.sample(fn _, _ -> raise "mine" end, f64([1]), {})
    end
  end

  test "a process that ends while it samples frees its memory" do
    used = fn -> Nx.Vulkan.memory_info().used_bytes end

    sample = fn ->
      MCMC.sample(&normal/2, f64(start(3)), f64(precision(3)), quiet(draws: 1_000_000))
    end

    before = used.()
    {pid, monitor} = spawn_monitor(sample)
    Process.sleep(500)
    Process.exit(pid, :kill)
    assert_receive {:DOWN, ^monitor, :process, ^pid, :killed}, 5000

    assert Enum.any?(1..50, fn _ -> Process.sleep(100) == :ok and used.() - before < 4_000_000 end)
  end
end
