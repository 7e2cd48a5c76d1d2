defmodule Nx.Vulkan.SelectionTest do
  @moduledoc "`Nx.top_k/2` of long rows is one kernel, and gives what `Nx.BinaryBackend` does."

  # Kernels are counted by a profile, which has what all processes do.
  use Nx.Vulkan.Test.Case, async: false

  # The last workgroup that is done merges what each of them has left.
  test "top_k of what a definition computes is one kernel after it, whatever the number of workgroups" do
    for {length, k} <- [{300, 1}, {9_000, 40}, {50_257, 1}, {50_257, 40}] do
      host =
        for shape <- [{1, 16}, {16, length}],
            do: Generators.tensor(shape, {:f, 32}, {:integer, -9..9})

      device = Enum.map(host, &to_device/1)
      fun = fn x, weights -> x |> Nx.dot(weights) |> Nx.top_k(k: k) end
      compiled = Nx.Vulkan.jit(fun)
      # Evaluated, recorded and replayed.
      for _ <- 1..3,
          {result, expected} <- zip(apply(compiled, device), apply(fun, host)),
          do: assert_same(result, expected, :top_k)

      kernels = Nx.Vulkan.profile(fn -> apply(compiled, device) end).kernels
      assert [1] == for(%{name: "select", runs: runs} <- kernels, do: runs), inspect({length, k})
    end
  end

  defp zip(a, b), do: Enum.zip(Tuple.to_list(a), Tuple.to_list(b))
end
