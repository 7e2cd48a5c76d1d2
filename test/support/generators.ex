defmodule Nx.Vulkan.Test.Generators do
  @moduledoc """
  Random tensors with the values where kernels go wrong among them.

  Everything is drawn from `:rand`, which `seed/1` sets from ExUnit's seed and a label, so that a
  failure comes back with `mix test --seed N`.
  """

  alias Nx.Vulkan.Test.Compare

  # Of 32 bits.
  @smallest_normal 1.1754943508222875e-38

  @integers for kind <- [:u, :s], size <- [8, 16, 32, 64], do: {kind, size}
  @floats [{:f, 16}, {:bf, 16}, {:f, 32}, {:f, 64}]

  @doc "The real types of a byte and more."
  def real_types, do: @integers ++ @floats

  @doc "Those that kernels compute with."
  def device_types, do: computed(real_types())
  def integer_types, do: @integers
  def float_types, do: computed(@floats)
  def complex_types, do: computed([{:c, 64}, {:c, 128}])

  @doc "Those that kernels sort and scatter: without 64-bit integers where the device has none."
  def sorted_types do
    {:ok, %{features: features}} = Nx.Vulkan.device_info()
    device_types() -- if(:int64 in features, do: [], else: [{:s, 64}, {:u, 64}])
  end

  @doc """
  The types of the list that kernels compute with: without f64 and c128 where the device has no doubles. They fall
  back to BinaryBackend there, whose results need no comparison with its own.
  """
  def computed(types),
    do: if(Nx.Vulkan.has_f64(), do: types, else: types -- [{:f, 64}, {:c, 128}])

  @doc "The widest float that kernels compute with."
  def widest_float, do: hd(computed([{:f, 64}, {:f, 32}]))

  @narrow_integers for kind <- [:u, :s], size <- [2, 4], do: {kind, size}
  @narrow_floats [{:f, 8}, {:f8_e4m3fn, 8}]

  @doc "Integers below a byte, and floats of one."
  def narrow_types, do: @narrow_integers ++ @narrow_floats
  def narrow_integer_types, do: @narrow_integers
  def narrow_float_types, do: @narrow_floats

  @doc "All types of Nx."
  def all_types, do: real_types() ++ narrow_types() ++ [{:c, 64}, {:c, 128}]

  @doc "Pairs of different types whose merge is worth a look."
  def mixed_types do
    pairs = [
      {{:u, 8}, {:s, 8}},
      {{:u, 8}, {:f, 32}},
      {{:u, 32}, {:s, 32}},
      {{:s, 32}, {:u, 64}},
      {{:u, 64}, {:s, 64}},
      {{:u, 32}, {:s, 64}},
      {{:s, 32}, {:f, 32}},
      {{:s, 64}, {:f, 64}},
      {{:f, 32}, {:f, 64}},
      {{:bf, 16}, {:f, 16}},
      {{:bf, 16}, {:f, 32}},
      {{:s, 16}, {:f, 16}},
      {{:u, 8}, {:bf, 16}}
    ]

    if Nx.Vulkan.has_f64(),
      do: pairs,
      else: for({a, b} <- pairs, {:f, 64} not in [a, b], do: {a, b})
  end

  @doc "Shapes of every rank from 0 to 6, with axes of size 1."
  def shapes do
    [{}, {1}, {2}, {257}, {3, 5}, {1, 7}, {6, 1}, {2, 3, 4}, {5, 1, 3}, {2, 3, 1, 4}] ++
      [{1, 2, 3, 2, 2}, {2, 1, 3, 2, 1, 3}]
  end

  @doc "Pairs of shapes that broadcast, on either side and on both."
  def shape_pairs do
    [
      {{}, {}},
      {{}, {5}},
      {{2, 3}, {}},
      {{259}, {259}},
      {{1}, {6}},
      {{4, 3}, {3}},
      {{3}, {4, 3}},
      {{3, 1}, {1, 4}},
      {{2, 3, 4}, {3, 1}},
      {{1, 1, 1}, {2}},
      {{2, 1, 3, 2}, {5, 1, 2}},
      {{2, 1, 2, 1, 3, 1}, {1, 3, 1, 2, 1, 2}}
    ]
  end

  @doc "Two pairs of shapes, others in each run."
  def some_shape_pairs, do: [pick(shape_pairs()), pick(shape_pairs())]

  @doc "Three shapes, others in each run."
  def some_shapes, do: for(_ <- 1..3, do: pick(shapes()))

  def seed(label) do
    :rand.seed(:exsss, {ExUnit.configuration()[:seed], :erlang.phash2(label), 0})
    :ok
  end

  @doc """
  A tensor of BinaryBackend.

  `values` names what its elements are:

    * `:any`: numbers of every magnitude. Integers of every length, the extremes often; floats of every
      exponent, those around whole and half numbers, powers of two and 1 among them, NaN, infinities,
      both zeros and denormals often
    * `:finite`: the same without NaN and infinities
    * `:moderate`: small integers; floats of a few units, with NaN and the infinities
    * `{:integer, first..last}`: integers of the range, whatever the type
    * `{:float, first, last}`: floats of the interval
    * `:few`: so few different values that there are ties everywhere
    * `:near_zero`: zeros, and numbers next to them: subnormal ones and the smallest normal ones, whatever the device makes
      of them in arithmetic
  """
  def tensor(shape, type, values) do
    size = Tuple.product(shape)
    bits = for _ <- 1..size, into: <<>>, do: encode(value(type, values), type)
    Nx.reshape(from_bits(bits, type), shape)
  end

  @doc "The vector of BinaryBackend with these bits. `Nx.from_binary/3` of Nx 0.13 takes whole bytes."
  def from_bits(bits, type) do
    {_, size} = type = Nx.Type.normalize!(type)
    %{Nx.template({div(bit_size(bits), size)}, type) | data: %Nx.BinaryBackend{state: bits}}
  end

  def pick(list), do: Enum.at(list, :rand.uniform(length(list)) - 1)

  @doc "A shape of up to four axes, one of them of that length, and which."
  def shape_and_axis(length) do
    dims = for _ <- 1..(:rand.uniform(4) - 1)//1, do: :rand.uniform(4)
    axis = :rand.uniform(length(dims) + 1) - 1
    {dims |> List.insert_at(axis, length) |> List.to_tuple(), axis}
  end

  defp value({kind, _} = type, :finite) when kind in [:u, :s], do: value(type, :any)

  defp value({kind, size}, :any) when kind in [:u, :s] do
    case :rand.uniform(4) do
      1 -> pick([0, 1, -1, 2 ** (size - 1), 2 ** (size - 1) - 1, 2])
      2 -> :rand.uniform(256) - 128
      3 -> :rand.uniform(2 ** size) - 1
      4 -> pick([1, -1]) * (2 ** (:rand.uniform(size) - 1) + :rand.uniform(3) - 2)
    end
  end

  defp value({:c, _} = type, values) do
    part = {:f, div(elem(type, 1), 2)}
    {:bits, encode(value(part, values), part) <> encode(value(part, values), part)}
  end

  # Without subnormal numbers on a device that takes them for zeros: kernels compute in f32.
  defp value(type, :any) do
    drawn = any(type)
    lost? = type != {:f, 64} and Compare.flushes_subnormals?() and subnormal?(drawn, type)
    if lost?, do: value(type, :any), else: drawn
  end

  defp value(type, :finite) do
    bits = encode(value(type, :any), type)
    [x] = Nx.to_flat_list(from_bits(bits, type))
    if is_number(x), do: {:bits, bits}, else: value(type, :finite)
  end

  defp value({kind, _}, :moderate) when kind in [:u, :s], do: :rand.uniform(11) - 1

  defp value(_type, :moderate) do
    case :rand.uniform(8) do
      1 -> pick([:nan, :infinity, :neg_infinity, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5])
      _ -> :rand.normal() * 3
    end
  end

  defp value(_type, {:integer, first..last//1}), do: first + :rand.uniform(last - first + 1) - 1
  defp value(_type, {:float, first, last}), do: first + :rand.uniform() * (last - first)

  defp value({kind, _}, :few) when kind in [:u, :s], do: pick([0, 1, 2])

  defp value(_type, :few),
    do: pick([0.0, -0.0, 1.0, -1.0, 2.0, :infinity, :neg_infinity])

  defp value({kind, _} = type, :near_zero) when kind in [:u, :s], do: value(type, :few)

  defp value({_, size} = type, :near_zero) do
    least_normal = 2 ** fraction(type)
    magnitude = pick([0, 0, 1, 2, least_normal - 1, least_normal])
    {:bits, number(magnitude + pick([0, 1]) * 2 ** (size - 1), type)}
  end

  defp subnormal?(drawn, type) do
    [x] = Nx.to_flat_list(from_bits(encode(drawn, type), type))
    is_number(x) and x != 0 and abs(x) < @smallest_normal
  end

  defp any(type) do
    case :rand.uniform(7) do
      1 -> pick(specials(type))
      2 -> {:bits, random_bits(type)}
      3 -> neighbour(number(power_of_two(type), type))
      4 -> neighbour(near_whole(type))
      5 -> neighbour(near_one(type))
      _ -> value(type, :moderate)
    end
  end

  # Both zeros, the ends of the range, denormals, and where conversions and kernels change branches.
  defp specials({kind, size} = type) do
    sign = 2 ** (size - 1)
    ends = [{:bits, Nx.Type.max_finite_binary(type)}, {:bits, Nx.Type.min_finite_binary(type)}]
    smallest = for bits <- [1, 1 + sign], do: {:bits, number(bits, type)}

    large =
      if {kind, size} in [{:f, 64}, {:f, 32}],
        do: [1.0e10, -1.0e10, 1.0e30, -1.0e30, 88.8, -104.0, 709.8, 16_777_217.0, 1.0e-30],
        else: []

    [:nan, :infinity, :neg_infinity, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -2.5] ++
      [255.9, -129.0, 100.0] ++ ends ++ smallest ++ large
  end

  defp random_bits({_, size}), do: :rand.bytes(div(size, 8))

  @doc "Bits of a float's significand, without the leading one."
  def fraction({:f, 64}), do: 52
  def fraction({:f, 32}), do: 23
  def fraction({:f, 16}), do: 10
  def fraction({:bf, 16}), do: 7
  def fraction({:f, 8}), do: 2
  def fraction({:f8_e4m3fn, 8}), do: 3

  # The bits of powers of two of every exponent, both zeros and the infinity among them.
  defp power_of_two({_, size} = type) do
    exponents = 2 ** (size - 1 - fraction(type))
    (:rand.uniform(exponents) - 1) * 2 ** fraction(type) + pick([0, 2 ** (size - 1)])
  end

  # A whole number of any length up to a few bits beyond what the significand holds, a quarter or a half
  # from it, or that number itself.
  defp near_whole({_, size} = type) do
    length = :rand.uniform(min(fraction(type) + 3, if(size < 32, do: 8, else: 64)))
    whole = 2 ** (length - 1) + :rand.uniform(2 ** (length - 1)) - 1
    encode(pick([1, -1]) * (whole + pick([0, 0, 0.5, -0.5, 0.25, -0.25])), type)
  end

  defp near_one(type) do
    distance = 2.0 ** -:rand.uniform(fraction(type)) * :rand.uniform()
    encode(pick([1, -1]) * (1 + pick([1, -1]) * distance), type)
  end

  defp number(bits, {_, size}), do: <<bits::size(size)-native>>

  # The number of those bits or the one after or before it, of any type.
  defp neighbour(bits) do
    size = bit_size(bits)
    <<number::size(^size)-native>> = bits
    {:bits, <<number + pick([-1, 0, 0, 1])::size(size)-native>>}
  end

  defp encode({:bits, bits}, _type), do: bits

  defp encode(number, {kind, size}) when kind in [:u, :s],
    do: <<trunc(number)::size(size)-native>>

  defp encode(number, type),
    do: Nx.to_binary(Nx.tensor(number, type: type, backend: Nx.BinaryBackend))
end
