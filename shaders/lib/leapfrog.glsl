// Leapfrog integrator of Hamiltonian dynamics: a whole trajectory in one workgroup, workgroup c being chain c.
// Source: R. M. Neal, "MCMC using Hamiltonian dynamics" (2011), section 2.3.
//
// Per step, with g = grad log p: p½ = p + ½ eps g(q), q' = q + eps inv_mass p½, p' = p½ + ½ eps g(q'). All buffers hold
// the chains one after the other. The outputs hold the state after each step, at step * d + i of their chain; logp is the model's log density alone, without the kinetic energy. A
// negative eps runs the trajectory backwards; eps = 0 evaluates the model at q_init. Energies that overflow give infinite
// or NaN outputs; nothing here loops on data.
//
// The model's file defines REAL's helpers and what follows, then includes this file:
//   MODEL_PARAMETERS     how many parameters the observations depend on
//   MODEL_PUSH           its own push constants, declared one after the other, where it has any
//   MODEL_VALUES         how many values the others need of a parameter
//   MODEL_SUMS           one sum over the observations for each of its first MODEL_SUMS - 1 parameters, then log p
//   ModelState           what an observation needs to know of the parameters
//   REAL model_publish(uint i, REAL q, out REAL values[MODEL_VALUES])
//       in invocation i, the values of parameter i; returns the parameter's own term of log p
//   ModelState model_load(uint i, uint n_obs, inout REAL sums[MODEL_SUMS])
//       asks parameter_value(j, v) for value v of parameter j, outside of branches; what does not depend on single
//       observations goes into the sums here, in one invocation
//   ModelBlock, ModelBlock model_begin(), void model_observe(ModelState state, REAL x, inout ModelBlock block),
//   void model_end(ModelBlock block, inout REAL sums[MODEL_SUMS])
//       accumulate at most OBSERVATION_BLOCK observations, then add them to the sums
//   REAL model_gradient(uint i, REAL q, REAL sum)
//       d log p / d q_i, in invocation i, from the sum of its own index. It must not ask for values: the other invocations
//       may be a step ahead.
//
// A parameter of the model that q does not hold (d < MODEL_PARAMETERS) stays at q = 0 and adds no term of its own.
//
// Sums run in an order that depends on n_obs, d and the device alone, so results repeat bit for bit on one device, and a
// shorter chain is a prefix of a longer one.

#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_ballot : require

// As many invocations as the call asks for: a power of two, at least d, and 8, which MODEL_PARAMETERS and MODEL_SUMS must not
// exceed.
layout(local_size_x = 256, local_size_x_id = 1) in;
#define WORKGROUP gl_WorkGroupSize.x
// Fewer than 32 are asked for where they are one subgroup, whose invocations exchange values without memory and barriers.
#define ONE_SUBGROUP (WORKGROUP < 32u)
// Blocks, so that a long sum loses no more digits than two short ones.
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
// Of each chain the observations, then the diagonal of the inverse mass matrix.
layout(set = 0, binding = 2, std430) readonly restrict buffer Extras { REAL extras[]; };
layout(set = 0, binding = 3, std430) writeonly restrict buffer QChain { REAL q_chain[]; };
layout(set = 0, binding = 4, std430) writeonly restrict buffer PChain { REAL p_chain[]; };
layout(set = 0, binding = 5, std430) writeonly restrict buffer GradChain { REAL grad_chain[]; };
layout(set = 0, binding = 6, std430) writeonly restrict buffer LogpChain { REAL logp_chain[]; };

// Of each subgroup, in rows of MODEL_SUMS.
shared REAL partial[WORKGROUP * MODEL_SUMS];
// Of each parameter, in rows of MODEL_VALUES, and the invocation's own ones.
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

// The model at the position whose i-th coordinate is q: invocation j < MODEL_SUMS gets sum j. `obs` is where the chain's
// observations begin.
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
