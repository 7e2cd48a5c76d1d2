defmodule Nx.Vulkan.Doctor do
  @moduledoc """
  Reports what nx_vulkan finds on this machine: `mix nx_vulkan.doctor`, or, in a release,

      iex> {:ok, report} = Nx.Vulkan.Doctor.report()
      iex> report =~ "Device"
      true
  """

  import Bitwise, only: [<<<: 2]
  require Nx.Vulkan.Native, as: Native

  alias Nx.Vulkan.ProgramBuilder

  @doc """
  The report on a device, by default the global one, as text, after `:ok` where it can be used and a kernel ran on it, else
  `:error`.
  """
  @spec report(Nx.Vulkan.device()) :: {:ok | :error, String.t()}
  def report(device \\ nil) do
    {status, sections} =
      case device_info(device) do
        {:ok, info} ->
          # Before the check, whose memory would count as the clock's.
          clock = clock(info.index)
          {status, check} = check(info.index)
          {status, device(info, device) ++ clock ++ memory(info.index) ++ cache(info) ++ [check]}

        # A setting that is wrong: nothing to install.
        {:error, "NX_VULKAN_" <> _ = message} ->
          {:error, [{"Device", ["none: #{message}"]}]}

        {:error, message} ->
          {:error, [{"Device", ["none: #{message}" | advice(:os.type())]}]}
      end

    sections = [{"nx_vulkan", [version()]}] ++ sections ++ [{"Settings", settings()}]
    {status, Enum.map_join(sections, "\n", &section/1)}
  end

  defp section({title, lines}),
    do: String.pad_trailing(title, 12) <> Enum.join(lines, "\n" <> String.duplicate(" ", 12))

  defp version, do: to_string(Application.spec(:nx_vulkan, :vsn) || "of this checkout")

  defp device_info(device) do
    with {:error, _reason, message} <- Nx.Vulkan.device_info(device), do: {:error, message}
  rescue
    error in RuntimeError -> {:error, error.message}
  end

  defp device(info, asked) do
    slow =
      if info.type == :cpu,
        do: [
          "a driver that runs on the CPU: right, but slow. A GPU needs its maker's or Mesa's driver."
        ],
        else: []

    {has, lacks} =
      Enum.split_with([:float64, :int64, :int16, :int8], &(&1 in info.features))

    others =
      for d <- info.devices do
        used = if d.index == info.index, do: ", this one"
        "#{d.index}: #{d.name} (#{d.type}#{used})"
      end

    [
      {"Device", ["#{info.name} (#{info.type})", chosen(asked) | slow]},
      {"Driver", ["#{info.driver}, Vulkan #{info.api_version}"]},
      {"Devices", others},
      {"Features",
       [Enum.join(has, " ")] ++
         if(lacks == [], do: [], else: ["lacks #{Enum.join(lacks, " ")}"]) ++
         for({name, reason} <- info.refused, do: "refused #{name}: #{reason}")}
    ]
  end

  defp chosen(nil) do
    case System.get_env("NX_VULKAN_DEVICE") do
      unset when unset in [nil, ""] ->
        "chosen: the first that can be used, discrete before integrated, virtual and CPU"

      wanted ->
        "chosen: NX_VULKAN_DEVICE=#{wanted}"
    end
  end

  defp chosen(device), do: "asked for: #{device}"

  defp clock(device) do
    case Native.call(clock(device)) do
      {:ok, {:held, bytes}} ->
        taken = if bytes, do: "#{size(bytes)} of device memory", else: "device memory"
        [{"Clock", ["held up by a CUDA context, which takes #{taken}"]}]

      {:ok, {:free, reason}} ->
        [{"Clock", ["left to the driver: #{reason}"]}]

      {:error, _reason, message} ->
        [{"Clock", [message]}]
    end
  end

  defp memory(device) do
    case Native.call(memory_info(device)) do
      %{limit: limit, pool_bytes: pool, used_bytes: used, buffers: buffers} ->
        [
          {"Memory",
           [
             "#{size(limit)} at most, #{size(pool)} taken, #{size(used)} in #{buffers} live buffers"
           ]}
        ]

      {:error, _reason, message} ->
        [{"Memory", [message]}]
    end
  end

  defp cache(%{cache_dir: nil}),
    do: [{"Cache", ["none: neither NX_VULKAN_CACHE_DIR nor HOME is set"]}]

  defp cache(%{cache_dir: folder, cache_limit: limit}) do
    files = Path.wildcard(Path.join(folder, "*.pipeline"))

    # There may be tens of thousands, and each would wait for the BEAM's one process for files.
    bytes =
      for file <- files,
          {:ok, info} <- [:file.read_file_info(file, [:raw])],
          reduce: 0,
          do: (sum -> sum + File.Stat.from_record(info).size)

    [{"Cache", [folder, "#{length(files)} pipelines, #{size(bytes)} of #{size(limit)} at most"]}]
  end

  # The whole data path once: compile, upload, dispatch, read.
  defp check(device) do
    two = {:scalar, {:u, 32}, <<2::32-native>>}
    {nodes, inputs, shape} = ProgramBuilder.single(:add, {:u, 32}, [two, two], {1})

    with {:ok, ref} <- Native.call(run(nodes, inputs, shape, device)),
         {:ok, <<4::32-native>>} <- Native.call(buf_download(ref)) do
      {:ok, {"Check", ["a kernel was built and ran: 2 + 2 = 4"]}}
    else
      other -> {:error, {"Check", ["FAILED: #{inspect(other)}"]}}
    end
  end

  defp settings do
    fallback = "fallback: #{inspect(Application.get_env(:nx_vulkan, :fallback, :allow))}"

    set =
      for {"NX_VULKAN_" <> _ = name, value} <- Enum.sort(System.get_env()), do: "#{name}=#{value}"

    [fallback | set]
  end

  defp advice({:unix, :linux}) do
    [
      "AMD, Intel or no GPU: Mesa's drivers and the loader",
      "  Debian, Ubuntu   apt install mesa-vulkan-drivers libvulkan1",
      "  Fedora           dnf install mesa-vulkan-drivers vulkan-loader",
      "  Arch             pacman -S vulkan-icd-loader vulkan-radeon (or vulkan-intel, vulkan-swrast)",
      "NVIDIA: the maker's driver brings Vulkan along, in a container its graphics capability must be on",
      "`vulkaninfo --summary` (package vulkan-tools) shows what the loader finds"
    ]
  end

  defp advice({:unix, :freebsd}),
    do: [
      "pkg install vulkan-loader mesa-dri (and drm-kmod for the GPU, or lavapipe from mesa-dri)"
    ]

  defp advice({:unix, :darwin}), do: ["brew install vulkan-loader molten-vk"]
  defp advice(_other), do: ["install the GPU maker's driver and the Vulkan loader"]

  defp size(bytes) when bytes >= 1 <<< 30, do: "#{Float.round(bytes / (1 <<< 30), 1)} GiB"
  defp size(bytes) when bytes >= 1 <<< 20, do: "#{Float.round(bytes / (1 <<< 20), 1)} MiB"
  defp size(bytes), do: "#{bytes} bytes"
end
