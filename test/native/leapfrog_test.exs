Code.require_file("support/native_case.exs", __DIR__)

defmodule Nx.Vulkan.LeapfrogTest do
  use Nx.Vulkan.Test.NativeCase, async: true

  # What the chain computes is checked in native_tests/leapfrog; here, how it arrives on the
  # BEAM.

  defp encode(values, bits \\ 32),
    do: for(x <- values, into: <<>>, do: <<x::float-little-size(bits)>>)

  defp decode(binary, bits \\ 32), do: for(<<x::float-little-size(bits) <- binary>>, do: x)

  defp push(steps, n_obs, d, eps),
    do: <<steps::32-little, n_obs::32-little, d::32-little, 0::32, eps::float-32-little>>

  @obs [-0.5, 0.25, 1.5]
  @inverse_mass [1.0, 0.5, 2.0, 1.0, 0.25, 1.0, 1.0, 1.0]
  @q [0.5, -0.25, 0.125, 1.0, 0.0, -0.5, 0.75, 0.25]
  @p [1.0, -1.0, 0.5, 0.25, -0.75, 0.0, 0.5, 2.0]

  defp chain(steps, eps, bits \\ 32, q \\ @q, p \\ @p) do
    NativeV.leapfrog_chain_synth(
      encode(q, bits),
      encode(p, bits),
      encode(@obs ++ @inverse_mass, bits),
      push(steps, length(@obs), length(@q), eps),
      steps,
      spv("leapfrog_regime", bits)
    )
  end

  # theta_mr has a standard normal prior of its own: its part of the chain is that of a harmonic
  # oscillator.
  test "returns the state after each step, step by step, in each precision" do
    {:ok, device} = Nx.Vulkan.device_info()
    double = if :float64 in device.features, do: [{64, 1.0e-14}], else: []

    for {bits, tolerance} <- [{32, 1.0e-6}] ++ double do
      {:ok, {q, p, grad, logp}} = chain(5, 0.125, bits)
      bytes = div(bits, 8)

      assert {byte_size(q), byte_size(p), byte_size(grad)} ==
               {5 * 8 * bytes, 5 * 8 * bytes, 5 * 8 * bytes}

      assert byte_size(logp) == 5 * bytes
      theta = fn chain -> chain |> decode(bits) |> Enum.drop(7) |> Enum.take_every(8) end

      zip_all([theta.(q), theta.(p), theta.(grad)])
      |> Enum.reduce({0.25, 2.0}, fn [got_q, got_p, got_grad], {q, p} ->
        half = p - 0.0625 * q
        q = q + 0.125 * half
        p = half - 0.0625 * q
        assert_in_delta got_q, q, tolerance
        assert_in_delta got_p, p, tolerance
        assert_in_delta got_grad, -q, tolerance
        {q, p}
      end)
    end
  end

  test "a negative step returns to the start" do
    {:ok, {q, p, _, _}} = chain(20, 0.05)
    last = fn chain -> chain |> decode() |> Enum.take(-8) end
    {:ok, {q, p, _, _}} = chain(20, -0.05, 32, last.(q), last.(p))

    for [got, want] <- zip_all([last.(q) ++ last.(p), @q ++ @p]),
        do: assert_in_delta(got, want, 1.0e-4)
  end

  test "a shorter chain is a prefix of a longer one" do
    {:ok, short} = chain(7, 0.1)
    {:ok, long} = chain(11, 0.1)

    for [short, long] <- zip_all([Tuple.to_list(short), Tuple.to_list(long)]) do
      assert short == binary_part(long, 0, byte_size(short))
    end
  end

  test "many processes at once get what one gets" do
    expected = for steps <- 1..16, do: chain(steps, 0.1)

    tasks = for steps <- 1..16, do: Task.async(fn -> chain(steps, 0.1) end)
    assert Task.await_many(tasks, :infinity) == expected
  end

  describe "bad input is refused and the next call works:" do
    setup do
      good =
        {encode(@q), encode(@p), encode(@obs ++ @inverse_mass), push(2, 3, 8, 0.1), 2,
         spv("leapfrog_regime")}

      {:ok, good: good}
    end

    defp refused?(args) do
      case apply(NativeV, :leapfrog_chain_synth, Tuple.to_list(args)) do
        {:error, reason} -> is_atom(reason)
        {:error, reason, message} -> is_atom(reason) and is_binary(message)
        _ -> false
      end
    rescue
      e in ArgumentError -> Exception.message(e) != "argument error"
    end

    # {what, index of the argument, its bad value}
    bad = [
      {"an empty position", 0, ""},
      {"a position of other size than d", 0, <<0::64>>},
      {"a position that is no binary", 0, :q},
      {"a momentum of other size than d", 1, <<0::512>>},
      {"extras that hold too little", 2, <<0::size(10 * 32)>>},
      {"extras of odd length", 2, <<0::size(90 * 4)>>},
      {"an empty push", 3, ""},
      {"a push of odd length", 3, quote(do: push(2, 3, 8, 0.1) <> <<0>>)},
      {"a push that is too long", 3, quote(do: push(2, 3, 8, 0.1) <> <<0::size(112 * 8)>>)},
      {"a push for another k", 3, quote(do: push(3, 3, 8, 0.1))},
      {"d = 0", 3, quote(do: push(2, 3, 0, 0.1))},
      {"d = 257", 3, quote(do: push(2, 3, 257, 0.1))},
      {"n_obs beyond any buffer", 3, quote(do: push(2, 0xFFFFFFFF, 8, 0.1))},
      {"k = 0", 4, 0},
      {"k < 0", 4, -1},
      {"k beyond any memory", 4, 0xFFFFFFFF},
      {"k beyond 64 bits", 4, quote(do: 1 <<< 70)},
      {"a file that is missing", 5, "/no/such/file.spv"},
      {"a file that is no SPIR-V", 5, __ENV__.file},
      {"a path that is no path", 5, 5}
    ]

    import Bitwise, only: [<<<: 2]

    for {what, index, value} <- bad do
      test what, %{good: good} do
        assert refused?(put_elem(good, unquote(index), unquote(value)))
        assert {:ok, _} = apply(NativeV, :leapfrog_chain_synth, Tuple.to_list(good))
      end
    end
  end
end
