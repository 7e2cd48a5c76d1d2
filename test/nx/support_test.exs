defmodule Nx.Vulkan.SupportTest do
  @moduledoc "The table of what runs where says what is so."

  use Nx.Vulkan.Test.Case, async: true

  alias Nx.Vulkan.Support

  # What only stores, moves or shows.
  @not_computing [:init, :block, :from_binary, :to_binary, :to_batched, :inspect] ++
                   [:from_pointer, :to_pointer] ++
                   [:backend_copy, :backend_transfer, :backend_deallocate]

  test "it names every callback that computes, and every block" do
    callbacks = Keyword.keys(Nx.Backend.behaviour_info(:callbacks)) -- @not_computing

    blocks =
      for module <- Application.spec(:nx, :modules),
          ["Nx", "Block" | name] <- [Module.split(module)],
          do: name |> List.last() |> snake_case()

    named = Enum.flat_map(Support.table(Support.all_types()), &elem(&1, 1))
    assert Enum.sort(named) == Enum.sort(callbacks ++ blocks)
  end

  defp snake_case(name) when name in ["FFT2", "IFFT2", "RFFT", "IRFFT", "LU", "QR", "SVD"],
    do: name |> String.downcase() |> String.to_atom()

  defp snake_case(name), do: name |> Macro.underscore() |> String.to_atom()

  test "the README's table is the code's" do
    readme = File.read!("README.md")
    current? = Mix.Tasks.NxVulkan.Support.in_readme(readme) == readme
    assert current?, "the README's table is old: run mix nx_vulkan.support --readme"
  end

  test "each line of the text names every type once, where Nx has the operation for it" do
    {:ok, targets} = Support.device_types()
    assert Enum.sort(Map.keys(targets)) == Enum.sort(Support.types())
    text = Support.text(targets)

    for {group, names, row} <- Support.table(targets) do
      [_, lines] = String.split(text, "#{group}: #{Enum.join(names, " ")}\n")
      [lines | _] = String.split(lines, "\n\n")
      words = String.split(lines) -- ~w(device emulated fallback)
      assert length(words) == Enum.count(row, fn {_, target} -> target != :none end)
    end
  end
end
