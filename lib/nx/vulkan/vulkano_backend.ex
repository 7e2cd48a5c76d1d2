defmodule Nx.Vulkan.VulkanoBackend do
  @moduledoc """
  An `Nx` backend that keeps tensors in the memory of a Vulkan device and computes there.

      iex> Nx.default_backend(Nx.Vulkan.VulkanoBackend)
      iex> Nx.dot(Nx.iota({2, 3}), Nx.iota({3})) |> Nx.to_list()
      [5, 14]

  Operations only record work; the device runs it while Elixir goes on, and
  reading a tensor (`Nx.to_binary/2`, `inspect/2`, `Nx.to_number/1`, …) waits for it. Tensors of
  `Nx.BinaryBackend` are accepted as operands everywhere and copied to the device.

  The option `:device` names one of `Nx.Vulkan.devices/0`, by its index, its UUID or part of its name; without it
  tensors are on the global device. An operation runs on the device of its operands, which must be one. A copy or transfer to the
  backend without the option goes to the global device.

      Nx.default_backend({Nx.Vulkan.VulkanoBackend, device: 1})

  All of `Nx.Backend` runs on the device, for every type; `Nx.Vulkan.support/0` is the table. `reshape`,
  `squeeze`, `bitcast` and the axes' names change without a copy: the results share the tensor's memory,
  and deallocating one of them deallocates all.

  Sums, products, comparisons and conversions of single integers that the host holds, such as the counters of
  loops, are computed there: reading them waits for nothing.

  A device without integers of 8, 16 or 64 bits computes with them all the same, but for 64-bit ones in
  built-in kernels (`Nx.Vulkan.support/0` names them). Other types that a device lacks
  (64-bit floats, say) and functions given to `reduce` that cannot be traced run on
  the CPU through `Nx.Vulkan.Fallback`, which counts it and can forbid it.

  ## Tensors of other nodes

  A tensor may be sent to another BEAM node, alone or in a container. Its memory stays where it is: reading it
  asks the node that holds it, operations copy it to their own device first, and
  `Nx.backend_transfer/2` and `Nx.backend_deallocate/1` free it where it is. Sending keeps nothing alive:
  once the node that holds a tensor has collected it, or is gone, using it elsewhere raises
  `Nx.Vulkan.Error` (`:deallocated`, `:noconnection`) with the node's name. The result of a process that
  ends is sent as `Nx.backend_transfer(result)`, for instance in the `:distributed_postprocessing` of an
  `Nx.Serving`. Scalars that came from the host bring their number along.

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
    * Results in bf16, f8 and f8_e4m3fn are rounded to nearest, ties to even, as those in other types and
      as in XLA. BinaryBackend truncates bf16 and f8; in f8_e4m3fn it rounds ties away from zero and
      nothing up to a power of two. Nx itself truncates the numbers of a list (`Nx.tensor([0.2], type: :bf16)`),
      and so does what runs on the CPU.
    * 8-bit floats are read as BinaryBackend does, which takes the subnormal numbers of f8 for larger
      ones. Numbers beyond 448 become 448 in f8_e4m3fn.
    * An index that is out of bounds raises: one that the host holds in the call, one on the device when the result,
      or what was computed from it, is read. The error names the operation. Nothing waits for the check, and other
      tensors are not affected. XLA takes such an index as the nearest one silently.
    * The function given to `reduce` gets the element and an accumulator of the result's type, as in
      XLA. One that reads values, has a hook, or makes tensors of several elements, runs on the CPU.
    * The zeros between the elements of a dilated input of `conv` are not multiplied by the kernel, as in
      XLA: where BinaryBackend gets NaN from an infinite or NaN element of the kernel there, it is left out.
    * `window_scatter_max` and `window_scatter_min` compare the elements in their own type. BinaryBackend compares those
      of f64 in f32, and takes the last of two that are equal there.
    * `fft` and `ifft` along an axis before the last two of three or more: BinaryBackend puts the
      results at other indices.
    * `all` and `any` take a complex number for false where both its parts are zero, as `logical_not`
      does; BinaryBackend takes every complex number for true.
    * `Nx.LinAlg.cholesky` adds nothing to small pivots: a matrix that is not positive definite gives NaN
      from the column on where that shows, where BinaryBackend raises.
    * The maths functions are accurate where BinaryBackend cancels: `expm1` and `log1p` near zero.
    * Functions of complex numbers are accurate at every magnitude, where BinaryBackend's formulas overflow or cancel:
      the inverse ones of large and small numbers, `sinh`, `tanh`, `expm1` and `log1p` near zero, `log` near `|z| = 1`,
      `cbrt`, `pow` and `sigmoid`. Branch cuts, signed zeros, infinities and NaN are those of C (C17, annex G):
      `acosh` has no negative real part and `acos` none outside 0 to π, a zero's sign chooses the side of a cut, an
      infinite number has an `asin`, a `tanh` and an `atan`, and a quotient by zero is infinite.
    * A GPU may lose subnormal numbers where it does not promise to keep them: NVIDIA's give -0.0 for
      negative subnormal results of some f32 functions. Mesa's CPU device keeps them all. Comparisons, maxima,
      minima and sorts tell them from zeros on every device.
    * `qr`, `eigh` and `svd` iterate to the precision of the type, whatever `:eps` and `:max_iter` say,
      and set only those elements to zero that are at most `:eps` and rounding errors besides;
      BinaryBackend's `eigh` ends at about 1.0e-4, and its `svd` builds on that. A reduced `svd` has orthonormal vectors, and zeros
      for singular values that are rounding. Integer matrices of at most 4 × 4 take Nx's own path.

  `erf_inv` follows BinaryBackend's formula, so that random numbers agree; its relative error to the
  true function is 1.25e-7 (more next to ±1), in f64 too. `erfc` in f64 rounds as glibc does, within
  4 ulp. All other functions are within 1 ulp in f32 and 2 ulp in f64. Those of complex numbers are within 8 eps
  (2^-23 in c64, 2^-52 in c128) of the number, and so is each part that small changes of the operand do not change
  by more; of `pow(x, y)` that holds while `|y log x| < 1024`.
  """

  @behaviour Nx.Backend
  defstruct [:ref, :scalar, :traced]

  @typedoc """
  Where the tensor's elements are: one of the fields, while the others are `nil`.

    * `:ref` - in a buffer of the device, as `Nx.Vulkan.NativeV` takes them
    * `:scalar` - on the host, a single one that came from there; private
    * `:traced` - nowhere yet: a value of a function that is being traced for `Nx.reduce/4`; private
  """
  @type t :: %__MODULE__{ref: reference() | nil, scalar: term(), traced: term()}

  alias Nx.Vulkan.{Backend, Catalogue}

  # The module of each family of `Nx.Vulkan.Catalogue`: its function of the callback's name, or the function
  # named here, which gets the callback's name as first argument.
  @families %{
    creation: Backend.Elementwise,
    constant: Backend.Movement,
    reshape: Backend.Movement,
    view: Backend.Movement,
    bitcast: Backend.Movement,
    strided_copy: Backend.StridedCopy,
    indexed: Backend.Indexed,
    reduction: {Backend.Reduction, :reduce},
    fold: Backend.Fold,
    window: {Backend.Window, :reduce},
    window_scatter: {Backend.Window, :scatter},
    dot: Backend.Dot,
    convolution: Backend.Convolution,
    sort: Backend.Sort,
    fourier: Backend.Fourier,
    linear_algebra: Backend.LinearAlgebra
  }

  implementation = fn
    %{family: :elementwise, checks: nil, arity: arity} ->
      {Backend.Elementwise, elem({:unary, :binary, :ternary}, arity - 1)}

    %{family: :elementwise, checks: checks} ->
      {Backend.Elementwise, checks}

    %{family: family} ->
      Map.fetch!(@families, family)
  end

  arities = Map.new(Nx.Backend.behaviour_info(:callbacks))

  for %{entry: :callback, name: name} = operation <- Catalogue.operations() do
    args = Macro.generate_arguments(Map.fetch!(arities, name), __MODULE__)

    {module, function, first} =
      case implementation.(operation) do
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
  def init(opts), do: Backend.Storage.options(opts)

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
