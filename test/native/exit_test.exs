Code.require_file("support/native_case.exs", __DIR__)

defmodule Nx.Vulkan.ExitTest do
  @moduledoc "The BEAM may end at any time, and a driver that still builds a pipeline then crashes."

  use Nx.Vulkan.Test.NativeCase, async: true

  @tag timeout: 1_800_000
  @tag :tmp_dir
  test "it ends once what is being built is complete", %{tmp_dir: folder} do
    while_building(~s|IO.puts("release"); System.halt(0)|, folder)
  end
end
