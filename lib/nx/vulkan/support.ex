defmodule Nx.Vulkan.Support do
  @moduledoc """
  Which operation runs where for which type, from the catalogue that generates the backend's callbacks
  and from what the device has. `Nx.Vulkan.support/0` prints it.

      iex> rows = Nx.Vulkan.Support.table(%{{:f, 32} => :device})
      iex> {_group, _operations, targets} = Enum.find(rows, fn {_, operations, _} -> :dot in operations end)
      iex> targets
      %{{:f, 32} => :device}
  """

  require Nx.Vulkan.Native, as: Native

  alias Nx.Vulkan.Catalogue
  alias Nx.Vulkan.Catalogue.Operation

  @typedoc """
  Where an operation runs for a type:

    * `:device`: in the device's own arithmetic
    * `:emulated`: on the device, by several of its operations for each
    * `:fallback`: on the CPU, counted (`Nx.Vulkan.Fallback`)
    * `:none`: Nx does not have the operation for this type
  """
  @type target :: :device | :emulated | :fallback | :none

  @doc """
  A row for each group of operations: `{group, operations, %{type => target}}`.

  `targets` says what the device does with each type, as `device_types/0` gives it.
  """
  @spec table(%{Nx.Type.t() => target()}) :: [{String.t(), [atom()], %{Nx.Type.t() => target()}}]
  def table(targets) do
    operations = Enum.filter(Catalogue.operations(), & &1.group)

    for group <- Enum.uniq(Enum.map(operations, & &1.group)) do
      [first | _] = same = Enum.filter(operations, &(&1.group == group))
      {group, Enum.map(same, & &1.name), Map.new(targets, &target(&1, first))}
    end
  end

  defp target({{kind, size} = type, target}, %Operation{types: kinds, kernel: kernel}) do
    cond do
      kind(kind) not in kinds -> {type, :none}
      # Built-in kernels use GLSL's operators, which know no emulated integers.
      kernel == :built_in and target == :emulated and size == 64 -> {type, :fallback}
      true -> {type, target}
    end
  end

  defp kind(:f8_e4m3fn), do: :f
  defp kind(kind), do: kind

  @doc "What the device in use does with each type."
  @spec device_types() :: {:ok, %{Nx.Type.t() => target()}} | {:error, atom(), String.t()}
  def device_types do
    with {:ok, types} <- Native.call(type_support()),
         do: {:ok, Map.new(types, fn {type, {target, _bits}} -> {type, target} end)}
  end

  @doc "What a device with all features does with each type: all of it."
  @spec all_types() :: %{Nx.Type.t() => target()}
  def all_types, do: Map.new(types(), &{&1, :device})

  @doc "The types in the order in which tables name them."
  @spec types() :: [Nx.Type.t()]
  def types do
    integers = for kind <- [:u, :s], size <- [2, 4, 8, 16, 32, 64], do: {kind, size}
    integers ++ [f8_e4m3fn: 8, f: 8, f: 16, bf: 16, f: 32, f: 64, c: 64, c: 128]
  end

  @doc "The table as text."
  @spec text(%{Nx.Type.t() => target()}) :: String.t()
  def text(targets) do
    for {group, names, row} <- table(targets), into: "" do
      by_target = Enum.group_by(types(), &row[&1])

      lines =
        for {target, title} <- [device: "device", emulated: "emulated", fallback: "fallback"],
            types = by_target[target],
            do:
              "  #{String.pad_trailing(title, 9)} #{Enum.map_join(types, " ", &Nx.Type.to_string/1)}\n"

      "#{group}: #{Enum.join(names, " ")}\n#{lines}\n"
    end
  end

  @doc "The table as Markdown: a row for each group, a column for each family of types."
  @spec markdown(%{Nx.Type.t() => target()}) :: String.t()
  def markdown(targets) do
    columns = [
      {"u2 to u64", for({:u, _} = type <- types(), do: type)},
      {"s2 to s64", for({:s, _} = type <- types(), do: type)},
      {"f8, f16, bf16, f32, f64",
       for({kind, _} = type <- types(), kind(kind) in [:f, :bf], do: type)},
      {"c64, c128", for({:c, _} = type <- types(), do: type)}
    ]

    header = ["operations" | Enum.map(columns, &elem(&1, 0))]

    rows =
      for {group, names, row} <- table(targets) do
        operations = Enum.map_join(names, " ", &"`#{&1}`")
        cells = for {_, types} <- columns, do: cell(Enum.uniq(Enum.map(types, &row[&1])))
        ["#{group}: #{operations}" | cells]
      end

    [header, List.duplicate("---", length(header)) | rows]
    |> Enum.map_join("", fn cells -> "| #{Enum.join(cells, " | ")} |\n" end)
  end

  defp cell([:none]), do: ""
  defp cell(targets), do: Enum.join(targets, ", ")
end
