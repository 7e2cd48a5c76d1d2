defmodule Nx.Vulkan.Backend.Window do
  @moduledoc false
  # Windows over a tensor: their reductions, and scatters to them. It describes windows as views and chooses
  # no kernels.
  #
  # A reduction is a program over the axes of the result followed by those of the window, which reads an
  # overlapping view: a step along the result is `stride` elements of the tensor, a step along the window
  # `dilation`. Where windows go beyond the tensor the view is padded with the reduction's identity.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Dispatch, Movement, ProgramRecorder, Storage, StridedCopy}
  alias Nx.Vulkan.ProgramBuilder

  @reductions %{
    window_sum: :sum,
    window_product: :product,
    window_max: :reduce_max,
    window_min: :reduce_min
  }

  def reduce(op, %T{type: type} = out, tensor, window, options) do
    reduction = Map.fetch!(@reductions, op)
    padding = options[:padding]
    value = identity(reduction, tensor.type)

    # Steps of loops and chains read no padded views.
    {operand, shape, axes} =
      if ProgramRecorder.recording?() and Enum.any?(padding, &beyond?/1),
        do: windows(pad(tensor, padding, value), out, window, options),
        else: padded_windows(tensor, out, window, options, value)

    program = ProgramBuilder.single(reduction, type, [operand], shape, axes)
    Dispatch.run(op, out, [tensor, window, options], program)
  end

  # The windows over a padded tensor, one for each element of `out`: a program's operand, its iteration
  # space, and those of its axes that go through a window.
  def windows(padded, out, window, options) do
    within = List.duplicate({0, 0}, tuple_size(padded.shape))
    padded_windows(padded, out, window, Keyword.put(options, :padding, within), nil)
  end

  # The same over a tensor and the elements `value` around it.
  defp padded_windows(tensor, %T{shape: shape}, window, options, value) do
    rank = tuple_size(shape)
    space = List.to_tuple(Tuple.to_list(shape) ++ Tuple.to_list(window))
    strides = Movement.strides(tensor.shape)

    axes =
      Enum.zip([
        Tuple.to_list(tensor.shape),
        strides,
        options[:padding],
        options[:strides],
        options[:window_dilations]
      ])

    {beyond, inside} =
      axes |> Enum.with_index() |> Enum.split_with(fn {axis, _} -> beyond?(elem(axis, 2)) end)

    # What negative padding takes away before the tensor begins.
    offset = Enum.sum(for {{_, stride, {low, _}, _, _}, _} <- inside, do: -low * stride)

    inside =
      Map.new(inside, fn {{_, stride, _, by, dilation}, i} ->
        {i, {stride * by, stride * dilation}}
      end)

    padded_axes =
      for {{extent, stride, {low, _}, by, dilation}, i} <- beyond do
        {between, within} = steps(rank, %{i => {by, dilation}})
        {-low, extent, stride, between ++ within}
      end

    {between, within} = steps(rank, inside)
    strides = between ++ within

    operand =
      if beyond == [] do
        ProgramBuilder.view(Storage.operand(tensor), offset, strides)
      else
        {:scalar, _type, bits} = Storage.operand(value)
        ProgramBuilder.padded(Storage.buffer(tensor), offset, strides, bits, padded_axes)
      end

    {operand, space, Enum.to_list(rank..(2 * rank - 1)//1)}
  end

  # The steps along the axes of the result, and those along the window, where some axes have any.
  defp steps(rank, axes) do
    0..(rank - 1)//1 |> Enum.map(&Map.get(axes, &1, {0, 0})) |> Enum.unzip()
  end

  defp beyond?({low, high}), do: low > 0 or high > 0

  # The tensor with `padding`, a list of `{low, high}`, of the reduction's identity.
  defp pad(tensor, padding, value) do
    config = Enum.map(padding, fn {low, high} -> {low, high, 0} end)

    StridedCopy.pad(
      %{tensor | shape: Nx.Shape.pad(tensor.shape, config)},
      tensor,
      value,
      config
    )
  end

  defp identity(reduction, type) do
    binary =
      case reduction do
        :reduce_max -> Nx.Type.min_binary(type)
        :reduce_min -> Nx.Type.max_binary(type)
        :sum -> number(0, type)
        :product -> number(1, type)
      end

    scalar = %T{data: nil, type: type, shape: {}, names: []}
    Nx.BinaryBackend.from_binary(scalar, binary, [])
  end

  defp number(number, type),
    do: Nx.to_binary(Nx.tensor(number, type: type, backend: Nx.BinaryBackend))

  def scatter(op, out, tensor, source, init, window, options) do
    answer =
      Native.call(
        window_scatter(
          op,
          out.type,
          Storage.buffer(tensor),
          Storage.buffer(source),
          Storage.buffer(init),
          window,
          options[:strides],
          options[:padding]
        )
      )

    Dispatch.result(answer, op, out, [tensor, source, init, window, options])
  end
end
