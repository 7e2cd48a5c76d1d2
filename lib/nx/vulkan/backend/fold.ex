defmodule Nx.Vulkan.Backend.Fold do
  @moduledoc false
  # Reductions by a function of the caller. It is called once, with traced scalars, and what it does becomes
  # the body of a kernel that goes through the elements in BinaryBackend's order, the results side by side.
  # A function that cannot be traced is the fallback's, and so is one with a hook, which takes values.

  import Nx.Vulkan.HookOperation, only: [is_hook: 1]

  alias Nx.Defn.Expr
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Backend.{Dispatch, Storage, Trace, Window}
  alias Nx.Vulkan.{Fallback, ProgramBuilder}

  def reduce(out, %T{shape: shape} = tensor, acc, options, fun) do
    axes = Enum.sort(options[:axes] || Nx.axes(shape))
    args = [tensor, acc, options, fun]
    fold(:reduce, out, args, {Storage.operand(tensor), shape, axes}, acc, fun)
  end

  def window_reduce(%T{type: type} = out, tensor, acc, window, options, fun) do
    args = [tensor, acc, window, options, fun]
    padding = for {low, high} <- options[:padding], do: {low, high, 0}

    padded =
      if Enum.all?(padding, &(&1 == {0, 0, 0})),
        do: tensor,
        else: Nx.pad(tensor, Nx.as_type(acc, type), padding)

    fold(:window_reduce, out, args, Window.windows(padded, out, window, options), acc, fun)
  end

  # `operand` is read over the iteration space `shape`, of which `axes` are reduced.
  defp fold(op, %T{type: type} = out, args, {operand, shape, axes}, acc, fun) do
    element = Trace.input(operand)
    so_far = Trace.op(:accumulator, type, [Storage.operand(acc)])

    with :ok <- unhooked(fun),
         {:ok, %T{shape: {}} = next} <- Trace.call(fun, [element, so_far]) do
      {values, builder} =
        Enum.map_reduce([so_far, next], ProgramBuilder.new(shape), &Trace.add/2)

      builder = ProgramBuilder.op(builder, :result, :fold, type, values, axes)
      Dispatch.run(op, out, args, ProgramBuilder.program(builder))
    else
      :hooked ->
        args = List.replace_at(args, -1, typed(fun, type))
        Fallback.call(op, out, args, "the function has a hook")

      {:ok, _tensor} ->
        Fallback.call(op, out, args, "the function gives no scalar")

      {:error, reason} ->
        Fallback.call(op, out, args, reason)
    end
  end

  # The function of a definition is a closure of `Nx.Defn.Evaluator` over its expressions.
  defp unhooked(fun) do
    {:module, module} = Function.info(fun, :module)
    {:env, env} = Function.info(fun, :env)
    if module == Nx.Defn.Evaluator and hook?(env), do: :hooked, else: :ok
  end

  # It keeps the arguments of an expression beside it.
  defp hook?(%Expr{op: op}), do: is_hook(op)
  defp hook?([head | tail]), do: hook?(head) or hook?(tail)
  defp hook?(tuple) when is_tuple(tuple), do: tuple |> Tuple.to_list() |> hook?()
  defp hook?(map) when is_map(map), do: map |> :maps.to_list() |> hook?()
  defp hook?(_term), do: false

  # BinaryBackend gives numbers, or elements of the tensor's type, to a function that was traced for scalars of the
  # result's.
  defp typed(fun, type), do: fn x, acc -> fun.(scalar(x, type), scalar(acc, type)) end

  defp scalar(%T{} = tensor, type), do: Nx.as_type(tensor, type)
  defp scalar(number, type), do: Nx.tensor(number, type: type)
end
