defmodule Nx.Vulkan.SlicePropagationTest do
  @moduledoc "Compiled definitions compute no more of a tensor than the range of an axis that is read of it, and give the same numbers."

  # Operations are counted by a profile, which has what all processes do.
  use Nx.Vulkan.Test.Case, async: false

  import Nx.Defn

  # Sums and products of small integers are exact in f32.
  defp integers(shape), do: to_device(Generators.tensor(shape, {:f, 32}, {:integer, -2..2}))

  # Each gives a tensor of the shape that it takes, {4, 6, 8}.
  @steps [
    negate: &__MODULE__.negate/2,
    row: &__MODULE__.row/2,
    choice: &__MODULE__.choice/2,
    constant: &__MODULE__.constant/2,
    sum: &__MODULE__.sum/2,
    maximum: &__MODULE__.maximum/2,
    transposes: &__MODULE__.transposes/2,
    reshapes: &__MODULE__.reshapes/2,
    axis_of_one: &__MODULE__.axis_of_one/2,
    product: &__MODULE__.product/2,
    batch: &__MODULE__.batch/2,
    from_right: &__MODULE__.from_right/2,
    broadcast: &__MODULE__.broadcast/2,
    concatenation: &__MODULE__.concatenation/2,
    reverse: &__MODULE__.reverse/2,
    slices: &__MODULE__.slices/2
  ]

  defn(negate(t, _w), do: -t)
  defn(row(t, w), do: w.row + t)
  defn(choice(t, w), do: Nx.select(Nx.broadcast(w.column > 0, t), t, 1.0))
  defn(constant(t, _w), do: Nx.broadcast(2.0, t) - t)
  defn(sum(t, _w), do: t + Nx.sum(t, axes: [2], keep_axes: true))
  defn(maximum(t, _w), do: t + Nx.reduce_max(t, axes: [0]))

  defn(transposes(t, w),
    do: (Nx.transpose(t, axes: [2, 0, 1]) + w.outer) |> Nx.transpose(axes: [1, 2, 0])
  )

  defn(reshapes(t, w), do: (Nx.reshape(t, {4, 48}) + w.first) |> Nx.reshape({4, 6, 8}))
  defn(axis_of_one(t, w), do: (Nx.new_axis(t, 1) * w.row) |> Nx.squeeze(axes: [1]))
  defn(product(t, w), do: Nx.dot(t, w.square))
  defn(batch(t, w), do: Nx.dot(t, [2], [0], w.batch, [1], [0]))

  defn(from_right(t, w),
    do: w.square |> Nx.dot([0], t, [2]) |> Nx.transpose(axes: [1, 2, 0])
  )

  defn(broadcast(t, w), do: t + Nx.broadcast(w.column, {4, 6, 8}, axes: [1, 2]))
  defn(concatenation(t, _w), do: Nx.concatenate([t[0..1], t[2..3]]))
  defn(reverse(t, _w), do: Nx.reverse(t, axes: [1]))

  defn(slices(t, _w),
    do: t |> Nx.pad(1.0, [{1, 0, 0}, {0, 0, 0}, {0, 1, 0}]) |> Nx.slice([0, 0, 1], [4, 6, 8])
  )

  test "a slice of what operations compute, of which others read the same range, another one or all" do
    weights = %{
      row: integers({8}),
      column: integers({6, 1}),
      outer: integers({8, 1, 1}),
      first: integers({4, 1}),
      square: integers({8, 8}),
      batch: integers({4, 8, 8})
    }

    names = Keyword.keys(@steps)
    single = for name <- names, axis <- 0..2, do: {[name], [axis], :none}

    drawn =
      for _ <- 1..60 do
        steps = for _ <- 1..Enum.random(2..5), do: Enum.random(names)
        axes = Enum.take_random(0..2, Enum.random(1..2))
        {steps, axes, Enum.random([:none, :same, :other, :all])}
      end

    for {names, axes, also} <- single ++ drawn do
      # Slices that would go beyond the end begin earlier.
      ranges = for axis <- axes, do: {axis, Enum.random(1..9), Enum.random(1..2)}
      {before, later} = Enum.split(names, div(length(names), 2))
      apply_steps = fn t, w, names -> Enum.reduce(names, t, &@steps[&1].(&2, w)) end
      slice = fn {axis, start, length}, t -> Nx.slice_along_axis(t, start, length, axis: axis) end

      fun = fn t, w ->
        middle = apply_steps.(t, w, before)
        last = apply_steps.(middle, w, later)
        {axis, start, length} = hd(ranges)

        other =
          case also do
            :none -> 0
            :same -> slice.({axis, start, length}, middle)
            :other -> slice.({axis, start - 1, length}, middle)
            :all -> middle
          end

        {Nx.multiply(Enum.reduce(ranges, last, slice), 3), other}
      end

      args = [integers({4, 6, 8}), weights]

      [result, expected] =
        for compiler <- [Nx.Vulkan.Compiler, Nx.Defn.Evaluator],
            do:
              fun
              |> Nx.Defn.jit_apply(args, compiler: compiler)
              |> Nx.backend_copy(Nx.BinaryBackend)

      assert result == expected, inspect({names, ranges, also})
    end
  end

  defn softmax(scores) do
    e = Nx.exp(scores - Nx.reduce_max(scores, axes: [-1], keep_axes: true))
    e / Nx.sum(e, axes: [-1], keep_axes: true)
  end

  defn(heads(t), do: t |> Nx.reshape({32, 4, 16}) |> Nx.transpose(axes: [1, 0, 2]))

  defn layer(x, w) do
    [q, k, v] = [heads(Nx.dot(x, w.q)), heads(Nx.dot(x, w.k)), heads(Nx.dot(x, w.v))]
    scores = softmax(Nx.dot(q, [2], [0], k, [2], [0]))
    attended = scores |> Nx.dot([2], [0], v, [1], [0]) |> Nx.transpose(axes: [1, 0, 2])
    x = x + Nx.dot(Nx.reshape(attended, {32, 64}), w.o)
    x + (x |> Nx.dot(w.up) |> Nx.max(0) |> Nx.dot(w.down))
  end

  # What the head of a language model reads of a prompt.
  defn(last_position(x, w), do: layer(x, w)[[-1..-1//1]])

  test "the last position alone goes through a prompt's last layer" do
    draw = fn shape -> Nx.divide(integers(shape), 8) end

    w = %{
      q: draw.({64, 64}),
      k: draw.({64, 64}),
      v: draw.({64, 64}),
      o: draw.({64, 64}),
      up: draw.({64, 256}),
      down: draw.({256, 64})
    }

    x = draw.({32, 64})

    operations = fn fun ->
      fun = Nx.Defn.jit(fun, compiler: Nx.Vulkan.Compiler)
      fun.(x, w)
      kernels = Nx.Vulkan.profile(fn -> fun.(x, w) end).kernels
      Enum.sum(for kernel <- kernels, do: (kernel.operations || 0) * kernel.runs)
    end

    # Those of the keys and values of all positions, 2 · 2 · 32 · 64 · 64, and of what one position takes.
    assert operations.(&last_position/2) < 800_000
    assert operations.(&layer/2) > 2_500_000

    last = Nx.Defn.jit_apply(&last_position/2, [x, w], compiler: Nx.Vulkan.Compiler)
    host = Nx.backend_copy({x, w}, Nx.BinaryBackend)

    expected =
      Nx.Defn.jit_apply(&last_position/2, Tuple.to_list(host), compiler: Nx.Defn.Evaluator)

    difference = last |> Nx.backend_copy(Nx.BinaryBackend) |> Nx.subtract(expected) |> Nx.abs()
    assert difference |> Nx.reduce_max() |> Nx.to_number() < 1.0e-5
  end
end
