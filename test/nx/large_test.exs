defmodule Nx.Vulkan.LargeTest do
  @moduledoc """
  Tensors beyond the limits that Vulkan guarantees: 128 MiB of a storage buffer, 65,535 workgroups along
  an axis, and (`:huge`, where the device has the memory) 2^32 elements and bytes.
  """
  use Nx.Vulkan.Test.Case, async: false

  alias Nx.Vulkan.ProgramBuilder

  # A device without integers of 8 bits keeps a byte in a word.
  {:ok, %{features: features}} = Nx.Vulkan.device_info()
  @element_bytes if :int8 in features, do: 1, else: 4

  # A tensor of 0, 1, …, 250, 0, 1, … whose sums are known.
  @period 251

  @large_columns div(70_000_000, @element_bytes) + 3

  for {tag, rows, columns} <- [{:large, 3, @large_columns}, {:huge, 3, 1_500_000_001}] do
    @tag tag
    test "#{rows} by #{columns} elements: creation, arithmetic, movement, reduction" do
      {rows, columns} = {unquote(rows), unquote(columns)}
      size = rows * columns
      tensor = counting({rows, columns})
      assert spots(tensor, size) == for(i <- positions(size), do: rem(i, @period))

      # Element-wise, with a broadcast operand.
      row = Nx.iota({rows, 1}, type: :u8, backend: VulkanoBackend)
      sum = Nx.add(tensor, row)

      for i <- positions(size),
          do: assert(at(sum, i) == rem(rem(i, @period) + div(i, columns), 256))

      Nx.backend_deallocate(sum)

      # Strided views.
      reversed = Nx.reverse(tensor)
      assert spots(reversed, size) == for(i <- positions(size), do: rem(size - 1 - i, @period))
      Nx.backend_deallocate(reversed)
      transposed = Nx.transpose(tensor)

      for i <- positions(size),
          do: assert(at(transposed, i) == rem(rem(i, rows) * columns + div(i, rows), @period))

      Nx.backend_deallocate(transposed)

      # Reductions, over all axes, the long and the short one.
      assert Nx.to_number(Nx.sum(tensor, axes: [0, 1])) == rem(total(size), 2 ** 32)
      counts = Nx.sum(Nx.equal(tensor, 7), axes: [1])
      assert Nx.to_flat_list(counts) == for(r <- 0..(rows - 1), do: sevens(r * columns, columns))
      low = Nx.reduce_min(tensor, axes: [0])
      [last] = Nx.to_flat_list(Nx.slice(low, [columns - 1], [1]))
      assert last == Enum.min(for r <- 1..rows, do: rem(r * columns - 1, @period))
      last_zero = Nx.argmin(tensor, tie_break: :high, type: :s64)
      assert Nx.to_number(last_zero) == div(size - 1, @period) * @period
    end
  end

  # Byte i holds i modulo the period. u8 wraps at 256, so the remainder is taken of the 64-bit index.
  defp counting(shape) do
    program =
      ProgramBuilder.new(shape)
      |> ProgramBuilder.input(:period, {:scalar, {:u, 64}, <<@period::64-native>>})
      |> ProgramBuilder.op(:index, :iota, {:u, 64}, [], nil)
      |> ProgramBuilder.op(:remainder, :remainder, {:u, 64}, [:index, :period])
      |> ProgramBuilder.op(:byte, :as_type, {:u, 8}, [:remainder])
      |> ProgramBuilder.program()

    Nx.Vulkan.Backend.Dispatch.run(:iota, Nx.template(shape, :u8), [], program)
  end

  defp positions(size), do: [0, 1, div(size, 2), beyond_limit(), size - 1]
  defp beyond_limit, do: div(2 ** 27, @element_bytes) + 1
  defp spots(tensor, size), do: for(i <- positions(size), do: at(tensor, i))

  defp at(%{shape: {_, columns}} = tensor, i) do
    [value] = Nx.to_flat_list(Nx.slice(tensor, [div(i, columns), rem(i, columns)], [1, 1]))
    value
  end

  defp total(size) do
    {full, rest} = {div(size, @period), rem(size, @period)}
    full * div(@period * (@period - 1), 2) + div(rest * (rest - 1), 2)
  end

  # How many of the numbers first, …, first + count - 1 are 7 modulo the period.
  defp sevens(first, count) do
    upto = fn n -> div(n + @period - 8, @period) end
    upto.(first + count) - upto.(first)
  end
end
