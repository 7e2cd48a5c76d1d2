defmodule Nx.Vulkan.Compiler.DefinitionGraph do
  @moduledoc false
  # Runs a definition that comes again as one native graph: one NIF call in place of one for each kernel. It
  # decides which definitions may have a graph and gives it its inputs; how a definition is evaluated is its
  # caller's.
  #
  # The first call is evaluated, the second evaluated while src/nif/definitions.rs records its NIF calls, and
  # later ones are replayed. That is right where the NIF calls are the same each time but for the elements of
  # the inputs. Numbers of the host that are inputs become buffers therefore. A definition that reads from the
  # device on its way, for the condition of a loop say, is evaluated each time. One with hooks is, too, and one
  # whose inputs are all numbers of the host: what depends on them alone is computed there.
  #
  # A donated input is gone after the call, whether or not its memory was used for a result. It stays where it is a
  # result itself, or where its buffer is another input's, too.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Defn.{Composite, Expr, Tree}
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.Storage
  alias Nx.Vulkan.VulkanoBackend, as: B

  @enforce_keys [:ref, :device, :used, :donated, :constants, :outputs]
  defstruct [:ref, :device, :used, :donated, :constants, :outputs]

  # `device` is the one that the definition runs on. `used` says of each argument, up to the last one that the definition uses, whether it does; `donated` are
  # the positions of donated inputs among those that it uses; `constants` are the tensors on the device that the
  # definition captured.
  @type t :: %__MODULE__{
          ref: reference(),
          device: Storage.device(),
          used: [boolean()],
          donated: [non_neg_integer()],
          constants: [T.t()],
          outputs: Nx.Container.t()
        }

  @doc """
  The graph of the definition with this expression, which uses these arguments, on the process's device; `nil` where it
  may have none.
  `donated` says of each argument whether it is given away. An `iteration` of a loop gives the condition of the next one
  first, and the next values after it.
  """
  @spec new(Nx.Container.t(), [boolean()], [boolean()], :definition | :iteration) :: t() | nil
  def new(expr, used, donated, kind \\ :definition) do
    tensors = Composite.reduce(expr, %{}, &tensors/2) |> Map.values()

    if not Enum.any?(tensors, &(&1.data.op in [:io_call, :runtime_call])) do
      constants = for %T{data: %Expr{op: :tensor, args: [captured]}} <- tensors, do: captured

      inputs = for {donated?, true} <- Enum.zip(donated, used), do: donated?
      donated = for {true, position} <- Enum.with_index(inputs), do: position
      device = Storage.default_device()
      {:ok, ref} = Native.call(definition_new(donated, kind == :iteration, device))

      %__MODULE__{
        ref: ref,
        device: device,
        used: used,
        donated: donated,
        constants: constants |> Enum.filter(&is_reference(operand(&1))) |> Enum.uniq(),
        outputs: Composite.traverse(expr, &not_donated(Nx.to_template(&1)))
      }
    end
  end

  @doc "Whether a call may write over the tensor: never with Nx 0.13, which has no donation."
  def donated?(tensor), do: Map.get(tensor, :donatable?, false)

  @doc "The tensor, not donated."
  def not_donated(%{donatable?: _} = tensor), do: %{tensor | donatable?: false}
  def not_donated(tensor), do: tensor

  # All tensors of the expression.
  defp tensors(%T{data: %Expr{id: id}}, seen) when is_map_key(seen, id), do: seen

  defp tensors(%T{data: %Expr{id: id}} = tensor, seen) do
    seen = Map.put(seen, id, tensor)
    Tree.apply_args(tensor, seen, &{&1, tensors(&1, &2)}) |> elem(1)
  end

  @doc "The results of the definition on the arguments, functions that give tensors on the device."
  @spec run(t() | nil, [[fun()]], ([[fun()]] -> [Nx.Container.t()])) :: [Nx.Container.t()]
  def run(%__MODULE__{used: used} = graph, [args] = args_list, evaluate) do
    inputs = inputs(args, used, graph.constants)
    operands = Enum.map(inputs, &operand/1)

    with true <- Enum.any?(operands, &is_reference/1),
         true <- :unknown not in operands,
         {:ok, replayed} <- Native.call(definition_run(graph.ref, operands)) do
      case replayed do
        :record ->
          graph |> record(args, inputs, evaluate) |> free_donated(graph, operands)

        :evaluate ->
          args_list |> evaluate.() |> free_donated(graph, operands)

        :elsewhere ->
          args_list = [moved(args, used, graph.device)]
          there? = Enum.all?(graph.constants, &Storage.on_device?(&1, graph.device))
          results = if there?, do: run(graph, args_list, evaluate), else: evaluate.(args_list)
          free_donated(results, graph, operands)

        results ->
          [output(graph.outputs, results, inputs)]
      end
    else
      # An error is that of the operation which is the first to meet it.
      _ -> args_list |> evaluate.() |> free_donated(graph, operands)
    end
  end

  def run(_graph, args_list, evaluate), do: evaluate.(args_list)

  @doc "The arguments with those that are used on the device: copies of those that are on another."
  @spec moved([fun()], [boolean()], Storage.device()) :: [fun()]
  def moved([argument | args], [true | used], device) do
    tensor = argument.()

    tensor =
      if Storage.on_device?(tensor, device),
        do: tensor,
        else: Storage.copy(tensor, B, device: device)

    [fn -> tensor end | moved(args, used, device)]
  end

  def moved([argument | args], [false | used], device), do: [argument | moved(args, used, device)]
  def moved(args, [], _device), do: args

  @doc """
  A loop with this graph, whose iterations `Native` records ahead, from these arguments on; `nil` where it cannot. The
  arguments that the graph is given away are the loop's to write.
  """
  @spec iterations(t() | nil, [T.t()]) :: reference() | nil
  def iterations(nil, _args), do: nil

  def iterations(%__MODULE__{ref: ref, constants: constants}, args) do
    operands = Enum.map(args ++ constants, &operand/1)

    with true <- Enum.all?(operands, &is_reference/1),
         {:ok, iterations} <- Native.call(iterations_new(ref, operands)),
         do: iterations,
         else: (_ -> nil)
  end

  defp inputs([argument | args], [true | used], constants),
    do: [argument.() | inputs(args, used, constants)]

  defp inputs([_argument | args], [false | used], constants), do: inputs(args, used, constants)
  defp inputs(_args, [], constants), do: constants

  defp free_donated(results, %__MODULE__{donated: []}, _operands), do: results

  defp free_donated([output] = results, %__MODULE__{donated: donated}, operands) do
    kept = Composite.reduce(output, [], &[operand(&1) | &2])
    shared = operands -- Enum.uniq(operands)

    for position <- donated, ref = Enum.at(operands, position), is_reference(ref) do
      if ref not in kept and ref not in shared, do: Native.call(buf_free(ref))
    end

    results
  end

  # What the tensor is to the graph: a reference, or the bytes of a number.
  defp operand(%T{data: %B{ref: ref}}) when is_reference(ref) and node(ref) == node(), do: ref

  defp operand(%T{data: %B{scalar: {_, _}}} = tensor) do
    {:scalar, _type, binary} = Storage.operand(tensor)
    binary
  end

  defp operand(_tensor), do: :unknown

  defp output(outputs, results, inputs) do
    {output, []} =
      Composite.traverse(outputs, results, fn out, [result | results] ->
        {result(out, result, inputs), results}
      end)

    output
  end

  defp result(out, ref, _inputs) when is_reference(ref), do: %{out | data: %B{ref: ref}}
  defp result(out, binary, _inputs) when is_binary(binary), do: Storage.scalar(out, binary)
  defp result(out, index, inputs), do: %{out | data: Enum.at(inputs, index).data}

  defp record(graph, args, inputs, evaluate) do
    inputs = Enum.map(inputs, &buffer/1)

    case Native.call(definition_record(graph.ref, Enum.map(inputs, &operand/1))) do
      {:ok, recording} ->
        evaluate_recorded(graph, recording, arguments(args, graph.used, inputs), evaluate)

      _deallocated ->
        evaluate.([args])
    end
  end

  defp evaluate_recorded(graph, recording, args, evaluate) do
    [output] = evaluate.([args])
    results = Composite.reduce(output, [], &[operand(&1) | &2]) |> Enum.reverse()
    :ok = Native.call(definition_keep(graph.ref, recording, results))
    [output]
  catch
    kind, reason ->
      Native.call(definition_keep(graph.ref, recording, nil))
      :erlang.raise(kind, reason, __STACKTRACE__)
  end

  defp buffer(%T{data: %B{scalar: {_, _}}} = tensor) do
    {ref, _type, _shape} = Storage.buffer(tensor)
    %{tensor | data: %B{ref: ref}}
  end

  defp buffer(tensor), do: tensor

  # The arguments with the inputs in their places.
  defp arguments([_ | args], [true | used], [input | inputs]),
    do: [fn -> input end | arguments(args, used, inputs)]

  defp arguments([argument | args], [false | used], inputs),
    do: [argument | arguments(args, used, inputs)]

  defp arguments(args, [], _constants), do: args
end
