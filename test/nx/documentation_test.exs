defmodule Nx.Vulkan.DocumentationTest do
  @moduledoc "The examples of modules' documentation, and the errors that the troubleshooting guide has to explain."

  # Examples set the mode of fallbacks.
  use ExUnit.Case, async: false

  setup do
    on_exit(fn -> Nx.global_default_backend(Nx.BinaryBackend) end)
    Nx.Vulkan.Fallback.put_mode(nil)
    :ok
  end

  # Chains and samplers compute in f64, as do the examples of what goes with them.
  @float64 [
    Nx.Vulkan.Chain,
    Nx.Vulkan.MCMC,
    Nx.Vulkan.MCMC.Diagnostics,
    Nx.Vulkan.MCMC.Transform
  ]
  @public @float64 ++
            [
              Nx.Vulkan,
              Nx.Vulkan.Backend,
              Nx.Vulkan.Compiler,
              Nx.Vulkan.Doctor,
              Nx.Vulkan.Error,
              Nx.Vulkan.Fallback,
              Nx.Vulkan.Fallback.Error,
              Nx.Vulkan.Kernel,
              Nx.Vulkan.MCMC.Plots,
              Nx.Vulkan.NativeV,
              Nx.Vulkan.Node,
              Nx.Vulkan.Profile,
              Nx.Vulkan.Quantization,
              Nx.Vulkan.Support,
              Nx.Vulkan.VulkanoBackend
            ]

  for module <- @public,
      do: doctest(module, tags: if(module in @float64, do: [:float64], else: []))

  test "every public module says what it is for before anything else, and has an example that runs" do
    {:ok, modules} = :application.get_key(:nx_vulkan, :modules)

    documented =
      for module <- modules,
          not String.starts_with?(inspect(module), "Nx.Vulkan.Test"),
          {:docs_v1, _, _, _, doc, _, _} = Code.fetch_docs(module),
          doc != :hidden,
          into: %{},
          do: {module, doc["en"]}

    for {module, doc} <- documented,
        do: assert(doc =~ ~r/\A[^#|`\s]/, "#{inspect(module)} begins with no sentence")

    # Tasks of Mix have command lines in the place of examples; that of the compiler is run by `mix compile` alone.
    {tasks, modules} =
      Enum.split_with(documented, fn {module, _} -> inspect(module) =~ ~r/^Mix/ end)

    for {module, doc} <- tasks,
        module != Mix.Tasks.Compile.NxVulkan,
        do: assert(doc =~ "\n    mix nx_vulkan.")

    # A module is forgotten above, or has no documentation.
    assert Enum.sort(Enum.map(modules, &elem(&1, 0))) == Enum.sort(@public)

    for {module, doc} <- modules,
        do: assert(doc =~ ~r/^ +iex> /m, "#{inspect(module)} has no example that runs")
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

  test "the figures of the guide to GPUs are ratios of the benchmark results" do
    results = rows("bench/RESULTS.md", 8)

    ratios = fn device ->
      for [_case, ^device, _, _, _, _, _, ratio] <- results, figure <- figures(ratio), do: figure
    end

    table = rows("guides/which_gpu.md", 3)
    [_header | kinds] = Enum.drop_while(table, fn [_, header, _] -> header != "H200" end)
    assert length(kinds) > 20

    for [kind, h200, lavapipe] <- kinds do
      assert figures(h200) != []
      assert figures(h200) -- ratios.("H200") == [], kind
      assert figures(lavapipe) -- ratios.("lavapipe") == [], kind
    end
  end

  # The rows of a file's tables with that many columns.
  defp rows(path, columns) do
    for "|" <> row <- path |> File.read!() |> String.split("\n"),
        cells = row |> String.trim_trailing("|") |> String.split("|") |> Enum.map(&String.trim/1),
        length(cells) == columns,
        not (hd(cells) =~ ~r/^-+$/),
        do: cells
  end

  defp figures(cell), do: Regex.scan(~r/\d+\.\d+/, cell) |> List.flatten()

  # Texts of errors in Rust: where one is made, by a closure for several, in the kinds' own declarations, and of calls of Vulkan.
  @kinds "NoDevice|OutOfMemory|DispatchFailed|DeviceLost|Unsupported|Invalid|Argument"
  @error ~r/(?<!Spirv)Error::(?:#{@kinds})\(\s*(?:format!\(\s*)?"((?:[^"\\]|\\.)*)"/
  @closure ~r/\b(?:argument|invalid|failed)\(\s*"((?:[^"\\]|\\.)*)"/
  @kind ~r/#\[error\("([^"]*)"\)\]/
  @vulkan ~r/(?:Error::vulkan|failure)\((?:&self\.device, )?"([^"]*)"/
  # An error whose text is none of these.
  @elsewhere ~r/(?<!Spirv)Error::(?:#{@kinds})\((?!\s*(?:format!\(\s*)?"|_\)|String\)|Cow<|text\b|what\)|message\)\) =>)/

  describe "the troubleshooting guide" do
    @guide File.read!("guides/troubleshooting.md")

    test "explains every reason of an error" do
      reasons = Regex.scan(~r/=> \("(\w+)", (?:true|false)\)/, File.read!("src/error.rs"))
      assert length(reasons) >= 9
      for [_, reason] <- reasons, do: assert(@guide =~ "| `:#{reason}`", reason)
    end

    # What an argument was `expected` to be, and what it was instead, explains itself.
    test "explains every message that Elixir raises" do
      messages = for path <- Path.wildcard("lib/**/*.ex"), message <- messages(path), do: message
      assert length(messages) > 60
      assert "cargo is not on the PATH, and nx_vulkan builds its Rust crate with it." in messages
      for message <- messages, not (message =~ "expected"), do: assert_explained(message)
    end

    # An argument's name and what is wrong with it explain themselves.
    test "explains every message that Rust returns or raises" do
      sources =
        for path <- Path.wildcard("src/**/*.rs"), not (path =~ ~r/(tests|golden)\.rs$/) do
          [code | _tests] = path |> File.read!() |> String.split(~r/#\[cfg\(test\)\]\nmod \w+ \{/)

          assert Regex.scan(@elsewhere, code) == [],
                 "#{path}: write the text where the error is made"

          code
        end

      messages = for code <- sources, message <- native_messages(code), do: message
      assert length(messages) > 120

      for message <- messages,
          not (message =~ ~r/^(?:\w+(?:, \w+)*|…): /),
          do: assert_explained(message)

      failures = for code <- sources, message <- native_failures(code), do: message
      assert length(failures) >= 15
      for message <- failures, do: assert_explained(message)
    end

    # They begin with the kind of fault; what follows names the rule that the module breaks.
    test "explains every kind of fault of a SPIR-V file" do
      source = File.read!("src/pipeline/spirv/mod.rs")
      kinds = for [_, text] <- Regex.scan(@kind, source), do: interpolated(text)
      assert length(kinds) == 6
      for kind <- kinds, do: assert_explained(kind)
    end
  end

  defp assert_explained(message) when message in ["…", "…: …"], do: :ok

  defp assert_explained(message),
    do: assert(@guide =~ "`#{message}`", "guides/troubleshooting.md does not explain: #{message}")

  defp native_messages(code) do
    for pattern <- [@error, @closure],
        [_, text] <- Regex.scan(pattern, code),
        do: interpolated(text)
  end

  defp native_failures(code),
    do: for([_, call] <- Regex.scan(@vulkan, code), do: call <> ": …")

  # The first line of a text in Rust, with … for what is interpolated.
  defp interpolated(text) do
    text
    |> String.replace(~r/\\\s*\n\s*/, "")
    |> String.split("\\n")
    |> hd()
    |> String.replace(~r/\{\{|\}\}|\{[^{}]*\}/, fn
      "{{" -> "{"
      "}}" -> "}"
      _interpolated -> "…"
    end)
  end

  # The first lines of the texts that a file raises, or returns from a chain or a fallback, with … for what is interpolated.
  defp messages(path) do
    quoted = path |> File.read!() |> Code.string_to_quoted!()

    {_, found} =
      Macro.prewalk(quoted, [], fn
        {:raise, _, [message]} = raised, found ->
          {raised, [message | found]}

        {:raise, _, [_, message]} = raised, found ->
          {raised, [message | found]}

        {{:., _, [_, name]}, _, arguments} = call, found ->
          {call, remote(name, arguments) ++ found}

        {:error, text} = error, found ->
          {error, returned(path, text) ++ found}

        other, found ->
          {other, found}
      end)

    texts = functions(quoted)
    for message <- found, do: message |> text(texts) |> String.split("\n") |> hd()
  end

  # Mix.raise(message), RuntimeError.exception(message), Error.raise!(op, {:error, reason, message}) and Fallback.call(op, out, args, reason)
  defp remote(name, [message]) when name in [:raise, :exception], do: [message]
  defp remote(:raise!, [_op, {:{}, _, [:error, _reason, message]}]), do: [message]
  defp remote(:call, [_op, _out, _args, reason]), do: [reason]
  defp remote(_name, _arguments), do: []

  # What a chain cannot compute. The compiler's own answers of this form go to no user.
  defp returned(path, text), do: if(path =~ "/chain/" and not is_atom(text), do: [text], else: [])

  # A module's functions without arguments that give a text.
  defp functions(quoted) do
    {_, found} =
      Macro.prewalk(quoted, %{}, fn
        {:defp, _, [{name, _, none}, [do: text]]} = defp, found
        when none in [nil, []] and is_binary(text) ->
          {defp, Map.put(found, name, text)}

        other, found ->
          {other, found}
      end)

    found
  end

  defp text(text, _texts) when is_binary(text), do: text

  defp text([{key, _} | _] = options, texts) when is_atom(key), do: text(options[:message], texts)
  defp text({:<>, _, [left, right]}, texts), do: text(left, texts) <> text(right, texts)

  defp text({:<<>>, _, parts}, _texts),
    do: Enum.map_join(parts, &if(is_binary(&1), do: &1, else: "…"))

  defp text({name, _, []}, texts), do: Map.get(texts, name, "…")
  defp text(_computed, _texts), do: "…"
end
