# Images of digits, drawn at random, and LeNet-5 (LeCun et al., 1998) with max pooling and ReLU, which learns to read them.

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
