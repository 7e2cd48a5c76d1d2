defmodule Nx.Vulkan.GuidesTest do
  @moduledoc "The guides' and the notebook's code, run as it stands there, and the results that they print."

  # The guides count fallbacks, set defaults and start servings: they are the BEAM's.
  use ExUnit.Case, async: false

  import ExUnit.CaptureIO

  alias Nx.Vulkan.Test.Cells

  @moduletag timeout: 1_800_000

  @guides Path.wildcard("guides/**/*.md")
  @notebooks Path.wildcard("livebooks/*.livemd")

  setup do
    Nx.default_backend(Nx.Vulkan.VulkanoBackend)
    Nx.Vulkan.Fallback.reset()
    fallback = Application.get_env(:nx_vulkan, :fallback)

    on_exit(fn ->
      Nx.global_default_backend(Nx.BinaryBackend)
      Application.put_env(:nx_vulkan, :fallback, fallback)
      :telemetry.detach("device memory")
    end)
  end

  for guide <- @guides do
    text = File.read!(guide)

    # BinaryBackend's log1p, which takes f64 where the device does not, loses digits.
    tags = for {tag, part} <- [nx_1_0: "io_call", float64: "log1p"], text =~ part, do: tag
    if text =~ "iex> ", do: doctest_file(guide, tags: tags)
  end

  # Configuration is for a project's own files, and telemetry_metrics a package that is not installed here:
  # Nx.Vulkan.TelemetryTest compares its metrics with the events.
  for path <- @guides ++ @notebooks,
      Enum.any?(Cells.read(path), &(elem(&1, 0) in ~w(elixir sh))) do
    if File.read!(path) =~ "glslc" and !System.find_executable("glslc"),
      do: @tag(skip: "glslc is not installed")

    # Samplers and chains compute in f64.
    if File.read!(path) =~ ~r/MCMC\.sample|Chain\.compile/, do: @tag(:float64)

    if File.read!(path) =~ ~r/Nx\.donatable|io_call/, do: @tag(:nx_1_0)

    test "the cells of #{path} run" do
      capture_io(:stderr, fn ->
        capture_io(fn ->
          Cells.run(unquote(path), [
            "Mix.install(",
            "import Config",
            "config :",
            "import Telemetry.Metrics"
          ])
        end)
      end)
    end
  end

  @tag :tmp_dir
  test "what a cell gives is compared with what the guide says", %{tmp_dir: folder} do
    file = Path.join(folder, "guide.md")
    run = fn text -> File.write!(file, "```elixir\n#{text}\n```\n") && Cells.run(file) end

    for right <- ["1 + 1\n#=> 2", "1 / 3\n#=> about 0.333", "self()\n#=> depends on the machine"],
        do: run.(right)

    for wrong <- ["1 + 1\n#=> 3", "1 / 3\n#=> about 0.4", "[a: 1]\n#=> [a: 1,\n#=>  b: 2]"],
        do: assert_raise(ExUnit.AssertionError, fn -> run.(wrong) end)
  end

  test "the notebook says what its cells give" do
    for path <- @notebooks do
      cells = for {"elixir", code, _} <- Cells.read(path), do: Cells.expected(code)
      assert Enum.count(cells, & &1) >= 5
    end
  end

  test "every guide is linked from the README" do
    readme = File.read!("README.md")

    for path <- @guides ++ @notebooks,
        path =~ ~r/index|^guides.\w+.md|livemd/,
        do: assert(readme =~ path)
  end
end
