// Owns the warm-up of a chain: its step size, and the scale of its positions.
//
// Algorithm: the first step size is doubled or halved until the acceptance of one step crosses 0.8; dual averaging then adapts its logarithm
//   to the target. Variances of positions are found in windows by Welford's method, shrunk towards 1e-3, and become the inverse mass at the
//   end of each window, where the step size is searched again.
// Domain: p.windows has the first transition of the first window, then the transition after each window, and a last number that is none.
// Source: M. D. Hoffman, A. Gelman, "The No-U-Turn Sampler" (2014), algorithms 4 and 5; Stan Reference Manual, "HMC algorithm parameters".

// The constants of dual averaging: 1 / gamma and t0.
const REAL INVERSE_GAMMA = REAL(20), T0 = REAL(10);
// The logarithm of 0.8.
const REAL LOG_SEARCHED_ACCEPT = REAL(-0.223143551f);
// Doublings or halvings of the first step size, at most.
const uint MAX_TRIALS = 60u;

void restart_averaging() {
  shrink_to = chain_log(REAL(10) * step_size);
  averaged = 0u;
  mean_error = REAL(0);
  log_mean = REAL(0);
}

// After one step of a search.
void searched() {
  bool accepts = start_energy - energy > LOG_SEARCHED_ACCEPT;
  if (trial == 0u) growing = uint(accepts);
  if (accepts != (growing != 0u) || trial == MAX_TRIALS) {
    trial = 0u;
    phase = BETWEEN;
    restart_averaging();
  } else {
    step_size *= growing != 0u ? REAL(2) : REAL(0.5);
    ++trial;
  }
}

// Adds the last draw to the window's moments, and ends the window where it is its last.
void adapt_scale() {
  ++gathered;
  REAL n = REAL(gathered);
  bool last = transition + 1u == p.windows.v[window + 1u];
#ifdef DENSE_MASS
  gather_covariance(n);
  if (last) factor_covariance(n);
#else
  { EACH {
    REAL x = DRAW_Q, delta = x - MEAN, mean = MEAN + delta / n;
    REAL spread = SPREAD + delta * (x - mean);
    MEAN = last ? REAL(0) : mean;
    SPREAD = last ? REAL(0) : spread;
    if (last) SCALE = sqrt((n / (n + REAL(5))) * (spread / (n - REAL(1))) + REAL(5) / (REAL(1000) * (n + REAL(5))));
  } }
#endif
  if (last) {
    gathered = 0u;
    ++window;
    phase = SEARCHING;
  }
}

// After a transition of the warm-up.
void adapt(REAL accept) {
  ++averaged;
  REAL n = REAL(averaged), eta = REAL(1) / (n + T0), root = sqrt(n);
  mean_error = (REAL(1) - eta) * mean_error + eta * (REAL_OF(p.target_accept) - accept);
  REAL log_step = shrink_to - mean_error * root * INVERSE_GAMMA;
  // n ^ -0.75
  REAL weight = REAL(1) / (root * sqrt(root));
  log_mean = weight * log_step + (REAL(1) - weight) * log_mean;
  step_size = plain_exp(log_step);
  if (transition >= p.windows.v[0] && transition < p.windows.v[p.window_count]) adapt_scale();
  if (transition + 1u == p.warmup) step_size = plain_exp(log_mean);
}
