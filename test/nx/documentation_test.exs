defmodule Nx.Vulkan.DocumentationTest do
  @moduledoc "The examples of modules' documentation, and the errors that the troubleshooting guide has to explain."

  # Examples set the mode of fallbacks.
  use ExUnit.Case, async: false

  setup do
    on_exit(fn -> Nx.global_default_backend(Nx.BinaryBackend) end)
    Nx.Vulkan.Fallback.put_mode(nil)
    :ok
  end

  doctest Nx.Vulkan
  doctest Nx.Vulkan.VulkanoBackend
  doctest Nx.Vulkan.Backend
  doctest Nx.Vulkan.Compiler
  doctest Nx.Vulkan.Chain, tags: [:float64]
  doctest Nx.Vulkan.Doctor
  doctest Nx.Vulkan.Error
  doctest Nx.Vulkan.Fallback
  doctest Nx.Vulkan.Fallback.Error
  doctest Nx.Vulkan.MCMC, tags: [:float64]
  doctest Nx.Vulkan.MCMC.Diagnostics, tags: [:float64]
  doctest Nx.Vulkan.MCMC.Plots
  doctest Nx.Vulkan.MCMC.Transform, tags: [:float64]
  doctest Nx.Vulkan.NativeV
  doctest Nx.Vulkan.Node
  doctest Nx.Vulkan.Profile
  doctest Nx.Vulkan.Support

  test "every public module says what it is for before anything else, and has an example" do
    {:ok, modules} = :application.get_key(:nx_vulkan, :modules)

    for module <- modules,
        String.starts_with?(inspect(module), "Nx.Vulkan"),
        not String.starts_with?(inspect(module), "Nx.Vulkan.Test"),
        {:docs_v1, _, _, _, %{"en" => doc}, _, _} <- [Code.fetch_docs(module)] do
      assert doc =~ ~r/\A[^#|`\s]/, "#{inspect(module)} begins with #{String.slice(doc, 0, 40)}"
      assert doc =~ ~r/^ +iex> /m, "#{inspect(module)} has no example that runs"
    end
  end

  test "the telemetry guide names every event" do
    guide = File.read!("guides/telemetry.md")
    sources = Path.wildcard("lib/nx/**/*.ex")

    events =
      for path <- sources,
          [_, names] <-
            Regex.scan(~r/(?:emit\(\[|execute\(\s*\[:nx_vulkan, )([^|\]]+)\]/, File.read!(path)),
          do: names

    assert Enum.sort(events) == Enum.sort(~w(:memory :compile :fallback) ++ [":mcmc, :progress"])
    for event <- events, do: assert(guide =~ "| `[:nx_vulkan, #{event}]` |")
  end

  describe "the troubleshooting guide" do
    @guide File.read!("guides/troubleshooting.md")

    test "explains every reason of an error" do
      reasons = Regex.scan(~r/=> \("(\w+)", (?:true|false)\)/, File.read!("src/error.rs"))
      assert length(reasons) >= 9
      for [_, reason] <- reasons, do: assert(@guide =~ "| `:#{reason}`", reason)
    end

    # Messages that say what an argument is `expected` to be explain themselves.
    test "explains every message that is raised" do
      messages =
        for path <- Path.wildcard("lib/nx/**/*.ex"), message <- messages(path), do: message

      assert length(messages) > 20

      for message <- messages, not (message =~ "expected"), message not in ["…", "…: …"] do
        assert @guide =~ "`#{message}`", "guides/troubleshooting.md does not explain: #{message}"
      end
    end

    test "explains every message of a device or a driver that fails" do
      messages =
        for path <- Path.wildcard("src/**/*.rs"),
            not String.ends_with?(path, "_tests.rs"),
            message <- native_messages(path),
            message not in ["…", "…: …"],
            do: message

      assert length(messages) > 40

      for message <- Enum.uniq(messages) do
        assert @guide =~ "`#{message}`", "guides/troubleshooting.md does not explain: #{message}"
      end
    end
  end

  # The texts of errors of these reasons in Rust, with … for what is interpolated. Those of the others are about the call that
  # they are an answer to.
  @error ~r/Error::(?:NoDevice|OutOfMemory|DispatchFailed|DeviceLost)\(\s*(?:format!\(\s*)?"((?:[^"\\]|\\.)*)"/
  @vulkan ~r/(?:Error::vulkan|failure)\((?:&self\.device, )?"([^"]*)"/

  defp native_messages(path) do
    [code | _tests] = path |> File.read!() |> String.split("#[cfg(test)]\nmod ")
    texts = for [_, text] <- Regex.scan(@error, code), do: text
    calls = for [_, call] <- Regex.scan(@vulkan, code), do: call <> ": …"

    for text <- texts ++ calls do
      text |> String.replace(~r/\\\s*\n\s*/, "") |> String.replace(~r/\{[^}]*\}/, "…")
    end
  end

  # The texts of a file's `raise`, with … for what is interpolated.
  defp messages(path) do
    {_, found} =
      path
      |> File.read!()
      |> Code.string_to_quoted!()
      |> Macro.prewalk([], fn
        {:raise, _, [message]} = quoted, found -> {quoted, [text(message) | found]}
        {:raise, _, [_, message]} = quoted, found -> {quoted, [text(message) | found]}
        quoted, found -> {quoted, found}
      end)

    found
  end

  defp text(text) when is_binary(text), do: text
  defp text([{key, _} | _] = options) when is_atom(key), do: text(options[:message])
  defp text({:<>, _, [left, right]}), do: text(left) <> text(right)

  defp text({:<<>>, _, parts}),
    do: Enum.map_join(parts, &if(is_binary(&1), do: &1, else: "…"))

  defp text(_computed), do: "…"
end
