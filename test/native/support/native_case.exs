defmodule Nx.Vulkan.Test.NativeCase do
  @moduledoc """
  For tests of the raw calls, which need no Nx: floats as binaries, the project's shaders, SPIR-V made
  by hand, and BEAMs of their own.
  """

  use ExUnit.CaseTemplate

  alias Nx.Vulkan.NativeV

  using do
    quote do
      import Nx.Vulkan.Test.NativeCase
      alias Nx.Vulkan.{Native, NativeV}
      require Nx.Vulkan.Native
    end
  end

  @doc "The path of one of the project's shaders, with `bits` 64 of its f64 twin."
  def spv(name, bits \\ 32) do
    suffix = if bits == 64, do: "_f64", else: ""
    Application.app_dir(:nx_vulkan, "priv/shaders/#{name}#{suffix}.spv")
  end

  @doc "Bits of the floats that the device computes with."
  def widths, do: if(Nx.Vulkan.has_f64(), do: [32, 64], else: [32])

  def floats(list, bits \\ 32), do: for(x <- list, into: <<>>, do: <<x::float-native-size(bits)>>)

  @doc "The floats of a binary. What is not finite is `:infinity`, `:neg_infinity` or `:nan`."
  def list(binary, bits \\ 32) do
    for <<element::binary-size(div(bits, 8)) <- binary>> do
      case element do
        <<x::float-native-size(bits)>> -> x
        <<0x7F800000::32-native>> -> :infinity
        <<0xFF800000::32-native>> -> :neg_infinity
        <<0x7FF0000000000000::64-native>> -> :infinity
        <<0xFFF0000000000000::64-native>> -> :neg_infinity
        _ -> :nan
      end
    end
  end

  def upload!(list, bits \\ 32) do
    {:ok, ref} = NativeV.buf_upload(floats(list, bits))
    ref
  end

  def alloc!(elements, bits \\ 32) do
    {:ok, ref} = NativeV.buf_alloc(elements * div(bits, 8))
    ref
  end

  def download!(ref, bits \\ 32) do
    {:ok, binary} = NativeV.buf_download(ref)
    list(binary, bits)
  end

  @doc "Like `Enum.zip/1`, of lists that must have one length."
  def zip_all(lists) do
    ExUnit.Assertions.assert([_] = lists |> Enum.map(&length/1) |> Enum.uniq())
    Enum.zip_with(lists, & &1)
  end

  @doc "Asserts that the device still does what it is told."
  def assert_works do
    out = alloc!(3)
    a = upload!([1.0, 2.0, 3.0])
    :ok = NativeV.apply_binary(out, a, a, 3, 0, spv("elementwise_binary"))
    [2.0, 4.0, 6.0] = download!(out)
    :ok
  end

  @doc "A file with this content that is gone after the test."
  def temporary_file(name, content) do
    dir = Path.join(System.tmp_dir!(), "nx_vulkan_test_#{System.unique_integer([:positive])}")
    File.mkdir_p!(dir)
    ExUnit.Callbacks.on_exit(fn -> File.rm_rf!(dir) end)
    path = Path.join(dir, name)
    File.write!(path, content)
    path
  end

  @doc """
  A SPIR-V 1.0 module whose entry point does nothing: of the execution model `:compute` or `:vertex`,
  with a storage buffer of floats at each of the `{set, binding}` pairs.
  """
  def spirv(model, bindings \\ []) do
    # Ids: 1 main, 2 void, 3 its function type, 4 the label, 5 f32, 6 the array, 7 the block,
    # 8 the pointer; then one variable each.
    variables = Enum.with_index(bindings, 9)

    types =
      if bindings == [],
        do: [],
        else: [
          # OpDecorate ArrayStride, OpMemberDecorate Offset, OpDecorate BufferBlock
          [71, 6, 6, 4],
          [72, 7, 0, 35, 0],
          [71, 7, 3]
        ]

    decorations =
      for {{set, binding}, id} <- variables,
          # OpDecorate DescriptorSet, OpDecorate Binding
          decoration <- [[71, id, 34, set], [71, id, 33, binding]],
          do: decoration

    block_types =
      if bindings == [],
        do: [],
        # OpTypeFloat, OpTypeRuntimeArray, OpTypeStruct, OpTypePointer Uniform
        else: [[22, 5, 32], [29, 6, 5], [30, 7, 6], [32, 8, 2, 7]]

    execution = if model == :compute, do: 5, else: 0

    instructions =
      [
        # OpCapability Shader, OpMemoryModel Logical GLSL450, OpEntryPoint "main"
        [17, 1],
        [14, 0, 1],
        [15, execution, 1, 0x6E69616D, 0]
      ] ++
        if(model == :compute, do: [[16, 1, 17, 64, 1, 1]], else: []) ++
        types ++
        decorations ++
        [[19, 2], [33, 3, 2]] ++
        block_types ++
        for({_, id} <- variables, do: [59, 8, id, 2]) ++
        [[54, 2, 1, 0, 3], [248, 4], [253], [56]]

    header = [0x07230203, 0x00010000, 0, 9 + length(bindings), 0]

    body =
      Enum.flat_map(instructions, fn [op | rest] -> [(length(rest) + 1) * 65_536 + op | rest] end)

    for word <- header ++ body, into: <<>>, do: <<word::32-native>>
  end

  @doc """
  Runs Elixir code in a BEAM of its own, with the environment variables, and returns what it printed.
  It must exit with status 0.
  """
  def in_own_beam(code, env) do
    options = [env: env, stderr_to_stdout: true]
    {output, status} = System.cmd("elixir", own_beam_arguments(code), options)
    ExUnit.Assertions.assert(status == 0, output)
    output
  end

  # `build` builds a pipeline that nothing else does.
  @held_up """
  require Nx.Vulkan.Native, as: Native
  alias Nx.Vulkan.NativeV
  {:ok, x} = NativeV.buf_upload(<<0.5::float-32-native>>)
  f32 = {:f, 32}
  nodes = for {op, node} <- Enum.with_index([:tan, :erf, :asinh, :cbrt]), do: {op, f32, [node]}
  build = fn -> {:ok, _} = Native.call(run(nodes, [{x, f32, {1}}], {1})) end
  folder = System.fetch_env!("NX_VULKAN_CACHE_DIR")
  """

  @doc """
  Runs Elixir code in a BEAM of its own while the build of a pipeline is held up there. The folder is that of
  the cache.

  The pipeline's entry is a pipe, which the build reads first. It says nothing until the code prints "release".
  Then it turns out to be no sound entry, and the build goes on. `builder` is the monitor of the process that
  builds. The BEAM must not exit before that, and must do so with status 0.
  """
  def while_building(code, folder) do
    env = [{"NX_VULKAN_CACHE_DIR", folder}, {"MESA_SHADER_CACHE_DISABLE", "true"}]

    # The driver builds after the call, hence the wait: a build that has not begun when the BEAM ends is left out.
    code_before =
      "IO.puts(Enum.join(File.ls!(folder), \" \")); build.(); :ok = Native.call(sync())"

    before = in_own_beam(@held_up <> code_before, env)
    [name] = File.ls!(folder) -- String.split(before)
    entry = Path.join(folder, name)
    File.rm!(entry)
    {_, 0} = System.cmd("mkfifo", [entry])

    code = @held_up <> "{_, builder} = spawn_monitor(build); IO.gets(\"\")\n" <> code
    beam = start("elixir", own_beam_arguments(code), env)
    # The shell opens the pipe once the build does.
    pipe = start("sh", ["-c", ~s|exec 3>"$0"; echo building; read line|, entry], [])
    wait_for(pipe, {:data, {:eol, "building"}})
    Port.command(beam, "\n")
    wait_for(beam, {:data, {:eol, "release"}})

    # A BEAM that does not wait for the build is gone by then.
    receive do
      {^beam, {:exit_status, status}} ->
        ExUnit.Assertions.flunk("exit with status #{status} in the middle of the build")
    after
      300 -> :ok
    end

    Port.command(pipe, "\n")
    wait_for(beam, {:exit_status, 0})
  end

  defp start(program, arguments, env) do
    env = for {name, value} <- env, do: {to_charlist(name), to_charlist(value)}
    options = [:binary, :exit_status, :stderr_to_stdout, line: 1000, args: arguments, env: env]
    Port.open({:spawn_executable, System.find_executable(program)}, options)
  end

  # What the program says before is shown where it ends.
  defp wait_for(port, message, said \\ []) do
    receive do
      {^port, ^message} -> :ok
      {^port, {:data, {_, line}}} -> wait_for(port, message, [line | said])
      {^port, other} -> ExUnit.Assertions.flunk(Enum.join([inspect(other) | said], "\n"))
    after
      600_000 -> ExUnit.Assertions.flunk("no #{inspect(message)} in ten minutes")
    end
  end

  @doc "The arguments with which `elixir` runs the code with the modules of this BEAM."
  def own_beam_arguments(code) do
    paths = for path <- :code.get_path(), path != ~c".", do: ["-pa", to_string(path)]
    List.flatten(paths) ++ ["-e", code]
  end
end
