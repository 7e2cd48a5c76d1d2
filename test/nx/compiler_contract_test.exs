defmodule Nx.Vulkan.CompilerContractTest do
  @moduledoc "What `Nx.Defn` asks of a compiler besides results: arguments, options, hooks and their order."

  use Nx.Vulkan.Test.Case, async: true

  import Nx.Defn

  alias Nx.Defn.Evaluator
  alias Nx.Vulkan.Compiler

  defmodule Lazy do
    @moduledoc "A container with a field that can be made and one that cannot."
    defstruct [:used, :unused]

    defimpl Nx.LazyContainer do
      def traverse(%{used: used, unused: unused}, acc, fun) do
        {used, acc} = fun.(Nx.to_template(used), fn -> used end, acc)
        {unused, acc} = fun.(Nx.to_template(unused), fn -> raise "made" end, acc)
        {%{used: used, unused: unused}, acc}
      end
    end
  end

  describe "arguments that the definition does not use" do
    test "may be templates" do
      for type <- [:u8, :bf16, :f64] do
        fun = fn x, template -> Nx.as_type(x, template.type) end
        x = Nx.tensor([1, 2, 3])
        template = Nx.template({1000, 1000}, type)
        assert_same(compiled(fun).(to_device(x), template), Nx.as_type(x, type), :as_type)
        result = Nx.Defn.compile(fun, [x, template], compiler: Compiler).(to_device(x), template)
        assert_same(result, Nx.as_type(x, type), :as_type)
      end
    end

    test "are not made, and the others keep their places" do
      lazy = %Lazy{used: Nx.tensor([1, 2]), unused: Nx.tensor([3, 4])}

      fun = fn %{used: used, unused: unused}, x ->
        {Nx.multiply(used, x), Nx.broadcast(0, unused)}
      end

      {product, zeros} = compiled(fun).(lazy, Nx.tensor(5))
      assert_same(product, Nx.tensor([5, 10]), :multiply)
      assert_same(zeros, Nx.tensor([0, 0]), :broadcast)
      assert_raise RuntimeError, "made", fn -> compiled(& &1.unused).(lazy) end
    end

    test "are neither those of a loop nor those of a condition" do
      fun = fn x, _unused, n ->
        cond_or_loop(x, n)
      end

      unused = Nx.template({3}, :f32)

      for n <- 0..2 do
        result = compiled(fun).(to_device(Nx.tensor([1, 2])), unused, n)
        assert_same(result, cond_or_loop(Nx.tensor([1, 2]), n), :cond_or_loop)
      end
    end
  end

  defn cond_or_loop(x, n) do
    if n > 1 do
      {_, x} = while({n, x}, n > 0, do: {n - 1, x * 3})
      x
    else
      Nx.reduce(x, 7, fn x, acc -> x + acc end) + x
    end
  end

  describe "options" do
    test "of other compilers are ignored, and a path is a cache as any" do
      fun = &Nx.add(&1, 1)
      x = to_device(Nx.tensor([1, 2]))
      path = Path.join(System.tmp_dir!(), "nx_vulkan_no_such_file")

      for options <- [
            [cache: path],
            [cache: nil],
            [cache: false],
            [client: :cuda, debug: false, lazy_transfers: :always, run_options: [a: self()]],
            [garbage_collect: true, max_concurrency: 3]
          ] do
        options = [compiler: Compiler] ++ options
        assert_same(Nx.Defn.jit(fun, options).(x), Nx.tensor([2, 3]), :add)
        assert_same(Nx.Defn.compile(fun, [x], options).(x), Nx.tensor([2, 3]), :add)
      end

      refute File.exists?(path)
    end

    test "partitions and the backend of results" do
      assert Compiler.__partitions_options__(a: 1) == [[a: 1]]
      options = [max_concurrency: 2, a: 1]
      assert Compiler.__partitions_options__(options) == [options, options]
      assert Nx.Defn.to_backend(compiler: Compiler, client: :cuda) == {VulkanoBackend, []}
    end

    test "sharding is refused as Nx.Defn.Evaluator refuses it" do
      mesh = %Nx.Mesh{name: "mesh", shape: {2}}

      [message, expected] =
        for compiler <- [Compiler, Evaluator] do
          sharded = Nx.Defn.shard_jit(&Nx.add(&1, 1), mesh, compiler: compiler)
          error = assert_raise RuntimeError, fn -> sharded.([[Nx.tensor(1)], [Nx.tensor(2)]]) end
          error.message
        end

      assert message == String.replace(expected, inspect(Evaluator), inspect(Compiler))
    end
  end

  describe "hooks" do
    defn in_order(x, y) do
      first = io_hook(x * 2, :first)
      second = io_hook(first + y, :second)
      {third, _} = io_hook({second * first, y}, :third)
      {third - 1, Nx.sum(io_hook(y * 3, :fourth)) + Nx.sum(first)}
    end

    defn in_a_counted_loop(x, _y) do
      {_, x, last} =
        while {i = 0, x, _last = x}, i < 3 do
          x = io_hook(x * 2 + i, :inner)
          {i + 1, x, io_hook(x + 100, :last)}
        end

      x + last
    end

    # Nothing reads what the first iterations' hooks got.
    defn beside_a_counted_loop(x, _y) do
      {_, x, _} =
        while {i = 0, x, seen = 0}, i < 3 do
          {i + 1, x * 2, io_hook(i * 10, :seen) + 0 * seen}
        end

      x
    end

    defn unread_in_a_counted_loop(x, _y) do
      {_, x, seen} =
        while({i = 0, x, _seen = 0}, i < 3, do: {i + 1, x * 2, io_hook(i * 10, :seen)})

      {x, seen}
    end

    defn in_a_loop(x, y) do
      while {x, y}, Nx.any(x < 50) do
        {io_hook(x * 3, :inner), io_hook(y + 1, :other)}
      end
    end

    defn in_branches(x, y) do
      shared = x + y

      cond do
        Nx.all(io_hook(shared > 100, :first)) -> io_hook(shared, :not_this)
        Nx.any(io_hook(shared > 0, :second)) -> io_hook(shared * 2, :this)
        true -> io_hook(shared, :nor_this)
      end
    end

    defn in_a_branch_of_a_loop(x, _y) do
      {_, x} =
        while {i = 0, x}, i < 4 do
          x = if(Nx.remainder(i, 2) == 0, do: io_hook(x + i, :even), else: io_hook(x * 2, :odd))
          {i + 1, x}
        end

      x
    end

    test "get the values that Nx.Defn.Evaluator gives them, in its order" do
      args = [Nx.tensor([1, -2, 3]), Nx.tensor([4, 5, 6])]

      for fun <- [
            &in_order/2,
            &in_a_counted_loop/2,
            &beside_a_counted_loop/2,
            &unread_in_a_counted_loop/2,
            &in_a_loop/2,
            &in_branches/2,
            &in_a_branch_of_a_loop/2
          ],
          # The second call runs the trace of the first.
          _ <- 1..2 do
        {expected, result} = called(fun, args, Evaluator)
        assert length(expected) > 1
        assert {expected, result} == called(fun, Enum.map(args, &to_device/1), Compiler)
      end
    end

    defn in_false_predicates(x, y) do
      first = io_hook(x + 1, :first)
      second = io_hook(y + 1, :second)

      {chosen, _} =
        cond do
          Nx.any(first > 100) -> {y, x}
          Nx.any(second > 100) -> {x, y}
          Nx.any(first > 50) -> {first, second}
          true -> {Nx.sort(second), y}
        end

      chosen + first
    end

    defn in_the_false_predicate_of_a_loop(x, y) do
      {_, x, _} =
        while {i = 0, x, y}, i < 2 do
          first = io_hook(x + i, :first)
          {i + 1, if(Nx.any(first > 100), do: y, else: Nx.sort(first)), y}
        end

      x
    end

    # Nx.Defn.Evaluator runs them again for each clause that is not chosen.
    test "in predicates that are false run once" do
      args = [to_device(Nx.tensor([2, 1])), to_device(Nx.tensor([4, 3]))]

      assert called(&in_false_predicates/2, args, Compiler) ==
               {[first: [3, 2], second: [5, 4]], [7, 7]}

      assert called(&in_the_false_predicate_of_a_loop/2, args, Compiler) ==
               {[first: [2, 1], first: [2, 3]], [2, 3]}
    end

    test "that are functions run in each call" do
      fun = fn x, y ->
        x = io_hook(Nx.add(x, 1), &send(self(), {:plain, Nx.to_number(&1)}))
        Nx.Defn.Kernel.print_value(Nx.add(x, y), &send(self(), {:printed, Nx.to_number(&1)}))
      end

      ExUnit.CaptureIO.capture_io(fn ->
        for _ <- 1..2 do
          compiled(fun).(Nx.tensor(1), Nx.tensor(5))
          assert_received {:plain, 2}
          assert_received {:printed, 7}
        end
      end)
    end

    test "in a hook, and of a call that fails" do
      fun = fn x -> Nx.add(hook(x, :outer), 1) end
      inner = Nx.Defn.jit(fun, compiler: Compiler, hooks: %{outer: &send(self(), {:inner, &1})})

      hook = fn x ->
        inner.(Nx.multiply(x, 10))
        send(self(), {:outer, x})
      end

      outer = Nx.Defn.jit(fun, compiler: Compiler, hooks: %{outer: hook})
      outer.(Nx.tensor(3))
      assert_received {:inner, inner}
      assert_received {:outer, outer}
      assert {Nx.to_number(inner), Nx.to_number(outer)} == {30, 3}

      failing = Nx.Defn.jit(fun, compiler: Compiler, hooks: %{outer: fn _ -> raise "no" end})
      assert_raise RuntimeError, "no", fn -> failing.(Nx.tensor(3)) end
      # No hook of the calls before is left.
      assert Nx.to_number(compiled(fun).(Nx.tensor(3))) == 4
      refute_received _
    end

    test "in functions of reduce and window_reduce get the values" do
      Fallbacks.allow()
      x = to_device(Nx.tensor([1, 2, 3], type: :u8))

      for compiler <- [Compiler, Evaluator], type <- [{:s, 32}, {:f, 64}] do
        sum = fn x, acc -> hook(Nx.add(x, acc), :sum) end
        reduce = &Nx.reduce(&1, Nx.tensor(0, type: type), sum)
        assert called(reduce, [x], compiler, type) == {[sum: [1], sum: [3], sum: [6]], [6]}

        window = &Nx.window_reduce(Nx.as_type(&1, type), Nx.tensor(0, type: type), {2}, sum)
        expected = {[sum: [1], sum: [3], sum: [2], sum: [5]], [3, 5]}
        assert called(window, [x], compiler, type) == expected
      end
    end

    test "in such functions need the CPU" do
      sum = fn x, acc -> hook(Nx.add(x, acc), :sum) end

      Fallback.put_mode(:raise)

      assert_raise Fallback.Error, ~r/has a hook/, fn ->
        compiled(&Nx.reduce(&1, 0, sum)).(Nx.tensor([1, 2]))
      end
    end
  end

  describe "runtime_call" do
    def doubled(x, name: name) do
      send(self(), {:hook, name, x})
      Nx.multiply(Nx.backend_copy(x, Nx.BinaryBackend), 2)
    end

    def split({x, y}, name: name) do
      send(self(), {:hook, name, x})
      {Nx.add(x, y), Nx.subtract(x, y)}
    end

    defn of_functions(x, y) do
      first = Nx.runtime_call(x, x, [name: :first], &doubled/2)
      {sum, difference} = Nx.runtime_call({x, y}, {first, y}, [name: :second], &split/2)

      {_, sum} =
        while {i = 0, sum}, i < 2 do
          {i + 1, Nx.runtime_call(sum, sum + i, [name: :inner], &doubled/2)}
        end

      if Nx.any(first > 100),
        do: Nx.runtime_call(sum, sum, [name: :not_this], &doubled/2),
        else: Nx.runtime_call(sum, sum + difference + first, [name: :this], &doubled/2)
    end

    test "gets each value once, in loops and in the branch that is chosen" do
      for _ <- 1..3 do
        args = [to_device(Nx.tensor([1, 2])), to_device(Nx.tensor([5, 7]))]

        assert called(&of_functions/2, args, Compiler) ==
                 {[
                    first: [1, 2],
                    second: [2, 4],
                    inner: [7, 11],
                    inner: [15, 23],
                    this: [29, 47]
                  ], [58, 94]}
      end
    end

    test "fails as with Nx.Defn.Evaluator where its result is not like its template" do
      fun = fn x -> Nx.runtime_call(Nx.template({3}, :s32), x, [name: :first], &doubled/2) end

      [message, message] =
        for compiler <- [Compiler, Evaluator] do
          jit = Nx.Defn.jit(fun, compiler: compiler)
          assert_raise(RuntimeError, fn -> jit.(Nx.tensor([1, 2])) end).message
        end
    end
  end

  # The hooks' names with what they got, in order, and the results.
  defp called(fun, args, compiler, type \\ nil) do
    names =
      ~w(first second third fourth inner other last seen this not_this nor_this even odd sum)a

    test = self()
    hooks = Map.new(names, fn name -> {name, &send(test, {:hook, name, &1})} end)
    result = apply(Nx.Defn.jit(fun, compiler: compiler, hooks: hooks), args)
    {seen(type), numbers(result)}
  end

  defp seen(type) do
    receive do
      {:hook, name, value} ->
        if type, do: assert(value.type == type)
        [{name, numbers(value)} | seen(type)]
    after
      0 -> []
    end
  end

  defp numbers(container) do
    [container]
    |> Nx.Defn.Composite.flatten_list()
    |> Enum.flat_map(&Nx.to_flat_list(Nx.devectorize(&1)))
  end

  describe "a definition" do
    test "that was compiled runs in other processes, at once" do
      fun = fn x, y -> Nx.sum(Nx.multiply(Nx.sin(x), y)) end
      args = [Nx.iota({50}, type: :f32), Nx.iota({50}, type: :f32)]
      compiled = Nx.Defn.compile(fun, args, compiler: Compiler)
      expected = Nx.to_number(apply(compiled, args))
      tasks = for _ <- 1..4, do: Task.async(fn -> Nx.to_number(apply(compiled, args)) end)
      assert Task.await_many(tasks, :infinity) == List.duplicate(expected, 4)
    end

    test "within a definition runs as part of it, or at once where it is forced to" do
      x = Nx.tensor([1.0, 2.0])
      inner = Nx.Defn.jit(&Nx.multiply(&1, 3), compiler: Compiler, on_conflict: :reuse)
      assert_same(compiled(&Nx.add(inner.(&1), 1)).(to_device(x)), Nx.tensor([4.0, 7.0]), :reuse)

      forced = Nx.Defn.jit(&Nx.multiply(&1, 3), compiler: Compiler, on_conflict: :force)
      number = fn -> Nx.to_number(forced.(Nx.tensor(5, backend: Nx.BinaryBackend))) end

      assert_same(
        compiled(&Nx.add(&1, number.())).(to_device(x)),
        Nx.tensor([16.0, 17.0]),
        :force
      )

      assert_raise RuntimeError, ~r/JIT/, fn -> compiled(&compiled(fn x -> x end).(&1)).(x) end
      assert Nx.Defn.Compiler.current() == nil
      assert Nx.default_backend() == {Nx.BinaryBackend, []}
    end

    test "with vectorized arguments and hooks" do
      x = Nx.vectorize(Nx.tensor([[1, 2], [3, 4], [5, 6]]), :rows)
      y = Nx.vectorize(Nx.tensor([10, 20]), :columns)
      fun = fn x, y -> Nx.sum(hook(Nx.multiply(x, y), :first)) end
      products = for x <- [[1, 2], [3, 4], [5, 6]], y <- [10, 20], x <- x, do: x * y
      sums = products |> Enum.chunk_every(2) |> Enum.map(&Enum.sum/1)
      assert called(fun, [to_device(x), y], Compiler) == {[first: products], sums}
      assert compiled(fun).(x, y).vectorized_axes == [rows: 3, columns: 2]
    end

    test "with hooks of vectorized tensors, which get their axes as from Nx.Defn.Evaluator" do
      x = Nx.vectorize(Nx.tensor([[1, 2], [3, 4], [5, 6]]), :rows)
      y = Nx.vectorize(Nx.tensor([10, 20]), :columns)

      funs = [
        fn x, y -> {hook(Nx.sum(Nx.multiply(x, y)), :first), Nx.add(x, y)} end,
        fn x, y -> Nx.subtract(hook(x, :first), y) end,
        fn x, y -> hook(Nx.devectorize(Nx.multiply(x, y)), :first) end
      ]

      attached = fn x, y ->
        attach_hook(Nx.devectorize(Nx.subtract(x, y)), Nx.sum(Nx.multiply(x, y)), :first)
      end

      funs = if tokens?(), do: [attached | funs], else: funs

      for fun <- funs do
        [expected, got] =
          for compiler <- [Evaluator, Compiler] do
            hooks = %{first: &send(self(), {:value, &1})}
            result = Nx.Defn.jit(fun, compiler: compiler, hooks: hooks).(x, y)
            assert_received {:value, value}

            for tensor <- Nx.Defn.Composite.flatten_list([value, result]),
                do: {tensor.vectorized_axes, tensor.shape, numbers(tensor)}
          end

        assert got == expected
      end
    end

    test "of a serving with batch keys" do
      serving =
        Nx.Serving.new(
          fn
            :double, options -> Nx.Defn.compile(&Nx.multiply(&1, 2), [template()], options)
            :square, options -> Nx.Defn.jit(&Nx.multiply(&1, &1), options)
          end,
          compiler: Compiler
        )

      name = Module.concat(__MODULE__, Serving)

      start_supervised!(
        {Nx.Serving, name: name, serving: serving, batch_keys: [:double, :square], batch_size: 2}
      )

      for {key, expected} <- [double: [6, 8], square: [9, 16]] do
        batch = Nx.Batch.key(Nx.Batch.concatenate([Nx.tensor([3, 4])]), key)
        assert Nx.to_flat_list(Nx.Serving.batched_run(name, batch)) == expected
      end
    end
  end

  defp template, do: Nx.template({2}, :s32)

  defp compiled(fun), do: Nx.Defn.jit(fun, compiler: Compiler)
  defp hook(x, name), do: io_hook(x, name)
end
