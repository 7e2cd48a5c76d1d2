defmodule Mix.Tasks.NxVulkan.Profile do
  @shortdoc "Runs a script and prints what the device did"

  @moduledoc """
  Runs a script and prints each kernel with its operations, its runs, its times and its bytes (`Nx.Vulkan.profile/1`).

      mix nx_vulkan.profile script.exs [ARGUMENTS]
      mix nx_vulkan.profile --trace trace.json script.exs [ARGUMENTS]

  With `--trace` the same goes to a file, for `chrome://tracing` or [Perfetto](https://ui.perfetto.dev). The script sees the ARGUMENTS in
  `System.argv/0`. What it compiles is part of the profile: to leave that out, call `Nx.Vulkan.profile/1` within the script, after a
  first call.
  """
  use Mix.Task

  @requirements ["app.start"]

  @impl true
  def run(args) do
    case OptionParser.parse_head(args, strict: [trace: :string]) do
      {options, [script | rest], []} -> profile(script, rest, options[:trace])
      _other -> Mix.raise("expected mix nx_vulkan.profile [--trace FILE] SCRIPT [ARGUMENTS]")
    end
  end

  defp profile(script, args, trace) do
    File.regular?(script) || Mix.raise("there is no file #{script}")
    System.argv(args)
    profile = Nx.Vulkan.profile(fn -> Code.eval_file(script) end)
    Mix.shell().info(Nx.Vulkan.Profile.table(profile))
    if trace, do: File.write!(trace, Nx.Vulkan.Profile.to_chrome_trace(profile))
  end
end
