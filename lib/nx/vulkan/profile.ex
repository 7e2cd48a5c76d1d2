defmodule Nx.Vulkan.Profile do
  @moduledoc """
  What the device did while a function ran: the result of `Nx.Vulkan.profile/1`.

  It inspects as a table of the kernels, the one that took longest first, and `to_chrome_trace/1` is the same as a trace in time,
  for `chrome://tracing` or [Perfetto](https://ui.perfetto.dev):

      iex> x = Nx.iota({64, 64}, type: :f32, backend: Nx.Vulkan.VulkanoBackend)
      iex> profile = Nx.Vulkan.profile(fn -> Nx.dot(x, x) end)
      iex> profile.result.shape
      {64, 64}
      iex> Enum.all?(profile.kernels, &(&1.runs >= 1 and &1.device_us >= 0))
      true

  `File.write!("trace.json", Nx.Vulkan.Profile.to_chrome_trace(profile))` writes the trace.

  ## Fields

    * `:result` - what the function returned
    * `:wall_us` - microseconds from the beginning to the end of all work on the device
    * `:device_us` - the sum of the commands' times on the device
    * `:gap_us` - the time between the first and the last command in which the device ran none of them
    * `:wait_us` - the time in which the host waited for the device
    * `:kernels` - the kernels and transfers: a list of maps, those of one name, grid and size together
    * `:commands` - all of them in the order of their submission
    * `:dropped` - how many commands there was no room for, after some 262,000
    * `:pipelines` - the pipelines that were not in memory yet: `:count`, how many of them came `:from_disk`, and `:us`, the microseconds of
      the calls that asked for them. A driver may go on building after that
    * `:most_used_bytes` - the most bytes of the device's memory that buffers held at a time
    * `:copy_gbps` - what a copy reaches on this device, in 10⁹ bytes read and written a second, to compare with: measured once, when
      the first profile starts; `nil` without Nx
    * `:product_gops` - what the kernel of a product of large `f32` matrices reaches, in 10⁹ operations a second, measured at the same time

  A kernel has

    * `:name` - the kind of kernel, and of a fused one its operations with the type of its results
    * `:runs` - how often it ran
    * `:device_us` - microseconds of all runs, and `:gap_us` those between the end of the command before and the beginning
      of each run: barriers and launches, and the host where it is slower than the device
    * `:host_us` - microseconds of the host from the command before to each run, waits for the device excepted
    * `:grid` - workgroups along each axis; `nil` for a transfer
    * `:read` and `:written` - bytes of the memory that one run reads and writes: whole allocations, whose sizes are classes, so that a
      kernel may touch fewer
    * `:operations` - arithmetic operations of one run, or `nil` where they are not counted. Matrix products, convolutions and attention have
      two for each multiplication and addition, of padding too. Fused kernels have one for each operation that is no conversion, and each
      element that it is computed for. What is fused behind a product or a reduction does not count, nor do sorts, cumulative operations,
      scatters, Fourier transforms, linear algebra, loops, chains and users' kernels

  Times on the device are between two timestamps around each command. They are written while a profile is on alone, and take about
  a microsecond each on a GPU: commands that would run beside each other end one after the other.
  """

  require Nx.Vulkan.Native, as: Native

  # Without Nx it is not there, and not called.
  @compile {:no_warn_undefined, :telemetry}

  @enforce_keys [
    :result,
    :wall_us,
    :device_us,
    :gap_us,
    :wait_us,
    :kernels,
    :commands,
    :waits,
    :dropped,
    :pipelines,
    :most_used_bytes,
    :copy_gbps,
    :product_gops
  ]
  defstruct @enforce_keys

  @type kernel :: %{
          name: String.t(),
          runs: pos_integer(),
          device_us: float(),
          gap_us: float(),
          host_us: float(),
          grid: {pos_integer(), pos_integer(), pos_integer()} | nil,
          read: non_neg_integer(),
          written: non_neg_integer(),
          operations: pos_integer() | nil
        }

  @type t :: %__MODULE__{
          result: term(),
          wall_us: float(),
          device_us: float(),
          gap_us: float(),
          wait_us: float(),
          kernels: [kernel()],
          commands: [map()],
          waits: [map()],
          dropped: non_neg_integer(),
          pipelines: %{
            count: non_neg_integer(),
            from_disk: non_neg_integer(),
            us: float()
          },
          most_used_bytes: non_neg_integer(),
          copy_gbps: float() | nil,
          product_gops: float() | nil
        }

  @doc false
  def run(fun, device \\ nil) when is_function(fun, 0) do
    {copy_gbps, product_gops} = rates(device)
    {pipelines, profile} = count_pipelines(fn -> recorded(fun, device) end)
    %{profile | pipelines: pipelines, copy_gbps: copy_gbps, product_gops: product_gops}
  end

  defp recorded(fun, device) do
    profile = ok!(Native.call(profile_start(device)))

    try do
      {:returned, fun.()}
    catch
      kind, reason -> {kind, reason, __STACKTRACE__}
    end
    |> then(fn
      {:returned, result} ->
        of(result, ok!(Native.call(profile_stop(profile))), device)

      {kind, reason, stacktrace} ->
        _ = Native.call(profile_stop(profile))
        :erlang.raise(kind, reason, stacktrace)
    end)
  end

  # What `[:nx_vulkan, :compile]` reports while the function runs, in any process. Without Nx there is no telemetry.
  defp count_pipelines(fun) do
    counts = :counters.new(3, [])

    if Code.ensure_loaded?(:telemetry) do
      id = {__MODULE__, make_ref()}
      :ok = :telemetry.attach(id, [:nx_vulkan, :compile], &__MODULE__.compiled/4, counts)

      try do
        fun.()
      after
        :telemetry.detach(id)
      end
    else
      fun.()
    end
    |> then(fn result ->
      [count, from_disk, nanoseconds] = for i <- 1..3, do: :counters.get(counts, i)
      {%{count: count, from_disk: from_disk, us: us(nanoseconds)}, result}
    end)
  end

  @doc false
  def compiled(_event, measurements, _metadata, counts) do
    :counters.add(counts, 1, measurements.pipelines)
    :counters.add(counts, 2, measurements.from_disk)
    :counters.add(counts, 3, measurements.nanoseconds)
  end

  if Code.ensure_loaded?(Nx) do
    # Larger than the caches of GPUs, and small beside the memory of any.
    @max_copy_bytes 128 * 1024 * 1024
    @max_share_of_memory 16

    # Rows and columns of a product with work for all multiprocessors of a GPU, and of one that takes a CPU some milliseconds.
    @gpu_rows 4096
    @cpu_rows 1024

    defp rates(device) do
      with nil <- :persistent_term.get({__MODULE__, device}, nil) do
        # A process of its own, which leaves no garbage.
        measure = fn ->
          Nx.default_backend({Nx.Vulkan.VulkanoBackend, device: device})
          %{limit: limit} = Nx.Vulkan.memory_info(device)
          bytes = min(@max_copy_bytes, div(limit, @max_share_of_memory))
          {copy_gbps(device, bytes), product_gops(device, bytes)}
        end

        rates = Task.await(Task.async(measure), :infinity)
        :persistent_term.put({__MODULE__, device}, rates)
        rates
      end
    end

    defp product_gops(device, bytes) do
      {:ok, %{type: type}} = Nx.Vulkan.device_info(device)
      most = if type == :cpu, do: @cpu_rows, else: @gpu_rows
      rows = min(most, trunc(:math.sqrt(bytes / 4)))
      x = Nx.negate(Nx.broadcast(Nx.tensor(0.5, type: :f32), {rows, rows}))

      %{commands: commands} =
        recorded(fn -> for _ <- 1..4, do: Nx.backend_deallocate(Nx.dot(x, x)) end, device)

      Nx.backend_deallocate(x)
      commands |> Enum.map(&(operations_rate(Map.put(&1, :runs, 1)) || 0.0)) |> Enum.max()
    end

    defp copy_gbps(device, bytes) do
      elements = div(bytes, 4)
      zero = Nx.tensor(0.0, type: :f32)

      %{commands: [_from | copies]} =
        recorded(
          fn ->
            from = Nx.broadcast(zero, {elements})
            for _ <- 1..4, do: from |> Nx.negate() |> Nx.backend_deallocate()
            Nx.backend_deallocate(from)
          end,
          device
        )

      copies |> Enum.map(&rate(Map.put(&1, :runs, 1))) |> Enum.max()
    end
  else
    defp rates(_device), do: {nil, nil}
  end

  defp ok!({:ok, value}), do: value
  defp ok!(error), do: Nx.Vulkan.Error.raise!(:profile, error)

  defp of(result, {commands, waits, dropped, nanoseconds}, device) do
    {commands, _end} = Enum.map_reduce(commands, nil, &command/2)
    waits = for {from, to} <- waits, do: %{begin_us: us(from), end_us: us(to)}

    %__MODULE__{
      result: result,
      wall_us: us(nanoseconds),
      device_us: total(commands, & &1.device_us),
      gap_us: total(commands, & &1.gap_us),
      wait_us: total(waits, &(&1.end_us - &1.begin_us)),
      kernels: kernels(commands),
      commands: commands,
      waits: waits,
      dropped: dropped,
      most_used_bytes: Nx.Vulkan.memory_info(device).most_used_bytes,
      pipelines: nil,
      copy_gbps: nil,
      product_gops: nil
    }
  end

  defp command({name, grid, read, written, operations, recorded, host, from, to}, previous) do
    command = %{
      name: name,
      grid: if(grid != {0, 0, 0}, do: grid),
      read: read,
      written: written,
      operations: if(operations != 0, do: operations),
      recorded_us: us(recorded),
      host_us: us(host),
      begin_us: us(from),
      device_us: us(to - from),
      gap_us: if(previous, do: us(from - previous), else: 0.0)
    }

    {command, to}
  end

  defp kernels(commands) do
    commands
    |> Enum.group_by(&Map.take(&1, [:name, :grid, :read, :written, :operations]))
    |> Enum.map(fn {kernel, runs} ->
      times = for key <- [:device_us, :gap_us, :host_us], do: {key, total(runs, & &1[key])}
      times |> Map.new() |> Map.merge(kernel) |> Map.put(:runs, length(runs))
    end)
    |> Enum.sort_by(&{-&1.device_us, &1.name})
  end

  defp us(nanoseconds), do: nanoseconds / 1000
  defp total(list, fun), do: list |> Enum.map(fun) |> Enum.sum() |> Kernel.*(1.0)

  @doc """
  The profile as JSON in the format of Chrome's traces: what the device ran, what the host recorded and where it waited. Times of the
  device are such that no command begins before it was recorded.
  """
  @spec to_chrome_trace(t()) :: String.t()
  def to_chrome_trace(%__MODULE__{commands: commands, waits: waits}) do
    names =
      for {thread, name} <- [{1, "host"}, {2, "device"}, {3, "waits of the host"}],
          do: thread_name(thread, name)

    events =
      for command <- commands do
        %{recorded_us: recorded, host_us: host} = command

        args =
          ~s({"grid":"#{inspect(command.grid)}","read":#{command.read},"written":#{command.written},) <>
            ~s("operations":#{command.operations || "null"}})

        [
          event(command.name, 2, command.begin_us, command.device_us, args),
          event(command.name, 1, max(recorded - host, 0.0), min(host, recorded), "{}")
        ]
      end

    waits =
      for wait <- waits, do: event("wait", 3, wait.begin_us, wait.end_us - wait.begin_us, "{}")

    IO.iodata_to_binary([
      "[",
      Enum.intersperse(names ++ Enum.concat(events) ++ waits, ",\n"),
      "]\n"
    ])
  end

  defp thread_name(thread, name),
    do: ~s({"name":"thread_name","ph":"M","pid":1,"tid":#{thread},"args":{"name":"#{name}"}})

  defp event(name, thread, from, duration, args) do
    [~s({"name":"), escape(name), ~s(","ph":"X","pid":1,"tid":), to_string(thread)] ++
      [~s(,"ts":), decimal(from, 3), ~s(,"dur":), decimal(duration, 3), ~s(,"args":), args, "}"]
  end

  # Names are printable, but a file's may have any character.
  defp escape(name) do
    for <<char <- name>>, into: "" do
      if char in [?", ?\\] or char < 32,
        do: "\\u" <> String.pad_leading(Integer.to_string(char, 16), 4, "0"),
        else: <<char>>
    end
  end

  defp decimal(float, digits), do: :erlang.float_to_binary(float * 1.0, decimals: digits)

  @doc false
  def table(%__MODULE__{kernels: kernels} = profile) do
    header = ~w(runs device share gap host read written GB/s of-copy Gop/s of-product grid kernel)

    rows =
      for kernel <- kernels do
        [
          to_string(kernel.runs),
          decimal(kernel.device_us, 1),
          decimal(100 * kernel.device_us / max(profile.device_us, 0.001), 1) <> "%",
          decimal(kernel.gap_us, 1),
          decimal(kernel.host_us, 1),
          bytes(kernel.read),
          bytes(kernel.written),
          decimal(rate(kernel), 1),
          share(rate(kernel), profile.copy_gbps),
          if(rate = operations_rate(kernel), do: decimal(rate, 1), else: "-"),
          share(operations_rate(kernel), profile.product_gops),
          grid(kernel.grid),
          kernel.name
        ]
      end

    widths =
      Enum.zip_with([header | rows], fn column ->
        column |> Enum.map(&String.length/1) |> Enum.max()
      end)

    count = total(kernels, & &1.runs) |> trunc()

    summary =
      "#{count} commands, device #{decimal(profile.device_us, 1)} µs, gaps #{decimal(profile.gap_us, 1)} µs, " <>
        "waits #{decimal(profile.wait_us, 1)} µs, wall #{decimal(profile.wall_us, 1)} µs, " <>
        "#{profile.pipelines.count} pipelines made, at most #{bytes(profile.most_used_bytes)} used" <>
        if(profile.dropped > 0, do: ", #{profile.dropped} dropped", else: "")

    Enum.join([summary | Enum.map([header | rows], &line(&1, widths))], "\n")
  end

  # Numbers stand at the right of their columns, names at the left.
  defp line(cells, widths) do
    {numbers, [name]} = Enum.split(cells, -1)

    Enum.map_join(Enum.zip(numbers, widths), "  ", fn {cell, width} ->
      String.pad_leading(cell, width)
    end) <> "  " <> name
  end

  defp grid(nil), do: "-"
  defp grid({x, 1, 1}), do: to_string(x)
  defp grid({x, y, z}), do: "#{x}×#{y}×#{z}"

  defp bytes(count) when count < 1024, do: "#{count} B"
  defp bytes(count) when count < 1_048_576, do: decimal(count / 1024, 1) <> " KiB"
  defp bytes(count), do: decimal(count / 1_048_576, 1) <> " MiB"

  defp rate(%{device_us: device_us, read: read, written: written, runs: runs}),
    do: (read + written) * runs / max(device_us, 0.001) / 1000

  defp operations_rate(%{operations: nil}), do: nil

  defp operations_rate(%{device_us: device_us, operations: operations, runs: runs}),
    do: operations * runs / max(device_us, 0.001) / 1000

  defp share(rate, limit) when nil in [rate, limit], do: "-"
  defp share(rate, limit), do: decimal(100 * rate / limit, 0) <> "%"

  defimpl Inspect do
    import Inspect.Algebra

    def inspect(profile, _options) do
      lines =
        profile |> Nx.Vulkan.Profile.table() |> String.split("\n") |> Enum.intersperse(line())

      concat(["#Nx.Vulkan.Profile<", nest(concat([line() | lines]), 2), line(), ">"])
    end
  end
end
