defmodule Nx.Vulkan.Compiler.LoopBound do
  @moduledoc false
  # How many iterations a loop makes, where its expression says so. It runs nothing and rewrites nothing.

  alias Nx.Defn.{Composite, Expr}
  alias Nx.Tensor, as: T

  @typedoc """
  An induction variable: iterations add `step` to the value of that `index`, a signed integer of `bits` bits, and go on while
  it compares so to `bound`.
  """
  @type induction :: %{
          index: non_neg_integer(),
          step: integer(),
          bits: pos_integer(),
          comparison: :less | :less_equal | :greater | :greater_equal,
          bound: T.t()
        }

  @doc """
  How often a loop with these initial values evaluates conditions at most; `inner` has the bounds of the loops in its
  condition and of those in its body. `nil` where a bound is not known.
  """
  @spec conditions([T.t()], {T.t(), Nx.Container.t()}, {[bound], [bound]}) :: bound
        when bound: non_neg_integer() | nil
  def conditions(values, scope, {in_condition, in_body}) do
    count = iterations(values, scope)

    if nil not in [count | in_condition ++ in_body],
      do: (count + 1) * (1 + Enum.sum(in_condition)) + count * Enum.sum(in_body)
  end

  @doc """
  The number of iterations of a loop that counts from a number to a number, as `while x, i <- range` does, else
  nil. Nothing has to be read to know that such a loop has ended.
  """
  @spec iterations([T.t()], {T.t(), Nx.Container.t()}) :: non_neg_integer() | nil
  def iterations(values, {_pred, block} = scope) do
    with %{index: index, bound: bound} = induction <- induction(scope),
         last when is_integer(last) <- number(bound, values, Composite.flatten_list([block])),
         {:constant, [first]} when is_integer(first) <- operation(Enum.at(values, index)),
         do: count(induction, first, last),
         else: (_ -> nil)
  end

  # What the scalar is, in every iteration.
  defp number(bound, values, next) do
    case operation(bound) do
      {:constant, [number]} ->
        number

      {:parameter, [index]} ->
        with true <- index < length(next) and unchanged?(Enum.at(next, index), index),
             {:constant, [number]} <- operation(Enum.at(values, index)),
             do: number

      _ ->
        nil
    end
  end

  @doc "The induction variable that alone decides when the loop ends; `nil` where there is none."
  @spec induction({T.t(), Nx.Container.t()}) :: induction() | nil
  def induction({pred, block}) do
    next = Composite.flatten_list([block])

    with {comparison, [a, b]} when comparison in [:less, :less_equal, :greater, :greater_equal] <-
           operation(pred) do
      variable(comparison, a, b, next) || variable(reversed(comparison), b, a, next)
    else
      _ -> nil
    end
  end

  defp variable(comparison, counter, bound, next) do
    with {:parameter, [index]} when index < length(next) <- operation(counter),
         {:s, bits} <- counter.type,
         true <- exact?(bound.type, bits),
         step when is_integer(step) <- step(Enum.at(next, index), index) do
      %{index: index, step: step, bits: bits, comparison: comparison, bound: bound}
    else
      _ -> nil
    end
  end

  # Whether integers of that type compare with a counter of that many bits as they are.
  defp exact?({:s, _}, _bits), do: true
  defp exact?({:u, size}, _bits), do: size < 64
  defp exact?(_type, _bits), do: false

  defp reversed(:less), do: :greater
  defp reversed(:less_equal), do: :greater_equal
  defp reversed(:greater), do: :less
  defp reversed(:greater_equal), do: :less_equal

  @doc "The number of iterations from one number to another; `nil` where the variable would wrap on the way."
  @spec count(induction(), integer(), integer()) :: non_neg_integer() | nil
  def count(%{comparison: comparison, step: step, bits: bits}, first, last) do
    count = count(comparison, first, step, last)
    if count && abs(first) + count * abs(step) < 2 ** (bits - 1), do: count
  end

  defp count(:less, first, step, last) when step > 0,
    do: max(div(last - first + step - 1, step), 0)

  defp count(:less_equal, first, step, last), do: count(:less, first, step, last + 1)
  defp count(:greater, first, step, last), do: count(:less, -first, -step, -last)
  defp count(:greater_equal, first, step, last), do: count(:greater, first, step, last - 1)
  defp count(_comparison, _first, _step, _last), do: nil

  # What the value of that index is increased by.
  defp step(next, index) do
    with {op, [a, b]} when op in [:add, :subtract] <- operation(next) do
      case {op, operation(a), operation(b)} do
        {:add, {:constant, [step]}, {:parameter, [^index]}} -> step
        {:add, {:parameter, [^index]}, {:constant, [step]}} -> step
        {:subtract, {:parameter, [^index]}, {:constant, [step]}} -> -step
        _ -> nil
      end
    end
  end

  defp unchanged?(next, index), do: operation(next) == {:parameter, [index]}

  defp operation(tensor) do
    %T{data: %Expr{op: op, args: args}} = plain(tensor)
    {op, args}
  end

  # Metadata change no value.
  defp plain(%T{data: %Expr{op: :metadata, args: [%T{} = tensor, _]}}), do: plain(tensor)
  defp plain(%T{} = tensor), do: tensor
end
