defmodule Nx.Vulkan.Backend.Convolution do
  @moduledoc false
  # Convolutions, as contractions of the kernel with an overlapping view of the input. This module maps axes
  # to rows, columns and depth; which kernels contract them is decided in src/kernels/contraction.
  #
  # The groups are the contraction's batch axes, the features of a group its rows, batch and space of the
  # result its columns, the channels of a group and the window its depth. Outside a spatial axis of the
  # input lies padding, which is zero. Where features are innermost in the result, rows and columns are
  # swapped: adjacent elements are written at once.
  #
  # Of an input dilated by d every d-th result along an axis meets the same elements of the kernel, each
  # d-th one, and otherwise the zeros in between. That is a convolution without dilation, one of d phases
  # (W. Shi et al., "Is the deconvolution layer the same as a convolutional layer?", 2016).

  require Nx.Vulkan.Native, as: Native

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Dispatch, Movement, Storage, StridedCopy}

  def conv(%T{type: type} = out, input, kernel, options) do
    args = [input, kernel, options]
    {input, options} = dilate(input, options)
    combinations = combinations(phases(dense(out), dense(kernel), options))

    if Enum.all?(options[:input_dilation], &(&1 == 1)) do
      Dispatch.result(
        contraction(out, input, kernel, options, hd(combinations)),
        :conv,
        out,
        args
      )
    else
      answers =
        for phases <- combinations do
          {shape, offset, strides} = destination(out, options, phases)
          region = %{out | shape: shape}

          with {:ok, ref} <- contraction(region, input, kernel, options, phases),
               do: {[{ref, type, shape}], shape, offset, strides, []}
        end

      case Enum.find(answers, &(elem(&1, 0) == :error)) do
        nil -> StridedCopy.copy(:conv, args, out, uncovered(out, answers) ++ answers)
        error -> Dispatch.result(error, :conv, out, args)
      end
    end
  end

  # Writes the zeros between elements along axes where windows are strided or dilated, too.
  defp dilate(%T{shape: shape} = input, options) do
    [_, _ | space] = options[:input_permutation]

    {written, left} =
      [space, options[:input_dilation], options[:strides], options[:kernel_dilation]]
      |> Enum.zip_with(fn
        [axis, by, 1, 1] -> {{axis, 1}, by}
        [axis, by, _stride, _dilation] -> {{axis, by}, 1}
      end)
      |> Enum.unzip()

    written = Map.new(written)
    config = for axis <- Nx.axes(shape), do: {0, 0, Map.get(written, axis, 1) - 1}
    options = Keyword.put(options, :input_dilation, left)

    if Enum.all?(config, &(&1 == {0, 0, 0})) do
      {input, options}
    else
      zero = Nx.tensor(0, type: input.type, backend: Nx.BinaryBackend)
      dilated = %{input | shape: Nx.Shape.pad(shape, config)}
      {StridedCopy.pad(dilated, input, zero, config), options}
    end
  end

  # For each spatial axis its phases that meet any of the kernel:
  #
  #   * `first`, `every`, `count`: their results
  #   * `tap`, `taps`: the first of their elements of the kernel, with a stride of `every`, and their number
  #   * `start`, `stride`, `dilation`: where the first window begins in the input, and the distances between
  #     windows, and between the elements of a window, there
  defp phases(out, kernel, options) do
    [_, _ | results] = steps(out, options[:output_permutation])
    [_, _ | windows] = steps(kernel, options[:kernel_permutation])

    axes =
      [results, windows, options[:padding], options[:strides]] ++
        [options[:kernel_dilation], options[:input_dilation]]

    Enum.zip_with(axes, fn [{results, _}, {taps, _}, {low, _high}, stride, dilation, every] ->
      for first <- 0..(min(every, results) - 1),
          tap = Integer.mod(low - first, every),
          tap < taps do
        %{
          first: first,
          every: every,
          count: div(results - first - 1, every) + 1,
          tap: tap,
          taps: div(taps - tap - 1, every) + 1,
          start: div(first + tap - low, every),
          stride: stride,
          dilation: dilation
        }
      end
    end)
  end

  defp combinations([]), do: [[]]

  defp combinations([phases | axes]),
    do: for(phase <- phases, others <- combinations(axes), do: [phase | others])

  # The shape of what a combination of phases makes, and the offset and strides at which it goes to the
  # result.
  defp destination(%T{shape: shape}, options, phases) do
    [_, _ | space] = options[:output_permutation]
    phases = Map.new(Enum.zip(space, phases))

    axes =
      for {stride, axis} <- Enum.with_index(Movement.strides(shape)) do
        case phases do
          %{^axis => %{first: first, every: every, count: count}} ->
            {count, first * stride, every * stride}

          %{} ->
            {elem(shape, axis), 0, stride}
        end
      end

    counts = Enum.map(axes, &elem(&1, 0))
    offset = Enum.sum(Enum.map(axes, &elem(&1, 1)))
    {List.to_tuple(counts), offset, Enum.map(axes, &elem(&1, 2))}
  end

  # Results of phases that meet nothing of the kernel are zeros.
  defp uncovered(out, regions) do
    covered = Enum.sum(for {_, shape, _, _, _} <- regions, do: Tuple.product(shape))
    zero = Nx.tensor(0, type: out.type, backend: Nx.BinaryBackend)
    if covered == Nx.size(out), do: [], else: [StridedCopy.whole(out, zero)]
  end

  # The results of a combination of phases; `out` has their shape.
  defp contraction(%T{type: type} = out, input, kernel, options, phases) do
    {ref, input_type, _} = Storage.buffer(input)
    {kernel_ref, kernel_type, _} = Storage.buffer(kernel)
    [result, of_input, of_kernel] = Enum.map([out, input, kernel], &dense/1)
    {first, axes, input_first?} = axes(result, of_input, of_kernel, options, phases)
    operands = [{ref, input_type, 0}, {kernel_ref, kernel_type, first}]
    [a, b] = if input_first?, do: operands, else: Enum.reverse(operands)
    Native.call(contract(type, a, b, axes))
  end

  defp dense(%T{shape: shape}), do: {shape, Movement.strides(shape)}

  @typedoc "The shape of a tensor and its strides, which need not be in the order of its axes."
  @type strided :: {tuple(), [integer()]}

  @doc """
  The axes of the contraction that is a convolution of an input without dilation, as the NIF `contract` takes them, and
  whether the input is its first operand.
  """
  @spec axes(strided(), strided(), strided(), keyword()) :: {:ok, tuple(), boolean()} | :error
  def axes(out, input, kernel, options) do
    with true <- Enum.all?(options[:input_dilation], &(&1 == 1)),
         [phases] <- combinations(phases(out, kernel, options)) do
      {0, axes, input_first?} = axes(out, input, kernel, options, phases)
      {:ok, axes, input_first?}
    else
      _ -> :error
    end
  end

  # The kernel's first element, the axes, and whether the input is the first operand. Before operands are swapped the
  # strides of an axis are those in the kernel, in the input and in the result, then the padding that it meets and by
  # how much it steps along it.
  defp axes(out, input, kernel, options, phases) do
    [{batch, in_batch}, {_, in_channel} | in_space] = steps(input, options[:input_permutation])

    [{features, feature}, {channels, channel} | window] =
      steps(kernel, options[:kernel_permutation])

    [{_, out_batch}, {_, out_feature} | out_space] = steps(out, options[:output_permutation])

    feature_groups = options[:feature_group_size]
    batch_groups = options[:batch_group_size]
    groups = max(feature_groups, batch_groups)
    features = div(features, groups)

    step =
      if feature_groups > 1,
        do: channels * in_channel,
        else: div(batch, batch_groups) * in_batch

    first = Enum.sum(Enum.zip_with(phases, window, fn phase, {_, step} -> phase.tap * step end))

    paddings =
      Enum.zip_with(phases, in_space, fn phase, {dim, step} -> {phase.start, dim, step} end)

    space =
      for {{{dim, out}, {_, step}, phase}, padding} <- indexed([out_space, in_space, phases]),
          do: {dim, 0, step * phase.stride, out, padding, phase.stride}

    depth =
      for {{{_, kernel}, {_, step}, phase}, padding} <- indexed([window, in_space, phases]),
          do:
            {phase.taps, kernel * phase.every, step * phase.dilation, 0, padding, phase.dilation}

    axes = {
      [{groups, features * feature, step, features * out_feature}],
      [{features, feature, 0, out_feature}],
      [{div(batch, batch_groups), 0, in_batch, out_batch} | space],
      Enum.sort_by([{channels, channel, in_channel, 0} | depth], &elem(&1, 1), :desc),
      paddings
    }

    if out_feature == 1, do: {first, swap(axes), true}, else: {first, axes, false}
  end

  defp indexed(lists), do: lists |> Enum.zip() |> Enum.with_index()

  # Extents and strides of a tensor's axes in the order of `permutation`.
  defp steps({shape, strides}, permutation) do
    strides = List.to_tuple(strides)
    Enum.map(permutation, &{elem(shape, &1), elem(strides, &1)})
  end

  defp swap({batch, rows, columns, depth, paddings}),
    do: {swap_all(batch), swap_all(columns), swap_all(rows), swap_all(depth), paddings}

  defp swap_all(axes),
    do: Enum.map(axes, &(&1 |> put_elem(1, elem(&1, 2)) |> put_elem(2, elem(&1, 1))))
end
