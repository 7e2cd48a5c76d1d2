defmodule Nx.Vulkan.VulkanoBackend do
  @moduledoc """
  An `Nx` backend that keeps tensors in the memory of a Vulkan device and computes there.

      Nx.default_backend(Nx.Vulkan.VulkanoBackend)

  It takes no options. Operations only record work; the device runs it while Elixir goes on, and
  reading a tensor (`Nx.to_binary/2`, `inspect/2`, `Nx.to_number/1`, …) waits for it. Tensors of
  `Nx.BinaryBackend` are accepted as operands everywhere and copied to the device.

  ## On the device

    * all types are stored; u8 to u64, s8 to s64, f16, bf16, f32 and f64 are computed with, as far as
      the device has them
    * element-wise operations, comparisons, logic, `select`, `clip`, `as_type`, `bitcast`
    * `iota`, `eye`, constants
    * `sum`, `product`, `reduce_max`, `reduce_min`, `all`, `any`, `argmax`, `argmin` over any axes
    * `dot` in every contraction and batching
    * `broadcast`, `transpose`, `reverse`, `slice`; `reshape`, `squeeze`, `bitcast` and the axes'
      names change without a copy: the results share the tensor's memory, and deallocating one of
      them deallocates all

  Everything else runs on the CPU through `Nx.Vulkan.Fallback`, which counts it and can forbid it.

  ## Where results differ from Nx.BinaryBackend

    * Where BinaryBackend raises because Erlang's floats have no NaN and no infinity (division by
      zero, overflow in f64, `sqrt(-1)`, `ceil` of an infinity, …) the result is the one of IEEE 754.
    * `quotient` and `remainder` of integers by zero raise in BinaryBackend; here `x / 0` is the
      integer with all bits set and the remainder is `x`, as in XLA. Negative exponents and negative
      shifts of integers do raise; a signed tensor of them is read for it, so prefer unsigned types
      or numbers.
    * Operands are converted to the type of the result (for comparisons: to the merged type) before
      the operation, as in XLA. BinaryBackend computes with the exact numbers and rounds once.
    * The maths functions are accurate where BinaryBackend cancels: `expm1` and `log1p` near zero.
    * A GPU may lose subnormal numbers where it does not promise to keep them: NVIDIA's give -0.0 for
      negative subnormal results of some f32 functions. Mesa's CPU device keeps them all.
    * `slice` with starts that are tensors reads them first.

  `erf_inv` follows BinaryBackend's formula, so that random numbers agree; its relative error to the
  true function is 1.25e-7 (more next to ±1), in f64 too. `erfc` in f64 rounds as glibc does, within
  4 ulp. All other functions are within 1 ulp in f32 and 2 ulp in f64.
  """

  @behaviour Nx.Backend
  @enforce_keys [:ref]
  defstruct [:ref]

  @typedoc "The tensor's memory. What `:ref` is, is private."
  @type t :: %__MODULE__{ref: term()}

  alias Nx.Vulkan.Backend.{Elementwise, Movement, Reduction, Storage}
  alias Nx.Vulkan.Fallback

  @unary [:exp, :expm1, :log, :log1p, :sigmoid, :cos, :sin, :tan, :cosh, :sinh, :tanh] ++
           [:acos, :asin, :atan, :acosh, :asinh, :atanh, :sqrt, :rsqrt, :cbrt] ++
           [:erf, :erfc, :erf_inv, :is_nan, :is_infinity, :abs, :negate, :sign] ++
           [:ceil, :floor, :round, :real, :imag] ++
           [:bitwise_not, :count_leading_zeros, :population_count, :as_type]

  @binary [:add, :subtract, :multiply, :divide, :remainder, :quotient, :atan2, :max, :min] ++
            [:bitwise_and, :bitwise_or, :bitwise_xor] ++
            [:equal, :not_equal, :greater, :less, :greater_equal, :less_equal] ++
            [:logical_and, :logical_or, :logical_xor]

  @reductions [:sum, :product, :reduce_max, :reduce_min, :all, :any]

  # Without a kernel: the arity is the callback's.
  @on_the_cpu [pad: 4, put_slice: 4, gather: 4, concatenate: 3, stack: 3, conv: 4] ++
                [reduce: 5, window_reduce: 6, window_sum: 4, window_product: 4] ++
                [window_max: 4, window_min: 4, window_scatter_max: 6, window_scatter_min: 6] ++
                [sort: 3, argsort: 3, indexed_add: 5, indexed_put: 5] ++
                [triangular_solve: 4, fft: 3, ifft: 3, conjugate: 2]

  for op <- @unary do
    @impl true
    def unquote(op)(out, tensor), do: Elementwise.unary(unquote(op), out, tensor)
  end

  for op <- @binary do
    @impl true
    def unquote(op)(out, left, right), do: Elementwise.binary(unquote(op), out, left, right)
  end

  for op <- [:left_shift, :right_shift] do
    @impl true
    def unquote(op)(out, left, right), do: Elementwise.shift(unquote(op), out, left, right)
  end

  for op <- @reductions do
    @impl true
    def unquote(op)(out, tensor, opts), do: Reduction.reduce(unquote(op), out, tensor, opts)
  end

  for op <- [:argmax, :argmin] do
    @impl true
    def unquote(op)(out, tensor, opts), do: Reduction.arg(unquote(op), out, tensor, opts)
  end

  for {op, arity} <- @on_the_cpu do
    [out | args] = Macro.generate_arguments(arity, __MODULE__)

    @impl true
    def unquote(op)(unquote(out), unquote_splicing(args)),
      do: Fallback.call(unquote(op), unquote(out), unquote(args), "there is no kernel for it yet")
  end

  families = [
    {Storage, [from_binary: 3, to_binary: 2, inspect: 2, to_batched: 3]},
    {Elementwise, [pow: 3, select: 4, clip: 4, iota: 3, eye: 2]},
    {Movement, [constant: 3, broadcast: 4, transpose: 3, reverse: 3, slice: 5]},
    {Reduction, [dot: 7]}
  ]

  for {family, callbacks} <- families, {name, arity} <- callbacks do
    args = Macro.generate_arguments(arity, __MODULE__)

    @impl true
    defdelegate unquote(name)(unquote_splicing(args)), to: family
  end

  @impl true
  defdelegate backend_copy(tensor, backend, opts), to: Storage, as: :copy

  @impl true
  defdelegate backend_transfer(tensor, backend, opts), to: Storage, as: :transfer

  @impl true
  defdelegate backend_deallocate(tensor), to: Storage, as: :deallocate

  @impl true
  defdelegate reshape(out, tensor), to: Movement, as: :share

  @impl true
  defdelegate bitcast(out, tensor), to: Movement, as: :share

  @impl true
  def squeeze(out, tensor, _axes), do: Movement.share(out, tensor)

  @impl true
  def init([]), do: []

  def init(opts) do
    raise ArgumentError, "#{inspect(__MODULE__)} takes no options, got: #{inspect(opts)}"
  end

  # The default body runs on the tensors' backend. What it creates must be there too, whatever the
  # caller's default backend is, or its result might not be.
  @impl true
  def block(struct, _output, args, fun),
    do: Nx.with_default_backend(__MODULE__, fn -> apply(fun, [struct | args]) end)

  for {name, arity} <- [from_pointer: 5, to_pointer: 2] do
    args = Macro.generate_arguments(arity, __MODULE__)

    @impl true
    def unquote(name)(unquote_splicing(args)) do
      _ = unquote(args)
      raise ArgumentError, "#{inspect(__MODULE__)} has no pointers to its device memory"
    end
  end
end
