defmodule Nx.Vulkan.Compiler.LoopBound do
  @moduledoc false
  # How many iterations a loop makes at most, where its expression says so. It runs nothing and rewrites nothing.

  alias Nx.Defn.{Composite, Expr}
  alias Nx.Tensor, as: T

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

  # The number of iterations of a loop that counts from a number to a number, as `while x, i <- range` does, else
  # nil. Nothing has to be read to know that such a loop has ended.
  @spec iterations([T.t()], {T.t(), Nx.Container.t()}) :: non_neg_integer() | nil
  def iterations(values, {pred, block}) do
    with {op, [counter, last]} when op in [:less, :less_equal, :greater, :greater_equal] <-
           operation(pred),
         {:parameter, [index]} <- operation(counter),
         {:constant, [last]} when is_integer(last) <- operation(last),
         value = Enum.at(values, index),
         {:constant, [first]} when is_integer(first) <- operation(value),
         step when is_integer(step) <-
           step(Enum.at(Composite.flatten_list([block]), index), index),
         count when is_integer(count) <- count(op, first, step, last),
         # Counters do not wrap on the way.
         {:s, bits} <- value.type,
         true <- abs(first) + count * abs(step) < 2 ** (bits - 1) do
      count
    else
      _ -> nil
    end
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

  defp operation(tensor) do
    %T{data: %Expr{op: op, args: args}} = plain(tensor)
    {op, args}
  end

  # Metadata change no value.
  defp plain(%T{data: %Expr{op: :metadata, args: [%T{} = tensor, _]}}), do: plain(tensor)
  defp plain(%T{} = tensor), do: tensor
end
