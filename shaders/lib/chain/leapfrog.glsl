// Owns the leapfrog integrator around a log-density: one workgroup computes the trajectory of one chain. The kernel owns the log-density.
//
// Algorithm: per step, with g = grad log p: p½ = p + ½ eps g(q), q' = q + eps M⁻¹ p½, p' = p½ + ½ eps g(q').
// Domain: all numbers. A negative eps integrates backwards in time. Energies that overflow give infinite or NaN results.
// Error: as the log-density's; each operation of the integrator is rounded once or, where the device fuses products and sums, less often.
// Source: R. M. Neal, "MCMC using Hamiltonian dynamics" (2011), section 2.3.
//
// The kernel defines REAL, D (elements of the position) and
//   Q(i), P(i), G(i)    position, momentum and gradient, in memory that the workgroup shares,
//   evaluate()          which sets G and, where wants_logp, logp from Q, after which all invocations have met,
//   EPS                 the chain's step size,
//   VELOCITY(i)         element i of M⁻¹ p, and VELOCITY_OF_ALL where it depends on other elements of p,
//   OWN_INVERSE_MASS    where each invocation has one element at most, and VELOCITY reads inverse_mass, which is INVERSE_MASS(i),
//   LOAD_Q(i), LOAD_P(i), STORE(slot, i), STORE_LOGP(slot)   from and to the buffers, where slot is the step that ended,
//   KEPT(slot)          whether that step's state is stored,
//   STEPS.

#ifdef OWN_INVERSE_MASS
REAL inverse_mass;
#endif

void main() {
  if (chain_index() >= CHAINS) return;
  // The states that are stored might be in the same memory for what the compiler knows.
  REAL eps = EPS, kick = REAL(0.5) * eps;
  for (uint i = INVOCATION; i < D; i += THREADS) {
    Q(i) = LOAD_Q(i);
    P(i) = LOAD_P(i);
#ifdef OWN_INVERSE_MASS
    inverse_mass = INVERSE_MASS(i);
#endif
  }
  // The first evaluation is that of the position to start from.
  for (uint step = 0u; step <= STEPS; ++step) {
    if (step > 0u) {
      for (uint i = INVOCATION; i < D; i += THREADS) {
        P(i) += kick * G(i);
#ifndef VELOCITY_OF_ALL
        Q(i) += eps * VELOCITY(i);
#endif
      }
#ifdef VELOCITY_OF_ALL
      meet();
      for (uint i = INVOCATION; i < D; i += THREADS) Q(i) += eps * VELOCITY(i);
#endif
    }
    wants_logp = step > 0u && KEPT(step - 1u);
    meet();
    evaluate();
    if (step > 0u) {
      for (uint i = INVOCATION; i < D; i += THREADS) {
        P(i) += kick * G(i);
        STORE(step - 1u, i)
      }
      if (INVOCATION == 0) { STORE_LOGP(step - 1u) }
    }
  }
}
