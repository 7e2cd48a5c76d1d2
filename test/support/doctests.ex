defmodule Nx.Vulkan.Test.Doctests do
  @moduledoc """
  The examples of a module's functions, whose printed numbers may be off in the last digits. `ExUnit.DocTest` compares texts, which
  have the digits of Nx's arithmetic in doubles.
  """

  import ExUnit.Assertions

  @doc "The examples as `{function, steps}`; a step is its code and what it prints, if that is said."
  def read(module) do
    {:docs_v1, _, _, _, _, _, docs} = Code.fetch_docs(module)

    for {{:function, name, arity}, _, _, %{"en" => doc}, _} <- docs,
        paragraph <- String.split(doc, ~r/\n\s*\n/),
        lines = paragraph |> String.split("\n", trim: true) |> Enum.map(&String.trim/1),
        [_ | _] = example <- [Enum.drop_while(lines, &(not prompt?(&1)))],
        do: {{name, arity}, steps(example)}
  end

  defp prompt?(line), do: line =~ ~r/^(iex|\.\.\.)>/

  defp steps(lines) do
    for [code | printed] <- lines |> Enum.chunk_by(&prompt?/1) |> Enum.chunk_every(2) do
      {Enum.map_join(code, "\n", &String.replace(&1, ~r/^(iex|\.\.\.)>/, "")),
       printed |> List.flatten() |> Enum.join("\n")}
    end
  end

  @doc "Runs the steps, and asserts that each prints what it should but for `relative` times the largest number in it."
  def run(steps, relative) do
    Enum.reduce(steps, {[], __ENV__}, fn {code, printed}, {binding, env} ->
      step = fn -> Code.eval_quoted_with_env(Code.string_to_quoted!(code), binding, env) end
      step(step, printed, relative, code) || {binding, env}
    end)
  end

  # An error is printed as in a shell.
  defp step(step, "** " <> _ = printed, _relative, code) do
    error = catch_error(step.())
    assert "** (#{inspect(error.__struct__)}) #{Exception.message(error)}" == printed, code
    nil
  end

  defp step(step, printed, relative, code) do
    {value, binding, env} = step.()
    if printed != "", do: assert_printed(inspect(value), printed, relative, code)
    {binding, env}
  end

  defp assert_printed(got, want, relative, code) do
    [{got_text, got_numbers}, {want_text, want_numbers}] = Enum.map([got, want], &parts/1)
    largest = want_numbers |> Enum.map(&abs/1) |> Enum.max(fn -> 0.0 end)

    near? =
      got_text == want_text and
        Enum.all?(Enum.zip(got_numbers, want_numbers), fn {one, other} ->
          abs(one - other) <= relative * largest
        end)

    assert near?, "#{code}\ngave #{got}\nand not #{want}"
  end

  # The text without its blanks and with a mark for each number that has a point, and these numbers.
  defp parts(text) do
    number = ~r/-?\d+\.\d+(e-?\d+)?/
    numbers = for [number | _] <- Regex.scan(number, text), do: String.to_float(number)
    {text |> String.replace(number, "%") |> String.replace(~r/\s/, ""), numbers}
  end
end
