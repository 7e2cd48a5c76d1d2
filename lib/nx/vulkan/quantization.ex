defmodule Nx.Vulkan.Quantization do
  @moduledoc """
  Weights of 8 or 4 bits: integers, with a scale for each group of them.

  In a quarter or an eighth of the bytes of `f32` a larger model fits a device's memory. The guide says what a product takes with them.

      iex> params = %{kernel: Nx.tensor([[0.5, -1.0], [0.25, 2.0]]), bias: Nx.tensor([0.0, 1.0])}
      iex> quantized = Nx.Vulkan.Quantization.quantize(params)
      iex> quantized.bias == params.bias
      true
      iex> dense = fn x, %{kernel: kernel, bias: bias} ->
      ...>   Nx.add(Nx.Vulkan.Quantization.dot(x, kernel), bias)
      ...> end
      iex> dense.(Nx.tensor([1.0, 2.0]), quantized) |> Nx.to_list() |> Enum.map(&Float.round(&1, 1))
      [1.0, 4.0]

  Quantized weights are a container: `defn` takes them among its parameters, `Nx.backend_transfer/2` moves them, and
  `Nx.serialize/2` writes them. All functions here can be called in `defn`, and compute on any backend.

  ## Types

  | type | a weight | bytes a weight |
  | --- | --- | --- |
  | `:s8` | `scale * q`, `q` from -127 to 127 | 1 |
  | `:u8` | `minimum + scale * q`, `q` from 0 to 255 | 1 |
  | `:s4` | `scale * q`, `q` from -7 to 7 | 1/2 |
  | `:u4` | `minimum + scale * q`, `q` from 0 to 15 | 1/2 |

  Each group has its `scale` and `minimum` in `f32`. A weight is off by half of its group's scale at most. Types with a minimum
  lose less where a group's weights do not lie around zero.

  ## Products

  With one group a column, the default of 8 bits, `dot/2` is one kernel, which reads the integers as they are stored and
  multiplies each sum by its scale. With smaller groups a product of up to 16 rows takes two kernels: the sums of the groups,
  and the sum of these by their scales. Weights of 4 bits have a kernel for products of one row, a token's. All other products
  dequantize the weights first, in the type of the other operand: many rows share that.

  The [guide](quantization.md) has a model, speed, and what quantized weights do to predictions.
  """

  import Nx.Defn, only: [deftransform: 2]

  alias Nx.Tensor, as: T

  @derive {Nx.Container,
           containers: [:codes, :scales, :minimums], keep: [:quantized, :type, :shape, :axis]}
  @enforce_keys [:codes, :scales, :minimums, :quantized, :type, :shape, :axis]
  defstruct @enforce_keys

  @typedoc """
  A quantized matrix. `:codes` has its integers, `:scales` and `:minimums` those of the groups, `{groups, columns}`.

  Codes are `{groups, weights of a group, columns}`, with columns of zeros at the end where their number is no multiple of 4.
  Where there is one group and products contract axis 1 they are `{columns, 1, weights}`. Those of 4 bits are `{groups, words
  of a group, columns}`, eight in a `u32`, the first in the low bits. `:minimums` is `{}` where weights have none.
  """
  @type t :: %__MODULE__{
          codes: T.t(),
          scales: T.t(),
          minimums: T.t() | {},
          quantized: :s8 | :u8 | :s4 | :u4,
          type: Nx.Type.t(),
          shape: {pos_integer(), pos_integer()},
          axis: 0 | 1
        }

  # The largest number of a signed type, and of an unsigned one.
  @most %{s8: 127, u8: 255, s4: 7, u4: 15}
  @four_bits [:s4, :u4]
  # What is added to the numbers of `:s4`, which are stored without a sign.
  @zero_of_s4 8
  @codes_of_word 8
  # Columns that kernels load at once.
  @vector 4
  # Rows up to which sums of groups take less memory than dequantized weights.
  @few_rows 16
  @default_group_of_four_bits 64

  @doc """
  Quantizes the matrices of a container of parameters: all floats with two axes. The rest stays as it is.

  ## Options

    * `:type` - `:s8` (default), `:u8`, `:s4` or `:u4`
    * `:axis` - the axis that products contract: 0 (default), as of a dense layer's `{inputs, outputs}`, or 1, as of an
      embedding `{tokens, width}` that is the last layer, too
    * `:group` - how many weights along that axis share a scale. It divides the axis, and for 4 bits it is a multiple of 8. By
      default it is the whole axis for 8 bits, and 64 for 4 bits, or the whole axis where 64 does not divide it.

  Weights are finite. What is quantized already stays as it is.
  """
  @spec quantize(Nx.Container.t(), keyword()) :: Nx.Container.t()
  deftransform quantize(container, options \\ []) do
    options = Keyword.validate!(options, [:group, type: :s8, axis: 0])

    if not is_map_key(@most, options[:type]),
      do: expected!("type", "one of :s8, :u8, :s4 and :u4", options[:type])

    if options[:axis] not in [0, 1], do: expected!("axis", "0 or 1", options[:axis])
    traverse(container, options)
  end

  defp traverse(%__MODULE__{} = weights, _options), do: weights

  defp traverse(%T{vectorized_axes: [], shape: {_, _}, type: {kind, _}} = tensor, options)
       when kind not in [:s, :u, :c],
       do: matrix(tensor, options)

  defp traverse(%T{} = tensor, _options), do: tensor
  defp traverse(number, _options) when is_number(number), do: number

  defp traverse(container, options) do
    {container, :ok} =
      Nx.Container.traverse(container, :ok, fn element, :ok ->
        {traverse(element, options), :ok}
      end)

    container
  end

  defp matrix(%T{shape: shape, type: type} = tensor, options) do
    {quantized, axis} = {options[:type], options[:axis]}
    {depth, columns} = {elem(shape, axis), elem(shape, 1 - axis)}
    group = group!(options[:group], quantized, depth)

    weights =
      tensor
      |> Nx.rename([nil, nil])
      |> Nx.as_type(:f32)
      |> in_columns(axis)
      |> Nx.reshape({div(depth, group), group, columns})

    {codes, scales, minimums} = codes(weights, quantized)

    %__MODULE__{
      codes: stored(codes, quantized, axis),
      scales: scales,
      minimums: minimums,
      quantized: quantized,
      type: type,
      shape: shape,
      axis: axis
    }
  end

  defp group!(nil, quantized, depth) do
    if quantized in @four_bits and rem(depth, @default_group_of_four_bits) == 0,
      do: @default_group_of_four_bits,
      else: group!(depth, quantized, depth)
  end

  defp group!(group, quantized, depth) do
    multiple = if quantized in @four_bits, do: @codes_of_word, else: 1

    if is_integer(group) and group > 0 and rem(depth, group) == 0 and rem(group, multiple) == 0,
      do: group,
      else: expected!("group", "a divisor of #{depth} that #{multiple} divides", group)
  end

  # The contracted axis first, for either axis; the same again undoes it.
  defp in_columns(matrix, 0), do: matrix
  defp in_columns(matrix, 1), do: Nx.transpose(matrix)

  # The numbers of `{groups, weights, columns}`, with scales and minimums of `{groups, columns}`.
  defp codes(weights, quantized) when quantized in [:s8, :s4] do
    scales = scales(Nx.reduce_max(Nx.abs(weights), axes: [1]), quantized)
    {Nx.round(Nx.divide(weights, Nx.new_axis(scales, 1))), scales, {}}
  end

  defp codes(weights, quantized) do
    minimums = Nx.reduce_min(weights, axes: [1])
    scales = scales(Nx.subtract(Nx.reduce_max(weights, axes: [1]), minimums), quantized)
    above = Nx.subtract(weights, Nx.new_axis(minimums, 1))
    {Nx.round(Nx.divide(above, Nx.new_axis(scales, 1))), scales, minimums}
  end

  # A group of equal weights has any scale.
  defp scales(range, quantized) do
    scales = Nx.divide(range, @most[quantized])
    Nx.select(Nx.greater(scales, 0), scales, Nx.tensor(1, type: :f32))
  end

  defp stored(codes, quantized, _axis) when quantized in @four_bits do
    {groups, group, columns} = codes.shape
    unsigned = if quantized == :s4, do: Nx.add(codes, @zero_of_s4), else: codes

    unsigned
    |> Nx.as_type(:u32)
    |> Nx.reshape({groups, div(group, @codes_of_word), @codes_of_word, columns})
    |> Nx.left_shift(shifts())
    |> Nx.sum(axes: [2])
    |> Nx.as_type(:u32)
  end

  defp stored(%T{shape: {1, _, _}} = codes, quantized, axis) do
    codes = Nx.as_type(codes, quantized)
    if axis == 1, do: Nx.transpose(codes, axes: [2, 0, 1]), else: codes
  end

  # Along the groups of one column a kernel would load few weights at once, along the columns it loads vectors.
  defp stored(%T{shape: {_, _, columns}} = codes, quantized, _axis) do
    codes = Nx.as_type(codes, quantized)
    missing = Integer.mod(-columns, @vector)

    if missing == 0,
      do: codes,
      else: Nx.pad(codes, Nx.tensor(0, type: quantized), [{0, 0, 0}, {0, 0, 0}, {0, missing, 0}])
  end

  defp shifts, do: Nx.reshape(Nx.multiply(4, Nx.iota({@codes_of_word}, type: :u32)), {1, 1, 8, 1})

  @doc """
  The weights as a matrix of the type and shape that they had.
  """
  @spec dequantize(t()) :: T.t()
  deftransform dequantize(%__MODULE__{} = weights) do
    weights |> dequantized(weights.type) |> in_columns(weights.axis)
  end

  # The weights as {depth, columns}.
  defp dequantized(weights, type) do
    {groups, group, columns} = extents(weights)

    scaled =
      numbers(weights, {:f, 32})
      |> first_columns(columns)
      |> Nx.multiply(Nx.new_axis(weights.scales, 1))
      |> above_minimums(weights, &Nx.new_axis(&1, 1))

    Nx.reshape(Nx.as_type(scaled, type), {groups * group, columns})
  end

  defp above_minimums(tensor, %{minimums: {}}, _fun), do: tensor
  defp above_minimums(tensor, %{minimums: minimums}, fun), do: Nx.add(tensor, fun.(minimums))

  defp extents(%__MODULE__{shape: shape, axis: axis, scales: %T{shape: {groups, columns}}}),
    do: {groups, div(elem(shape, axis), groups), columns}

  defp first_columns(%T{shape: {_, _, columns}} = tensor, columns), do: tensor
  defp first_columns(tensor, columns), do: Nx.slice_along_axis(tensor, 0, columns, axis: 2)

  # The integers as {groups, weights, columns}, in a type of floats. There may be further columns.
  defp numbers(%__MODULE__{quantized: quantized} = weights, type) when quantized in @four_bits do
    numbers =
      weights.codes
      |> Nx.new_axis(2)
      |> Nx.right_shift(shifts())
      |> Nx.bitwise_and(15)
      |> Nx.as_type(type)
      |> Nx.reshape(extents(weights))

    if quantized == :s4, do: Nx.subtract(numbers, @zero_of_s4), else: numbers
  end

  defp numbers(%__MODULE__{axis: 1, scales: %T{shape: {1, _}}} = weights, type),
    do: Nx.transpose(Nx.as_type(weights.codes, type), axes: [1, 2, 0])

  defp numbers(%__MODULE__{} = weights, type), do: Nx.as_type(weights.codes, type)

  @doc """
  The product of a tensor's last axis with the axis that the weights were quantized for: `Nx.dot(tensor, matrix)`, or for axis
  1 `Nx.dot(tensor, [-1], matrix, [1])`.

  Its type is that of the tensor, a float. Gradients are those by the tensor; weights have none.
  """
  @spec dot(Nx.Tensor.t(), t()) :: T.t()
  deftransform dot(tensor, %__MODULE__{} = weights) do
    tensor = Nx.to_tensor(tensor)
    type = Nx.Type.to_floating(tensor.type)
    depth = elem(weights.shape, weights.axis)
    {rest, last} = tensor.shape |> Tuple.to_list() |> Enum.split(-1)

    if last != [depth],
      do: expected!("tensor", "a last axis of #{depth} numbers", tensor.shape)

    rows = Enum.product(rest)
    shape = List.to_tuple(rest ++ [elem(weights.shape, 1 - weights.axis)])

    tensor
    |> Nx.rename(List.duplicate(nil, tuple_size(tensor.shape)))
    |> Nx.as_type(type)
    |> Nx.reshape({rows, depth})
    |> product(weights, rows)
    |> Nx.as_type(type)
    |> Nx.reshape(shape)
  end

  defp product(%T{vectorized_axes: []} = x, %{quantized: quantized} = weights, 1)
       when quantized in @four_bits,
       do: row_product(Nx.as_type(x, :f32), weights)

  defp product(x, %{quantized: quantized} = weights, rows) do
    {groups, _group, columns} = extents = extents(weights)

    cond do
      quantized not in @four_bits and groups == 1 ->
        numbers = weights |> numbers(x.type) |> Nx.squeeze(axes: [0])

        Nx.multiply(Nx.dot(x, numbers), Nx.reshape(weights.scales, {columns}))
        |> above_minimums(weights, &Nx.outer(Nx.sum(x, axes: [1]), Nx.reshape(&1, {columns})))

      quantized not in @four_bits and rows <= @few_rows ->
        x = Nx.as_type(x, :f32)
        sums = Nx.dot(groups(x, extents), [2], [0], numbers(weights, x.type), [1], [0])

        sums
        |> first_columns(columns)
        |> Nx.multiply(Nx.new_axis(weights.scales, 1))
        |> Nx.sum(axes: [0])
        |> above_minimums(weights, &of_minimums(x, &1, extents))

      true ->
        Nx.dot(x, dequantized(weights, x.type))
    end
  end

  # A matrix of rows as {groups, rows, weights of a group}.
  defp groups(x, {groups, group, _columns}) do
    x
    |> Nx.reshape({elem(x.shape, 0), groups, group})
    |> Nx.transpose(axes: [1, 0, 2])
  end

  # What the minimums add: each is multiplied by the sum of a group's elements.
  defp of_minimums(x, minimums, {groups, group, _columns}) do
    x |> Nx.reshape({elem(x.shape, 0), groups, group}) |> Nx.sum(axes: [2]) |> Nx.dot(minimums)
  end

  # Invocations along the columns, and along the groups, which share a column's sum.
  @columns_of_workgroup 32
  @parts 8

  @row_kernel Nx.Vulkan.Kernel.new(
                name: "four_bit_row_product",
                inputs: [x: :f32, codes: :u32, scales: :f32],
                outputs: [y: :f32],
                params: [zero: :f32],
                workgroup: {@columns_of_workgroup, @parts},
                source: """
                const uint COLUMNS = #{@columns_of_workgroup}u, PARTS = #{@parts}u;
                shared float sums[PARTS][COLUMNS];

                void main() {
                  uint column = gl_GlobalInvocationID.x, local = gl_LocalInvocationID.x, part = gl_LocalInvocationID.y;
                  uint groups = codes_shape[0], words = codes_shape[1], columns = codes_shape[2];
                  float sum = 0.0;
                  if (column < columns) {
                    for (uint group = part; group < groups; group += PARTS) {
                      float of_group = 0.0;
                      for (uint w = group * words; w < (group + 1u) * words; w++) {
                        uint word = codes[w * columns + column];
                        for (uint i = 0u; i < 8u; i++) of_group += (float((word >> (4u * i)) & 15u) - zero) * x[8u * w + i];
                      }
                      sum += of_group * scales[group * columns + column];
                    }
                  }
                  sums[part][local] = sum;
                  barrier();
                  if (part == 0u && column < columns) {
                    for (uint other = 1u; other < PARTS; other++) sum += sums[other][local];
                    y[column] = sum;
                  }
                }
                """
              )

  # The product of one row with weights of four bits.
  defp row_product(x, weights) do
    {_groups, _group, columns} = extents = extents(weights)
    zero = if weights.quantized == :s4, do: @zero_of_s4, else: 0

    Nx.Vulkan.Kernel.call(
      @row_kernel,
      [x, weights.codes, weights.scales],
      Nx.template({1, columns}, :f32),
      grid: {columns, @parts},
      params: [zero: zero],
      default: fn x, codes, scales ->
        weights = %{weights | codes: codes, scales: scales, minimums: {}}
        Nx.dot(x, dequantized(weights, {:f, 32}))
      end
    )
    |> above_minimums(weights, &of_minimums(x, &1, extents))
  end

  @doc """
  Rows of an embedding that was quantized for axis 1: `Nx.take(matrix, indices)`, in the type that the weights had.
  """
  @spec take(t(), Nx.Tensor.t()) :: T.t()
  deftransform take(weights, indices) do
    if weights.axis != 1, do: expected!("weights", "weights of axis 1", weights.axis)
    {groups, group, _columns} = extents(weights)
    indices = Nx.to_tensor(indices)
    count = Nx.size(indices)
    flat = Nx.reshape(indices, {count})
    columns = if weights.quantized in @four_bits or groups > 1, do: 2, else: 0
    taken = fn groups -> Nx.take(groups, flat, axis: 1) end

    rows = %{
      weights
      | codes: Nx.take(weights.codes, flat, axis: columns),
        scales: taken.(weights.scales),
        minimums: with(%T{} <- weights.minimums, do: taken.(weights.minimums))
    }

    rows
    |> dequantized(weights.type)
    |> Nx.transpose()
    |> Nx.reshape(List.to_tuple(Tuple.to_list(indices.shape) ++ [groups * group]))
  end

  defp expected!(argument, what, got),
    do: raise(ArgumentError, "#{argument}: expected #{what}, got: #{inspect(got)}")
end
