# Every operation of the backend's table, for each type that it takes, in calls drawn at random.
# In two modules, which run concurrently: the functions' kernels take longest.
alias Nx.Vulkan.Support

functions = ["functions", "error functions", "arithmetic"]

for {name, own?} <- [Functions: &(&1 in functions), Operations: &(&1 not in functions)] do
  defmodule Module.concat(Nx.Vulkan.PropertyTest, name) do
    use Nx.Vulkan.Test.Case, async: true

    alias Nx.Vulkan.Test.Examples

    # Forms of calls for each operation and type, and calls of each form. A form is a kernel or more, whose
    # compilation takes most of the time; other runs draw others.
    @forms 1
    @calls 7

    for {group, operations, _row} <- Support.table(Support.all_types()),
        own?.(group),
        op <- operations do
      @group group
      test "#{op}" do
        {:ok, targets} = Support.device_types()
        {_, _, row} = List.keyfind(Support.table(targets), @group, 0)

        for {type, target} when target in [:device, :emulated] <- row,
            form <- 1..@forms,
            _ <- 1..@calls do
          check(Examples.example(unquote(op), type, form), type)
        end
      end
    end

    # Nx.imag of real numbers, for one, makes new ones on the default backend.
    defp check(call, type) do
      tensors = if call.tensors == [], do: [], else: operands(call.tensors)
      arguments = tensors ++ call.args

      context = [
        type: type,
        operands: Enum.map(call.tensors, &{&1.type, &1.shape}),
        args: call.args
      ]

      try do
        result = Nx.with_default_backend(VulkanoBackend, fn -> apply(call.fun, arguments) end)
        compare(call, result, context)
      rescue
        error in ExUnit.AssertionError ->
          reraise error, __STACKTRACE__

        error ->
          flunk(
            "#{call.op} #{inspect(context)}: #{Exception.format(:error, error, __STACKTRACE__)}"
          )
      end
    end

    defp compare(%{compare: :each} = call, result, context) do
      expected = Reference.elementwise(call.tensors, call.expected)
      assert_same(result, expected, call.as, context)
    end

    defp compare(%{compare: {:near, error}} = call, result, context),
      do: assert_near(result, nearest(call.expected, call.tensors), error, {call.op, context})

    defp compare(%{compare: :whole} = call, result, context) do
      for [got, want] <-
            zip_all([results(result), results(nearest(call.expected, call.tensors))]),
          do: assert_same(got, want, call.as, context)
    end

    defp results(%Nx.Tensor{} = tensor), do: [tensor]
    defp results(tuple), do: Tuple.to_list(tuple)
  end
end
