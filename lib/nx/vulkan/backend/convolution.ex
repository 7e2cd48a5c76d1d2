defmodule Nx.Vulkan.Backend.Convolution do
  @moduledoc false
  # A convolution is a contraction of the kernel with an overlapping view of the input: the groups are its
  # batch axes, the features of a group its rows, batch and space of the result its columns, the channels of
  # a group and the window what it sums over. Padding is a border of the input's spatial axes, beyond which
  # are zeros. Where features are innermost in the result, rows and columns change places, so that
  # neighbours are written together.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Assembly, Movement, Program, Storage}

  def conv(%T{type: type} = out, input, kernel, options) do
    {view, options} = dilate(input, options)
    {ref, input_type, _} = Storage.buffer(view)
    {kernel_ref, kernel_type, _} = Storage.buffer(kernel)
    {axes, swap?} = axes(out, view, kernel, options)

    {a, b, axes} =
      if swap?,
        do: {{ref, input_type, 0}, {kernel_ref, kernel_type, 0}, swap(axes)},
        else: {{kernel_ref, kernel_type, 0}, {ref, input_type, 0}, axes}

    Program.result(Native.call(contract(type, a, b, axes)), :conv, out, [input, kernel, options])
  end

  # A dilated input is written with the zeros in between and around it.
  defp dilate(%T{shape: shape} = input, options) do
    [_, _ | space] = options[:input_permutation]

    if Enum.all?(options[:input_dilation], &(&1 == 1)) do
      {input, options}
    else
      spatial = Enum.zip([space, options[:padding], options[:input_dilation]])

      config =
        Enum.reduce(spatial, List.duplicate({0, 0, 0}, tuple_size(shape)), fn
          {axis, {low, high}, dilation}, config ->
            List.replace_at(config, axis, {low, high, dilation - 1})
        end)

      zero = Nx.tensor(0, type: input.type, backend: Nx.BinaryBackend)
      dilated = Assembly.pad(%{input | shape: Nx.Shape.pad(shape, config)}, input, zero, config)
      {dilated, Keyword.put(options, :padding, Enum.map(space, fn _ -> {0, 0} end))}
    end
  end

  # The strides of an axis are those in the kernel, in the input and in the result, then the border that it
  # meets and by how much it steps along it.
  defp axes(out, input, kernel, options) do
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

    borders =
      Enum.zip_with(options[:padding], in_space, fn {low, _}, {dim, step} -> {-low, dim, step} end)

    space =
      for {{{dim, out}, {_, step}, stride}, border} <-
            indexed([out_space, in_space, options[:strides]]),
          do: {dim, 0, step * stride, out, border, stride}

    depth =
      for {{{dim, kernel}, {_, step}, dilation}, border} <-
            indexed([window, in_space, options[:kernel_dilation]]),
          do: {dim, kernel, step * dilation, 0, border, dilation}

    axes = {
      [{groups, features * feature, step, features * out_feature}],
      [{features, feature, 0, out_feature}],
      [{div(batch, batch_groups), 0, in_batch, out_batch} | space],
      Enum.sort_by([{channels, channel, in_channel, 0} | depth], &elem(&1, 1), :desc),
      borders
    }

    {axes, out_feature == 1}
  end

  defp indexed(lists), do: lists |> Enum.zip() |> Enum.with_index()

  # Extents and strides of a tensor's axes in the order of `permutation`.
  defp steps(%T{shape: shape}, permutation) do
    strides = List.to_tuple(Movement.strides(shape))
    Enum.map(permutation, &{elem(shape, &1), elem(strides, &1)})
  end

  defp swap({batch, rows, columns, depth, borders}),
    do: {swap_all(batch), swap_all(columns), swap_all(rows), swap_all(depth), borders}

  defp swap_all(axes),
    do: Enum.map(axes, &(&1 |> put_elem(1, elem(&1, 2)) |> put_elem(2, elem(&1, 1))))
end
