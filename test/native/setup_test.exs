defmodule Nx.Vulkan.SetupTest do
  @moduledoc "What `bin/setup` does for users who may not install packages, on a machine that lacks all of them."

  use ExUnit.Case, async: true

  @moduletag :tmp_dir

  # What Debian's smallest system has and the script uses.
  @tools ~w(sh cat cut dirname find grep head mktemp rm sed sort)

  setup %{tmp_dir: folder} do
    for tool <- @tools,
        do: File.ln_s!(System.find_executable(tool), Path.join(folder, tool))

    program(folder, "id", "echo 1000")
    program(folder, "apt-get", "exit 0")
    :ok
  end

  defp program(folder, name, script) do
    path = Path.join(folder, name)
    File.write!(path, "#!/bin/sh\n" <> script)
    File.chmod!(path, 0o755)
  end

  defp run_setup(folder) do
    env = [{"PATH", folder}, {"HOME", folder}, {"CARGO_HOME", folder}, {"NX_VULKAN_DEPS", nil}]
    System.cmd(Path.expand("bin/setup"), [], env: env, stderr_to_stdout: true)
  end

  test "a user who has neither root nor sudo is told what to ask for", %{tmp_dir: folder} do
    assert {output, 1} = run_setup(folder)
    assert output =~ "Missing on this machine:"
    assert output =~ ~r/#{Path.expand("bin/install-packages")} .*gcc libc6-dev .*elixir/
  end

  test "so is a user whom sudo refuses", %{tmp_dir: folder} do
    program(folder, "sudo", "exit 1")
    assert {output, 1} = run_setup(folder)
    assert output =~ Path.expand("bin/install-packages") <> " "
  end

  test "packages alone are installed by sudo", %{tmp_dir: folder} do
    program(folder, "sudo", ~s(echo "by sudo: $*"))
    assert {output, 1} = run_setup(folder)
    assert output =~ ~r"by sudo: bin/install-packages .*gcc libc6-dev"
    assert output =~ "There is no C compiler (cc)."
  end

  defp install(folder, arguments) do
    env = [{"PATH", folder}]
    System.cmd(Path.expand("bin/install-packages"), arguments, env: env, stderr_to_stdout: true)
  end

  test "packages are not installed without root", %{tmp_dir: folder} do
    assert install(folder, ["gcc"]) == {"bin/install-packages needs root.\n", 1}
    assert install(folder, []) == {"usage: bin/install-packages PACKAGE...\n", 1}
  end

  test "what apt writes is shown where it fails", %{tmp_dir: folder} do
    program(folder, "id", "echo 0")
    program(folder, "apt-cache", "echo o=Debian,n=trixie,")
    # Neither the update nor the simulation ends in the package.
    apt = fn status ->
      ~s(case "$*" in *gcc\) echo "written by apt" >&2; exit #{status} ;; esac)
    end

    program(folder, "apt-get", apt.(0))
    assert install(folder, ["gcc"]) == {"Installing: gcc\n", 0}

    program(folder, "apt-get", apt.(100))

    assert install(folder, ["gcc"]) ==
             {"Installing: gcc\nwritten by apt\napt could not install them.\n", 1}
  end
end
