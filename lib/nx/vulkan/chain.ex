defmodule Nx.Vulkan.Chain do
  @moduledoc """
  Chains of leapfrog steps on a log-density, in one kernel: the integrator of Hamiltonian Monte Carlo.

  A log-density is an Nx function of a position and of data. `compile/4` makes one kernel of it and of its gradient;
  `leapfrog/5` runs the kernel for one chain, or for many at once, each on a workgroup of its own.

      iex> logp = fn %{mu: mu, log_sigma: log_sigma}, %{x: x} ->
      ...>   z = Nx.divide(Nx.subtract(x, mu), Nx.exp(log_sigma))
      ...>   prior = Nx.multiply(-0.5, Nx.add(Nx.pow(mu, 2), Nx.pow(log_sigma, 2)))
      ...>   Nx.add(prior, Nx.sum(Nx.subtract(Nx.multiply(-0.5, Nx.pow(z, 2)), log_sigma)))
      ...> end
      iex> data = %{x: Nx.tensor([0.3, -1.2, 0.7, 2.0], type: :f64)}
      iex> template = %{mu: Nx.template({}, :f64), log_sigma: Nx.template({}, :f64)}
      iex> {:ok, chain} = Nx.Vulkan.Chain.compile(logp, template, data, type: :f64)
      iex> q = %{mu: Nx.f64(0.1), log_sigma: Nx.f64(-0.2)}
      iex> p = %{mu: Nx.f64(0.5), log_sigma: Nx.f64(1.0)}
      iex> {:ok, path} = Nx.Vulkan.Chain.leapfrog(chain, q, p, data, steps: 10, step_size: 0.05)
      iex> {Nx.type(path.q), Nx.shape(path.q)}
      {{:f, 64}, {10, 2}}

  `path.q` has the position after each step.

  ## Positions

  A position is a container of float tensors, or one tensor. Kernels see it as one vector of `d` numbers, the leaves one
  after the other in the order of `Nx.Container`, each in row-major order. States come back as such vectors;
  `to_vector/2` and `from_vector/2` convert between the two. With `chains: c`, each leaf has a leading axis of `c`.

  ## Log-densities

  Value and gradient are computed in one pass. All element-wise functions and types of real numbers work, reductions,
  `Nx.dot/2`, views such as slices, `Nx.concatenate/2`, indexing with tensors, and loops with a known number of
  iterations, which are unrolled. A `cond` is a selection: all of its branches are computed. Sums over many observations
  are shared by the invocations of a workgroup. Tensors that the function closes over are data, too: their elements are not
  part of the kernel. Indices out of bounds are clamped.

  What a kernel cannot compute is `{:error, {:unsupported, text}}` from `compile/4`: sorting, Fourier transforms,
  convolutions, windows, hooks, loops whose end depends on the data. The guide lists all.

  ## Precision

  With `type: :f64` all computations are in double precision. `exp` and `log` are within 4 units of the last place.
  Floats of the data are converted to the chain's type. The same call gives the same bits on the same device. Of how many
  chains run at once depends in which order sums over observations are added.
  """

  require Nx.Vulkan.Native, as: Native

  alias Nx.Defn.Composite
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.Storage
  alias Nx.Vulkan.Chain.Lowering
  alias Nx.Vulkan.{Compiler, Error}
  alias Nx.Vulkan.VulkanoBackend, as: B

  @enforce_keys [:ref, :type, :dimensions, :template, :data, :captured]
  defstruct [:ref, :type, :dimensions, :template, :data, :captured, :spv_path, :packing]

  @typedoc """
  A compiled log-density. `type` and `dimensions` are the type and the number of elements of positions, and `spv_path` is
  the kernel as a SPIR-V file, see `pack/3`. Other fields are private.
  """
  @type t :: %__MODULE__{
          ref: reference(),
          type: Nx.Type.t(),
          dimensions: pos_integer(),
          template: Nx.Container.t(),
          data: Nx.Container.t(),
          captured: [{reference(), Nx.Type.t()}],
          spv_path: Path.t() | nil,
          packing: {[non_neg_integer()], non_neg_integer()} | nil
        }

  @typedoc "States: positions, momenta, gradients and log-densities, without the kinetic part."
  @type states :: %{q: T.t(), p: T.t(), grad: T.t(), logp: T.t()}

  @doc """
  Compiles a log-density, a function of a position and of data that gives a float scalar.

  `q` and `data` are containers with the types and shapes of what `leapfrog/5` gets; elements are not looked at.

  ## Options

    * `:type` - `:f32` or `:f64`, the type of positions and of all computations (default: `:f64`)
  """
  @spec compile(fun(), Nx.Container.t(), Nx.Container.t(), keyword()) ::
          {:ok, t()} | {:error, {:unsupported, String.t()}}
  def compile(logp, q, data, opts \\ []) when is_function(logp, 2) do
    opts = Keyword.validate!(opts, type: :f64)
    type = type!(opts[:type])
    template = template(q, type)

    if Enum.any?(Composite.flatten_list([template]), &(not match?({:f, _}, &1.type))),
      do: raise(ArgumentError, "q: expected a container of float tensors")

    data = template(data, type)

    with {:ok, {terms, captured}} <- Lowering.lower(logp, template, data, type),
         {:ok, ref} <- Native.call(chain_new(terms, Storage.default_device())) do
      d = terms |> Tuple.to_list() |> List.last()

      {path, packing} = module(ref)

      {:ok,
       %__MODULE__{
         ref: ref,
         type: type,
         dimensions: d,
         template: template,
         data: data,
         captured: captured,
         spv_path: path,
         packing: packing
       }}
    else
      {:error, :unsupported, reason} -> {:error, {:unsupported, reason}}
      {:error, reason} when is_binary(reason) -> {:error, {:unsupported, reason}}
      error -> Error.raise!(:compile, error)
    end
  end

  # What the layout of NativeV's buffers cannot hold has no file.
  defp module(ref) do
    case Native.call(chain_module(ref)) do
      {:ok, {path, data, scratch}} -> {path, {data, scratch}}
      {:error, :unsupported, _reason} -> {nil, nil}
      error -> Error.raise!(:compile, error)
    end
  end

  defp type!(type) do
    case Nx.Type.normalize!(type) do
      {:f, size} = type when size in [32, 64] -> type
      other -> raise ArgumentError, "type: expected :f32 or :f64, got: #{inspect(other)}"
    end
  end

  # Floats have the chain's type.
  defp template(container, type) do
    Composite.traverse(container, fn leaf ->
      leaf = Nx.to_template(leaf)
      if Nx.Type.float?(leaf.type), do: %{leaf | type: type}, else: leaf
    end)
  end

  @doc """
  Runs leapfrog steps from the position `q` and the momentum `p`.

  A step with `g` the gradient of the log-density is `p½ = p + ½·eps·g(q)`, `q' = q + eps·M⁻¹·p½`,
  `p' = p½ + ½·eps·g(q')`.

  The states are tensors on the device: `q`, `p` and `grad` of shape `{steps, d}` and `logp` of `{steps}`, the state after
  each step. With `chains: c` they are `{c, steps, d}` and `{c, steps}`; with `keep: :last` the axis of steps is left
  out.

  ## Options

    * `:steps` - the number of steps, at least 1
    * `:step_size` - a number, which may be negative: backwards in time. With chains also a tensor `{c}`
    * `:inverse_mass` - the diagonal `{d}` or the matrix `{d, d}` of the inverse mass, and with chains one for
      each, `{c, d}` or `{c, d, d}`; a container as `q` is stands for a diagonal (default: ones). `{:diagonal, tensor}`
      says what a tensor `{d, d}` for as many chains is
    * `:chains` - the number of chains that `q` and `p` have along a leading axis
    * `:keep` - `:all` states or the `:last` one (default: `:all`)
  """
  @spec leapfrog(t(), Nx.Container.t(), Nx.Container.t(), Nx.Container.t(), keyword()) ::
          {:ok, states()} | {:error, term()}
  def leapfrog(%__MODULE__{dimensions: d} = chain, q, p, data, opts) do
    opts =
      Keyword.validate!(opts, [:steps, :step_size, :chains, inverse_mass: nil, keep: :all])

    steps = count!(opts, :steps)
    chains = opts[:chains] && count!(opts, :chains)
    last? = last!(opts[:keep])
    leading = List.wrap(chains)

    {mass, dense?} = inverse_mass(chain, opts[:inverse_mass], chains)

    answer =
      Native.call(
        chain_run(
          chain.ref,
          buffers(chain, data),
          {buffer(vector!(chain, q, leading, "q")), buffer(vector!(chain, p, leading, "p"))},
          {buffer(step_size(chain, opts[:step_size], chains)), buffer(mass), dense?},
          {chains || 1, steps, last?}
        )
      )

    with {:ok, refs} <- answer do
      shape = leading ++ if(last?, do: [], else: [steps])
      vectors = List.to_tuple(shape ++ [d])
      shapes = [q: vectors, p: vectors, grad: vectors, logp: List.to_tuple(shape)]

      {:ok,
       for {{key, shape}, ref} <- Enum.zip(shapes, Tuple.to_list(refs)), into: %{} do
         {key, %{Nx.template(shape, chain.type) | data: %B{ref: ref}}}
       end}
    end
  end

  @doc "The position as a vector `{d}`, or with leading axes that all leaves have."
  @spec to_vector(t(), Nx.Container.t()) :: T.t()
  def to_vector(%__MODULE__{template: template, type: type}, q) do
    [first | _] = Composite.flatten_list([template])
    [leaf | _] = Composite.flatten_list([q])

    leading =
      Enum.take(Tuple.to_list(leaf.shape), tuple_size(leaf.shape) - tuple_size(first.shape))

    Lowering.flat(q, type, leading)
  end

  @doc "The container of positions of a tensor whose last axis has `d` numbers, such as the states of `leapfrog/5`."
  @spec from_vector(t(), T.t()) :: Nx.Container.t()
  def from_vector(%__MODULE__{template: template}, vector), do: Lowering.parts(vector, template)

  @doc """
  The `extras` of one chain for `Nx.Vulkan.NativeV.leapfrog_chain_synth/6` and its kin, which run `chain.spv_path`.

  A binary of floats of the chain's type: the data, with what the function closed over, scratch memory of the kernel, and the
  diagonal of the inverse mass. In `push` the number of observations is that of all floats but the last `d`:

      extras = Nx.Vulkan.Chain.pack(chain, data, Nx.f64([1, 1]))
      observations = div(byte_size(extras), 8) - chain.dimensions
      push = <<steps::32-little, observations::32-little, chain.dimensions::32-little, 1::32-little, eps::float-little>>
      {:ok, {q, p, grad, logp}} =
        Nx.Vulkan.NativeV.leapfrog_chain_synth_f64(q, p, extras, push, steps, chain.spv_path)

  Those calls take up to 256 dimensions. `spv_path` is `nil` where the data are floats of 8 or 16 bits.
  """
  @spec pack(t(), Nx.Container.t(), Nx.Container.t()) :: binary()
  def pack(%__MODULE__{packing: nil}, _data, _inverse_mass),
    do: raise(ArgumentError, "the chain has no SPIR-V file")

  def pack(%__MODULE__{type: {_, bits} = type, packing: {counts, scratch}} = chain, data, mass) do
    captured =
      for {ref, captured} <- chain.captured do
        case Native.call(buf_download(ref)) do
          {:ok, bytes} -> Nx.from_binary(bytes, captured, backend: Nx.BinaryBackend)
          error -> Error.raise!(:pack, error)
        end
      end

    numbers =
      for {tensor, count} <- Enum.zip(operands(chain, data) ++ captured, counts) do
        bytes = tensor |> Nx.backend_copy(Nx.BinaryBackend) |> Nx.as_type(type) |> Nx.to_binary()
        binary_part(bytes, 0, div(count * bits, 8))
      end

    mass = Nx.to_binary(diagonal!(chain, mass, nil))
    IO.iodata_to_binary([numbers, <<0::size(scratch * bits)>>, mass])
  end

  ## Operands

  defp count!(opts, key) do
    case opts[key] do
      count when is_integer(count) and count > 0 and count < 0x80000000 -> count
      other -> raise ArgumentError, "#{key}: expected a positive integer, got: #{inspect(other)}"
    end
  end

  defp last!(:all), do: false
  defp last!(:last), do: true

  defp last!(other),
    do: raise(ArgumentError, "keep: expected :all or :last, got: #{inspect(other)}")

  @doc false
  # The buffers of the data, with those that the function closes over.
  def buffers(chain, data),
    do: Enum.map(operands(chain, data), &buffer/1) ++ Enum.map(chain.captured, &elem(&1, 0))

  defp operands(%__MODULE__{data: templates}, data) do
    given = Composite.flatten_list([data])
    expected = Composite.flatten_list([templates])

    if Enum.map(given, &shape/1) != Enum.map(expected, & &1.shape),
      do:
        raise(
          ArgumentError,
          "data: expected tensors of the shapes #{inspect(Enum.map(expected, & &1.shape))}, got: " <>
            inspect(Enum.map(given, &shape/1))
        )

    Enum.zip_with(given, expected, &on_device(&1, &2.type))
  end

  defp shape(%T{shape: shape}), do: shape
  defp shape(_number), do: {}

  # One tensor whose last axis has all numbers, or a container as the template is.
  defp vector!(%__MODULE__{dimensions: d, type: type} = chain, q, leading, name) do
    shape = List.to_tuple(leading ++ [d])

    case q do
      %T{shape: ^shape} ->
        on_device(q, type)

      _ ->
        leaves = Composite.flatten_list([q])
        templates = Composite.flatten_list([chain.template])

        shapes =
          for template <- templates, do: List.to_tuple(leading ++ Tuple.to_list(template.shape))

        if Enum.map(leaves, &shape/1) != shapes do
          raise ArgumentError,
                "#{name}: expected a tensor of the shape #{inspect(shape)} or tensors of the shapes " <>
                  "#{inspect(shapes)}, got: #{inspect(q)}"
        end

        q
        |> Composite.traverse(&on_device(&1, type))
        |> Lowering.flat(type, leading)
        |> on_device(type)
    end
  end

  defp step_size(%__MODULE__{type: type}, step_size, chains) do
    if is_number(step_size) or match?(%T{shape: shape} when shape in [{}, {chains}], step_size),
      do: on_device(step_size, type),
      else:
        raise(
          ArgumentError,
          "step_size: expected a number or one for each chain, got: #{inspect(step_size)}"
        )
  end

  defp inverse_mass(%__MODULE__{dimensions: d, type: type}, nil, _chains),
    do: {on_device(Nx.broadcast(Nx.tensor(1.0, type: type), {d}), type), false}

  defp inverse_mass(chain, {:diagonal, tensor}, chains),
    do: {diagonal!(chain, tensor, chains), false}

  defp inverse_mass(%__MODULE__{dimensions: d, type: type}, %T{shape: {d, d}} = matrix, _chains),
    do: {on_device(matrix, type), true}

  defp inverse_mass(%__MODULE__{dimensions: d, type: type}, %T{shape: {c, d, d}} = matrices, c),
    do: {on_device(matrices, type), true}

  defp inverse_mass(chain, diagonal, chains), do: {diagonal!(chain, diagonal, chains), false}

  defp diagonal!(%__MODULE__{dimensions: d, type: type} = chain, diagonal, chains) do
    case diagonal do
      %T{shape: {c, ^d}} when c == chains -> on_device(diagonal, type)
      _ -> vector!(chain, diagonal, [], "inverse_mass")
    end
  end

  defp on_device(number, type) when is_number(number),
    do: Compiler.on_device(Nx.tensor(number, type: type))

  defp on_device(tensor, type), do: tensor |> Nx.as_type(type) |> Compiler.on_device()

  defp buffer(tensor), do: elem(Storage.buffer(tensor), 0)
end
