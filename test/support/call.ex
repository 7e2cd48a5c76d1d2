defmodule Nx.Vulkan.Test.Call do
  @moduledoc """
  A call of an operation, and what it should give.

  It holds tensors of BinaryBackend, the arguments after them, what is called with both on the
  device, what gives the expected result, and how the two are compared:

    * `:each`: element-wise, so that BinaryBackend is asked again element by element where it raises
    * `:whole`: by `Compare.assert_same/4`
    * `{:near, error}`: within that absolute error, besides a rounding to f32
  """

  defstruct [:op, :as, :compare, :tensors, :args, :fun, :expected]

  @doc "A call of the operation with the tensors and `args` after them, compared element by element."
  def each(op, tensors, args \\ []), do: call(op, :each, tensors, args, nil)

  @doc "One that is compared by `Compare.assert_same/4`; of `fun`, where it is none of the module `Nx`."
  def whole(op, tensors, args \\ [], fun \\ nil), do: call(op, :whole, tensors, args, fun)

  @doc "One that is compared within an absolute error."
  def near(op, tensors, args, error, fun \\ nil),
    do: call(op, {:near, error}, tensors, args, fun)

  defp call(op, compare, tensors, args, fun) do
    fun = fun || Function.capture(Nx, op, length(tensors) + length(args))
    expected = fn tensors -> apply(fun, tensors ++ args) end

    %__MODULE__{
      op: op,
      as: op,
      compare: compare,
      tensors: tensors,
      args: args,
      fun: fun,
      expected: expected
    }
  end

  @doc "The reference computed in f32 where BinaryBackend pads f8_e4m3fn: it does so with zeros of 32 bits."
  def padded(call, {:f8_e4m3fn, 8}, out), do: in_type(call, :f32, out)
  def padded(call, _type, _out), do: call

  @doc "The call with its reference computed in another type and converted to `out`."
  def in_type(%{expected: expected} = call, type, out) do
    converted = fn tensors ->
      tensors |> Enum.map(&Nx.as_type(&1, type)) |> expected.() |> Nx.as_type(out)
    end

    %{call | expected: converted}
  end
end
