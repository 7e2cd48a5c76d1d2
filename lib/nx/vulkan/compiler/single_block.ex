defmodule Nx.Vulkan.Compiler.SingleBlock do
  @moduledoc false
  # Evaluates a definition whose results are those of one block, such as a loop. `Nx.Defn.Evaluator` looks each argument up
  # in the list of the definition's inputs and counts who reads it: a quarter of a millisecond for a loop of a model with
  # 175 parameters. Here the block gets inputs as they are.

  alias Nx.Defn.{Composite, Evaluator, Expr}
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.VulkanoBackend, as: B

  @doc "As `Nx.Defn.Evaluator.__compile__/4`, of the expression; `nil` where its results are not those of one block."
  @spec compile(term(), [Nx.Container.t()], Nx.Container.t(), keyword()) ::
          ([[(-> T.t())]] -> [Nx.Container.t()]) | nil
  def compile(key, vars, expr, options) do
    with [{%T{data: %Expr{id: id}} = block, _} | _] = results <-
           [expr] |> Composite.flatten_list() |> Enum.map(&result/1),
         true <- Enum.all?(results, &match?({%T{data: %Expr{id: ^id}}, _}, &1)),
         [struct, args, outs, default] = block.data.args,
         true <- Enum.any?(args, &parameter?/1) do
      computed = Enum.reject(args, &parameter?/1)
      evaluate = if computed != [], do: tuple_evaluator(key, vars, computed, options)
      # Of each argument the index of the input, or nil.
      sources = for arg <- args, do: if(parameter?(arg), do: hd(arg.data.args))
      outs = if match?({:tuple, _}, block.type), do: outs, else: block
      templates = Composite.traverse(expr, &Nx.to_template/1)
      indices = for {_block, index} <- results, do: index

      fn [inputs] = inputs_list ->
        computed =
          if evaluate, do: inputs_list |> evaluate.() |> hd() |> Tuple.to_list(), else: []

        args = arguments(sources, List.to_tuple(inputs), computed)
        made = B.block(struct, outs, args, default)

        {results, []} =
          Composite.traverse(templates, indices, fn template, [index | indices] ->
            tensor = if index, do: elem(made, index), else: made
            {%{template | data: tensor.data}, indices}
          end)

        [results]
      end
    else
      _ -> nil
    end
  end

  # The block of a result, and the result's index where the block has several.
  defp result(%T{vectorized_axes: [_ | _]}), do: nil
  defp result(%T{data: %Expr{op: :block}} = block), do: block(block, nil)

  defp result(%T{data: %Expr{op: :elem, args: [%T{data: %Expr{op: :block}} = block, index]}}),
    do: block(block, index)

  defp result(_tensor), do: nil

  defp block(%T{data: %Expr{args: [_struct, args, _outs, _default]}} = block, index),
    do: if(Enum.all?(args, &is_struct(&1, T)), do: {block, index})

  defp parameter?(%T{data: %Expr{op: op}}), do: op == :parameter

  defp tuple_evaluator(key, vars, computed, options),
    do: Evaluator.__compile__(key, vars, fn _vars -> List.to_tuple(computed) end, options)

  defp arguments([nil | sources], inputs, [tensor | computed]),
    do: [tensor | arguments(sources, inputs, computed)]

  defp arguments([index | sources], inputs, computed),
    do: [Nx.devectorize(elem(inputs, index).()) | arguments(sources, inputs, computed)]

  defp arguments([], _inputs, []), do: []
end
