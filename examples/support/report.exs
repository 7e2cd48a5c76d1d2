defmodule Examples.Report do
  @moduledoc "How samples of a model with known parameters are reported and judged."

  # R-hat from which on chains disagree, and how many standard deviations the truth may be off the mean.
  @most_rhat 1.02
  @most_deviations 4.0

  @doc "Prints the device, or ends with status 1 where there is none."
  def device do
    case Nx.Vulkan.device_info() do
      {:ok, info} ->
        IO.puts("Device: #{info.name} (#{info.type}), driver #{info.driver}\n")

      error ->
        IO.puts(:stderr, "No Vulkan device: #{inspect(error)}")
        exit({:shutdown, 1})
    end
  end

  @doc """
  Prints a summary with what sampling took, and ends with status 1 where chains disagree or a mean is far from the
  truth, a map by the names of the summary.
  """
  def judge(summary, stats, microseconds, truth) do
    IO.inspect(summary, limit: :infinity)
    steps = Nx.to_number(Nx.sum(stats.leapfrog_steps))
    ess = summary.parameters |> Enum.map(& &1.ess_bulk) |> Enum.min()
    seconds = microseconds / 1.0e6

    IO.puts(
      "\n#{Float.round(seconds, 1)} s with the warm-up and the kernel's build, #{steps} leapfrog steps for the draws, " <>
        "#{round(ess)} effective draws at least"
    )

    problems =
      for row <- summary.parameters,
          problem = problem(row, Map.fetch!(truth, row.name)),
          do: problem

    if problems != [] do
      IO.puts(:stderr, Enum.join(["" | problems], "\n"))
      exit({:shutdown, 1})
    end
  end

  # NaN is an atom, which is greater than any number.
  defp problem(%{rhat: rhat, name: name}, _truth) when rhat > @most_rhat,
    do: "R-hat of #{name} is #{rhat}"

  defp problem(row, truth) do
    deviations = abs(row.mean - truth) / row.sd
    if deviations > @most_deviations, do: "#{row.name} is #{deviations} sd from its true value"
  end
end
