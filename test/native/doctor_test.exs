Code.require_file("support/native_case.exs", __DIR__)

defmodule Nx.Vulkan.DoctorTest do
  use Nx.Vulkan.Test.NativeCase, async: true

  import ExUnit.CaptureIO

  # Machines may be busy, and each test starts a BEAM.
  @moduletag timeout: 1_800_000

  test "the report names the device, its driver and features, memory and cache, and runs a kernel" do
    {:ok, info} = Nx.Vulkan.device_info()
    assert {:ok, report} = Nx.Vulkan.Doctor.report()

    for part <- [
          info.name,
          info.driver,
          info.api_version,
          info.cache_dir,
          "2 + 2 = 4",
          "at most",
          "Clock"
        ],
        do: assert(report =~ part)

    for device <- info.devices, do: assert(report =~ "#{device.index}: #{device.name}")
    for feature <- [:float64, :int64, :int8], do: assert(report =~ Atom.to_string(feature))
  end

  test "it says why the device is the one" do
    code = "IO.puts(elem(Nx.Vulkan.Doctor.report(), 1))"
    assert in_own_beam(code, [{"NX_VULKAN_DEVICE", "0"}]) =~ "chosen: NX_VULKAN_DEVICE=0"
    assert in_own_beam(code, [{"NX_VULKAN_DEVICE", nil}]) =~ "chosen: the first that can be used"
  end

  test "the task reports on the device that it is given, and ends with status 1 where there is none" do
    {:ok, info} = Nx.Vulkan.device_info()
    device = Enum.find(info.devices, &(&1.index == info.index))
    doctor = fn arguments -> Mix.Tasks.NxVulkan.Doctor.run(arguments) end

    for asked <- ["#{device.index}", device.uuid] do
      report = capture_io(fn -> doctor.([asked]) end)
      assert report =~ "asked for: #{asked}"
      assert report =~ "#{device.index}: #{device.name} (#{device.type}, this one)"
    end

    none = fn -> assert catch_exit(doctor.(["no such device"])) == {:shutdown, 1} end
    assert capture_io(none) =~ "no such device fits none of the devices"
    assert_raise Mix.Error, fn -> doctor.(["0", "1"]) end
  end

  test "without a device it is an error that says what to install" do
    code = "{:error, report} = Nx.Vulkan.Doctor.report(); IO.puts(report)"
    nowhere = [{"VK_ICD_FILENAMES", "/nonexistent"}, {"VK_DRIVER_FILES", "/nonexistent"}]
    report = in_own_beam(code, nowhere)
    assert report =~ ~r/Device +none: /
    assert report =~ "install"
  end

  test "a setting that is wrong is named, with what it may be, and nothing has to be installed" do
    code = "{:error, report} = Nx.Vulkan.Doctor.report(); IO.puts(report)"
    {:ok, info} = Nx.Vulkan.device_info()

    for {name, value, what} <- [
          {"NX_VULKAN_DEVICE", "no such device", hd(info.devices).name},
          {"NX_VULKAN_DISABLE", "floats", "float64"},
          {"NX_VULKAN_MEMORY_LIMIT", "2GB", "bytes"},
          {"NX_VULKAN_CACHE_LIMIT", "1GB", "bytes"},
          {"NX_VULKAN_HOLD_CLOCK", "high", "neither 0 nor 1"},
          {"NX_VULKAN_TIMEOUT", "0", "seconds"}
        ] do
      report = in_own_beam(code, [{name, value}])
      assert report =~ "none: #{name}=#{value}"
      assert report =~ what
      refute report =~ "install"
    end
  end
end
