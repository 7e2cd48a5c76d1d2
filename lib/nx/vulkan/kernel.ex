defmodule Nx.Vulkan.Kernel do
  @moduledoc ~S'''
  Kernels of your own, written in GLSL and called on tensors, eagerly and inside `defn`.

  What Nx has no operation for, or what takes several kernels where one would do, can be a compute shader. The kernel
  reads and writes the tensors' memory: nothing is copied. In a definition it is part of the definition's graph like
  any other operation.

      iex> square = Nx.Vulkan.Kernel.new(
      ...>   name: "square",
      ...>   inputs: [x: :f32],
      ...>   outputs: [y: :f32],
      ...>   source: """
      ...>   void main() {
      ...>     uint i = gl_GlobalInvocationID.x;
      ...>     if (i < x_size) y[i] = x[i] * x[i];
      ...>   }
      ...>   """
      ...> )
      iex> x = Nx.tensor([1.0, 2.0, 3.0], type: :f32, backend: Nx.Vulkan.VulkanoBackend)
      iex> y = Nx.Vulkan.Kernel.call(square, [x], x, grid: 3)
      iex> Nx.to_list(y)
      [1.0, 4.0, 9.0]

  ## What the source may use

  The source is the shader from its first function on, with a `void main()`. These are declared before it:

    * `x[i]` for each input and output `x`: the tensor's elements in row-major order. Inputs can only be read.
    * `x_size`, the number of elements, and `x_shape[k]`, the extent of axis `k`; both are of type `uint`.
    * `x_type`, the GLSL type of its elements, as in `y[i] = y_type(2 * x[i])`.
    * the parameters, by their names.

  All of GLSL 4.6 for compute shaders is there: shared memory, barriers, atomics, and the functions of subgroups that the
  device has. The elements' types are:

  | Nx | GLSL |
  | --- | --- |
  | `:f32`, `:f64` | `float`, `double` |
  | `:s8`, `:s16`, `:s32`, `:s64` | `int8_t`, `int16_t`, `int`, `int64_t` |
  | `:u8`, `:u16`, `:u32`, `:u64` | `uint8_t`, `uint16_t`, `uint`, `uint64_t` |
  | `:f16`, `:bf16` | `uint16_t`: the bits, with `f16_to_float`, `float_to_f16`, `bf16_to_float` and `float_to_bf16` |
  | `:f8`, `:f8_e4m3fn` | `uint8_t`: the bits, with functions of the same kind |
  | `:u2`, `:u4`, `:s2`, `:s4` | `uint8_t`: the bits, in the low ones of a byte |
  | `:c64`, `:c128` | `vec2`, `dvec2` |

  On a device that cannot store single bytes or 16-bit words these types take a `uint` each, and `y_type` is `uint`: a source that
  converts by it what it writes runs there, too. Types of 64 bits that a device lacks are refused.

  ## Safety

  The compiled module is checked as a SPIR-V file is ([guide](spirv.md)). An index beyond a tensor's end reads zero or
  another of its elements, and a write there has no effect: a faulty kernel computes wrong numbers and harms nothing
  else. Nobody can tell whether a loop ends: one that does not is ended by the driver's time limit, if it has one, and
  then the device is lost to this BEAM.

  The [guide](kernels.md) has three kernels in full, and their speed.
  '''

  import Nx.Defn, only: [deftransform: 2]

  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.UserKernel

  @enforce_keys [:name, :inputs, :outputs, :params, :term]
  defstruct [:name, :inputs, :outputs, :params, :term]

  @typedoc "A kernel: plain data, which module attributes may hold and other nodes may be sent."
  @type t :: %__MODULE__{
          name: String.t(),
          inputs: [{atom(), Nx.Type.t()}],
          outputs: [{atom(), Nx.Type.t()}],
          params: [{atom(), :f32 | :s32 | :u32}],
          term: tuple()
        }

  @typedoc "Numbers along up to three axes; those that are left out are 1."
  @type extents ::
          pos_integer()
          | {pos_integer()}
          | {pos_integer(), pos_integer()}
          | {pos_integer(), pos_integer(), pos_integer()}

  # Devices bind 32 buffers at least, and captured calls have eight results at most.
  @most_inputs 24
  @most_outputs 8

  @doc """
  Makes a kernel. Nothing is compiled before the first call.

  ## Options

    * `:name` - what errors and profiles call it: letters, digits and underscores
    * `:inputs`, `:outputs` - the tensors' names and types, as in `[x: :f32, indices: :s64]`: up to
      #{@most_inputs} and #{@most_outputs}
    * `:params` - names and types of numbers that a call passes, as in `[epsilon: :f32]`. The types are `:f32`, `:s32`
      and `:u32`.
    * `:source` - the GLSL
    * `:spirv` - in place of `:source`: the content of a SPIR-V file. Its buffers are bound in set 0, inputs from 0 up
      and outputs after them. Its push constants are the extents of all of these, 32 bits each, then the parameters.
    * `:workgroup` - how many invocations a workgroup has, along up to three axes; 64 by default
    * `:zeroed` - whether the outputs hold zeros before the kernel runs, for atomics and for kernels that do not write
      every element; `false` by default. An element that is not written is undefined then.
  """
  @spec new(keyword()) :: t()
  def new(options) do
    options =
      Keyword.validate!(
        options,
        [:name, :inputs, :outputs, :source, :spirv, params: [], workgroup: 64, zeroed: false]
      )

    name = name!(options[:name])
    inputs = tensors!(name, options, :inputs, @most_inputs)
    outputs = tensors!(name, options, :outputs, @most_outputs)
    params = params!(name, options[:params])
    names = Keyword.keys(inputs) ++ Keyword.keys(outputs) ++ Keyword.keys(params)

    with [twice | _] <- names -- Enum.uniq(names),
         do: error!(name, "#{twice} names two of its inputs, outputs and parameters")

    {kind, code} = code!(name, options[:source], options[:spirv])
    workgroup = extents!(name, :workgroup, options[:workgroup])

    if not is_boolean(options[:zeroed]),
      do: error!(name, "zeroed: expected a boolean, got: #{inspect(options[:zeroed])}")

    texts = fn list -> for {name, _type} <- list, do: Atom.to_string(name) end
    typed = for {name, type} <- params, do: {Atom.to_string(name), type}

    term =
      {kind, name, code, texts.(inputs), texts.(outputs), typed, workgroup, options[:zeroed]}

    %__MODULE__{name: name, inputs: inputs, outputs: outputs, params: params, term: term}
  end

  @doc """
  Calls a kernel on tensors, eagerly or inside `defn`.

  `inputs` is the list of its inputs; numbers become scalars of their types. `template` says types and shapes of the
  outputs: a tensor or a template, or a tuple of them where there are several.

  Of vectorized inputs each entry is a call of its own.

  ## Options

    * `:grid` - how many invocations run, along up to three axes, rounded up to whole workgroups. The kernel has to
      check whether `gl_GlobalInvocationID` is one that it has work for.
    * `:params` - values of the kernel's parameters, as in `[epsilon: 1.0e-5]`
    * `:default` - a function of the inputs that computes the same with Nx's operations. It runs on other backends, and
      gradients are its gradients. Definitions need it; `Nx.Defn.Kernel.custom_grad/3` around the call gives a kernel
      another gradient.

  ## Examples

      iex> source = "void main() { uint i = gl_GlobalInvocationID.x; if (i < x_size) y[i] = factor * x[i]; }"
      iex> scale = Nx.Vulkan.Kernel.new(
      ...>   name: "scale", inputs: [x: :f32], outputs: [y: :f32], params: [factor: :f32], source: source
      ...> )
      iex> scaled = fn x ->
      ...>   Nx.Vulkan.Kernel.call(scale, [x], x, grid: Nx.size(x), params: [factor: 3], default: &Nx.multiply(&1, 3))
      ...> end
      iex> x = Nx.tensor([1.0, 2.0], type: :f32)
      iex> on_device = Nx.backend_copy(x, Nx.Vulkan.VulkanoBackend)
      iex> scaled.(on_device) |> Nx.to_list()
      [3.0, 6.0]
      iex> Nx.Defn.jit(scaled, compiler: Nx.Defn.Evaluator).(x) |> Nx.to_list()
      [3.0, 6.0]
      iex> Nx.Defn.grad(on_device, &Nx.sum(scaled.(&1))) |> Nx.to_list()
      [3.0, 3.0]
  """
  deftransform call(kernel, inputs, template, options) do
    %__MODULE__{name: name} = kernel
    options = Keyword.validate!(options, [:grid, :default, params: []])
    inputs = inputs!(kernel, inputs)
    outs = outs!(kernel, template)

    block = %UserKernel{
      name: name,
      term: kernel.term,
      params: values!(kernel, options[:params]),
      grid: extents!(name, :grid, options[:grid])
    }

    default = default!(name, inputs, outs, options[:default])

    case Enum.find(inputs, &(&1.vectorized_axes != [])) do
      nil -> Nx.block(block, inputs, outs, default)
      _ -> each_entry(inputs, &Nx.block(block, &1, outs, default))
    end
  end

  ## Vectorized axes

  defp each_entry(inputs, call) do
    inputs = Nx.broadcast_vectors(inputs)
    axes = hd(inputs).vectorized_axes
    sizes = Keyword.values(axes)
    count = Enum.product(sizes)

    rows =
      for input <- inputs do
        Nx.reshape(Nx.devectorize(input), List.to_tuple([count | Tuple.to_list(input.shape)]))
      end

    results = for i <- 0..(count - 1), do: call.(Enum.map(rows, & &1[i]))

    join = fn tensors ->
      shape = List.to_tuple(sizes ++ Tuple.to_list(hd(tensors).shape))
      names = Keyword.keys(axes) ++ hd(tensors).names
      tensors |> Nx.stack() |> Nx.reshape(shape, names: names) |> Nx.vectorize(Keyword.keys(axes))
    end

    case results do
      [%T{} | _] -> join.(results)
      _ -> results |> Enum.map(&Tuple.to_list/1) |> Enum.zip_with(join) |> List.to_tuple()
    end
  end

  ## The default implementation

  defp default!(name, inputs, _outs, nil) do
    if Enum.any?(inputs, &match?(%T{data: %Nx.Defn.Expr{}}, &1)) do
      error!(
        name,
        "default: a definition needs a function that computes the same with Nx's operations"
      )
    end

    of_arity(length(inputs), fn _inputs ->
      error!(
        name,
        "default: a backend that does not run kernels needs a function that computes the same"
      )
    end)
  end

  defp default!(name, inputs, outs, default) do
    if not is_function(default, length(inputs)),
      do:
        error!(
          name,
          "default: expected a function of the #{length(inputs)} inputs, got: #{inspect(default)}"
        )

    of_arity(length(inputs), fn inputs ->
      result = apply(default, inputs)

      if not Nx.compatible?(result, outs),
        do:
          error!(name, "default: expected it to return #{inspect(outs)}, got: #{inspect(result)}")

      result
    end)
  end

  # `Nx.block/4` asks for a function of that many arguments after the block.
  for count <- 1..@most_inputs do
    args = Macro.generate_arguments(count, __MODULE__)

    defp of_arity(unquote(count), fun),
      do: fn _block, unquote_splicing(args) -> fun.(unquote(args)) end
  end

  ## Checks

  defp name!(name) do
    if is_binary(name) and name =~ ~r/^[A-Za-z_][A-Za-z0-9_]*$/,
      do: name,
      else:
        raise(
          ArgumentError,
          "name: expected letters, digits and underscores, got: #{inspect(name)}"
        )
  end

  defp tensors!(name, options, key, most) do
    list = options[key]

    if not (Keyword.keyword?(list) and length(list) in 1..most) do
      error!(
        name,
        "#{key}: expected names and types of one to #{most} tensors, got: #{inspect(list)}"
      )
    end

    for {tensor, type} <- list do
      identifier!(name, key, tensor)
      {tensor, Nx.Type.normalize!(type)}
    end
  end

  defp params!(name, list) do
    if not Keyword.keyword?(list),
      do: error!(name, "params: expected names and types, got: #{inspect(list)}")

    for {param, type} <- list do
      identifier!(name, :params, param)

      if type not in [:f32, :s32, :u32],
        do:
          error!(
            name,
            "params: expected #{param} to be :f32, :s32 or :u32, got: #{inspect(type)}"
          )

      {param, type}
    end
  end

  # GLSL reserves names with two underscores, and those that begin with gl_.
  defp identifier!(name, key, tensor) do
    text = Atom.to_string(tensor)

    if not (text =~ ~r/^[A-Za-z_][A-Za-z0-9_]*$/) or text =~ ~r/^gl_|__/,
      do: error!(name, "#{key}: expected names that GLSL takes, got: #{inspect(tensor)}")
  end

  defp code!(_name, source, nil) when is_binary(source), do: {:glsl, source}
  defp code!(_name, nil, spirv) when is_binary(spirv), do: {:spirv, spirv}

  defp code!(name, _, _),
    do: error!(name, "expected either source or spirv, a string or a binary")

  defp extents!(name, key, extents) do
    list = if is_tuple(extents), do: Tuple.to_list(extents), else: [extents]

    if length(list) in 1..3 and Enum.all?(list, &(is_integer(&1) and &1 in 1..0x7FFFFFFF)),
      do: List.to_tuple(Enum.take(list ++ [1, 1], 3)),
      else:
        error!(
          name,
          "#{key}: expected one to three positive numbers of invocations, got: #{inspect(extents)}"
        )
  end

  defp inputs!(%{name: name, inputs: expected}, inputs) do
    if not (is_list(inputs) and length(inputs) == length(expected)) do
      error!(
        name,
        "expected a list of #{length(expected)} inputs (#{names(expected)}), got: #{inspect(inputs)}"
      )
    end

    Enum.zip_with(inputs, expected, &input!(name, &1, &2))
  end

  defp input!(_name, number, {_input, type}) when is_number(number),
    do: Nx.tensor(number, type: type)

  defp input!(name, %T{} = tensor, {input, type}), do: typed!(name, "input", tensor, input, type)

  defp input!(name, other, {input, _type}),
    do:
      error!(
        name,
        "expected its input #{input} to be a tensor or a number, got: #{inspect(other)}"
      )

  defp outs!(%{name: name, outputs: [{output, type}]}, %T{} = out),
    do: out!(name, out, output, type)

  defp outs!(%{name: name, outputs: outputs}, outs)
       when is_tuple(outs) and tuple_size(outs) == length(outputs) do
    for {out, {output, type}} <- Enum.zip(Tuple.to_list(outs), outputs) do
      if not is_struct(out, T),
        do: error!(name, "expected a template of its output #{output}, got: #{inspect(out)}")

      out!(name, out, output, type)
    end
    |> List.to_tuple()
  end

  defp outs!(%{name: name, outputs: outputs}, other),
    do:
      error!(
        name,
        "expected templates of its outputs (#{names(outputs)}), got: #{inspect(other)}"
      )

  defp out!(name, out, output, type) do
    out = Nx.template(out.shape, out.type, names: out.names)
    typed!(name, "output", out, output, type)
  end

  defp typed!(_name, _kind, %T{type: type} = tensor, _tensor_name, type), do: tensor

  defp typed!(name, kind, %T{type: other}, tensor, type) do
    error!(
      name,
      "expected its #{kind} #{tensor} to be #{Nx.Type.to_string(type)}, got: #{Nx.Type.to_string(other)}"
    )
  end

  # The parameters' values as 32-bit words, in the order of their declaration.
  defp values!(%{name: name, params: params}, values) do
    if not (Keyword.keyword?(values) and
              Enum.sort(Keyword.keys(values)) == Enum.sort(Keyword.keys(params))) do
      error!(name, "params: expected values of [#{names(params)}], got: #{inspect(values)}")
    end

    for {param, type} <- params, into: <<>>, do: word!(name, param, type, values[param])
  end

  defp word!(_name, _param, :s32, value) when value in -0x80000000..0x7FFFFFFF,
    do: <<value::32-signed-little>>

  defp word!(_name, _param, :u32, value) when value in 0..0xFFFFFFFF, do: <<value::32-little>>

  defp word!(_name, _param, :f32, value)
       when is_number(value) and abs(value) < 3.4028235677973366e38,
       do: <<value::float-32-little>>

  defp word!(name, param, type, value),
    do:
      error!(
        name,
        "params: expected #{param} to be a number of type #{type}, got: #{inspect(value)}"
      )

  defp names(list), do: Enum.map_join(list, ", ", &elem(&1, 0))

  @spec error!(String.t(), String.t()) :: no_return()
  defp error!(name, what), do: raise(ArgumentError, "the kernel #{name}: #{what}")
end
