defmodule Nx.Vulkan.Fallback do
  @moduledoc """
  The one way from the device to the CPU, for operations without a kernel and for types that the device lacks.

  The operands are copied to `Nx.BinaryBackend`, which does the operation, and the result is copied
  back. That is slow, so it is counted, announced and can be forbidden:

      config :nx_vulkan, fallback: :warn

  The modes are

    * `:allow` (the default): do it
    * `:warn`: do it and log a warning
    * `:raise`: raise `Nx.Vulkan.Fallback.Error` instead

  The setting is read at each fallback. `put_mode/1` overrides it for the calling process.

      iex> Nx.Vulkan.Fallback.put_mode(:raise)
      iex> pair = Nx.tensor([1, 2], backend: Nx.Vulkan.VulkanoBackend)
      iex> Nx.reduce(pair, 0, fn x, y -> Nx.tensor(Nx.to_number(x) + Nx.to_number(y)) end)
      ** (Nx.Vulkan.Fallback.Error) reduce(s32[2], s32[]) cannot run on the device: the function reads values (fallback: :raise)

  Each fallback that was done emits the telemetry event `[:nx_vulkan, :fallback]` with the measurement
  `:duration` (native time units) and the metadata `:op`, `:shapes` and `:types` of the tensors that
  were copied, and `:reason`.
  """

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.Storage

  require Logger

  defmodule Error do
    @moduledoc """
    Raised in mode `:raise` for what cannot run on the device.

        iex> Nx.Vulkan.Fallback.put_mode(:raise)
        iex> numbers = Nx.tensor([1, 2], backend: Nx.Vulkan.VulkanoBackend)
        iex> read = fn a, b -> Nx.tensor(Nx.to_number(a) + Nx.to_number(b)) end
        iex> error = catch_error(Nx.reduce(numbers, 0, read))
        iex> {error.__struct__, error.op}
        {Nx.Vulkan.Fallback.Error, :reduce}
    """
    defexception [:op, :message]
  end

  @modes [:allow, :warn, :raise]

  # A counter for each operation, so that counting does not make processes wait for each other.
  @ops Enum.sort(Keyword.keys(Nx.Backend.behaviour_info(:callbacks)))
  @indices Map.new(Enum.with_index(@ops, 1))
  @on_load :make_counters

  @doc false
  def make_counters do
    :persistent_term.put(__MODULE__, :counters.new(length(@ops), [:write_concurrency]))
  end

  @doc "How many operations have fallen back since the start or the last `reset/0`."
  @spec count() :: non_neg_integer()
  def count, do: Enum.sum(Enum.map(@ops, &count/1))

  @doc "How often the operation with this `Nx.Backend` callback has fallen back."
  @spec count(atom()) :: non_neg_integer()
  def count(op), do: :counters.get(:persistent_term.get(__MODULE__), Map.fetch!(@indices, op))

  @doc "The operations that have fallen back, with how often."
  @spec counts() :: %{atom() => pos_integer()}
  def counts, do: for(op <- @ops, n = count(op), n > 0, into: %{}, do: {op, n})

  @doc "Sets all counts to zero."
  @spec reset() :: :ok
  def reset do
    counters = :persistent_term.get(__MODULE__)
    Enum.each(1..length(@ops), &:counters.put(counters, &1, 0))
  end

  @doc """
  Sets the mode of the calling process and returns the one it had, `nil` for the configured one.
  """
  @spec put_mode(:allow | :warn | :raise | nil) :: :allow | :warn | :raise | nil
  def put_mode(nil), do: Process.delete({__MODULE__, :mode})
  def put_mode(mode) when mode in @modes, do: Process.put({__MODULE__, :mode}, mode)

  @doc "The mode that the calling process has now."
  @spec mode() :: :allow | :warn | :raise
  def mode do
    case Process.get({__MODULE__, :mode}) || Application.get_env(:nx_vulkan, :fallback, :allow) do
      mode when mode in @modes ->
        mode

      other ->
        raise ArgumentError,
              "config :nx_vulkan, :fallback must be one of #{inspect(@modes)}, got: #{inspect(other)}"
    end
  end

  @doc false
  # `args` are the callback's arguments after the output: tensors, lists of tensors, functions of
  # tensors and options.
  @spec call(atom(), T.t(), [term()], String.t()) :: T.t()
  def call(op, out, args, reason) do
    tensors = tensors(args)
    permit!(mode(), op, tensors, reason)
    start = System.monotonic_time()

    host_args = to_host(args)

    # BinaryBackend calls Nx on numbers at times, and so may a function given to reduce: both make
    # tensors of the default backend, which must then be BinaryBackend too.
    result =
      Nx.with_default_backend(Nx.BinaryBackend, fn ->
        on_host(op, out, host_args)
      end)

    result = Storage.from_host(result)
    :counters.add(:persistent_term.get(__MODULE__), Map.fetch!(@indices, op), 1)

    :telemetry.execute(
      [:nx_vulkan, :fallback],
      %{duration: System.monotonic_time() - start},
      %{
        op: op,
        shapes: Enum.map(tensors, & &1.shape),
        types: Enum.map(tensors, & &1.type),
        reason: reason
      }
    )

    result
  end

  # Significant bits of the types that BinaryBackend truncates to, the exponent of their least positive value, and the
  # bits of what lies beyond their greatest one: infinity, or NaN where the type has none.
  @truncated %{
    {:bf, 16} => {8, -133, 0x7F80},
    {:f, 8} => {3, -16, 0x7C},
    {:f8_e4m3fn, 8} => {4, -9, 0x7F}
  }

  # These give elements of operands or results of the caller's function as they are.
  @unrounded ~w(bitcast reduce window_reduce)a

  # As on the device, results are rounded to nearest even: BinaryBackend computes them as doubles here.
  defp on_host(op, %T{type: type} = out, args)
       when is_map_key(@truncated, type) and op not in @unrounded do
    wide = %{out | type: {:f, 64}}
    %T{} = result = apply(Nx.BinaryBackend, op, [wide | converted(op, wide, widened(args))])
    format = Map.fetch!(@truncated, type)

    elements =
      for <<element::64-native <- Nx.to_binary(result)>>,
        into: <<>>,
        do: nearest(<<element::64>>, type, format)

    Nx.BinaryBackend.from_binary(out, elements, [])
  end

  # BinaryBackend loses real numbers of transforms of one point, and puts the results of a transform along an axis before the
  # last two elsewhere.
  defp on_host(op, %T{shape: shape} = out, [tensor, options]) when op in [:fft, :ifft] do
    %{axis: axis, length: length} = Map.new(options)
    axes = Enum.to_list(0..(tuple_size(shape) - 1))
    last = List.delete(axes, axis) ++ [axis]
    shape = shape |> Tuple.delete_at(axis) |> Tuple.insert_at(length(axes) - 1, length)
    operand = tensor |> Nx.as_type({:c, 128}) |> Nx.transpose(axes: last)
    options = Keyword.put(options, :axis, length(axes) - 1)
    transformed = apply(Nx.BinaryBackend, op, [%{out | shape: shape}, operand, options])
    back = Enum.map(axes, fn axis -> Enum.find_index(last, &(&1 == axis)) end)
    Nx.BinaryBackend.transpose(out, transformed, back)
  end

  defp on_host(op, out, args),
    do: apply(Nx.BinaryBackend, op, [out | converted(op, out, args)])

  defp widened(%T{type: type} = tensor) when is_map_key(@truncated, type),
    do: Nx.as_type(tensor, {:f, 64})

  defp widened(list) when is_list(list), do: Enum.map(list, &widened/1)
  defp widened(other), do: other

  defp nearest(<<_sign::1, 2047::11, fraction::52>>, type, _format) when fraction != 0,
    do: Nx.Type.nan_binary(type)

  # Above zero the bits of a float grow with its value by one at each step, through all exponents: a significand that is
  # rounded up to the next power of two needs no care.
  defp nearest(<<sign::1, exponent::11, fraction::52>>, {_, size}, {digits, least, beyond}) do
    significand = if exponent == 0, do: fraction, else: fraction + 2 ** 52
    unit = max(exponent, 1) - 1075
    step = max(unit + 53 - digits, least)
    bits = (step - least) * 2 ** (digits - 1) + rounded_quotient(significand, step - unit)
    <<sign * 2 ** (size - 1) + min(bits, beyond)::size(size)-native>>
  end

  # A significand divided by 2 ** shift, to nearest even.
  defp rounded_quotient(significand, shift) do
    quotient = Bitwise.bsr(significand, shift)
    rest = significand - Bitwise.bsl(quotient, shift)
    half = Bitwise.bsl(1, shift - 1)

    if rest > half or (rest == half and rem(quotient, 2) == 1),
      do: quotient + 1,
      else: quotient
  end

  # BinaryBackend's pad takes the value's bytes for those of an element of the tensor.
  defp converted(:pad, %T{type: type}, [tensor, value, config]),
    do: [Nx.as_type(tensor, type), Nx.as_type(value, type), config]

  defp converted(_op, _out, args), do: args

  defp permit!(:allow, _op, _tensors, _reason), do: :ok

  defp permit!(:warn, op, tensors, reason),
    do: Logger.warning("nx_vulkan: #{describe(op, tensors)} runs on the CPU: #{reason}")

  defp permit!(:raise, op, tensors, reason) do
    raise Error,
      op: op,
      message: "#{describe(op, tensors)} cannot run on the device: #{reason} (fallback: :raise)"
  end

  defp describe(op, tensors) do
    operands =
      Enum.map_join(
        tensors,
        ", ",
        &"#{Nx.Type.to_string(&1.type)}#{inspect(Tuple.to_list(&1.shape))}"
      )

    "#{op}(#{operands})"
  end

  defp tensors(args) when is_list(args), do: Enum.flat_map(args, &tensors/1)
  defp tensors(%T{} = tensor), do: [tensor]
  defp tensors(_other), do: []

  defp to_host(%T{} = tensor), do: Storage.to_host(tensor)
  defp to_host(list) when is_list(list), do: Enum.map(list, &to_host/1)

  # The function may close over tensors of any backend, and BinaryBackend takes only its own back.
  defp to_host(fun) when is_function(fun, 2), do: fn a, b -> to_host(fun.(a, b)) end
  defp to_host(other), do: other
end
