defmodule Nx.Vulkan.Backend.Dot do
  @moduledoc false
  # Products of two tensors over any axes. Which kernels form them is decided in src/kernels, for products
  # with a vector, too.

  require Nx.Vulkan.Native, as: Native

  alias Nx.Vulkan.Backend.{Dispatch, Storage}

  def dot(out, left, left_contract, left_batch, right, right_contract, right_batch) do
    args = [left, left_contract, left_batch, right, right_contract, right_batch]
    {a, b} = {Storage.buffer(left), Storage.buffer(right)}

    Native.call(dot(out.type, a, left_contract, left_batch, b, right_contract, right_batch))
    |> Dispatch.result(:dot, out, args)
  end
end
