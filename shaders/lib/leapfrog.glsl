// Owns the leapfrog integrator of Hamiltonian dynamics: one workgroup computes the whole trajectory of one chain. The file
// that includes this one owns the model.
//
// Algorithm: per step, with g = grad log p: p½ = p + ½ eps g(q), q' = q + eps inv_mass p½, p' = p½ + ½ eps g(q').
// Domain: all numbers. A negative eps integrates backwards in time; eps = 0 evaluates the model at q_init. Energies that
//   overflow give infinite or NaN outputs. No loop's length depends on data.
// Error: each operation is rounded once; native_tests/leapfrog compares trajectories with the host's.
// Source: R. M. Neal, "MCMC using Hamiltonian dynamics" (2011), section 2.3.
//
// All buffers hold the chains one after the other. The outputs hold the state after each step, at step * d + i of their
// chain. logp is the model's log density, without the kinetic energy.
//
// The model's file defines REAL's helpers and what follows, then includes this file:
//   MODEL_PARAMETERS     number of parameters that the observations depend on
//   MODEL_PUSH           declarations of the model's own push constants; may be left undefined
//   MODEL_VALUES         number of values that each parameter publishes to the other invocations
//   MODEL_SUMS           number of sums over the observations: one for each of the first MODEL_SUMS - 1 parameters, then log p
//   ModelState           the values of the parameters, as model_observe needs them
//   REAL model_publish(uint i, REAL q, out REAL values[MODEL_VALUES])
//       sets the values of parameter i, in invocation i; returns the parameter's own term of log p
//   ModelState model_load(uint i, uint n_obs, inout REAL sums[MODEL_SUMS])
//       reads value v of parameter j by parameter_value(j, v), outside of branches. One invocation adds the terms that do not
//       depend on single observations to the sums.
//   ModelBlock, ModelBlock model_begin(), void model_observe(ModelState state, REAL x, inout ModelBlock block),
//   void model_end(ModelBlock block, inout REAL sums[MODEL_SUMS])
//       accumulate at most OBSERVATION_BLOCK observations, then add them to the sums
//   REAL model_gradient(uint i, REAL q, REAL sum)
//       d log p / d q_i, in invocation i, from sum i. It must not call parameter_value: the other invocations may be a step
//       ahead.
//
// A parameter of the model that q does not hold (d < MODEL_PARAMETERS) stays at q = 0 and adds no term of its own.
//
// The order of the sums depends on n_obs, d and the device alone. Results therefore repeat bit for bit on one device, and the
// trajectory of fewer steps is a prefix of that of more.

#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_ballot : require

// The call chooses the number of invocations: a power of two, at least d and at least 8. MODEL_PARAMETERS and MODEL_SUMS
// are at most 8.
layout(local_size_x = 256, local_size_x_id = 1) in;
#define WORKGROUP gl_WorkGroupSize.x
// The call chooses fewer than 32 invocations only where they form one subgroup. Its invocations exchange values without
// shared memory and barriers.
#define ONE_SUBGROUP (WORKGROUP < 32u)
// Observations are summed in blocks, then the blocks: the rounding error grows with the lengths of both sums, not with their
// product.
#define OBSERVATION_BLOCK 64u

#ifndef MODEL_PUSH
#define MODEL_PUSH
#endif

layout(push_constant) uniform Push {
  uint steps;
  uint n_obs;
  uint d;
  uint chains;
  REAL eps;
  MODEL_PUSH
} push;

layout(set = 0, binding = 0, std430) readonly restrict buffer QInit { REAL q_init[]; };
layout(set = 0, binding = 1, std430) readonly restrict buffer PInit { REAL p_init[]; };
// Each chain's observations, followed by the diagonal of its inverse mass matrix.
layout(set = 0, binding = 2, std430) readonly restrict buffer Extras { REAL extras[]; };
layout(set = 0, binding = 3, std430) writeonly restrict buffer QChain { REAL q_chain[]; };
layout(set = 0, binding = 4, std430) writeonly restrict buffer PChain { REAL p_chain[]; };
layout(set = 0, binding = 5, std430) writeonly restrict buffer GradChain { REAL grad_chain[]; };
layout(set = 0, binding = 6, std430) writeonly restrict buffer LogpChain { REAL logp_chain[]; };

// The sums of each subgroup, in rows of MODEL_SUMS.
shared REAL partial[WORKGROUP * MODEL_SUMS];
// The values of each parameter, in rows of MODEL_VALUES, and those of the invocation's own parameter.
shared REAL shared_values[MODEL_PARAMETERS * MODEL_VALUES];
REAL own_values[MODEL_VALUES];

REAL parameter_value(uint j, uint v) {
  return ONE_SUBGROUP ? subgroupBroadcast(own_values[v], j) : shared_values[j * MODEL_VALUES + v];
}

// The total of sums[j] over the workgroup, in invocation j < MODEL_SUMS.
REAL reduce(uint i, REAL sums[MODEL_SUMS]) {
  REAL total = REAL(0);
  for (uint j = 0u; j < MODEL_SUMS; ++j) {
    REAL sum = subgroupAdd(sums[j]);
    if (ONE_SUBGROUP) {
      total = i == j ? sum : total;
    } else if (subgroupElect()) {
      partial[gl_SubgroupID * MODEL_SUMS + j] = sum;
    }
  }
  if (ONE_SUBGROUP) return total;
  barrier();
  if (i < MODEL_SUMS) {
    for (uint k = 0u; k < gl_NumSubgroups; ++k) total += partial[k * MODEL_SUMS + i];
  }
  return total;
}

// Evaluates the model at the position whose i-th coordinate is q; invocation j < MODEL_SUMS gets sum j. `obs` is the index of
// the chain's first observation.
REAL evaluate(uint i, uint obs, REAL q) {
  REAL own = REAL(0);
  if (i < max(push.d, MODEL_PARAMETERS)) own = model_publish(i, q, own_values);
  if (!ONE_SUBGROUP) {
    if (i < MODEL_PARAMETERS) {
      for (uint v = 0u; v < MODEL_VALUES; ++v) shared_values[i * MODEL_VALUES + v] = own_values[v];
    }
    barrier();
  }
  REAL sums[MODEL_SUMS];
  for (uint j = 0u; j < MODEL_SUMS; ++j) sums[j] = REAL(0);
  ModelState state = model_load(i, push.n_obs, sums);
  if (i < push.d) sums[MODEL_SUMS - 1u] += own;

  uint count = push.n_obs / WORKGROUP + uint(i < push.n_obs % WORKGROUP);
  for (uint begin = 0u; begin < count; begin += OBSERVATION_BLOCK) {
    ModelBlock block = model_begin();
    uint end = min(begin + OBSERVATION_BLOCK, count);
    for (uint k = begin; k < end; ++k) model_observe(state, extras[obs + k * WORKGROUP + i], block);
    model_end(block, sums);
  }
  return reduce(i, sums);
}

void main() {
  // Invocation i owns coordinate i of the position and the momentum.
  uint i = ONE_SUBGROUP ? gl_SubgroupInvocationID : gl_LocalInvocationIndex;
  uint chain = gl_WorkGroupID.x;
  uint obs = chain * (push.n_obs + push.d);
  bool owner = i < push.d;
  REAL q = owner ? q_init[chain * push.d + i] : REAL(0);
  REAL p = owner ? p_init[chain * push.d + i] : REAL(0);
  REAL drift = owner ? push.eps * extras[obs + push.n_obs + i] : REAL(0);
  REAL kick = REAL(0.5) * push.eps;

  REAL sum = evaluate(i, obs, q);
  REAL gradient = owner ? model_gradient(i, q, sum) : REAL(0);
  for (uint step = 0u; step < push.steps; ++step) {
    p += kick * gradient;
    q += drift * p;
    sum = evaluate(i, obs, q);
    uint at = chain * push.steps + step;
    if (i == MODEL_SUMS - 1u) logp_chain[at] = sum;
    if (owner) {
      gradient = model_gradient(i, q, sum);
      p += kick * gradient;
      uint slot = at * push.d + i;
      q_chain[slot] = q;
      p_chain[slot] = p;
      grad_chain[slot] = gradient;
    }
  }
}
