//! The kernels around `shaders/lib/attention.glsl` and `attention_matrix.glsl`: what their text depends on, and their parameters. It does not choose tiles.

use std::fmt::Write as _;

use super::Attention;
use super::update::{UpdateKernel, UpdateMemory};
use crate::device::Capabilities;
use crate::graph::Params;
use crate::kernels::KernelSpec;
use crate::kernels::contraction::{OperandView, matrix_loads, multiply_add};
use crate::memory::Allocation;
use crate::pipeline::glsl::SPIRV_1_6;
use crate::program::Type;
use crate::program::emit::{EmittedEpilogue, head, load, of_compute, stored, vec4_of};
use crate::program::epilogue::EpilogueProgram;
use crate::program::types::Compute;
use crate::tuning::attention::{AttentionProblem, AttentionStrategy, AttentionTile, KeyLoads};

/// What the names of the parameters of the two programs begin with.
const PREFIXES: [&str; 2] = ["score_", "weight_"];

/// All that the GLSL depends on besides the device.
#[derive(Hash)]
pub(super) struct AttentionKernel {
    /// Types of the queries, the keys, the values and the result.
    pub types: [Type; 4],
    /// For each, whether four elements along a head are loaded or stored at once.
    pub vectors: [bool; 4],
    /// How many batch axes and rows there are.
    pub axes: [usize; 2],
    /// Elements of a key and of a value.
    pub sizes: [u64; 2],
    pub tile: AttentionTile,
    pub accumulator: Compute,
    /// The type of sums of weights.
    pub total: Compute,
    pub split: bool,
    /// How many parts of the keys it combines, where it does that.
    pub combine: Option<u64>,
    pub programs: [Option<EpilogueProgram>; 2],
    /// Whether the last axis of each program is that of the keys alone.
    pub ends_in_keys: [bool; 2],
    /// Of the keys and of the values.
    pub updates: [Option<UpdateKernel>; 2],
    pub index64: bool,
}

/// What one launch gives.
pub(super) struct AttentionArgs<'a> {
    pub attention: &'a Attention<'a>,
    /// Queries, and keys and values as they are after all updates.
    pub operands: [&'a Allocation; 3],
    pub updates: [Option<&'a UpdateMemory>; 2],
    pub result: &'a Allocation,
    /// Sums, largest scores and sums of weights of the parts of the keys.
    pub partials: Option<[&'a Allocation; 3]>,
    pub problem: AttentionProblem,
    pub strategy: AttentionStrategy,
}

/// Threads of a workgroup that combines parts.
const COMBINING_THREADS: u64 = 64;

const NAMES: [&str; 4] = ["q", "k", "v", "c"];
const BATCH_NAMES: [&str; 4] = ["q_batch", "k_batch", "v_batch", "c_batch"];
const ROW_NAMES: [&str; 4] = ["q_row", "", "", "c_row"];

impl KernelSpec for AttentionKernel {
    type Args<'a> = AttentionArgs<'a>;

    fn params<'a>(&self, args: &AttentionArgs<'a>, params: &mut Params<'a>) {
        let (attention, index64) = (args.attention, self.index64);
        if self.combine.is_none() {
            for (i, allocation) in args.operands.into_iter().enumerate() {
                let OperandView { ty, offset, .. } = attention.operands[i];
                let (offset, is_updated) = (offset as u64 * ty.size(), i > 0 && self.updates[i - 1].is_some());
                match is_updated {
                    true => params.update_at(allocation, offset, ty.storage(), NAMES[i]),
                    false => params.read_at(allocation, offset, ty.storage(), NAMES[i]),
                }
            }
        }
        let updates = || {
            let given = attention.updates.iter().zip(args.updates);
            let both = self.updates.iter().zip(given).enumerate();
            both.filter_map(|(i, (kernel, (update, memory)))| Some((i, kernel.as_ref()?, update.as_ref()?, memory?)))
        };
        for (i, kernel, update, memory) in updates() {
            kernel.inputs(i, update, memory, params);
        }
        if self.combine.is_some() || !self.split {
            params.write(args.result, self.types[3].storage(), "c");
        }
        let storages = [self.accumulator.glsl(), "float", self.total.glsl()];
        for (i, name) in ["sums", "maxima", "totals"].into_iter().enumerate() {
            match args.partials {
                Some(partials) if self.combine.is_some() => params.read(partials[i], storages[i], name),
                Some(partials) => params.write(partials[i], storages[i], name),
                None => {}
            }
        }
        let used = || attention.programs.iter().zip(PREFIXES).filter(|_| self.combine.is_none());
        for (program, prefix) in used() {
            program.iter().for_each(|program| program.inputs(prefix, params));
        }
        let AttentionProblem { batches, queries, keys, depth, values, .. } = args.problem;
        if self.combine.is_none() {
            // A multiplication and an addition for each element of a key and of a value.
            params.operations(2 * batches * queries * keys * (depth + values));
        }
        params.extents(index64, [("groups", self.groups(args)), ("batches", batches)]);
        params.extents(index64, [("queries", queries), ("keys", keys)]);
        params.extents(index64, [("splits", args.strategy.splits), ("chunk", args.strategy.chunk)]);
        for (axes, dim, names) in
            [(&attention.batch, "batch_dim", BATCH_NAMES), (&attention.rows, "row_dim", ROW_NAMES)]
        {
            for (a, axis) in axes.iter().enumerate() {
                params.extent(axis.dim, index64, (dim, a));
                for (name, stride) in names.into_iter().zip(axis.strides).filter(|(name, _)| !name.is_empty()) {
                    params.index(stride, index64, (name, a));
                }
            }
        }
        let (depth, keys, columns) = (&attention.depth, &attention.keys, &attention.columns);
        for (axis, i, name) in
            [(depth, 0, "q_depth"), (depth, 1, "k_depth"), (columns, 2, "v_depth"), (columns, 3, "c_depth")]
        {
            params.index(axis.strides[i], index64, name);
        }
        params.index(keys.strides[1], index64, "k_key");
        params.index(keys.strides[2], index64, "v_key");
        for (i, kernel, update, _) in updates() {
            kernel.steps(i, update, index64, params);
        }
        for (program, prefix) in used() {
            program.iter().for_each(|program| program.steps(prefix, index64, params));
        }
    }

    fn name(&self) -> String {
        let [q, k, v, c] = self.types.map(Type::suffix);
        let AttentionTile { queries, keys, .. } = self.tile;
        let kind = if self.combine.is_some() { "combine attention" } else { "attention" };
        format!("{kind} {queries}×{keys} {q}·{k}·{v} → {c}")
    }

    fn groups(&self, args: &AttentionArgs) -> u64 {
        let AttentionProblem { batches, queries, values, .. } = args.problem;
        match self.combine {
            Some(_) => (batches * queries * values.div_ceil(4)).div_ceil(COMBINING_THREADS),
            None => batches * queries.div_ceil(self.tile.queries.into()) * args.strategy.splits,
        }
    }

    fn source(&self, caps: &Capabilities, parameters: &str) -> String {
        let function = |i: usize| {
            let name = ["score", "value_weight"][i];
            let program = self.programs[i].as_ref()?;
            Some(EmittedEpilogue::function(program, name, PREFIXES[i], self.ends_in_keys[i], caps))
        };
        let functions = [function(0), function(1)];
        let mut storages = vec![self.accumulator.glsl(), self.total.glsl(), "float"];
        storages.extend(self.types.map(Type::storage));
        let mut computes = vec![Compute::Float, self.accumulator, self.total];
        for function in functions.iter().flatten() {
            storages.extend_from_slice(&function.storages);
            computes.extend_from_slice(&function.computes);
        }
        let positions: Vec<Type> = self.updates.iter().flatten().filter_map(|update| update.position).collect();
        storages.extend(positions.iter().map(|ty| ty.storage()));
        computes.extend(positions.iter().map(|ty| ty.compute()));
        let mut text = head(caps, self.index64, &storages, &computes, parameters);
        let mut included = vec!["math/exp.glsl"];
        if !positions.is_empty() {
            included.push("indices.glsl");
        }
        included.iter().for_each(|file| text += &format!("#include \"lib/{file}\"\n"));
        for function in functions.iter().flatten() {
            text += &function.includes(&included);
            text += &function.functions;
            included.extend_from_slice(&function.files);
        }
        if functions[0].is_none() {
            text += "float score(IDX i, IDX row, IDX column, float x) { return x; }\n";
        }
        let weight = if functions[1].is_some() { "value_weight(i, row, column, w)" } else { "w" };
        let _ = writeln!(text, "#define WEIGHT(i, row, column, w) {weight}");
        self.definitions(&mut text, caps);
        self.elements(&mut text);
        let file = if self.tile.loads == KeyLoads::Matrices { "attention_matrix" } else { "attention" };
        text + &format!("#include \"lib/{file}.glsl\"\n")
    }
}

impl AttentionKernel {
    /// The sizes of the tile, and the types of sums.
    fn definitions(&self, text: &mut String, caps: &Capabilities) {
        let AttentionTile { queries, keys, rows, column_threads, key_threads, value_threads, loads, lanes } = self.tile;
        let threads = if self.combine.is_some() { COMBINING_THREADS } else { self.tile.threads().into() };
        let numbers = [
            ("QUERIES", queries.into()),
            ("KEYS", keys.into()),
            ("ROWS", rows.into()),
            ("COLUMN_THREADS", column_threads.into()),
            ("KEY_THREADS", key_threads.into()),
            ("VALUE_THREADS", value_threads.into()),
            ("LANES", lanes.into()),
            ("DEPTH", self.sizes[0]),
            ("VALUES", self.sizes[1]),
            ("STAGED", u64::from(loads == KeyLoads::Staged)),
            ("PREFETCHED", u64::from(loads == KeyLoads::Prefetched)),
            ("NEW_KEY", u64::from(self.updates[0].is_some())),
            ("NEW_VALUE", u64::from(self.updates[1].is_some())),
            ("SPLIT", u64::from(self.split)),
            ("COMBINE", u64::from(self.combine.is_some())),
            ("SPLITS", self.combine.unwrap_or(0)),
        ];
        for (name, number) in numbers {
            let _ = writeln!(text, "#define {name} {number}");
        }
        if self.combine.is_some() {
            let _ = writeln!(text, "#define THREADS {threads}u");
        }
        if lanes > 1 {
            text.push_str("#include \"lib/exchange.glsl\"\n");
        }
        let _ = write!(
            text,
            "layout(local_size_x = {threads}) in;\n#define LOOP {}\n#define MULTIPLY_ADD(a, b, c) {}\n",
            // Compilers of GPUs unroll them to have loads ahead; a CPU driver would take seconds.
            match loads {
                _ if caps.kind == "cpu" => "[[dont_unroll]]",
                KeyLoads::Prefetched => "[[unroll]]",
                _ => "",
            },
            multiply_add(caps, self.accumulator),
        );
        // Off by two ulps of f32 at most: results have the operands' 16 bits.
        let mean = (loads == KeyLoads::Matrices).then_some("((s) * (1.0f / (t)))");
        sum_macros(text, self.accumulator, self.total, mean);
    }

    /// How elements are read and written, and where they are.
    fn elements(&self, text: &mut String) {
        for (batch, row) in BATCH_NAMES.into_iter().zip(ROW_NAMES) {
            offsets(text, batch, "batch_dim", self.axes[0]);
            if !row.is_empty() {
                offsets(text, row, "row_dim", self.axes[1]);
            }
        }
        if self.tile.loads == KeyLoads::Matrices {
            self.matrices(text);
        } else if self.combine.is_none() {
            for i in 0..3 {
                self.load(text, i);
            }
            for (i, update) in self.updates.iter().enumerate() {
                let Some(update) = update else { continue };
                offsets(text, UpdateKernel::batch_name(i), "batch_dim", self.axes[0]);
                update.macros(text, i, self.types[i + 1]);
            }
        }
        if self.combine.is_some() || !self.split {
            self.store(text);
        }
    }

    /// How eight elements along a head are read, and what programs there are.
    fn matrices(&self, text: &mut String) {
        text.push_str(SPIRV_1_6);
        text.push_str(&matrix_loads(self.types[0], self.index64));
        for name in ['q', 'k', 'v'] {
            let _ = writeln!(text, "#define {}_EIGHT(offset) EIGHT(p.{name}, offset)", name.to_ascii_uppercase());
        }
        for (name, program) in ["SCORES", "WEIGHTS"].into_iter().zip(&self.programs) {
            let _ = writeln!(text, "#define {name} {}", u8::from(program.is_some()));
        }
    }

    /// The macro that reads four elements along a head, in a buffer where they are `step` apart. No function: the parameters that name the buffer
    /// may be in memory that is only read, which a function's parameter cannot say in SPIR-V.
    fn load(&self, text: &mut String, i: usize) {
        let (ty, name, len) = (self.types[i], NAMES[i], self.sizes[usize::from(i == 2)]);
        let storage = ty.storage();
        let vector = |value: &dyn Fn(usize) -> String| format!("vec4({})", [0, 1, 2, 3].map(value).join(", "));
        let _ = if self.vectors[i] {
            let values = vector(&|c| load(ty, &format!("x[{c}]")));
            writeln!(
                text,
                "vec4 {name}_of({} x) {{ return {values}; }}\n\
                 #define {name}_at(b, base, step, d) {name}_of(LOAD_VEC4({storage}, b, ((base) + (d)) / 4))",
                vec4_of(storage)
            )
        } else {
            let values = vector(&|c| {
                let value = load(ty, &format!("AT({storage}, b, (base) + ((d) + {c}u) * (step))"));
                format!("(d) + {c}u < {len}u ? {value} : 0.0f")
            });
            writeln!(text, "#define {name}_at(b, base, step, d) {values}")
        };
    }

    /// The macro that stores four elements along a head.
    fn store(&self, text: &mut String) {
        let (ty, len, total) = (self.types[3], self.sizes[1], of_compute(self.total));
        let storage = ty.storage();
        let value = |c: usize| stored(ty, (format!("x[{c}]"), total));
        let _ = writeln!(text, "void store_values(IDX base, uint d, TOTAL4 x) {{");
        if self.vectors[3] {
            let vector = vec4_of(storage);
            let _ = writeln!(
                text,
                "  SET_VEC4({storage}, p.c, (base + d) / 4, {vector}({}, {}, {}, {}));",
                value(0),
                value(1),
                value(2),
                value(3),
            );
        } else {
            for c in 0..4 {
                let at = format!("base + (d + {c}u) * p.c_depth");
                let _ = writeln!(text, "  if (d + {c}u < {len}u) AT({storage}, p.c, {at}) = {};", value(c));
            }
        }
        text.push_str("}\n#define STORE_VALUES(at, d, v) store_values(at, d, v)\n");
    }
}

/// The macros of sums of products and of weights, and of their quotients, which are exact but for rounding unless `mean` is given.
pub(super) fn sum_macros(text: &mut String, accumulator: Compute, total: Compute, mean: Option<&str>) {
    let vector = |compute| if compute == Compute::Double { "dvec4" } else { "vec4" };
    let (exact, divisor, quotient) = match total {
        Compute::Double => ("(dvec4(s) * (1.0lf / (t)))", "(1.0lf / (t))", "(double(s) * (t))"),
        _ => {
            let quotients = "vec4(nx_divide(s.x, t), nx_divide(s.y, t), nx_divide(s.z, t), nx_divide(s.w, t))";
            (quotients, "(t)", "nx_divide(s, t)")
        }
    };
    let mean = mean.unwrap_or(exact);
    let (sum4, total4) = (vector(accumulator), vector(total));
    let (sum, total) = (accumulator.glsl(), total.glsl());
    // `AT` with 64-bit indices pastes the name that it gets.
    let _ = write!(
        text,
        "#define SUM {sum}\n#define SUM4 {sum4}\n#define TOTAL {total}\n#define TOTAL4 {total4}\n\
         #define Buffer_TOTAL Buffer_{total}\n#define SIZE_TOTAL SIZE_{total}\n\
         #define Buffer_SUM Buffer_{sum}\n#define SIZE_SUM SIZE_{sum}\n\
         #define MEAN(s, t) {mean}\n#define DIVISOR(t) {divisor}\n#define SUM_OVER(s, t) {quotient}\n"
    );
}

/// The function `name` of an index along several axes: the sum of its parts' strides `p.{name}{axis}`.
fn offsets(text: &mut String, name: &str, dim: &str, axes: usize) {
    let _ = writeln!(text, "IDX {name}(IDX i) {{\n  IDX offset = 0;");
    for axis in (0..axes).rev() {
        let _ = match axis {
            0 => writeln!(text, "  offset += i * p.{name}0;"),
            _ => writeln!(
                text,
                "  IDX next{axis} = i / p.{dim}{axis};\n\
                 \x20 offset += (i - next{axis} * p.{dim}{axis}) * p.{name}{axis};\n  i = next{axis};"
            ),
        };
    }
    text.push_str("  return offset;\n}\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::spec::check_matrix_kernel;
    use crate::tuning::attention::choose;

    #[test]
    fn kernels_of_cooperative_matrices_are_valid_without_a_device_that_has_them() {
        let caps = &crate::tuning::devices::h200();
        let mut params = Params::with_declarations(caps);
        for name in NAMES {
            params.absent(Type::F16.storage(), name);
        }
        for name in ["groups", "batches", "queries", "keys", "splits", "chunk"] {
            params.extent(0, false, name);
        }
        for (dim, names) in [("batch_dim", BATCH_NAMES), ("row_dim", ROW_NAMES)] {
            params.extent(0, false, (dim, 0));
            names.iter().filter(|name| !name.is_empty()).for_each(|name| params.index(0, false, (*name, 0)));
        }
        for name in ["q_depth", "k_depth", "v_depth", "c_depth", "k_key", "v_key"] {
            params.index(0, false, name);
        }
        let parameters = params.block(false);
        for ty in [Type::F16, Type::BF16] {
            for (batches, depth, values) in [(12, 64, 64), (96, 64, 32), (1000, 64, 64), (1000, 128, 80)] {
                let problem =
                    AttentionProblem { batches, queries: 128, keys: 200, depth, values, matrix_type: Some(ty) };
                let AttentionStrategy { tile, accumulator, .. } = choose(problem, caps);
                assert_eq!(tile.loads, KeyLoads::Matrices);
                let kernel = AttentionKernel {
                    types: [ty; 4],
                    vectors: [true; 4],
                    axes: [1, 1],
                    sizes: [depth, values],
                    tile,
                    accumulator,
                    total: Compute::Float,
                    split: false,
                    combine: None,
                    programs: [None, None],
                    ends_in_keys: [false; 2],
                    updates: [None, None],
                    index64: false,
                };
                check_matrix_kernel(&kernel.source(caps, &parameters), ty);
            }
        }
    }
}
