Code.require_file("support/native_case.exs", __DIR__)

defmodule Nx.Vulkan.ProbeTest do
  @moduledoc "A driver that was not seen before is tried in a process of its own, once."

  use Nx.Vulkan.Test.NativeCase, async: true

  @tag timeout: 1_800_000
  @tag :tmp_dir
  test "the BEAM starts it, and remembers what it found", %{tmp_dir: folder} do
    code = "{:ok, info} = Nx.Vulkan.device_info(); IO.inspect(info.refused)"
    env = [{"NX_VULKAN_CACHE_DIR", folder}]
    files = fn -> Path.wildcard(Path.join(folder, "*.pipeline")) end

    assert in_own_beam(code, env) =~ "%{}"
    # The BEAM itself has built no kernel.
    tried = files.()
    assert length(tried) > 3

    assert in_own_beam(code, env) =~ "%{}"
    assert files.() == tried
  end
end
