#version 450
#extension GL_GOOGLE_include_directive : require

// One HMC trajectory of d independent coordinates, each N(mu, sigma) with standard deviation sigma. lib/leapfrog.glsl
// declares the bindings, push constants and outputs. The model has no observations (n_obs = 0): the extras are the inverse
// mass alone. log p includes the normalising constant.

#include "lib/math/log.glsl"

#define MODEL_PARAMETERS 1u
#define MODEL_VALUES 1u
#define MODEL_SUMS 1u
#define MODEL_PUSH REAL mu; REAL sigma;

const REAL half_log_two_pi = REAL(0.918938533204672741780lf);

// GLSL has no empty structures.
struct ModelState { uint none; };
struct ModelBlock { uint none; };

REAL model_publish(uint i, REAL q, out REAL values[MODEL_VALUES]);
ModelState model_load(uint i, uint n_obs, inout REAL sums[MODEL_SUMS]) { return ModelState(0u); }
ModelBlock model_begin() { return ModelBlock(0u); }
void model_observe(ModelState state, REAL x, inout ModelBlock block) {}
void model_end(ModelBlock block, inout REAL sums[MODEL_SUMS]) {}
REAL model_gradient(uint i, REAL q, REAL sum);

#include "lib/leapfrog.glsl"

REAL model_publish(uint i, REAL q, out REAL values[MODEL_VALUES]) {
  values[0] = q;
  REAL z = (q - push.mu) / push.sigma;
  return -half_log_two_pi - nx_log(push.sigma) - REAL(0.5) * z * z;
}

REAL model_gradient(uint i, REAL q, REAL sum) { return -((q - push.mu) / push.sigma) / push.sigma; }
