defmodule Nx.Vulkan.Backend.Dispatch do
  @moduledoc false
  # The one way from a callback or a block to the device: it runs a program, and makes of what a NIF
  # answered a tensor, a fallback or an error. It builds no programs and decides nothing about an operation
  # but where it runs.

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{ProgramRecorder, Storage, Trace}
  alias Nx.Vulkan.{Catalogue, Error, Fallback, ProgramBuilder}
  alias Nx.Vulkan.VulkanoBackend, as: B

  # A call of a function costs an eager operation one part in fifty of what its host does.
  @compile {:inline, dispatch: 4}

  @host_integers Catalogue.names(host_integers: true)

  # The program's result as that of the callback `op`; `args` are the callback's arguments after `out`, for
  # the fallback.
  @spec run(atom(), T.t(), [term()], ProgramBuilder.program()) :: T.t()
  # Integers that the host holds, such as the counter of a loop, stay there: asking for the result does not
  # wait for the device. BinaryBackend has no single one of less than a byte.
  def run(
        op,
        %T{type: {kind, size}} = out,
        args,
        {_, [{:scalar, _, _} | _] = inputs, {}} = program
      )
      when op in @host_integers and kind in [:s, :u] and size >= 8 do
    if Enum.all?(inputs, &match?({:scalar, {k, size}, _} when k in [:s, :u] and size >= 8, &1)),
      do:
        Storage.from_host(apply(Nx.BinaryBackend, op, [out | Enum.map(args, &Storage.to_host/1)])),
      else: dispatch(op, out, args, program)
  end

  def run(op, out, args, program), do: dispatch(op, out, args, program)

  # As run/4, of a callback that takes the backend's options and no tensors.
  @spec create(atom(), T.t(), [term()], ProgramBuilder.program(), keyword()) :: T.t()
  def create(op, out, args, {nodes, inputs, shape}, options) do
    ref = ProgramRecorder.run(nodes, inputs, shape, Storage.device_of(options))
    result(ref, op, out, args)
  end

  defp dispatch(op, out, args, {nodes, inputs, shape}) do
    if Trace.traced?(inputs),
      do: Trace.result(out, nodes, inputs),
      else: result(ProgramRecorder.run(nodes, inputs, shape), op, out, args)
  end

  # What the NIF answers to the program: a reference, or an error.
  @spec compute(ProgramBuilder.program()) :: {:ok, reference()} | tuple()
  def compute({nodes, inputs, shape}), do: ProgramRecorder.run(nodes, inputs, shape)

  # A NIF's answer as the result of the callback `op`. For what the device cannot do the fallback runs with
  # the callback's arguments.
  @spec result(term(), atom(), T.t(), [term()]) :: T.t()
  def result({:ok, ref}, _op, out, _args), do: %{out | data: %B{ref: ref}}

  def result({:error, :unsupported, reason}, op, out, args),
    do: Fallback.call(op, out, args, reason)

  def result(error, op, _out, _args), do: Error.raise!(op, error)

  # A NIF's answer as the result of the block `op`, which is a tensor or a tuple of them. For what the
  # device cannot do it is `:default`, as the operations of the block's default body may run there.
  @spec block(term(), atom(), T.t() | tuple()) :: T.t() | tuple() | :default
  def block({:ok, refs}, op, outs) when is_tuple(outs) do
    [Tuple.to_list(refs), Tuple.to_list(outs)]
    |> Enum.zip_with(fn [ref, out] -> block({:ok, ref}, op, out) end)
    |> List.to_tuple()
  end

  def block({:ok, ref}, _op, %T{} = out), do: %{out | data: %B{ref: ref}}
  def block({:error, :unsupported, _reason}, _op, _outs), do: :default
  def block(error, op, _outs), do: Error.raise!(op, error)
end
