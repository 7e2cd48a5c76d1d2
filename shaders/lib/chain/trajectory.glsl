// Owns the transitions of Hamiltonian Monte Carlo: trajectories of a random number of steps, each with a Metropolis test at its end.
//
// Algorithm: the number of steps is uniform between half and one and a half times p.steps.
// Source: R. M. Neal, "MCMC using Hamiltonian dynamics" (2011), sections 3.2 and 5.4.2.

void start_transition() {
  start_from_draw(OF_MOMENTUM, 0u);
  uint least = (p.steps + 1u) / 2u;
  least += uint(random_uniform(OF_LENGTH, 0u, 0u) * REAL(p.steps + p.steps / 2u - least + 1u));
  // A uniform number next to 1 may be rounded up.
  length_left = min(least, p.steps + p.steps / 2u);
  depth = 0u;
  points = 0u;
  forward = 1u;
  draw_energy = start_energy;
  phase = MOVING;
}

void before_step() {}

void after_step() {
  ++points;
  --length_left;
  if (length_left > 0u) return;
  REAL error = energy - start_energy;
  REAL accept = min(REAL(1), plain_exp(-error));
  if (random_uniform(OF_POINT, 0u, 0u) < accept) {
    { EACH {
      DRAW_Q = Q(ELEMENT);
      DRAW_G = G(ELEMENT);
    } }
    draw_logp = logp;
    draw_energy = energy;
  }
  end_transition(accept, error > DIVERGENCE);
}
