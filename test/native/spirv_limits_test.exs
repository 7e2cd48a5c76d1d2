Code.require_file("support/native_case.exs", __DIR__)

defmodule Nx.Vulkan.SpirvLimitsTest do
  @moduledoc "`NX_VULKAN_SPIRV_LIMITS` decides how large users' SPIR-V may be."

  use Nx.Vulkan.Test.NativeCase, async: true

  # Two arrays of 10,000 floats: 80,000 bytes of variables, where 65,536 are taken by default.
  @length 10_000

  # Stores the inputs' first elements in the arrays, and their sum in the output.
  defp large do
    # Ids: 1 main, 2 void, 3 its function type, 4 the label, 5 f32, 6 the runtime array, 7 the block, 8 the pointer to it,
    # 9 to 11 the buffers, 12 the pointer to a float, 13 u32, 14 zero, 15 the arrays' length, 16 an array, 17 the pointer to it,
    # 18 that to its elements, 19 and 20 the arrays, 21 the last index.
    decorations = [[71, 6, 6, 4], [72, 7, 0, 35, 0], [71, 7, 3]]
    bound = for i <- 0..2, decoration <- [[34, 0], [33, i]], do: [71, 9 + i | decoration]

    types =
      [[19, 2], [33, 3, 2], [22, 5, 32], [21, 13, 32, 0], [43, 13, 14, 0], [43, 13, 15, @length]] ++
        [[43, 13, 21, @length - 1], [29, 6, 5], [30, 7, 6], [32, 8, 2, 7], [32, 12, 2, 5]] ++
        [[28, 16, 5, 15], [32, 17, 7, 16], [32, 18, 7, 5]] ++
        for(i <- 9..11, do: [59, 8, i, 2])

    # OpVariable; OpAccessChain, OpLoad, OpAccessChain, OpStore, OpLoad for each input.
    arrays = [[59, 17, 19, 7], [59, 17, 20, 7]]

    sums =
      for {buffer, array, id} <- [{9, 19, 30}, {10, 20, 40}],
          instruction <- [
            [65, 12, id, buffer, 14, 14],
            [61, 5, id + 1, id],
            [65, 18, id + 2, array, 21],
            [62, id + 2, id + 1],
            [61, 5, id + 3, id + 2]
          ],
          do: instruction

    result = [[129, 5, 50, 33, 43], [65, 12, 51, 11, 14, 14], [62, 51, 50]]

    instructions =
      [[17, 1], [14, 0, 1], [15, 5, 1, 0x6E69616D, 0], [16, 1, 17, 1, 1, 1]] ++
        decorations ++
        bound ++
        types ++
        [[54, 2, 1, 0, 3], [248, 4]] ++ arrays ++ sums ++ result ++ [[253], [56]]

    body =
      Enum.flat_map(instructions, fn [op | rest] -> [(length(rest) + 1) * 65_536 + op | rest] end)

    for word <- [0x07230203, 0x00010000, 0, 52, 0] ++ body, into: <<>>, do: <<word::32-native>>
  end

  # What becomes of the module in a BEAM with this value.
  defp under(limits, path) do
    code = """
    alias Nx.Vulkan.NativeV

    with {:ok, a} <- NativeV.buf_upload(<<1.5::float-32-native>>),
         {:ok, b} <- NativeV.buf_upload(<<2.25::float-32-native>>),
         {:ok, out} <- NativeV.buf_alloc(4),
         :ok <- NativeV.apply_binary(out, a, b, 1, 0, #{inspect(path)}),
         {:ok, <<sum::float-32-native>>} <- NativeV.buf_download(out) do
      IO.puts("the sum is \#{sum}")
    else
      {:error, reason, text} -> IO.puts("\#{reason}: \#{text}")
    end
    """

    in_own_beam(code, [{"NX_VULKAN_SPIRV_LIMITS", limits}])
  end

  @tag timeout: 600_000
  test "a module is refused by default, and runs where the limits are raised" do
    path = temporary_file("large.spv", large())
    text = "dispatch_failed: #{path}: unsupported SPIR-V: 80000 bytes of variables an invocation"

    assert under(nil, path) =~
             "#{text}, more than 65536; NX_VULKAN_SPIRV_LIMITS=1.3 takes it"

    assert under("0.5", path) =~
             "#{text}, more than 32768; NX_VULKAN_SPIRV_LIMITS=1.3 takes it"

    assert under("1.3", path) =~ "the sum is 3.75"
  end

  @tag timeout: 600_000
  test "a value that is no positive number is an error that says so" do
    path = temporary_file("large.spv", large())

    for value <- ["many", "0", "-1", "inf"] do
      assert under(value, path) =~ "NX_VULKAN_SPIRV_LIMITS=#{value} is not a positive number"
    end
  end
end
