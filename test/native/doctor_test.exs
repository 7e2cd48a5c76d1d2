Code.require_file("support/native_case.exs", __DIR__)

defmodule Nx.Vulkan.DoctorTest do
  use Nx.Vulkan.Test.NativeCase, async: true

  test "the report names the device, its driver and features, memory and cache, and runs a kernel" do
    {:ok, info} = Nx.Vulkan.device_info()
    assert {:ok, report} = Nx.Vulkan.Doctor.report()

    for part <- [info.name, info.driver, info.api_version, info.cache_dir, "2 + 2 = 4", "at most"],
        do: assert(report =~ part)

    for device <- info.devices, do: assert(report =~ "#{device.index}: #{device.name}")
    for feature <- [:float64, :int64, :int8], do: assert(report =~ Atom.to_string(feature))
  end

  test "it says why the device is the one" do
    code = "IO.puts(elem(Nx.Vulkan.Doctor.report(), 1))"
    assert in_own_beam(code, [{"NX_VULKAN_DEVICE", "0"}]) =~ "chosen: NX_VULKAN_DEVICE=0"
    assert in_own_beam(code, [{"NX_VULKAN_DEVICE", nil}]) =~ "chosen: the first that can be used"
  end

  test "without a device it is an error that says what to install" do
    code = "{:error, report} = Nx.Vulkan.Doctor.report(); IO.puts(report)"
    nowhere = [{"VK_ICD_FILENAMES", "/nonexistent"}, {"VK_DRIVER_FILES", "/nonexistent"}]

    for env <- [nowhere, [{"NX_VULKAN_DEVICE", "no such device"}]] do
      report = in_own_beam(code, env)
      assert report =~ ~r/Device +none: /
      assert report =~ "install"
    end
  end
end
