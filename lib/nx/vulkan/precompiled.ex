defmodule Nx.Vulkan.Precompiled do
  @moduledoc false
  # Archives of bin/package: the library and shaders, built elsewhere. It writes below priv alone, and only
  # the Mix compile step uses it.

  @library "native/libnx_vulkan.so"
  # The library starts it: it tries drivers.
  @probe "native/nx_vulkan_probe"
  # Holds the checksum of the archive that the library came from.
  @mark "native/precompiled.sha256"

  @doc """
  Puts the archive's files into the folder `priv`, unless they are there.

  The archive's SHA-256 must be `:checksum` or, where that is nil, what the file beside the archive with
  `.sha256` appended to its name says. With `:key`, an Ed25519 public key in base64, the file with `.sig`
  appended must be that key's signature of the archive. Raises `Mix.Error` for any other archive, having
  written nothing.
  """
  @spec unpack(Path.t(), [checksum: String.t() | nil, key: String.t() | nil], Path.t()) ::
          :ok | :noop
  def unpack(archive, trusted, priv) do
    # Mix compiles a dependency in the dependency's folder.
    if Path.type(archive) != :absolute,
      do: Mix.raise("NX_VULKAN_PRECOMPILED must be a full path, got: #{archive}")

    content = read!(archive)
    Mix.ensure_application!(:crypto)
    checksum = Base.encode16(:crypto.hash(:sha256, content), case: :lower)
    expected = checksum(trusted[:checksum] || read!(archive <> ".sha256"))

    if checksum != expected,
      do: Mix.raise("#{archive} has the SHA-256 #{checksum}, but it should be #{expected}")

    if trusted[:key], do: verify!(archive, content, trusted[:key])

    if File.read(Path.join(priv, @mark)) == {:ok, checksum} do
      :noop
    else
      files = files(archive, content)

      # A probe of another build does not go with the library.
      remove(priv)

      for {name, content} <- files ++ [{@mark, checksum}],
          do: write!(Path.join(priv, name), content)

      :ok
    end
  end

  @doc "Whether the library there came from an archive."
  @spec unpacked?(Path.t()) :: boolean()
  def unpacked?(priv), do: File.exists?(Path.join(priv, @mark))

  @doc "Removes the library, wherever it came from."
  @spec remove(Path.t()) :: :ok
  def remove(priv), do: Enum.each([@library, @probe, @mark], &File.rm(Path.join(priv, &1)))

  @doc "Puts what cargo built into the folder `priv`, where it differs from what is there."
  @spec install(Path.t(), %{library: binary(), probe: binary()}) :: :ok | :noop
  def install(priv, built) do
    # The times say nothing: another target folder may hold an older build with other flags.
    changed =
      for {name, content} <- [{@probe, built.probe}, {@library, built.library}],
          path = Path.join(priv, name),
          File.read(path) != {:ok, content},
          do: write!(path, content)

    if changed == [], do: :noop, else: :ok
  end

  # Replaces a file. A running BEAM keeps the one that it has mapped.
  defp write!(path, content) do
    File.mkdir_p!(Path.dirname(path))
    File.write!(path <> ".new", content)
    if Path.basename(path) == Path.basename(@probe), do: File.chmod!(path <> ".new", 0o755)
    File.rename!(path <> ".new", path)
  end

  defp verify!(archive, content, key) do
    with {:ok, <<key::binary-32>>} <- Base.decode64(String.trim(key)),
         <<signature::binary-64>> <- read!(archive <> ".sig"),
         true <- :crypto.verify(:eddsa, :none, content, signature, [key, :ed25519]) do
      :ok
    else
      :error -> Mix.raise("NX_VULKAN_PRECOMPILED_KEY is no base64: #{key}")
      {:ok, _} -> Mix.raise("NX_VULKAN_PRECOMPILED_KEY is no Ed25519 key of 32 bytes: #{key}")
      _ -> Mix.raise("#{archive}.sig is no signature of the archive by the key #{key}")
    end
  end

  # As sha256sum writes it: the file's name may follow.
  defp checksum(text), do: text |> String.split() |> List.first("") |> String.downcase()

  defp read!(path) do
    case File.read(path) do
      {:ok, content} ->
        content

      {:error, reason} ->
        Mix.raise("NX_VULKAN_PRECOMPILED: #{path}: #{:file.format_error(reason)}")
    end
  end

  # Only files of these two folders are taken, whatever paths the archive has.
  defp files(archive, content) do
    with {:ok, entries} <- :erl_tar.extract({:binary, content}, [:compressed, :memory]),
         files =
           for({name, bytes} <- entries, target = target(Path.split(name)), do: {target, bytes}),
         true <- List.keymember?(files, @library, 0) do
      files
    else
      _ -> Mix.raise("#{archive} is no archive of bin/package: it holds no #{@library}")
    end
  end

  defp target(["." | path]), do: target(path)
  defp target([folder, name]) when folder in ["native", "shaders"], do: Path.join(folder, name)
  defp target(_other), do: nil
end
