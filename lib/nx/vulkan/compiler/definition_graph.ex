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

  import Nx.Vulkan.HookOperation, only: [is_hook: 1]
  require Nx.Vulkan.Native, as: Native

  alias Nx.Defn.{Composite, Expr, Tree}
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.Storage
  alias Nx.Vulkan.VulkanoBackend, as: B

  @enforce_keys [:ref, :device, :donated, :constants, :outputs]
  defstruct [:ref, :device, :donated, :constants, :outputs]

  # `device` is the one that the definition runs on; `donated` are the positions of donated inputs; `constants` are the
  # tensors on the device that the definition captured.
  @type t :: %__MODULE__{
          ref: reference(),
          device: Storage.device(),
          donated: [non_neg_integer()],
          constants: [T.t()],
          outputs: Nx.Container.t()
        }

  @doc """
  The graph of the definition with this expression on the process's device; `nil` where it may have none.
  `donated` says of each input, an argument that the definition uses, whether it is given away. An `iteration` of a loop gives the condition of the next one
  first, and the next values after it.
  """
  @spec new(Nx.Container.t(), [boolean()], :definition | :iteration) :: t() | nil
  def new(expr, donated, kind \\ :definition) do
    tensors = Composite.reduce(expr, %{}, &tensors/2) |> Map.values()

    if not Enum.any?(tensors, &(is_hook(&1.data.op) or &1.data.op == :runtime_call)) do
      constants = for %T{data: %Expr{op: :tensor, args: [captured]}} <- tensors, do: captured

      donated = for {true, position} <- Enum.with_index(donated), do: position
      device = Storage.default_device()
      {:ok, ref} = Native.call(definition_new(donated, kind == :iteration, device))

      %__MODULE__{
        ref: ref,
        device: device,
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

  @doc """
  The results of the definition on the inputs, which are on a device. `evaluate` gives those of each list of inputs. `donate?`
  says whether the inputs that are donated are given away in this call: the caller keeps them otherwise.
  """
  @spec run(t() | nil, [[T.t()]], ([[T.t()]] -> [Nx.Container.t()]), boolean()) ::
          [Nx.Container.t()]
  def run(graph, inputs_list, evaluate, donate? \\ true)

  def run(%__MODULE__{constants: constants} = graph, [inputs] = inputs_list, evaluate, donate?) do
    operands = operands(inputs, constants)
    donated = if donate?, do: graph.donated, else: []

    with true <- Enum.any?(operands, &is_reference/1),
         true <- :unknown not in operands,
         {:ok, replayed} <- Native.call(definition_run(graph.ref, operands, donate?)) do
      case replayed do
        :record ->
          graph |> record(inputs, evaluate) |> free_donated(donated, operands)

        :evaluate ->
          inputs_list |> evaluate.() |> free_donated(donated, operands)

        :elsewhere ->
          inputs_list = [moved(inputs, graph.device)]
          there? = Enum.all?(constants, &Storage.on_device?(&1, graph.device))

          results =
            if there?,
              do: run(graph, inputs_list, evaluate, donate?),
              else: evaluate.(inputs_list)

          free_donated(results, donated, operands)

        results ->
          [output(graph.outputs, results, given(results, inputs, constants))]
      end
    else
      # An error is that of the operation which is the first to meet it.
      _ -> inputs_list |> evaluate.() |> free_donated(donated, operands)
    end
  end

  def run(_graph, inputs_list, evaluate, _donate?), do: evaluate.(inputs_list)

  @doc "The tensors on the device: copies of those that are on another."
  @spec moved([T.t()], Storage.device()) :: [T.t()]
  def moved(inputs, device) do
    for input <- inputs do
      if Storage.on_device?(input, device),
        do: input,
        else: Storage.copy(input, B, device: device)
    end
  end

  @doc """
  A loop with this graph, whose iterations `Native` records ahead, from these inputs on; `nil` where it cannot. `donate?`
  says whether donated inputs are the loop's to write: it writes over copies otherwise.
  """
  @spec iterations(t() | nil, [T.t()], boolean()) :: reference() | nil
  def iterations(nil, _inputs, _donate?), do: nil

  def iterations(%__MODULE__{ref: ref, constants: constants}, inputs, donate?) do
    operands = operands(inputs, constants)

    with true <- Enum.all?(operands, &is_reference/1),
         {:ok, iterations} <- Native.call(iterations_new(ref, operands, donate?)),
         do: iterations,
         else: (_ -> nil)
  end

  # What the graph is given: the inputs, then the constants.
  defp operands([input | inputs], constants), do: [operand(input) | operands(inputs, constants)]
  defp operands([], []), do: []
  defp operands([], constants), do: operands(constants, [])

  defp free_donated(results, [], _operands), do: results

  defp free_donated([output] = results, donated, operands) do
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

  # What results may be the indices of.
  defp given(results, inputs, constants) do
    if Enum.any?(results, &is_integer/1), do: List.to_tuple(inputs ++ constants), else: {}
  end

  defp output(outputs, results, given) do
    {output, []} =
      Composite.traverse(outputs, results, fn out, [result | results] ->
        {result(out, result, given), results}
      end)

    output
  end

  defp result(out, ref, _given) when is_reference(ref), do: %{out | data: %B{ref: ref}}
  defp result(out, binary, _given) when is_binary(binary), do: Storage.scalar(out, binary)
  defp result(out, index, given), do: %{out | data: elem(given, index).data}

  defp record(graph, inputs, evaluate) do
    buffers = Enum.map(inputs, &Storage.in_buffer/1)

    case Native.call(definition_record(graph.ref, operands(buffers, graph.constants))) do
      {:ok, recording} -> evaluate_recorded(graph, recording, buffers, evaluate)
      _deallocated -> evaluate.([inputs])
    end
  end

  defp evaluate_recorded(graph, recording, inputs, evaluate) do
    [output] = evaluate.([inputs])
    results = Composite.reduce(output, [], &[operand(&1) | &2]) |> Enum.reverse()
    :ok = Native.call(definition_keep(graph.ref, recording, results))
    [output]
  catch
    kind, reason ->
      Native.call(definition_keep(graph.ref, recording, nil))
      :erlang.raise(kind, reason, __STACKTRACE__)
  end
end
