defmodule Nx.Vulkan.HexPackageTest do
  @moduledoc "What `mix hex.build` packs, by the list of files in `mix.exs`, and the package that it builds."

  use ExUnit.Case, async: true

  test "a package holds every file that its compilation reads" do
    assert Enum.reject(packed(), &File.exists?/1) == []
    assert "src/lib.rs" in read_by_cargo()
    assert "shaders/leapfrog_normal.comp" in read_by_cargo()
    assert (read_by_mix() ++ read_by_cargo()) -- packed() == []
  end

  # Hex is an archive of Mix, which a machine need not have.
  if Path.wildcard(Path.join(Mix.path_for(:archives), "hex*")) == [],
    do: @tag(skip: "Hex is not installed")

  @tag :tmp_dir
  test "`mix hex.build` builds it without a complaint and without the network", %{tmp_dir: folder} do
    tar = Path.join(folder, "package.tar")
    # A package depends on packages of Hex alone.
    env = [{"MIX_ENV", "dev"}, {"NX_VULKAN_DEPS", "hex"}, {"HEX_OFFLINE", "1"}]
    arguments = ["hex.build", "--output", tar]
    {output, 0} = System.cmd("mix", arguments, env: env, stderr_to_stdout: true)
    refute output =~ ~r/^[^\/]*(warning|missing|not included)/im
    assert output =~ "nx ~> 0.13 or ~> 1.0"

    Mix.ensure_application!(:crypto)
    parts = extract({:binary, File.read!(tar)}, [])
    signed = for name <- ["VERSION", "metadata.config", "contents.tar.gz"], do: parts[name]
    assert parts["CHECKSUM"] == Base.encode16(:crypto.hash(:sha256, signed))

    contents = extract({:binary, parts["contents.tar.gz"]}, [:compressed])
    assert Enum.sort(Map.keys(contents)) == Enum.sort(Enum.filter(packed(), &File.regular?/1))
    for {path, content} <- contents, do: assert(content == File.read!(path), path)

    # The compile step runs it.
    script = [:compressed, cwd: folder, files: [~c"bin/link-shaderc"]]
    :ok = :erl_tar.extract({:binary, parts["contents.tar.gz"]}, script)
    assert Bitwise.band(File.stat!(Path.join(folder, "bin/link-shaderc")).mode, 0o100) != 0
  end

  defp extract(archive, options) do
    {:ok, files} = :erl_tar.extract(archive, [:memory | options])
    for {name, content} <- files, into: %{}, do: {to_string(name), content}
  end

  defp packed do
    for name <- Mix.Project.config()[:package][:files],
        path <- [name | Path.wildcard(name <> "/**", match_dot: true)],
        do: path
  end

  defp read_by_mix do
    ~w(mix.exs bin/link-shaderc Cargo.toml Cargo.lock rust-toolchain.toml) ++
      Path.wildcard("lib/**/*.ex")
  end

  # cargo writes beside the library what rustc and the build script read. The build itself makes what is in priv/ and `target`.
  defp read_by_cargo do
    target = Path.relative_to_cwd(System.get_env("CARGO_TARGET_DIR", "target"))
    dependencies = File.read!(Path.join(target, "release/libnx_vulkan.d"))

    for line <- String.split(dependencies, "\n", trim: true),
        [_library, read] = String.split(line, ": ", parts: 2),
        path <- String.split(read, ~r/(?<!\\) /, trim: true),
        path = Path.relative_to_cwd(String.replace(path, "\\ ", " ")),
        not String.starts_with?(path, ["priv/", target <> "/"]),
        do: path
  end
end
