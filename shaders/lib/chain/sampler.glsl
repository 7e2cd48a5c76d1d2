// Owns what samplers of Hamiltonian dynamics share: the steps of a chain one by one, its sums, random numbers, and the loop that goes on
// where the dispatch before stopped. The algorithms are in trajectory.glsl and tree.glsl, the warm-up in adaptation.glsl, the
// log-density is the kernel's.
//
// Algorithm: a chain is a state machine that moves by one leapfrog step with one evaluation of the log-density. Momenta are those of
//   whitened positions, standard normal: with M⁻¹ = L Lᵀ, the momentum is p = L⁻ᵀ P, q' = L P and P' = Lᵀ g. All sums over momenta are
//   then free of the mass. Draws depend on seed, chain and transition alone, and the number of steps of a dispatch changes no bit of them.
// Domain: all numbers. An energy error that is NaN counts as infinite.
// Source: R. M. Neal, "MCMC using Hamiltonian dynamics" (2011), sections 2.3, 4.1 and 5.4.
//
// The kernel defines
//   EACH                       a loop over the elements of vectors that this invocation has, each ELEMENT; a block around it is the kernel's,
//   Q(i), P(i), G(i), evaluate()   as for lib/chain/leapfrog.glsl,
//   DRAW_Q, DRAW_G, SUB_Q, SUB_G, OTHER_Q, OTHER_P, OTHER_G, RHO, SUB_RHO, SCALE   elements of the chain's vectors,
//   MEAN, SPREAD               elements of the running moments,
//   the chain's scalars as variables, load_chain() and store_chain(),
//   VELOCITY, FORCE            an element of L P and of Lᵀ G,
//   LANES, SUBGROUPS, CHAIN, and the parameters by name.

// What the chain does next.
const uint STARTING = 0u, SEARCHING = 1u, BETWEEN = 2u, MOVING = 3u, ENDED = 4u;

// Uses of random numbers: the last byte of a counter's second word.
const uint OF_MOMENTUM = 0u, OF_SEARCH = 1u, OF_DIRECTION = 2u, OF_POINT = 3u, OF_SUBTREE = 4u, OF_LENGTH = 5u;

// An energy error above this is a divergence.
const REAL DIVERGENCE = REAL(1000);
// The largest logarithm of a weight: sums of weights stay finite.
#ifdef REAL_IS_DOUBLE
const REAL LARGEST_LOG_WEIGHT = 600.0lf;
#define REAL_INF F64_INF
#else
const REAL LARGEST_LOG_WEIGHT = 80.0f;
#define REAL_INF F32_INF
#endif

uvec4 random_words(uint use, uint number, uint index) {
  return philox(uvec4(index, number << 8 | use, transition, CHAIN), uvec2(p.seed_low, p.seed_high));
}
REAL random_uniform(uint use, uint number, uint index) { return uniform_of(random_words(use, number, index)); }

#if SUBGROUPS > 1
shared REAL exchanged_sums[6 * SUBGROUPS];
#endif

// The sums of the first COUNT of `sums` over all invocations.
#define TOTALS(COUNT) \
  [[unroll]] for (uint n = 0u; n < COUNT; ++n) { \
    [[unroll]] for (uint distance = uint(LANES / 2); distance > 0u; distance /= 2u) sums[n] += subgroupShuffleXor(sums[n], distance); \
  } \
  TOTALS_OF_SUBGROUPS(COUNT)
#if SUBGROUPS > 1
#define TOTALS_OF_SUBGROUPS(COUNT) \
  if (LANE == 0u) { [[unroll]] for (uint n = 0u; n < COUNT; ++n) exchanged_sums[n * uint(SUBGROUPS) + SUBGROUP] = sums[n]; } \
  meet(); \
  [[unroll]] for (uint n = 0u; n < COUNT; ++n) { \
    sums[n] = exchanged_sums[n * uint(SUBGROUPS)]; \
    [[unroll]] for (uint other = 1u; other < uint(SUBGROUPS); ++other) sums[n] += exchanged_sums[n * uint(SUBGROUPS) + other]; \
  } \
  meet();
#else
#define TOTALS_OF_SUBGROUPS(COUNT)
#endif

// Half of the sum of squares of a vector's elements.
#define HALF_SQUARES(result, x) { \
    REAL sums[1]; \
    sums[0] = REAL(0); \
    { EACH sums[0] += (x) * (x); } \
    TOTALS(1u) \
    result = REAL(0.5) * sums[0]; \
  }

REAL kinetic_energy() {
  REAL kinetic;
  HALF_SQUARES(kinetic, P(ELEMENT))
  return kinetic;
}

// Goes to the last draw with a new momentum.
void start_from_draw(uint use, uint number) {
  meet();
  { EACH {
    Q(ELEMENT) = DRAW_Q;
    G(ELEMENT) = DRAW_G;
    P(ELEMENT) = normal_quantile(random_uniform(use, number, ELEMENT));
  } }
  start_energy = kinetic_energy() - draw_logp;
}

void leapfrog(REAL eps) {
  REAL kick = REAL(0.5) * eps;
  meet();
  { EACH P(ELEMENT) += kick * FORCE; }
  meet();
  { EACH Q(ELEMENT) += eps * VELOCITY; }
  meet();
  evaluate();
  { EACH P(ELEMENT) += kick * FORCE; }
}

#include "lib/chain/adaptation.glsl"

// Ends a transition, whose result is DRAW_Q.
void end_transition(REAL accept, bool diverged) {
  divergences += uint(diverged);
  accepted = transition == p.warmup ? accept : accepted + accept;
  phase = BETWEEN;
  if (transition < p.warmup) {
    adapt(accept);
  } else {
    uint kept = (transition - p.warmup) / p.thin;
    if ((transition - p.warmup) % p.thin == p.thin - 1u) {
      uint at = CHAIN * p.draws + kept;
      { EACH p.draw.v[at * D + ELEMENT] = DRAW_Q; }
      if (INVOCATION == 0u) {
        p.accept.v[at] = accept;
        p.energy.v[at] = draw_energy;
        p.logp.v[at] = draw_logp;
        p.depth.v[at] = depth;
        p.leapfrog_steps.v[at] = points;
        p.divergent.v[at] = uint(diverged);
      }
    }
  }
  ++transition;
  if (transition == p.transitions) phase = ENDED;
}

#ifdef TREE
#include "lib/chain/tree.glsl"
#else
#include "lib/chain/trajectory.glsl"
#endif

// The log-density where the chain starts. What is not finite there ends it.
void started() {
  REAL gradient;
  HALF_SQUARES(gradient, G(ELEMENT))
  { EACH DRAW_G = G(ELEMENT); }
  draw_logp = logp;
  bool sound = is_finite(logp) && is_finite(gradient);
  failed = uint(!sound);
  phase = !sound || p.transitions == 0u ? ENDED : p.search != 0u ? SEARCHING : BETWEEN;
  restart_averaging();
}

void main() {
  if (workgroup() >= p.chains) return;
  load_chain();
  if (phase == STARTING) {
    step_size = REAL_OF(p.first_step_size);
    { EACH {
      DRAW_Q = p.start.v[CHAIN * D + ELEMENT];
      Q(ELEMENT) = DRAW_Q;
      P(ELEMENT) = REAL(0);
      G(ELEMENT) = REAL(0);
      SCALE = REAL(1);
      MEAN = REAL(0);
      SPREAD = REAL(0);
    } }
  }
  for (uint step = 0u; step < p.budget && phase != ENDED; ++step) {
    if (phase == SEARCHING) start_from_draw(OF_SEARCH, trial);
    if (phase == BETWEEN) start_transition();
    if (phase == MOVING) before_step();
    leapfrog(phase == STARTING ? REAL(0) : phase == MOVING && forward == 0u ? -step_size : step_size);
    ++leapfrogs;
    energy = kinetic_energy() - logp;
    if (!is_finite(energy)) energy = REAL_INF;
    if (phase == STARTING) started();
    else if (phase == SEARCHING) searched();
    else after_step();
  }
  store_chain();
}
