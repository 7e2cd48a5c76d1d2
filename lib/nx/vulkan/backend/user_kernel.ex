defmodule Nx.Vulkan.Backend.UserKernel do
  @moduledoc false
  # A call of a user's kernel (`Nx.Vulkan.Kernel`) as a block: what the kernel is, its parameters and its grid. Everything
  # that users give is checked before; it shows them the lines of their source that do not compile.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Dispatch, ProgramRecorder, Storage}

  @enforce_keys [:name, :term, :params, :grid]
  defstruct [:name, :term, :params, :grid]

  def run(%__MODULE__{} = block, outs, inputs) do
    if ProgramRecorder.recording?(), do: raise("the kernel #{block.name} is no step of another")
    inputs = Enum.map(inputs, &Storage.buffer/1)
    list = if is_tuple(outs), do: Tuple.to_list(outs), else: [outs]
    types = for %T{type: type, shape: shape} <- list, do: {type, shape}

    case Native.call(tensor_kernel(block.term, inputs, types, block.params, block.grid)) do
      {:ok, refs} when is_tuple(outs) ->
        Dispatch.block({:ok, List.to_tuple(refs)}, :kernel, outs)

      {:ok, [ref]} ->
        Dispatch.block({:ok, ref}, :kernel, outs)

      {:error, :invalid_argument, message} ->
        raise ArgumentError, with_lines(message, block)

      error ->
        Nx.Vulkan.Error.raise!(:"kernel #{block.name}", error)
    end
  end

  # The compiler's messages, each followed by the line of the source that it is about.
  defp with_lines(message, %{name: name, term: {:glsl, _name, source, _, _, _, _, _}}) do
    lines =
      source |> String.split("\n") |> Enum.with_index(1) |> Map.new(fn {line, i} -> {i, line} end)

    message
    |> String.split("\n", trim: true)
    |> Enum.map_join("\n", fn message ->
      with [_, number] <- Regex.run(~r/^#{name}:(\d+): /, message),
           line when is_binary(line) <- lines[String.to_integer(number)] do
        "#{message}\n    #{number} | #{line}"
      else
        _ -> message
      end
    end)
  end

  defp with_lines(message, _block), do: message
end
