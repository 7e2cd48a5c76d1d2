Code.require_file("support/native_case.exs", __DIR__)

defmodule Nx.Vulkan.PrecompiledTest do
  @moduledoc "What the Mix compile step does with `NX_VULKAN_PRECOMPILED`."

  use Nx.Vulkan.Test.NativeCase, async: true

  import Nx.Vulkan.Precompiled, only: [unpack: 3, unpacked?: 1, remove: 1]

  # Mix leaves applications out of the code path that the project does not name.
  setup_all do: Mix.ensure_application!(:crypto)

  setup do
    folder = Path.dirname(temporary_file("here", ""))
    %{folder: folder, priv: Path.join(folder, "priv")}
  end

  # An archive of these files, with its checksum in a file next to it.
  defp archive(folder, files) do
    path = Path.join(folder, "nx_vulkan.tar.gz")
    entries = for {name, content} <- files, do: {to_charlist(name), content}
    :ok = :erl_tar.create(path, entries, [:compressed])
    File.write!(path <> ".sha256", "#{sha256(path)}  nx_vulkan.tar.gz\n")
    path
  end

  defp sha256(path), do: Base.encode16(:crypto.hash(:sha256, File.read!(path)), case: :lower)
  defp library(priv), do: File.read(Path.join(priv, "native/libnx_vulkan.so"))

  @good [
    {"native/libnx_vulkan.so", "library"},
    {"native/nx_vulkan_probe", "probe"},
    {"shaders/matmul.spv", "shader"}
  ]

  test "an archive's files are installed, once", %{folder: folder, priv: priv} do
    path = archive(folder, @good)
    assert unpack(path, [], priv) == :ok
    assert unpacked?(priv)
    assert library(priv) == {:ok, "library"}
    assert File.read!(Path.join(priv, "shaders/matmul.spv")) == "shader"
    # It can be started.
    probe = Path.join(priv, "native/nx_vulkan_probe")
    assert Bitwise.band(File.stat!(probe).mode, 0o777) == 0o755
    assert unpack(path, [], priv) == :noop

    assert unpack(archive(folder, [{"native/libnx_vulkan.so", "newer"}]), [], priv) == :ok
    assert library(priv) == {:ok, "newer"}
    refute File.exists?(probe), "a probe of another build does not go with the library"
  end

  test "what was removed is installed again", %{folder: folder, priv: priv} do
    path = archive(folder, @good)
    unpack(path, [], priv)
    remove(priv)
    refute unpacked?(priv)
    assert {library(priv), unpack(path, [], priv)} == {{:error, :enoent}, :ok}
  end

  test "another checksum is refused, and nothing is written", %{folder: folder, priv: priv} do
    path = archive(folder, @good)
    File.write!(path, "more", [:append])
    assert_raise Mix.Error, ~r/has the SHA-256 .* should be/, fn -> unpack(path, [], priv) end
    refute File.exists?(priv)
  end

  test "a checksum that is given counts, not the one next to the archive", context do
    path = archive(context.folder, @good)
    File.write!(path <> ".sha256", "no checksum")
    assert unpack(path, [checksum: String.upcase(sha256(path))], context.priv) == :ok
    other = sha256(path <> ".sha256")

    assert_raise Mix.Error, ~r/should be #{other}/, fn ->
      unpack(path, [checksum: other], context.priv)
    end
  end

  describe "with a public key" do
    setup %{folder: folder} do
      {public, private} = :crypto.generate_key(:eddsa, :ed25519)
      path = archive(folder, @good)
      sign(path, File.read!(path), private)
      %{path: path, key: Base.encode64(public), private: private}
    end

    test "an archive that it signed is installed", %{path: path, key: key, priv: priv} do
      assert unpack(path, [key: key <> "\n"], priv) == :ok
      assert library(priv) == {:ok, "library"}
    end

    # LibreSSL, macOS's, has no option for it.
    unless System.find_executable("openssl") && System.find_executable("bash") &&
             match?({"OpenSSL 3" <> _, 0}, System.cmd("openssl", ["version"])),
           do: @tag(skip: "OpenSSL 3 is not installed")

    test "an archive that the release's workflow signed is installed", context do
      folder = context.folder
      File.mkdir_p!(Path.join(folder, "dist"))
      path = archive(Path.join(folder, "dist"), @good)

      # The commands as they stand in the guide and in the workflow. GitHub starts bash in this way.
      [make, publish] =
        for "$ openssl " <> rest = line <- File.stream!("guides/without_rust.md"),
            rest =~ ~r/^(genpkey|pkey) /,
            do: String.trim_leading(line, "$ ")

      [sign] =
        for line <- File.stream!(".github/workflows/precompiled.yml"),
            [_, "run", command] <- [Regex.run(~r/- (run): (.*openssl pkeyutl.*)/, line)],
            do: command

      bash = fn command, env ->
        arguments = ["--noprofile", "--norc", "-eo", "pipefail", "-c", command]
        System.cmd("bash", arguments, cd: folder, env: env, stderr_to_stdout: true)
      end

      {_, 0} = bash.(make, [])
      {public, 0} = bash.(publish, [])
      {_, status} = bash.(sign, [{"KEY", ""}])
      assert status != 0
      {_, 0} = bash.(sign, [{"KEY", File.read!(Path.join(folder, "key.pem"))}])
      assert unpack(path, [key: public], context.priv) == :ok
    end

    test "any other is refused, and nothing is written", context do
      %{path: path, key: key, private: private, priv: priv} = context

      refused = fn key, why ->
        assert_raise Mix.Error, why, fn -> unpack(path, [key: key], priv) end
      end

      {another, _} = :crypto.generate_key(:eddsa, :ed25519)
      refused.(Base.encode64(another), ~r/\.sig is no signature/)
      sign(path, "another archive", private)
      refused.(key, ~r/\.sig is no signature/)
      File.write!(path <> ".sig", "short")
      refused.(key, ~r/\.sig is no signature/)
      File.rm!(path <> ".sig")
      refused.(key, ~r/\.sig: no such file/)
      refused.("no base64!", ~r/NX_VULKAN_PRECOMPILED_KEY is no base64/)
      refused.(Base.encode64("short"), ~r/NX_VULKAN_PRECOMPILED_KEY is no Ed25519 key/)
      refute File.exists?(priv)
    end

    # openssl pkeyutl -sign -rawin writes the same 64 bytes.
    defp sign(path, content, private),
      do: File.write!(path <> ".sig", :crypto.sign(:eddsa, :none, content, [private, :ed25519]))
  end

  test "files that belong elsewhere stay in the archive", %{folder: folder, priv: priv} do
    outside = for name <- ~w(../up native/../../up lib/code.ex native/a/b up), do: {name, "x"}
    assert unpack(archive(folder, outside ++ @good), [], priv) == :ok
    found = for path <- Path.wildcard(Path.join(folder, "**")), File.regular?(path), do: path

    assert Enum.sort(Enum.map(found, &Path.relative_to(&1, folder))) ==
             ~w(here nx_vulkan.tar.gz nx_vulkan.tar.gz.sha256 priv/native/libnx_vulkan.so) ++
               ~w(priv/native/nx_vulkan_probe priv/native/precompiled.sha256 priv/shaders/matmul.spv)
  end

  test "what is no such archive is refused with its name", %{folder: folder, priv: priv} do
    empty = archive(folder, [{"readme", "no library"}])
    assert_raise Mix.Error, ~r/#{empty} .* no native.libnx/, fn -> unpack(empty, [], priv) end

    File.write!(empty, "no archive")
    checksum = sha256(empty)

    assert_raise Mix.Error, ~r/#{empty} is no/, fn ->
      unpack(empty, [checksum: checksum], priv)
    end

    missing = Path.join(folder, "missing.tar.gz")
    assert_raise Mix.Error, ~r/#{missing}: no such/, fn -> unpack(missing, [], priv) end
    assert_raise Mix.Error, ~r/full path/, fn -> unpack("a.tar.gz", [], priv) end
  end
end
