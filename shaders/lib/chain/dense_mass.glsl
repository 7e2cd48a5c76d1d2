// Owns a dense mass: the factor of the inverse mass, its products, and the covariances that it is made of.
//
// Algorithm: M⁻¹ = L Lᵀ. The factor and its transpose are in memory with their zeros, so that the invocations read neighbours in both
//   products, all in loops of one length. Covariances by Welford's method, shrunk as the variances of adaptation.glsl. Before the first window ends,
//   the factor is the identity and is not read.
// Domain: some hundred elements, as for lib/chain/matrices.glsl.
// Source: Stan Reference Manual, "HMC algorithm parameters".
//
// The kernel defines FACTOR(e), TRANSPOSED(e) and COVARIANCE(e), elements of matrices in memory that the workgroup shares, and includes
// lib/chain/matrices.glsl before.

#define OF_FACTOR(j) FACTOR((j) * D + i)
#define OF_TRANSPOSED(j) TRANSPOSED((j) * D + i)

REAL dense_velocity(uint i) {
  REAL sum = REAL(0);
  CHAIN_PRODUCTS(sum, REAL(1), 0u, D, OF_TRANSPOSED, P)
  return sum;
}

REAL dense_force(uint i) {
  REAL sum = REAL(0);
  CHAIN_PRODUCTS(sum, REAL(1), 0u, D, OF_FACTOR, G)
  return sum;
}

// Adds the last draw, of number n in its window.
void gather_covariance(REAL n) {
  meet();
  { EACH {
    REAL x = DRAW_Q, before = n > REAL(1) ? MEAN : REAL(0), mean = before + (x - before) / n;
    MEAN = mean;
    P(ELEMENT) = x - before;
    Q(ELEMENT) = x - mean;
  } }
  meet();
  { EACH {
    uint i = ELEMENT;
    for (uint first = 0u; first <= i; first += 8u) {
      [[unroll]] for (uint j = first; j < first + 8u; ++j) {
        if (j <= i) COVARIANCE(i * D + j) = (n > REAL(1) ? COVARIANCE(i * D + j) : REAL(0)) + P(i) * Q(j);
      }
    }
  } }
}

// Makes the factor of the covariances of n draws.
void factor_covariance(REAL n) {
  REAL own = n / ((n + REAL(5)) * (n - REAL(1))), added = REAL(5) / (REAL(1000) * (n + REAL(5)));
  meet();
#define CHAIN_N D
#define CHAIN_A(e) (COVARIANCE(e) * own + ((e) % (D + 1u) == 0u ? added : REAL(0)))
#define CHAIN_L(e) FACTOR(e)
  CHAIN_CHOLESKY(REAL)
#undef CHAIN_N
#undef CHAIN_A
#undef CHAIN_L
  { EACH {
    uint i = ELEMENT;
    for (uint j = 0u; j < D; ++j) TRANSPOSED(j * D + i) = FACTOR(i * D + j);
  } }
  meet();
}
