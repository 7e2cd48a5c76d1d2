# A convolutional network classifies digits: LeNet-5's layers (LeCun et al., 1998) with max pooling and ReLU. The
# images of 28 x 28 pixels are generated here: shifted, slanted, scaled and noisy. Axon trains the network with Adam,
# forward and backward on the device.
#
#     mix run examples/axon_cnn.exs
#
# Ends with status 1 where the accuracy on test images is less than 95 %.

alias Nx.Vulkan.{Fallback, VulkanoBackend}

defmodule Digits do
  @glyphs """
          .###. ..#.. .###. ##### ...#. ##### ..##. ##### .###. .###.
          #...# .##.. #...# ...#. ..##. #.... .#... ....# #...# #...#
          #..## ..#.. ....# ..#.. .#.#. ####. #.... ...#. #...# #...#
          #.#.# ..#.. ...#. ...#. #..#. ....# ####. ..#.. .###. .####
          ##..# ..#.. ..#.. ....# ##### ....# #...# ..#.. #...# ....#
          #...# ..#.. .#... #...# ...#. #...# #...# ..#.. #...# ...#.
          .###. .###. ##### .###. ...#. .###. .###. ..#.. .###. .##..
          """
          |> String.split("\n", trim: true)
          |> Enum.map(&String.split/1)
          |> Enum.zip_with(fn rows -> List.to_tuple(Enum.map(rows, &String.to_charlist/1)) end)

  @doc "`n` images {n, 28, 28, 1} and their digits, one-hot {n, 10}."
  def draw(n) do
    {images, digits} =
      Enum.unzip(for i <- 0..(n - 1), do: {image(Enum.at(@glyphs, rem(i, 10))), rem(i, 10)})

    one_hot = Nx.equal(Nx.new_axis(Nx.tensor(digits), 1), Nx.iota({1, 10}))
    images = images |> IO.iodata_to_binary() |> Nx.from_binary(:f32)
    {Nx.reshape(images, {n, 28, 28, 1}), Nx.as_type(one_hot, :f32)}
  end

  defp image(glyph) do
    [x, y, slant, width, height] =
      for {low, high} <- [{11, 16}, {12, 15}, {-0.2, 0.2}, {2.4, 3.4}, {2.6, 3.2}],
          do: low + (high - low) * :rand.uniform()

    ink = 0.6 + 0.4 * :rand.uniform()

    for row <- 0..27, column <- 0..27, into: <<>> do
      line = floor((row - y) / height + 3.5)
      dot = floor((column - x + slant * (row - y)) / width + 2.5)
      inked = line in 0..6 and dot in 0..4 and Enum.at(elem(glyph, line), dot) == ?#
      <<if(inked, do: ink, else: 0.0) + 0.15 * :rand.normal()::float-32-native>>
    end
  end

  def model do
    Axon.input("images", shape: {nil, 28, 28, 1})
    |> Axon.conv(6, kernel_size: 5, padding: :same, activation: :relu)
    |> Axon.max_pool(kernel_size: 2)
    |> Axon.conv(16, kernel_size: 5, activation: :relu)
    |> Axon.max_pool(kernel_size: 2)
    |> Axon.flatten()
    |> Axon.dense(120, activation: :relu)
    |> Axon.dense(84, activation: :relu)
    |> Axon.dense(10, activation: :softmax)
  end

  def batches({images, digits}, size),
    do: Enum.zip(Nx.to_batched(images, size), Nx.to_batched(digits, size))

  @doc "The image {28, 28, 1} as lines of text, each of two rows of pixels."
  def lines(image) do
    image
    |> Nx.window_max({2, 1, 1}, strides: [2, 1, 1])
    |> Nx.to_flat_list()
    |> Enum.chunk_every(28)
    |> Enum.map(
      &Enum.map_join(&1, fn ink ->
        String.at("  .*#", ink |> Kernel.*(5) |> floor() |> max(0) |> min(4))
      end)
    )
  end
end

{train_size, test_size, batch, epochs, required} = {640, 200, 16, 4, 0.95}
{:ok, device} = Nx.Vulkan.device_info()
IO.puts("LeNet is trained on #{train_size} images of digits, on #{device.name}\n")

# An operation that cannot run on the device would run on the CPU unnoticed. This makes it raise.
Fallback.put_mode(:raise)
Nx.default_backend(VulkanoBackend)
Nx.Defn.default_options(compiler: Nx.Vulkan.Compiler)
:rand.seed(:exsss, 1998)
training = Digits.draw(train_size)
{images, digits} = Digits.draw(test_size)
began = System.monotonic_time(:millisecond)

trained =
  Digits.model()
  |> Axon.Loop.trainer(:categorical_cross_entropy, Polaris.Optimizers.adam(learning_rate: 1.0e-3),
    seed: 1998,
    log: 10
  )
  |> Axon.Loop.metric(:accuracy)
  |> Axon.Loop.run(Digits.batches(training, batch), Axon.ModelState.empty(), epochs: epochs)

seconds = (System.monotonic_time(:millisecond) - began) / 1000
parameters = Nx.Defn.Composite.flatten_list([trained.data])
true = Enum.all?(parameters, &is_struct(&1.data, VulkanoBackend))

read = Digits.model() |> Axon.predict(trained, images) |> Nx.argmax(axis: 1) |> Nx.to_flat_list()
drawn = digits |> Nx.argmax(axis: 1) |> Nx.to_flat_list()
results = Enum.zip([0..(test_size - 1), drawn, read])
{right, wrong} = Enum.split_with(results, fn {_, drawn, read} -> drawn == read end)

show = fn results ->
  shown = Enum.take(results, 3)
  caption = fn {_, drawn, read} -> String.pad_trailing("a #{drawn}, read as #{read}", 30) end
  IO.puts(Enum.map_join(shown, caption))
  pictures = for {i, _, _} <- shown, do: Digits.lines(images[i])
  Enum.zip_with(pictures, &IO.puts(Enum.join(&1, "  ")))
end

IO.puts("\nOf #{test_size} test images #{length(right)} are classified correctly:\n")
show.(Enum.take_every(right, 13))
if wrong != [], do: IO.puts("\n#{length(wrong)} are misclassified:\n")
if wrong != [], do: show.(wrong)

accuracy = length(right) / test_size
:io.format("~naccuracy ~.1f %, trained in ~.1f s~n", [100 * accuracy, seconds])

if accuracy < required do
  IO.puts("The accuracy is below #{round(100 * required)} %, which is a defect.")
  System.halt(1)
end
