defmodule Nx.Vulkan.Test.Definitions do
  @moduledoc """
  Definitions at random: lists of steps, each of which computes a value from those before, the inputs first.
  """

  import Nx.Defn

  alias Nx.Vulkan.Test.Generators

  @operations 12

  @doc """
  The steps of a definition and inputs for it. `step` draws one that follows these values; drawn anew is one that Nx
  refuses.
  """
  def draw(type, step) do
    shapes = Enum.take_random([{4, 6}, {6}, {1, 6}, {4, 1}, {}, {4, 6}], 3)
    inputs = for shape <- shapes, do: Generators.tensor(shape, type, {:integer, -9..9})
    {steps, _values} = Enum.map_reduce(1..@operations, inputs, &draw(step, &1, &2))
    {steps, inputs}
  end

  defp draw(step, n, values) do
    drawn = step.(values)
    {drawn, values ++ [perform(drawn, values)]}
  rescue
    _ in [ArgumentError, ArithmeticError, FunctionClauseError] -> draw(step, n, values)
  end

  @unary [:negate, :abs, :sign, :is_nan, :sin, :exp, :tanh, :floor]
  @binary [:add, :subtract, :multiply, :max, :min, :greater, :equal, :logical_and]

  @views [:transpose, :reverse, :row, :part, :column, :broadcast, :flat]
  @others [:fold, :sort, :argsort, :cumulative, :twice, :product, :window, :write, :take] ++
            [:captured, :centred, :heads, :moved]

  @doc "The numbers of some steps, the last one always first, whose values are a definition's results."
  def results(steps) do
    count = length(steps)
    [count - 1 | Enum.take_random(0..(count - 1), 2)]
  end

  @doc """
  The steps as a function of the tuple of inputs. `hook` gets the value of each iteration and each branch.
  """
  def fun(steps, results \\ nil, hook \\ & &1) do
    results = results || results(steps)

    fn inputs ->
      inputs = Tuple.to_list(inputs)
      values = Enum.reduce(steps, inputs, &(&2 ++ [perform(&1, &2, hook)]))
      made = Enum.drop(values, length(inputs))
      results |> Enum.map(&Enum.at(made, &1)) |> List.to_tuple()
    end
  end

  @doc """
  What `fun/3` gives, without `Nx.Defn`: each value that a result needs is computed once, in the order in which the
  operations read them.
  """
  def run(steps, results, inputs, hook) do
    inputs = Tuple.to_list(inputs)
    known = inputs |> Enum.with_index() |> Map.new(fn {value, index} -> {index, value} end)
    steps = inputs |> Enum.concat(steps) |> List.to_tuple()
    results = Enum.map(results, &(&1 + length(inputs)))
    known = Enum.reduce(results, known, &demand(&1, steps, &2, hook))
    results |> Enum.map(&known[&1]) |> List.to_tuple()
  end

  defp demand(index, _steps, known, _hook) when is_map_key(known, index), do: known

  defp demand(index, steps, known, hook) do
    step = elem(steps, index)
    known = step |> read() |> Enum.reduce(known, &demand(&1, steps, &2, hook))
    Map.put(known, index, at_once(step, known, hook))
  end

  defp read({:binary, _op, a, b}), do: [a, b]
  defp read({:select, a, b, c}), do: [a, b, c]
  defp read({:repeat, a, _most, _steps}), do: [a]
  defp read({:branch, a, _limit, _then, _otherwise}), do: [a]
  defp read({:number, _op, a, _number}), do: [a]
  defp read({:type, a, _type}), do: [a]
  defp read({_kind, _name, a}), do: [a]

  defp at_once({:repeat, a, most, steps}, known, hook),
    do: Enum.reduce_while(1..most//1, known[a], &iterate(&1, &2, steps, hook))

  defp at_once({:branch, a, limit, then, otherwise}, known, hook) do
    steps = if Nx.to_number(Nx.any(Nx.equal(known[a], limit))) != 0, do: then, else: otherwise
    last_at_once(known[a], steps, hook)
  end

  defp at_once(step, known, _hook), do: perform(step, known)

  defp iterate(_n, x, steps, hook) do
    if Nx.to_number(Nx.any(Nx.not_equal(x, 3))) != 0,
      do: {:cont, last_at_once(x, steps, hook)},
      else: {:halt, x}
  end

  defp last_at_once(x, steps, hook) do
    {last} = run(steps, [length(steps) - 1], {x}, hook)
    last |> fit(x) |> hook.()
  end

  @doc "An element-wise operation, a view or a conversion."
  def elementwise(values) do
    a = index(values)

    Generators.pick([
      {:unary, Generators.pick(@unary), a},
      {:binary, Generators.pick(@binary), a, index(values)},
      {:binary, Generators.pick(@binary), a, index(values)},
      {:number, Generators.pick(@binary), a, Generators.pick([0, 1, -2, 0.5])},
      {:select, a, index(values), index(values)},
      {:type, a, Generators.pick(Generators.all_types())},
      {:view, Generators.pick(@views), a}
    ])
  end

  @doc "A reduction along the last axis."
  def reduction(values) do
    op = Generators.pick([:sum, :reduce_max, :argmin, :product, :any])
    {:reduce, op, index(values), Generators.pick([true, false])}
  end

  @doc "An operation with a kernel of its own, or a loop whose condition is read."
  def other(values) do
    {:other, Generators.pick([:loop | @others ++ @others]), index(values)}
  end

  @doc """
  An operation of any kind whose result is exact where its operands are small integers. The result is one, too.
  """
  def exact(values) do
    {a, b} = {index(values), index(values)}
    keep = Generators.pick([true, false])

    Generators.pick([
      {:unary, Generators.pick([:negate, :abs, :sign, :floor]), a},
      {:small, {:binary, Generators.pick(@binary), a, b}},
      {:small, {:binary, Generators.pick(@binary), a, b}},
      {:small, {:number, Generators.pick(@binary), a, Generators.pick([0, 1, -2])}},
      {:select, a, b, index(values)},
      {:type, a, Generators.pick([{:f, 32}, {:bf, 16}, {:f, 16}, {:s, 32}, {:s, 8}])},
      {:view, Generators.pick(@views), a},
      {:view, Generators.pick(@views), a},
      {:reduce, Generators.pick([:reduce_max, :any]), a, keep},
      {:small, {:reduce, Generators.pick([:sum, :argmin]), a, keep}},
      {:small, {:other, Generators.pick(@others), a}},
      {:small, {:pair, :product, a, b}},
      {:pair, Generators.pick([:concatenate, :put, :like]), a, b},
      {:pair, Generators.pick([:concatenate, :put, :like]), a, b}
    ])
  end

  @doc "A loop or a condition of steps, among which are more of them, to that depth."
  def control(values, depth) do
    index = index(values)

    draw = fn ->
      step = if depth > 1, do: &inner(&1, depth - 1), else: &elementwise/1
      {steps, _} = Enum.map_reduce(1..3, [Enum.at(values, index)], &draw(step, &1, &2))
      steps
    end

    Generators.pick([
      {:repeat, index, Generators.pick([0, 1, 3]), draw.()},
      {:branch, index, Generators.pick([0, 1]), draw.(), draw.()}
    ])
  end

  defp inner(values, depth),
    do: Generators.pick([elementwise(values), elementwise(values), control(values, depth)])

  defp index(values), do: :rand.uniform(length(values)) - 1

  defp perform(step, values, hook \\ & &1) do
    at = &value(values, &1)

    case step do
      {:unary, op, a} -> apply(Nx, op, [at.(a)])
      {:binary, op, a, b} -> apply(Nx, op, [at.(a), at.(b)])
      {:number, op, a, number} -> apply(Nx, op, [at.(a), number])
      {:select, a, b, c} -> Nx.select(at.(a), at.(b), at.(c))
      {:type, a, type} -> Nx.as_type(at.(a), type)
      {:view, view, a} -> view(view, at.(a))
      {:reduce, op, a, keep} -> reduce(op, at.(a), keep)
      {:other, name, a} -> other(name, at.(a))
      {:pair, name, a, b} -> pair(name, at.(a), at.(b))
      {:small, step} -> step |> perform(values, hook) |> limited()
      {:repeat, a, most, steps} -> repeat(at.(a), most: most, steps: steps, hook: hook)
      {:branch, a, _, _, _} -> branch(at.(a), step: step, hook: hook)
    end
  end

  defp value(values, index) when is_map(values), do: Map.fetch!(values, index)
  defp value(values, index), do: Enum.at(values, index)

  defn repeat(x, opts \\ []) do
    {x, _} =
      while({x, i = 0}, i < opts[:most] and Nx.any(x != 3),
        do: {last(x, opts[:steps], opts), i + 1}
      )

    x
  end

  defn branch(x, opts \\ []) do
    if Nx.any(x == limit(opts)),
      do: last(x, then(opts), opts),
      else: last(x, otherwise(opts), opts)
  end

  deftransformp(limit(opts), do: elem(opts[:step], 2))
  deftransformp(then(opts), do: elem(opts[:step], 3))
  deftransformp(otherwise(opts), do: elem(opts[:step], 4))

  deftransformp last(x, steps, opts) do
    steps
    |> Enum.reduce([x], &(&2 ++ [perform(&1, &2, opts[:hook])]))
    |> List.last()
    |> fit(x)
    |> opts[:hook].()
  end

  @doc "A value of the other's shape and type."
  def fit(next, %{shape: shape, type: type}) do
    next = if next.shape == shape, do: next, else: Nx.reduce_max(Nx.real(next))
    next |> part(type) |> Nx.as_type(type) |> broadcast(shape)
  end

  defp part(%{type: {:c, _}} = next, {kind, _}) when kind != :c, do: Nx.real(next)
  defp part(next, _type), do: next

  defp view(:transpose, x), do: Nx.transpose(x)
  defp view(:reverse, x), do: Nx.reverse(x)
  defp view(:row, x), do: x[0]
  defp view(:part, x), do: Nx.slice_along_axis(x, 1, Nx.axis_size(x, -1) - 1, axis: -1)
  defp view(:column, x), do: Nx.new_axis(x, -1)
  defp view(:broadcast, x), do: broadcast(x, Tuple.insert_at(x.shape, 0, 2))
  defp view(:flat, x), do: Nx.flatten(x)

  # `Nx.Defn.Expr` of Nx 0.13 makes one broadcast of two, with wrong axes where both add some.
  defp broadcast(%{data: %Nx.Defn.Expr{op: :broadcast}} = x, shape) do
    ones = List.duplicate(1, tuple_size(shape) - Nx.rank(x))
    x |> Nx.reshape(List.to_tuple(ones ++ Tuple.to_list(x.shape))) |> Nx.broadcast(shape)
  end

  defp broadcast(x, shape), do: Nx.broadcast(x, shape)

  defp reduce(op, x, keep) when op in [:argmin], do: Nx.argmin(x, axis: -1, keep_axis: keep)
  defp reduce(op, x, keep), do: apply(Nx, op, [x, [axes: [-1], keep_axes: keep]])

  defp other(_name, %{shape: {}}), do: raise(ArgumentError, "no axis")
  defp other(:sort, x), do: Nx.sort(x, axis: -1)
  defp other(:fold, x), do: Nx.reduce(x, 0, [axes: [-1]], &Nx.subtract(Nx.max(&1, 1), &2))
  defp other(:argsort, x), do: Nx.argsort(x, axis: -1)
  defp other(:cumulative, x), do: Nx.cumulative_sum(x, axis: -1)
  defp other(:twice, x), do: Nx.concatenate([x, x], axis: -1) |> small()
  defp other(:product, x), do: Nx.dot(x, Nx.transpose(x)) |> small()
  defp other(:window, x), do: Nx.window_max(x, x.shape, padding: :same)

  defp other(:write, x),
    do:
      Nx.put_slice(
        x,
        Nx.shape(x) |> Tuple.to_list() |> Enum.map(&(&1 - 1)),
        Nx.reshape(7, one(x))
      )

  defp other(:take, x), do: Nx.take(x, Nx.tensor([0, 0]), axis: -1)
  defp other(:captured, x), do: Nx.add(x, Nx.tensor(3)) |> Nx.multiply(Nx.tensor([2]))
  defp other(:loop, x), do: halve(x)
  defp other(:centred, x), do: Nx.subtract(x, Nx.reduce_max(x, axes: [-1], keep_axes: true))
  # Two heads of each row, before the rows.
  defp other(:heads, x), do: x |> Nx.reshape(halves(x.shape)) |> Nx.transpose()

  defp other(:moved, x),
    do: Nx.slice_along_axis(x, place(x), Nx.axis_size(x, -1) - 1, axis: -1)

  defp pair(:product, x, y) do
    axes = for i <- Nx.axes(x), j <- Nx.axes(y), elem(x.shape, i) == elem(y.shape, j), do: {i, j}
    {i, j} = Enum.max_by(axes, fn {i, _j} -> elem(x.shape, i) end, fn -> raise ArgumentError end)
    x |> Nx.dot([i], y, [j]) |> small()
  end

  defp pair(:concatenate, x, y), do: Nx.concatenate([x, y]) |> small()
  defp pair(:like, x, y), do: broadcast(x, y.shape)

  defp pair(:put, x, y),
    do: Nx.put_slice(x, [place(x) | List.duplicate(0, Nx.rank(x) - 1)], y)

  # An index that is known on the device alone.
  defp place(x), do: x |> Nx.flatten() |> Nx.slice([0], [1]) |> Nx.squeeze() |> Nx.as_type(:s32)

  defp halves(shape) do
    {last, outer} = shape |> Tuple.to_list() |> List.pop_at(-1)

    if rem(last, 2) == 0,
      do: List.to_tuple(outer ++ [2, div(last, 2)]),
      else: raise(ArgumentError, "odd")
  end

  defp limited(%{type: {kind, _} = type} = x) do
    least = if kind == :u, do: 0, else: -8
    Nx.clip(x, Nx.tensor(least, type: type), Nx.tensor(8, type: type))
  end

  defp one(x),
    do: x |> Nx.shape() |> Tuple.to_list() |> Enum.map(fn _ -> 1 end) |> List.to_tuple()

  # Definitions must not grow with each step.
  defp small(x), do: if(Nx.size(x) <= 400, do: x, else: raise(ArgumentError, "too large"))

  defn halve(x) do
    {x, _} = while({x = Nx.as_type(x, :f32), i = 0}, Nx.any(x > 1) and i < 5, do: {x / 2, i + 1})
    x
  end
end
