//! The source of the kernel of matrix products.

use std::fmt::Write as _;

use super::groups::Groups;
use super::of_accumulator;
use super::tile::{DEPTHS, Method, Tile};
use crate::device::Capabilities;
use crate::pipeline::glsl::BFLOAT16;
use crate::program::Type;
use crate::program::emit::{assign, convert, head, load, quad_bytes, quad_of, stored};
use crate::program::types::Compute;

/// What the kernel's source depends on.
pub struct Product<'a> {
    /// Of the result.
    pub ty: Type,
    /// That both operands are multiplied in.
    pub inner: Type,
    /// Of the operands.
    pub types: [Type; 2],
    pub groups: &'a Groups,
    pub accumulator: Compute,
    pub tile: Tile,
    pub wide: bool,
    /// Whether the operands' rows and columns are loaded along k and along n.
    pub along: [bool; 2],
    /// How many elements of the operands are loaded at once.
    pub units: [u64; 2],
    /// Whether the elements of the operands' units, which are fours, may be anywhere.
    pub apart: [bool; 2],
    /// Whether the places in the operands are a thread's offset of 32 bits and what all threads have in common.
    pub steady: bool,
    /// Whether k is split: if not, all threads begin at the same step, which drivers do not see in what is divided.
    pub split: bool,
    /// Whether neighbours in the result are stored together.
    pub stores: bool,
}

/// The lines that choose the tile in `lib/matmul.glsl`.
fn tile_defines(tile: &Tile, element: Compute, eager: u32) -> String {
    let (width, vector) = vector(element);
    let Tile { rows, columns, depth, thread_rows, thread_columns, slices, .. } = tile;
    format!(
        "#define BM {rows}u\n#define BN {columns}u\n#define BK {depth}u\n#define TM {thread_rows}u\n\
         #define TN {thread_columns}u\n#define SLICES {slices}\n#define WM TM\n#define WN TN\n#define WIDTH {width}\n\
         #define VECTOR {vector}\n#define EAGER {eager}\n",
    )
}

/// a·b + c as GLSL. Devices that promise infinities and signed zeros may not fuse the two by themselves.
pub fn multiply_add(caps: &Capabilities, accumulator: Compute) -> &'static str {
    match accumulator {
        Compute::Complex | Compute::ComplexDouble => "(c_multiply(a, b) + (c))",
        Compute::Float | Compute::Double if caps.fma => "fma(a, b, c)",
        _ => "((a) * (b) + (c))",
    }
}

/// How many elements are read from shared memory together, and their type.
pub fn vector(element: Compute) -> (u32, &'static str) {
    match element {
        Compute::Float => (4, "vec4"),
        Compute::Uint => (4, "uvec4"),
        Compute::Int => (4, "ivec4"),
        Compute::Double => (2, "dvec2"),
        Compute::Uint64 => (2, "u64vec2"),
        Compute::Int64 => (2, "i64vec2"),
        Compute::Complex => (1, "vec2"),
        Compute::ComplexDouble => (1, "dvec2"),
    }
}

/// How many elements of a storage type are loaded at once where they are neighbours: four, in 16 bytes at most.
pub fn unit(storage: &str) -> u64 {
    (64 / quad_bytes(storage)).min(4)
}

/// The GLSL type of as many elements of a storage type as are loaded at once.
fn unit_of(storage: &'static str, unit: u64) -> &'static str {
    match (unit, storage) {
        (1, _) => storage,
        (2, "double") => "dvec2",
        (2, "uint64_t") => "u64vec2",
        (2, "int64_t") => "i64vec2",
        (2, "vec2") => "mat2",
        _ => quad_of(storage),
    }
}

impl Product<'_> {
    pub fn key(&self) -> Vec<u8> {
        let Tile { method, rows, columns, depth, thread_rows, thread_columns, slices } = self.tile;
        let tile = [method as u32, rows, columns, depth, thread_rows, thread_columns, slices];
        let tile = tile.map(u32::to_le_bytes).concat();
        let [along_k, along_n] = self.along;
        let [apart_a, apart_b] = self.apart;
        let units = self.units.map(|unit| unit as u8);
        let flags = [along_k, along_n, apart_a, apart_b, self.steady, self.split, self.stores, self.wide, self.steps()]
            .map(u8::from);
        let types = [self.ty, self.inner, self.types[0], self.types[1]].map(|ty| ty as u8);
        [b"contraction", types.as_slice(), &[self.accumulator as u8], &self.groups.pattern(), &tile, &units, &flags]
            .concat()
    }

    /// Loops over the axes of the depth, which need not divide either.
    fn depth_loop(&self) -> String {
        let axes = self.groups.k.len();
        let inner: String = (1..axes).map(|axis| format!(" / p.k_dim{axis}")).collect();
        let loops: String = (0..axes)
            .map(|axis| {
                let extent = if axis == 0 { format!("p.k{inner}") } else { format!("p.k_dim{axis}") };
                format!("for (IDX k{axis} = 0; k{axis} < {extent}; k{axis}++) ")
            })
            .collect();
        let now = |tensor: char| {
            let parts: Vec<_> = (0..axes).map(|axis| format!("k{axis} * p.{tensor}_k{axis}")).collect();
            if parts.is_empty() { "0".into() } else { parts.join(" + ") }
        };
        format!("#define DEPTH_LOOP(body) {loops}body\n#define A_NOW {}\n#define B_NOW {}\n", now('a'), now('b'))
    }

    /// Whether the places of a step along k are found from those of the one before.
    fn steps(&self) -> bool {
        !self.tile.lanes() && self.groups.steps(self.tile.depth)
    }

    /// How many steps are taken without branches: of doubles an H200 takes four 3 % faster than two, and six slower.
    fn eager(&self) -> u32 {
        match self.inner.compute() {
            Compute::Double if self.steady => 4,
            _ => 2,
        }
    }

    /// What cooperative matrices need: eight elements of 16 bits at once, bfloat16 under the name that the compiler knows,
    /// and when loads begin.
    fn matrices(&self) -> String {
        format!(
            "{}layout(buffer_reference, scalar, buffer_reference_align = 16) readonly restrict buffer Eights {{ uvec4 v[]; }};\n\
             #define EIGHT(b, i) {}\n#define LATE {}\n",
            if self.types[0] == Type::BF16 { BFLOAT16 } else { "" },
            if self.wide { "Eights(uint64_t(b) + (i) * 2ul).v[0]" } else { "Eights(b).v[(i) / 8]" },
            u8::from(self.tile.late()),
        )
    }

    /// Counts along the axes of the depth in steps of BK along the innermost one.
    fn depth_in_steps(&self) -> String {
        let (groups, last) = (self.groups, self.groups.k.len() - 1);
        let at: Vec<_> = (0..=last).map(|axis| format!("step_k{axis}")).collect();
        let place = |tensor| {
            let parts: Vec<_> = at.iter().enumerate().map(|(axis, at)| format!("{at} * p.{tensor}_k{axis}")).collect();
            format!("  step_{tensor} = {};\n", parts.join(" + "))
        };
        let word = groups.borders.as_ref().map(|borders| borders.needed("step_word", "step_k"));
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
            place('a'),
            place('b'),
            word.unwrap_or_default(),
            groups.indices("k"),
            at[last],
        )
    }

    /// Tables in shared memory of the depth's places where they take divisions to find, so that loads need not divide, and
    /// of its words where there are borders.
    fn depth_in_tables(&self) -> String {
        let (mut tables, mut fill, mut text) = (String::new(), String::new(), String::new());
        for (name, tensor) in [('A', 'a'), ('B', 'b')] {
            let place = |index| self.groups.place(tensor, "k", index);
            let place = match self.tile.method {
                Method::Shared if self.groups.divides(tensor, "k") => {
                    let _ = writeln!(tables, "shared IDX depth_{tensor}[2 * DEPTHS];");
                    let _ = writeln!(fill, "    depth_{tensor}[uint(at)] = {};", place("i"));
                    format!("depth_{tensor}[uint(((start) + (k)) % (2 * DEPTHS))]")
                }
                _ => place("(start) + (k)"),
            };
            let _ = writeln!(text, "#define {name}_DEPTH(start, k) {place}");
        }
        if let Some(borders) = &self.groups.borders {
            let _ = writeln!(tables, "shared uint depth_words[2 * DEPTHS];\n{}", borders.of_depth(self.groups));
            let _ = writeln!(fill, "    depth_words[uint(at)] = depth_word(i);");
            text += "#define DEPTH_WORD(start, k) depth_words[uint(((start) + (k)) % (2 * DEPTHS))]\n";
        }
        if tables.is_empty() {
            return text;
        }
        let threads = self.tile.threads();
        format!(
            "const uint DEPTHS = {DEPTHS};\n{tables}\
             void depth_tables(uint lane, IDX start) {{\n\
             \x20 for (uint e = lane; e < DEPTHS; e += {threads}) {{\n\
             \x20   IDX i = start + e, at = i % (2 * DEPTHS);\n{fill}  }}\n}}\n\
             #define DEPTH_TABLES(lane, start) depth_tables(lane, start)\n{text}"
        )
    }

    /// Which operand has borders, and the word of one of its lines.
    fn borders(&self) -> String {
        let tensor = self.groups.borders.as_ref().map(|borders| borders.tensor);
        let mut text: String = ['a', 'b']
            .map(|name| format!("#define {}_BORDERS {}\n", name.to_ascii_uppercase(), u8::from(tensor == Some(name))))
            .concat();
        if let Some(borders) = &self.groups.borders {
            text += &borders.outside(self.groups);
        }
        text
    }

    /// How elements of an operand are read.
    fn operand(&self, text: &mut String, name: char, ty: Type, unit: u64, apart: bool) {
        let (upper, storage) = (name.to_ascii_uppercase(), ty.storage());
        let (size, loaded) = (quad_bytes(storage) / 4, if apart { 1 } else { unit });
        let (offset, load_at) = if self.steady {
            let at = format!("uint64_t(p.{name}) + uint64_t(depth) * {size}ul + uint64_t(place)");
            (format!("(({name}_base + place) * {size})"), format!("{upper}_Units({at}).v[0]"))
        } else if self.wide {
            let at = format!("uint64_t(p.{name}) + ({name}_base + place + depth) * {size}ul");
            ("place".into(), format!("{upper}_Units({at}).v[0]"))
        } else {
            ("place".into(), format!("{upper}_Units(p.{name}).v[({name}_base + place + depth) / {loaded}]"))
        };
        let _ = writeln!(
            text,
            "layout(buffer_reference, scalar, buffer_reference_align = {}) readonly restrict buffer {upper}_Units \
             {{ {} v[]; }};\n\
             #define {upper}_STORED {}\n\
             #define {upper}_UNIT {unit}\n\
             #define {upper}_APART {}\n\
             #define {upper}_OFFSET(place) {offset}\n\
             #define {upper}_LOAD(place, depth) {load_at}\n\
             #define {upper}_AT(place) AT({storage}, p.{name}, {name}_base + place)\n\
             #define {upper}_EIGHT(place) EIGHT(p.{name}, {name}_base + place)\n\
             #define {upper}_VALUE(x) ELEMENT({})",
            loaded * size,
            unit_of(storage, loaded),
            unit_of(storage, unit),
            u8::from(apart),
            convert((load(ty, "x"), ty), self.inner),
        );
    }

    pub fn source(&self, caps: &Capabilities, parameters: &str) -> String {
        let Self { ty, inner, tile, groups, .. } = self;
        let [unit_a, unit_b] = self.units;
        let sum = |value: &str| (format!("({value})"), of_accumulator(self.accumulator, *ty));
        let values = |count: usize| {
            let converted = |value: &&str| stored(*ty, sum(value));
            ["v0", "v1", "v2", "v3"][..count].iter().map(converted).collect::<Vec<_>>().join(", ")
        };
        let storages = [ty.storage(), self.types[0].storage(), self.types[1].storage()];
        let computes = [ty.compute(), self.types[0].compute(), self.types[1].compute(), self.accumulator];
        let mut operands = String::new();
        self.operand(&mut operands, 'a', self.types[0], unit_a, self.apart[0]);
        self.operand(&mut operands, 'b', self.types[1], unit_b, self.apart[1]);
        let place = format!("c_base + {} + {}", groups.place('c', "m", "i"), groups.place('c', "n", "j"));
        let pairs = if self.stores && vector(inner.compute()).0 == 2 {
            let pair = unit_of(ty.storage(), 2);
            let at = if self.wide {
                format!("Pairs(uint64_t(p.c) + ({place}) * 8ul).v[0]")
            } else {
                format!("Pairs(p.c).v[({place}) / 2]")
            };
            format!(
                "layout(buffer_reference, scalar, buffer_reference_align = 16) buffer Pairs {{ {pair} v[]; }};\n\
                 #define STORE_PAIR(i, j, v0, v1) {at} = {pair}({})\n",
                values(2),
            )
        } else {
            String::new()
        };
        format!(
            "{head}\
             #include \"lib/complex.glsl\"\n{defines}\
             #define ELEMENT {element}\n#define ACCUMULATOR {accumulator}\n#define MULTIPLY_ADD(a, b, c) {multiply_add}\n\
             #define A_ALONG_K {along_k}\n#define B_ALONG_N {along_n}\n#define C_RUNS {c_runs}\n#define STEADY {steady}\n\
             IDX a_base, b_base, c_base;\n\
             {places}{depth}{borders}{matrices}{operands}\
             #define A_ROW(i) {a_row}\n#define B_COLUMN(j) {b_column}\n\
             #define STORE(i, j, v) {store}\n\
             #define STORE_QUAD(i, j, v0, v1, v2, v3) QUAD({storage}, p.c, ({place}) / 4) = {quad}({quad_values})\n\
             {pairs}\
             #include \"lib/{file}.glsl\"\n\
             layout(local_size_x = {threads}) in;\n\
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
             \x20 matmul({lane}row, column, p.m, p.n{range});\n\
             }}\n",
            head = head(caps, self.wide, &storages, &computes, parameters),
            defines = tile_defines(tile, inner.compute(), self.eager()),
            element = inner.compute().glsl(),
            multiply_add = multiply_add(caps, self.accumulator),
            accumulator = self.accumulator.glsl(),
            along_k = u8::from(self.along[0]),
            along_n = u8::from(self.along[1]),
            c_runs = u8::from(self.stores),
            steady = u8::from(self.steady),
            places = groups.places(),
            depth = match tile.method {
                Method::Lanes => self.depth_loop(),
                _ if self.steps() => self.depth_in_steps(),
                _ => self.depth_in_tables(),
            },
            borders = self.borders(),
            matrices = if tile.method == Method::Matrix { self.matrices() } else { String::new() },
            file = tile.method.file(),
            lane = if tile.method == Method::Matrix { "" } else { "INVOCATION, " },
            range = match self.split {
                _ if tile.lanes() => "",
                true => ", start, min(p.k, start + p.chunk)",
                false => ", start, p.k",
            },
            batch = if self.split { "part / p.splits" } else { "part" },
            split = if self.split { "part % p.splits" } else { "0" },
            a_row = groups.place('a', "m", "i"),
            b_column = groups.place('b', "n", "j"),
            storage = ty.storage(),
            quad = quad_of(ty.storage()),
            quad_values = values(4),
            store = assign(*ty, "c", &place, sum("v")),
            threads = tile.threads(),
            a_batch = groups.place('a', "batch", "batch"),
            b_batch = groups.place('b', "batch", "batch"),
            c_batch = groups.place('c', "batch", "batch"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::contraction::Axis;
    use crate::pipeline::{glsl, spirv};

    #[test]
    fn kernels_of_cooperative_matrices_are_valid_without_a_device_that_has_them() {
        let caps = &crate::gpu::gpu().unwrap().caps;
        let axis = |dim, a, b, c| vec![Axis { dim, a, b, c, border: None }];
        for ty in [Type::F16, Type::BF16] {
            // The smallest tile and the largest.
            for (a, b, sizes) in [
                ((72, 1), (80, 1), [1, 64, 80, 72]),
                ((1, 64), (1, 72), [1, 64, 80, 72]),
                ((72, 1), (80, 1), [1, 4096, 4096, 72]),
            ] {
                let groups = Groups {
                    batch: vec![],
                    m: axis(64, a.0, 0, 80),
                    n: axis(80, 0, b.1, 1),
                    k: axis(72, a.1, b.0, 0),
                    borders: None,
                };
                let (tile, _) = Tile::matrix(&Capabilities { subgroup: 32, ..caps.clone() }, sizes).unwrap();
                let product = Product {
                    ty,
                    inner: ty,
                    types: [ty; 2],
                    groups: &groups,
                    accumulator: Compute::Float,
                    tile,
                    wide: false,
                    along: [a.1 == 1, b.1 == 1],
                    units: [4; 2],
                    apart: [false; 2],
                    steady: false,
                    split: false,
                    stores: true,
                };
                let mut params = crate::graph::Params::with_declarations();
                for (name, storage) in [("c", ty), ("a", ty), ("b", ty)] {
                    params.absent(storage.storage(), name);
                }
                for name in ["m", "n", "k", "groups", "splits", "chunk", "elements"] {
                    params.extent(0, false, name);
                }
                groups.params(&mut params, false);
                let words = glsl::compile(&product.source(caps, &params.block(false))).unwrap();
                // SPIRV-Tools of 2025 do not know bfloat16; that module differs in the type alone.
                if ty == Type::BF16 {
                    assert!(words.windows(4).any(|words| matches!(words, &[0x0004_0016, _, 16, 0])));
                    continue;
                }
                spirv::validate(&words).unwrap();
            }
        }
    }
}
