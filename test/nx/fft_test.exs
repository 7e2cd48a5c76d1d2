defmodule Nx.Vulkan.FftTest do
  @moduledoc """
  Fourier transforms: lengths, types, axes, batches and options drawn at random against
  BinaryBackend; long ones against the definition.
  """

  use Nx.Vulkan.Test.Case, async: true

  require Nx.Vulkan.Native, as: Native

  @real {:float, -10.0, 10.0}

  test "every length up to 64, of every type, along any axis of any batch" do
    for n <- 1..64, type <- Enum.take_random(types(), 3) do
      {tensor, axis} = random_tensor(n, type)
      check_complex(tensor, axis: axis)
    end
  end

  test "padding, cutting and clean-up" do
    for _ <- 1..150 do
      {tensor, axis} = random_tensor(:rand.uniform(24), random_type())

      check_complex(tensor,
        axis: axis,
        length: Generators.pick([:power_of_two, :rand.uniform(48)]),
        eps: Generators.pick([0.0, 1.0e-10, 0.4321, 4.321])
      )
    end
  end

  test "lengths of several passes, of large primes and of their products" do
    for n <- [67, 97, 211, 257, 512, 2 * 3 * 5 * 7 * 11, 61 * 61, 2048, 1031, 71 * 67],
        type <- Enum.take_random(types([{:f, 32}, {:f, 64}, {:c, 64}, {:c, 128}, {:s, 32}]), 2) do
      for shape <- [{n}, {n, 3}, {2, n}], fun <- [:fft, :ifft] do
        tensor = Generators.tensor(shape, type, values(type))
        axis = Enum.find_index(Tuple.to_list(shape), &(&1 == n))
        result = apply(Nx, fun, [to_device(tensor), [axis: axis]])
        [row | _] = rows(tensor, axis)
        [got | _] = rows(result, axis)
        bins = [0, 1, n - 1 | for(_ <- 1..3, do: :rand.uniform(n) - 1)]
        assert {result.type, result.shape} == {Nx.Type.to_complex(type), shape}
        check_bins(got, row, fun, bins, result.type, n * Tuple.product(shape))
      end
    end
  end

  test "long transforms, against their definition" do
    for {n, type} <- [
          {4096, {:c, 64}},
          {100_000, {:f, 32}},
          {99_991, {:c, 64}},
          {99_991, {:c, 128}},
          {2 ** 17, {:f, 64}},
          {2 ** 20, {:c, 64}}
        ],
        type in types([type]) do
      tensor = random_large(n, type)
      device = to_device(tensor)
      list = Nx.to_flat_list(tensor)
      forward = Nx.fft(device)
      assert {forward.type, forward.shape} == {Nx.Type.to_complex(type), {n}}
      check_bins(forward, list, :fft, [n - 1, :rand.uniform(n) - 1], forward.type, n)

      # Parseval, and the way back.
      norm = norm(list)
      assert_in_delta norm(Nx.to_flat_list(forward)) / (norm * :math.sqrt(n)), 1.0, 1.0e-5

      worst =
        [Nx.to_flat_list(Nx.ifft(forward)), list]
        |> zip_all()
        |> Enum.map(fn [got, want] -> Complex.abs(Complex.subtract(got, want)) end)
        |> Enum.max()

      assert worst <= 4 * epsilon(forward.type) * :math.log2(n), inspect({n, type, worst})
    end
  end

  test "many rows of a matrix, and its columns" do
    # From 2^18 points on, each power of two has kernels of its own.
    shapes = [{300, 512} | for(k <- 4..13, do: {2 ** (18 - k) + Generators.pick([0, 1]), 2 ** k})]

    for {m, n} <- shapes, {shape, axis} <- [{{m, n}, 1}, {{n, m}, 0}] do
      type = Generators.pick(types([{:f, 32}, {:f, 64}, {:c, 64}, {:c, 128}]))
      tensor = random_large(m * n, type) |> Nx.reshape(shape)
      transformed = Nx.fft(to_device(tensor), axis: axis)
      assert {transformed.type, transformed.shape} == {Nx.Type.to_complex(type), shape}

      for at <- [0, m - 1, :rand.uniform(m) - 1] do
        line = &Nx.to_flat_list(Nx.slice_along_axis(&1, at, 1, axis: 1 - axis))
        bins = [0, 1, n - 1, :rand.uniform(n) - 1]
        check_bins(line.(transformed), line.(tensor), :fft, bins, transformed.type, m * n)
      end
    end
  end

  test "two axes" do
    for _ <- 1..40, fun <- [:fft2, :ifft2] do
      type = random_type()
      shape = List.to_tuple(for _ <- 1..Generators.pick([2, 3]), do: 1 + :rand.uniform(7))
      tensor = Generators.tensor(shape, type, values(type))
      [a, b] = Enum.take_random(0..(tuple_size(shape) - 1), 2)
      lengths = Generators.pick([[:power_of_two, :power_of_two], [4, 5], [2, 9]])
      options = [axes: [a, b], lengths: lengths]

      # What is between the two is rounded to the result's type.
      [n, m] = for {axis, length} <- Enum.zip([a, b], lengths), do: points(tensor, axis, length)
      once = if fun == :fft2, do: :fft, else: :ifft
      wanted = reference(once, tensor, axis: b, length: m)
      scale = n * m * magnitude(tensor)

      assert_near(
        apply(Nx, fun, [to_device(tensor), options]),
        reference(once, wanted, axis: a, length: n),
        scale * epsilon(Nx.Type.to_complex(type)) + transform_error(n * m, magnitude(tensor)),
        {fun, options, tensor}
      )
    end
  end

  test "real transforms and their inverses" do
    for n <- Enum.concat(2..33, [67, 100, 1024]), fun <- [:rfft, :irfft] do
      # BinaryBackend pads f8_e4m3fn with other bits than zero's, which irfft does.
      refused = if fun == :rfft, do: [c: 64, c: 128], else: [f8_e4m3fn: 8]
      types = types() -- refused
      {tensor, axis} = random_tensor(n, Generators.pick(types))
      # BinaryBackend's irfft takes no length below 3.
      length = Generators.pick([nil, 2 + :rand.uniform(40)])
      length = if fun == :irfft and n == 2, do: length || 3, else: length
      options = [axis: axis] ++ if(length, do: [length: length], else: [])

      assert_near(
        apply(Nx, fun, [to_device(tensor), options]),
        reference(fun, tensor, options),
        transform_error(2 * (n + (length || n)), magnitude(tensor)),
        {fun, options, tensor}
      )
    end

    assert Nx.to_flat_list(Nx.irfft(to_device(Nx.tensor([3.0, 1.0])))) == [2.0, 1.0]
    assert Nx.to_flat_list(Nx.irfft(to_device(Nx.tensor([3.0, 1.0])), length: 1)) == [3.0]
  end

  test "NaN reaches every result of its transform and no other" do
    tensor = Nx.tensor([[1.0, :nan, 2.0, 3.0, 4.0, 5.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]])
    [first, second] = tensor |> to_device() |> Nx.fft() |> rows(1)
    assert Enum.all?(first, fn z -> z.re == :nan and z.im == :nan end)
    assert Enum.all?(second, fn z -> is_number(z.re) and is_number(z.im) end)
  end

  test "results that are zero have no sign" do
    zeros = to_device(Nx.tensor([-0.0, -0.0, -0.0]))

    for fun <- [&Nx.fft/1, &Nx.ifft/1, &Nx.irfft/1] do
      assert zeros |> fun.() |> Nx.to_binary() |> :binary.bin_to_list() |> Enum.all?(&(&1 == 0))
    end
  end

  test "the call's arguments are checked" do
    {:ok, ref} = Native.call(buf_upload(<<0::size(256)>>))

    fft = fn kind, out, tensor, axis, length, eps ->
      Native.call(fft(kind, out, tensor, axis, length, eps))
    end

    tensor = {ref, {:f, 32}, {2, 4}}
    assert {:ok, _} = fft.(:fft, {:c, 64}, tensor, 1, 4, 0.0)
    assert {:error, :size_mismatch} = fft.(:fft, {:c, 64}, {ref, {:f, 32}, {9}}, 0, 9, 0.0)
    assert {:error, :unsupported, _} = fft.(:fft, {:c, 64}, tensor, 1, 2 ** 62, 0.0)
    assert {:error, :unsupported, _} = fft.(:fft, {:c, 64}, tensor, 1, 2 ** 47, 0.0)

    for {kind, out, axis, length, eps, name} <- [
          {:dct, {:c, 64}, 1, 4, 0.0, "kind"},
          {:fft, {:f, 32}, 1, 4, 0.0, "out_type"},
          {:irfft, {:c, 64}, 1, 4, 0.0, "out_type"},
          {:fft, {:c, 64}, 2, 4, 0.0, "axis"},
          {:fft, {:c, 64}, 1, 0, 0.0, "length"},
          {:fft, {:c, 64}, 1, -1, 0.0, "length"},
          {:fft, {:c, 64}, 1, 4, :no, "eps"}
        ] do
      assert_raise ArgumentError, ~r/^#{name}: /, fn ->
        fft.(kind, out, tensor, axis, length, eps)
      end
    end
  end

  ## Against BinaryBackend

  # A result next to `eps` may be rounded to zero by one side alone; random numbers give none.
  defp check_complex(tensor, options) do
    for fun <- [:fft, :ifft] do
      n = if is_integer(options[:length]), do: options[:length], else: 64

      assert_near(
        apply(Nx, fun, [to_device(tensor), options]),
        reference(fun, tensor, options),
        transform_error(n, magnitude(tensor)),
        {fun, options, tensor}
      )
    end
  end

  # BinaryBackend puts the results of a transform along an axis before the last two elsewhere, and loses
  # real numbers of transforms of one point.
  defp reference(fun, tensor, options) do
    tensor =
      if fun in [:fft, :ifft],
        do: Nx.as_type(tensor, Nx.Type.to_complex(tensor.type)),
        else: tensor

    {moved, back} = move_last(tensor, options[:axis])
    Nx.transpose(apply(Nx, fun, [moved, Keyword.put(options, :axis, -1)]), axes: back)
  end

  # The tensor with `axis` last, and the axes that bring it back.
  defp move_last(tensor, axis) do
    axes = (Nx.axes(tensor) -- [axis]) ++ [axis]
    back = Enum.map(Nx.axes(tensor), fn axis -> Enum.find_index(axes, &(&1 == axis)) end)
    {Nx.transpose(tensor, axes: axes), back}
  end

  ## Against the definition

  # Bins of the transform of the list, the sum in f64 with the angle reduced exactly. `total` is how
  # many points the call transforms: few are computed in double where the device has doubles.
  defp check_bins(%Nx.Tensor{} = got, list, kind, bins, type, total),
    do: check_bins(Nx.to_flat_list(got), list, kind, bins, type, total)

  defp check_bins(got, list, kind, bins, type, total) do
    compared()
    n = length(list)
    got = List.to_tuple(got)
    assert tuple_size(got) == n
    {sign, scale} = if kind == :fft, do: {-1, 1.0}, else: {1, 1.0 / n}
    double? = type != {:c, 128} and total <= 2 ** 16 and Nx.Vulkan.has_f64()
    allowed = if double?, do: 2.0 ** -22, else: rounding(n, type)

    for k <- bins do
      # In parts, as a sum of many terms in a row loses digits.
      want =
        list
        |> Enum.with_index(fn x, j ->
          angle = sign * 2 * :math.pi() * rem(j * k, n) / n
          Complex.multiply(x, Complex.new(:math.cos(angle), :math.sin(angle)))
        end)
        |> Enum.chunk_every(300)
        |> Enum.map(&sum/1)
        |> sum()

      error = Complex.abs(Complex.subtract(elem(got, k), Complex.multiply(want, scale)))
      limit = allowed * norm(list) * scale
      assert error <= limit, "#{inspect({kind, type, n, k})}: error #{error} over #{limit}"
    end
  end

  defp points(tensor, axis, :power_of_two),
    do: 2 ** ceil(:math.log2(elem(tensor.shape, axis)))

  defp points(_tensor, _axis, length), do: length

  defp sum(list), do: Enum.reduce(list, &Complex.add/2)
  defp norm(list), do: :math.sqrt(Enum.reduce(list, 0.0, &(&2 + Complex.abs_squared(&1))))

  ## Tensors

  defp types(list \\ Generators.all_types()), do: Generators.computed(list)
  defp random_type, do: Generators.pick(types())

  defp values({kind, bits}) when kind in [:u, :s] and bits < 8, do: {:integer, 0..1}
  defp values({:u, _}), do: {:integer, 0..100}
  defp values({:s, _}), do: {:integer, -100..100}
  defp values(_), do: @real

  # `n` points along one axis, and few along the others.
  defp random_tensor(n, type) do
    others = for _ <- 1..(:rand.uniform(3) - 1)//1, do: :rand.uniform(3)
    axis = :rand.uniform(length(others) + 1) - 1
    shape = others |> List.insert_at(axis, n) |> List.to_tuple()
    {Generators.tensor(shape, type, values(type)), axis}
  end

  defp random_large(n, {kind, size}) do
    part = if kind == :c, do: div(size, 2), else: size
    count = if kind == :c, do: 2 * n, else: n
    bits = for _ <- 1..count, into: <<>>, do: <<2 * :rand.uniform() - 1::float-size(part)-native>>
    Nx.from_binary(bits, {kind, size}, backend: Nx.BinaryBackend)
  end

  defp magnitude(tensor), do: tensor |> parts() |> Enum.map(&abs/1) |> Enum.max()

  # The lines along an axis, as lists.
  defp rows(tensor, axis) do
    {moved, _back} = tensor |> Nx.backend_copy(Nx.BinaryBackend) |> move_last(axis)
    moved |> Nx.to_flat_list() |> Enum.chunk_every(elem(tensor.shape, axis))
  end
end
