defmodule Nx.Vulkan.EmulationTest do
  @moduledoc """
  What the device lacks is emulated with the same results: these comparisons with `Nx.BinaryBackend`
  run here, and again in BEAMs of their own in which `NX_VULKAN_DISABLE` turns features off.
  """

  use Nx.Vulkan.Test.Case, async: true

  require Nx.Vulkan.Native, as: Native

  @integers for kind <- [:u, :s], size <- [2, 4, 8, 16, 32, 64], do: {kind, size}
  @floats Generators.narrow_float_types() ++
            (Generators.real_types() -- Generators.integer_types())

  # A check of the dependencies would compile those from a folder anew, under the BEAMs that run already.
  @as_built "--no-compile --no-deps-check"

  for disabled <- ["int64", "int8,int16", "float64", "float64,int64,int8,int16,fma"] do
    @tag :parent
    test "a device without #{disabled}" do
      again(unquote(disabled), ~w(--exclude parent))
    end
  end

  for disabled <- ["cpu", "cpu,int64"] do
    @tag :parent
    test "a device without #{disabled} gets the kernels of GPUs" do
      again(unquote(disabled), ~w(--only shapes))
    end
  end

  # Where the device has none of the features, the same kernels run here.
  defp again(disabled, chosen) do
    names = String.split(disabled, ",")
    if "cpu" in names or not Enum.all?(names, &lacks?/1), do: run_again(disabled, chosen)
  end

  defp run_again(disabled, chosen) do
    arguments = ~w(test #{@as_built} --seed #{ExUnit.configuration()[:seed]}) ++ chosen
    {output, status} = mix(arguments ++ [__ENV__.file], [{"NX_VULKAN_DISABLE", disabled}])

    assert status == 0 and output =~ ~r/[1-9]\d* tests?, 0 failures/, output
  end

  @tag :parent
  test "a feature that does not exist is refused" do
    script = "IO.puts(inspect(Nx.Vulkan.device_info()))"
    {output, 0} = mix(~w(run #{@as_built} -e #{script}), [{"NX_VULKAN_DISABLE", "int64,int9"}])
    assert output =~ ":no_device"
    assert output =~ "int9 is none of"
  end

  test "each type says who computes with it" do
    for {_, size} = type <- @integers ++ @floats do
      expected =
        cond do
          type == {:f, 64} and lacks?("float64") -> :fallback
          type in [{:u, 64}, {:s, 64}] and lacks?("int64") -> :emulated
          size <= 8 and lacks?("int8") -> :emulated
          size == 16 and lacks?("int16") -> :emulated
          true -> :device
        end

      assert {^expected, _bits} = support(type)
    end
  end

  test "transfer and movement keep all bits" do
    for type <- Generators.all_types(), type != {:c, 128} do
      tensor = Generators.tensor({3, 5, 7}, type, :any)
      device = to_device(tensor)
      assert Nx.to_binary(device) == Nx.to_binary(tensor)
      assert Nx.to_binary(device, limit: 11) == Nx.to_binary(tensor, limit: 11)
      assert Nx.to_binary(Nx.backend_copy(device, VulkanoBackend)) == Nx.to_binary(tensor)
      assert_same(Nx.transpose(device), Nx.transpose(tensor), :transpose)
      assert_same(Nx.reverse(device), Nx.reverse(tensor), :reverse)
      assert_same(device[2][[1..3, 0..-1//2]], tensor[2][[1..3, 0..-1//2]], :slice)
    end
  end

  test "a slice whose starts are on the device" do
    tensor = Nx.iota({9, 9})

    for type <- computed(@integers -- [{:s, 2}, {:u, 2}]), start <- [0, 3, 7] do
      at = Nx.tensor([start, 1], type: type)
      fun = fn t, at -> Nx.slice(t, [at[0], at[1]], [3, 4]) end
      assert_same(fun.(to_device(tensor), to_device(at)), fun.(tensor, at), :slice, type: type)
    end
  end

  @arithmetic [:add, :subtract, :multiply, :max, :min]
  @predicates [:equal, :not_equal, :less, :less_equal, :greater, :greater_equal] ++
                [:logical_and, :logical_or, :logical_xor]

  test "arithmetic and comparisons" do
    for op <- @arithmetic ++ @predicates, type <- some(@integers ++ @floats) do
      check_elements(op, [any(type), any(type)], fn [a, b] -> apply(Nx, op, [a, b]) end)
    end
  end

  test "integers that only two types of them hold" do
    for op <- [:equal, :less, :greater_equal, :max],
        {a, b} <- [{{:u, 64}, {:s, 64}}, {{:s, 64}, {:u, 64}}, {{:u, 32}, {:s, 32}}] do
      fun = fn [a, b] -> apply(Nx, op, [a, b]) end
      values = if op == :max, do: {:integer, 0..1000}, else: :any
      tensors = [Generators.tensor({200}, a, values), Generators.tensor({200}, b, values)]
      check_elements(op, tensors, fun)
    end
  end

  test "quotient, remainder, pow and shifts" do
    for type <- some(@integers) do
      {low, high} = range(type)

      divisors =
        Enum.uniq([low, low + 1, high, div(high, 3), 1, 7])
        |> Enum.filter(&(&1 in low..high and &1 != 0))

      divisor = Nx.tensor(for(_ <- 1..200, do: Generators.pick(divisors)), type: type)
      amounts = {:integer, 0..min(70, 2 ** (elem(type, 1) - 1) - 1)}

      for op <- [:quotient, :remainder],
          do: check_elements(op, [any(type), divisor], fn [a, b] -> apply(Nx, op, [a, b]) end)

      for op <- [:pow, :left_shift, :right_shift] do
        exponent = Generators.tensor({200}, type, amounts)
        check_elements(op, [any(type), exponent], fn [a, b] -> apply(Nx, op, [a, b]) end)
      end
    end
  end

  test "bits and signs" do
    for op <- [:bitwise_not, :count_leading_zeros, :population_count], type <- some(@integers) do
      check_elements(op, [any(type)], fn [t] -> apply(Nx, op, [t]) end)
    end

    for op <- [:bitwise_and, :bitwise_or, :bitwise_xor], type <- some(@integers) do
      check_elements(op, [any(type), any(type)], fn [a, b] -> apply(Nx, op, [a, b]) end)
    end

    for op <- [:abs, :negate, :sign, :ceil, :round, :is_nan, :logical_not],
        type <- some(@integers ++ @floats) do
      check_elements(op, [any(type)], fn [t] -> apply(Nx, op, [t]) end)
    end
  end

  test "functions of floats, and of integers that become floats" do
    for op <- [:exp, :log, :sin, :sqrt, :tanh], type <- some(@floats) do
      check_elements(op, [any(type)], fn [t] -> apply(Nx, op, [t]) end)
    end

    for op <- [:divide, :atan2, :sqrt], type <- some(@integers) do
      tensor = Generators.tensor({50}, type, {:integer, 0..100})
      if op == :sqrt, do: check_elements(op, [tensor], fn [t] -> Nx.sqrt(t) end)

      if op != :sqrt,
        do: check_elements(op, [tensor, tensor], fn [a, b] -> apply(Nx, op, [a, b]) end)
    end

    for type <- some([{:f, 32}, {:f, 64}, {:f, 16}]) do
      check_elements(:remainder, [any(type), any(type)], fn [a, b] -> Nx.remainder(a, b) end)
    end
  end

  test "conversions" do
    for from <- some(@integers ++ @floats), to <- some(@integers ++ @floats) do
      check_as_type(any(from), to)
    end

    # Ties of 24 bits, and what is next to them.
    ties = for shift <- 0..28, d <- -2..2, do: (2 ** 24 + 1) * 2 ** shift + d

    for {from, to} <- [{{:u, 64}, {:f, 32}}, {{:s, 64}, {:f, 32}}, {{:s, 64}, {:bf, 16}}] do
      signs = if from == {:s, 64}, do: ties ++ Enum.map(ties, &(-&1)), else: ties
      check_as_type(Nx.tensor(signs, type: from), to)
    end
  end

  test "select, clip, iota and eye" do
    for type <- some(@integers ++ @floats) do
      check_elements(:select, [any(type), any(type), any(type)], fn [p, a, b] ->
        Nx.select(p, a, b)
      end)

      [low, high] = for _ <- 1..2, do: Generators.tensor({}, type, :moderate)
      clip = fn [t, low, high] -> Nx.clip(t, low, high) end
      t = any(type)

      assert_same(clip.(operands([t, low, high])), nearest(clip, [t, low, high]), :clip,
        type: type
      )

      axis = Generators.pick([nil, 0, 1])
      iota = &Nx.iota({5, 61}, type: type, axis: axis, backend: &1)
      assert_same(iota.(VulkanoBackend), nearest(iota, NearestBackend), :iota, type: type)
      eye = &Nx.eye({3, 5}, type: type, backend: &1)
      assert_same(eye.(VulkanoBackend), nearest(eye, NearestBackend), :eye, type: type)
    end
  end

  test "definitions, whose operations are one kernel or go to the CPU one by one" do
    fun = fn x, y ->
      z = Nx.select(Nx.greater(x, y), Nx.subtract(x, y), Nx.multiply(y, 2))
      {Nx.add(z, Nx.broadcast(y[[0, 1]], {7, 30})), Nx.reduce_max(z, axes: [0])}
    end

    # BinaryBackend has no count of elements of less than a byte that is no whole number of bytes.
    for {_, size} = type when size >= 8 <- @integers ++ @floats do
      args = for shape <- [{7, 30}, {30}], do: Generators.tensor(shape, type, {:integer, 0..1})
      args = [hd(args), Nx.new_axis(List.last(args), 0)]
      unless type in computed([type]), do: Fallbacks.allow()
      results = apply(Nx.Vulkan.jit(fun), Enum.map(args, &to_device/1))
      Fallbacks.forbid()

      for [got, want] <- zip_all([Tuple.to_list(results), Tuple.to_list(apply(fun, args))]),
          do: assert_same(got, want, :definition, type: type)
    end
  end

  test "reductions" do
    for op <- [:sum, :product, :reduce_max, :reduce_min, :all, :any, :argmax, :argmin],
        type <- some(@integers ++ @floats),
        shape <- [{700}, {5, 2, 7}] do
      values = if type in @floats and op in [:sum, :product], do: {:integer, 0..3}, else: :any
      tensor = Generators.tensor(shape, type, values)
      options = if op in [:argmax, :argmin], do: [axis: 0], else: [axes: [0]]
      fun = &apply(Nx, op, [&1, options])
      assert_same(fun.(to_device(tensor)), nearest(fun, tensor), op, type: type, shape: shape)
    end
  end

  test "long sums of 64-bit integers" do
    for type <- [{:u, 64}, {:s, 64}] do
      tensor = Nx.iota({100_003}, type: type) |> Nx.multiply(123_456_789_012_345)
      assert_same(Nx.sum(to_device(tensor)), Nx.sum(tensor), :sum, type: type)
      assert_same(Nx.argmax(to_device(tensor)), Nx.argmax(tensor), :argmax, type: type)
    end
  end

  test "dot" do
    for type <- some(@integers ++ @floats), {left, right} <- [{{3, 7}, {7, 5}}, {{9}, {9}}] do
      values = if type in @integers, do: :any, else: {:integer, 0..3}
      tensors = [Generators.tensor(left, type, values), Generators.tensor(right, type, values)]
      fun = fn [a, b] -> Nx.dot(a, b) end
      assert_same(fun.(operands(tensors)), nearest(fun, tensors), :dot, type: type)
    end
  end

  test "a transform of a large prime number of points is the device's" do
    {n, c64} = {65_537, {:c, 64}}
    {:ok, ref} = Native.call(buf_upload(<<0::64, 1.0::32-float-native, 0::size(n * 64 - 96)>>))
    {:ok, result} = Native.call(fft(:fft, c64, {ref, c64, {n}}, 0, n, 0.0))
    {:ok, bins} = Native.call(buf_read(result, 0, 8 * n))
    sines = for <<_::32, im::32-float-native <- bins>>, do: -im
    wanted = for k <- 0..(n - 1), do: :math.sin(2 * :math.pi() * k / n)
    assert Enum.all?(Enum.zip(sines, wanted), fn {a, b} -> abs(a - b) < 1.0e-5 end)
  end

  # Sizes beyond a workgroup, a tile and a panel, with and without a remainder.

  @tag :shapes
  test "passes over tensors of many workgroups" do
    for shape <- [{300, 70}, {64, 5, 129}, {20_000}], {op, fun} <- passes() do
      tensor = Generators.tensor(shape, {:f, 32}, {:integer, -50..50})
      assert_same(fun.(to_device(tensor)), nearest(fun, tensor), op, shape: shape)
    end
  end

  # A thread makes each result alone.
  @tag :shapes
  test "many small windows and rows" do
    image = Generators.tensor({1, 2, 190, 193}, {:f, 32}, {:integer, -9..9})
    kernel = Generators.tensor({2, 1, 3, 3}, {:f, 32}, {:integer, -2..2})
    rows = Generators.tensor({70_000, 36}, {:f, 32}, {:integer, -9..9})

    for {as, fun} <- [
          sum: &Nx.window_sum(&1, {1, 1, 3, 2}),
          max: &Nx.window_max(Nx.as_type(&1, :s32), {1, 1, 2, 3}, padding: :same),
          conv: &Nx.conv(&1, kernel, feature_group_size: 2)
        ] do
      assert_same(fun.(to_device(image)), nearest(fun, image), as, fun: fun)
    end

    for width <- [36, 9, 3] do
      fun = &Nx.sum(Nx.slice_along_axis(&1, 0, width, axis: 1), axes: [1])
      assert_same(fun.(to_device(rows)), nearest(fun, rows), :sum, width: width)
    end
  end

  # Lengths that give a thread one or several neighbours to merge, and selections of few elements.
  @tag :shapes
  test "sorted rows of all lengths that a workgroup holds" do
    lengths = [{5, {:u, 8}}, {1500, {:f, 64}}, {3000, {:f, 32}}, {4100, {:bf, 16}}]

    for {length, type} <- [{500, {:f, 16}} | lengths], type in computed([type]) do
      tensor = Generators.tensor({3, length}, type, Generators.pick([:any, :few]))
      device = to_device(tensor)
      options = [axis: 1, direction: Generators.pick([:asc, :desc])]
      assert_same(Nx.sort(device, options), Nx.sort(tensor, options), :sort, type: type)
      [tensor, device] = Enum.map([tensor, device], &Nx.transpose/1)
      assert_same(Nx.argsort(device), Nx.argsort(tensor), :argsort, type: type, length: length)

      for k <- [div(length, 500), div(length, 40)], k > 0 do
        {values, positions} = Nx.top_k(Nx.transpose(tensor), k: k)
        {actual, at} = Nx.top_k(Nx.transpose(device), k: k)
        assert_same(actual, values, :top_k, type: type, length: length, k: k)
        assert_same(at, positions, :top_k, type: type, length: length, k: k)
      end
    end
  end

  # A thread takes the elements between the starts of two windows.
  @tag :shapes
  test "scatters from many small windows" do
    image = Generators.tensor({2, 1, 90, 93}, {:f, 32}, {:integer, -9..9})

    for {window, options} <- [
          {{1, 1, 2, 2}, strides: [1, 1, 2, 2]},
          {{1, 1, 3, 2}, strides: [1, 1, 2, 3], padding: :same},
          {{2, 1, 3, 3}, padding: [{0, 1}, {0, 0}, {1, -1}, {2, 0}]}
        ] do
      source = Nx.add(Nx.iota(Nx.window_max(image, window, options).shape), 1)
      fun = fn [t, s] -> Nx.window_scatter_max(t, s, 3, window, options) end

      assert_same(
        fun.(operands([image, source])),
        nearest(fun, [image, source]),
        :scatter,
        options
      )
    end
  end

  # Rows are loaded several at a time, and what is left of chunks of them is summed in further passes.
  @tag :shapes
  test "many updates for few slots and for many" do
    for {rows, slots, width} <- [{9000, 3, 3}, {9000, 6000, 2}, {5000, 70_000, 1}],
        type <- [{:s, 32}, {:f, 32}] do
      indices = Generators.tensor({rows, 1}, {:s, 32}, {:integer, 0..(slots - 1)})
      target = Generators.tensor({slots, width}, type, {:integer, -9..9})
      updates = Generators.tensor({rows, width}, type, {:integer, -99..99})
      tensors = [target, indices, updates]

      for op <- [:indexed_add, :indexed_put] do
        fun = &apply(Nx, op, &1)
        assert_same(fun.(operands(tensors)), nearest(fun, tensors), op, slots: slots, type: type)
      end
    end
  end

  # Each of these passes goes through its tensors against the direction of the one before.
  @tag :shapes
  test "passes over tensors larger than caches, from the start and from the end" do
    {rows, columns} = shape = {8704, 8192}
    bytes = Nx.iota(shape, type: :u8, backend: VulkanoBackend)
    all = for byte <- 0..255, into: <<>>, do: <<byte>>
    doubled = for <<byte <- all>>, into: <<>>, do: <<2 * byte>>
    sum_of_column = &<<&1 * rows::unsigned-32-native>>

    for {pass, expected} <- [
          {&Nx.add(&1, &1), :binary.copy(doubled, div(rows * columns, 256))},
          {&Nx.transpose/1,
           String.duplicate(for(<<b <- all>>, into: <<>>, do: :binary.copy(<<b>>, rows)), 32)},
          {&Nx.sum(&1, axes: [0]),
           String.duplicate(for(<<b <- all>>, into: <<>>, do: sum_of_column.(b)), 32)},
          {&Nx.sum(&1, axes: [1]), :binary.copy(<<32 * 255 * 128::unsigned-32-native>>, rows)}
        ],
        _ <- 1..2 do
      assert Nx.to_binary(pass.(bytes)) == expected
    end
  end

  @tag :shapes
  test "products and convolutions of several tiles" do
    alike =
      for type <- computed([{:f, 32}, {:s, 32}, {:bf, 16}, {:f, 64}, {:c, 64}]), do: {type, type}

    for {left_type, right_type} = types <- alike ++ [{{:s, 64}, {:f, 32}}, {{:s, 8}, {:s, 64}}],
        {left, right} <- [{{130, 70}, {70, 96}}, {{1, 300}, {300, 200}}, {{200, 128}, {128, 64}}] do
      tensors = [
        Generators.tensor(left, left_type, {:integer, -2..2}),
        Generators.tensor(right, right_type, {:integer, -2..2})
      ]

      fun = fn [a, b] -> Nx.dot(a, b) end

      assert_same(often(fun, tensors), nearest(fun, tensors), :dot,
        types: types,
        shapes: {left, right}
      )
    end

    # Positions in a reversed view decrease.
    for type <- computed([{:f, 64}]) do
      tensors = for _ <- 1..2, do: Generators.tensor({70, 70}, type, {:integer, -2..2})
      fun = fn [a, b] -> Nx.dot(a, Nx.reverse(b)) end
      assert_same(fun.(operands(tensors)), nearest(fun, tensors), :dot, reversed: true)
    end

    for channels <- [3, 32], options <- [[padding: :same], [strides: 2, input_dilation: 2]] do
      image = Generators.tensor({2, channels, 12, 13}, {:f, 32}, {:integer, -2..2})
      kernel = Generators.tensor({5, channels, 3, 3}, {:f, 32}, {:integer, -2..2})
      fun = fn [t, k] -> Nx.conv(t, k, options) end
      assert_same(often(fun, [image, kernel]), fun.([image, kernel]), :conv, options: options)
    end
  end

  # The result of the last of several calls on other tensors of these types and shapes: what was kept of
  # the first ones.
  defp often(fun, tensors) do
    for k <- 2..0//-1, reduce: nil do
      _ -> fun.(operands(Enum.map(tensors, &Nx.as_type(Nx.add(&1, k), &1.type))))
    end
  end

  @tag :shapes
  test "linear systems and decompositions of several panels" do
    n = 70
    a = Generators.tensor({n, n}, {:f, 32}, {:integer, -4..4})
    positive = Nx.add(Nx.dot(a, Nx.transpose(a)), Nx.multiply(n, Nx.eye(n)))
    on_device = to_device(positive)

    near = fn left, right ->
      assert Nx.to_number(Nx.all_close(left, right, rtol: 1.0e-3, atol: 1.0e-1)) == 1
    end

    near.(Nx.dot(on_device, Nx.LinAlg.solve(on_device, to_device(a))), a)
    l = Nx.LinAlg.cholesky(on_device)
    near.(Nx.dot(l, Nx.transpose(l)), positive)
    {q, r} = Nx.LinAlg.qr(on_device)
    near.(Nx.dot(q, r), positive)
    # Of so few rows the reflectors are applied one by one.
    few = positive[[0..39, 0..39]]
    {q, r} = Nx.LinAlg.qr(to_device(few))
    near.(Nx.dot(q, r), few)
    {values, vectors} = Nx.LinAlg.eigh(on_device)
    near.(Nx.dot(on_device, vectors), Nx.multiply(vectors, values))
    {u, s, v} = Nx.LinAlg.svd(on_device)
    near.(Nx.dot(Nx.multiply(u, s), v), positive)
  end

  test "what a device cannot do falls back, is counted, and is right" do
    for type <- Generators.real_types() do
      Fallbacks.allow()
      before = Fallback.count(:tan)
      tensor = Generators.tensor({20}, type, {:integer, 0..1})
      assert_same(Nx.tan(to_device(tensor)), nearest(&Nx.tan/1, tensor), :tan, type: type)
      fell_back = elem(support(type), 0) == :fallback
      assert fell_back == Fallback.count(:tan) > before or not fell_back
    end
  end

  test "padding to a type that the device lacks converts the tensor" do
    Fallbacks.allow()
    {tensor, value} = {Generators.tensor({2, 3}, {:s, 16}, :any), Nx.tensor(1.5, type: :f64)}
    pad = &Nx.pad(&1, value, [{1, 0, 1}, {0, 2, 0}])
    assert_same(pad.(to_device(tensor)), pad.(Nx.as_type(tensor, :f64)), :pad)
  end

  defp passes do
    [
      sum: &Nx.sum/1,
      first: &Nx.sum(&1, axes: [0]),
      last: &Nx.reduce_max(&1, axes: [-1]),
      argmax: &Nx.argmax(&1, axis: 0),
      add: &Nx.add(&1, Nx.sum(&1, axes: [0])),
      transpose: &Nx.transpose/1,
      sort: &Nx.sort(&1, axis: 0),
      cumulative_sum: &Nx.cumulative_sum(&1, axis: 0),
      window_max: &Nx.window_max(&1, Tuple.duplicate(3, Nx.rank(&1)))
    ]
  end

  # What NX_VULKAN_DISABLE turns off the device must not have.
  defp lacks?(feature) do
    {:ok, %{features: features}} = Nx.Vulkan.device_info()
    lacks? = feature not in Enum.map(features, &to_string/1)
    disabled = System.get_env("NX_VULKAN_DISABLE", "") |> String.split(",", trim: true)
    assert lacks? or feature not in disabled
    lacks?
  end

  defp support(type) do
    {:ok, types} = Nx.Vulkan.Native.type_support()
    Map.fetch!(types, type)
  end

  defp computed(types), do: Enum.filter(types, &(elem(support(&1), 0) != :fallback))

  # All types would make a kernel for each: those of 64 bits, and some of the others in each run.
  defp some(types) do
    {of_64_bits, others} = types |> computed() |> Enum.split_with(&(elem(&1, 1) == 64))
    of_64_bits ++ Enum.take_random(others, 3)
  end

  defp range({:u, size}), do: {0, 2 ** size - 1}
  defp range({:s, size}), do: {-(2 ** (size - 1)), 2 ** (size - 1) - 1}

  defp any(type), do: Generators.tensor({200}, type, :any)
end
