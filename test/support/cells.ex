defmodule Nx.Vulkan.Test.Cells do
  @moduledoc """
  The code of a Markdown file, run as its reader would: `elixir` cells one after the other, with the
  variables of those before, and `sh` cells in the project's folder. Other cells (`console` for what needs
  another machine, say) and doctests are left alone.

  Comments at the end of an `elixir` cell say what it gives, and are compared with it:

    * `#=> {:ok, 1}`, in one line or several: what `inspect/2` prints
    * `#=> about 0.25`: a number, within 2 %
    * `#=> depends on the machine: …`: is not compared
  """

  import ExUnit.Assertions

  @doc "The cells as `{language, code, line}`."
  def read(path) do
    {_, cells} =
      path
      |> File.stream!()
      |> Stream.with_index(1)
      |> Enum.reduce({nil, []}, fn
        {"```\n", _}, {{language, line, lines}, cells} ->
          {nil, [{language, lines |> Enum.reverse() |> Enum.join(), line} | cells]}

        {"```" <> language, number}, {nil, cells} ->
          {{String.trim(language), number + 1, []}, cells}

        {text, _}, {{language, line, lines}, cells} ->
          {{language, line, [text | lines]}, cells}

        _, outside ->
          outside
      end)

    Enum.reverse(cells)
  end

  @doc "Runs the cells of a file but those that contain `except`, and returns their variables."
  def run(path, except \\ []) do
    for {language, code, line} <- read(path),
        not String.contains?(code, except),
        reduce: {[], Code.env_for_eval(file: path)} do
      context -> cell(language, code, {path, line}, context)
    end
    |> elem(0)
  end

  defp cell("elixir", code, {path, line}, {binding, env}) do
    quoted = Code.string_to_quoted!(code, file: path, line: line)
    {result, binding, env} = Code.eval_quoted_with_env(quoted, binding, env)
    check(result, expected(code), "#{path}:#{line}")
    {binding, env}
  end

  defp cell("sh", code, {path, line}, context) do
    env = [{"MIX_ENV", "#{Mix.env()}"}]
    {output, status} = System.cmd("sh", ["-e", "-c", code], env: env, stderr_to_stdout: true)
    assert status == 0, "#{path}:#{line} ended with status #{status}:\n#{output}"
    context
  end

  defp cell(_other, _code, _position, context), do: context

  @doc "What the comments at the end of a cell say that it gives, or nil."
  def expected(code) do
    lines =
      code
      |> String.split("\n", trim: true)
      |> Enum.reverse()
      |> Enum.take_while(&String.starts_with?(&1, "#=> "))
      |> Enum.reverse()
      |> Enum.map(&String.replace_prefix(&1, "#=> ", ""))

    if lines != [], do: Enum.join(lines, "\n")
  end

  defp check(_result, nil, _position), do: :ok
  defp check(_result, "depends on the machine" <> _, _position), do: :ok

  defp check(result, "about " <> number, position) do
    {expected, ""} = Float.parse(number)
    assert_in_delta result, expected, 0.02 * abs(expected), "#{position} gave #{inspect(result)}"
  end

  defp check(result, expected, position),
    do: assert(inspect(result, pretty: true) == expected, "#{position} gave #{inspect(result)}")
end
