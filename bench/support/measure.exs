defmodule Bench.Measure do
  @moduledoc """
  Timing as in `../shared/bench/peers.py`: a warm-up, then the median of single runs, each with a wait for the
  device at its end.

  Garbage is collected when the BEAM or the backend needs it, never for the measurement's sake. A run pays for
  the tensors that it drops, as a user's loop does.
  """

  @doc """
  The median time in seconds of `runs` calls of `fun` after `warm_up` calls that do not count.

  A run ends when all its work has finished on the device. What `fun` returns is dropped.
  """
  def median(fun, runs, warm_up \\ 3) do
    for _ <- 1..warm_up, do: fun.()
    :ok = Nx.Vulkan.synchronize()

    times =
      for _ <- 1..runs do
        start = System.monotonic_time()
        fun.()
        :ok = Nx.Vulkan.synchronize()
        System.monotonic_time() - start
      end

    Enum.at(Enum.sort(times), div(runs, 2)) / System.convert_time_unit(1, :second, :native)
  end

  @doc """
  A tensor of normally distributed f32 numbers, made on the device; the same for the same seed.

  Box-Muller on two streams of hashed counters (the output function of PCG-RXS-M-XS 32, O'Neill 2014).
  """
  def normal(shape, seed) do
    n = Nx.size(shape)
    radius = Nx.sqrt(Nx.multiply(-2.0, Nx.log(uniform(n, 2 * seed))))
    angle = Nx.multiply(2 * :math.pi(), uniform(n, 2 * seed + 1))
    Nx.reshape(Nx.multiply(radius, Nx.cos(angle)), shape)
  end

  # In (0, 1): 23 bits and a half, which f32 holds exactly.
  defp uniform(n, stream) do
    counter = Nx.add(Nx.iota({n}, type: :u32), u32(stream * 0x9E3779B9))
    state = Nx.add(Nx.multiply(counter, u32(747_796_405)), u32(2_891_336_453))
    shift = Nx.add(Nx.right_shift(state, u32(28)), u32(4))
    word = Nx.multiply(Nx.bitwise_xor(Nx.right_shift(state, shift), state), u32(277_803_737))
    bits = Nx.right_shift(Nx.bitwise_xor(Nx.right_shift(word, u32(22)), word), u32(9))
    Nx.multiply(Nx.add(Nx.as_type(bits, :f32), 0.5), :math.pow(2, -23))
  end

  defp u32(number), do: Nx.tensor(rem(number, 0x100000000), type: :u32)
end
