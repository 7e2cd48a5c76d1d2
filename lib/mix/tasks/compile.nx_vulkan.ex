defmodule Mix.Tasks.Compile.NxVulkan do
  @shortdoc "Builds the Rust crate into priv/native"

  @moduledoc """
  Builds the crate `nx_vulkan` with cargo (release profile) and puts the library at
  `priv/native/libnx_vulkan.so`, where the BEAM loads it, and the program that tries drivers beside it.

  Cargo decides whether anything has to be built. Both files are copied only when cargo's differ,
  under another name first: a running BEAM keeps the file it has mapped.

  `CARGO_TARGET_DIR` is honoured; plain `cargo build --release` and `cargo test --release` share this
  step's build.

  ## Built elsewhere

  `NX_VULKAN_PRECOMPILED` names an archive that `bin/package` made on a machine of the same kind, by its
  full path. Then nothing is built, and neither Rust nor shaderc is needed. The archive's SHA-256 must be
  the one in `NX_VULKAN_PRECOMPILED_SHA256` or, where that is not set, in the file beside the archive
  whose name has `.sha256` appended. With `NX_VULKAN_PRECOMPILED_KEY`, an Ed25519 public key in base64, the
  file whose name has `.sig` appended must be that key's signature of the archive.
  """
  use Mix.Task.Compiler

  alias Nx.Vulkan.Precompiled

  @priv "priv"

  @impl true
  def run(_args) do
    status =
      case setting("NX_VULKAN_PRECOMPILED") do
        nil -> build()
        archive -> Precompiled.unpack(archive, trusted(), @priv)
      end

    # The compiler may have loaded the old library, and a NIF library goes with the module's last code.
    if status == :ok do
      :code.purge(Nx.Vulkan.Native)
      :code.delete(Nx.Vulkan.Native)
      :code.purge(Nx.Vulkan.Native)
    end

    # priv may not have existed when Mix laid out _build.
    if status != :error, do: Mix.Project.build_structure()
    {status, []}
  end

  @impl true
  def clean, do: Precompiled.remove(@priv)

  defp trusted do
    [
      checksum: setting("NX_VULKAN_PRECOMPILED_SHA256"),
      key: setting("NX_VULKAN_PRECOMPILED_KEY")
    ]
  end

  defp setting(name) do
    value = System.get_env(name, "")
    if value != "", do: value
  end

  defp build do
    cargo = System.find_executable("cargo") || Mix.raise(no_cargo())
    target = System.get_env("CARGO_TARGET_DIR", "target")

    with :ok <- command("bin/link-shaderc", []),
         :ok <- command(cargo, ["build", "--release", "--lib", "--bins", "--target-dir", target]) do
      if Precompiled.unpacked?(@priv), do: clean()

      Precompiled.install(@priv, %{
        library: File.read!(Path.join([target, "release", built_name()])),
        probe: File.read!(Path.join([target, "release", "nx_vulkan_probe"]))
      })
    end
  end

  defp command(executable, args) do
    case System.cmd(Path.expand(executable), args, into: IO.stream(), stderr_to_stdout: true) do
      {_, 0} -> :ok
      {_, _} -> :error
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
    Install Rust by rustup, which takes the version from rust-toolchain.toml, or set NX_VULKAN_PRECOMPILED
    to the full path of a release's archive for this system.\
    """
  end
end
