defmodule Nx.Vulkan.Native do
  @moduledoc false
  # The NIF library: a stub for each NIF, and the calls that a NIF asked to have made again. It knows
  # neither tensors nor Nx; users call `Nx.Vulkan.NativeV` or the backend.

  @on_load :load

  # These run on a normal scheduler and answer `:defer` instead of doing their work when they would have to
  # wait, compile or copy much. Each has a twin, `name_dirty`, that does the work on a dirty scheduler.
  # Those that wait for the device poll it for 0.25 ms, and then answer `:pending`; reads answer `{:pending, read}`, which
  # `read_finish` goes on with, as the copy is recorded. They answer `:collect` or `:collect_all` where new garbage or all of
  # it should be collected first, and `:move` where an operand that came from the host is not on the device of the others.
  @deferring [
    sync: 1,
    buf_alloc: 2,
    buf_upload: 2,
    operand_upload: 2,
    buf_upload_into: 2,
    buf_download: 1,
    buf_read: 3,
    read_finish: 1,
    apply_binary: 6,
    apply_unary: 5,
    reduce_axis: 7,
    matmul: 7,
    transpose_2d: 5,
    leapfrog_chain_normal: 8,
    pack: 3,
    unpack: 4,
    definition_run: 3,
    iterations_record: 2,
    iterations_finish: 1,
    run: 4,
    run_rows: 4,
    run_sums: 4,
    run_maps: 3,
    dot: 7,
    attention: 5,
    contract: 4,
    contract_with_epilogue: 5,
    assemble: 4,
    fft: 6,
    scan: 4,
    sort: 6,
    tensor_kernel: 5,
    triangular_solve: 5,
    cholesky: 2,
    lu: 2,
    window_scatter: 8,
    scatter: 7,
    loop_new: 2,
    loop_run: 4,
    chain_new: 2,
    chain_module: 1,
    chain_run: 5,
    sampler_new: 4,
    sampler_run: 2,
    sampler_results: 1,
    qr: 4,
    eigh: 3,
    svd: 3,
    memory_info: 1
  ]

  # These never wait, or always run on a dirty scheduler.
  @direct [
    buf_byte_size: 1,
    buf_free: 1,
    leapfrog_chain_synth: 8,
    attention_pays: 3,
    definition_new: 3,
    definition_record: 2,
    definition_keep: 3,
    iterations_new: 3,
    device_info: 1,
    device_index: 1,
    device_list: 0,
    buf_on_device: 2,
    move_operands: 1,
    reset: 1,
    losses: 0,
    memory_by_process: 0,
    profile_start: 1,
    profile_stop: 1,
    clock: 1,
    type_support: 0
  ]

  # The last argument of these is the index of a device, or `nil` for the global one, and may be left out of a call. Other
  # calls run on the device of their operands, and these, too, where they have some in buffers.
  @placed [
    sync: 1,
    buf_alloc: 2,
    buf_upload: 2,
    operand_upload: 2,
    run: 4,
    run_rows: 4,
    run_sums: 4,
    assemble: 4,
    loop_new: 2,
    chain_new: 2,
    definition_new: 3,
    memory_info: 1,
    device_info: 1,
    profile_start: 1,
    reset: 1,
    clock: 1
  ]

  # How often a pending call is polled before it waits on a dirty scheduler: going there and back took 27 us
  # of a product of 0.4 ms on an H200. Between two polls other processes run.
  @most_polls 8

  @stubs @direct ++ @deferring ++ for({name, arity} <- @deferring, do: {:"#{name}_dirty", arity})

  for {name, arity} <- @stubs do
    args = Macro.generate_arguments(arity, __MODULE__)

    def unquote(name)(unquote_splicing(args)) do
      # The arguments count as used, as they are in the NIF that replaces this body.
      _ = unquote(args)
      not_loaded()
    end
  end

  @doc """
  Calls a NIF: `Native.call(run(nodes, inputs, shape))`. No other module calls the stubs.

  A deferred call is made again on a dirty scheduler, a pending one first some times on its own. Where
  memory grows or is short, this process collects its garbage first: tensors without references hold
  device memory until then, and the BEAM does not see how much.
  """
  defmacro call({name, _, args}) do
    args = if @placed[name] == length(args) + 1, do: args ++ [nil], else: args
    arity = length(args)

    again =
      cond do
        @deferring[name] == arity -> :"#{name}_dirty"
        @direct[name] == arity -> name
      end

    vars = Macro.generate_arguments(arity, __MODULE__)

    quote generated: true do
      unquote_splicing(Enum.zip_with(vars, args, &quote(do: unquote(&1) = unquote(&2))))

      case unquote(__MODULE__).unquote(name)(unquote_splicing(vars)) do
        why when why in [:defer, :pending, :collect, :collect_all, :move] ->
          unquote(__MODULE__).again(why, {unquote(name), unquote(again)}, unquote(vars))

        {:pending, _read} = why ->
          unquote(__MODULE__).again(why, {unquote(name), unquote(again)}, unquote(vars))

        {:error, :out_of_memory, _} = why ->
          unquote(__MODULE__).again(why, {unquote(name), unquote(again)}, unquote(vars))

        result ->
          result
      end
    end
  end

  @doc false
  # The answer itself, or that of the call made again. The dirty twin waits, and its answer is the result,
  # unless memory ran out meanwhile.
  def again(:defer, {_name, dirty} = names, args) do
    with {:error, :out_of_memory, _} = answer <- wait(dirty, args),
         do: again(answer, names, args)
  end

  # Operands that came from the host belong to any device. Those of two devices are an error here.
  def again(:move, {name, _dirty} = names, args) do
    with :ok <- move_operands(args), do: again(apply(__MODULE__, name, args), names, args)
  end

  def again(:pending, names, args), do: poll(names, args, @most_polls)

  def again({:pending, read}, _names, _args),
    do: again(read_finish(read), {:read_finish, :read_finish_dirty}, [read])

  # Most garbage was made since the last collection.
  def again(:collect, {name, _dirty} = names, args) do
    collect(:minor)

    case apply(__MODULE__, name, args) do
      :collect -> again(:collect_all, names, args)
      answer -> again(answer, names, args)
    end
  end

  def again(:collect_all, {name, dirty} = names, args) do
    collect(:major)

    case apply(__MODULE__, name, args) do
      collect when collect in [:collect, :collect_all] -> wait(dirty, args)
      answer -> again(answer, names, args)
    end
  end

  def again({:error, :out_of_memory, _}, {_name, dirty}, args) do
    report_memory(:out_of_memory)
    :erlang.garbage_collect()
    wait(dirty, args)
  end

  def again(answer, _names, _args), do: answer

  defp poll(names, args, 0), do: again(:defer, names, args)

  defp poll({name, _dirty} = names, args, left) do
    case apply(__MODULE__, name, args) do
      :pending -> poll(names, args, left - 1)
      collect when collect in [:collect, :collect_all] -> again(:defer, names, args)
      answer -> again(answer, names, args)
    end
  end

  # The garbage's memory is free once this process has left its scheduler.
  defp collect(type) do
    report_memory(:pool_grows)
    :erlang.garbage_collect(self(), type: type)
    :erlang.yield()
  end

  defp report_memory(reason) do
    with %{} = info <- memory_info(nil), do: emit([:memory], info, %{reason: reason})
  end

  defp wait(name, args) do
    case apply(__MODULE__, name, args) do
      {:built, measurements, answer} ->
        emit([:compile], measurements, %{call: name})
        answer

      :move ->
        with :ok <- move_operands(args), do: wait(name, args)

      answer ->
        answer
    end
  end

  # Without Nx there is no telemetry.
  if Code.ensure_loaded?(:telemetry) do
    defp emit(event, measurements, metadata),
      do: :telemetry.execute([:nx_vulkan | event], measurements, metadata)
  else
    defp emit(_event, _measurements, _metadata), do: :ok
  end

  # Names under which eXMC calls them.
  defdelegate device_name, to: Nx.Vulkan
  defdelegate has_f64, to: Nx.Vulkan
  defdelegate upload_binary(data), to: Nx.Vulkan
  defdelegate download_binary(ref, n_bytes), to: Nx.Vulkan

  # A module whose on_load fails is unloaded, and its callers learn only that it is undefined. Loading
  # therefore succeeds in any case, and the first call raises with the reason, which is kept for it.
  @doc false
  def load do
    library = library()

    # The probe's executable is beside the library, which does not know its own path.
    with {:error, reason} <- :erlang.load_nif(library, IO.chardata_to_string(library)) do
      :persistent_term.put({__MODULE__, :load_error}, reason)
    end

    :ok
  end

  defp library do
    priv =
      case :code.priv_dir(:nx_vulkan) do
        {:error, :bad_name} -> ~c"priv"
        dir -> dir
      end

    :filename.join(priv, ~c"native/libnx_vulkan")
  end

  @spec not_loaded() :: no_return()
  defp not_loaded do
    {kind, text} = :persistent_term.get({__MODULE__, :load_error}, {:not_loaded, ~c"not loaded"})

    :erlang.nif_error(
      RuntimeError.exception(
        "the library of nx_vulkan cannot be used (#{kind}: #{text}); `mix compile` builds it"
      )
    )
  end
end
