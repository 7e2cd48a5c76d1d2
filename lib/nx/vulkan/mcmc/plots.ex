defmodule Nx.Vulkan.MCMC.Plots do
  @moduledoc """
  Plots of the draws of one parameter, as specifications of VegaLite.

  Where the module `VegaLite` is loaded, a plot is one of its structs, which Livebook draws. Elsewhere it is the
  specification, a map for any program that takes Vega-Lite's JSON.

      iex> draws = Nx.tensor([[1.0, 2.0, 1.5], [1.2, 0.8, 1.1]])
      iex> plot = Nx.Vulkan.MCMC.Plots.trace(draws, "theta")
      iex> {plot["mark"], length(plot["data"]["values"])}
      {"line", 6}
  """

  alias Nx.Tensor, as: T

  # Points of a trace: more are not seen, and a browser becomes slow.
  @max_points 5000
  # Bars of a chain's ranks.
  @bins 20

  @doc """
  The draws of each chain one after the other, a line for each. Long chains are thinned.

  `draws` is a tensor of `{chains, draws}`, and `name` is written beside it.
  """
  @spec trace(T.t(), String.t()) :: map()
  def trace(draws, name) do
    {chains, count} = shape!(draws)
    step = max(1, ceil(chains * count / @max_points))
    kept = draws[[.., 0..-1//step]]

    values =
      for {row, chain} <- Enum.with_index(Nx.to_list(kept)),
          {value, index} <- Enum.with_index(row),
          do: %{"chain" => chain, "draw" => index * step, "value" => number(value)}

    plot(%{
      "data" => %{"values" => values},
      "mark" => "line",
      "width" => 600,
      "height" => 200,
      "encoding" => %{
        "x" => %{"field" => "draw", "type" => "quantitative"},
        "y" => %{
          "field" => "value",
          "type" => "quantitative",
          "title" => name,
          "scale" => %{"zero" => false}
        },
        "color" => %{"field" => "chain", "type" => "nominal"}
      }
    })
  end

  @doc """
  How the ranks of the draws among those of all chains are distributed, a histogram for each chain.

  Bars of equal height say that the chains agree (Vehtari, Gelman, Simpson, Carpenter and Bürkner 2021). `draws` is a
  tensor of `{chains, draws}`.
  """
  @spec ranks(T.t(), String.t()) :: map()
  def ranks(draws, name) do
    {chains, count} = shape!(draws)
    total = chains * count
    order = draws |> Nx.reshape({total}) |> Nx.argsort() |> Nx.to_flat_list()

    bars =
      for {index, rank} <- Enum.with_index(order), reduce: %{} do
        bars -> Map.update(bars, {div(index, count), div(rank * @bins, total)}, 1, &(&1 + 1))
      end

    values =
      for chain <- 0..(chains - 1), bin <- 0..(@bins - 1) do
        rank = div(bin * total, @bins)
        %{"chain" => chain, "rank" => rank, "count" => Map.get(bars, {chain, bin}, 0)}
      end

    plot(%{
      "data" => %{"values" => values},
      "mark" => "bar",
      "width" => 140,
      "height" => 100,
      "title" => name,
      "encoding" => %{
        "x" => %{"field" => "rank", "type" => "ordinal", "axis" => %{"labels" => false}},
        "y" => %{"field" => "count", "type" => "quantitative"},
        "facet" => %{"field" => "chain", "type" => "nominal", "columns" => 4}
      }
    })
  end

  defp shape!(%T{shape: {_chains, _draws} = shape}), do: shape

  defp shape!(%T{shape: shape}),
    do: raise(ArgumentError, "draws: expected {chains, draws}, got the shape #{inspect(shape)}")

  # JSON has no infinities.
  defp number(value) when is_number(value), do: value
  defp number(_value), do: nil

  defp plot(spec) do
    spec = Map.put(spec, "$schema", "https://vega.github.io/schema/vega-lite/v5.json")
    if Code.ensure_loaded?(VegaLite), do: struct(VegaLite, spec: spec), else: spec
  end
end
