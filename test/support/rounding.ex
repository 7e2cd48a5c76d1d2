defmodule Nx.Vulkan.Test.Rounding do
  @moduledoc "Numbers rounded to nearest even in floats of 8 and 16 bits, by search among all values of the type."

  alias Nx.Tensor, as: T

  # The values from zero up whose bits are 0, 1, …; the last one stands for infinity, but for f8_e4m3fn, which has none.
  values = fn digits, least, count ->
    for bits <- 0..(count - 1) do
      [exponent, fraction] = [div(bits, 2 ** (digits - 1)), rem(bits, 2 ** (digits - 1))]
      significand = if exponent == 0, do: fraction, else: fraction + 2 ** (digits - 1)
      significand * 2.0 ** (least + max(exponent, 1) - digits)
    end
  end

  @values %{
    {:bf, 16} => List.to_tuple(values.(8, -126, 0x7F81)),
    {:f, 8} => List.to_tuple(values.(3, -14, 0x7D)),
    {:f8_e4m3fn, 8} => List.to_tuple(values.(4, -6, 0x7F))
  }

  @doc "Whether BinaryBackend rounds otherwise."
  def rounded?(type), do: is_map_key(@values, type)

  @doc "The tensor of BinaryBackend with these numbers."
  def tensor(%T{type: type, shape: shape, names: names}, numbers) do
    numbers
    |> Enum.map(&element(&1, type))
    |> IO.iodata_to_binary()
    |> Nx.from_binary(type, backend: Nx.BinaryBackend)
    |> Nx.reshape(shape, names: names)
  end

  @doc "The nearest element of the type, as Nx stores it."
  def element(%Complex{re: re}, type), do: element(re, type)

  def element(number, type) when is_atom(number),
    do: Nx.to_binary(Nx.tensor(number, type: type, backend: Nx.BinaryBackend))

  def element(number, {_, size} = type) do
    values = Map.fetch!(@values, type)
    sign = if number < 0 or number === -0.0, do: 2 ** (size - 1), else: 0
    <<sign + nearest(abs(number), values, 0, tuple_size(values) - 1)::size(size)-native>>
  end

  # Between these two indices.
  defp nearest(number, values, low, high) when high - low > 1 do
    middle = div(low + high, 2)

    if number < elem(values, middle),
      do: nearest(number, values, low, middle),
      else: nearest(number, values, middle, high)
  end

  defp nearest(number, values, low, high) do
    middle = (elem(values, low) + elem(values, high)) / 2

    cond do
      number < middle -> low
      number > middle -> high
      true -> low + rem(low, 2)
    end
  end
end
