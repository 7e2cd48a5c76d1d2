defmodule Nx.Vulkan.ChainTest do
  @moduledoc "Chains of leapfrog steps against the integrator on `Nx.BinaryBackend`."

  use Nx.Vulkan.Test.Case, async: true

  alias Nx.Defn.Composite
  alias Nx.Vulkan.{Chain, NativeV}
  alias Nx.Vulkan.Chain.Lowering
  alias Nx.Vulkan.Test.ChainModels

  defmodule Until do
    @moduledoc "A loop whose end depends on the position."
    import Nx.Defn

    defn one(q) do
      {x, _} = while({x = Nx.sum(q), q}, x > 1.0, do: {x * 0.5, q})
      x
    end
  end

  # Chains compute in f64 unless told otherwise.
  @moduletag :float64

  @steps 2
  @step_size 0.01

  # The largest errors, relative to the largest element. In f32 the position and the data are rounded, too, which the
  # factor of a covariance magnifies: the gradient of the Gaussian process is off by 6.6e-6, those of other models by
  # less than 1.5e-6.
  @bounds [f64: 1.0e-13, f32: 2.0e-5]

  # Two steps of two chains by both calls, compared with `Chain.leapfrog/5`.
  defp assert_runs_by_native_v([one_chain, batch], name, chain, data) do
    {d, type} = {chain.dimensions, chain.type}
    {_, bits} = Nx.Type.normalize!(type)

    {q, p} =
      {Nx.as_type(ChainModels.numbers({2, d}), type),
       Nx.as_type(ChainModels.numbers({2, d}, 1.1), type)}

    mass = Nx.add(ChainModels.numbers({d}), 1.5)
    options = [steps: 2, step_size: 0.01, chains: 2, inverse_mass: {:diagonal, mass}]
    {:ok, expected} = Chain.leapfrog(chain, q, p, data, options)

    extras = Chain.pack(chain, data, mass)
    observations = div(byte_size(extras), div(bits, 8)) - d

    push = fn count ->
      <<2::32-little, observations::32-little, d::32-little, count::32-little,
        0.01::float-little-size(bits)>>
    end

    run = fn call, q, p, extras, count ->
      {:ok, {q_chain, p_chain, grad_chain, logp_chain}} =
        call.(Nx.to_binary(q), Nx.to_binary(p), extras, push.(count), 2, chain.spv_path)

      %{q: q_chain, p: p_chain, grad: grad_chain, logp: logp_chain}
    end

    states = run.(batch, q, p, extras <> extras, 2)

    for {key, bytes} <- states,
        do: assert({name, key, bytes} == {name, key, binary(expected[key])})

    for i <- 0..1 do
      states = run.(one_chain, q[i], p[i], extras, 1)

      for {key, bytes} <- states,
          do: assert({name, key, bytes} == {name, key, binary(expected[key][i])})
    end
  end

  # The states after each step, with gradients by Nx on BinaryBackend.
  defp reference(logp, template, data, q, p, step_size, inverse_mass, steps) do
    evaluate =
      Nx.Defn.jit(
        fn vector, data ->
          {value, gradient} =
            Nx.Defn.value_and_grad(Lowering.parts(vector, template), &logp.(&1, data))

          {value, Lowering.flat(gradient, {:f, 64})}
        end,
        compiler: Nx.Defn.Evaluator
      )

    # A number would be rounded to f32.
    {step_size, kick} = {Nx.f64(step_size), Nx.f64(step_size / 2)}
    {_value, gradient} = evaluate.(q, data)

    {states, _} =
      Enum.map_reduce(1..steps, {q, p, gradient}, fn _step, {q, p, gradient} ->
        p = Nx.add(p, Nx.multiply(kick, gradient))
        q = Nx.add(q, Nx.multiply(step_size, Nx.multiply(inverse_mass, p)))
        {value, gradient} = evaluate.(q, data)
        p = Nx.add(p, Nx.multiply(kick, gradient))
        {{q, p, gradient, value}, {q, p, gradient}}
      end)

    for {key, index} <- [q: 0, p: 1, grad: 2, logp: 3], into: %{} do
      {key, Nx.stack(Enum.map(states, &elem(&1, index)))}
    end
  end

  defp largest_error(result, expected) do
    expected = Nx.as_type(expected, :f64)
    scale = Nx.max(Nx.reduce_max(Nx.abs(expected)), 1.0)
    error = result |> Nx.backend_copy(Nx.BinaryBackend) |> Nx.subtract(expected) |> Nx.abs()
    error |> Nx.reduce_max() |> Nx.divide(scale) |> Nx.to_number()
  end

  # Nx 0.13 has a `cond` in its Cholesky factor, and other numbers for the gradient of some loops than their differences.
  @nx_1_0 ["Gaussian process", "an ODE of 20 steps"]

  for model <- ChainModels.all(), name = elem(model, 0) do
    @tag nx_1_0: name in @nx_1_0
    test "the model: #{name}" do
      [name, template, data, logp | exact] =
        ChainModels.all() |> Enum.find(&(elem(&1, 0) == unquote(name))) |> Tuple.to_list()

      d = [template] |> Composite.flatten_list() |> Enum.map(&Nx.size/1) |> Enum.sum()
      {q, p} = {Nx.multiply(ChainModels.numbers({d}), 0.6), ChainModels.numbers({d}, 1.1)}
      mass = Nx.add(ChainModels.numbers({d}, 0.7), 1.5)
      options = [steps: @steps, step_size: @step_size, inverse_mass: mass]

      expected =
        reference(List.first(exact, logp), template, data, q, p, @step_size, mass, @steps)

      for {type, bound} <- @bounds do
        {:ok, chain} = Chain.compile(logp, template, data, type: type)
        {:ok, states} = Chain.leapfrog(chain, q, p, data, options)

        for key <- [:q, :p, :grad, :logp] do
          assert states[key].type == Nx.Type.normalize!(type)
          error = largest_error(Nx.as_type(host(states[key]), :f64), expected[key])
          assert error < bound, "#{name}: #{key} is off by #{error} in #{type}"
        end
      end
    end
  end

  # A banana of two parameters, and a normal of three.
  defp banana(%{a: a, b: b}, x) do
    square = Nx.pow(Nx.subtract(Nx.slice_along_axis(b, 0, 1), Nx.pow(a, 2)), 2)
    spread = Nx.sum(Nx.pow(Nx.subtract(b, Nx.sum(x)), 2))
    Nx.multiply(-0.5, Nx.add(Nx.add(Nx.sum(square), Nx.pow(a, 2)), spread))
  end

  @banana %{a: Nx.template({}, :f64), b: Nx.template({3}, :f64)}

  defp banana_chain do
    x = ChainModels.numbers({5})
    {:ok, chain} = Chain.compile(&banana/2, @banana, x)
    {chain, x}
  end

  defp binary(tensor), do: tensor |> host() |> Nx.to_binary()

  test "containers are vectors, leaf after leaf" do
    {chain, x} = banana_chain()
    q = %{a: Nx.f64(0.3), b: Nx.f64([1, 2, 3])}
    vector = Chain.to_vector(chain, q)
    assert Nx.to_flat_list(vector) == [0.3, 1.0, 2.0, 3.0]
    assert Chain.from_vector(chain, vector) == q

    options = [steps: 3, step_size: 0.1, inverse_mass: %{a: 2.0, b: Nx.f64([1, 0.5, 3])}]
    {:ok, a} = Chain.leapfrog(chain, q, q, x, options)
    options = Keyword.put(options, :inverse_mass, Nx.f64([2, 1, 0.5, 3]))
    {:ok, b} = Chain.leapfrog(chain, vector, vector, x, options)
    assert binary(a.q) == binary(b.q)
    assert {a.q.shape, a.p.shape, a.grad.shape, a.logp.shape} == {{3, 4}, {3, 4}, {3, 4}, {3}}
  end

  # Symmetric and positive definite.
  defp matrices(count, d) do
    root = ChainModels.numbers({count, d, d})
    Nx.add(Nx.dot(root, [2], [0], root, [2], [0]), Nx.eye(d))
  end

  for mass <- [:diagonal, :dense] do
    test "chains are those that run one by one, with a step size and a #{mass} mass each" do
      {chain, x} = banana_chain()
      [q, p] = for phase <- [0.2, 1.4], do: ChainModels.numbers({5, 4}, phase)
      sizes = Nx.f64([0.1, -0.2, 0.05, 0.0, 0.3])

      mass =
        if unquote(mass) == :dense,
          do: matrices(5, 4),
          else: Nx.add(ChainModels.numbers({5, 4}), 1.5)

      options = [steps: 4, chains: 5, step_size: sizes, inverse_mass: mass]
      {:ok, all} = Chain.leapfrog(chain, q, p, x, options)
      {:ok, last} = Chain.leapfrog(chain, q, p, x, [keep: :last] ++ options)
      assert {all.q.shape, all.logp.shape, last.q.shape} == {{5, 4, 4}, {5, 4}, {5, 4}}

      for i <- 0..4, key <- [:q, :p, :grad, :logp] do
        options = [steps: 4, step_size: sizes[i], inverse_mass: mass[i]]
        {:ok, one} = Chain.leapfrog(chain, q[i], p[i], x, options)
        assert binary(one[key]) == binary(all[key][i])
        assert binary(one[key][3]) == binary(last[key][i])
      end
    end
  end

  test "a matrix for as many chains as dimensions is one mass for all, unless it is said to be diagonals" do
    {chain, x} = banana_chain()
    [q, p] = for phase <- [0.2, 1.4], do: ChainModels.numbers({4, 4}, phase)
    matrix = matrices(1, 4)[0]

    run = fn mass, q, p, options ->
      options = [steps: 2, step_size: 0.1, inverse_mass: mass] ++ options
      {:ok, states} = Chain.leapfrog(chain, q, p, x, options)
      states.q
    end

    one_mass = run.(matrix, q, p, chains: 4)
    diagonals = run.({:diagonal, matrix}, q, p, chains: 4)

    for i <- 0..3 do
      assert binary(one_mass[i]) == binary(run.(matrix, q[i], p[i], []))
      assert binary(diagonals[i]) == binary(run.(matrix[i], q[i], p[i], []))
    end
  end

  test "signs and powers of two are those of the density, whatever sums share them" do
    logp = fn q, x ->
      z = Nx.divide(Nx.subtract(x, q[0]), Nx.exp(Nx.negate(q[1])))
      [a, b] = [Nx.sum(Nx.multiply(-0.5, Nx.pow(z, 2))), Nx.sum(Nx.abs(Nx.negate(z)))]
      [c, d] = [Nx.sum(Nx.multiply(Nx.negate(z), q[2])), Nx.sum(Nx.multiply(z, q[2]))]
      scaled = Nx.multiply(-4, Nx.divide(Nx.multiply(Nx.negate(a), -1), 0.25))
      Nx.add(Nx.subtract(scaled, Nx.negate(b)), Nx.add(Nx.multiply(c, 3), Nx.negate(d)))
    end

    x = ChainModels.numbers({40})
    q = Nx.f64([0.3, -0.2, 0.7])
    {:ok, chain} = Chain.compile(logp, Nx.template({3}, :f64), x)
    {:ok, states} = Chain.leapfrog(chain, q, q, x, steps: 2, step_size: 0.001)
    expected = reference(logp, Nx.template({3}, :f64), x, q, q, 0.001, 1.0, 2)

    for key <- [:q, :p, :grad, :logp],
        do: assert(largest_error(states[key], expected[key]) < 1.0e-13)
  end

  test "a dense mass multiplies the momentum" do
    {chain, x} = banana_chain()
    root = ChainModels.numbers({4, 4})
    matrix = Nx.add(Nx.dot(root, Nx.transpose(root)), Nx.eye(4))
    {q, p} = {ChainModels.numbers({4}), ChainModels.numbers({4}, 0.9)}

    step = fn mass ->
      Chain.leapfrog(chain, q, p, x, steps: 1, step_size: 0.1, inverse_mass: mass)
    end

    {:ok, states} = step.(matrix)
    {:ok, start} = Chain.leapfrog(chain, q, p, x, steps: 1, step_size: 0.0)
    half = Nx.add(p, Nx.multiply(Nx.f64(0.05), host(start.grad[0])))
    expected = Nx.add(q, Nx.multiply(Nx.f64(0.1), Nx.dot(matrix, half)))
    assert largest_error(states.q[0], expected) < 1.0e-14

    # A diagonal says the same as the matrix that has it.
    diagonal = Nx.f64([1, 2, 3, 4])
    {:ok, a} = step.(diagonal)
    {:ok, b} = step.(Nx.make_diagonal(diagonal))
    assert largest_error(a.q, host(b.q)) < 1.0e-15
  end

  test "a trajectory runs backwards, in time or from the reversed momentum" do
    {chain, x} = banana_chain()
    {q, p} = {ChainModels.numbers({4}), ChainModels.numbers({4}, 0.9)}

    run = fn q, p, step_size ->
      {:ok, states} = Chain.leapfrog(chain, q, p, x, steps: 50, step_size: step_size, keep: :last)
      {host(states.q), host(states.p)}
    end

    {q_end, p_end} = run.(q, p, 0.05)
    {back, momentum} = run.(q_end, p_end, -0.05)
    assert largest_error(back, q) < 1.0e-12
    assert largest_error(momentum, p) < 1.0e-12
    {back, momentum} = run.(q_end, Nx.negate(p_end), 0.05)
    assert largest_error(back, q) < 1.0e-12
    assert largest_error(momentum, Nx.negate(p)) < 1.0e-12
  end

  test "the error of the energy is of the order of the squared step size" do
    {chain, x} = banana_chain()
    {q, p} = {ChainModels.numbers({4}), ChainModels.numbers({4}, 0.9)}
    {:ok, start} = Chain.leapfrog(chain, q, p, x, steps: 1, step_size: 0.0)
    energy = fn logp, p -> Nx.to_number(logp) - 0.5 * Nx.to_number(Nx.sum(Nx.pow(host(p), 2))) end

    [coarse, fine] =
      for steps <- [20, 40] do
        options = [steps: steps, step_size: 2.0 / steps, keep: :last]
        {:ok, states} = Chain.leapfrog(chain, q, p, x, options)
        abs(energy.(states.logp, states.p) - energy.(start.logp[0], p))
      end

    assert_in_delta coarse / fine, 4.0, 0.6
  end

  @tag float64: false
  test "f32 is that of the rounded position" do
    x = ChainModels.numbers({5})
    {:ok, chain} = Chain.compile(&banana/2, @banana, x, type: :f32)
    [q, p] = for phase <- [0.2, 1.4], do: Nx.as_type(ChainModels.numbers({4}, phase), :f32)
    {:ok, states} = Chain.leapfrog(chain, q, p, x, steps: 5, step_size: 0.1)
    [exact_q, exact_p] = for tensor <- [q, p], do: Nx.as_type(tensor, :f64)
    expected = reference(&banana/2, @banana, x, exact_q, exact_p, 0.1, 1.0, 5)
    assert states.q.type == {:f, 32}

    for key <- [:q, :p, :grad, :logp],
        do: assert(largest_error(Nx.as_type(host(states[key]), :f64), expected[key]) < 1.0e-5)
  end

  test "what the function closes over is data, as are other tensors of the same shapes" do
    centre = ChainModels.numbers({30})

    logp = fn q, x ->
      Nx.multiply(-0.5, Nx.sum(Nx.pow(Nx.subtract(Nx.subtract(x, centre), q), 2)))
    end

    {:ok, chain} = Chain.compile(logp, Nx.template({}, :f64), Nx.template({30}, :f64))

    for phase <- [0.1, 2.0] do
      x = ChainModels.numbers({30}, phase)

      {:ok, states} =
        Chain.leapfrog(chain, Nx.f64([0.4]), Nx.f64([0]), x, steps: 1, step_size: 0.0)

      assert largest_error(states.logp[0], logp.(Nx.f64(0.4), x)) < 1.0e-14
    end
  end

  # NativeV's calls for one chain and for many.
  @native_v [
    f32: [&NativeV.leapfrog_chain_synth/6, &NativeV.leapfrog_chain_synth_batch/6],
    f64: [&NativeV.leapfrog_chain_synth_f64/6, &NativeV.leapfrog_chain_synth_batch_f64/6]
  ]

  for type <- [:f32, :f64] do
    @tag float64: type == :f64
    test "the SPIR-V file runs by NativeV's calls in #{type}" do
      type = unquote(type)

      # Sums in one loop, matrices in memory, integers that index, and movement of elements.
      names = ["normal", "Gaussian process", "intercepts of 30 groups", "movement of elements"]

      for name <- names, nx_1_0?() or name not in @nx_1_0 do
        [_, template, data, logp | _] =
          ChainModels.all() |> Enum.find(&(elem(&1, 0) == name)) |> Tuple.to_list()

        case Chain.compile(logp, template, data, type: type) do
          {:ok, chain} ->
            assert_runs_by_native_v(@native_v[type], name, chain, data)

          # Where workgroups are small, as SwiftShader's, an invocation of a CPU device would loop too often.
          {:error, {:unsupported, reason}} ->
            assert {name, reason =~ "loops have"} == {"Gaussian process", true}
        end
      end
    end

    @tag float64: type == :f64
    test "the SPIR-V file in #{type} is the same one whenever a model is compiled" do
      compile = fn logp ->
        {:ok, chain} = Chain.compile(logp, @banana, ChainModels.numbers({5}), type: unquote(type))
        chain.spv_path
      end

      path = compile.(&banana/2)
      module = File.read!(path)
      assert compile.(&banana/2) == path
      assert File.read!(path) == module
      assert compile.(&Nx.multiply(2, banana(&1, &2))) != path
    end
  end

  test "a model of 10,000 parameters runs, in as many dispatches as it takes" do
    [_, _, _, logp] =
      ChainModels.all() |> Enum.find(&(elem(&1, 0) == "4096 normals")) |> Tuple.to_list()

    {d, steps} = {10_000, 25}
    {template, mu} = {Nx.template({d}, :f64), ChainModels.numbers({d})}
    [q, p] = for phase <- [0.2, 1.4], do: ChainModels.numbers({d}, phase)
    mass = Nx.add(ChainModels.numbers({d}, 0.7), 1.5)
    {:ok, chain} = Chain.compile(logp, template, mu)
    options = [steps: steps, step_size: 0.1, inverse_mass: mass]
    {:ok, states} = Chain.leapfrog(chain, q, p, mu, options)
    expected = reference(logp, template, mu, q, p, 0.1, mass, steps)

    for key <- [:q, :p, :grad, :logp],
        do: assert(largest_error(states[key], expected[key]) < 1.0e-13)
  end

  test "more observations than a CPU device takes have no kernel" do
    [_, template, _, logp] = hd(ChainModels.all()) |> Tuple.to_list()
    compile = &Chain.compile(logp, template, Nx.template({&1}, :f64))
    {:ok, %{type: type, name: name}} = Nx.Vulkan.device_info()
    # With the kernels of GPUs a CPU device has their limits.
    as_gpu? = "cpu" in String.split(System.get_env("NX_VULKAN_DISABLE", ""), ",")
    assert {:ok, _} = compile.(200_000)

    if type == :cpu and not as_gpu? do
      assert {:error, {:unsupported, text}} = compile.(1_000_000)
      assert text =~ ~r/whose loops have \d+ iterations/
      assert text =~ name
    else
      assert {:ok, _} = compile.(1_000_000)
    end
  end

  test "operations that depend one on the other have no kernel where they are too many, and end no process" do
    scalar = Nx.template({}, :f64)

    nested = fn count ->
      fn q, _ ->
        Enum.reduce(1..count, q, fn _, x -> Nx.sin(x) |> Nx.reshape({1}) |> Nx.sum() end)
      end
    end

    assert {:ok, _} = Chain.compile(nested.(150), scalar, {})
    assert {:error, {:unsupported, text}} = Chain.compile(nested.(3000), scalar, {})
    assert text =~ "one after the other"
  end

  test "what a kernel cannot compute is an error of compile" do
    q = Nx.template({4}, :f64)

    for {what, function} <- [
          {"sort", &Nx.sort/1},
          {"argsort", &Nx.take(&1, Nx.argsort(&1))},
          {"argsort", &elem(Nx.top_k(&1, k: 2), 0)},
          {"fft", &Nx.real(Nx.fft(&1))},
          {"ifft", &Nx.real(Nx.ifft(&1))},
          {"complex", &Nx.real(Nx.complex(&1, &1))},
          {"conv", &Nx.conv(Nx.reshape(&1, {1, 1, 4}), Nx.broadcast(Nx.f64(1), {1, 1, 2}))},
          {"window_sum", &Nx.window_sum(&1, {2})},
          {"window_max", &Nx.window_max(&1, {2})},
          {"window_min", &Nx.window_min(&1, {2})},
          {"reduce", &Nx.reduce(&1, Nx.f64(0), fn a, b -> Nx.add(a, b) end)},
          {~r/while|cond/, &elem(Nx.LinAlg.qr(Nx.outer(&1, &1)), 1)},
          {"cholesky", &Nx.LinAlg.cholesky(Nx.reshape(&1, {4, 1, 1}))},
          {"while", &Until.one/1}
        ] do
      logp = fn q, _ -> Nx.sum(function.(q)) end
      assert {:error, {:unsupported, text}} = Chain.compile(logp, q, {})
      assert text =~ what
    end

    assert_raise ArgumentError, ~r/float scalar/, fn -> Chain.compile(fn q, _ -> q end, q, {}) end

    assert_raise ArgumentError, ~r/float tensors/, fn ->
      Chain.compile(&banana/2, Nx.iota({2}), {})
    end

    assert_raise RuntimeError, "mine", fn -> Chain.compile(fn _, _ -> raise "mine" end, q, {}) end
  end

  test "arguments of other shapes raise, and no call ends the process" do
    {chain, x} = banana_chain()
    q = ChainModels.numbers({4})

    call = fn q, p, x, opts ->
      Chain.leapfrog(chain, q, p, x, [steps: 1, step_size: 0.1] ++ opts)
    end

    assert {:ok, _} = call.(q, q, x, [])
    assert_raise ArgumentError, ~r/q: expected/, fn -> call.(Nx.f64([1, 2]), q, x, []) end
    assert_raise ArgumentError, ~r/p: expected/, fn -> call.(q, %{a: 1.0}, x, []) end
    assert_raise ArgumentError, ~r/data: expected/, fn -> call.(q, q, Nx.f64([1]), []) end

    assert_raise ArgumentError, ~r/inverse_mass/, fn ->
      call.(q, q, x, inverse_mass: Nx.f64([1]))
    end

    assert_raise ArgumentError, ~r/q: expected/, fn -> call.(q, q, x, chains: 2) end
    assert_raise ArgumentError, ~r/keep/, fn -> call.(q, q, x, keep: :none) end

    assert_raise ArgumentError, ~r/steps/, fn ->
      Chain.leapfrog(chain, q, q, x, step_size: 0.1)
    end

    # Energies that overflow are numbers of their own, not errors.
    assert {:ok, states} = call.(Nx.multiply(q, 1.0e200), q, x, [])

    assert Nx.to_number(Nx.is_nan(states.logp[0])) == 1 or
             Nx.to_number(states.logp[0]) == :neg_infinity
  end
end
