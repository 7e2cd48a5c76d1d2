defmodule Nx.Vulkan.KernelTest do
  @moduledoc "Kernels that users write, called eagerly: what they compute, and what is refused."

  use Nx.Vulkan.Test.Case, async: true

  require Nx.Vulkan.Native, as: Native

  alias Nx.Vulkan.Kernel, as: OwnKernel

  @each "void main() { uint i = gl_GlobalInvocationID.x; if (i < y_size) EACH; }"

  # A kernel of one output that computes each element by itself.
  defp each(each, options) do
    source = String.replace(@each, "EACH", each)
    OwnKernel.new([name: "each", source: source] ++ options)
  end

  defp call(kernel, inputs, %{shape: _} = out, options \\ []) do
    options = Keyword.put_new(options, :grid, Nx.size(out.shape))
    OwnKernel.call(kernel, Enum.map(inputs, &to_device/1), out, options)
  end

  describe "buffers" do
    test "hold the elements of every type, in row-major order, in calls that repeat" do
      {:ok, %{features: features}} = Nx.Vulkan.device_info()
      lacking = if :int64 in features, do: [], else: [{:u, 64}, {:s, 64}]

      for type <- (Generators.device_types() -- lacking) ++ [{:c, 64}],
          shape <- [{}, {1}, {3, 70}] do
        copy = each("y[i] = x[i]", inputs: [x: type], outputs: [y: type])
        x = Nx.iota(shape) |> Nx.as_type(type)
        for _ <- 1..4, do: assert(host(call(copy, [x], x)) == x, inspect({type, shape}))
      end
    end

    test "of narrow floats come with their conversions" do
      for type <- [:f16, :bf16, :f8, :f8_e4m3fn], shape <- Generators.some_shapes() do
        name = Nx.Type.to_string(Nx.Type.normalize!(type))
        to_float = each("y[i] = #{name}_to_float(x[i])", inputs: [x: type], outputs: [y: :f32])
        x = Generators.tensor(shape, Nx.Type.normalize!(type), {:float, -9.0, 9.0})
        assert host(call(to_float, [x], Nx.template(shape, :f32))) == Nx.as_type(x, :f32)

        back =
          each("y[i] = y_type(float_to_#{name}(x[i]))", inputs: [x: :f32], outputs: [y: type])

        assert host(call(back, [Nx.as_type(x, :f32)], Nx.template(shape, type))) == x
      end
    end

    test "have their extents and sizes" do
      source = """
      void main() {
        uvec3 g = gl_GlobalInvocationID;
        if (g.x < x_shape[1] && g.y < x_shape[0] && g.z < x_shape[2])
          y[(g.z * y_shape[1] + g.y) * y_shape[2] + g.x] = x[(g.y * x_shape[1] + g.x) * x_shape[2] + g.z] + int(s_size);
      }
      """

      turn =
        OwnKernel.new(
          name: "turn",
          inputs: [x: :s32, s: :f32],
          outputs: [y: :s32],
          workgroup: {4, 2, 2},
          source: source
        )

      for _ <- 1..5 do
        [a, b, c] = for _ <- 1..3, do: :rand.uniform(9)
        x = Nx.iota({a, b, c}, type: :s32)
        turned = call(turn, [x, Nx.tensor(1.0)], Nx.template({c, a, b}, :s32), grid: {b, a, c})
        assert_same_bits(turned, Nx.add(Nx.transpose(x, axes: [2, 0, 1]), 1))
      end
    end

    test "of several outputs, with parameters of each type" do
      source = """
      void main() {
        uint i = gl_GlobalInvocationID.x;
        if (i >= x_size) return;
        quotient[i] = int(x[i]) / by;
        scaled[i] = float(x[i]) * factor;
        shifted[i] = x[i] + offset;
      }
      """

      kernel =
        OwnKernel.new(
          name: "several",
          inputs: [x: :u32],
          outputs: [quotient: :s32, scaled: :f32, shifted: :u32],
          params: [by: :s32, factor: :f32, offset: :u32],
          source: source
        )

      x = Nx.tensor([7, 8, 100], type: :u32)
      outs = {Nx.template({3}, :s32), Nx.template({3}, :f32), Nx.template({3}, :u32)}

      for by <- [-3, 5] do
        params = [factor: 0.5, by: by, offset: 0xFFFFFFFF]
        results = OwnKernel.call(kernel, [to_device(x)], outs, grid: 3, params: params)
        assert {quotient, scaled, shifted} = results
        assert_same_bits(quotient, Nx.quotient(Nx.as_type(x, :s32), Nx.tensor(by, type: :s32)))
        assert_same_bits(scaled, Nx.multiply(x, 0.5))
        assert_same_bits(shifted, Nx.subtract(x, 1))
      end
    end

    test "are zero where asked, so that atomics count" do
      histogram =
        OwnKernel.new(
          name: "histogram",
          inputs: [x: :u8],
          outputs: [counts: :u32],
          zeroed: true,
          source:
            "void main() { uint i = gl_GlobalInvocationID.x; if (i < x_size) atomicAdd(counts[uint(x[i])], 1u); }"
        )

      for _ <- 1..4 do
        values = for _ <- 1..500, do: :rand.uniform(10) - 1

        counts =
          call(histogram, [Nx.tensor(values, type: :u8)], Nx.template({10}, :u32), grid: 500)

        frequencies = Enum.frequencies(values)
        assert Nx.to_list(counts) == for(value <- 0..9, do: Map.get(frequencies, value, 0))
      end
    end

    test "of numbers and of tensors of the host" do
      sum = each("y[i] = x[i] + s[0]", inputs: [x: :f32, s: :f32], outputs: [y: :f32])
      x = Nx.tensor([1.0, 2.0], type: :f32)
      assert call(sum, [x, Nx.tensor(2.0, type: :f32)], x) |> Nx.to_list() == [3.0, 4.0]
      assert OwnKernel.call(sum, [to_device(x), 2], x, grid: 2) |> Nx.to_list() == [3.0, 4.0]

      assert OwnKernel.call(sum, [x, to_device(Nx.tensor(2.0))], x, grid: 2) |> Nx.to_list() == [
               3.0,
               4.0
             ]
    end
  end

  test "the grid is rounded up to whole workgroups, along up to three axes" do
    source = """
    void main() {
      uvec3 size = gl_NumWorkGroups * gl_WorkGroupSize;
      if (gl_GlobalInvocationID == uvec3(0)) y[0] = size.x; else if (gl_GlobalInvocationID == uvec3(0, 0, 1)) y[2] = size.z;
      else if (gl_GlobalInvocationID == uvec3(0, 1, 0)) y[1] = size.y;
    }
    """

    for {workgroup, grid, size} <- [
          {{8, 4, 2}, {9, 5, 3}, [16, 8, 4]},
          {{4, 2, 2}, 1, [4, 2, 2]},
          {{16, 16, 1}, {16, 17}, [16, 32, 0]}
        ] do
      kernel =
        OwnKernel.new(
          name: "sizes",
          inputs: [x: :u32],
          outputs: [y: :u32],
          workgroup: workgroup,
          zeroed: true,
          source: source
        )

      y = call(kernel, [Nx.tensor(0, type: :u32)], Nx.template({3}, :u32), grid: grid)
      assert Nx.to_list(y) == size
    end
  end

  test "invocations of a workgroup share memory" do
    source = """
    shared float tile[64];
    void main() {
      uint t = gl_LocalInvocationID.x, i = gl_GlobalInvocationID.x;
      tile[t] = i < x_size ? x[i] : 0.0;
      barrier();
      if (i < y_size) y[i] = tile[63u - t];
    }
    """

    reversed =
      OwnKernel.new(name: "reversed", inputs: [x: :f32], outputs: [y: :f32], source: source)

    x = Nx.iota({256}, type: :f32)
    expected = Nx.reverse(Nx.reshape(x, {4, 64}), axes: [1]) |> Nx.reshape({256})
    assert_same_bits(call(reversed, [x], x), expected)
  end

  test "a SPIR-V module with the interface of the GLSL runs" do
    # priv/shaders/elementwise_unary has one input, one output and the number of elements; op code 0 is exp.
    spirv = File.read!("priv/shaders/elementwise_unary.spv")
    kernel = OwnKernel.new(name: "raw", inputs: [x: :f32], outputs: [y: :f32], spirv: spirv)
    x = Nx.tensor([0.0, 1.0], type: :f32)
    result = call(kernel, [x], x)
    assert Nx.to_number(Nx.all_close(result, to_device(Nx.exp(x)))) == 1

    for bytes <- ["", "no module", binary_part(spirv, 0, 40)] do
      kernel = OwnKernel.new(name: "raw", inputs: [x: :f32], outputs: [y: :f32], spirv: bytes)
      assert_raise ArgumentError, ~r/kernel raw: .*SPIR-V/, fn -> call(kernel, [x], x) end
    end
  end

  test "indices out of bounds harm nothing" do
    source = """
    shared float tile[4];
    void main() {
      uint i = gl_GlobalInvocationID.x, far = i * 4099u + 77u;
      tile[far] = 1.0;
      y[far] = x[far] + tile[far];
      y[0xf0000000u + i] = 7.0;
    }
    """

    kernel =
      OwnKernel.new(
        name: "wild",
        inputs: [x: :f32],
        outputs: [y: :f32],
        zeroed: true,
        source: source
      )

    x = Nx.iota({77}, type: :f32)
    neighbours = for i <- 1..20, do: to_device(Nx.broadcast(i, {77}))

    for _ <- 1..4,
        do: assert(call(kernel, [x], x, grid: 4096) |> Nx.to_list() == List.duplicate(0.0, 77))

    for {neighbour, i} <- Enum.with_index(neighbours, 1),
        do: assert_same_bits(neighbour, Nx.broadcast(i, {77}))
  end

  @cube """
  kernel =
    Nx.Vulkan.Kernel.new(
      name: "cube",
      inputs: [x: :f32],
      outputs: [y: :f32],
      source: "void main() { uint i = gl_GlobalInvocationID.x; if (i < x_size) y[i] = x[i] * x[i] * x[i]; }"
    )

  Nx.default_backend(Nx.Vulkan.VulkanoBackend)
  options = [default: fn x -> Nx.pow(x, 3) end]

  fun = fn x ->
    Nx.Vulkan.Kernel.call(kernel, [Nx.add(x, 1)], x, [grid: Nx.size(x)] ++ options)
  end

  %{pipelines: %{count: count, from_disk: from_disk}, result: result} =
    Nx.Vulkan.profile(fn ->
      x = Nx.iota({3}, type: :f32)
      Nx.to_list(fun.(x)) ++ Nx.to_list(Nx.Vulkan.jit(fun).(x))
    end)

  IO.puts("pipelines: \#{inspect({count, from_disk, result})}")
  """

  @tag :tmp_dir
  test "is compiled once: a second process finds all of it on the disk", %{tmp_dir: folder} do
    start = fn ->
      arguments = ["run", "--no-compile", "--no-deps-check", "-e", @cube]
      # lavapipe has a cache of its own.
      env = [{"NX_VULKAN_CACHE_DIR", folder}, {"MESA_SHADER_CACHE_DISABLE", "true"}]
      {output, 0} = mix(arguments, env)
      [_, result] = Regex.run(~r/^pipelines: (.*)$/m, output)
      {{count, from_disk, [1.0, 8.0, 27.0, 1.0, 8.0, 27.0]}, []} = Code.eval_string(result)

      # A file that is written again is another one.
      files = for path <- Path.wildcard(folder <> "/**"), do: {path, File.stat!(path).inode}
      {count, from_disk, files}
    end

    assert {count, 0, files} = start.()
    assert count >= 3
    assert {^count, ^count, ^files} = start.()
  end

  describe "what is wrong" do
    test "with the GLSL is told with its line" do
      x = Nx.tensor([1.0], type: :f32)

      for {source, expected} <- [
            {"void main() {\n  y[0] = z;\n}", ["each:2: error: 'z'", "    2 |   y[0] = z;"]},
            {"void main() {\n  x[0] = 1.0;\n}", ["each:2: error: ", "    2 |   x[0] = 1.0;"]},
            {"", ["each"]},
            {"void main() {\n\n  y[0] = 1.0\n}", ["each:4: error: ", "    4 | }"]},
            {"void other() {}", ["entry point"]}
          ] do
        kernel =
          OwnKernel.new(name: "each", inputs: [x: :f32], outputs: [y: :f32], source: source)

        error = assert_raise ArgumentError, fn -> call(kernel, [x], x) end
        assert error.message =~ "the kernel each"
        for text <- expected, do: assert(error.message =~ text)
      end
    end

    test "with a name that GLSL has is told of the declarations" do
      kernel = each("y[i] = 1.0", inputs: [buffer: :f32], outputs: [y: :f32])
      x = Nx.tensor([1.0], type: :f32)
      assert_raise ArgumentError, ~r/declarations of each:/, fn -> call(kernel, [x], x) end
    end

    test "with a kernel is told when it is made" do
      right = [name: "k", inputs: [x: :f32], outputs: [y: :f32], source: ""]

      for {change, expected} <- [
            {[name: "a b"], ~r/^name:/},
            {[name: nil], ~r/^name:/},
            {[inputs: []], ~r/kernel k: inputs/},
            {[inputs: [:x]], ~r/kernel k: inputs/},
            {[outputs: []], ~r/kernel k: outputs/},
            {[outputs: for(i <- 1..9, do: {:"y#{i}", :f32})], ~r/kernel k: outputs/},
            {[inputs: [gl_x: :f32]], ~r/names that GLSL takes/},
            {[inputs: ["x y": :f32]], ~r/names that GLSL takes/},
            {[outputs: [x: :f32]], ~r/x names two/},
            {[inputs: [x: :f33]], ~r/f33/},
            {[params: [a: :f64]], ~r/params: expected a to be :f32, :s32 or :u32/},
            {[params: :a], ~r/params/},
            {[workgroup: 0], ~r/workgroup/},
            {[workgroup: {1, 2, 3, 4}], ~r/workgroup/},
            {[zeroed: 1], ~r/zeroed/},
            {[source: nil], ~r/source or spirv/},
            {[spirv: <<>>], ~r/source or spirv/},
            {[grid: 1], ~r/unknown keys \[:grid\]/}
          ] do
        assert_raise ArgumentError, expected, fn ->
          OwnKernel.new(Keyword.merge(right, change))
        end
      end
    end

    test "with a call is told before anything runs" do
      kernel =
        each("y[i] = x[i] * factor",
          inputs: [x: :f32],
          outputs: [y: :f32],
          params: [factor: :f32]
        )

      x = to_device(Nx.tensor([1.0], type: :f32))
      most = 65_535 * 65_535 * 64
      two = [params: [factor: 2]]

      for {inputs, out, options, expected} <- [
            {[x, x], x, [grid: 1], ~r/expected a list of 1 inputs \(x\)/},
            {x, x, [grid: 1], ~r/expected a list of 1 inputs/},
            {[:x], x, [grid: 1], ~r/its input x to be a tensor/},
            {[Nx.as_type(x, :f64)], x, [grid: 1], ~r/its input x to be f32, got: f64/},
            {[x], Nx.template({1}, :s32), [grid: 1], ~r/its output y to be f32, got: s32/},
            {[x], {x, x}, [grid: 1], ~r/templates of its outputs \(y\)/},
            {[x], nil, [grid: 1], ~r/templates of its outputs/},
            {[x], {1}, [grid: 1], ~r/a template of its output y/},
            {[x], x, two, ~r/grid: expected one to three positive/},
            {[x], x, [grid: 0] ++ two, ~r/grid: expected one to three positive/},
            {[x], x, [grid: {1, -1}] ++ two, ~r/grid/},
            {[x], x, [grid: most] ++ two, ~r/grid/},
            {[x], x, [grid: {1, 1, 0x7FFFFFFF}] ++ two, ~r/grid: it takes .* workgroups/},
            {[x], x, [grid: 1], ~r/params: expected values of \[factor\]/},
            {[x], x, [grid: 1, params: [factor: 1, other: 1]], ~r/params: expected values of/},
            {[x], x, [grid: 1, params: [factor: :a]], ~r/factor to be a number of type f32/},
            {[x], x, [grid: 1, params: [factor: 1.0e39]], ~r/factor to be a number of type f32/},
            {[x], x, [grid: 1, size: 1] ++ two, ~r/unknown keys \[:size\]/}
          ] do
        assert_raise ArgumentError, expected, fn ->
          OwnKernel.call(kernel, inputs, out, options)
        end
      end

      assert OwnKernel.call(kernel, [x], x, [grid: 1] ++ two) |> Nx.to_list() == [2.0]
    end

    test "with what the device lacks is told" do
      x = to_device(Nx.tensor([1.0], type: :f32))
      large = each("y[i] = x[i]", inputs: [x: :f32], outputs: [y: :f32], workgroup: {512, 8})

      assert_raise ArgumentError, ~r/does not fit the device: its workgroups/, fn ->
        call(large, [x], x)
      end

      source =
        "shared float much[10000000]; void main() { much[0] = x[0]; barrier(); y[0] = much[0]; }"

      shared =
        OwnKernel.new(name: "shared", inputs: [x: :f32], outputs: [y: :f32], source: source)

      assert_raise ArgumentError, ~r/bytes of workgroup memory/, fn -> call(shared, [x], x) end

      many = for i <- 1..24, do: {:"x#{i}", :f32}
      kernel = each("y[i] = x1[i]", inputs: many, outputs: [y: :f32])
      deep = Nx.reshape(x, {1, 1, 1, 1})

      assert_raise ArgumentError, ~r/extents and parameters have 388 bytes/, fn ->
        OwnKernel.call(kernel, List.duplicate(deep, 24), Nx.template({1}, :f32), grid: 1)
      end
    end

    test "with the terms of a native call is an error that names them" do
      ref = to_device(Nx.tensor([1.0, 2.0], type: :f32)).data.ref
      f32 = {:f, 32}
      kernel = each("y[i] = x[i]", inputs: [x: :f32], outputs: [y: :f32]).term
      right = [kernel, [{ref, f32, {2}}], [{f32, {2}}], <<>>, {2, 1, 1}]

      native = fn position, term ->
        [a, b, c, d, e] = List.replace_at(right, position, term)
        Native.call(tensor_kernel(a, b, c, d, e))
      end

      for {position, terms} <- [
            {0,
             [
               nil,
               {:glsl},
               put_elem(kernel, 0, :other),
               put_elem(kernel, 2, 1),
               put_elem(kernel, 2, <<255>>)
             ]},
            {0,
             [
               put_elem(kernel, 3, []),
               put_elem(kernel, 5, [{"p", :f64}]),
               put_elem(kernel, 6, {1})
             ]},
            {1, [nil, [1], [{make_ref(), f32, {2}}], [{ref, {:f, 33}, {2}}], []]},
            {2, [nil, [], [1], [{f32, nil}], [{{:f, 33}, {2}}], List.duplicate({f32, {2}}, 9)]},
            {3, [nil, 1, [], <<1::1>>]},
            {4, [nil, {1, 1}, {1, 1, -1}, {1, 1, 1.0}]}
          ],
          term <- terms do
        assert_raise ArgumentError, ~r/: expected/, fn -> native.(position, term) end
      end

      assert {:error, :size_mismatch} = native.(1, [{ref, f32, {3}}])
      assert {:error, :size_mismatch} = native.(3, <<1, 2, 3>>)
      assert {:error, :invalid_argument, _} = native.(4, {0, 1, 1})
      assert {:ok, [_]} = native.(4, {2, 1, 1})
    end
  end

  defp assert_same_bits(result, expected),
    do: assert(Nx.to_binary(result) == Nx.to_binary(expected))
end
