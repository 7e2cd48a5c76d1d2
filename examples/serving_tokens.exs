# A language model of characters that Nx.Serving streams: clients read each character when the decoding loop has drawn it. The
# model knows how often each character follows two others in this project's guides.
#
#     mix run examples/serving_tokens.exs
#
# Ends with status 1 where what was streamed is not what the loop returns at its end, or where it is no text that the guides could
# begin with: each three characters in a row stand in them.

alias Nx.Vulkan.{Fallback, VulkanoBackend}

defmodule Letters do
  import Nx.Defn

  @length 160

  def text, do: "guides/*.md" |> Path.wildcard() |> Enum.sort() |> Enum.map_join(&File.read!/1)

  @doc "The model's characters, and the logarithms of its probabilities, {characters, characters, characters}."
  def train(text) do
    characters = text |> String.graphemes() |> Enum.uniq() |> Enum.sort()
    n = length(characters)
    index = characters |> Enum.with_index() |> Map.new()
    text = text |> String.graphemes() |> Enum.map(&index[&1]) |> Nx.tensor(type: :s32)
    triples = for i <- 0..2, do: text[[i..(Nx.size(text) - 3 + i)]]
    triples = Nx.stack(triples, axis: 1)
    ones = Nx.broadcast(1, {Nx.axis_size(triples, 0)})
    counts = Nx.indexed_add(Nx.broadcast(0, {n, n, n}), triples, ones)
    {characters, Nx.log(counts)}
  end

  @doc "The characters after the two of the batch {1, 2}, {1, #{@length}}, each given to the hook `:token` once it is drawn."
  defn write(logits, start, key) do
    tokens = Nx.broadcast(Nx.tensor(0, type: :s32), {1, @length})
    {a, b} = {start[[0, 0]], start[[0, 1]]}

    {tokens, _} =
      while {tokens, {logits, a, b, key, i = 0}}, i < @length do
        {noise, key} = Nx.Random.gumbel(key, shape: {Nx.axis_size(logits, 2)})
        # What a hook gives to a stream has the axis of the batch.
        next = Nx.as_type(Nx.argmax(logits[[a, b]] + noise, axis: 0, keep_axis: true), :s32)
        next = io_call(next, :token)
        tokens = Nx.put_slice(tokens, [0, i], Nx.new_axis(next, 0))
        {tokens, {logits, b, next[0], key, i + 1}}
      end

    tokens
  end
end

Fallback.put_mode(:raise)
Nx.global_default_backend(VulkanoBackend)
Nx.Defn.global_default_options(compiler: Nx.Vulkan.Compiler)
{:ok, device} = Nx.Vulkan.device_info()
IO.puts("A model of characters, served on #{device.name}\n")

text = Letters.text()
{characters, logits} = Letters.train(text)
index = characters |> Enum.with_index() |> Map.new()

serving =
  Nx.Serving.new(fn options ->
    write = Nx.Defn.jit(&Letters.write/3, options)
    key = Nx.Random.key(5)
    &write.(logits, &1, key)
  end)
  |> Nx.Serving.client_preprocessing(fn start ->
    {Nx.Batch.concatenate([Nx.tensor([for(c <- start, do: index[c])], type: :s32)]), :ok}
  end)
  |> Nx.Serving.streaming(hooks: [:token])

{:ok, _} = Nx.Serving.start_link(serving: serving, name: Letters.Serving, batch_size: 1)
IO.write("Th")
began = System.monotonic_time(:millisecond)

{streamed, result} =
  Letters.Serving
  |> Nx.Serving.batched_run(["T", "h"])
  |> Enum.reduce({[], nil}, fn
    {:token, token}, {streamed, result} ->
      token = Nx.to_number(token[0])
      IO.write(Enum.at(characters, token))
      {[token | streamed], result}

    {:batch, tokens, _server_info}, {streamed, nil} ->
      {streamed, Nx.to_flat_list(tokens)}
  end)

seconds = (System.monotonic_time(:millisecond) - began) / 1000
streamed = Enum.reverse(streamed)

:io.format("~n~n~b characters, ~b a second~n", [
  length(streamed),
  round(length(streamed) / seconds)
])

written = ["T", "h" | Enum.map(streamed, &Enum.at(characters, &1))]
triples = Enum.chunk_every(written, 3, 1, :discard)

unless streamed == result and Enum.all?(triples, &String.contains?(text, Enum.join(&1))) do
  IO.puts("The streamed characters are not the result, or none that follow each other: a defect.")
  System.halt(1)
end
