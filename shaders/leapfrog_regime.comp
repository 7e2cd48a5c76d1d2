#version 450
#extension GL_GOOGLE_include_directive : require

// One HMC trajectory of a regime-switching model of returns. lib/leapfrog.glsl declares the bindings, push constants and
// outputs.
//
// Each observation comes from one of three regimes, with weights softmax(0, logit_w1, logit_w2):
//   volatile N(0, sigma_vol), trending N(mu_trend, sigma_trend), mean-reverting N(mu_mr, sigma_mr).
// The position q holds, in this order (N(m, s) has standard deviation s; HalfNormal(s) folds N(0, s)):
//   0 logit_w1 ~ N(0, 1)    1 logit_w2 ~ N(0, 1)    2 mu_mr ~ N(0, 0.5)    3 mu_trend ~ N(0, 1)
//   4 sigma_mr ~ HalfNormal(1)    5 sigma_trend ~ HalfNormal(1)    6 sigma_vol ~ HalfNormal(2)    7 theta_mr ~ N(0, 1)
// The sigmas are softplus(q) = log(1 + exp(q)), with the log-Jacobian log sigmoid(q) in the density. No observation depends
// on theta_mr or on a parameter from 8 on, whose prior is N(0, 1). For d < 8, the missing parameters stay at q = 0 (logits
// and means 0, sigmas log 2) and add no prior: d = 7 is the model without theta_mr.
//
// log p is the log of the joint density of q and the observations, with every normalising constant.

#include "lib/math/plain.glsl"

#define MODEL_PARAMETERS 8u
#define MODEL_VALUES 2u
#define MODEL_SUMS 8u
#define LOG_P 7u

const REAL half_log_two_pi = REAL(0.918938533204672741780lf);
const REAL log_two = REAL(0.693147180559945309417lf);

// Regimes are numbered as the sigmas are: 0 mean-reverting, 1 trending, 2 volatile.
struct ModelState {
  // Log of weight times density at the regime's mean, where the weights are not normalised.
  REAL log_weight[3];
  REAL mu[3];
  REAL inverse_sigma[3];
};

// The terms of a block of observations. log p is Σ largest + log Π total, which takes one logarithm a block. Each total is at
// most 3, and the product of 64 of them (3^64 = 3e30) is within the range of f32.
struct ModelBlock {
  REAL gradient[7];
  REAL largest;
  REAL product;
};

REAL parameter_value(uint j, uint v);

// The value of the sigma that this invocation owns, and its derivative with respect to q.
REAL own_sigma, own_slope;

bool is_sigma(uint i) { return i >= 4u && i <= 6u; }
REAL inverse_prior_scale(uint i) { return i == 2u ? REAL(2) : i == 6u ? REAL(0.5) : REAL(1); }
REAL log_prior_scale(uint i) { return i == 2u ? -log_two : i == 6u ? log_two : REAL(0); }

// A sigma publishes its logarithm and its inverse; any other parameter publishes itself.
REAL model_publish(uint i, REAL q, out REAL values[MODEL_VALUES]) {
  REAL value = q;
  values = REAL[2](q, q);
  REAL constant = -half_log_two_pi - log_prior_scale(i);
  if (is_sigma(i)) {
    REAL e = plain_exp(-abs(q));
    REAL tail = plain_log1p(e);
    value = max(q, REAL(0)) + tail;
    // log 2 for folding the normal distribution, and log sigmoid(q) for the Jacobian.
    constant += log_two + (min(q, REAL(0)) - tail);
    own_sigma = value;
    own_slope = (q < REAL(0) ? e : REAL(1)) / (REAL(1) + e);
    values = REAL[2](plain_log(value), REAL(1) / value);
  }
  REAL z = value * inverse_prior_scale(i);
  return constant - REAL(0.5) * z * z;
}

ModelState model_load(uint i, uint n_obs, inout REAL sums[MODEL_SUMS]) {
  // Logits relative to the largest one keep the normaliser small.
  REAL logit[3] = REAL[3](parameter_value(1u, 0u), parameter_value(0u, 0u), REAL(0));
  REAL largest = max(max(logit[0], logit[1]), REAL(0));
  ModelState state;
  for (uint r = 0u; r < 3u; ++r) {
    logit[r] -= largest;
    state.log_weight[r] = logit[r] - parameter_value(4u + r, 0u) - half_log_two_pi;
    state.inverse_sigma[r] = parameter_value(4u + r, 1u);
  }
  state.mu = REAL[3](parameter_value(2u, 0u), parameter_value(3u, 0u), REAL(0));

  // The invocation with the fewest observations adds the softmax's normaliser.
  if (i == gl_WorkGroupSize.x - 1u) {
    REAL mr = plain_exp(logit[0]);
    REAL trend = plain_exp(logit[1]);
    REAL total = mr + trend + plain_exp(logit[2]);
    REAL n = REAL(n_obs);
    sums[0] -= n * (trend / total);
    sums[1] -= n * (mr / total);
    sums[LOG_P] -= n * plain_log(total);
  }
  return state;
}

ModelBlock model_begin() { return ModelBlock(REAL[7](0, 0, 0, 0, 0, 0, 0), REAL(0), REAL(1)); }

// Adds log Σ_r w_r N(x; mu_r, sigma_r) and its derivatives with respect to the parameters. With the responsibility p_r of
// regime r and z_r = (x - mu_r) / sigma_r, they are p_r for the logit, p_r z_r / sigma_r for mu and p_r (z_r² - 1) / sigma_r
// for sigma.
void model_observe(ModelState state, REAL x, inout ModelBlock block) {
  REAL z[3];
  REAL term[3];
  for (uint r = 0u; r < 3u; ++r) {
    z[r] = (x - state.mu[r]) * state.inverse_sigma[r];
    term[r] = state.log_weight[r] - REAL(0.5) * z[r] * z[r];
  }
  // Terms are relative to the largest one, whose exp is 1 and is not computed.
  REAL largest = max(max(term[0], term[1]), term[2]);
  bool first = term[0] == largest;
  bool second = !first && term[1] == largest;
  REAL u = plain_exp((first ? term[1] : term[0]) - largest);
  REAL v = plain_exp((first || second ? term[2] : term[1]) - largest);
  REAL total = REAL(1) + u + v;
  REAL inverse = REAL(1) / total;
  REAL p[3] = REAL[3](first ? REAL(1) : u, second ? REAL(1) : first ? u : v, first || second ? v : REAL(1));
  block.largest += largest;
  block.product *= total;
  for (uint r = 0u; r < 3u; ++r) {
    p[r] *= inverse;
    REAL scaled = p[r] * state.inverse_sigma[r];
    block.gradient[4u + r] += scaled * (z[r] * z[r] - REAL(1));
    if (r < 2u) {
      block.gradient[1u - r] += p[r];
      block.gradient[2u + r] += scaled * z[r];
    }
  }
}

void model_end(ModelBlock block, inout REAL sums[MODEL_SUMS]) {
  for (uint j = 0u; j < LOG_P; ++j) sums[j] += block.gradient[j];
  sums[LOG_P] += block.largest + plain_log(block.product);
}

REAL model_gradient(uint i, REAL q, REAL sum) {
  REAL scale = inverse_prior_scale(i);
  if (!is_sigma(i)) return (i < 4u ? sum : REAL(0)) - q * scale * scale;
  // The last term is the log-Jacobian's: 1 - sigmoid(q).
  return (sum - own_sigma * scale * scale) * own_slope + (REAL(1) - own_slope);
}

#include "lib/leapfrog.glsl"
