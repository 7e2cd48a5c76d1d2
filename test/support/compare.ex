defmodule Nx.Vulkan.Test.Compare do
  @moduledoc """
  Compares a tensor of the device with what it should be, element by element.

  A distance in ulps is how many numbers of the type lie between two floats, plus one. All NaNs are
  equal. The two zeros are different numbers of distance 0, so the sign of a zero counts unless the
  tolerance says otherwise.
  """

  import ExUnit.Assertions

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Test.{Generators, Reference}

  @full_run 20_000

  @doc """
  The largest distance from BinaryBackend's result (or from `Nx.Vulkan.Test.Reference`) in ulps of the
  result's type, by operation. No other module has tolerances.

  f32 functions are within 1 ulp of the correctly rounded value, which BinaryBackend gives: it
  computes in f64. f64 ones are within 2, and the libm that BinaryBackend calls has an ulp of its own.
  What f32 rounds to the middle of two narrower floats makes an ulp of theirs. Integers, and all that is not named
  here, are equal bit by bit.
  """
  def ulps(op, type)

  functions = Nx.Vulkan.Catalogue.names(error: :function)
  complex_functions = Nx.Vulkan.Catalogue.names(error: :complex) ++ functions

  def ulps(op, {:f, 64}) when op in unquote(functions), do: 3

  # Of complex numbers they count against the larger part. In c128 BinaryBackend's own functions are
  # made of several, each with an error, whose sums cancel: they have 40 bits where `Reference.right?/2` says that
  # they are right. native_tests/complex has the bounds of the device's.
  def ulps(op, {:c, 64}) when op in unquote(complex_functions), do: complex_ulps()
  def ulps(op, {:c, 128}) when op in unquote(complex_functions), do: 4096
  # BinaryBackend's are rounded once, as the device's in doubles.
  def ulps(op, {:c, 64}) when op in [:abs, :multiply],
    do: if(Nx.Vulkan.has_f64(), do: 0, else: complex_ulps())

  def ulps(op, {kind, _}) when op in unquote(functions) and kind not in [:u, :s, :c], do: 1
  # The order of the factors of a product may differ.
  def ulps(:determinant, {:f, 64}), do: 4
  def ulps(_op, _type), do: 0

  @doc """
  The same of functions and products of c64. Both sides compute in doubles and round once where the device has them.
  Elsewhere the bound is that of shaders/lib/complex/formula.glsl.
  """
  def complex_ulps, do: if(Nx.Vulkan.has_f64(), do: 1, else: 8)

  @doc "The epsilon of the doubles in which sums and products of narrower numbers are computed, or of f32 without them."
  def working_epsilon, do: epsilon(Generators.widest_float())

  @doc "Operations for which either zero will do: BinaryBackend loses the sign on its way."
  def any_zero?(op, type)
  def any_zero?(op, {:c, _}) when op in unquote(complex_functions), do: true
  # A part is the difference of two products, each rounded in single precision without doubles.
  def any_zero?(:multiply, {:c, _}), do: not Nx.Vulkan.has_f64()
  def any_zero?(op, _) when op in [:cumulative_sum, :cumulative_max, :cumulative_min], do: true
  def any_zero?(op, _), do: op in [:expm1, :log1p, :reduce_max, :reduce_min, :sum, :product, :dot]

  @doc """
  By how much the numbers of a transform of `points` points, none beyond `magnitude`, may be off. Both sides compute in
  doubles where the device has them, with errors of some epsilons of what bounds the results. Without them the device
  computes in f32, to within `rounding/2` of the norm of the points.
  """
  def transform_error(points, magnitude) do
    if Nx.Vulkan.has_f64(),
      do: 64 * working_epsilon() * points * magnitude,
      else: rounding(points, {:f, 32}) * :math.sqrt(2 * points) * magnitude
  end

  @doc "The error of a transform of that type, relative to the norm of its points."
  def rounding(points, type), do: 4 * max(1, :math.log2(points)) * epsilon(type)

  @doc "Counts the tensors compared from here on; ExUnit prints how many after the suite."
  def count do
    :persistent_term.put(__MODULE__, :counters.new(1, [:write_concurrency]))

    ExUnit.after_suite(fn _result ->
      cases = :counters.get(:persistent_term.get(__MODULE__), 1)
      few = if cases < @full_run, do: " (a full run compares #{@full_run} and more)"
      seed = ExUnit.configuration()[:seed]
      IO.puts("Compared with the reference: #{cases} tensors, seed #{seed}#{few}")
    end)
  end

  @doc "Counts one comparison. Helpers that compare in their own way call it."
  def compared, do: :counters.add(:persistent_term.get(__MODULE__), 1, 1)

  @doc """
  Asserts that `actual`, of the device, is `expected`: type, shape, names and all elements.

  `expected` is a tensor of BinaryBackend or what `Nx.Vulkan.Test.Reference.elementwise/2` gives.
  `context` is shown when it fails.
  """
  def assert_same(actual, expected, op, context \\ [])

  def assert_same(%T{} = actual, %T{} = expected, op, context),
    do: assert_same(actual, Reference.whole(expected), op, context)

  def assert_same(%T{type: type} = actual, %Reference{} = expected, op, context) do
    # The magnitude of a complex number is a real one.
    complex = if op == :abs, do: Enum.find_value(expected.inputs, &complex_type/1)
    allowed = {ulps(op, complex || type), any_zero?(op, type)}

    assert_elements(actual, expected, op, context, fn got, want, _inputs ->
      close?(got, want, type, allowed)
    end)
  end

  @doc """
  Asserts type, shape and names of `actual`, of the device, and that `close?` holds for each of its elements,
  the expected one and those of the inputs.
  """
  def assert_elements(%T{} = actual, %Reference{} = expected, op, context, close?) do
    compared()
    context = "#{op} #{inspect(context)}, seed #{ExUnit.configuration()[:seed]}"
    assert %Nx.Vulkan.VulkanoBackend{} = actual.data, context
    assert {actual.shape, actual.names} == {expected.shape, expected.names}, context
    assert actual.type == (expected.type || actual.type), context
    assert bit_size(Nx.to_binary(actual)) == Nx.size(actual) * elem(actual.type, 1), context
    inputs = Enum.map(expected.inputs, &Reference.bits/1)

    types = Enum.map(expected.inputs, & &1.type)
    complex? = Enum.any?(types, &match?({:c, _}, &1))

    right? = fn inputs ->
      not complex? or Reference.right?(op, Enum.zip_with(inputs, types, &decode/2))
    end

    [Reference.bits(actual), expected.elements | inputs]
    |> zip_all()
    |> Enum.with_index(fn [got, want | inputs], i ->
      unless want == :undefined or not right?.(inputs) or close?.(got, want, inputs) do
        flunk("""
        #{context}, element #{i}
          inputs:   #{Enum.zip_with(inputs, types, &show/2) |> Enum.join(", ")}
          expected: #{show(want, actual.type)}
          got:      #{show(got, actual.type)}
        """)
      end
    end)
  end

  @doc "Like `Enum.zip/1`, of lists that must have one length."
  def zip_all(lists) do
    assert [_] = lists |> Enum.map(&length/1) |> Enum.uniq()
    Enum.zip_with(lists, & &1)
  end

  @doc "The distance from 1 to the next number of a type, or of the parts of a complex one."
  def epsilon({:c, size}), do: epsilon({:f, div(size, 2)})
  def epsilon(type), do: 2.0 ** -Generators.fraction(type)

  @doc "Asserts that each element is `exact` but for `relative` times its `scale`."
  def assert_bound(result, exact, scale, relative, context) do
    compared()

    assert %Nx.Vulkan.VulkanoBackend{} = result.data, inspect(context)
    assert {result.shape, result.names} == {exact.shape, exact.names}, inspect(context)

    [result, exact, scale]
    |> Enum.map(&Nx.to_flat_list/1)
    |> zip_all()
    |> Enum.each(fn [got, want, scale] ->
      assert got == want or abs(got - want) <= relative * scale,
             "#{inspect(context)}: #{got} is not #{want}, seed #{ExUnit.configuration()[:seed]}"
    end)
  end

  @doc """
  Asserts that every number of `actual`, of the device, is within `error` of that of `expected`,
  besides a rounding to f32. Complex numbers count by their parts.
  """
  def assert_near(%T{} = actual, %T{} = expected, error, context) do
    compared()
    assert %Nx.Vulkan.VulkanoBackend{} = actual.data

    assert {actual.type, actual.shape, actual.names} ==
             {expected.type, expected.shape, expected.names},
           inspect(context)

    rounding = if actual.type in [{:f, 32}, {:c, 64}], do: 1.0001 * 2.0 ** -23, else: 0.0

    Enum.each(zip_all([parts(actual), parts(expected)]), fn [got, want] ->
      assert got == want or
               (is_number(got) and is_number(want) and
                  abs(got - want) <= rounding * abs(want) + error),
             "#{inspect(context)}: #{inspect(got)} is not #{inspect(want)}, " <>
               "seed #{ExUnit.configuration()[:seed]}"
    end)
  end

  @doc "The numbers, or those that complex ones are made of."
  def parts(tensor) do
    Enum.flat_map(Nx.to_flat_list(tensor), fn
      %Complex{re: re, im: im} -> [re, im]
      x -> [x]
    end)
  end

  defp complex_type(%T{type: {:c, _} = type}), do: type
  defp complex_type(_tensor), do: nil

  defp close?(same, same, _type, _allowed), do: true
  defp close?(_got, _want, {kind, _}, _allowed) when kind in [:u, :s], do: false

  defp close?(got, want, {:c, size}, allowed) do
    half = div(size, 2)
    <<got_re::bitstring-size(^half), got_im::bitstring>> = got
    <<want_re::bitstring-size(^half), want_im::bitstring>> = want

    {ulps, any_zero?} = allowed
    parts = [{got_re, want_re}, {got_im, want_im}]
    magnitudes = for {_, want} <- parts, do: magnitude(decode(want, {:f, half}))
    error = ulps * epsilon({:f, half}) * Enum.max(magnitudes)

    Enum.all?(parts, fn {got, want} ->
      close?(got, want, {:f, half}, {0, any_zero?}) or
        near?(decode(got, {:f, half}), decode(want, {:f, half}), error)
    end)
  end

  defp close?(got, want, type, {ulps, any_zero?}) do
    lost = lost_below(type)

    case {decode(got, type), decode(want, type)} do
      {:nan, :nan} -> true
      {:nan, _} -> false
      {_, :nan} -> false
      {zero, other} when zero == 0 and other == 0 -> any_zero?
      {one, other} when abs(one) <= lost and abs(other) <= lost -> true
      {_, _} -> ulps > 0 and abs(position(got) - position(want)) <= ulps
    end
  end

  @doc """
  Numbers of this size and below may come out as zero: 0.0 where the device promises to keep subnormals,
  else the smallest normal number of the type that kernels compute in.
  """
  def lost_below({kind, size}) do
    cond do
      keeps_subnormals?() -> 0.0
      {kind, size} in [{:f, 64}, {:c, 128}] -> 2.2250738585072014e-308
      true -> 1.1754943508222875e-38
    end
  end

  @doc "Whether the device promises to keep subnormal numbers."
  def keeps_subnormals? do
    with nil <- :persistent_term.get({__MODULE__, :keeps_subnormals?}, nil) do
      {:ok, device} = Nx.Vulkan.device_info()
      keeps? = :denorm_preserve in device.features
      :persistent_term.put({__MODULE__, :keeps_subnormals?}, keeps?)
      keeps?
    end
  end

  @doc "Whether the device takes subnormal numbers of 32 bits for zeros."
  def flushes_subnormals? do
    with nil <- :persistent_term.get({__MODULE__, :flushes_subnormals?}, nil) do
      tiny = Nx.tensor([1.0e-40], backend: Nx.Vulkan.VulkanoBackend)
      flushes? = not keeps_subnormals?() and Nx.to_flat_list(Nx.multiply(tiny, 1.0)) == [0.0]
      :persistent_term.put({__MODULE__, :flushes_subnormals?}, flushes?)
      flushes?
    end
  end

  # Single precision scales a product that overflows in one part, and loses digits of the other.
  defp magnitude(x) when is_number(x), do: abs(x)
  defp magnitude(:nan), do: 0
  defp magnitude(_infinity), do: if(Nx.Vulkan.has_f64(), do: 0, else: 2.0 ** 127)

  # The sign of a zero counts here too.
  defp near?(got, want, error) when is_number(got) and is_number(want),
    do: (got != 0 or want != 0) and abs(got - want) <= error

  defp near?(_got, _want, _error), do: false

  # Floats of one width, in order, are these integers: sign and magnitude.
  defp position(bits) do
    size = bit_size(bits) - 1
    <<number::integer-native-size(bit_size(bits))>> = bits
    <<sign::1, magnitude::size(^size)>> = <<number::size(bit_size(bits))>>
    if sign == 1, do: -magnitude, else: magnitude
  end

  defp decode(bits, type) do
    [number] = Nx.to_flat_list(Generators.from_bits(bits, type))
    number
  end

  defp show(:undefined, _type), do: "undefined"
  defp show(bits, type), do: "#{inspect(decode(bits, type))} #{inspect(bits, base: :hex)}"
end
