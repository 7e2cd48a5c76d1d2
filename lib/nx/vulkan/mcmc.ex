defmodule Nx.Vulkan.MCMC do
  @moduledoc """
  Samplers of Bayesian models on the device: the No-U-Turn sampler and Hamiltonian Monte Carlo on any log-density in Nx.

  A log-density is what `Nx.Vulkan.Chain` takes: an Nx function of a position and of data. Everything else runs on the
  device: momenta, trajectories, the choice of draws and the warm-up. One workgroup computes one chain, many transitions
  a dispatch, and the draws stay there.

      iex> logp = fn q, data ->
      ...>   z = Nx.divide(Nx.subtract(data, q.mu), Nx.exp(q.log_sigma))
      ...>   prior = Nx.multiply(-0.5, Nx.add(Nx.pow(q.mu, 2), Nx.pow(q.log_sigma, 2)))
      ...>   Nx.add(prior, Nx.sum(Nx.subtract(Nx.multiply(-0.5, Nx.pow(z, 2)), q.log_sigma)))
      ...> end
      iex> data = Nx.tensor([0.3, -1.2, 0.7, 2.0], type: :f64)
      iex> q = %{mu: Nx.f64(0), log_sigma: Nx.f64(0)}
      iex> result = Nx.Vulkan.MCMC.sample(logp, q, data, warmup: 200, draws: 300, progress: false)
      iex> {Nx.type(result.draws.mu), Nx.shape(result.draws.mu)}
      {{:f, 64}, {4, 300}}

  ## Algorithms

  `:nuts` doubles a trajectory until it turns around, and draws one of its points by their weights (multinomial sampling,
  Betancourt 2017), with Stan's criterion of a turn: the sum of momenta against the momenta at both ends, for every
  subtree and across its halves. `:hmc` makes a random number of steps, uniform between half and one and a half times
  `:steps`, with a Metropolis test.

  ## Warm-up

  Dual averaging adapts the step size to `:target_accept` (Hoffman and Gelman 2014); the variances of positions, or with
  `mass: :dense` their covariances, are found in Stan's windows, and scale the positions from then on. Transitions of the warm-up are not among the draws.

  ## Reproducibility

  Random numbers are those of a counter (Philox4x32-10): the seed, the chain, the transition and their use give them. The
  same seed gives the same bits on the same device, however the work is cut into dispatches, and the first chains of many
  are those of few.

  ## Divergences

  A transition whose energy error exceeds 1000, or is NaN, ends as divergent. It is counted, and the chain goes on from
  its last draw. A start whose log-density or gradient is not finite is an error.
  """

  require Nx.Vulkan.Native, as: Native

  alias Nx.Defn.Composite
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.Storage
  alias Nx.Vulkan.{Chain, Error}
  alias Nx.Vulkan.Chain.Lowering
  alias Nx.Vulkan.MCMC.{Progress, WarmUp}
  alias Nx.Vulkan.VulkanoBackend, as: B

  # Milliseconds that a dispatch should take: progress is smooth, and no watchdog ends it.
  @dispatch_time 50
  # The most that a dispatch grows by.
  @most_growth 4

  @defaults [
    algorithm: :nuts,
    chains: 4,
    warmup: 1000,
    draws: 1000,
    seed: 0,
    target_accept: 0.8,
    max_depth: 10,
    steps: 16,
    step_size: nil,
    mass: :diagonal,
    thin: 1,
    type: :f64,
    progress: true,
    steps_per_dispatch: nil
  ]

  @typedoc """
  What comes of sampling: draws in the container of positions, each leaf with leading axes of chains and draws, and
  statistics of each draw, tensors of `{chains, draws}`:

    * `accept` - the mean acceptance of the transition's points
    * `depth` - how often the trajectory was doubled
    * `leapfrog_steps` - how many steps it made
    * `divergent` - whether it diverged
    * `energy` - the energy of the draw
    * `logp` - its log-density

  and `step_size`, a tensor of `{chains}`.
  """
  @type result :: %{draws: Nx.Container.t(), stats: %{atom() => T.t()}}

  @doc """
  Samples a log-density from the position `q`.

  `logp` is a function of a position and of data, or what `Nx.Vulkan.Chain.compile/4` made of one. `q` is the position that all
  chains start from, or a function that gives that of a chain: `&Enum.at(starts, &1)`.

  ## Options

    * `:algorithm` - `:nuts` or `:hmc` (default: `:nuts`)
    * `:chains` - the number of chains (default: 4)
    * `:warmup` - transitions that adapt the step size and the mass (default: 1000)
    * `:draws` - draws that are kept of each chain (default: 1000)
    * `:thin` - transitions of a draw (default: 1)
    * `:seed` - a non-negative integer below 2^64 (default: 0)
    * `:target_accept` - the acceptance that the step size adapts to, between 0 and 1 (default: 0.8)
    * `:max_depth` - of `:nuts`: how often a trajectory is doubled at most, up to 20 (default: 10)
    * `:steps` - of `:hmc`: the mean number of steps of a trajectory (default: 16)
    * `:step_size` - the step size to start with, in place of one that is searched
    * `:mass` - `:diagonal` or `:dense`: what the warm-up finds of the covariances of positions (default: `:diagonal`)
    * `:type` - `:f32` or `:f64`, of positions and of all computations (default: `:f64`)
    * `:progress` - whether to draw a bar on a terminal (default: `true`)
    * `:steps_per_dispatch` - leapfrog steps of a dispatch, in place of a number that follows the time that they take:
      a large one may let a dispatch take longer than a second

  After each dispatch there is a telemetry event `[:nx_vulkan, :mcmc, :progress]` with the measurements `transitions`
  (of all chains), `divergences`, `leapfrogs`, `step_size` and `accept`, and the metadata `chains`, `total` and `phase`.

  What a kernel cannot compute is `{:error, {:unsupported, text}}`, before sampling starts.
  """
  @spec sample(
          fun() | Chain.t(),
          Nx.Container.t() | (non_neg_integer() -> Nx.Container.t()),
          Nx.Container.t(),
          keyword()
        ) ::
          result() | {:error, {:unsupported, String.t()}}
  def sample(logp, q, data, opts \\ []) do
    opts = opts |> Keyword.validate!(@defaults) |> Map.new() |> checked!()
    first = if is_function(q, 1), do: q.(0), else: q

    with {:ok, chain} <- chain(logp, first, data, opts),
         {:ok, sampler} <- sampler(chain, q, data, opts) do
      run(sampler, opts)
      results(sampler, chain, opts)
    end
  end

  defp chain(%Chain{type: type} = chain, _q, _data, %{type: given}) do
    if type != Nx.Type.normalize!(given),
      do: raise(ArgumentError, "type: the chain was compiled for #{inspect(type)}")

    {:ok, chain}
  end

  defp chain(logp, q, data, opts) when is_function(logp, 2),
    do: Chain.compile(logp, q, data, type: opts.type)

  ## Options

  defp checked!(opts) do
    one_of!(opts, :algorithm, [:nuts, :hmc])
    one_of!(opts, :mass, [:diagonal, :dense])
    one_of!(opts, :type, [:f32, :f64, {:f, 32}, {:f, 64}])
    one_of!(opts, :progress, [true, false])
    for key <- [:chains, :draws, :thin, :steps], do: integer!(opts, key, 1, 0x7FFFFFFF)
    integer!(opts, :warmup, 0, 0x7FFFFFFF)
    integer!(opts, :max_depth, 1, 20)
    integer!(opts, :seed, 0, 0xFFFFFFFFFFFFFFFF)
    if opts.steps_per_dispatch, do: integer!(opts, :steps_per_dispatch, 1, 0x7FFFFFFF)

    number!(opts, :target_accept, "a number between 0 and 1", &(&1 > 0 and &1 < 1))
    if opts.step_size, do: number!(opts, :step_size, "a positive number", &(&1 > 0))
    opts
  end

  defp one_of!(opts, key, values) do
    if opts[key] not in values,
      do:
        raise(
          ArgumentError,
          "#{key}: expected one of #{inspect(values)}, got: #{inspect(opts[key])}"
        )
  end

  defp integer!(opts, key, least, most) do
    case opts[key] do
      number when is_integer(number) and number in least..most//1 ->
        :ok

      other ->
        raise ArgumentError,
              "#{key}: expected an integer of #{least} to #{most}, got: #{inspect(other)}"
    end
  end

  defp number!(opts, key, expected, right?) do
    number = opts[key]

    if not (is_number(number) and right?.(number)),
      do: raise(ArgumentError, "#{key}: expected #{expected}, got: #{inspect(number)}")
  end

  ## Chains

  defp sampler(chain, start, data, opts) do
    settings = {
      {opts.algorithm, opts.mass == :dense},
      {opts.chains, opts.warmup, opts.draws, opts.thin},
      {opts.steps, opts.max_depth},
      {opts.seed, opts.target_accept * 1.0, (opts.step_size || 1) * 1.0, opts.step_size == nil},
      WarmUp.windows(opts.warmup)
    }

    case Native.call(
           sampler_new(
             chain.ref,
             Chain.buffers(chain, data),
             starts(chain, start, opts.chains),
             settings
           )
         ) do
      {:ok, {ref, first, most}} -> {:ok, %{ref: ref, first: first, most: most}}
      {:error, :unsupported, text} -> {:error, {:unsupported, text}}
      error -> Error.raise!(:sample, error)
    end
  end

  # One position after the other.
  defp starts(chain, start, chains) when is_function(start, 1),
    do: upload(for number <- 0..(chains - 1), do: position(chain, start.(number)))

  defp starts(chain, q, chains), do: upload(List.duplicate(position(chain, q), chains))

  defp position(%Chain{type: type} = chain, q) do
    shapes = &for(leaf <- Composite.flatten_list([&1]), do: shape(leaf))
    expected = shapes.(chain.template)

    if shapes.(q) != expected do
      raise ArgumentError,
            "q: expected tensors of the shapes #{inspect(expected)}, got: #{inspect(q)}"
    end

    q
    |> Composite.traverse(&(&1 |> Nx.to_tensor() |> Nx.backend_copy(Nx.BinaryBackend)))
    |> Lowering.flat(type)
    |> Nx.to_binary()
  end

  defp upload(positions) do
    case Native.call(operand_upload(IO.iodata_to_binary(positions), Storage.default_device())) do
      {:ok, ref} -> ref
      error -> Error.raise!(:sample, error)
    end
  end

  defp shape(%T{shape: shape}), do: shape
  defp shape(_number), do: {}

  # Dispatches until all chains have ended.
  defp run(sampler, opts) do
    run = %{
      chains: opts.chains,
      warmup: opts.warmup,
      transitions: opts.warmup + opts.draws * opts.thin,
      bar?: opts.progress and Progress.terminal?()
    }

    dispatch(sampler, opts.steps_per_dispatch || sampler.first, opts.steps_per_dispatch, run)
  end

  defp dispatch(sampler, steps, given, run) do
    start = System.monotonic_time(:microsecond)

    words =
      with {:ok, ref} <- Native.call(sampler_run(sampler.ref, steps)),
           {:ok, words} <- Native.call(buf_download(ref)) do
        words
      else
        error -> Error.raise!(:sample, error)
      end

    time = System.monotonic_time(:microsecond) - start
    sum = Progress.read(words, run.chains)

    if sum.failed do
      raise ArgumentError,
            "q: the log-density or its gradient is not finite where chain #{sum.failed} starts"
    end

    Progress.report(sum, run)

    if sum.least < run.transitions,
      do: dispatch(sampler, given || next(steps, time, sampler.most), given, run),
      else: :ok
  end

  # The first dispatch of a kernel includes the time to build it.
  defp next(steps, time, most) do
    wanted = div(steps * @dispatch_time * 1000, max(time, 1))
    wanted |> max(div(steps, 2)) |> min(steps * @most_growth) |> max(1) |> min(most)
  end

  ## Results

  defp results(sampler, chain, opts) do
    {:ok, refs} = Native.call(sampler_results(sampler.ref))
    [draws, step_sizes, accept, energy, logp, depth, steps, divergent] = refs
    each = {opts.chains, opts.draws}
    tensor = fn ref, type, shape -> %{Nx.template(shape, type) | data: %B{ref: ref}} end

    %{
      draws:
        Chain.from_vector(
          chain,
          tensor.(draws, chain.type, {opts.chains, opts.draws, chain.dimensions})
        ),
      stats: %{
        accept: tensor.(accept, chain.type, each),
        step_size: tensor.(step_sizes, chain.type, {opts.chains}),
        depth: tensor.(depth, {:u, 32}, each),
        leapfrog_steps: tensor.(steps, {:u, 32}, each),
        divergent: Nx.as_type(tensor.(divergent, {:u, 32}, each), :u8),
        energy: tensor.(energy, chain.type, each),
        logp: tensor.(logp, chain.type, each)
      }
    }
  end
end
