// Owns the transitions of the No-U-Turn sampler: a trajectory that is doubled forwards or backwards in time until it turns around, with a
// draw of its points by their weights.
//
// Algorithm: points are weighed by exp(-H). Those of the new half are chosen one by one as they come, the half as a whole with the
//   probability min(1, its weight / that of the points before). A span turns where its sum of momenta has no positive product with the
//   momentum at either end; tested are all spans that a recursion would have, each as a whole and each of its halves with the
//   point next to it. The starts of the spans that end at one of the points to come are checkpoints, at most one for each power of two.
// Domain: trees of up to 2^31 points.
// Source: M. Betancourt, "A conceptual introduction to Hamiltonian Monte Carlo" (2017), appendix A; D. Phan, N. Pradhan, M. Jankowiak,
//   "Composable effects for flexible and accelerated probabilistic programming in NumPyro" (2019), algorithm 2; Stan's base_nuts.hpp.
//
// The kernel defines FIRST(s), BEFORE(s) and SUM(s), elements of checkpoint s: the momentum of the point, that of the point before, and the
// sum of the momenta before it in the new half.

// Goes on with the other end of the trajectory where the direction changes.
void start_doubling() {
  uint before = forward;
  forward = random_words(OF_DIRECTION, depth, 0u).x >> 31;
  meet();
  if (forward != before) {
    { EACH {
      REAL q = Q(ELEMENT), momentum = P(ELEMENT), gradient = G(ELEMENT);
      Q(ELEMENT) = OTHER_Q;
      P(ELEMENT) = OTHER_P;
      G(ELEMENT) = OTHER_G;
      OTHER_Q = q;
      OTHER_P = momentum;
      OTHER_G = gradient;
    } }
  }
  { EACH SUB_RHO = REAL(0); }
  sub_weight = REAL(0);
  point = 0u;
}

void start_transition() {
  start_from_draw(OF_MOMENTUM, 0u);
  { EACH {
    OTHER_Q = DRAW_Q;
    OTHER_G = DRAW_G;
    OTHER_P = P(ELEMENT);
    RHO = P(ELEMENT);
  } }
  weight = REAL(1);
  depth = 0u;
  points = 0u;
  accept_sum = REAL(0);
  draw_energy = start_energy;
  phase = MOVING;
  start_doubling();
}

// The checkpoint of an even point.
uint checkpoint_of(uint point) { return bitCount(point >> 1); }

void before_step() {
  if ((point & 1u) == 0u) {
    uint s = checkpoint_of(point);
    { EACH BEFORE(s) = P(ELEMENT); }
  }
}

// Adds what a span's parts contribute to its six products: its first momentum, the sum of its first half, the last momentum of that, the
// first of the second half, the sum of that, and the last momentum.
#define SPAN_PRODUCTS(first, first_sum, inner, next, second_sum, last) { \
    REAL whole = first_sum + second_sum, longer = first_sum + next, other = inner + second_sum; \
    sums[0] += first * whole; \
    sums[1] += last * whole; \
    sums[2] += first * longer; \
    sums[3] += next * longer; \
    sums[4] += inner * other; \
    sums[5] += last * other; \
  }

bool turned(REAL sums[6]) {
  bool on = true;
  [[unroll]] for (uint n = 0u; n < 6u; ++n) on = on && sums[n] > REAL(0);
  return !on;
}

// Whether the whole trajectory turns, with the new half.
bool trajectory_turns() {
  REAL sums[6] = REAL[6](REAL(0), REAL(0), REAL(0), REAL(0), REAL(0), REAL(0));
  { EACH {
    REAL first = OTHER_P, first_sum = RHO, inner = BEFORE(0u), next = FIRST(0u), second_sum = SUB_RHO, last = P(ELEMENT);
    SPAN_PRODUCTS(first, first_sum, inner, next, second_sum, last)
    RHO = first_sum + second_sum;
  } }
  TOTALS(6u)
  return turned(sums);
}

// Adds the point to the sum of the new half, and says whether a span turns that ends with it.
bool half_turns() {
  uint s = checkpoint_of(point);
  if ((point & 1u) == 0u) {
    { EACH {
      REAL sum = SUB_RHO, momentum = P(ELEMENT);
      FIRST(s) = momentum;
      SUM(s) = sum;
      SUB_RHO = sum + momentum;
    } }
    return false;
  }
  // The two last points, of which each is a half.
  {
    REAL sums[2] = REAL[2](REAL(0), REAL(0));
    { EACH {
      REAL first = FIRST(s), last = P(ELEMENT), sum = first + last;
      sums[0] += first * sum;
      sums[1] += last * sum;
      SUB_RHO += last;
    } }
    TOTALS(2u)
    if (!(sums[0] > REAL(0) && sums[1] > REAL(0))) return true;
  }
  for (uint rest = point >> 1; (rest & 1u) != 0u; rest >>= 1) {
    REAL sums[6] = REAL[6](REAL(0), REAL(0), REAL(0), REAL(0), REAL(0), REAL(0));
    --s;
    { EACH {
      REAL first = FIRST(s), middle = SUM(s + 1u), first_sum = middle - SUM(s), inner = BEFORE(s + 1u), next = FIRST(s + 1u);
      REAL second_sum = SUB_RHO - middle, last = P(ELEMENT);
      SPAN_PRODUCTS(first, first_sum, inner, next, second_sum, last)
    } }
    TOTALS(6u)
    if (turned(sums)) return true;
  }
  return false;
}

void after_step() {
  REAL error = energy - start_energy;
  REAL point_weight = plain_exp(min(-error, LARGEST_LOG_WEIGHT));
  accept_sum += min(REAL(1), point_weight);
  ++points;
  bool diverged = error > DIVERGENCE;
  bool ends = diverged;
  if (!diverged) {
    sub_weight += point_weight;
    if (random_uniform(OF_POINT, depth, point) * sub_weight < point_weight) {
      { EACH {
        SUB_Q = Q(ELEMENT);
        SUB_G = G(ELEMENT);
      } }
      sub_logp = logp;
      sub_energy = energy;
    }
    ends = half_turns();
    ++point;
  }
  if (!ends && point == 1u << depth) {
    if (random_uniform(OF_SUBTREE, depth, 0u) * weight < sub_weight) {
      { EACH {
        DRAW_Q = SUB_Q;
        DRAW_G = SUB_G;
      } }
      draw_logp = sub_logp;
      draw_energy = sub_energy;
    }
    weight += sub_weight;
    ++depth;
    ends = trajectory_turns() || depth == p.max_depth;
    if (!ends) start_doubling();
  }
  if (ends) end_transition(accept_sum / REAL(points), diverged);
}
