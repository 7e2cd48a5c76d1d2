defmodule Nx.Vulkan.NativeV do
  @moduledoc """
  GPU buffers and kernels without tensors.

      iex> {:ok, buffer} = Nx.Vulkan.NativeV.buf_upload(<<1.5::float-32-native, 2.5::float-32-native>>)
      iex> {:ok, squares} = Nx.Vulkan.NativeV.buf_alloc(8)
      iex> file = Application.app_dir(:nx_vulkan, "priv/shaders/elementwise_binary.spv")
      iex> :ok = Nx.Vulkan.NativeV.apply_binary(squares, buffer, buffer, 2, 1, file)
      iex> Nx.Vulkan.NativeV.buf_download(squares)
      {:ok, <<2.25::float-32-native, 6.25::float-32-native>>}

  A *buffer* is a reference to device memory with a size in bytes and no type. Its memory goes back
  to the pool once the BEAM has collected the reference and the device has finished with it.

  The calls that take `spv_path` run the SPIR-V file found there: the project's own, in
  `priv/shaders`, or any other with the same layout. A buffer holds 32-bit floats, or 64-bit ones for
  the files whose name ends in `_f64`. In descriptor set 0 the inputs come first, then the outputs;
  spec constant 0 is the op code, and 1 how many invocations the workgroup of a chain should have (a
  power of two from 8 to 256, at least d, and below 32 only where that is a single subgroup), for
  modules that have one; the push constants are `u32`:

  | call | bindings | push constants | workgroups |
  | --- | --- | --- | --- |
  | `apply_binary/6` | 0 a, 1 b, 2 out | n | ⌈n / local x⌉ |
  | `apply_unary/5` | 0 a, 1 out | n | ⌈n / local x⌉ |
  | `reduce_axis/7` | 0 a, 1 out | outer, reduce, inner, op | ⌈outer·inner / local x⌉ |
  | `matmul/7` | 0 A, 1 B, 2 C | M, N, K | ⌈N / local x⌉, ⌈M / local y⌉ |
  | `transpose_2d/5` | 0 a, 1 out | M, N | ⌈N / local x⌉, ⌈M / local y⌉ |
  | `leapfrog_chain_synth/6` | 0 q, 1 p, 2 extras, 3 to 6 the chains | as given | 1 |
  | `leapfrog_chain_synth_batch/6` | the same | as given | the number of chains |

  A shader reads and writes inside the buffers it is given and nowhere else, even where its indices are
  out of bounds.

  Work is recorded and runs in the order of the calls; `buf_download/1` waits for what it reads.

  ## Errors

    * `{:error, :size_mismatch}`: a buffer is smaller than the sizes given, or data has another size
      than the buffer
    * `{:error, :bad_op}`: no such op code
    * `{:error, :dispatch_failed, message}`: the file is missing, is no SPIR-V, has no compute entry
      point or other bindings, or the driver refused it
    * `{:error, :deallocated, message}`: the buffer was freed by the tensor backend
    * `{:error, :out_of_memory, message}`: no memory left after garbage collection, see `Nx.Vulkan`
    * `{:error, :no_device, message}`: no Vulkan device can be used; the message says why

  An argument of the wrong kind (no binary, a negative size, a reference that is no buffer) raises
  `ArgumentError` with the argument's name.

      {:ok, a} = Nx.Vulkan.NativeV.buf_upload(<<1.0::float-32-native, 2.0::float-32-native>>)
      {:ok, out} = Nx.Vulkan.NativeV.buf_alloc(8)
      spv = Application.app_dir(:nx_vulkan, "priv/shaders/elementwise_binary.spv")
      :ok = Nx.Vulkan.NativeV.apply_binary(out, a, a, 2, 0, spv)
      {:ok, <<2.0::float-32-native, 4.0::float-32-native>>} = Nx.Vulkan.NativeV.buf_download(out)
  """

  require Nx.Vulkan.Native, as: Native

  @typedoc "A device buffer."
  @type buffer :: reference()

  @typedoc "Leapfrog chains: positions, momenta, gradients and log densities, as buffers or binaries."
  @type chain(term) :: {term, term, term, term}
  @type chain :: chain(buffer())

  @typedoc "Why a call did nothing."
  @type error :: {:error, atom()} | {:error, atom(), String.t()}

  @doc "Makes a buffer of `n_bytes` bytes, all zero. Zero bytes are allowed."
  @spec buf_alloc(non_neg_integer()) :: {:ok, buffer()} | error()
  def buf_alloc(n_bytes), do: Native.call(buf_alloc(n_bytes))

  @doc "Makes a buffer that holds a copy of `data`. An empty binary is allowed."
  @spec buf_upload(binary()) :: {:ok, buffer()} | error()
  def buf_upload(data), do: Native.call(buf_upload(data))

  @doc """
  Replaces the contents of the buffer.

  `{:error, :size_mismatch}` unless `data` has exactly the buffer's size.
  """
  @spec buf_upload_into(buffer(), binary()) :: :ok | error()
  def buf_upload_into(ref, data), do: Native.call(buf_upload_into(ref, data))

  @doc "Waits for the work that writes the buffer and returns all its bytes."
  @spec buf_download(buffer()) :: {:ok, binary()} | error()
  def buf_download(ref), do: Native.call(buf_download(ref))

  @doc "The buffer's size in bytes, also after it was freed."
  @spec buf_byte_size(buffer()) :: non_neg_integer()
  def buf_byte_size(ref), do: Native.buf_byte_size(ref)

  @doc """
  `out[i] = a[i] op b[i]` for `i < n`.

  `op_code`: 0 add, 1 multiply, 2 subtract, 3 divide, 4 pow, 5 max, 6 min. `out` may be `a` or `b`.
  """
  @spec apply_binary(buffer(), buffer(), buffer(), non_neg_integer(), integer(), Path.t()) ::
          :ok | error()
  def apply_binary(out, a, b, n, op_code, spv_path),
    do: Native.call(apply_binary(out, a, b, n, op_code, spv_path))

  @doc """
  `out[i] = op a[i]` for `i < n`.

  `op_code`: 0 exp, 1 log, 2 sqrt, 3 abs, 4 negate, 5 sigmoid, 6 tanh, 7 relu, 8 ceil, 9 floor,
  10 sign, 11 reciprocal, 12 square, 13 erf, 14 expm1. `out` may be `a`.
  """
  @spec apply_unary(buffer(), buffer(), non_neg_integer(), integer(), Path.t()) :: :ok | error()
  def apply_unary(out, a, n, op_code, spv_path),
    do: Native.call(apply_unary(out, a, n, op_code, spv_path))

  @doc """
  Reduces the middle axis of `a`, seen as `(outer, reduce_size, inner)` in row-major order, into
  `out` of `outer * inner` elements.

  `op_code`: 0 sum, 1 max, 2 min.
  """
  @spec reduce_axis(
          buffer(),
          buffer(),
          non_neg_integer(),
          non_neg_integer(),
          non_neg_integer(),
          integer(),
          Path.t()
        ) :: :ok | error()
  def reduce_axis(out, a, outer, reduce_size, inner, op_code, spv_path),
    do: Native.call(reduce_axis(out, a, outer, reduce_size, inner, op_code, spv_path))

  @doc "The matrix product: `A` is m×k, `B` is k×n, `out` is m×n, all row-major."
  @spec matmul(
          buffer(),
          buffer(),
          buffer(),
          non_neg_integer(),
          non_neg_integer(),
          non_neg_integer(),
          Path.t()
        ) :: :ok | error()
  def matmul(out, a, b, m, n, k, spv_path),
    do: Native.call(matmul(out, a, b, m, n, k, spv_path))

  @doc "Transposes `a`, m×n in row-major order, into `out`, n×m."
  @spec transpose_2d(buffer(), buffer(), non_neg_integer(), non_neg_integer(), Path.t()) ::
          :ok | error()
  def transpose_2d(out, a, m, n, spv_path),
    do: Native.call(transpose_2d(out, a, m, n, spv_path))

  @doc """
  Runs `k` leapfrog steps of Hamiltonian dynamics in one dispatch and waits for them.

  All arguments but `k` and `spv_path` are binaries, little-endian. Floats have 32 bits, or 64 for the
  files whose name says `_f64`:

    * `q_init`, `p_init`: `d` floats each, the position and the momentum to start from
    * `extras`: floats, the `n_obs` observations and then the `d` entries of the inverse mass
    * `push`: the push constants, 20 to 128 bytes: `u32` k, n_obs, d, padding, then the float eps (may
      be negative: backwards in time), then the model's parameters. Where there are none, eps may have
      32 bits for a 64-bit file too.

  A step with `g` the gradient of the log-density is
  `p½ = p + ½·eps·g(q)`, `q' = q + eps·inv_mass·p½`, `p' = p½ + ½·eps·g(q')`.

  Returns `{:ok, {q_chain, p_chain, grad_chain, logp_chain}}`: the state after each step, `k·d`
  floats each and `k` floats of log-density (without the kinetic part). `d` is 1 to 256.
  """
  @spec leapfrog_chain_synth(binary(), binary(), binary(), binary(), pos_integer(), Path.t()) ::
          {:ok, chain(binary())} | error()
  def leapfrog_chain_synth(q_init, p_init, extras, push, k, spv_path),
    do: synth(q_init, p_init, extras, push, k, spv_path, false, false)

  @doc "`leapfrog_chain_synth/6` with 64-bit floats, whatever the file is called."
  @spec leapfrog_chain_synth_f64(binary(), binary(), binary(), binary(), pos_integer(), Path.t()) ::
          {:ok, chain(binary())} | error()
  def leapfrog_chain_synth_f64(q_init, p_init, extras, push, k, spv_path),
    do: synth(q_init, p_init, extras, push, k, spv_path, true, false)

  @doc """
  Many chains of `leapfrog_chain_synth/6` in one dispatch, a workgroup each.

  The fourth word of `push` is the number of chains, at least 1. All binaries, the results too, hold
  what one chain has, chain after chain: `extras` the first one's observations and inverse mass, then
  the second one's, and so on. The shader tells chains apart by `gl_WorkGroupID.x`, as the project's do.
  """
  @spec leapfrog_chain_synth_batch(
          binary(),
          binary(),
          binary(),
          binary(),
          pos_integer(),
          Path.t()
        ) :: {:ok, chain(binary())} | error()
  def leapfrog_chain_synth_batch(q_init, p_init, extras, push, k, spv_path),
    do: synth(q_init, p_init, extras, push, k, spv_path, false, true)

  @doc "`leapfrog_chain_synth_batch/6` with 64-bit floats, whatever the file is called."
  @spec leapfrog_chain_synth_batch_f64(
          binary(),
          binary(),
          binary(),
          binary(),
          pos_integer(),
          Path.t()
        ) :: {:ok, chain(binary())} | error()
  def leapfrog_chain_synth_batch_f64(q_init, p_init, extras, push, k, spv_path),
    do: synth(q_init, p_init, extras, push, k, spv_path, true, true)

  defp synth(q_init, p_init, extras, push, k, spv_path, doubles, batch) do
    Native.call(leapfrog_chain_synth(q_init, p_init, extras, push, k, spv_path, doubles, batch))
  end
end
