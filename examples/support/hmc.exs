defmodule Examples.HMC do
  @moduledoc """
  Hamiltonian Monte Carlo with a diagonal mass matrix. The caller provides the integrator.

  Sources: R. M. Neal, "MCMC using Hamiltonian dynamics" (2011), for the sampler; M. D. Hoffman
  and A. Gelman, "The No-U-Turn Sampler" (2014), section 3.2, for the adaptation of the step size;
  the Stan reference manual for the adaptation of the mass and for what a divergence is.
  """

  # Trajectories have a random length around a quarter of the period of a standard normal: long enough to decorrelate the
  # draws, and random to avoid resonance.
  @trajectory 1.5
  @max_steps 128
  # An energy error above this is a divergence: the trajectory has left the level set of the energy.
  @divergence 1000.0
  @target_acceptance 0.8
  # The parts of the warm-up and their shares. The step size adapts in all of them, the mass at the end of the middle
  # ones. In the first part every trajectory is one step with a new momentum, which brings the chain down to the nearest
  # mode. A long trajectory would carry the energy of a distant start through that mode into another.
  @warm_up [settle: 0.125, mass: 0.125, mass: 0.25, mass: 0.375, step: 0.125]

  @typedoc """
  `integrate.(q, p, inverse_mass, eps, steps)` makes `steps` leapfrog steps and returns the last
  position, momentum and log density, or `:diverged` where one of them is not finite. Lists of
  floats, one a parameter.
  """
  @type integrate :: ([float], [float], [float], float, pos_integer ->
                        {[float], [float], float} | :diverged)

  @doc """
  Draws `draws` positions after `warm_up` iterations of adaptation, from the initial position `q`.

  Options: `:warm_up` (at least 16), `:draws`, `:seed` (any term; the same seed gives the same
  chain), `:progress` (called after each iteration, those of the warm-up included, with how many
  are done and the step size). Returns a map: `draws` (a list of positions), `step_size`,
  `inverse_mass`, `acceptance` (mean over the draws), `divergences` (among the draws), `steps`
  (leapfrog steps that the draws took), `sampling_s` (seconds that they took).

  Raises `ArgumentError` when the log density at `q` is not finite.
  """
  @spec sample(integrate, [float], keyword) :: map
  def sample(integrate, q, options) do
    :rand.seed(:exsss, :erlang.phash2(options[:seed]))
    inverse_mass = Enum.map(q, fn _ -> 1.0 end)

    # A step of length 0 evaluates the density without moving.
    logp =
      case integrate.(q, Enum.map(q, fn _ -> 0.0 end), inverse_mass, 0.0, 1) do
        {_, _, logp} -> logp
        :diverged -> raise ArgumentError, "the log density at the initial position is not finite"
      end

    chain = %{
      integrate: integrate,
      progress: Keyword.get(options, :progress, fn _, _ -> :ok end),
      q: q,
      logp: logp,
      inverse_mass: inverse_mass,
      eps: 0.1,
      max_steps: @max_steps,
      steps: 0,
      iterations: 0
    }

    chain = %{warm_up(chain, options[:warm_up]) | steps: 0}
    started = System.monotonic_time()
    {chain, results} = iterate(chain, options[:draws], & &1)
    elapsed = System.monotonic_time() - started

    %{
      draws: Enum.map(results, & &1.q),
      step_size: chain.eps,
      inverse_mass: chain.inverse_mass,
      acceptance: Enum.sum(Enum.map(results, & &1.acceptance)) / length(results),
      divergences: Enum.count(results, & &1.diverged),
      steps: chain.steps,
      sampling_s: elapsed / System.convert_time_unit(1, :second, :native)
    }
  end

  defp warm_up(chain, iterations) do
    Enum.reduce(@warm_up, chain, fn {what, share}, chain ->
      chain = restart_averaging(chain)
      chain = %{chain | max_steps: if(what == :settle, do: 1, else: @max_steps)}
      {chain, results} = iterate(chain, round(share * iterations), &average_step/1)
      chain = %{chain | eps: :math.exp(chain.averaging.log_mean)}
      if what == :mass, do: adapt_mass(chain, Enum.map(results, & &1.q)), else: chain
    end)
  end

  # The variances of the draws, shrunk towards a small value as Stan does, so that few draws
  # cannot give a mass of 0.
  defp adapt_mass(chain, draws) do
    n = length(draws)

    inverse_mass =
      for values <- Enum.zip_with(draws, & &1) do
        n / (n + 5) * Examples.Diagnostics.variance(values) + 1.0e-3 * 5 / (n + 5)
      end

    %{chain | inverse_mass: inverse_mass}
  end

  defp iterate(chain, count, after_each) do
    {results, chain} =
      Enum.map_reduce(1..count//1, chain, fn _, chain ->
        chain = chain |> transition() |> after_each.()
        chain.progress.(chain.iterations, chain.eps)
        {Map.take(chain, [:q, :acceptance, :diverged]), chain}
      end)

    {chain, results}
  end

  # One trajectory and its Metropolis test.
  defp transition(chain) do
    length = @trajectory * (0.5 + :rand.uniform())
    steps = (length / chain.eps) |> round() |> max(1) |> min(chain.max_steps)
    {proposal, acceptance, diverged} = propose(chain, steps)
    accepted = proposal != nil and :rand.uniform() < acceptance

    chain =
      Map.merge(chain, %{
        acceptance: acceptance,
        diverged: diverged,
        steps: chain.steps + steps,
        iterations: chain.iterations + 1
      })

    if accepted, do: Map.merge(chain, proposal), else: chain
  end

  defp propose(chain, steps) do
    p = Enum.map(chain.inverse_mass, &(:rand.normal() / :math.sqrt(&1)))

    case chain.integrate.(chain.q, p, chain.inverse_mass, chain.eps, steps) do
      {q, p_end, logp} ->
        error =
          chain.logp - kinetic(p, chain.inverse_mass) - logp + kinetic(p_end, chain.inverse_mass)

        {%{q: q, logp: logp}, :math.exp(min(0.0, -error)), error > @divergence}

      :diverged ->
        {nil, 0.0, true}
    end
  end

  defp kinetic(p, inverse_mass),
    do: 0.5 * Enum.sum(Enum.zip_with(p, inverse_mass, &(&1 * &1 * &2)))

  # Dual averaging (Hoffman and Gelman, equation 6 and algorithm 5), from a step size of the right
  # magnitude.
  defp restart_averaging(chain) do
    eps = reasonable_step(chain)
    averaging = %{shrink_to: :math.log(10.0 * eps), at: 0, mean_error: 0.0, log_mean: 0.0}
    Map.merge(chain, %{eps: eps, averaging: averaging})
  end

  defp average_step(chain) do
    %{shrink_to: shrink_to, at: at, mean_error: mean_error, log_mean: log_mean} = chain.averaging
    {gamma, t0, kappa} = {0.05, 10, 0.75}
    at = at + 1
    eta = 1.0 / (at + t0)
    mean_error = (1.0 - eta) * mean_error + eta * (@target_acceptance - chain.acceptance)
    log_eps = shrink_to - :math.sqrt(at) / gamma * mean_error
    weight = :math.pow(at, -kappa)
    log_mean = weight * log_eps + (1.0 - weight) * log_mean
    averaging = %{chain.averaging | at: at, mean_error: mean_error, log_mean: log_mean}
    %{chain | eps: :math.exp(log_eps), averaging: averaging}
  end

  # Algorithm 4: doubled or halved until the acceptance of a single step crosses a half. Bounded,
  # as a flat or broken density never crosses it.
  defp reasonable_step(chain) do
    grow = single_step(chain) > 0.5
    factor = if grow, do: 2.0, else: 0.5

    Enum.reduce_while(1..40, chain.eps, fn _, eps ->
      next = eps * factor
      if single_step(%{chain | eps: next}) > 0.5 == grow, do: {:cont, next}, else: {:halt, next}
    end)
  end

  defp single_step(chain) do
    {_proposal, acceptance, _diverged} = propose(chain, 1)
    acceptance
  end
end
