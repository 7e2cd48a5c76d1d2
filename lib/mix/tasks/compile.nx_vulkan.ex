defmodule Mix.Tasks.Compile.NxVulkan do
  @shortdoc "Builds the Rust crate into priv/native"

  @moduledoc """
  Builds the crate `nx_vulkan` with cargo (release profile) and puts the library at
  `priv/native/libnx_vulkan.so`, where `Nx.Vulkan.Native` loads it.

  Cargo decides whether anything has to be built. The library is copied only when cargo's is newer,
  under another name first: a running BEAM keeps the file it has mapped.

  `CARGO_TARGET_DIR` is honoured; plain `cargo build --release` and `cargo test --release` share this
  step's build.
  """
  use Mix.Task.Compiler

  @library "priv/native/libnx_vulkan.so"

  @impl true
  def run(_args) do
    cargo = System.find_executable("cargo") || Mix.raise(no_cargo())
    target = System.get_env("CARGO_TARGET_DIR", "target")

    with :ok <- command("bin/link-shaderc", []),
         :ok <- command(cargo, ["build", "--release", "--lib", "--target-dir", target]) do
      status = install(Path.join([target, "release", built_name()]))
      # priv may not have existed when Mix laid out _build.
      Mix.Project.build_structure()
      {status, []}
    else
      :error -> {:error, []}
    end
  end

  @impl true
  def clean do
    File.rm(@library)
    :ok
  end

  defp command(executable, args) do
    case System.cmd(Path.expand(executable), args, into: IO.stream(), stderr_to_stdout: true) do
      {_, 0} -> :ok
      {_, _} -> :error
    end
  end

  defp install(built) do
    if modified(built) > modified(@library) do
      File.mkdir_p!(Path.dirname(@library))
      File.cp!(built, @library <> ".new")
      File.rename!(@library <> ".new", @library)

      # The compiler may have loaded the old one, and a NIF library goes with the module's last code.
      :code.purge(Nx.Vulkan.Native)
      :code.delete(Nx.Vulkan.Native)
      :code.purge(Nx.Vulkan.Native)
      :ok
    else
      :noop
    end
  end

  defp modified(path) do
    case File.stat(path, time: :posix) do
      {:ok, %{mtime: mtime}} -> mtime
      {:error, :enoent} -> 0
    end
  end

  # The BEAM looks for .so on macOS too.
  defp built_name do
    case :os.type() do
      {:unix, :darwin} -> "libnx_vulkan.dylib"
      {:unix, _} -> "libnx_vulkan.so"
    end
  end

  defp no_cargo do
    """
    cargo is not on the PATH, and nx_vulkan builds its Rust crate with it.
    Run bin/setup, or install the Rust toolchain that rust-toolchain.toml names.\
    """
  end
end
