defmodule Nx.Vulkan.HexPackageTest do
  @moduledoc "What `mix hex.build` packs, by the list of files in `mix.exs`."

  use ExUnit.Case, async: true

  test "a package holds every file that its compilation reads" do
    packed =
      for name <- Mix.Project.config()[:package][:files],
          path <- [name | Path.wildcard(name <> "/**")],
          do: path

    assert Enum.reject(packed, &File.exists?/1) == []

    read_by_mix =
      ~w(mix.exs bin/link-shaderc Cargo.toml Cargo.lock rust-toolchain.toml) ++
        Path.wildcard("lib/**/*.ex")

    assert "src/lib.rs" in read_by_cargo()
    assert "shaders/leapfrog_normal.comp" in read_by_cargo()
    assert (read_by_mix ++ read_by_cargo()) -- packed == []
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
