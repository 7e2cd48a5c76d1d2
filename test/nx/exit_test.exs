defmodule Nx.Vulkan.ExitTest do
  @moduledoc "The BEAM may end at any time."

  use ExUnit.Case, async: true

  # Processes that build kernels, and the end so many milliseconds later.
  @code """
  x = Nx.iota({512, 512}, type: :f32, backend: Nx.Vulkan.VulkanoBackend)
  Nx.to_binary(Nx.add(x, 1))
  functions = [:sin, :cos, :tan, :erf, :tanh, :exp, :log, :cbrt, :asin, :acos, :atan, :sinh]
  for i <- 1..6, do: spawn(fn -> for f <- Enum.drop(functions, i), do: apply(Nx, f, [x]) end)
  Process.sleep(String.to_integer(System.fetch_env!("MILLISECONDS")))
  System.halt(0)
  """

  @tag timeout: 1_800_000
  @tag :tmp_dir
  test "while kernels are built", %{tmp_dir: folder} do
    for milliseconds <- [0, 5, 15, 30, 60] do
      env = [
        {"MIX_ENV", "test"},
        {"MILLISECONDS", "#{milliseconds}"},
        {"NX_VULKAN_CACHE_DIR", Path.join(folder, "#{milliseconds}")},
        {"MESA_SHADER_CACHE_DISABLE", "true"}
      ]

      arguments = ["run", "--no-compile", "--no-deps-check", "-e", @code]
      {output, status} = System.cmd("mix", arguments, env: env, stderr_to_stdout: true)
      assert status == 0, "#{milliseconds} ms: status #{status}, #{output}"
    end
  end
end
