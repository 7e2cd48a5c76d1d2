defmodule Nx.Vulkan.Backend.Storage do
  @moduledoc false
  # Where a tensor's bytes are: making, reading, moving and freeing them.
  #
  # `ref` in the backend's struct is one of
  #
  #   * a buffer of the device: the elements in row-major order; types below a byte packed as Nx packs
  #     them, the last byte filled up with zero bits
  #   * `{binary, flag}` for a scalar that came from the host: literals in expressions are such tensors,
  #     and their bytes travel with the dispatch that uses them. The flag (an atomic, 1 once deallocated)
  #     makes them as deallocatable as any other tensor.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Error
  alias Nx.Vulkan.VulkanoBackend, as: B

  @typedoc "An input of a program, see `Nx.Vulkan.Backend.Program`."
  @type input :: {reference(), Nx.Type.t(), tuple()} | {:scalar, Nx.Type.t(), binary()}

  ## Making

  def from_binary(%T{shape: {}} = out, binary, _options), do: scalar(out, bytes(binary))
  def from_binary(out, binary, _options), do: %{out | data: %B{ref: upload(bytes(binary))}}

  def number(%T{shape: {}} = out, number) do
    host = Nx.BinaryBackend.constant(out, number, [])
    scalar(out, bytes(Nx.BinaryBackend.to_binary(host, 1)))
  end

  defp scalar(out, binary), do: %{out | data: %B{ref: {binary, :atomics.new(1, [])}}}

  defp upload(binary) do
    case Native.call(buf_upload(binary)) do
      {:ok, ref} -> ref
      error -> Error.raise!(:from_binary, error)
    end
  end

  defp bytes(binary) when is_binary(binary), do: binary

  defp bytes(bits) do
    padding = 8 - rem(bit_size(bits), 8)
    <<bits::bitstring, 0::size(padding)>>
  end

  ## As an operand

  @spec input(T.t()) :: input()
  def input(%T{data: %B{ref: ref}, type: type, shape: shape}) when is_reference(ref),
    do: {ref, type, shape}

  def input(%T{data: %B{ref: {_, _} = scalar}, type: type}), do: {:scalar, type, live!(scalar)}
  def input(%T{type: type, shape: {}} = tensor), do: {:scalar, type, bytes(host_bits(tensor))}

  def input(%T{type: type, shape: shape} = tensor),
    do: {upload(bytes(host_bits(tensor))), type, shape}

  # As input/1, for the calls that take buffers alone.
  @spec buffer(T.t()) :: {reference(), Nx.Type.t(), tuple()}
  def buffer(%T{shape: shape} = tensor) do
    case input(tensor) do
      {:scalar, type, binary} -> {upload(binary), type, shape}
      input -> input
    end
  end

  defp live!({binary, flag}) do
    case :atomics.get(flag, 1) do
      0 -> binary
      1 -> Error.raise!(:read, {:error, :deallocated, "the tensor was deallocated"})
    end
  end

  ## Reading

  # All tensors arrive here without vectorized axes but in to_binary/2 and deallocate/1, which do not
  # look at the shape.

  def to_binary(%T{data: %B{ref: {_, _} = scalar}, type: {_, size}}, limit),
    do: first_bits(live!(scalar), limit * size)

  def to_binary(%T{data: %B{ref: ref}, type: {_, size}}, limit) do
    case Native.call(buf_read(ref, 0, div(limit * size + 7, 8))) do
      {:ok, binary} -> first_bits(binary, limit * size)
      error -> Error.raise!(:to_binary, error)
    end
  end

  defp first_bits(binary, size) when bit_size(binary) == size, do: binary

  defp first_bits(binary, size) do
    <<bits::bitstring-size(^size), _::bitstring>> = binary
    bits
  end

  def inspect(tensor, options) do
    size = Nx.size(tensor)
    limit = if options.limit == :infinity, do: size, else: min(options.limit + 1, size)
    Nx.Backend.inspect(tensor, to_binary(tensor, limit), options)
  rescue
    # A log or a shell that shows the tensor must not fail.
    error in Error -> "#{inspect(B)} (#{error.reason})"
  end

  # The batches are lazy: each is cut out when the stream gets there.
  def to_batched(out, tensor, options) do
    batch = elem(out.shape, 0)
    size = elem(tensor.shape, 0)
    left = rem(size, batch)
    full = for i <- 0..(div(size, batch) - 1), do: {i * batch, batch}

    parts =
      if left != 0 and options[:leftover] == :repeat,
        do: full ++ [{size - left, left}],
        else: full

    Stream.map(parts, fn
      {start, ^batch} ->
        rows(out, tensor, start, batch)

      {start, ^left} ->
        Nx.concatenate([rows(out, tensor, start, left), rows(out, tensor, 0, batch - left)])
    end)
  end

  defp rows(out, tensor, start, count) do
    out = %{out | shape: put_elem(out.shape, 0, count)}
    starts = [start | List.duplicate(0, tuple_size(out.shape) - 1)]
    strides = List.duplicate(1, tuple_size(out.shape))
    B.slice(out, tensor, starts, Tuple.to_list(out.shape), strides)
  end

  ## Moving

  def copy(tensor, Nx.Tensor, _options), do: to_host(tensor)

  def copy(%T{data: %B{ref: ref}} = tensor, backend, options) do
    # Within the device any type can be copied as words, if it fills them.
    if backend == B and is_reference(ref) and rem(Native.buf_byte_size(ref), 4) == 0,
      do: copy_words(tensor, ref, {div(Native.buf_byte_size(ref), 4)}),
      else: backend.from_binary(tensor, to_binary(tensor, Nx.size(tensor)), options)
  end

  defp copy_words(tensor, ref, shape) do
    case Native.call(run([{:as_type, {:u, 32}, [0]}], [{ref, {:u, 32}, shape}], shape)) do
      {:ok, ref} -> %{tensor | data: %B{ref: ref}}
      error -> Error.raise!(:backend_copy, error)
    end
  end

  def transfer(tensor, B, _options), do: tensor

  def transfer(tensor, backend, options) do
    copy(tensor, backend, options)
  after
    deallocate(tensor)
  end

  def deallocate(%T{data: %B{ref: {_binary, flag}}}) do
    case :atomics.exchange(flag, 1, 1) do
      0 -> :ok
      1 -> :already_deallocated
    end
  end

  def deallocate(%T{data: %B{ref: ref}}), do: Native.call(buf_free(ref))

  def to_host(%T{data: %Nx.BinaryBackend{}} = tensor), do: tensor

  def to_host(tensor),
    do: Nx.BinaryBackend.from_binary(tensor, to_binary(tensor, Nx.size(tensor)), [])

  def from_host(%T{data: %Nx.BinaryBackend{}} = tensor),
    do: from_binary(tensor, host_bits(tensor), [])

  defp host_bits(%T{data: %Nx.BinaryBackend{}} = tensor),
    do: Nx.BinaryBackend.to_binary(tensor, Nx.size(tensor))
end
