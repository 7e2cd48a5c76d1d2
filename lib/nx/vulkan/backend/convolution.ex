defmodule Nx.Vulkan.Backend.Convolution do
  @moduledoc false
  # A convolution is a contraction of the kernel with an overlapping view of the padded input: the groups
  # are its batch axes, the features of a group its rows, batch and space of the result its columns,
  # the channels of a group and the window what it sums over. Where features are innermost in the result,
  # rows and columns change places, so that neighbours are written together.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Assembly, Movement, Program, Storage}

  def conv(%T{type: type} = out, input, kernel, options) do
    padded = pad(input, options)
    {ref, input_type, _} = Storage.buffer(padded)
    {kernel_ref, kernel_type, _} = Storage.buffer(kernel)
    {axes, swap?} = axes(out, padded, kernel, options)

    {a, b, axes} =
      if swap?,
        do: {{ref, input_type, 0}, {kernel_ref, kernel_type, 0}, swap(axes)},
        else: {{kernel_ref, kernel_type, 0}, {ref, input_type, 0}, axes}

    Program.result(Native.call(contract(type, a, b, axes)), :conv, out, [input, kernel, options])
  end

  # Space only, on the input's own axes: zeros around it and, for its dilation, in between.
  defp pad(%T{shape: shape} = input, options) do
    [_, _ | space] = options[:input_permutation]
    spatial = Enum.zip([space, options[:padding], options[:input_dilation]])

    config =
      Enum.reduce(spatial, List.duplicate({0, 0, 0}, tuple_size(shape)), fn
        {axis, {low, high}, dilation}, config ->
          List.replace_at(config, axis, {low, high, dilation - 1})
      end)

    if Enum.all?(config, &(&1 == {0, 0, 0})) do
      input
    else
      zero = Nx.tensor(0, type: input.type, backend: Nx.BinaryBackend)
      Assembly.pad(%{input | shape: Nx.Shape.pad(shape, config)}, input, zero, config)
    end
  end

  # The strides of an axis are those in the kernel, in the input and in the result.
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

    space =
      Enum.zip_with([out_space, in_space, options[:strides]], fn [{dim, out}, {_, step}, stride] ->
        {dim, 0, step * stride, out}
      end)

    depth =
      Enum.zip_with([window, in_space, options[:kernel_dilation]], fn
        [{dim, kernel}, {_, step}, dilation] -> {dim, kernel, step * dilation, 0}
      end)

    axes = {
      [{groups, features * feature, step, features * out_feature}],
      [{features, feature, 0, out_feature}],
      [{div(batch, batch_groups), 0, in_batch, out_batch} | space],
      Enum.sort_by([{channels, channel, in_channel, 0} | depth], &elem(&1, 1), :desc)
    }

    {axes, out_feature == 1}
  end

  # Extents and strides of a tensor's axes in the order of `permutation`.
  defp steps(%T{shape: shape}, permutation) do
    strides = List.to_tuple(Movement.strides(shape))
    Enum.map(permutation, &{elem(shape, &1), elem(strides, &1)})
  end

  defp swap({batch, rows, columns, depth}),
    do: {swap_all(batch), swap_all(columns), swap_all(rows), swap_all(depth)}

  defp swap_all(axes), do: Enum.map(axes, fn {dim, a, b, c} -> {dim, b, a, c} end)
end
