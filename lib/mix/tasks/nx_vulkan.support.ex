defmodule Mix.Tasks.NxVulkan.Support do
  @shortdoc "Prints which operation runs where for which type"

  @moduledoc """
  Prints, for the device in use, which operations run on it, are emulated there, or fall back to the CPU,
  by type (`Nx.Vulkan.support/0`).

      mix nx_vulkan.support
      mix nx_vulkan.support --readme    # writes the table of a device with all features into README.md
  """
  use Mix.Task

  @requirements ["app.config"]

  @impl true
  def run([]), do: Nx.Vulkan.support()

  def run(["--readme"]) do
    File.write!("README.md", in_readme(File.read!("README.md")))
  end

  def run(_other), do: Mix.raise("expected no argument, or --readme")

  @doc false
  # The README with the table of today's code between its marks.
  def in_readme(text) do
    [before, _table, rest] = String.split(text, ["<!-- support -->\n", "<!-- /support -->\n"])
    table = Nx.Vulkan.Support.markdown(Nx.Vulkan.Support.all_types())
    "#{before}<!-- support -->\n#{table}<!-- /support -->\n#{rest}"
  end
end
