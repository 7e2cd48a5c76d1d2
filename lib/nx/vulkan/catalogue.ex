defmodule Nx.Vulkan.Catalogue do
  @moduledoc false
  # The one table of operations: names, operands, types, cost and accuracy. It owns what is true of an
  # operation everywhere, and holds no code that runs one: the backend's callbacks, `Nx.Vulkan.Support`, the
  # compiler's fusion and the tests read it, and a test compares it with `OPS` of src/program/op.rs.
  #
  # A new element-wise operation is an entry here, a row of `OPS` and its formula in shaders/lib.

  defmodule Operation do
    @moduledoc false
    # An operation of the catalogue. It is data, and no function here computes.
    #
    #   * `name`: of the `Nx.Backend` callback, of the `Nx.Block` in snake case, or of the program's op
    #   * `group`: the row of the support table
    #   * `entry`: how Nx asks for it, as a `:callback` or as a `:block`; `:program` for an op that only
    #     programs contain
    #   * `family`: which module implements it and how the compiler may fuse it
    #   * `arity`: operands of the program's op, as in `OPS`; `nil` where the operation is no such op
    #   * `types`: the kinds of type that Nx takes for it
    #   * `kernel`: `:program` for a kernel generated from a program, which emulates integers that the device
    #     lacks; `:built_in` for one of its own, which does not emulate 64-bit ones
    #   * `cost`: `:compute_bound` where the formula of real numbers takes longer than loading its operands, as
    #     in `OPS`, else `:cheap`
    #   * `error`: `:exact`; `:function` for results that are rounded like those of exp; `:complex` where
    #     only complex results are
    #   * `checks`: what the callback has to know of its operands before it runs, see
    #     `Nx.Vulkan.Backend.Elementwise`; `nil` for nothing
    #   * `host_integers`: whether integers that the host holds are computed there. Such an operation is defined
    #     for all integers and is the same before or after they are converted to the result's type.

    @enforce_keys [:name, :group, :entry, :family, :arity, :types]
    defstruct @enforce_keys ++
                [kernel: :program, cost: :cheap, error: :exact, checks: nil, host_integers: false]

    @type t :: %__MODULE__{
            name: atom(),
            group: String.t() | nil,
            entry: :callback | :block | :program,
            family: atom(),
            arity: non_neg_integer() | nil,
            types: [atom()],
            kernel: :program | :built_in,
            cost: :cheap | :compute_bound,
            error: :exact | :function | :complex,
            checks: nil | :amount | :exponent | :real,
            host_integers: boolean()
          }
  end

  @any ~w(u s f bf c)a
  @real ~w(u s f bf)a
  @integer ~w(u s)a

  @function [cost: :compute_bound, error: :function]
  @counting [host_integers: true]
  @built_in [kernel: :built_in]

  # Operations that Nx asks for by a callback of `Nx.Backend`: `{group, family, types, fields, names}`, with
  # the arity behind a name that is an op of programs.
  @callbacks [
    {"functions", :elementwise, @any, @function,
     [exp: 1, expm1: 1, log: 1, log1p: 1, sigmoid: 1, sqrt: 1, rsqrt: 1, cbrt: 1] ++
       [sin: 1, cos: 1, tan: 1, asin: 1, acos: 1, atan: 1] ++
       [sinh: 1, cosh: 1, tanh: 1, asinh: 1, acosh: 1, atanh: 1]},
    {"error functions", :elementwise, @real, @function, [erf: 1, erfc: 1, erf_inv: 1]},
    {"arithmetic", :elementwise, @any, @counting, [add: 2, subtract: 2, multiply: 2]},
    {"arithmetic", :elementwise, @any, [error: :complex], [divide: 2]},
    {"arithmetic", :elementwise, @any, [{:checks, :exponent} | @function], [pow: 2]},
    {"arithmetic", :elementwise, @any, [{:checks, :real} | @function], [atan2: 2]},
    {"arithmetic", :elementwise, @any, [], [abs: 1]},
    {"arithmetic", :elementwise, @any, @counting, [negate: 1]},
    {"arithmetic", :elementwise, @any, [], [sign: 1, real: 1, imag: 1, conjugate: 1]},
    {"comparison and rounding", :elementwise, @real, [cost: :compute_bound], [remainder: 2]},
    {"comparison and rounding", :elementwise, @real, [], [max: 2, min: 2]},
    {"comparison and rounding", :elementwise, @real, @counting,
     [greater: 2, less: 2, greater_equal: 2, less_equal: 2]},
    {"comparison and rounding", :elementwise, @real, [], [ceil: 1, floor: 1, round: 1, clip: 3]},
    {"equality and logic", :elementwise, @any, @counting,
     [equal: 2, not_equal: 2, logical_and: 2, logical_or: 2, logical_xor: 2]},
    {"equality and logic", :elementwise, @any, [], [is_nan: 1, is_infinity: 1]},
    {"equality and logic", :elementwise, @any, @counting, [select: 3]},
    {"bits", :elementwise, @integer, [],
     [quotient: 2, bitwise_and: 2, bitwise_or: 2, bitwise_xor: 2]},
    {"bits", :elementwise, @integer, [checks: :amount], [left_shift: 2, right_shift: 2]},
    {"bits", :elementwise, @integer, [],
     [bitwise_not: 1, count_leading_zeros: 1, population_count: 1]},
    {"creation and conversion", :creation, @any, [], [iota: 0, eye: 0]},
    {"creation and conversion", :constant, @any, [], [:constant]},
    {"creation and conversion", :elementwise, @any, @counting, [as_type: 1]},
    {"movement", :reshape, @any, [], [:reshape, :squeeze]},
    {"movement", :view, @any, [], [:broadcast, :transpose, :reverse, :slice]},
    {"reinterpretation", :bitcast, @real, [], [bitcast: 1]},
    {"movement", :strided_copy, @any, [], [:pad, :concatenate, :stack, :put_slice]},
    {"indexing", :indexed, @any, [], [gather: 1]},
    {"indexing", :indexed, @any, [], [:indexed_add, :indexed_put]},
    {"sums and logic over axes", :reduction, @any, [], [sum: 1, product: 1, all: 1, any: 1]},
    {"extrema over axes", :reduction, @real, [],
     [reduce_max: 1, reduce_min: 1, argmax: 1, argmin: 1]},
    {"reductions by a function", :fold, @any, [], [:reduce, :window_reduce]},
    {"sums of windows", :window, @any, [], [:window_sum, :window_product]},
    {"extrema of windows", :window, @real, [], [:window_max, :window_min]},
    {"scatter to windows", :window_scatter, @real, @built_in,
     [:window_scatter_max, :window_scatter_min]},
    {"matmul and convolution", :dot, @any, [], [:dot]},
    {"matmul and convolution", :convolution, @any, [], [:conv]},
    {"sorting", :sort, @real, @built_in, [:sort, :argsort]},
    {"Fourier transforms", :fourier, @any, @built_in, [:fft, :ifft]},
    {"linear algebra", :linear_algebra, @any, @built_in, [:triangular_solve]}
  ]

  # Operations that Nx asks for by a struct of `Nx.Block`, in the same form.
  @blocks [
    {"equality and logic", :elementwise, @any, [], [:logical_not]},
    {"equality and logic", :comparison, @any, [], [:all_close]},
    {"functions", :elementwise, @any, @function, [:phase]},
    {"indexing", :indexed, @any, [], [:take, :take_along_axis]},
    {"sorting", :sort, @real, @built_in, [:top_k]},
    {"Fourier transforms", :fourier, @any, @built_in, [:fft2, :ifft2, :irfft]},
    {"Fourier transforms of real numbers", :fourier, @real, @built_in, [:rfft]},
    {"linear algebra", :linear_algebra, @any, @built_in,
     [:cholesky, :lu, :solve, :determinant, :qr, :eigh]},
    {"singular values", :linear_algebra, @real, @built_in, [:svd]},
    {"cumulative sums and products", :scan, @any, @built_in,
     [:cumulative_sum, :cumulative_product]},
    {"cumulative extrema", :scan, @real, @built_in, [:cumulative_min, :cumulative_max]}
  ]

  # Ops that only programs contain.
  @internal [{nil, :fold, @any, [], [fold: 2, accumulator: 1]}]

  @operations for {entry, rows} <- [callback: @callbacks, block: @blocks, program: @internal],
                  {group, family, types, fields, names} <- rows,
                  name <- names,
                  do:
                    struct!(
                      Operation,
                      [
                        name: if(is_atom(name), do: name, else: elem(name, 0)),
                        arity: if(is_atom(name), do: nil, else: elem(name, 1)),
                        group: group,
                        entry: entry,
                        family: family,
                        types: types
                      ] ++ fields
                    )

  @by_name Map.new(@operations, &{&1.name, &1})

  @doc "All operations, in the order of the support table."
  @spec operations() :: [Operation.t()]
  def operations, do: @operations

  @doc "The operation of that name."
  @spec fetch(atom()) :: {:ok, Operation.t()} | :error
  def fetch(name), do: Map.fetch(@by_name, name)

  @doc "The names of the operations that compute an element of their result from those at its place in the operands."
  @spec elementwise() :: [atom()]
  def elementwise, do: names(family: :elementwise, entry: :callback) ++ names(family: :bitcast)

  @doc "The names of the operations whose fields have these values."
  @spec names(keyword()) :: [atom()]
  def names(fields) do
    for operation <- @operations,
        Enum.all?(fields, fn {field, value} -> Map.fetch!(operation, field) == value end),
        do: operation.name
  end
end
