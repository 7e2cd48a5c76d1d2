defmodule Nx.Vulkan.Backend.Scan do
  @moduledoc false
  # Cumulative operations along an axis, as blocks: `:default` where there is no kernel. How a scan runs is
  # decided in src/kernels.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Dispatch, Movement, ProgramRecorder, Storage}
  alias Nx.Vulkan.ProgramBuilder

  def run(operation, %{axis: axis, reverse: reverse} = block, out, tensor) do
    case ProgramRecorder.mode() do
      nil ->
        Native.call(scan(operation, Storage.buffer(tensor), axis, reverse))
        |> Dispatch.block(:"cumulative_#{operation}", out)

      :chain when operation == :sum ->
        out
        |> program(tensor, block)
        |> Dispatch.compute()
        |> Dispatch.block(:cumulative_sum, out)

      _mode ->
        :default
    end
  end

  # As a step of a chain each sum is one of its own: over the elements before an element, along a last axis.
  defp program(%T{shape: shape, type: type}, tensor, %{axis: axis, reverse: reverse}) do
    {ref, from, _shape} = Storage.buffer(tensor)
    strides = Movement.strides(shape)
    view = List.replace_at(strides, axis, 0) ++ [Enum.at(strides, axis)]
    rank = tuple_size(shape)
    within = if reverse, do: :greater_equal, else: :less_equal

    ProgramBuilder.new(Tuple.insert_at(shape, rank, elem(shape, axis)))
    |> ProgramBuilder.input(:elements, {ref, from, 0, view})
    |> ProgramBuilder.input(:zero, Storage.integer(0, {:u, 32}))
    |> ProgramBuilder.op(:at, :iota, {:u, 32}, [], axis)
    |> ProgramBuilder.op(:from, :iota, {:u, 32}, [], rank)
    |> ProgramBuilder.op(:within?, within, {:u, 8}, [:from, :at])
    |> ProgramBuilder.op(:element, :select, type, [:within?, :elements, :zero])
    |> ProgramBuilder.op(:sum, :sum, type, [:element], [rank])
    |> ProgramBuilder.program()
  end
end
