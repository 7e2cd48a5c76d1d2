//! Chain kernels as modules of `Nx.Vulkan.NativeV`'s binding layout, which has one buffer for all data. This module owns that layout; the
//! integrator and the log-density are those of other chain kernels.

use std::fmt::Write as _;

use super::ChainEvaluation;
use super::kernel::{ChainMemory, function, start};
use crate::device::Capabilities;
use crate::error::{Error, Result};
use crate::program::Type;
use crate::program::chain::ChainProgram;
use crate::program::emit::define;

/// A module, and what the extras of a chain hold before the inverse mass.
pub struct LeapfrogModule {
    /// The GLSL.
    pub source: String,
    /// Elements of each operand after the position.
    pub data: Vec<u64>,
    /// Elements of scratch memory, which come after the data.
    pub scratch: u64,
}

/// Writes the module. Fails where data are not numbers of the position's type, or integers that it holds.
pub fn leapfrog_module(
    program: &ChainProgram,
    evaluation: &ChainEvaluation,
    memory: &ChainMemory,
    threads: u32,
    caps: &Capabilities,
) -> Result<LeapfrogModule> {
    let real = program.real();
    let glsl = real.compute().glsl();
    if !memory.scratch_is(real.compute()) || program.given.operands.iter().any(|ty| ty.is_narrow_float()) {
        return Err(Error::Unsupported("data or intermediate results of another type than the position's".into()));
    }
    let extras = if memory.scratch_bytes > 0 { "coherent" } else { "readonly" };
    let interface = format!(
        "layout(push_constant, scalar) uniform Push {{ uint steps; uint observations; uint d; uint chains; {glsl} eps; }} push;\n\
         layout(set = 0, binding = 0, scalar) readonly buffer QInit {{ {glsl} q_init[]; }};\n\
         layout(set = 0, binding = 1, scalar) readonly buffer PInit {{ {glsl} p_init[]; }};\n\
         layout(set = 0, binding = 2, scalar) {extras} buffer Extras {{ {glsl} extras[]; }};\n\
         layout(set = 0, binding = 3, scalar) writeonly buffer QChain {{ {glsl} q_chain[]; }};\n\
         layout(set = 0, binding = 4, scalar) writeonly buffer PChain {{ {glsl} p_chain[]; }};\n\
         layout(set = 0, binding = 5, scalar) writeonly buffer GradChain {{ {glsl} grad_chain[]; }};\n\
         layout(set = 0, binding = 6, scalar) writeonly buffer LogpChain {{ {glsl} logp_chain[]; }};\n"
    );
    let mut text = start(program, evaluation, &[], memory, (threads, false), &interface, caps);
    let data: Vec<u64> = program.slot_elements[1..program.given.operands.len()].to_vec();
    let total: u64 = data.iter().sum();
    let scratch = memory.scratch_bytes / real.size();
    text.push_str("#define EXTRAS (gl_WorkGroupID.x * (push.observations + D))\n");
    define(&mut text, "SCRATCH", format_args!("(EXTRAS + {total}u)"));
    memory.declarations(&mut text, true);
    let mut first = 0;
    for (slot, (ty, elements)) in program.given.operands.iter().zip(&program.slot_elements).enumerate().skip(1) {
        let element = format!("extras[EXTRAS + {first}u + (i)]");
        let stored = match ty {
            Type::F32 | Type::F64 => element,
            _ if ty.extends_sign() => format!("uint(int({element}))"),
            _ => format!("{}({element})", ty.compute().glsl()),
        };
        let _ = writeln!(text, "#define S{slot}(i) {stored}");
        first += elements;
    }
    function(&mut text, program, evaluation);
    text.push_str(
        "uint chain_index() { return gl_WorkGroupID.x; }\n\
         #define CHAINS max(push.chains, 1u)\n\
         #define STEPS push.steps\n\
         #define EPS push.eps\n\
         #define LOAD_Q(i) q_init[gl_WorkGroupID.x * D + (i)]\n\
         #define LOAD_P(i) p_init[gl_WorkGroupID.x * D + (i)]\n\
         #define OUTPUT(slot) (gl_WorkGroupID.x * push.steps + (slot))\n\
         #define KEPT(slot) true\n\
         #define STORE(slot, i) { uint at = OUTPUT(slot) * D + (i); \\\n\
         \x20 q_chain[at] = Q(i); p_chain[at] = P(i); grad_chain[at] = G(i); }\n\
         #define STORE_LOGP(slot) logp_chain[OUTPUT(slot)] = logp;\n\
         #define VELOCITY(i) (extras[EXTRAS + push.observations + (i)] * P(i))\n\
         #include \"lib/chain/leapfrog.glsl\"\n",
    );
    Ok(LeapfrogModule { source: text, data, scratch })
}
