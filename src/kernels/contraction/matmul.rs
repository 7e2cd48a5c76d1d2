//! The kernel of matrix products by tiles: `lib/matmul.glsl`, `lib/matmul_lanes.glsl` and `lib/matmul_matrix.glsl` with what they
//! ask for. This module knows no strategy: which tile it is, and how operands are read, its specification says.

use std::fmt::Write as _;

use super::indexing::{self, Indexing};
use super::loads::{byte_loads, matrix_loads, shared_vector, vector_of};
use super::stores::KernelEpilogue;
use crate::device::Capabilities;
use crate::graph::Params;
use crate::kernels::KernelSpec;
use crate::kernels::fusion::Destination;
use crate::memory::Allocation;
use crate::program::Type;
use crate::program::emit::{EmittedEpilogue, convert, head, load, vec4_bytes};
use crate::program::types::Compute;
use crate::tuning::contraction::{AxisGroups, OperandLoad, TABLE_ENTRIES, Tile, TileMethod, Tiling, shared_width};

/// The kernel of a tile.
#[derive(Hash)]
pub struct MatmulKernel {
    /// The type of the result or, where k is split, of the partial sums.
    pub(super) ty: Type,
    /// The type that both operands are multiplied in.
    pub(super) inner: Type,
    operand_types: [Type; 2],
    pub(super) accumulator: Compute,
    tile: Tile,
    pub(super) indexing: Indexing,
    pub(super) index64: bool,
    loads: [OperandLoad; 2],
    /// Whether offsets in the operands are a thread's offset of 32 bits plus a uniform one.
    affine: bool,
    /// Whether k is split: if not, all threads begin at the same step, and drivers need a constant to see that.
    split: bool,
    /// Whether neighbours in the result are stored at once.
    pub(super) vector_stores: bool,
    /// Whether a step along k steps along one axis.
    depth_in_steps: bool,
    pub(super) epilogue: Option<KernelEpilogue>,
}

/// What a launch gives: the result, the operands with their offsets in bytes, and the numbers of the tiling.
pub struct MatmulArgs<'a> {
    pub c: Destination<'a>,
    pub operands: [(&'a Allocation, u64); 2],
    pub groups: &'a AxisGroups,
    pub splits: u64,
    pub chunk: u64,
}

/// a·b + c as GLSL. Devices that promise infinities and signed zeros may not fuse the two by themselves.
pub fn multiply_add(caps: &Capabilities, accumulator: Compute) -> &'static str {
    match accumulator {
        Compute::Complex | Compute::ComplexDouble => "(c_multiply(a, b) + (c))",
        Compute::Float | Compute::Double if caps.fma => "fma(a, b, c)",
        _ => "((a) * (b) + (c))",
    }
}

impl KernelSpec for MatmulKernel {
    type Args<'a> = MatmulArgs<'a>;

    fn name(&self) -> String {
        let Self { tile, operand_types: [a, b], .. } = self;
        let method = match tile.method {
            TileMethod::Shared => "",
            _ => &format!("{:?} ", tile.method),
        };
        let split = if self.split { " of a part of k" } else { "" };
        let (rows, columns, depth) = (tile.rows, tile.columns, tile.depth);
        let (a, b, c) = (a.suffix(), b.suffix(), self.ty.suffix());
        format!("matmul {method}{rows}×{columns}×{depth} {a}·{b} → {c}{split}")
    }

    fn params<'a>(&self, args: &MatmulArgs<'a>, params: &mut Params<'a>) {
        let index64 = self.index64;
        args.c.operands(self.ty, "c", params);
        for (i, name) in ["a", "b"].into_iter().enumerate() {
            let (allocation, offset) = args.operands[i];
            params.read_at(allocation, offset, self.operand_types[i].storage(), name);
        }
        let [_, m, n, k] = args.groups.sizes();
        params.operations(args.groups.operations());
        params.extents(index64, [("m", m), ("n", n), ("k", k), ("groups", self.groups(args))]);
        let elements = args.groups.elements();
        params.extents(index64, [("splits", args.splits), ("chunk", args.chunk), ("elements", elements)]);
        indexing::params(args.groups, params, index64);
        args.c.indices(index64, params);
    }

    fn groups(&self, args: &MatmulArgs<'_>) -> u64 {
        let [batch, m, n, _] = args.groups.sizes();
        self.tile.workgroups(m, n) * batch * args.splits
    }

    fn source(&self, caps: &Capabilities, parameters: &str) -> String {
        let epilogue = self.epilogue.as_ref().map(|epilogue| epilogue.emit(caps));
        format!(
            "{}#include \"lib/complex.glsl\"\n{}{}{}{}{}{}{}{}#include \"lib/{}.glsl\"\n{}",
            self.head(caps, epilogue.as_ref(), parameters),
            epilogue.map(|epilogue| epilogue.includes(&[]) + &epilogue.functions).unwrap_or_default(),
            self.tile_defines(),
            self.type_defines(caps),
            self.indexing.offset_functions(),
            self.depth(),
            self.padding(),
            self.operands(),
            self.stores(),
            self.file(),
            self.main(),
        )
    }
}

impl MatmulKernel {
    pub fn new(
        tiling: &Tiling,
        groups: &AxisGroups,
        operand_types: [Type; 2],
        inner: Type,
        epilogue: Option<KernelEpilogue>,
    ) -> Self {
        let &Tiling { tile, accumulator, splits, ty, index64, loads, affine, vector_stores, .. } = tiling;
        let width = if tile.method == TileMethod::Matrix { 4 } else { shared_width(inner.compute()) };
        let four = |epilogue: &KernelEpilogue| !epilogue.rolled && width == 4 && epilogue.vectors.is_some();
        Self {
            ty,
            inner,
            operand_types,
            accumulator,
            tile,
            indexing: Indexing::of(groups),
            index64,
            loads,
            affine,
            split: splits > 1,
            vector_stores: vector_stores && epilogue.as_ref().is_none_or(four),
            depth_in_steps: !tile.is_by_lanes() && groups.depth_in_steps(tile.depth),
            epilogue,
        }
    }

    fn file(&self) -> &'static str {
        match self.tile.method {
            TileMethod::Shared => "matmul",
            TileMethod::Lanes => "matmul_lanes",
            TileMethod::Matrix => "matmul_matrix",
        }
    }

    fn is_matrix(&self) -> bool {
        self.tile.method == TileMethod::Matrix
    }

    fn head(&self, caps: &Capabilities, epilogue: Option<&EmittedEpilogue>, parameters: &str) -> String {
        let [a, b] = self.operand_types;
        let mut storages = [self.ty, a, b].map(|ty| ty.storage()).to_vec();
        let mut computes = vec![self.ty.compute(), a.compute(), b.compute(), self.accumulator];
        if let Some(epilogue) = epilogue {
            storages.extend_from_slice(&epilogue.storages);
            computes.extend_from_slice(&epilogue.computes);
        }
        head(caps, self.index64, &storages, &computes, parameters)
    }

    /// The lines that choose the tile.
    fn tile_defines(&self) -> String {
        let element = self.inner.compute();
        let Tile { rows, columns, depth, thread_rows, thread_columns, slices, .. } = self.tile;
        format!(
            "#define BM {rows}u\n#define BN {columns}u\n#define BK {depth}u\n#define TM {thread_rows}\n\
             #define TN {thread_columns}\n#define SLICES {slices}\n#define SHARED_STORES {}\n#define SLICE_ROWS {}\n\
             #define WM TM\n#define WN TN\n#define WIDTH {}\n\
             #define VECTOR {}\n#define UNROLLED_STEPS {}\n",
            u8::from(self.tile.shares_stores()),
            self.tile.slice_rows(element.size(), self.accumulator.size()),
            shared_width(element),
            shared_vector(element),
            self.unrolled_steps(),
        )
    }

    /// How many steps are taken without branches: of doubles an H200 takes four 3 % faster than two, and six slower.
    fn unrolled_steps(&self) -> u32 {
        match self.inner.compute() {
            Compute::Double if self.affine => 4,
            _ => 2,
        }
    }

    fn type_defines(&self, caps: &Capabilities) -> String {
        let [a, b] = self.loads;
        format!(
            "#define ELEMENT {}\n#define ACCUMULATOR {}\n#define MULTIPLY_ADD(a, b, c) {}\n\
             #define A_ALONG_K {}\n#define B_ALONG_N {}\n#define C_VECTORS {}\n#define AFFINE {}\n\
             IDX a_base, b_base, c_base;\n",
            self.inner.compute().glsl(),
            self.accumulator.glsl(),
            multiply_add(caps, self.accumulator),
            u8::from(a.along_k),
            u8::from(!b.along_k),
            u8::from(self.vector_stores),
            u8::from(self.affine),
        )
    }

    fn depth(&self) -> String {
        match self.tile.method {
            TileMethod::Lanes => self.depth_loop(),
            _ if self.depth_in_steps => self.depth_steps(),
            _ => self.depth_tables(),
        }
    }

    /// Loops over the axes of the depth, which need not divide either.
    fn depth_loop(&self) -> String {
        let axes = self.indexing.depth_axes();
        let inner: String = (1..axes).map(|axis| format!(" / p.k_dim{axis}")).collect();
        let loops: String = (0..axes)
            .map(|axis| {
                let extent = if axis == 0 { format!("p.k{inner}") } else { format!("p.k_dim{axis}") };
                format!("for (IDX k{axis} = 0; k{axis} < {extent}; k{axis}++) ")
            })
            .collect();
        let now = |tensor: char| {
            let terms: Vec<_> = (0..axes).map(|axis| format!("k{axis} * p.{tensor}_k{axis}")).collect();
            if terms.is_empty() { "0".into() } else { terms.join(" + ") }
        };
        format!("#define DEPTH_LOOP(body) {loops}body\n#define A_NOW {}\n#define B_NOW {}\n", now('a'), now('b'))
    }

    /// Counts along the axes of the depth in steps of BK along the innermost one.
    fn depth_steps(&self) -> String {
        let last = self.indexing.depth_axes() - 1;
        let at: Vec<_> = (0..=last).map(|axis| format!("step_k{axis}")).collect();
        let offset = |tensor| {
            let terms: Vec<_> = at.iter().enumerate().map(|(axis, at)| format!("{at} * p.{tensor}_k{axis}")).collect();
            format!("  step_{tensor} = {};\n", terms.join(" + "))
        };
        let word = self.indexing.padding.as_ref().map(|padding| padding.needed_bits("step_word", "step_k"));
        let first: String = at.iter().enumerate().map(|(axis, at)| format!("  {at} = at{axis};\n")).collect();
        let carry = (1..=last).rev().fold(String::new(), |text, axis| {
            text + &format!("  if ({} == p.k_dim{axis}) {{ {} = 0; {}++; }}\n", at[axis], at[axis], at[axis - 1])
        });
        format!(
            "IDX {}, step_a, step_b;\nuint step_word;\n\
             void find_step() {{\n{}{}{}}}\n\
             void first_step(IDX i) {{\n{}{first}  find_step();\n}}\n\
             void next_step() {{\n  {} += BK;\n{carry}  find_step();\n}}\n\
             #define FIRST_STEP(start) first_step(start);\n#define NEXT_STEP next_step();\n\
             #define DEPTH_WORD(start, k) step_word\n\
             #define A_DEPTH(start, k) (step_a + (k) * p.a_k{last})\n\
             #define B_DEPTH(start, k) (step_b + (k) * p.b_k{last})\n",
            at.join(", "),
            offset('a'),
            offset('b'),
            word.unwrap_or_default(),
            self.indexing.indices("k"),
            at[last],
        )
    }

    /// Tables in shared memory of the offsets along k where finding them takes divisions, so that loads need not divide, and of
    /// the words where an operand is padded.
    fn depth_tables(&self) -> String {
        let (mut tables, mut fill, mut text) = (String::new(), String::new(), String::new());
        for (name, tensor) in [('A', 'a'), ('B', 'b')] {
            let offset = |index| self.indexing.offset(tensor, "k", index);
            let offset = match self.tile.method {
                TileMethod::Shared if self.indexing.divides(tensor, "k") => {
                    let _ = writeln!(tables, "shared IDX depth_{tensor}[2 * DEPTHS];");
                    let _ = writeln!(fill, "    depth_{tensor}[uint(at)] = {};", offset("i"));
                    format!("depth_{tensor}[uint(((start) + (k)) % (2 * DEPTHS))]")
                }
                _ => offset("(start) + (k)"),
            };
            let _ = writeln!(text, "#define {name}_DEPTH(start, k) {offset}");
        }
        if let Some(padding) = &self.indexing.padding {
            let _ = writeln!(tables, "shared uint depth_words[2 * DEPTHS];\n{}", padding.depth_word(&self.indexing));
            let _ = writeln!(fill, "    depth_words[uint(at)] = depth_word(i);");
            text += "#define DEPTH_WORD(start, k) depth_words[uint(((start) + (k)) % (2 * DEPTHS))]\n";
        }
        if tables.is_empty() {
            return text;
        }
        let threads = self.tile.threads();
        format!(
            "const uint DEPTHS = {TABLE_ENTRIES};\n{tables}\
             void depth_tables(uint thread, IDX start) {{\n\
             \x20 for (uint e = thread; e < DEPTHS; e += {threads}) {{\n\
             \x20   IDX i = start + e, at = i % (2 * DEPTHS);\n{fill}  }}\n}}\n\
             #define DEPTH_TABLES(thread, start) depth_tables(thread, start)\n{text}"
        )
    }

    /// Which operand is padded, and the word of one of its rows or columns.
    fn padding(&self) -> String {
        let padded = self.indexing.padding.as_ref().map(|padding| padding.operand);
        let mut text: String = ['a', 'b']
            .map(|name| format!("#define {}_PADDED {}\n", name.to_ascii_uppercase(), u8::from(padded == Some(name))))
            .concat();
        if let Some(padding) = &self.indexing.padding {
            text += &padding.line_word(&self.indexing);
        }
        text
    }

    /// How elements of the operands are read.
    fn operands(&self) -> String {
        let mut text = if self.is_matrix() { self.matrices() } else { String::new() };
        for (i, name) in ['a', 'b'].into_iter().enumerate() {
            self.operand(&mut text, name, self.operand_types[i], self.loads[i]);
        }
        let lines = |tensor, group, index| self.indexing.offset(tensor, group, index);
        let _ = writeln!(text, "#define A_ROW(i) {}", lines('a', "m", "i"));
        let _ = writeln!(text, "#define B_COLUMN(j) {}", lines('b', "n", "j"));
        text
    }

    /// What cooperative matrices need, and when loads begin.
    fn matrices(&self) -> String {
        let late = u8::from(self.tile.loads_late());
        let [a, b] = self.operand_types;
        let float = if a.is_float() { a } else { b };
        let mut text = format!("{}#define LATE {late}\n", matrix_loads(float, self.index64));
        if let Some(bytes) = [a, b].into_iter().find(|ty| !ty.is_float()) {
            text += &byte_loads(bytes, float, self.index64);
        }
        text
    }

    fn operand(&self, text: &mut String, name: char, ty: Type, load_as: OperandLoad) {
        let OperandLoad { width, scattered, .. } = load_as;
        let (upper, storage) = (name.to_ascii_uppercase(), ty.storage());
        let (size, loaded) = (vec4_bytes(storage) / 4, if scattered { 1 } else { width });
        let (thread_offset, load_at) = if self.affine {
            let at = format!("uint64_t(p.{name}) + uint64_t(depth) * {size}ul + uint64_t(offset)");
            (format!("(({name}_base + offset) * {size})"), format!("{upper}_Vectors({at}).v[0]"))
        } else if self.index64 {
            let at = format!("uint64_t(p.{name}) + ({name}_base + offset + depth) * {size}ul");
            ("offset".into(), format!("{upper}_Vectors({at}).v[0]"))
        } else {
            ("offset".into(), format!("CAST({upper}_Vectors, p.{name}).v[({name}_base + offset + depth) / {loaded}]"))
        };
        let [eight, raw, of_raw] =
            if ty.is_float() { ["EIGHT", "uvec4", "raw"] } else { ["EIGHT_BYTES", "uvec2", "eight_of_bytes(raw)"] };
        let _ = writeln!(
            text,
            "layout(buffer_reference, scalar, buffer_reference_align = {}) readonly restrict buffer {upper}_Vectors \
             {{ {} v[]; }};\n\
             #define {upper}_STORED {}\n\
             #define {upper}_WIDTH {width}\n\
             #define {upper}_SCATTERED {}\n\
             #define {upper}_OFFSET(offset) {thread_offset}\n\
             #define {upper}_LOAD(offset, depth) {load_at}\n\
             #define {upper}_AT(offset) AT({storage}, p.{name}, {name}_base + offset)\n\
             #define {upper}_EIGHT(offset) {}(p.{name}, {name}_base + offset)\n\
             #define {upper}_RAW {}\n\
             #define {upper}_EIGHT_OF(raw) {}\n\
             #define {upper}_VALUE(x) ELEMENT({})",
            loaded * size,
            vector_of(storage, loaded),
            vector_of(storage, width),
            u8::from(scattered),
            eight,
            raw,
            of_raw,
            convert((load(ty, "x"), ty), self.inner),
        );
    }

    fn main(&self) -> String {
        let batch_offset = |tensor| self.indexing.offset(tensor, "batch", "batch");
        let [batch, split] = if self.split { ["part / p.splits", "part % p.splits"] } else { ["part", "0"] };
        let range = match self.split {
            _ if self.tile.is_by_lanes() => "",
            true => ", start, min(p.k, start + p.chunk)",
            false => ", start, p.k",
        };
        format!(
            "layout(local_size_x = {threads}) in;\n\
             void main() {{\n\
             \x20 IDX group = workgroup();\n\
             \x20 if (group >= p.groups) return;\n\
             \x20 IDX columns = (p.n + (BN - 1)) / BN, rows = (p.m + (BM - 1)) / BM;\n\
             \x20 IDX part = group / (columns * rows), tile = group % (columns * rows);\n\
             \x20 IDX batch = {batch}, split = {split}, start = split * p.chunk;\n\
             \x20 a_base = {a_batch};\n\
             \x20 b_base = {b_batch};\n\
             \x20 c_base = {c_batch} + split * p.elements;\n\
             \x20 // Tiles of a few rows after one another, column by column, share more of what the caches hold.\n\
             \x20 IDX band = tile / (8 * columns) * 8, height = min(rows - band, IDX(8)), within = tile - band * columns;\n\
             \x20 IDX row = (band + within % height) * BM, column = within / height * BN;\n\
             \x20 matmul({thread}row, column, p.m, p.n{range});\n\
             }}\n",
            threads = self.tile.threads(),
            a_batch = batch_offset('a'),
            b_batch = batch_offset('b'),
            c_batch = batch_offset('c'),
            thread = if self.is_matrix() { "" } else { "INVOCATION, " },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::spec::check_matrix_kernel;
    use crate::program::epilogue::EpilogueProgram;
    use crate::program::{Attribute, Input, Node, Program, Source, op};
    use crate::tuning::contraction::{Axis, ContractionShape, Method, OperandShape, choose_with_tile};

    #[test]
    fn kernels_of_cooperative_matrices_are_valid_without_a_device_that_has_them() {
        let caps = &crate::tuning::devices::h200();
        let axis = |dim, a, b, c| vec![Axis { dim, a, b, c, padded: None }];
        for (ty, types) in [
            (Type::F16, [Type::F16; 2]),
            (Type::BF16, [Type::BF16; 2]),
            (Type::BF16, [Type::BF16, Type::S8]),
            (Type::F16, [Type::U8, Type::F16]),
        ] {
            // The smallest tile, the largest, those with an odd number of matrices side by side, and those of few rows and columns.
            for (a, b, sizes) in [
                ((72, 1), (80, 1), [1, 64, 80, 72]),
                ((1, 64), (1, 72), [1, 64, 80, 72]),
                ((72, 1), (80, 1), [1, 4096, 4096, 72]),
                ((72, 1), (80, 1), [1, 1024, 768, 768]),
                ((1, 64), (1, 72), [1, 1024, 3072, 768]),
                ((72, 1), (80, 1), [1, 16, 4096, 4096]),
                ((72, 1), (80, 1), [1, 4096, 16, 4096]),
                ((1, 64), (1, 72), [1, 4096, 32, 4096]),
            ] {
                let operand = |ty, elements| OperandShape { ty, offset: 0, elements };
                let shape = ContractionShape {
                    ty,
                    operands: [operand(types[0], 64 * 72), operand(types[1], 72 * 80)],
                    batch: vec![],
                    rows: axis(64, a.0, 0, 80),
                    columns: axis(80, 0, b.1, 1),
                    depth: axis(72, a.1, b.0, 0),
                    padded_axes: vec![],
                };
                let (tile, _) = Tile::choose_matrix(caps, false, sizes).unwrap();
                let Method::Tiles(tiling) = choose_with_tile(shape.clone(), caps, (tile, 1)).unwrap().method else {
                    panic!("no tiles");
                };
                let tiling = Tiling { accumulator: Compute::Float, ..tiling };
                let groups = shape.groups();
                // One that is stored as vec4s, one in a loop and none.
                for (function, rolled) in [(Some("negate"), false), (Some("tanh"), true), (None, false)] {
                    let epilogue = function.map(|name| epilogue(ty, name, rolled));
                    check_source(caps, &MatmulKernel::new(&tiling, &groups, types, ty, epilogue), &groups, ty);
                }
            }
        }
    }

    /// The operation of the elements of a result, which are kept.
    fn epilogue(ty: Type, name: &str, rolled: bool) -> KernelEpilogue {
        let input = Input { ty, source: Source::View { offset: 0, strides: [80, 1].into_iter().collect() } };
        let node =
            Node { op: op::find(name).unwrap(), ty, args: [0].into_iter().collect(), attribute: Attribute::None };
        let (inputs, nodes) = ([input].into_iter().collect(), [node].into_iter().collect());
        let program = Program { inputs, nodes, shape: [64, 80].into_iter().collect(), output: None };
        let program = EpilogueProgram::new(program, 0, true).unwrap().without_parameters();
        KernelEpilogue { program, rolled, vectors: Some(Default::default()), columns: true }
    }

    /// Fails unless the kernel's source is valid.
    fn check_source(caps: &Capabilities, kernel: &MatmulKernel, groups: &AxisGroups, ty: Type) {
        let mut params = Params::with_declarations(caps);
        for name in ["c", "epilogue_result", "a", "b"] {
            params.absent(ty.storage(), name);
        }
        for name in ["m", "n", "k", "groups", "splits", "chunk", "elements"] {
            params.extent(0, false, name);
        }
        indexing::params(groups, &mut params, false);
        check_matrix_kernel(&kernel.source(caps, &params.block(false)), ty);
    }
}
