defmodule Nx.Vulkan.MCMC.WarmUp do
  @moduledoc false
  # The windows of a warm-up in which the scale of positions is found. It knows no chains: what happens at a
  # window's end is shaders/lib/chain/adaptation.glsl's.

  # Stan's defaults: transitions before the first window and after the last one, and of the first window.
  @first 75
  @last 50
  @base 25
  # The fewest transitions of a warm-up that has windows.
  @least 20

  @doc """
  The first transition of the first window, then the transition after each window's last.

  Each window is twice as long as the one before; the last one takes what is left. A warm-up too short for Stan's
  lengths divides as 15 %, 75 % and 10 %.
  """
  @spec windows(non_neg_integer()) :: [non_neg_integer(), ...]
  def windows(transitions) when transitions < @least, do: [transitions]

  def windows(transitions) do
    {first, last, base} =
      if @first + @base + @last > transitions do
        {first, last} = {div(15 * transitions, 100), div(transitions, 10)}
        {first, last, transitions - first - last}
      else
        {@first, @last, @base}
      end

    [first | ends(first, base, transitions - last)]
  end

  defp ends(start, length, last) do
    stop = start + length
    if stop + 2 * length > last, do: [last], else: [stop | ends(stop, 2 * length, last)]
  end
end
