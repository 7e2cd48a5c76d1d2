defmodule Mix.Tasks.NxVulkan.Doctor do
  @shortdoc "Says which Vulkan device nx_vulkan uses, and what to install if none works"

  @moduledoc """
  Prints the device in use and why it is the one, its driver and features, memory, the pipeline cache
  and the settings, and runs one kernel. Where no device works it says what to install, and the exit
  status is 1.

      mix nx_vulkan.doctor
  """
  use Mix.Task

  @requirements ["app.config"]

  @impl true
  def run(_args) do
    {status, report} = Nx.Vulkan.Doctor.report()
    Mix.shell().info(report)
    if status == :error, do: exit({:shutdown, 1})
  end
end
