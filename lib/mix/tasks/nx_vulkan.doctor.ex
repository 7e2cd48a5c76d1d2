defmodule Mix.Tasks.NxVulkan.Doctor do
  @shortdoc "Says which Vulkan device nx_vulkan uses, and what to install if none works"

  @moduledoc """
  Prints the device in use and why it is the one, its driver and features, memory, the pipeline cache
  and the settings, and runs one kernel. Where no device works it says what to install, and the exit
  status is 1.

      mix nx_vulkan.doctor
      mix nx_vulkan.doctor 1

  The argument names another device than the global one: its index, its UUID or part of its name (`Nx.Vulkan.devices/0`).
  """
  use Mix.Task

  @requirements ["app.config"]

  @impl true
  def run(args) do
    {status, report} = args |> device() |> Nx.Vulkan.Doctor.report()
    Mix.shell().info(report)
    if status == :error, do: exit({:shutdown, 1})
  end

  defp device([]), do: nil
  defp device([device]), do: device
  defp device(_args), do: Mix.raise("expected mix nx_vulkan.doctor [DEVICE]")
end
