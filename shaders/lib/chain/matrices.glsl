// Owns factors of matrices and triangular systems within a chain kernel: matrices of one workgroup, row by row in memory that it shares.
//
// Algorithm: the Cholesky factor column by column, each from the columns before it; substitution, one invocation a right-hand side.
// Domain: orders up to some hundred. The factor of a matrix that is not positive definite has NaN. Only the lower triangle of a matrix is
//   read, and of a system's the one that is asked for.
// Error: backward stable; sums are not compensated.
// Source: G. H. Golub, C. F. Van Loan, "Matrix Computations" (4th edition), sections 3.1 and 4.2.

// Adds sign * x(k) * y(k) for k from `from` to `to` to `sum`, eight at a time: a CPU device's loops are few.
#define CHAIN_PAIR(x, y, k) (x(k) * y(k) + x(k + 1u) * y(k + 1u))
#define CHAIN_PRODUCTS(sum, sign, from, to, x, y) { \
    uint k = (from); \
    for (; k + 8u <= (to); k += 8u) \
      sum += sign * ((CHAIN_PAIR(x, y, k) + CHAIN_PAIR(x, y, k + 2u)) + (CHAIN_PAIR(x, y, k + 4u) + CHAIN_PAIR(x, y, k + 6u))); \
    if (k + 4u <= (to)) { sum += sign * (CHAIN_PAIR(x, y, k) + CHAIN_PAIR(x, y, k + 2u)); k += 4u; } \
    if (k + 2u <= (to)) { sum += sign * CHAIN_PAIR(x, y, k); k += 2u; } \
    if (k < (to)) sum += sign * (x(k) * y(k)); \
  }

#define CHAIN_OF_ROW(k) CHAIN_L(i * CHAIN_N + (k))
#define CHAIN_OF_PIVOT(k) CHAIN_L(j * CHAIN_N + (k))

// The factor CHAIN_L of CHAIN_A, both of order CHAIN_N.
#define CHAIN_CHOLESKY(T) \
  for (uint j = 0u; j < CHAIN_N; ++j) { \
    T pivot = CHAIN_A(j * CHAIN_N + j); \
    CHAIN_PRODUCTS(pivot, T(-1), 0u, j, CHAIN_OF_PIVOT, CHAIN_OF_PIVOT) \
    pivot = sqrt(pivot); \
    for (uint i = INVOCATION; i < CHAIN_N; i += THREADS) { \
      T sum = CHAIN_A(i * CHAIN_N + j); \
      if (i > j) { CHAIN_PRODUCTS(sum, T(-1), 0u, j, CHAIN_OF_ROW, CHAIN_OF_PIVOT) } \
      CHAIN_L(i * CHAIN_N + j) = i < j ? T(0) : i == j ? pivot : sum / pivot; \
    } \
    meet(); \
  }

// Element (i, k) of the triangle and (i, c) of the sides, by strides: a transposed triangle has exchanged ones.
#define CHAIN_TRIANGLE(i, k) CHAIN_A((i) * CHAIN_ROW + (k) * CHAIN_COLUMN)
#define CHAIN_SIDE(i) ((i) * CHAIN_SIDE_ROW + c * CHAIN_SIDE_COLUMN)
#define CHAIN_OF_TRIANGLE(k) CHAIN_TRIANGLE(i, k)
#define CHAIN_OF_SOLUTION(k) CHAIN_X(CHAIN_SIDE(k))

// The solutions CHAIN_X of CHAIN_SIDES systems of order CHAIN_N with the right-hand sides CHAIN_B.
#define CHAIN_SOLVE(T, lower) \
  for (uint c = INVOCATION; c < CHAIN_SIDES; c += THREADS) { \
    for (uint at = 0u; at < CHAIN_N; ++at) { \
      uint i = lower ? at : CHAIN_N - 1u - at; \
      T sum = CHAIN_B(CHAIN_SIDE(i)); \
      CHAIN_PRODUCTS(sum, T(-1), lower ? 0u : i + 1u, lower ? i : CHAIN_N, CHAIN_OF_TRIANGLE, CHAIN_OF_SOLUTION) \
      CHAIN_X(CHAIN_SIDE(i)) = sum / CHAIN_TRIANGLE(i, i); \
    } \
  }
