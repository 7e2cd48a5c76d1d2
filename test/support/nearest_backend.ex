defmodule Nx.Vulkan.Test.NearestBackend do
  @moduledoc """
  `Nx.BinaryBackend` with the results of 8- and 16-bit floats rounded to nearest even, where that truncates or rounds
  otherwise: operands and result of each operation are f64, in which BinaryBackend computes, and the result is rounded here.

  Only `Nx.Vulkan.Test.Reference` makes tensors of it.
  """

  @behaviour Nx.Backend

  alias Nx.BinaryBackend
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Test.Rounding

  defstruct [:host]

  # They compute nothing.
  @exact ~w(init from_binary inspect to_binary to_batched to_pointer from_pointer backend_copy backend_transfer)a ++
           ~w(backend_deallocate reshape squeeze broadcast transpose reverse slice gather sort bitcast)a
  # They call a function of the caller, whose results are rounded.
  @folds ~w(reduce window_reduce)a

  @doc "The tensor of BinaryBackend as one of this backend, and back."
  def wrap(%T{data: %BinaryBackend{}} = tensor), do: %{tensor | data: %__MODULE__{host: tensor}}
  def wrap(other), do: other

  def unwrap(%T{data: %__MODULE__{host: host}} = tensor), do: %{tensor | data: host.data}
  def unwrap(other), do: other

  @impl true
  def init(options), do: options

  @impl true
  def block(struct, _out, args, fun), do: apply(fun, [struct | args])

  @impl true
  def as_type(%T{type: type} = out, tensor) do
    host = unwrap(tensor)

    if Rounding.rounded?(type) and host.type != type,
      do: wrap(Rounding.tensor(out, Nx.to_flat_list(host))),
      else: wrap(BinaryBackend.as_type(out, host))
  end

  for {name, arity} <- Nx.Backend.behaviour_info(:callbacks),
      name not in [:init, :block, :as_type] do
    args = Macro.generate_arguments(arity, __MODULE__)
    @impl true
    def unquote(name)(unquote_splicing(args)), do: call(unquote(name), unquote(args))
  end

  defp call(name, args) when name in @exact or name in @folds,
    do: on_host(name, Enum.map(args, &host/1))

  defp call(:concatenate, [out, tensors, axis]),
    do: on_host(:concatenate, [out, Enum.map(tensors, &typed(&1, out.type)), axis])

  defp call(:stack, [out, tensors, axis]),
    do: on_host(:stack, [out, Enum.map(tensors, &typed(&1, out.type)), axis])

  defp call(:pad, [out, tensor, value, config]),
    do: on_host(:pad, [out, typed(tensor, out.type), typed(value, out.type), config])

  defp call(:put_slice, [out, tensor, starts, slice]) do
    [tensor, slice] = Enum.map([tensor, slice], &typed(&1, out.type))
    on_host(:put_slice, [out, tensor, host(starts), slice])
  end

  defp call(:indexed_put, [out, tensor, indices, updates, options]) do
    [tensor, updates] = Enum.map([tensor, updates], &typed(&1, out.type))
    on_host(:indexed_put, [out, tensor, host(indices), updates, options])
  end

  defp call(name, [%T{type: type} = out | args]) do
    if Rounding.rounded?(type) do
      %T{} = wide = on_host(name, [%{out | type: {:f, 64}} | Enum.map(args, &wide/1)])
      wrap(Rounding.tensor(out, Nx.to_flat_list(unwrap(wide))))
    else
      on_host(name, [out | Enum.map(args, &host/1)])
    end
  end

  # BinaryBackend makes tensors of numbers on the default backend at times.
  defp on_host(name, args),
    do: wrap(Nx.with_default_backend(BinaryBackend, fn -> apply(BinaryBackend, name, args) end))

  defp wide(%T{type: type} = tensor),
    do: if(Rounding.rounded?(type), do: typed(tensor, {:f, 64}), else: host(tensor))

  defp wide(other), do: host(other)

  defp typed(%T{} = tensor, type), do: tensor |> Nx.as_type(type) |> unwrap()

  defp host(list) when is_list(list), do: Enum.map(list, &host/1)
  defp host({key, value}), do: {key, host(value)}

  # The function of a reduction computes with tensors of this backend.
  defp host(fun) when is_function(fun, 2),
    do: fn x, acc ->
      unwrap(Nx.with_default_backend(__MODULE__, fn -> fun.(wrap(x), wrap(acc)) end))
    end

  defp host(other), do: unwrap(other)
end
