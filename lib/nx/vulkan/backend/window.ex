defmodule Nx.Vulkan.Backend.Window do
  @moduledoc false
  # Windows over a tensor: their reductions, and scatters to them. It describes windows as views and chooses
  # no kernels.
  #
  # A reduction is a program over the axes of the result followed by those of the window, which reads an
  # overlapping view: a step along the result is `stride` elements of the tensor, a step along the window
  # `dilation`.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Dispatch, Movement, Storage, StridedCopy}
  alias Nx.Vulkan.ProgramBuilder

  @reductions %{
    window_sum: :sum,
    window_product: :product,
    window_max: :reduce_max,
    window_min: :reduce_min
  }

  def reduce(op, %T{type: type} = out, tensor, window, options) do
    reduction = Map.fetch!(@reductions, op)
    padded = pad(tensor, options[:padding], identity(reduction, type))
    {operand, shape, axes} = windows(padded, out, window, options)
    program = ProgramBuilder.single(reduction, type, [operand], shape, axes)
    Dispatch.run(op, out, [tensor, window, options], program)
  end

  # The windows over a padded tensor, one for each element of `out`: a program's operand, its iteration
  # space, and those of its axes that go through a window.
  def windows(padded, %T{shape: shape}, window, options) do
    strides = Movement.strides(padded.shape)
    between = Enum.zip_with(strides, options[:strides], &*/2)
    within = Enum.zip_with(strides, options[:window_dilations], &*/2)
    space = List.to_tuple(Tuple.to_list(shape) ++ Tuple.to_list(window))
    axes = Enum.to_list(tuple_size(shape)..(tuple_size(space) - 1)//1)
    {ProgramBuilder.view(Storage.operand(padded), 0, between ++ within), space, axes}
  end

  # The tensor with `padding`, a list of `{low, high}`, of the reduction's identity.
  defp pad(tensor, padding, value) do
    if Enum.all?(padding, &(&1 == {0, 0})) do
      tensor
    else
      config = Enum.map(padding, fn {low, high} -> {low, high, 0} end)

      StridedCopy.pad(
        %{tensor | shape: Nx.Shape.pad(tensor.shape, config)},
        tensor,
        value,
        config
      )
    end
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
