defmodule Nx.Vulkan.NodeTest do
  @moduledoc "The device as eXMC asks for it."

  use ExUnit.Case, async: true

  alias Nx.Vulkan.Node

  doctest Node

  test "a device is alive where one can be used" do
    assert Node.alive?() == match?({:ok, _}, Nx.Vulkan.device_info())
  end

  test "a call ends in time, with what its function ends with" do
    assert Node.with_node(fn -> {:error, :mine} end) == {:error, :mine}
    assert Node.with_node(fn -> Process.sleep(:infinity) end, 20) == {:error, :node_timeout}
    assert_raise RuntimeError, "mine", fn -> Node.with_node(fn -> raise "mine" end) end
    assert catch_throw(Node.with_node(fn -> throw(:mine) end)) == :mine
    assert catch_exit(Node.with_node(fn -> Process.exit(self(), :kill) end)) == :killed
    refute_received _
  end
end
