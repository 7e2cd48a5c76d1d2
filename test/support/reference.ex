defmodule Nx.Vulkan.Test.Reference do
  @moduledoc """
  What operations should give: what BinaryBackend gives, with floats of 8 and 16 bits rounded to nearest even. It
  raises for a whole tensor when one element has no result in Erlang; element-wise operations then take one element
  after the other.
  """

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Test.{Arguments, NearestBackend, Rounding}

  # The elements as binaries, `:undefined` where BinaryBackend raises. The type is nil where it raises for
  # every element. `inputs` are the operands in the result's shape.
  defstruct [:type, :shape, :names, elements: [], inputs: []]

  @doc "What the element-wise function `fun` of a list of tensors without names should give."
  def elementwise(tensors, fun) do
    shape = tensors |> Enum.map(& &1.shape) |> Enum.reduce(&broadcast_shape/2)
    inputs = Enum.map(tensors, &Arguments.broadcast(&1, shape))
    results = inputs |> Enum.map(&Nx.flatten/1) |> halve(fun)
    types = for {_element, type} <- results, type != nil, uniq: true, do: type

    type =
      case types do
        [] -> nil
        [type] -> type
      end

    %__MODULE__{
      type: type,
      shape: shape,
      names: List.duplicate(nil, tuple_size(shape)),
      elements: Enum.map(results, &elem(&1, 0)),
      inputs: inputs
    }
  end

  @doc """
  `Nx.as_type/2` with one rounding. BinaryBackend makes a double of an integer, which rounds those of 64
  bits, and rounds that again to a narrower float: next to the middle of two floats it takes the wrong
  one. Here such an integer is first rounded to odd: it keeps 50 bits, the last one says whether others
  were lost, and then every narrower float is the one that is nearest to the integer.
  """
  def as_type(%T{type: {kind, 64}} = tensor, {to, size} = type)
      when kind in [:u, :s] and to not in [:u, :s] and size < 64 do
    if Rounding.rounded?(type),
      do: Nx.as_type(tensor, type),
      else: tensor |> rounded_to_odd() |> Nx.as_type(type)
  end

  def as_type(tensor, type), do: Nx.as_type(tensor, type)

  # The tensor itself unless its elements are integers of 64 bits.
  defp rounded_to_odd(%T{type: {kind, 64}} = tensor) when kind in [:u, :s] do
    tensor
    |> Nx.to_flat_list()
    |> Enum.map(&round_to_odd/1)
    |> Nx.tensor(type: tensor.type, backend: Nx.BinaryBackend)
    |> Nx.reshape(tensor.shape)
  end

  defp rounded_to_odd(tensor), do: tensor

  defp round_to_odd(x) do
    unit = 2 ** max(length(Integer.digits(abs(x), 2)) - 50, 0)
    kept = div(abs(x), unit)
    odd = if rem(abs(x), unit) == 0, do: kept, else: Bitwise.bor(kept, 1)
    if x < 0, do: -odd * unit, else: odd * unit
  end

  @doc "What an operation should give: the tensor of BinaryBackend."
  def whole(%T{} = tensor) do
    %__MODULE__{
      type: tensor.type,
      shape: tensor.shape,
      names: tensor.names,
      elements: bits(tensor)
    }
  end

  @doc "The elements as bitstrings, in row-major order."
  def bits(%T{type: {_, size}} = tensor) do
    for <<element::bitstring-size(size) <- Nx.to_binary(tensor)>>, do: element
  end

  @doc """
  What the function of a tensor, or of a tuple or list of tensors, gives with results rounded to nearest even in floats
  of 8 and 16 bits. The tensors are of BinaryBackend.
  """
  def nearest(fun, input) do
    Nx.with_default_backend(NearestBackend, fn ->
      input |> each(&NearestBackend.wrap/1) |> fun.() |> each(&NearestBackend.unwrap/1)
    end)
  end

  defp each(list, fun) when is_list(list), do: Enum.map(list, &each(&1, fun))
  defp each(%T{} = tensor, fun), do: fun.(tensor)

  defp each(tuple, fun) when is_tuple(tuple),
    do: tuple |> Tuple.to_list() |> each(fun) |> List.to_tuple()

  defp each(other, _fun), do: other

  # By the rule of broadcasting, and not by Nx's code for it: trailing axes meet, and those of extent 1
  # are repeated.
  defp broadcast_shape(left, right) do
    [left, right] = for shape <- [left, right], do: shape |> Tuple.to_list() |> Enum.reverse()
    rank = max(length(left), length(right))
    [left, right] = for dims <- [left, right], do: dims ++ List.duplicate(1, rank - length(dims))

    Enum.zip_with(left, right, fn
      1, dim -> dim
      dim, 1 -> dim
      dim, dim -> dim
    end)
    |> Enum.reverse()
    |> List.to_tuple()
  end

  defp halve([%T{shape: {n}} | _] = tensors, fun) do
    %T{type: type, shape: {^n}} = result = nearest(fun, tensors)
    Enum.map(bits(result), &{&1, type})
  rescue
    error in [ArithmeticError, ArgumentError, CaseClauseError, FunctionClauseError] ->
      _ = error

      if n == 1 do
        [{:undefined, nil}]
      else
        half = div(n, 2)

        halve(Enum.map(tensors, & &1[0..(half - 1)]), fun) ++
          halve(Enum.map(tensors, & &1[half..-1//1]), fun)
      end
  end

  @inverse [:asin, :acos, :atan, :asinh, :acosh, :atanh]
  @complex_functions Nx.Vulkan.Catalogue.names(error: :complex) ++
                       (Nx.Vulkan.Catalogue.names(error: :function) -- [:phase, :atan2])

  @doc """
  Whether BinaryBackend's element of an operation of these numbers, some of them complex, is the right one.

  Of numbers that are not finite it computes with rules of its own, and of zeros it loses the sign, which
  decides on branch cuts. Of numbers that are large, small or next to 1 its formulas cancel or overflow. There
  native_tests/complex compares the functions with exact arithmetic and with the C standard's annex G.
  """
  def right?(op, numbers) do
    cond do
      not Enum.any?(numbers, &is_struct(&1, Complex)) -> true
      op in [:abs, :multiply] -> Enum.all?(numbers, &finite?/1)
      op == :divide -> Enum.all?(numbers, &finite?/1) and size(List.last(numbers)) > 0
      op == :pow -> Enum.all?(numbers, &(finite?(&1) and size(&1) < 256))
      op not in @complex_functions -> true
      not Enum.all?(numbers, &moderate?/1) -> false
      op in [:log, :log1p, :sqrt, :rsqrt, :cbrt | @inverse] -> Enum.all?(numbers, &off_axes?/1)
      true -> true
    end
  end

  defp finite?(%Complex{re: re, im: im}), do: is_number(re) and is_number(im)
  defp finite?(number), do: is_number(number)

  defp moderate?(%Complex{re: re, im: im} = z) do
    finite?(z) and size(z) < 16 and (re - 1) * (re - 1) + im * im > 0.001 and
      re * re + im * im > 0.001
  end

  defp off_axes?(%Complex{re: re, im: im}), do: min(abs(re), abs(im)) > 0.001

  defp size(%Complex{re: re, im: im}), do: max(abs(re), abs(im))
  defp size(number), do: abs(number)

  @doc """
  The function of one operand, of complex numbers. BinaryBackend's acos and acosh are either one of the two
  numbers that differ by their sign; C's have no negative real part.
  """
  def complex(op) when op in [:acos, :acosh] do
    fn [z] ->
      result = apply(Nx, op, [z])
      zero = Nx.tensor(0, backend: Nx.BinaryBackend)
      Nx.select(Nx.less(Nx.real(result), zero), Nx.negate(result), result)
    end
  end

  def complex(op), do: &apply(Nx, op, &1)

  # Where BinaryBackend's own formula cancels, the reference is computed here in f64. The others are
  # BinaryBackend's.
  def unary(op) when op in [:expm1, :log1p, :cbrt], do: fn [x] -> accurate(op, x) end

  # It converts integers to floats and does no more: see `as_type/2`.
  def unary(:real), do: fn [x] -> Nx.real(rounded_to_odd(x)) end

  def unary(op), do: &apply(Nx, op, &1)

  defp accurate(op, %T{} = tensor) do
    type = Nx.Type.to_floating(tensor.type)

    tensor
    |> Nx.to_flat_list()
    |> Enum.map(&element(op, &1))
    |> Nx.tensor(type: if(Rounding.rounded?(type), do: {:f, 64}, else: type))
    |> Nx.as_type(type)
  end

  # Kahan: u = exp(x) carries an error that ln(u) repeats, so (u - 1)·x / ln(u) has none.
  defp element(:expm1, x) when is_number(x) do
    u = :math.exp(x)

    cond do
      u == 1.0 -> x
      u - 1.0 == -1.0 -> -1.0
      abs(x) > 1 -> u - 1.0
      true -> (u - 1.0) * x / :math.log(u)
    end
  end

  # The same for log1p (HP-15C Advanced Functions Handbook).
  defp element(:log1p, x) when is_number(x) do
    u = 1.0 + x

    cond do
      u == 1.0 -> x
      u == 0.0 -> :neg_infinity
      u < 0.0 -> :nan
      abs(x) > 1 -> :math.log(u)
      true -> :math.log(u) * x / (u - 1.0)
    end
  end

  # One step of Newton after pow, whose exponent is not 1/3.
  defp element(:cbrt, x) when is_number(x) and x != 0 do
    y = :math.pow(abs(x), 1 / 3)
    y = y - (y - abs(x) / (y * y)) / 3
    if x < 0, do: -y, else: y
  end

  defp element(op, x), do: apply(Complex, op_or_log(op), [x]) |> no_sign(op)

  defp op_or_log(:expm1), do: :exp
  defp op_or_log(:log1p), do: :log
  defp op_or_log(op), do: op

  # exp(±Inf) - 1, and BinaryBackend's log(-Inf) is a complex number.
  defp no_sign(result, :expm1), do: Complex.subtract(result, 1)
  defp no_sign(%Complex{}, :log1p), do: :nan
  defp no_sign(result, _op), do: result
end
