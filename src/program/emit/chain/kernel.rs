//! Kernels of chains: an integrator of `shaders/lib/chain` around a log-density. This module owns where their values are in memory and the
//! names by which the integrator reaches buffers.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::ChainEvaluation;
use crate::device::Capabilities;
use crate::program::chain::ChainProgram;
use crate::program::emit::{define, prelude};
use crate::program::types::Compute;

/// Bytes that arrays in scratch memory are aligned to.
const ARRAY_ALIGNMENT: u64 = 16;

/// The inverse of a mass matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InverseMass {
    /// Its diagonal alone.
    Diagonal,
    /// All elements, row by row.
    Dense,
}

/// What the integrator adds to an evaluation in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeapfrogCost {
    /// Iterations of loops that an invocation makes, with the tests that end them.
    pub iterations: u64,
    /// Lines that an invocation runs.
    pub operations: u64,
}

impl LeapfrogCost {
    /// That of positions of `dimensions` elements and a workgroup of `threads` invocations.
    pub fn new(dimensions: u64, threads: u32, mass: InverseMass) -> Self {
        let elements = dimensions.div_ceil(threads.into());
        // Half a step of the momentum with the position, and the other half with the states that are stored.
        let own = Self { iterations: 2 * (elements + 1), operations: 10 * elements };
        match mass {
            InverseMass::Diagonal => own,
            InverseMass::Dense => Self {
                iterations: own.iterations + 1 + elements * (dimensions + 2),
                operations: own.operations + 2 * elements * dimensions,
            },
        }
    }
}

/// Where the arrays of a chain are: in the workgroup's memory, or from a byte of the chain's scratch memory on.
#[derive(Clone, Debug)]
pub struct ChainMemory {
    arrays: Vec<ChainArray>,
    /// Bytes of scratch memory that each chain needs.
    pub scratch_bytes: u64,
}

#[derive(Clone, Debug)]
struct ChainArray {
    name: String,
    elements: u64,
    compute: Compute,
    /// The byte of scratch memory where it starts; `None` in the workgroup's memory.
    scratch: Option<u64>,
}

impl ChainMemory {
    /// The arrays of a log-density with the integrator's, of which `budget` bytes are in the workgroup's memory. The position comes first.
    pub fn new(program: &ChainProgram, evaluation: &ChainEvaluation, budget: u64) -> Self {
        let real = program.real().compute();
        let own = [("S0".into(), program.given.dimensions, real), ("P".into(), program.given.dimensions, real)];
        let slots = evaluation.memory.iter().map(|slot| (format!("M{}", slot.slot), slot.elements, slot.compute));
        let (mut left, mut scratch_bytes, mut arrays) = (budget, 0, vec![]);
        for (name, elements, compute) in own.into_iter().chain(slots) {
            let bytes = (elements * compute.size()).next_multiple_of(ARRAY_ALIGNMENT);
            let shared = bytes <= left;
            arrays.push(ChainArray { name, elements, compute, scratch: (!shared).then_some(scratch_bytes) });
            if shared {
                left -= bytes;
            } else {
                scratch_bytes += bytes;
            }
        }
        Self { arrays, scratch_bytes }
    }

    /// Types of the arrays' elements.
    fn computes(&self) -> impl Iterator<Item = Compute> + '_ {
        self.arrays.iter().map(|array| array.compute)
    }

    /// Whether all arrays in scratch memory have that type.
    pub(super) fn scratch_is(&self, compute: Compute) -> bool {
        self.arrays.iter().all(|array| array.scratch.is_none() || array.compute == compute)
    }

    /// The arrays' declarations, and macros of their elements; in a module for `NativeV` scratch memory is behind the data.
    pub(super) fn declarations(&self, text: &mut String, in_extras: bool) {
        let in_scratch: BTreeSet<&str> =
            self.arrays.iter().filter(|array| array.scratch.is_some()).map(|array| array.compute.glsl()).collect();
        for glsl in in_scratch.iter().filter(|_| !in_extras) {
            let _ =
                writeln!(text, "layout(buffer_reference, scalar) coherent buffer Scratch_{glsl} {{ {glsl} v[]; }};");
        }
        for ChainArray { name, elements, compute, scratch } in &self.arrays {
            let glsl = compute.glsl();
            let _ = match scratch {
                None => writeln!(text, "shared {glsl} array_{name}[{elements}];\n#define {name}(i) array_{name}[i]"),
                Some(start) if in_extras => {
                    writeln!(text, "#define {name}(i) extras[SCRATCH + {}u + (i)]", start / compute.size())
                }
                Some(start) => writeln!(
                    text,
                    "#define {name}(i) Scratch_{glsl}(uvec2(p.scratch)).v[workgroup() * {}u + {}u + (i)]",
                    self.scratch_bytes / compute.size(),
                    start / compute.size()
                ),
            };
        }
    }
}

/// The start of a kernel after its parameters: formulas, the arrays and how the invocations meet. Where `shared_buffers` is set, they share what they
/// write to buffers of the integrator's.
pub(super) fn start(
    program: &ChainProgram,
    evaluation: &ChainEvaluation,
    storages: &[&str],
    memory: &ChainMemory,
    (threads, shared_buffers): (u32, bool),
    parameters: &str,
    caps: &Capabilities,
) -> String {
    let real = program.real().compute().glsl();
    let computes: Vec<Compute> = evaluation.computes.iter().copied().chain(memory.computes()).collect();
    let mut text = prelude::head(caps, false, storages, &computes, parameters);
    text.push_str("bool last_wins = false;\n#define LAST_WINS last_wins\n#include \"lib/reduce.glsl\"\n");
    let mut seen = BTreeSet::new();
    for file in evaluation.files.iter().filter(|&&file| file != "reduce.glsl" && seen.insert(file)) {
        let _ = writeln!(text, "#include \"lib/{file}\"");
    }
    define(&mut text, "REAL", real);
    define(&mut text, "D", format_args!("{}u", program.given.dimensions));
    define(&mut text, "THREADS", format_args!("{threads}u"));
    if threads == caps.subgroup {
        define(&mut text, "ONE_SUBGROUP", "");
    }
    if shared_buffers || memory.scratch_bytes > 0 {
        define(&mut text, "SHARED_BUFFERS", "");
    }
    let (lane, subgroup) =
        if caps.subgroup > 1 { ("gl_SubgroupInvocationID", "gl_SubgroupID") } else { ("0u", "INVOCATION") };
    define(&mut text, "LANE", lane);
    define(&mut text, "SUBGROUP", subgroup);
    text.push_str("#include \"lib/chain/workgroup.glsl\"\n");
    if !program.given.matrices.is_empty() {
        text.push_str("#include \"lib/chain/matrices.glsl\"\n");
    }
    text
}

/// Writes the function of the log-density, and the integrator's names of the arrays.
pub(super) fn function(text: &mut String, program: &ChainProgram, evaluation: &ChainEvaluation) {
    text.push_str(&evaluation.partials);
    let _ = write!(text, "REAL logp;\nbool wants_logp = true;\nvoid evaluate() {{\n{}}}\n", evaluation.body);
    define(text, "Q(i)", "S0(i)");
    define(text, "G(i)", format_args!("M{}(i)", program.given.gradient));
}

/// Writes the source of a kernel that integrates by leapfrog steps.
pub fn leapfrog_source(
    program: &ChainProgram,
    evaluation: &ChainEvaluation,
    memory: &ChainMemory,
    threads: u32,
    mass: InverseMass,
    parameters: &str,
    caps: &Capabilities,
) -> String {
    let real = program.real().compute().glsl();
    let operands = program.given.operands.iter().map(|ty| ty.storage());
    let storages: Vec<&str> = operands.chain([real, "uint"]).collect();
    let mut text = start(program, evaluation, &storages, memory, (threads, false), parameters, caps);
    memory.declarations(&mut text, false);
    for (slot, ty) in program.given.operands.iter().enumerate().skip(1) {
        let _ = writeln!(text, "#define S{slot}(i) AT({}, p.slot{slot}, i)", ty.storage());
    }
    function(&mut text, program, evaluation);
    text.push_str(
        "uint chain_index() { return workgroup(); }\n\
         #define CHAIN (p.first_chain + workgroup())\n\
         #define CHAINS p.chains\n\
         #define STEPS p.steps\n\
         #define EPS p.step_sizes.v[CHAIN * p.step_size_stride]\n\
         #define LOAD_Q(i) p.q.v[CHAIN * p.position_stride + p.position_offset + (i)]\n\
         #define LOAD_P(i) p.momentum.v[CHAIN * p.position_stride + p.position_offset + (i)]\n\
         #define OUTPUT(slot) (CHAIN * p.outputs + (p.outputs == 1u ? 0u : p.first_step + (slot)))\n\
         #define KEPT(slot) (p.outputs != 1u || (slot) + 1u == p.steps)\n\
         #define STORE(slot, i) if (KEPT(slot)) { \\\n\
         \x20 uint at = OUTPUT(slot) * D + (i); \\\n\
         \x20 p.q_chain.v[at] = Q(i); p.p_chain.v[at] = P(i); p.grad_chain.v[at] = G(i); }\n\
         #define STORE_LOGP(slot) if (KEPT(slot)) p.logp_chain.v[OUTPUT(slot)] = logp;\n",
    );
    text.push_str(match mass {
        InverseMass::Diagonal if program.given.dimensions <= threads.into() => {
            "#define OWN_INVERSE_MASS\n\
             #define INVERSE_MASS(i) p.inverse_mass.v[CHAIN * p.mass_stride + (i)]\n\
             #define VELOCITY(i) (inverse_mass * P(i))\n"
        }
        InverseMass::Diagonal => "#define VELOCITY(i) (p.inverse_mass.v[CHAIN * p.mass_stride + (i)] * P(i))\n",
        InverseMass::Dense => {
            "REAL velocity(uint i) {\n\
             \x20 REAL sum = REAL(0);\n\
             \x20 for (uint j = 0u; j < D; ++j) sum += p.inverse_mass.v[CHAIN * p.mass_stride + i * D + j] * P(j);\n\
             \x20 return sum;\n}\n\
             #define VELOCITY(i) velocity(i)\n\
             #define VELOCITY_OF_ALL\n"
        }
    });
    text.push_str("#include \"lib/chain/leapfrog.glsl\"\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_takes_the_integrator_longer_than_a_diagonal() {
        let cost = |dimensions, mass| {
            let LeapfrogCost { iterations, operations } = LeapfrogCost::new(dimensions, 8, mass);
            (iterations, operations)
        };
        assert_eq!(cost(3, InverseMass::Diagonal), (4, 10));
        assert_eq!(cost(10_000, InverseMass::Diagonal), (2502, 12_500));
        assert_eq!(cost(3, InverseMass::Dense), (10, 16));
        assert_eq!(cost(1500, InverseMass::Dense), (378 + 1 + 188 * 1502, 1880 + 2 * 188 * 1500));
    }
}
