defmodule Nx.Vulkan.MCMC.Progress do
  @moduledoc false
  # What chains have done so far: from the words that a sampler reports after each dispatch to a telemetry event and a
  # line of a terminal. It does not run anything.

  @width 24

  @doc "The sum of what the chains report; `words` has a row for each chain, the reported words first."
  @spec read(binary(), pos_integer()) :: map()
  def read(words, chains) do
    row = div(byte_size(words), chains)

    for <<own::binary-size(row) <- words>>,
      reduce: %{transitions: 0, least: nil, divergences: 0, leapfrogs: 0, failed: [], numbers: []} do
      sum ->
        <<transition::32-native, divergences::32-native, leapfrogs::32-native, failed::32-native,
          step_size::binary-4, accept::binary-4, _::binary>> = own

        %{
          transitions: sum.transitions + transition,
          least: min(sum.least || transition, transition),
          divergences: sum.divergences + divergences,
          leapfrogs: sum.leapfrogs + leapfrogs,
          failed: [failed | sum.failed],
          numbers: [{float(step_size), float(accept)} | sum.numbers]
        }
    end
    |> summary(chains)
  end

  defp summary(sum, chains) do
    {sizes, acceptances} = Enum.unzip(sum.numbers)

    sum
    |> Map.drop([:numbers, :failed])
    |> Map.merge(%{
      step_size: Enum.sum(sizes) / chains,
      accept: Enum.sum(acceptances) / chains,
      failed: sum.failed |> Enum.reverse() |> Enum.find_index(&(&1 != 0))
    })
  end

  # The BEAM has no infinities and no NaN.
  defp float(<<number::float-32-native>>), do: number
  defp float(_), do: 0.0

  @doc "Emits the event, and draws the bar where there is a terminal to draw it on."
  @spec report(map(), map()) :: :ok
  def report(sum, run) do
    total = run.chains * run.transitions

    :telemetry.execute(
      [:nx_vulkan, :mcmc, :progress],
      Map.take(sum, [:transitions, :divergences, :leapfrogs, :step_size, :accept]),
      %{
        chains: run.chains,
        total: total,
        phase: if(sum.least < run.warmup, do: :warmup, else: :sampling)
      }
    )

    if run.bar?, do: draw(sum, run, total)
    :ok
  end

  @doc "Whether standard error is a terminal."
  def terminal?, do: match?({:ok, _}, :io.columns(:standard_error))

  defp draw(sum, run, total) do
    done = div(@width * sum.transitions, max(total, 1))
    bar = String.duplicate("█", done) <> String.duplicate("░", @width - done)
    ended = if sum.transitions == total, do: "\n", else: ""

    IO.write(
      :stderr,
      "\r#{bar} #{sum.transitions}/#{total} transitions of #{run.chains} chains, " <>
        "step size #{round_to(sum.step_size)}, acceptance #{round_to(sum.accept)}, " <>
        "#{sum.divergences} divergences #{ended}"
    )
  end

  defp round_to(number), do: :erlang.float_to_binary(number, [{:decimals, 4}, :compact])
end
