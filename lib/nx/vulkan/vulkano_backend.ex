defmodule Nx.Vulkan.VulkanoBackend do
  @moduledoc """
  An `Nx` backend that keeps tensors in the memory of a Vulkan device and computes there.

      Nx.default_backend(Nx.Vulkan.VulkanoBackend)

  It takes no options. Operations only record work; the device runs it while Elixir goes on, and
  reading a tensor (`Nx.to_binary/2`, `inspect/2`, `Nx.to_number/1`, …) waits for it. Tensors of
  `Nx.BinaryBackend` are accepted as operands everywhere and copied to the device.

  All of `Nx.Backend` runs on the device, for every type; `Nx.Vulkan.support/0` is the table. `reshape`,
  `squeeze`, `bitcast` and the axes' names change without a copy: the results share the tensor's memory,
  and deallocating one of them deallocates all.

  Sums, products, comparisons and conversions of single integers that the host holds, such as the counters of
  loops, are computed there: asking for them waits for nothing.

  A device without integers of 8, 16 or 64 bits computes with them all the same, but for 64-bit ones in
  kernels that are no element-wise operation, reduction, product or movement. What else a device lacks
  (64-bit floats, say) and functions given to `reduce` that cannot be traced run on
  the CPU through `Nx.Vulkan.Fallback`, which counts it and can forbid it.

  ## Tensors of other nodes

  A tensor may be sent to another BEAM node, alone or in a container. Its memory stays where it is: what
  reads it there asks the node that holds it, operations copy it to their own device first, and
  `Nx.backend_transfer/2` and `Nx.backend_deallocate/1` free it where it is. Sending keeps nothing alive:
  once the node that holds a tensor has collected it, or is gone, using it elsewhere raises
  `Nx.Vulkan.Error` (`:deallocated`, `:noconnection`) with the node's name. So a result of a process that
  ends is sent as `Nx.backend_transfer(result)`, which is what the `:distributed_postprocessing` of an
  `Nx.Serving` is for. Scalars that came from the host bring their number along.

  ## Where results differ from Nx.BinaryBackend

    * Where BinaryBackend raises because Erlang's floats have no NaN and no infinity (division by
      zero, overflow in f64, `sqrt(-1)`, `ceil` of an infinity, …) the result is the one of IEEE 754.
    * `quotient` and `remainder` of integers by zero raise in BinaryBackend; here `x / 0` is the
      integer with all bits set and the remainder is `x`, as in XLA. Negative exponents and negative
      shifts of integers do raise; a signed tensor of them is read for it, so prefer unsigned types
      or numbers.
    * Operands are converted to the type of the result (for comparisons: to the merged type) before
      the operation, as in XLA, where that has 32 bits or more; with narrower results they keep 32.
      BinaryBackend computes with the exact numbers and rounds once.
    * 8-bit floats are read, written and rounded as BinaryBackend does, which reads the subnormal
      numbers of f8 as larger ones and rounds none of f8_e4m3fn up to a power of two. A function
      whose f32 is such a power gives it, so that those of f8_e4m3fn are within 1 ulp.
    * An index that is out of bounds raises. To know that of indices on the device, these are checked
      there and the answer is waited for; those of the host, and types that can hold no index out of
      bounds, are not waited for.
    * The function given to `reduce` gets the element and an accumulator of the result's type, as in
      XLA. One that reads values, or makes tensors of several elements, runs on the CPU.
    * The zeros between the elements of a dilated input of `conv` are not multiplied by the kernel, as in
      XLA: where BinaryBackend gets NaN from an infinite or NaN element of the kernel there, it is left out.
    * `fft` and `ifft` along an axis before the last two of three or more: BinaryBackend puts the
      results in other places.
    * `all` and `any` take a complex number for false where both its parts are zero, as `logical_not`
      does; BinaryBackend takes every complex number for true.
    * `Nx.LinAlg.cholesky` adds nothing to small pivots: a matrix that is not positive definite gives NaN
      from the column on where that shows, where BinaryBackend raises.
    * The maths functions are accurate where BinaryBackend cancels: `expm1` and `log1p` near zero.
    * A GPU may lose subnormal numbers where it does not promise to keep them: NVIDIA's give -0.0 for
      negative subnormal results of some f32 functions. Mesa's CPU device keeps them all.
    * `qr`, `eigh` and `svd` go on to the precision of the type, whatever `:eps` and `:max_iter` say,
      and make zeros only of what is at most `:eps` and rounding besides; BinaryBackend's `eigh` ends
      at about 1.0e-4, and its `svd` builds on that. A reduced `svd` has orthonormal vectors, and zeros
      for singular values that are rounding. Integer matrices of at most 4 × 4 take Nx's own path.

  `erf_inv` follows BinaryBackend's formula, so that random numbers agree; its relative error to the
  true function is 1.25e-7 (more next to ±1), in f64 too. `erfc` in f64 rounds as glibc does, within
  4 ulp. All other functions are within 1 ulp in f32 and 2 ulp in f64.
  """

  @behaviour Nx.Backend
  @enforce_keys [:ref]
  defstruct [:ref]

  @typedoc "The tensor's memory. What `:ref` is, is private."
  @type t :: %__MODULE__{ref: term()}

  alias Nx.Vulkan.Backend

  # The callbacks that compute, in groups: what they are, the types that Nx takes for them, whether they
  # are programs (else kernels of their own, which need what GLSL's operators take), and where they are:
  # the family's function of the callback's name, or one that gets the name as first argument.
  @any ~w(u s f bf c)a
  @real ~w(u s f bf)a
  @integer ~w(u s)a

  @operations [
    {"functions", @any, :program, {Backend.Elementwise, :unary},
     [exp: 2, expm1: 2, log: 2, log1p: 2, sigmoid: 2, sqrt: 2, rsqrt: 2, cbrt: 2] ++
       [sin: 2, cos: 2, tan: 2, asin: 2, acos: 2, atan: 2] ++
       [sinh: 2, cosh: 2, tanh: 2, asinh: 2, acosh: 2, atanh: 2]},
    {"error functions", @real, :program, {Backend.Elementwise, :unary},
     [erf: 2, erfc: 2, erf_inv: 2]},
    {"arithmetic", @any, :program, {Backend.Elementwise, :binary},
     [add: 3, subtract: 3, multiply: 3, divide: 3]},
    {"arithmetic", @any, :program, Backend.Elementwise, [pow: 3, atan2: 3]},
    {"arithmetic", @any, :program, {Backend.Elementwise, :unary},
     [abs: 2, negate: 2, sign: 2, real: 2, imag: 2, conjugate: 2]},
    {"order and rounding", @real, :program, {Backend.Elementwise, :binary},
     [remainder: 3, max: 3, min: 3, greater: 3, less: 3, greater_equal: 3, less_equal: 3]},
    {"order and rounding", @real, :program, {Backend.Elementwise, :unary},
     [ceil: 2, floor: 2, round: 2]},
    {"order and rounding", @real, :program, Backend.Elementwise, [clip: 4]},
    {"equality and logic", @any, :program, {Backend.Elementwise, :binary},
     [equal: 3, not_equal: 3, logical_and: 3, logical_or: 3, logical_xor: 3]},
    {"equality and logic", @any, :program, {Backend.Elementwise, :unary},
     [is_nan: 2, is_infinity: 2]},
    {"equality and logic", @any, :program, Backend.Elementwise, [select: 4]},
    {"bits", @integer, :program, {Backend.Elementwise, :binary},
     [quotient: 3, bitwise_and: 3, bitwise_or: 3, bitwise_xor: 3]},
    {"bits", @integer, :program, {Backend.Elementwise, :shift}, [left_shift: 3, right_shift: 3]},
    {"bits", @integer, :program, {Backend.Elementwise, :unary},
     [bitwise_not: 2, count_leading_zeros: 2, population_count: 2]},
    {"creation and conversion", @any, :program, Backend.Elementwise, [iota: 3, eye: 2]},
    {"creation and conversion", @any, :program, Backend.Movement, [constant: 3]},
    {"creation and conversion", @any, :program, {Backend.Elementwise, :unary}, [as_type: 2]},
    {"movement", @any, :program, Backend.Movement,
     [reshape: 2, squeeze: 3, broadcast: 4, transpose: 3, reverse: 3, slice: 5]},
    {"reinterpretation", @real, :program, Backend.Movement, [bitcast: 2]},
    {"movement", @any, :program, Backend.Assembly,
     [pad: 4, concatenate: 3, stack: 3, put_slice: 4]},
    {"access by index", @any, :program, Backend.Indexed,
     [gather: 4, indexed_add: 5, indexed_put: 5]},
    {"sums and logic over axes", @any, :program, {Backend.Reduction, :reduce},
     [sum: 3, product: 3, all: 3, any: 3]},
    {"extrema over axes", @real, :program, {Backend.Reduction, :reduce},
     [reduce_max: 3, reduce_min: 3]},
    {"extrema over axes", @real, :program, {Backend.Reduction, :reduce}, [argmax: 3, argmin: 3]},
    {"reductions by a function", @any, :program, Backend.Fold, [reduce: 5, window_reduce: 6]},
    {"sums of windows", @any, :program, {Backend.Window, :reduce},
     [window_sum: 4, window_product: 4]},
    {"extrema of windows", @real, :program, {Backend.Window, :reduce},
     [window_max: 4, window_min: 4]},
    {"scatter to windows", @real, :kernel, {Backend.Window, :scatter},
     [window_scatter_max: 6, window_scatter_min: 6]},
    {"products", @any, :program, Backend.Reduction, [dot: 7]},
    {"products", @any, :program, Backend.Convolution, [conv: 4]},
    {"sorting", @real, :kernel, Backend.Sort, [sort: 3, argsort: 3]},
    {"Fourier transforms", @any, :kernel, Backend.Fourier, [fft: 3, ifft: 3]},
    {"linear algebra", @any, :kernel, Backend.LinearAlgebra, [triangular_solve: 4]}
  ]

  @doc false
  # `{group, kinds of type, :program or :kernel, names}`, for `Nx.Vulkan.support/0`.
  def operations do
    callbacks =
      for {group, kinds, made_of, _family, callbacks} <- @operations,
          do: {group, kinds, made_of, Keyword.keys(callbacks)}

    callbacks ++ Backend.Blocks.operations()
  end

  of = fn module ->
    for {_group, _kinds, _made_of, family, callbacks} <- @operations,
        family == module or (is_tuple(family) and elem(family, 0) == module),
        {name, _arity} <- callbacks,
        do: name
  end

  @doc false
  # The callbacks whose results' elements come each from those at its place in the operands.
  def elementwise, do: unquote(of.(Backend.Elementwise))

  @doc false
  # Those that reduce a tensor over axes.
  def reductions, do: unquote(of.(Backend.Reduction) -- [:dot])

  for {_group, _kinds, _made_of, family, callbacks} <- @operations, {name, arity} <- callbacks do
    args = Macro.generate_arguments(arity, __MODULE__)

    {module, function, first} =
      case family do
        {module, function} -> {module, function, [name]}
        module -> {module, name, []}
      end

    @impl true
    def unquote(name)(unquote_splicing(args)),
      do: unquote(module).unquote(function)(unquote_splicing(first ++ args))
  end

  for {name, arity} <- [from_binary: 3, to_binary: 2, inspect: 2, to_batched: 3] do
    args = Macro.generate_arguments(arity, __MODULE__)

    @impl true
    defdelegate unquote(name)(unquote_splicing(args)), to: Backend.Storage
  end

  @impl true
  defdelegate backend_copy(tensor, backend, opts), to: Backend.Storage, as: :copy

  @impl true
  defdelegate backend_transfer(tensor, backend, opts), to: Backend.Storage, as: :transfer

  @impl true
  defdelegate backend_deallocate(tensor), to: Backend.Storage, as: :deallocate

  @impl true
  def init([]), do: []

  def init(opts) do
    raise ArgumentError, "#{inspect(__MODULE__)} takes no options, got: #{inspect(opts)}"
  end

  @impl true
  defdelegate block(struct, output, args, fun), to: Backend.Blocks

  for {name, arity} <- [from_pointer: 5, to_pointer: 2] do
    args = Macro.generate_arguments(arity, __MODULE__)

    @impl true
    def unquote(name)(unquote_splicing(args)) do
      _ = unquote(args)
      raise ArgumentError, "#{inspect(__MODULE__)} has no pointers to its device memory"
    end
  end
end
