defmodule Nx.Vulkan.DoctestTest do
  @moduledoc """
  Nx's own examples, all of them, with the backend as default. None is excluded for rounding.
  """

  use ExUnit.Case, async: true

  alias Nx.Vulkan.Fallback

  setup context do
    Nx.default_backend(Nx.Vulkan.VulkanoBackend)
    Fallback.put_mode(context[:fallback])
    :ok
  end

  # The functions with an example that needs a kernel which is not there yet, or complex numbers.
  @on_the_cpu [:moduledoc, argsort: 2, as_type: 2] ++
                [complex: 2, concatenate: 2, conjugate: 1, conv: 3, cumulative_max: 2] ++
                [cumulative_min: 2, cumulative_product: 2, cumulative_sum: 2, fft: 2] ++
                [fft2: 2, gather: 3, ifft: 2, ifft2: 2, imag: 1, indexed_add: 4] ++
                [indexed_put: 4, irfft: 2, is_infinity: 1, is_nan: 1, make_diagonal: 2] ++
                [median: 2, mode: 2, pad: 3, pad_outer: 3, phase: 1, put_diagonal: 3] ++
                [put_slice: 3, real: 1, reduce: 4, reflect: 2, rfft: 2, slice: 4] ++
                [sort: 2, stack: 2, take: 3, take_along_axis: 3, take_diagonal: 2] ++
                [to_batched: 3, top_k: 2, window_max: 3, window_mean: 3, window_min: 3] ++
                [window_product: 3, window_reduce: 5, window_scatter_max: 5] ++
                [window_scatter_min: 5, window_sum: 3]

  @moduletag fallback: :raise
  doctest Nx, except: @on_the_cpu

  doctest Nx, only: @on_the_cpu, tags: [fallback: :allow]
  doctest Nx.LinAlg, tags: [fallback: :allow]
end
