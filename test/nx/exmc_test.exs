defmodule Nx.Vulkan.ExmcTest do
  # What eXMC, a library for Bayesian models, takes from its Vulkan package: log densities and their
  # gradients in f64, leapfrog chains, and the names that it calls them by.
  use Nx.Vulkan.Test.Case, async: true

  alias Nx.Vulkan.NativeV
  alias Nx.Vulkan.Test.UnsharedKernel

  defmodule Posterior do
    # The model of shaders/leapfrog_regime.comp as a sum of log densities, of which Nx makes the gradient.
    import Nx.Defn

    defn(value_and_gradient(q, returns), do: value_and_grad(q, &log_density(&1, returns)))

    defn log_density(q, returns) do
      sigma = softplus(q[4..6])
      jacobian = -softplus(-q[4..6])
      free = Nx.stack([q[0], q[1], q[2], q[3], q[7]])

      prior =
        Nx.sum(normal(free, 0, Nx.tensor([1.0, 1.0, 0.5, 1.0, 1.0], type: :f64))) +
          Nx.sum(
            normal(sigma, 0, Nx.tensor([1.0, 1.0, 2.0], type: :f64)) +
              Nx.log(Nx.tensor(2.0, type: :f64)) + jacobian
          )

      # Regimes in rows: mean-reverting, trending, volatile.
      logits = Nx.stack([q[1], q[0], Nx.tensor(0.0, type: :f64)])
      log_weights = logits - log_sum_exp(Nx.new_axis(logits, 1))
      mu = Nx.stack([q[2], q[3], Nx.tensor(0.0, type: :f64)])
      columns = fn t -> Nx.new_axis(t, 1) end
      regimes = columns.(log_weights) + normal(returns, columns.(mu), columns.(sigma))
      prior + Nx.sum(log_sum_exp(regimes))
    end

    defnp(softplus(x), do: Nx.max(x, 0) + Nx.log1p(Nx.exp(-Nx.abs(x))))

    defnp log_sum_exp(x) do
      largest = Nx.reduce_max(x, axes: [0])
      Nx.log(Nx.sum(Nx.exp(x - largest), axes: [0])) + largest
    end

    defnp normal(x, mu, sigma) do
      z = (x - mu) / sigma
      -0.5 * z * z - Nx.log(sigma) - 0.5 * Nx.log(2 * Nx.Constants.pi({:f, 64}))
    end
  end

  @d 8
  @n_obs 50

  defp f64(values), do: Nx.tensor(values, type: :f64, backend: Nx.BinaryBackend)
  defp normals(n, scale \\ 1.0), do: for(_ <- 1..n, do: scale * :rand.normal())
  defp encode(values, bits), do: for(x <- values, into: <<>>, do: <<x::float-little-size(bits)>>)
  defp decode(binary, bits), do: for(<<x::float-little-size(bits) <- binary>>, do: x)
  defp spv(name), do: Application.app_dir(:nx_vulkan, "priv/shaders/#{name}.spv")

  defp reference(q, returns) do
    {logp, gradient} =
      Nx.Defn.jit_apply(&Posterior.value_and_gradient/2, [f64(q), f64(returns)],
        compiler: Nx.Defn.Evaluator
      )

    {Nx.to_number(logp), Nx.to_flat_list(gradient)}
  end

  # The scheme of `Nx.Vulkan.NativeV.leapfrog_chain_synth/6`: the state after each step.
  defp leapfrog(q, p, inverse_mass, k, eps, log_density) do
    kick = fn p, gradient -> Enum.zip_with(p, gradient, &(&1 + 0.5 * eps * &2)) end
    {_, gradient} = log_density.(q)

    {states, _} =
      Enum.map_reduce(1..k, {q, p, gradient}, fn _, {q, p, gradient} ->
        half = kick.(p, gradient)
        q = Enum.zip_with([q, inverse_mass, half], fn [q, m, p] -> q + eps * m * p end)
        {logp, gradient} = log_density.(q)
        p = kick.(half, gradient)
        {{q, p, gradient, [logp]}, {q, p, gradient}}
      end)

    for i <- 0..3, do: Enum.flat_map(states, &elem(&1, i))
  end

  # Of each list, relative to its largest value: others may be zero by cancellation.
  defp assert_close(got, want, tolerance) do
    for [got, want] <- zip_all([got, want]) do
      scale = want |> Enum.map(&abs/1) |> Enum.max()
      for [got, want] <- zip_all([got, want]), do: assert_in_delta(got, want, tolerance * scale)
    end
  end

  defp case_of(d \\ @d), do: {normals(d, 0.7), normals(d), normals(@n_obs, 1.5)}

  defp has_f64?, do: Nx.Vulkan.has_f64()

  describe "the log posterior of the regime model in f64" do
    test "is BinaryBackend's, its gradient too, evaluated op by op on the device" do
      if has_f64?() do
        for _ <- 1..5 do
          {q, _, returns} = case_of()
          {logp, gradient} = reference(q, returns)

          {got, got_gradient} =
            Nx.Vulkan.jit(&Posterior.value_and_gradient/2).(f64(q), f64(returns))

          assert Nx.type(got) == {:f, 64}
          assert_close([[Nx.to_number(got)]], [[logp]], 1.0e-12)
          assert_close([Nx.to_flat_list(got_gradient)], [gradient], 1.0e-12)
        end
      end
    end

    test "is what a leapfrog step of length 0 gives" do
      if has_f64?() do
        for _ <- 1..5 do
          {q, p, returns} = case_of()
          {logp, gradient} = reference(q, returns)
          [got_q, _, got_gradient, got] = regime([{q, p, returns}], 1, 0.0, 64)
          assert got_q == q
          assert_close([got], [[logp]], 1.0e-12)
          assert_close([got_gradient], [gradient], 1.0e-12)
        end
      end
    end
  end

  # Chains of the regime model with masses of 1, 1.5, 2, …, one dispatch; what it gives as lists.
  defp regime(cases, k, eps, bits) do
    [qs, ps, returns] = for i <- 0..2, do: Enum.map(cases, &elem(&1, i))
    extras = Enum.map(returns, &(&1 ++ inverse_mass(@d)))

    {call, path} =
      if bits == 64,
        do: {:leapfrog_chain_synth_batch_f64, spv("leapfrog_regime_f64")},
        else: {:leapfrog_chain_synth_batch, spv("leapfrog_regime")}

    push =
      <<k::32-little, length(hd(returns))::32-little, @d::32-little, length(cases)::32-little>> <>
        encode([eps], bits)

    binaries = for lists <- [qs, ps, extras], do: encode(Enum.concat(lists), bits)
    {:ok, chains} = apply(NativeV, call, binaries ++ [push, k, path])
    for chain <- Tuple.to_list(chains), do: decode(chain, bits)
  end

  defp inverse_mass(d), do: for(i <- 1..d, do: 0.5 + 0.5 * i)

  describe "leapfrog chains of the regime model" do
    test "follow the scheme, with doubles and a step size that is one" do
      if has_f64?() do
        {q, p, returns} = case_of()
        want = leapfrog(q, p, inverse_mass(@d), 6, 0.01, &reference(&1, returns))
        assert_close(regime([{q, p, returns}], 6, 0.01, 64), want, 1.0e-12)

        # Backwards in time.
        want = leapfrog(q, p, inverse_mass(@d), 6, -0.01, &reference(&1, returns))
        assert_close(regime([{q, p, returns}], 6, -0.01, 64), want, 1.0e-12)
      end
    end

    test "are independent of each other in one dispatch, whatever their number" do
      for bits <- if(has_f64?(), do: [32, 64], else: [32]), count <- [2, 33] do
        cases = for _ <- 1..count, do: case_of()
        batched = regime(cases, 3, 0.02, bits)
        alone = for chain <- cases, do: regime([chain], 3, 0.02, bits)
        assert batched == Enum.zip_with(alone, &Enum.concat/1)
      end
    end

    test "have 64-bit floats where the call says so, whatever the file is called" do
      if has_f64?() do
        path = Path.join(System.tmp_dir!(), "nx_vulkan_#{System.unique_integer([:positive])}.spv")
        File.cp!(spv("leapfrog_regime_f64"), path)
        on_exit(fn -> File.rm(path) end)
        {q, p, returns} = case_of()
        [q, p] = for list <- [q, p], do: encode(list, 64)
        extras = encode(returns ++ inverse_mass(@d), 64)
        push = <<2::32-little, @n_obs::32-little, @d::32-little, 0::32, 0.01::float-64-little>>
        expected = NativeV.leapfrog_chain_synth(q, p, extras, push, 2, spv("leapfrog_regime_f64"))
        assert {:ok, _} = expected
        assert NativeV.leapfrog_chain_synth_f64(q, p, extras, push, 2, path) == expected
        # As 32-bit floats the sizes do not fit.
        assert NativeV.leapfrog_chain_synth(q, p, extras, push, 2, path) ==
                 {:error, :size_mismatch}
      end
    end

    test "are refused where the number of chains does not fit" do
      {q, p, returns} = case_of()
      [q, p] = for list <- [q, p], do: encode(list, 32)
      extras = encode(returns ++ inverse_mass(@d), 32)

      call = fn chains ->
        push =
          <<2::32-little, @n_obs::32-little, @d::32-little, chains::32-little,
            0.1::float-32-little>>

        NativeV.leapfrog_chain_synth_batch(q, p, extras, push, 2, spv("leapfrog_regime"))
      end

      assert {:ok, _} = call.(1)
      assert {:error, :invalid_argument, _} = call.(0)
      for chains <- [2, 65_536, 0xFFFFFFFF], do: assert(call.(chains) == {:error, :size_mismatch})
      assert {:ok, _} = call.(1)
    end
  end

  # The same density in scalars, as eXMC's generator takes models: its kernel is written without sharing.
  defmodule Scalars do
    @half_log_two_pi 0.5 * :math.log(2 * :math.pi())

    def prior({w1, w2, mu1, mu2, s1, s2, s3, theta}) do
      free =
        for {x, s} <- [{w1, 1}, {w2, 1}, {mu1, 0.5}, {mu2, 1}, {theta, 1}],
            do: normal(x, 0.0, f64(s))

      folded =
        for {x, s} <- [{s1, 1}, {s2, 1}, {s3, 2}] do
          density = Nx.add(normal(softplus(x), 0.0, f64(s)), f64(:math.log(2)))
          Nx.subtract(density, softplus(Nx.negate(x)))
        end

      Enum.reduce(free ++ folded, &Nx.add/2)
    end

    def likelihood({w1, w2, mu1, mu2, s1, s2, s3, _}, x) do
      regimes =
        for {w, mu, s} <- [{w2, mu1, s1}, {w1, mu2, s2}, {0.0, 0.0, s3}],
            do: Nx.add(w, normal(x, mu, softplus(s)))

      largest = Enum.reduce(regimes, &Nx.max/2)
      relative = log_sum_exp(for(regime <- regimes, do: Nx.subtract(regime, largest)))
      Nx.subtract(Nx.add(largest, relative), log_sum_exp([w2, w1, 0.0]))
    end

    defp f64(number), do: Nx.tensor(number, type: :f64, backend: Nx.BinaryBackend)

    defp log_sum_exp(terms),
      do: terms |> Enum.map(&Nx.exp/1) |> Enum.reduce(&Nx.add/2) |> Nx.log()

    defp softplus(x) do
      above = Nx.add(x, Nx.log1p(Nx.exp(Nx.negate(x))))
      Nx.select(Nx.greater(x, 0.0), above, Nx.log1p(Nx.exp(x)))
    end

    defp normal(x, mu, sigma) do
      z = Nx.divide(Nx.subtract(x, mu), sigma)

      Nx.subtract(
        Nx.multiply(-0.5, Nx.multiply(z, z)),
        Nx.add(Nx.log(sigma), f64(@half_log_two_pi))
      )
    end
  end

  describe "a kernel in which nothing is shared" do
    @tag timeout: 300_000
    test "runs, however large it is" do
      if has_f64?() do
        spirv = UnsharedKernel.leapfrog(&Scalars.prior/1, &Scalars.likelihood/2, @d)
        %{selections: selections, variables: variables} = UnsharedKernel.sizes(spirv)
        assert byte_size(spirv) > 4_500_000 and selections > 6377 and variables * 8 > 86_000
        path = Path.join(System.tmp_dir!(), "nx_vulkan_#{System.unique_integer([:positive])}.spv")
        File.write!(path, spirv)
        on_exit(fn -> File.rm(path) end)

        {q, p, returns} = case_of()
        want = leapfrog(q, p, inverse_mass(@d), 6, 0.01, &reference(&1, returns))
        push = <<6::32-little, @n_obs::32-little, @d::32-little, 0::32, 0.01::float-64-little>>
        [q, p, extras] = for list <- [q, p, returns ++ inverse_mass(@d)], do: encode(list, 64)
        {:ok, chain} = NativeV.leapfrog_chain_synth_f64(q, p, extras, push, 6, path)
        assert_close(for(part <- Tuple.to_list(chain), do: decode(part, 64)), want, 1.0e-11)
      end
    end
  end

  describe "leapfrog_chain_normal" do
    defp normal_model(mu, sigma) do
      fn q ->
        z = Enum.map(q, &((&1 - mu) / sigma))
        constant = :math.log(sigma) + 0.5 * :math.log(2 * :math.pi())
        {-Enum.sum(Enum.map(z, &(0.5 * &1 * &1 + constant))), Enum.map(z, &(-&1 / sigma))}
      end
    end

    defp uploaded(values, bits) do
      {:ok, ref} = Nx.Vulkan.upload_binary(encode(values, bits))
      ref
    end

    test "follows the scheme, in both precisions" do
      calls = [{&Nx.Vulkan.leapfrog_chain_normal/7, 32, 2.0e-6}]
      double = [{&Nx.Vulkan.leapfrog_chain_normal_f64/7, 64, 1.0e-14}]

      for {call, bits, tolerance} <- calls ++ if(has_f64?(), do: double, else: []),
          {d, k, eps, mu, sigma} <- [
            {1, 1, 0.25, 0.0, 1.0},
            {8, 32, 0.125, 0.5, 2.0},
            {256, 5, -0.0625, -1.5, 0.75},
            {3, 4, 0.5, 2, 3}
          ] do
        # Numbers that 32 bits hold.
        [q, p] = for _ <- 1..2, do: d |> normals() |> encode(32) |> decode(32)
        mass = inverse_mass(d)
        want = leapfrog(q, p, mass, k, eps, normal_model(mu, sigma))

        {:ok, refs} =
          call.(uploaded(q, bits), uploaded(p, bits), uploaded(mass, bits), k, eps, mu, sigma)

        got =
          for {ref, count} <- Enum.zip(Tuple.to_list(refs), [k * d, k * d, k * d, k]) do
            {:ok, binary} = Nx.Vulkan.Native.download_binary(ref, count * div(bits, 8))
            decode(binary, bits)
          end

        assert_close(got, want, k * tolerance)
      end
    end

    test "refuses what makes no sense, and works afterwards" do
      [q, p, mass] = for _ <- 1..3, do: uploaded([0.5, 1.0, 2.0], 32)
      good = [q, p, mass, 4, 0.1, 0.0, 1.0]
      assert {:ok, _} = apply(Nx.Vulkan, :leapfrog_chain_normal, good)
      freed = uploaded([0.5, 1.0, 2.0], 32)
      :ok = Nx.Vulkan.Native.buf_free(freed)

      bad = [
        {0, uploaded([0.5], 32), :size_mismatch},
        {1, uploaded([0.5, 1.0, 2.0, 4.0], 32), :size_mismatch},
        {2, elem(NativeV.buf_upload("odd bytes"), 1), :size_mismatch},
        {0, freed, :deallocated},
        {3, 0, :invalid_argument},
        {3, 2 ** 40, :size_mismatch},
        {4, 1.0e300, :invalid_argument},
        {5, -1.0e39, :invalid_argument},
        {6, 0.0, :invalid_argument},
        {6, -1, :invalid_argument},
        {6, 1.0e-60, :invalid_argument}
      ]

      for {i, value, reason} <- bad do
        result = apply(Nx.Vulkan, :leapfrog_chain_normal, List.replace_at(good, i, value))
        assert {elem(result, 0), elem(result, 1)} == {:error, reason}, "#{i}: #{inspect(result)}"
      end

      for {name, i, value} <- [
            {"q", 0, make_ref()},
            {"p", 1, <<0::96>>},
            {"inv_mass", 2, nil},
            {"k", 3, -1},
            {"k", 3, 2.0},
            {"eps", 4, "0.1"},
            {"mu", 5, nil},
            {"sigma", 6, 2 ** 100}
          ] do
        assert_raise ArgumentError, ~r/^#{name}: /, fn ->
          apply(Nx.Vulkan, :leapfrog_chain_normal, List.replace_at(good, i, value))
        end
      end

      empty = uploaded([], 32)

      assert {:error, :invalid_argument, _} =
               Nx.Vulkan.leapfrog_chain_normal(empty, empty, empty, 1, 0.1, 0.0, 1.0)

      too_many = uploaded(List.duplicate(0.5, 257), 32)

      assert {:error, :invalid_argument, _} =
               Nx.Vulkan.leapfrog_chain_normal(too_many, too_many, too_many, 1, 0.1, 0.0, 1.0)

      assert {:ok, _} = apply(Nx.Vulkan, :leapfrog_chain_normal, good)
    end
  end

  describe "the names that eXMC calls:" do
    test "the device" do
      assert Nx.Vulkan.init() == :ok
      {:ok, %{name: name, features: features}} = Nx.Vulkan.device_info()
      assert Nx.Vulkan.device_name() == name
      assert Nx.Vulkan.Native.device_name() == name

      for answer <- [
            Nx.Vulkan.has_f64(),
            Nx.Vulkan.has_f64?(),
            Nx.Vulkan.Native.has_f64()
          ],
          do: assert(answer == :float64 in features)
    end

    test "bytes to the device and back" do
      for data <- ["", "abc", <<1.5::float-32-little>>] do
        {:ok, ref} = Nx.Vulkan.upload_binary(data)
        assert Nx.Vulkan.Native.download_binary(ref, byte_size(data)) == {:ok, data}
        assert Nx.Vulkan.download_binary(ref, byte_size(data)) == {:ok, data}

        for wrong <- [byte_size(data) + 1, -1, nil, 2 ** 80],
            do: assert(Nx.Vulkan.Native.download_binary(ref, wrong) == {:error, :size_mismatch})
      end

      assert_raise ArgumentError, ~r/^data: /, fn -> Nx.Vulkan.upload_binary(~c"abc") end
      assert_raise ArgumentError, ~r/^ref: /, fn -> Nx.Vulkan.download_binary(:ref, 0) end
    end

    test "the backend" do
      tensor = Nx.iota({2, 3}, type: :f32, backend: Nx.Vulkan.Backend)
      assert %VulkanoBackend{} = tensor.data
      host = Nx.iota({2, 3}, type: :f32)

      for move <- [&Nx.backend_copy/2, &Nx.backend_transfer/2] do
        assert_same(move.(host, Nx.Vulkan.Backend), host, :iota)
        assert_same(move.(Nx.multiply(to_device(host), 1), Nx.Vulkan.Backend), host, :iota)
      end

      Nx.with_default_backend(Nx.Vulkan.Backend, fn ->
        assert_same(Nx.add(Nx.tensor([1, 2]), 1), f64([2, 3]) |> Nx.as_type(:s32), :add)
        assert_same(Nx.eye(2), Nx.eye(2, backend: Nx.BinaryBackend), :eye)
      end)

      assert_raise ArgumentError, ~r/takes no options/, fn ->
        Nx.default_backend({Nx.Vulkan.Backend, a: 1})
      end
    end

    test "definitions, whose results are on the device wherever the inputs were" do
      fun = fn %{x: x}, y -> {Nx.sum(Nx.multiply(x, y)), Nx.iota({3}), x, 7} end
      x = Nx.tensor([1.0, 2.0, 3.0])

      for jit <- [&Nx.Vulkan.jit/1, &Nx.Defn.jit(&1, compiler: Nx.Vulkan.Compiler)],
          x <- [x, to_device(x)] do
        {sum, iota, same, constant} = jit.(fun).(%{x: x}, 2)
        assert_same(sum, Nx.tensor(12.0), :sum)
        assert_same(iota, Nx.iota({3}), :iota)
        assert_same(same, Nx.tensor([1.0, 2.0, 3.0]), :multiply)
        assert_same(constant, Nx.tensor(7), :constant)
      end

      # What was there before: the default backend, and the inputs.
      assert Nx.default_backend() == {Nx.BinaryBackend, []}
      assert Nx.to_flat_list(x) == [1.0, 2.0, 3.0]
    end

    test "definitions by another compiler, and with options" do
      x = Nx.tensor([1.0, 2.0])
      result = Nx.Vulkan.jit(&Nx.exp/1, compiler: Nx.Defn.Evaluator).(x)
      assert %Nx.BinaryBackend{} = result.data
      tested = self()
      fun = fn x -> io_hook(Nx.add(x, 1), :seen, &send(tested, {:seen, &1})) end
      _ = Nx.Vulkan.jit(fun, garbage_collect: true).(x)
      assert_received {:seen, %Nx.Tensor{data: %VulkanoBackend{}}}
      assert_raise FunctionClauseError, fn -> Nx.Vulkan.jit(:no_function) end
    end

    test "a definition that was compiled runs again and again" do
      compiled =
        Nx.Defn.compile(&Posterior.log_density/2, [f64(normals(@d)), f64(normals(@n_obs))],
          compiler: Nx.Vulkan.Compiler
        )

      for _ <- 1..2, has_f64?() do
        {q, _, returns} = case_of()
        {logp, _} = reference(q, returns)
        assert_close([[Nx.to_number(compiled.(f64(q), f64(returns)))]], [[logp]], 1.0e-12)
      end
    end
  end
end
