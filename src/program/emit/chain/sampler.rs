//! Kernels of samplers: the state machines of `shaders/lib/chain/sampler.glsl` around a log-density. This module owns what a chain keeps
//! between two dispatches, and the names by which the kernel reaches it; it does not know what the sampler does.

use std::fmt::Write as _;

use super::ChainEvaluation;
use super::kernel::{ChainMemory, InverseMass, function, start};
use crate::device::Capabilities;
use crate::program::Type;
use crate::program::chain::ChainProgram;
use crate::program::emit::define;

/// Elements that an invocation has of each vector up to which they are in its registers.
const MAX_PRIVATE_STATE_ELEMENTS: u64 = 2;
/// The most values that the invocations add up at once.
const MAX_SUMS: u64 = 6;

/// The fewest transitions of a window, each of a step at least: a factor is made no more often.
const MIN_WINDOW: u64 = 15;

/// Matrices of a chain with a dense mass.
pub const DENSE_MATRICES: u64 = 3;

/// How a sampler makes a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SamplerAlgorithm {
    /// A trajectory of a random length, with a Metropolis test.
    Trajectory,
    /// The No-U-Turn sampler.
    Tree,
}

/// A sampler's algorithm and mass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SamplerKind {
    /// How a transition is made.
    pub algorithm: SamplerAlgorithm,
    /// What the warm-up finds of the inverse mass.
    pub mass: InverseMass,
}

/// Words of a chain's state that the host reads after each dispatch: transitions done, divergences, leapfrog steps, whether the start
/// failed, and the step size and the mean acceptance in single precision.
const REPORTED: [&str; 4] = ["transition", "divergences", "leapfrogs", "failed"];
const REPORTED_NUMBERS: [&str; 2] =
    ["step_size", "accepted / REAL(max(1u, transition <= p.warmup ? transition : transition - p.warmup))"];
/// Other words of a chain's state.
const WORDS: [&str; 11] = [
    "phase",
    "depth",
    "point",
    "points",
    "forward",
    "trial",
    "growing",
    "window",
    "averaged",
    "gathered",
    "length_left",
];
/// Numbers of a chain's state.
const NUMBERS: [&str; 13] = [
    "step_size",
    "start_energy",
    "weight",
    "sub_weight",
    "accept_sum",
    "draw_logp",
    "draw_energy",
    "sub_logp",
    "sub_energy",
    "shrink_to",
    "mean_error",
    "log_mean",
    "accepted",
];
/// Vectors of a chain's state that most steps need.
const VECTORS: [&str; 10] =
    ["DRAW_Q", "DRAW_G", "SUB_Q", "SUB_G", "OTHER_Q", "OTHER_P", "OTHER_G", "RHO", "SUB_RHO", "SCALE"];
/// Vectors that are always in memory: the moments of a window, and position, momentum and gradient between two dispatches.
const STORED_VECTORS: [&str; 5] = ["MEAN", "SPREAD", "STORED_Q", "STORED_P", "STORED_G"];
/// Vectors of a checkpoint.
const CHECKPOINT_VECTORS: [&str; 3] = ["FIRST", "BEFORE", "SUM"];

/// How much a chain keeps between two dispatches.
#[derive(Clone, Copy, Debug)]
pub struct SamplerState {
    /// 32-bit words.
    pub words: u64,
    /// Numbers of the position's type.
    pub numbers: u64,
    /// Vectors of the position's length.
    pub vectors: u64,
}

impl SamplerState {
    /// The state of a chain whose trees have that depth at most.
    pub fn new(max_depth: u64) -> Self {
        Self {
            words: (REPORTED.len() + REPORTED_NUMBERS.len() + WORDS.len()) as u64,
            numbers: NUMBERS.len() as u64,
            vectors: (VECTORS.len() + STORED_VECTORS.len()) as u64 + CHECKPOINT_VECTORS.len() as u64 * max_depth,
        }
    }
}

/// What a sampler adds to a log-density's kernel.
#[derive(Clone, Copy, Debug)]
pub struct SamplerShape {
    /// Elements of a vector that an invocation has.
    elements: u64,
    dimensions: u64,
    mass: InverseMass,
    lanes: u32,
    subgroups: u32,
}

impl SamplerShape {
    /// That of positions of `dimensions` elements and a workgroup of `threads` invocations.
    pub fn new(dimensions: u64, threads: u32, mass: InverseMass, caps: &Capabilities) -> Self {
        let lanes = caps.subgroup.clamp(1, threads);
        Self { elements: dimensions.div_ceil(threads.into()), dimensions, mass, lanes, subgroups: threads / lanes }
    }

    /// Bytes of the workgroup's memory for sums of numbers of that size.
    pub fn shared_bytes(&self, size: u64) -> u64 {
        if self.subgroups > 1 { MAX_SUMS * u64::from(self.subgroups) * size } else { 0 }
    }

    /// Iterations of loops that an invocation makes in a step besides the evaluation, on average of any number of steps, and those that it
    /// makes besides once in a dispatch.
    pub fn iterations(&self) -> (u64, u64) {
        // The checks of a tree are one loop for each point on average; vectors are looped over some 30 times.
        let each = 3 + if self.in_registers() { 0 } else { 32 * self.elements };
        match self.mass {
            InverseMass::Diagonal => (each, 0),
            InverseMass::Dense => {
                // Products, eight elements at a time, and the covariance; the factor at the end of a window.
                let d = self.dimensions;
                let factor = d * (2 + self.elements + (1 + self.elements) * d.div_ceil(16)) + self.elements * d;
                (each + self.elements * (4 * d.div_ceil(8) + 6) + factor / MIN_WINDOW, factor)
            }
        }
    }

    /// Lines that an invocation runs in a step besides the evaluation.
    pub fn operations(&self) -> u64 {
        let matrix = if self.mass == InverseMass::Dense { 4 * self.elements * self.dimensions } else { 0 };
        200 + 100 * self.elements + matrix
    }

    fn in_registers(&self) -> bool {
        self.elements <= MAX_PRIVATE_STATE_ELEMENTS
    }
}

/// Writes the source of a sampler's kernel.
pub fn sampler_source(
    program: &ChainProgram,
    evaluation: &ChainEvaluation,
    memory: &ChainMemory,
    threads: u32,
    kind: SamplerKind,
    parameters: &str,
    caps: &Capabilities,
) -> String {
    let real = program.real().compute().glsl();
    let operands = program.given.operands.iter().map(|ty| ty.storage());
    let storages: Vec<&str> = operands.chain([real, "uint"]).collect();
    let shape = (threads, kind.mass == InverseMass::Dense);
    let mut text = start(program, evaluation, &storages, memory, shape, parameters, caps);
    memory.declarations(&mut text, false);
    for (slot, ty) in program.given.operands.iter().enumerate().skip(1) {
        let _ = writeln!(text, "#define S{slot}(i) AT({}, p.slot{slot}, i)", ty.storage());
    }
    function(&mut text, program, evaluation);
    let shape = SamplerShape::new(program.given.dimensions, threads, kind.mass, caps);
    define(&mut text, "LANES", shape.lanes);
    define(&mut text, "SUBGROUPS", shape.subgroups);
    define(&mut text, "CHAIN", "(p.first_chain + workgroup())");
    if program.real() == Type::F64 {
        text.push_str("#define REAL_IS_DOUBLE\n#define REAL_OF(bits) packDouble2x32(bits)\n");
    } else {
        text.push_str("#define REAL_OF(bits) uintBitsToFloat((bits).x)\n");
    }
    if kind.algorithm == SamplerAlgorithm::Tree {
        define(&mut text, "TREE", "");
    }
    elements(&mut text, program.given.dimensions, threads, shape);
    state(&mut text, shape);
    match kind.mass {
        InverseMass::Diagonal => {
            text.push_str("#define VELOCITY (SCALE * P(ELEMENT))\n#define FORCE (SCALE * G(ELEMENT))\n");
        }
        InverseMass::Dense => dense_mass(&mut text, program, real),
    }
    text.push_str("#include \"lib/chain/random.glsl\"\n#include \"lib/chain/sampler.glsl\"\n");
    text
}

/// The matrices of a chain, and the products with the factor once there is one.
fn dense_mass(text: &mut String, program: &ChainProgram, real: &str) {
    if program.given.matrices.is_empty() {
        text.push_str("#include \"lib/chain/matrices.glsl\"\n");
    }
    let _ = write!(
        text,
        "layout(buffer_reference, scalar) coherent buffer Matrices {{ {real} v[]; }};\n\
         #define MATRIX(number, e) Matrices(uvec2(p.matrices)).v[(CHAIN * {DENSE_MATRICES}u + number) * (D * D) + (e)]\n\
         #define FACTOR(e) MATRIX(0u, e)\n#define TRANSPOSED(e) MATRIX(1u, e)\n#define COVARIANCE(e) MATRIX(2u, e)\n\
         #define DENSE_MASS\n\
         #include \"lib/chain/dense_mass.glsl\"\n\
         #define VELOCITY (window == 0u ? P(ELEMENT) : dense_velocity(ELEMENT))\n\
         #define FORCE (window == 0u ? G(ELEMENT) : dense_force(ELEMENT))\n"
    );
}

/// The loop over the elements of vectors that an invocation has.
fn elements(text: &mut String, dimensions: u64, threads: u32, shape: SamplerShape) {
    let guard = if dimensions.is_multiple_of(threads.into()) {
        String::new()
    } else {
        format!(" if (ELEMENT < {dimensions}u)")
    };
    let hint = if shape.in_registers() { "unroll" } else { "dont_unroll" };
    define(text, "ELEMENT", "(INVOCATION + k * THREADS)");
    define(text, "EACH", format_args!("[[{hint}]] for (uint k = 0u; k < {}u; ++k){guard}", shape.elements));
}

/// The chain's state: its variables, its vectors, and how they are loaded and stored.
fn state(text: &mut String, shape: SamplerShape) {
    let word = |i: usize| format!("p.words.v[CHAIN * {}u + {i}u]", SamplerState::new(0).words);
    let number = |i: usize| format!("p.numbers.v[CHAIN * {}u + {i}u]", NUMBERS.len());
    let vector = |i: String| format!("p.vectors.v[CHAIN * p.vector_stride + ({i}) * D + ELEMENT]");
    let (mut load, mut store) = (String::new(), String::new());
    let words = REPORTED.iter().enumerate();
    for (i, name) in words.chain((REPORTED.len() + REPORTED_NUMBERS.len()..).zip(&WORDS)) {
        let _ = writeln!(text, "uint {name};");
        let _ = writeln!(load, "  {name} = {};", word(i));
        let _ = writeln!(store, "    {} = {name};", word(i));
    }
    for (i, value) in (REPORTED.len()..).zip(REPORTED_NUMBERS) {
        let _ = writeln!(store, "    {} = floatBitsToUint(float({value}));", word(i));
    }
    for (i, name) in NUMBERS.iter().enumerate() {
        let _ = writeln!(text, "REAL {name};");
        let _ = writeln!(load, "  {name} = {};", number(i));
        let _ = writeln!(store, "    {} = {name};", number(i));
    }
    text.push_str("REAL energy;\n");
    store.push_str("    p.step_sizes.v[CHAIN] = step_size;\n");
    let (mut load_vectors, mut store_vectors) = (String::new(), String::new());
    for (i, name) in VECTORS.iter().enumerate() {
        let stored = vector(format!("{i}u"));
        if shape.in_registers() {
            let _ = writeln!(text, "REAL vector_{name}[{}];\n#define {name} vector_{name}[k]", shape.elements);
            let _ = writeln!(load_vectors, "    {name} = {stored};");
            let _ = writeln!(store_vectors, "    {stored} = {name};");
        } else {
            let _ = writeln!(text, "#define {name} {stored}");
        }
    }
    for (i, name) in (VECTORS.len()..).zip(STORED_VECTORS) {
        let _ = writeln!(text, "#define {name} {}", vector(format!("{i}u")));
    }
    let first = VECTORS.len() + STORED_VECTORS.len();
    for (i, name) in (first..).zip(CHECKPOINT_VECTORS) {
        let _ = writeln!(text, "#define {name}(s) {}", vector(format!("{i}u + {}u * (s)", CHECKPOINT_VECTORS.len())));
    }
    for name in ["Q", "P", "G"] {
        let _ = writeln!(load_vectors, "    {name}(ELEMENT) = STORED_{name};");
        let _ = writeln!(store_vectors, "    STORED_{name} = {name}(ELEMENT);");
    }
    let _ = write!(
        text,
        "void load_chain() {{\n{load}  {{ EACH {{\n{load_vectors}  }} }}\n}}\n\
         void store_chain() {{\n  if (INVOCATION == 0u) {{\n{store}  }}\n  {{ EACH {{\n{store_vectors}  }} }}\n}}\n"
    );
}
