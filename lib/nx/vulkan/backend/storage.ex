defmodule Nx.Vulkan.Backend.Storage do
  @moduledoc false
  # Where a tensor's bytes are: making, reading, moving and freeing them, and giving them to programs and
  # kernels as operands. It computes nothing.
  #
  # A tensor's elements are in a buffer of the device (`ref`), in row-major order, or are a scalar that came
  # from the host (`scalar`): literals in expressions are such tensors, and their bytes travel with the
  # dispatch that uses them. The scalar's flag (an atomic, 1 once deallocated) makes it as deallocatable as
  # any other tensor.
  #
  # Either way an element of less than a byte takes a whole one, in its low bits, and is packed as Nx
  # packs it only here, on its way to the host: `to_stored/2` and `from_stored/2`.
  #
  # A tensor that was sent here by another node keeps its reference, which is that node's: such a buffer
  # is read and freed by asking the node (`at_owner/3`). A scalar brings its bytes along, and its flag
  # stays there.

  import Nx.Vulkan.Backend.NarrowFloat, only: [is_narrow: 1]

  require Nx.Vulkan.Native, as: Native

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{NarrowFloat, Trace}
  alias Nx.Vulkan.{Error, ProgramBuilder}
  alias Nx.Vulkan.VulkanoBackend, as: B

  ## Making

  def from_binary(%T{shape: {}, type: type} = out, binary, _options),
    do: scalar(out, to_stored(binary, type))

  def from_binary(%T{type: type} = out, binary, options) do
    case Native.call(buf_upload(to_stored(binary, type), device_of(options))) do
      {:ok, ref} -> %{out | data: %B{ref: ref}}
      error -> Error.raise!(:from_binary, error)
    end
  end

  def number(%T{shape: {}, type: type} = out, number)
      when is_narrow(type) and is_number(number),
      do: scalar(out, to_stored(NarrowFloat.to_binary(number, type), type))

  def number(%T{shape: {}, type: type} = out, number) do
    host = Nx.BinaryBackend.constant(out, number, [])
    scalar(out, to_stored(Nx.BinaryBackend.to_binary(host, 1), type))
  end

  # The tensor of one element, as buffers store it.
  @spec scalar(T.t(), binary()) :: T.t()
  def scalar(out, binary), do: %{out | data: %B{scalar: {binary, :atomics.new(1, [])}}}

  # What the host holds belongs to no device: a call whose other operands are elsewhere moves it there.
  defp upload(binary) do
    case Native.call(operand_upload(binary, default_device())) do
      {:ok, ref} -> ref
      error -> Error.raise!(:from_binary, error)
    end
  end

  ## Devices

  @typedoc "The index of a device, `nil` for the global one."
  @type device :: non_neg_integer() | nil

  # The device on which this process makes tensors of what belongs to none: that of its default backend.
  @spec default_device() :: device()
  def default_device do
    case Nx.default_backend() do
      {B, options} -> device_of(options)
      _other -> nil
    end
  end

  # The device for a program's call. An operand in a buffer says it by itself.
  @spec device(device() | :default, [ProgramBuilder.operand()]) :: device()
  def device(:default, [first | _]) when is_reference(elem(first, 0)), do: nil
  def device(:default, [_ | inputs]), do: device(:default, inputs)
  def device(:default, []), do: default_device()
  def device(device, _inputs), do: device

  # The options of the backend, with the device as its index.
  @spec options(keyword()) :: keyword()
  def options(options) do
    case Keyword.validate(options, [:device]) do
      {:ok, [device: device]} when device != nil ->
        [device: device_index(device)]

      {:ok, _} ->
        []

      {:error, unknown} ->
        raise ArgumentError,
              "#{inspect(B)} takes no options but :device, got: #{inspect(unknown)}"
    end
  end

  # The device of the options, which Nx gives as the caller wrote them.
  @spec device_of(keyword()) :: device()
  def device_of([]), do: nil
  def device_of(options), do: options(options)[:device]

  defp device_index(device) when is_integer(device) and device >= 0, do: device

  defp device_index(device) when is_binary(device) do
    case Native.call(device_index(device)) do
      {:ok, index} -> index
      error -> Error.raise!(:device, error)
    end
  end

  defp device_index(device) do
    raise ArgumentError,
          ":device must be an index of Nx.Vulkan.devices/0, a UUID or part of a name, got: #{inspect(device)}"
  end

  # Whether the tensor can be used with those of the device as it is: it is there, or on the host.
  @spec on_device?(T.t(), device()) :: boolean()
  def on_device?(%T{data: %B{ref: ref}}, device) when is_reference(ref) and node(ref) == node(),
    do: Native.call(buf_on_device(ref, device)) == {:ok, true}

  def on_device?(%T{data: %B{ref: nil}}, _device), do: true
  def on_device?(_tensor, _device), do: false

  ## Packing

  # The elements of a bitstring of Nx's as buffers store them, and back.

  defp to_stored(bits, {_, size} = type) do
    case stored_bits(type) do
      ^size -> bits
      stored -> stored!(Native.call(unpack(whole(bits), size, stored, div(bit_size(bits), size))))
    end
  end

  defp from_stored(binary, {_, size} = type) do
    case stored_bits(type) do
      ^size -> binary
      stored -> stored!(Native.call(pack(binary, size, stored)))
    end
  end

  defp stored!({:ok, binary}), do: binary
  defp stored!(error), do: Error.raise!(:from_binary, error)

  defp whole(binary) when is_binary(binary), do: binary

  defp whole(bits) do
    padding = 8 - rem(bit_size(bits), 8)
    <<bits::bitstring, 0::size(padding)>>
  end

  # Where the device has no 8- or 16-bit storage, narrow elements take 32 bits.
  defp stored_bits({_, size}) when size >= 32, do: size
  defp stored_bits(type), do: elem(Map.fetch!(types(), type), 1)

  # The same for all devices of the process.
  defp types do
    with nil <- :persistent_term.get({__MODULE__, :types}, nil) do
      case Native.call(type_support()) do
        {:ok, types} ->
          :persistent_term.put({__MODULE__, :types}, types)
          types

        error ->
          Error.raise!(:from_binary, error)
      end
    end
  end

  ## As an operand

  @spec operand(T.t()) :: ProgramBuilder.operand()
  def operand(%T{data: %B{ref: ref}, type: type, shape: shape})
      when is_reference(ref) and node(ref) == node(),
      do: {ref, type, shape}

  def operand(%T{data: %B{scalar: {_, _} = scalar}, type: type}),
    do: {:scalar, type, live!(scalar)}

  def operand(%T{data: %B{traced: %Trace{}}}),
    do: Trace.stop("the function does more than element-wise operations")

  def operand(%T{data: %B{}, type: type, shape: shape} = tensor),
    do: {upload(to_stored(to_binary(tensor, Nx.size(shape)), type)), type, shape}

  def operand(%T{type: type, shape: {}} = tensor),
    do: {:scalar, type, to_stored(host_bits(tensor), type)}

  def operand(%T{type: type, shape: shape} = tensor),
    do: {upload(to_stored(host_bits(tensor), type)), type, shape}

  # An integer of an integer type.
  @spec integer(integer(), Nx.Type.t()) :: ProgramBuilder.operand()
  def integer(number, {_, size} = type),
    do: {:scalar, type, to_stored(<<number::size(size)-native>>, type)}

  # As operand/1, for the calls that take buffers alone.
  @spec buffer(T.t()) :: {reference(), Nx.Type.t(), tuple()}
  def buffer(%T{shape: shape} = tensor) do
    case operand(tensor) do
      {:scalar, type, binary} -> {upload(binary), type, shape}
      operand -> operand
    end
  end

  # The tensor, in a buffer where it is a number of the host.
  @spec in_buffer(T.t()) :: T.t()
  def in_buffer(%T{data: %B{scalar: {_, _}}} = tensor) do
    {ref, _type, _shape} = buffer(tensor)
    %{tensor | data: %B{ref: ref}}
  end

  def in_buffer(tensor), do: tensor

  defp live!({binary, flag}) do
    case :atomics.get(flag, 1) do
      0 -> binary
      1 -> Error.raise!(:read, {:error, :deallocated, "the tensor was deallocated"})
    end
  rescue
    # Another node's flag, or one that came back from there after it was collected here.
    ArgumentError -> binary
  end

  ## Reading

  # Tensors come without vectorized axes here, except to to_binary/2 and deallocate/1, which do not use the
  # shape.

  def to_binary(%T{data: %B{scalar: {_, _} = scalar}, type: {_, size} = type}, limit),
    do: first_bits(from_stored(live!(scalar), type), limit * size)

  def to_binary(
        %T{data: %B{traced: %Trace{op: nil, operands: [{:scalar, type, binary}]}}},
        _limit
      ),
      do: from_stored(binary, type)

  def to_binary(%T{data: %B{traced: %Trace{}}}, _limit),
    do: Trace.stop("the function reads values")

  def to_binary(%T{data: %B{ref: ref}} = tensor, limit) when node(ref) != node() do
    case at_owner(node(ref), :to_binary, [tensor, limit]) do
      {:ok, bits} -> bits
      error -> Error.raise!(:to_binary, error)
    end
  end

  def to_binary(%T{data: %B{ref: ref}, type: {_, size} = type}, limit) do
    case Native.call(buf_read(ref, 0, limit * div(stored_bits(type), 8))) do
      {:ok, binary} -> first_bits(from_stored(binary, type), limit * size)
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
    error in ArgumentError -> "#{inspect(B)} (#{Exception.message(error)})"
  end

  # The batches are lazy: each is sliced when the stream gets there.
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
    if backend == B and is_reference(ref) and on_device?(tensor, device_of(options)),
      do: copy_buffer(tensor, ref, Native.buf_byte_size(ref)),
      else: backend.from_binary(tensor, to_binary(tensor, Nx.size(tensor)), options)
  end

  # Words are copied, if the buffer is made of them: one of elements that the device lacks is.
  defp copy_buffer(%T{type: {_, bits}} = tensor, ref, size) do
    width = if rem(size, 4) == 0, do: 32, else: max(min(bits, 16), 8)
    {type, shape} = {{:u, width}, {div(size, div(width, 8))}}
    {nodes, inputs, shape} = ProgramBuilder.single(:as_type, type, [{ref, type, shape}], shape)

    case Native.call(run(nodes, inputs, shape)) do
      {:ok, ref} -> %{tensor | data: %B{ref: ref}}
      error -> Error.raise!(:backend_copy, error)
    end
  end

  def transfer(tensor, backend, options) do
    if backend == B and owner(tensor) == node() and on_device?(tensor, device_of(options)) do
      tensor
    else
      # Freed only once it is elsewhere.
      copy = copy(tensor, backend, options)
      deallocate(tensor)
      copy
    end
  end

  def deallocate(%T{data: %B{traced: %Trace{}}}), do: Trace.stop("the function deallocates")

  def deallocate(tensor) do
    owner = owner(tensor)

    if owner == node() do
      free(tensor.data)
    else
      case at_owner(owner, :deallocate, [tensor]) do
        {:ok, answer} -> answer
        {:error, :deallocated, _message} -> :already_deallocated
        error -> Error.raise!(:deallocate, error)
      end
    end
  end

  defp free(%B{scalar: {_binary, flag}}) do
    case :atomics.exchange(flag, 1, 1) do
      0 -> :ok
      1 -> :already_deallocated
    end
  end

  defp free(%B{ref: ref}), do: Native.call(buf_free(ref))

  # The node whose memory holds the tensor.
  defp owner(%T{data: %B{traced: %Trace{}}}), do: node()
  defp owner(%T{data: %B{scalar: {_binary, flag}}}), do: node(flag)
  defp owner(%T{data: %B{ref: ref}}), do: node(ref)

  # Calls a function of this module on the node that the tensor belongs to. A reference that was sent
  # keeps nothing alive there: memory to which only other nodes refer may be gone.
  defp at_owner(node, function, args) do
    {:ok, :erpc.call(node, __MODULE__, function, args)}
  catch
    :error, {:exception, %ArgumentError{message: "index " <> _} = out_of_bounds, stacktrace} ->
      reraise out_of_bounds, stacktrace

    :error, {:exception, reason, _} when reason == :badarg or is_struct(reason, ArgumentError) ->
      message =
        "the tensor's memory on node #{node} is gone, as nothing there refers to it any longer: " <>
          "keep the tensor there while others read it, or send Nx.backend_copy(tensor)"

      {:error, :deallocated, message}

    :error, {:exception, reason, stacktrace} ->
      reraise Exception.normalize(:error, reason, stacktrace), stacktrace

    :error, {:erpc, reason} ->
      {:error, reason, "the tensor is on node #{node}, which cannot be asked (#{reason})"}
  end

  def to_host(%T{data: %Nx.BinaryBackend{}} = tensor), do: tensor

  def to_host(tensor),
    do: Nx.BinaryBackend.from_binary(tensor, to_binary(tensor, Nx.size(tensor)), [])

  def from_host(%T{data: %Nx.BinaryBackend{}} = tensor),
    do: from_host_bits(tensor, host_bits(tensor))

  defp from_host_bits(%T{shape: {}} = tensor, bits), do: from_binary(tensor, bits, [])

  defp from_host_bits(%T{type: type} = tensor, bits),
    do: %{tensor | data: %B{ref: upload(to_stored(bits, type))}}

  defp host_bits(%T{data: %Nx.BinaryBackend{}} = tensor),
    do: Nx.BinaryBackend.to_binary(tensor, Nx.size(tensor))
end
