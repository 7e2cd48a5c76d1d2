defmodule NxVulkan.MixProject do
  use Mix.Project

  @version "0.1.0"

  # Compiles and runs without Nx: the raw calls and the step that builds the crate.
  @without_nx ~w(lib/nx/vulkan.ex lib/nx/vulkan/native.ex lib/nx/vulkan/native_v.ex) ++
                ~w(lib/nx/vulkan/error.ex lib/nx/vulkan/profile.ex) ++
                ~w(lib/nx/vulkan/doctor.ex lib/nx/vulkan/precompiled.ex lib/nx/vulkan/program_builder.ex) ++
                ~w(lib/mix/tasks/compile.nx_vulkan.ex lib/mix/tasks/nx_vulkan.doctor.ex)

  def project do
    [
      app: :nx_vulkan,
      version: @version,
      elixir: "~> 1.17",
      elixirc_paths: elixirc_paths(nx_from(), Mix.env()),
      # Last: the step is one of the project's own modules, so Elixir comes first.
      compilers: Mix.compilers() ++ [:nx_vulkan],
      start_permanent: Mix.env() == :prod,
      # Nx's own tests implement its protocols after compilation.
      consolidate_protocols: Mix.env() != :test,
      deps: deps(nx_from()) ++ docs_deps(nx_from()),
      docs: docs(),
      name: "NxVulkan",
      description: "GPU tensors for Elixir on any Vulkan driver: an Nx backend written in Rust",
      package: package()
    ]
  end

  def application do
    [extra_applications: [:logger], env: [fallback: :allow]]
  end

  def cli, do: [preferred_envs: [docs: :docs, "hex.publish": :docs]]

  # The examples and tests with other packages need these. A project that depends on this one does not get them, and the
  # application starts without them.
  @examples [:axon, :polaris, :scholar, :nimble_options]

  # ExDoc, and what it needs.
  @docs [:ex_doc, :earmark_parser, :makeup, :makeup_elixir, :makeup_erlang, :nimble_parsec]

  # NX_VULKAN_DEPS says where Nx comes from: "hex", "none", or a folder that contains nx, complex and
  # telemetry, and optionally the applications of @examples and of @docs. Unset: the default folder where it exists, else Hex.
  defp nx_from do
    default = Path.expand("~/.cache/nx_vulkan/deps")

    case System.get_env("NX_VULKAN_DEPS") do
      unset when unset in [nil, ""] -> if File.dir?(default), do: default, else: "hex"
      value -> value
    end
  end

  defp elixirc_paths("none", _env), do: @without_nx
  defp elixirc_paths(_nx, :test), do: ["lib", "test/support"]
  defp elixirc_paths(_nx, _env), do: ["lib"]

  defp deps("none"), do: []
  defp deps("hex"), do: [{:nx, "~> 0.13 or ~> 1.0"}, {:telemetry, "~> 0.4.0 or ~> 1.0"}]

  # The folder's versions override the requirements of Nx's own mix.exs.
  defp deps(folder) do
    path = fn app -> Path.join(Path.expand(folder), "#{app}") end
    needed = for app <- [:nx, :complex, :telemetry], do: {app, path: path.(app), override: true}

    optional = fn apps, envs ->
      for app <- apps, File.dir?(path.(app)) do
        {app, path: path.(app), override: true, only: envs, runtime: false}
      end
    end

    needed ++ optional.(@examples, [:dev, :test]) ++ optional.(@docs, [:docs])
  end

  defp docs_deps("hex"), do: [{:ex_doc, "~> 0.34", only: :docs, runtime: false}]
  defp docs_deps(_nx), do: []

  defp docs do
    [
      main: "readme",
      extras:
        ["README.md", "livebooks/intro.livemd"] ++
          pages("guides", ~w(which_gpu coming_from_exla)) ++
          pages("guides", ~w(configuration devices memory fallbacks precision definitions)) ++
          pages("guides", ~w(quantization chains sampling diagnostics kernels serving spirv)) ++
          pages("guides", ~w(without_rust platforms)) ++
          pages("guides", ~w(telemetry troubleshooting)) ++
          [
            # Nx's names: https://hexdocs.pm/nx/backend_documentation-convention.html
            "guides/backend_documentation/index.md": [filename: "backend_documentation"],
            "guides/backend_documentation/nx.md": [filename: "backend_documentation-nx"],
            "guides/backend_documentation/nx_lin_alg.md": [
              filename: "backend_documentation-nx_lin_alg"
            ],
            "bench/RESULTS.md": [filename: "benchmark_results"]
          ] ++
          pages("docs/performance", ~w(method eager_operations elementwise reductions)) ++
          pages("docs/performance", ~w(matmul_convolution sort_scatter_fft linear_algebra)) ++
          pages("docs/performance", ~w(compiled_definitions leapfrog_chains lavapipe memory_soak)) ++
          pages("docs/performance", ~w(cold_start_clock)) ++
          ["docs/validation_layer.md"] ++
          ["ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"],
      # Developers' pages name a module without documentation.
      skip_code_autolink_to: ["Nx.Vulkan.Catalogue"],
      assets: %{
        "docs/images" => "docs/images",
        "docs/performance/images" => "images",
        "guides/images" => "images"
      },
      groups_for_extras: [
        "Getting started": ~r"^livebooks/",
        "Backend documentation": ~r"^guides/backend_documentation/",
        Guides: ~r"^guides/",
        Performance: ~r"^(docs/performance|bench)/",
        "Working on nx_vulkan": ~w(docs/validation_layer.md ARCHITECTURE.md CONTRIBUTING.md)
      ],
      groups_for_modules: [
        "With Nx": [
          Nx.Vulkan,
          Nx.Vulkan.VulkanoBackend,
          Nx.Vulkan.Backend,
          Nx.Vulkan.Compiler,
          Nx.Vulkan.Profile,
          Nx.Vulkan.Chain,
          Nx.Vulkan.MCMC,
          Nx.Vulkan.MCMC.Diagnostics,
          Nx.Vulkan.MCMC.Plots,
          Nx.Vulkan.MCMC.Transform,
          Nx.Vulkan.Kernel,
          Nx.Vulkan.Quantization,
          Nx.Vulkan.Fallback,
          Nx.Vulkan.Support
        ],
        "Without Nx": [Nx.Vulkan.NativeV, Nx.Vulkan.Node, Nx.Vulkan.Doctor],
        Errors: [Nx.Vulkan.Error, Nx.Vulkan.Fallback.Error]
      ]
    ]
  end

  defp pages(folder, names), do: for(name <- names, do: "#{folder}/#{name}.md")

  defp package do
    [
      licenses: ["Apache-2.0"],
      links: %{},
      files:
        ~w(lib src shaders build.rs Cargo.toml Cargo.lock rust-toolchain.toml bin/link-shaderc) ++
          ~w(mix.exs .formatter.exs README.md CHANGELOG.md LICENSE)
    ]
  end
end
