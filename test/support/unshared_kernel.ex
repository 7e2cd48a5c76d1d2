defmodule Nx.Vulkan.Test.UnsharedKernel do
  @moduledoc """
  Leapfrog kernels as eXMC's generator and glslang write them: an expression is computed at each of its occurrences,
  a choice between values is one between branches that store into a variable, and a call has a variable for its
  argument.
  """

  alias Nx.Defn.Expr
  alias Nx.Tensor, as: T

  # Types, functions and variables have fixed ids.
  @ids ~w(void bool u32 s32 f64 procedure function function_f64 function_u32 array block block_pointer buffer_f64
    position position_pointer shared_f64 push push_pointer push_u32 push_f64 input_u32 split glsl main invocation
    constants shared q_init p_init extras q_chain p_chain grad_chain logp_chain exp log log1p)a
  @id @ids |> Enum.with_index(1) |> Map.new()
  @buffers ~w(q_init p_init extras q_chain p_chain grad_chain logp_chain)a
  @first_id length(@ids) + 1
  @longest_position 256

  # Opcodes of the instructions that make a value of others, with its type.
  @instructions %{
    add: {129, :f64},
    subtract: {131, :f64},
    multiply: {133, :f64},
    divide: {136, :f64},
    negate: {127, :f64},
    to_s32: {110, :s32},
    to_f64: {111, :f64},
    index_add: {128, :u32},
    index_multiply: {132, :u32},
    index_equal: {170, :bool},
    index_less: {176, :bool},
    logical_or: {166, :bool},
    logical_and: {167, :bool},
    equal: {180, :bool},
    not_equal: {182, :bool},
    less: {184, :bool},
    greater: {186, :bool},
    less_equal: {188, :bool},
    greater_equal: {190, :bool}
  }

  # The same of GLSL.std.450.
  @extended %{
    abs: {4, :f64},
    floor: {8, :f64},
    min: {37, :f64},
    max: {40, :f64},
    frexp: {52, :split},
    ldexp: {53, :f64}
  }

  @doc """
  The SPIR-V of a kernel for `Nx.Vulkan.NativeV.leapfrog_chain_synth_f64/6`, whose log-density is `prior.(q)` and
  `likelihood.(q, x)` for each observation. `q` is a tuple of `d` scalars.
  """
  def leapfrog(prior, likelihood, d) do
    q = List.to_tuple(List.duplicate(Nx.template({}, :f64), d))
    parameters = for i <- 0..(d - 1), do: {:at, :shared, :shared_f64, [{:index, i}]}
    of_prior = &Nx.Defn.value_and_grad(&1, prior)
    of_datum = fn q, x -> Nx.Defn.value_and_grad(q, &likelihood.(&1, x)) end
    prior = traced(of_prior, [q], parameters)
    datum = traced(of_datum, [q, Nx.template({}, :f64)], parameters ++ [{:load, :f64, :datum}])
    state = %{next: @first_id, constants: %{}, variables: [], code: [], names: %{}}

    {functions, state} =
      Enum.map_reduce([:exp, :log, :log1p], state, fn name, state ->
        function(state, name, &return(&1, math(name)))
      end)

    {main, state} = function(state, :main, &chain(&1, d, Enum.zip(prior, datum)))
    constants = for {{type, words}, id} <- state.constants, do: ins(43, [type, id | words])
    header = words([0x07230203, 0x00010300, 0, state.next + 1, 0])
    IO.iodata_to_binary([header, head(d), types(), constants, late(state), functions, main])
  end

  @doc "How many selections a module has, and how many variables in its functions."
  def sizes(<<_header::binary-size(20), instructions::binary>>),
    do: count(instructions, %{selections: 0, variables: 0})

  defp count(<<>>, sizes), do: sizes

  defp count(<<code::16-little, length::16-little, _::binary>> = words, sizes) do
    <<instruction::binary-size(4 * length), rest::binary>> = words

    case {code, instruction} do
      {247, _} -> count(rest, Map.update!(sizes, :selections, &(&1 + 1)))
      {59, <<_::96, 7::32-little>>} -> count(rest, Map.update!(sizes, :variables, &(&1 + 1)))
      _ -> count(rest, sizes)
    end
  end

  ## Expressions

  # The log-density and its derivatives as trees.
  defp traced(fun, templates, parameters) do
    {value, gradient} = apply(Nx.Defn, :debug_expr_apply, [fun, templates])
    for expr <- [value | Tuple.to_list(gradient)], do: tree(expr, parameters)
  end

  defp tree(%T{data: %Expr{op: op, args: args}}, parameters), do: tree(op, args, parameters)

  defp tree(:constant, [number], _), do: number
  defp tree(:parameter, [i], parameters), do: Enum.at(parameters, i)

  defp tree(op, [x | _], parameters) when op in [:metadata, :as_type, :reshape, :squeeze],
    do: tree(x, parameters)

  defp tree(op, [x], parameters) when op in [:exp, :log, :log1p],
    do: {:call, op, tree(x, parameters)}

  defp tree(:select, args, parameters) do
    [condition, a, b] = for arg <- args, do: tree(arg, parameters)
    {:choose, condition, a, b}
  end

  defp tree(op, args, parameters) when is_map_key(@instructions, op) or is_map_key(@extended, op),
    do: List.to_tuple([op | for(arg <- args, do: tree(arg, parameters))])

  # What has no exp, log and log1p of doubles computes them: the first by its series, the logarithm by that of atanh.
  defp math(:exp) do
    x = {:load, :f64, :argument}
    k = {:floor, {:add, {:multiply, x, 1.4426950408889634}, 0.5}}
    high = {:subtract, x, {:multiply, k, 0.6931471803691238}}
    r = {:subtract, high, {:multiply, k, 1.9082149292705877e-10}}

    series =
      Enum.reduce(15..1//-1, 1.0, &{:add, 1.0, {:divide, {:multiply, {:load, :f64, :r}, &2}, &1}})

    result = {:ldexp, {:let, :r, r, series}, {:to_s32, k}}

    {:return_if, {:greater, x, 709.0}, {:divide, 1.0, 0.0},
     {:return_if, {:less, x, -745.0}, 0.0, result}}
  end

  defp math(:log) do
    x = {:load, :f64, :argument}
    split = {:frexp, x}
    small = {:less, {:part, split, 0, :f64}, 0.7071067811865476}
    m = {:choose, small, {:multiply, {:part, split, 0, :f64}, 2.0}, {:part, split, 0, :f64}}
    e = {:to_f64, {:part, split, 1, :s32}}
    exponent = {:choose, small, {:subtract, e, 1.0}, e}
    m_load = {:load, :f64, :m}
    z = {:divide, {:subtract, m_load, 1.0}, {:add, m_load, 1.0}}
    z_load = {:load, :f64, :z}
    square = {:multiply, z_load, z_load}
    series = Enum.reduce(25..1//-2, 0.0, &{:add, {:divide, 1.0, &1}, {:multiply, square, &2}})
    atanh = {:let, :z, z, {:multiply, z_load, series}}

    log =
      {:add, {:multiply, 2.0, {:let, :m, m, atanh}}, {:multiply, exponent, 0.6931471805599453}}

    {:return_if, {:less_equal, x, 0.0}, {:divide, -1.0, 0.0}, log}
  end

  defp math(:log1p) do
    x = {:load, :f64, :argument}
    u = {:load, :f64, :u}
    # (1 + x) - 1 is what log(1 + x) is of.
    scaled = {:divide, {:multiply, {:call, :log, u}, x}, {:subtract, u, 1.0}}
    {:let, :u, {:add, 1.0, x}, {:choose, {:equal, u, 1.0}, x, scaled}}
  end

  # The id of an expression's value.
  defp emit(number, state) when is_number(number),
    do:
      constant(
        state,
        :f64,
        for(<<(word::32-little <- <<number * 1.0::float-64-little>>)>>, do: word)
      )

  defp emit({:index, i}, state), do: constant(state, :u32, [i])
  defp emit({:member, i}, state), do: constant(state, :s32, [i])
  defp emit({:id, id}, state), do: {id, state}
  defp emit({:load, type, name}, state), do: op(state, type, 61, [name(state, name)])

  defp emit({:at, base, pointer, indices}, state) do
    {ids, state} = Enum.map_reduce(indices, state, &emit/2)
    {element, state} = op(state, pointer, 65, [@id[base] | ids])
    type = if pointer == :push_u32, do: :u32, else: :f64
    op(state, type, 61, [element])
  end

  defp emit({:part, whole, i, type}, state) do
    {whole, state} = emit(whole, state)
    op(state, type, 81, [whole, i])
  end

  defp emit({:call, function, x}, state) do
    {argument, state} = variable(state, :f64)
    state = store(state, argument, x)
    op(state, :f64, 57, [@id[function], argument])
  end

  # glslang has an instruction for numbers that are known.
  defp emit({:choose, condition, a, b}, state) when is_number(a) and is_number(b) do
    {ids, state} = Enum.map_reduce([condition, a, b], state, &emit/2)
    op(state, :f64, 169, ids)
  end

  defp emit({:choose, condition, a, b}, state) do
    {chosen, state} = variable(state, :f64)
    state = branch(state, condition, &store(&1, chosen, a), &store(&1, chosen, b))
    op(state, :f64, 61, [chosen])
  end

  defp emit({:let, name, x, body}, state) do
    state = let(state, name, :f64, x)
    emit(body, state)
  end

  defp emit({:return_if, condition, x, body}, state),
    do: emit(body, branch(state, condition, &return(&1, x), & &1))

  defp emit(expression, state) do
    [op | args] = Tuple.to_list(expression)
    {args, state} = Enum.map_reduce(args, state, &emit/2)

    case @instructions[op] do
      {code, type} ->
        op(state, type, code, args)

      nil ->
        {code, type} = @extended[op]
        op(state, type, 12, [@id[:glsl], code | args])
    end
  end

  ## The leapfrog scheme

  defp chain(state, d, terms) do
    [value | gradient] = terms
    tid = {:load, :u32, :tid}
    [k_steps, n_obs] = for i <- 0..1, do: {:at, :constants, :push_u32, [{:member, i}]}
    eps = {:at, :constants, :push_f64, [{:member, 4}]}
    element = fn buffer, i -> {:at, buffer, :buffer_f64, [{:member, 0}, i]} end
    [q, p, grad, half] = for name <- [:q, :p, :grad, :half], do: {:load, :f64, name}
    kick = fn p -> {:add, p, {:multiply, {:multiply, 0.5, eps}, grad}} end
    {invocation, state} = op(state, :u32, 61, [@id[:invocation]])
    state = state |> let(:tid, :u32, {:id, invocation}) |> let(:grad, :f64, 0.0)

    state =
      state |> let(:q, :f64, element.(:q_init, tid)) |> let(:p, :f64, element.(:p_init, tid))

    mass = element.(:extras, {:index_add, n_obs, tid})

    gradients = fn state ->
      state = state |> barrier() |> put(:shared, :shared_f64, [tid], q) |> barrier()

      for {terms, i} <- Enum.with_index(gradient), reduce: state do
        state ->
          branch(
            state,
            {:index_equal, tid, {:index, i}},
            &sum(&1, :grad, terms, n_obs, element),
            & &1
          )
      end
    end

    loop(state, :step, k_steps, fn state ->
      step = {:load, :u32, :step}
      at = {:index_add, {:index_multiply, step, {:index, d}}, tid}
      state = state |> gradients.() |> let(:half, :f64, kick.(p))
      state = store(state, name(state, :q), {:add, q, {:multiply, {:multiply, eps, mass}, half}})
      state = gradients.(state)
      state = store(state, name(state, :p), kick.(half))

      state =
        for {buffer, value} <- [q_chain: q, p_chain: p, grad_chain: grad], reduce: state do
          state -> put(state, buffer, :buffer_f64, [{:member, 0}, at], value)
        end

      log_density = fn state ->
        state = state |> let(:logp, :f64, 0.0) |> sum(:logp, value, n_obs, element)
        put(state, :logp_chain, :buffer_f64, [{:member, 0}, step], {:load, :f64, :logp})
      end

      branch(state, {:index_equal, tid, {:index, 0}}, log_density, & &1)
    end)
    |> ins_to(253, [])
  end

  # Stores the prior's term and those of all observations in a variable.
  defp sum(state, name, {prior, datum}, n_obs, element) do
    state = store(state, name(state, name), prior)

    loop(state, :j, n_obs, fn state ->
      state = let(state, :datum, :f64, element.(:extras, {:load, :u32, :j}))
      store(state, name(state, name), {:add, {:load, :f64, name}, datum})
    end)
  end

  ## Statements

  defp function(state, name, body) do
    [label, argument] = [state.next, state.next + 1]
    state = %{state | next: state.next + 2, names: %{argument: argument}}
    state = body.(state)

    {result, type, parameters} =
      if name == :main,
        do: {:void, :procedure, []},
        else: {:f64, :function, ins(55, [:function_f64, argument])}

    variables =
      for {type, id} <- Enum.reverse(state.variables), do: ins(59, [:"function_#{type}", id, 7])

    head = [ins(54, [result, @id[name], 0, type]), parameters, ins(248, [label])]
    function = [head, variables, Enum.reverse(state.code), ins(56, [])]
    {function, %{state | variables: [], code: [], names: %{}}}
  end

  defp return(state, x) do
    {id, state} = emit(x, state)
    ins_to(state, 254, [id])
  end

  defp let(state, name, type, x) do
    {id, state} = variable(state, type)
    store(%{state | names: Map.put(state.names, name, id)}, id, x)
  end

  defp store(state, variable, x) do
    {id, state} = emit(x, state)
    ins_to(state, 62, [variable, id])
  end

  defp put(state, base, pointer, indices, x) do
    {value, state} = emit(x, state)
    {ids, state} = Enum.map_reduce(indices, state, &emit/2)
    {element, state} = op(state, pointer, 65, [@id[base] | ids])
    ins_to(state, 62, [element, value])
  end

  defp branch(state, condition, yes, no) do
    {condition, state} = emit(condition, state)
    {[first, second, merge], state} = labels(state, 3)

    state
    |> ins_to(247, [merge, 0])
    |> ins_to(250, [condition, first, second])
    |> arm(first, yes, merge)
    |> arm(second, no, merge)
    |> ins_to(248, [merge])
  end

  # A branch ends with a jump, unless it returns.
  defp arm(state, label, body, merge) do
    state = state |> ins_to(248, [label]) |> body.()

    case hd(state.code) do
      <<254::16-little, _::binary>> -> state
      _ -> ins_to(state, 249, [merge])
    end
  end

  defp loop(state, name, count, body) do
    state = let(state, name, :u32, {:index, 0})
    {[head, test, first, continue, merge], state} = labels(state, 5)
    counter = {:load, :u32, name}
    state = state |> ins_to(249, [head]) |> ins_to(248, [head])

    state =
      state |> ins_to(246, [merge, continue, 0]) |> ins_to(249, [test]) |> ins_to(248, [test])

    {more, state} = emit({:index_less, counter, count}, state)
    state = state |> ins_to(250, [more, first, merge]) |> ins_to(248, [first]) |> body.()
    state = state |> ins_to(249, [continue]) |> ins_to(248, [continue])
    state = store(state, name(state, name), {:index_add, counter, {:index, 1}})
    state |> ins_to(249, [head]) |> ins_to(248, [merge])
  end

  # Of the workgroup and its memory.
  defp barrier(state) do
    {[scope, semantics], state} = Enum.map_reduce([{:index, 2}, {:index, 0x108}], state, &emit/2)
    ins_to(state, 224, [scope, scope, semantics])
  end

  defp name(state, name), do: Map.fetch!(state.names, name)

  defp variable(state, type) do
    state = %{state | variables: [{type, state.next} | state.variables]}
    {state.next, %{state | next: state.next + 1}}
  end

  defp labels(state, count),
    do: {Enum.to_list(state.next..(state.next + count - 1)), %{state | next: state.next + count}}

  defp constant(state, type, words) do
    case state.constants do
      %{{^type, ^words} => id} ->
        {id, state}

      all ->
        {state.next,
         %{state | next: state.next + 1, constants: Map.put(all, {type, words}, state.next)}}
    end
  end

  defp op(state, type, code, args),
    do: {state.next, ins_to(%{state | next: state.next + 1}, code, [type, state.next | args])}

  defp ins_to(state, code, args), do: %{state | code: [ins(code, args) | state.code]}

  ## Words

  defp ins(code, args),
    do: <<code::16-little, length(args) + 1::16-little, words(args)::binary>>

  defp words(args), do: for(word <- args, into: <<>>, do: <<Map.get(@id, word, word)::32-little>>)

  defp text(string) do
    padded = string <> :binary.copy(<<0>>, 4 - rem(byte_size(string), 4))
    for <<word::32-little <- padded>>, do: word
  end

  defp head(d) do
    [
      for(capability <- [1, 10], do: ins(17, [capability])),
      ins(10, text("SPV_KHR_storage_buffer_storage_class")),
      ins(11, [:glsl | text("GLSL.std.450")]),
      ins(14, [0, 1]),
      ins(15, [5, :main] ++ text("main") ++ [:invocation]),
      ins(16, [:main, 17, d, 1, 1]),
      ins(71, [:invocation, 11, 29]),
      ins(71, [:array, 6, 8]),
      for(block <- [:block, :push], do: ins(71, [block, 2])),
      ins(72, [:block, 0, 35, 0]),
      for({offset, i} <- Enum.with_index([0, 4, 8, 12, 16]), do: ins(72, [:push, i, 35, offset])),
      for(
        {buffer, i} <- Enum.with_index(@buffers),
        word <- [[34, 0], [33, i]],
        do: ins(71, [buffer | word])
      )
    ]
  end

  defp types do
    [
      ins(19, [:void]),
      ins(20, [:bool]),
      ins(21, [:u32, 32, 0]),
      ins(21, [:s32, 32, 1]),
      ins(22, [:f64, 64]),
      ins(32, [:function_f64, 7, :f64]),
      ins(32, [:function_u32, 7, :u32]),
      ins(33, [:procedure, :void]),
      ins(33, [:function, :f64, :function_f64]),
      ins(30, [:split, :f64, :s32])
    ]
  end

  # Types and variables that a constant stands before: the length of the array in the workgroup's memory.
  defp late(state) do
    [
      ins(43, [:u32, state.next, @longest_position]),
      ins(29, [:array, :f64]),
      ins(30, [:block, :array]),
      ins(32, [:block_pointer, 12, :block]),
      ins(32, [:buffer_f64, 12, :f64]),
      ins(28, [:position, :f64, state.next]),
      ins(32, [:position_pointer, 4, :position]),
      ins(32, [:shared_f64, 4, :f64]),
      ins(30, [:push, :u32, :u32, :u32, :u32, :f64]),
      ins(32, [:push_pointer, 9, :push]),
      ins(32, [:push_u32, 9, :u32]),
      ins(32, [:push_f64, 9, :f64]),
      ins(32, [:input_u32, 1, :u32]),
      ins(59, [:input_u32, :invocation, 1]),
      ins(59, [:push_pointer, :constants, 9]),
      ins(59, [:position_pointer, :shared, 4]),
      for(buffer <- @buffers, do: ins(59, [:block_pointer, buffer, 12]))
    ]
  end
end
