defmodule Nx.Vulkan.Compiler.GroupSteps do
  @moduledoc false
  # The operations of a fusion group as steps, in order, and what they read. Which operations form a group is decided in
  # `Nx.Vulkan.Compiler.Fusion`; `Nx.Vulkan.Compiler.Lowering` makes a program of steps.

  alias Nx.Block
  alias Nx.Defn.Expr
  alias Nx.Tensor, as: T
  alias Nx.Vulkan.Compiler.{Fusion, Gathers, Lowering}

  @doc "The steps of the members that lead to the tensor, and the tensors that they read."
  @spec steps(T.t(), MapSet.t()) :: {[Lowering.step()], [T.t()]}
  def steps(tensor, members) do
    start = %{members: members, inputs: [], steps: [], values: %{}}
    {_value, built} = step(tensor, start)
    {Enum.reverse(built.steps), Enum.reverse(built.inputs)}
  end

  @doc "The value of the tensor, and what is built with the steps that lead to it."
  @spec step(T.t(), map()) :: {tuple(), map()}
  def step(%T{data: %Expr{id: id}} = tensor, built) do
    case built.values do
      %{^id => value} ->
        {value, built}

      %{} ->
        {value, built} =
          if id in built.members do
            {{op, args}, built} = operation(tensor, built)
            step = {op, %{tensor | data: nil}, args}
            {{:step, length(built.steps)}, %{built | steps: [step | built.steps]}}
          else
            {{:input, length(built.inputs)}, %{built | inputs: [tensor | built.inputs]}}
          end

        {value, put_in(built.values[id], value)}
    end
  end

  # A step's operation and arguments. What a gather reads is an input: nothing that it reads joins a group.
  defp operation(%T{data: %Expr{op: :block, args: [%Block.Take{axis: axis}, args | _]}}, built) do
    {args, built} = Enum.map_reduce(args, built, &argument/2)
    {{:take, args ++ [{:other, axis}]}, built}
  end

  defp operation(%T{data: %Expr{op: :slice, args: [operand, starts | options]}} = tensor, built) do
    if Gathers.static?(tensor) do
      {args, built} = Enum.map_reduce([operand, starts | options], built, &argument/2)
      {{:slice, args}, built}
    else
      {args, built} = Enum.map_reduce([operand | starts], built, &argument/2)
      {{:dynamic_slice, args ++ Enum.map(options, &{:other, &1})}, built}
    end
  end

  defp operation(%T{data: %Expr{op: op, args: args}}, built) do
    {args, built} = Enum.map_reduce(args, built, &argument/2)
    {{op, args}, built}
  end

  defp argument(%T{} = arg, built) do
    case Fusion.resolve(arg) do
      %T{data: %Expr{op: :constant, args: [number]}} = tensor ->
        {{:constant, %{tensor | data: nil}, number}, built}

      tensor ->
        step(tensor, built)
    end
  end

  defp argument(other, built), do: {{:other, other}, built}
end
