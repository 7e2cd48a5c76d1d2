defmodule Nx.Vulkan.Test.Compare do
  @moduledoc """
  Compares a tensor of the device with what it should be, element by element.

  A distance in ulps is how many numbers of the type lie between two floats, plus one. All NaNs are
  equal. The two zeros are different numbers of distance 0, so the sign of a zero counts unless the
  tolerance says otherwise.
  """

  import ExUnit.Assertions
  alias Nx.Tensor, as: T

  @doc """
  The largest distance from BinaryBackend's result (or from `Nx.Vulkan.Test.Reference`) in ulps of the
  result's type, by operation. This is the one place for it.

  f32 functions are within 1 ulp of the correctly rounded value, which BinaryBackend gives: it
  computes in f64. f64 ones are within 2, and the libm that BinaryBackend calls has an ulp of its own.
  Integers, and all that is not named here, are equal bit by bit.
  """
  def ulps(op, type)

  maths =
    [:exp, :expm1, :log, :log1p, :sigmoid, :cos, :sin, :tan, :cosh, :sinh, :tanh] ++
      [:acos, :asin, :atan, :acosh, :asinh, :atanh, :rsqrt, :cbrt, :erf, :erfc, :erf_inv] ++
      [:pow, :atan2]

  def ulps(op, {:f, 64}) when op in unquote(maths), do: 3
  def ulps(op, {kind, _}) when op in unquote(maths) and kind in [:f, :bf], do: 1
  def ulps(_op, _type), do: 0

  @doc "Operations for which either zero will do: BinaryBackend loses the sign on its way."
  def any_zero?(op), do: op in [:expm1, :log1p, :reduce_max, :reduce_min, :sum, :product, :dot]

  @doc """
  Asserts that `actual`, of the device, is `expected`: type, shape, names and all elements.

  `expected` is a tensor of BinaryBackend or a list of element binaries in which `:undefined` stands
  for an element on which BinaryBackend raises. `context` is shown when it fails; its `:inputs` are
  tensors of the same size, whose elements are shown.
  """
  def assert_same(%T{} = actual, %T{} = expected, op, context \\ []) do
    assert {actual.type, actual.shape, actual.names} ==
             {expected.type, expected.shape, expected.names},
           "#{op}: #{inspect(context)}"

    assert_elements(actual, elements(expected), op, context)
  end

  def assert_elements(%T{type: type} = actual, expected, op, context) do
    assert %Nx.Vulkan.VulkanoBackend{} = actual.data
    allowed = {ulps(op, type), any_zero?(op)}

    actual
    |> elements()
    |> Enum.zip(expected)
    |> Enum.with_index()
    |> Enum.each(fn {{got, want}, i} ->
      unless want == :undefined or close?(got, want, type, allowed) do
        flunk("""
        #{op} #{inspect(Keyword.delete(context, :inputs))}, element #{i}, seed #{ExUnit.configuration()[:seed]}
          inputs:   #{context |> Keyword.get(:inputs, []) |> Enum.map_join(", ", &show_element(&1, i))}
          expected: #{show(want, type)}
          got:      #{show(got, type)}
        """)
      end
    end)
  end

  @doc "The elements as bitstrings, in row-major order."
  def elements(%T{type: {_, size}} = tensor) do
    for <<element::bitstring-size(size) <- Nx.to_binary(tensor)>>, do: element
  end

  defp close?(same, same, _type, _allowed), do: true
  defp close?(_got, _want, {kind, _}, _allowed) when kind in [:u, :s], do: false

  defp close?(got, want, {:c, size}, allowed) do
    half = div(size, 2)
    <<got_re::bitstring-size(^half), got_im::bitstring>> = got
    <<want_re::bitstring-size(^half), want_im::bitstring>> = want

    close?(got_re, want_re, {:f, half}, allowed) and close?(got_im, want_im, {:f, half}, allowed)
  end

  defp close?(got, want, type, {ulps, any_zero?}) do
    case {decode(got, type), decode(want, type)} do
      {:nan, :nan} -> true
      {:nan, _} -> false
      {_, :nan} -> false
      {zero, other} when zero == 0 and other == 0 -> any_zero?
      {_, _} -> ulps > 0 and abs(position(got) - position(want)) <= ulps
    end
  end

  # Floats of one width, in order, are these integers: sign and magnitude.
  defp position(bits) do
    size = bit_size(bits) - 1
    <<number::integer-native-size(bit_size(bits))>> = bits
    <<sign::1, magnitude::size(^size)>> = <<number::size(bit_size(bits))>>
    if sign == 1, do: -magnitude, else: magnitude
  end

  defp decode(bits, type) do
    [number] = Nx.to_flat_list(Nx.from_binary(bits, type, backend: Nx.BinaryBackend))
    number
  end

  defp show(:undefined, _type), do: "undefined"
  defp show(bits, type), do: "#{inspect(decode(bits, type))} #{inspect(bits, base: :hex)}"

  defp show_element(%T{type: type} = tensor, i), do: show(Enum.at(elements(tensor), i), type)
end
