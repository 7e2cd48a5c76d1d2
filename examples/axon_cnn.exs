# A convolutional network classifies digits: LeNet-5's layers (LeCun et al., 1998) with max pooling and ReLU. The
# images of 28 x 28 pixels are generated here: shifted, slanted, scaled and noisy. Axon trains the network with Adam,
# forward and backward on the device.
#
#     mix run examples/axon_cnn.exs
#
# Ends with status 1 where the accuracy on test images is less than 95 %.

Code.require_file("support/digits.exs", __DIR__)

alias Nx.Vulkan.{Fallback, VulkanoBackend}

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
