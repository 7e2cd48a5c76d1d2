defmodule Nx.Vulkan.Backend.NarrowFloat do
  @moduledoc false
  # Numbers of the host as floats of 8 and 16 bits, rounded to nearest even as shaders/lib/convert.glsl does on the
  # device. It knows no tensors.

  import Bitwise

  # Digits of the significand, the exponent of the smallest normal number, and the bits of what is beyond the largest
  # number: infinity, or that number itself.
  @formats %{
    {:bf, 16} => {8, -126, 0x7F80},
    {:f, 8} => {3, -14, 0x7C},
    {:f8_e4m3fn, 8} => {4, -6, 0x7E}
  }

  @doc "Whether Erlang has no conversion to the type that rounds so."
  defguard is_narrow(type) when is_map_key(@formats, type)

  @doc "The element of the type, as Nx stores it, that is nearest to the number."
  @spec to_binary(number(), Nx.Type.t()) :: binary()
  def to_binary(number, {_, size} = type) do
    {digits, least, beyond} = Map.fetch!(@formats, type)
    {sign, significand, exponent} = parts(number)
    smallest_unit = least - digits + 1
    unit = max(bits(significand) + exponent - digits, smallest_unit)
    magnitude = ((unit - smallest_unit) <<< (digits - 1)) + nearest(significand, unit - exponent)
    <<(sign <<< (size - 1)) + min(magnitude, beyond)::size(size)-native>>
  end

  # The number is the significand times 2 to the exponent.
  defp parts(0), do: parts(0.0)

  defp parts(integer) when is_integer(integer),
    do: {if(integer < 0, do: 1, else: 0), abs(integer), 0}

  defp parts(float) do
    case <<float::float>> do
      <<sign::1, 0::11, fraction::52>> -> {sign, fraction, -1074}
      <<sign::1, exponent::11, fraction::52>> -> {sign, fraction + 2 ** 52, exponent - 1075}
    end
  end

  defp bits(0), do: 0
  defp bits(integer), do: length(Integer.digits(integer, 2))

  # The integer over 2 to the shift, rounded to nearest even.
  defp nearest(integer, shift) when shift <= 0, do: integer <<< -shift

  defp nearest(integer, shift) do
    quotient = integer >>> shift
    rest = integer - (quotient <<< shift)

    case {rest, 1 <<< (shift - 1)} do
      {rest, half} when rest > half -> quotient + 1
      {half, half} -> quotient + (quotient &&& 1)
      _below -> quotient
    end
  end
end
