//! Element-wise kernels by tiles: an element, and the macros of `shaders/lib/loops/tile.glsl`.

use std::fmt::Write as _;

use super::values::store;
use super::vectors::GivenInput;
use super::{Emitter, Staging, TransposeTile, define, vec4_of};

/// The most elements that a thread loads before it stores them to shared memory.
const MAX_BATCH: u32 = 8;

impl Emitter<'_> {
    pub(super) fn tile(&self, text: &mut String, threads: u32, tile: TransposeTile) {
        self.tile_element(text);
        self.result_macros(text);
        self.tile_inputs(text, tile);
        self.tile_axes(text, tile);
        define(text, "THREADS", threads);
        define(text, "WIDTH", tile.width);
        define(text, "HEIGHT", tile.height);
        let area = tile.width * tile.height;
        let batch = area.div_ceil(threads).min(MAX_BATCH);
        define(text, "BATCH", batch);
        if area.is_multiple_of(threads * batch) {
            define(text, "WHOLE_BATCHES", "");
        }
        let staging = match tile.staging {
            Staging::Caches => "CACHES",
            Staging::SharedScalars => "SHARED_SCALARS",
            Staging::SharedVectors => "SHARED_VECTORS",
            Staging::Registers => "REGISTERS",
        };
        define(text, staging, "");
        text.push_str("#include \"lib/loops/tile.glsl\"\n");
    }

    /// `element` computes one result and its index, from the indices along all axes and the inputs' elements in the tile.
    fn tile_element(&self, text: &mut String) {
        let rank = self.layout.dims.len();
        let result = self.program.result();
        let position = self.each_axis(", ", |axis| format!("IDX at{axis}"));
        let stored: String = self.given().iter().map(|g| format!(", {} x{}", g.storage, g.input)).collect();
        let _ = writeln!(text, "{} element({position}{stored}, out IDX target) {{\n  IDX i = at0;", result.storage());
        for axis in 1..rank {
            let _ = writeln!(text, "  i = i * p.dim{axis} + at{axis};");
        }
        self.declare_indices(text);
        for axis in 0..rank {
            self.add_axis(text, axis, &self.strided());
        }
        for (input, storage) in self.linear() {
            let _ = writeln!(text, "  {storage} x{input} = AT({storage}, p.input{input}, i);");
        }
        let target = self.strided_output().map_or("i".into(), |v| format!("index{v}"));
        let value = self.nodes(text, self.program.nodes.len());
        let _ = writeln!(text, "  target = {target};\n  return {};\n}}", store(result, &value));
    }

    /// The inputs that are transposed.
    fn tile_inputs(&self, text: &mut String, tile: TransposeTile) {
        let given = self.given();
        let list = |f: &dyn Fn(&GivenInput) -> String| given.iter().map(f).collect::<Vec<_>>().join(" ");
        let each = list(&|g| format!("M(k, {}, {}, {})", g.input, g.storage, vec4_of(g.storage)));
        define(text, "EACH_INPUT(M, k)", each);
        let start = list(&|&GivenInput { view, input, .. }| {
            let terms = self.each_axis("", |axis| format!(" + at{axis} * p.stride{view}_{axis}"));
            format!("IDX from{input} = p.offset{view}{terms};")
        });
        define(text, "START_INPUTS", start);
        for GivenInput { view, input, .. } in &given {
            define(text, &format!("STRIDE_X_{input}"), format_args!("p.stride{view}_{}", tile.output_axis));
            define(text, &format!("STRIDE_Y_{input}"), format_args!("p.stride{view}_{}", tile.input_axis));
        }
    }

    fn tile_axes(&self, text: &mut String, tile: TransposeTile) {
        let (x, y) = (usize::from(tile.output_axis), usize::from(tile.input_axis));
        for (name, axis) in [("X", x), ("Y", y)] {
            define(text, &format!("DIM_{name}"), format_args!("p.dim{axis}"));
            define(text, &format!("AT_{name}"), format_args!("at{axis}"));
        }
        let others = (0..self.layout.dims.len()).rev().filter(|&axis| axis != x && axis != y);
        define(text, "OTHER_AXES", others.map(|axis| format!("NEXT_AXIS({axis}) ")).collect::<String>());
        let position = self.each_axis(", ", |axis| match axis {
            _ if axis == x => format!("at{axis} + x"),
            _ if axis == y => format!("at{axis} + y"),
            _ => format!("at{axis}"),
        });
        define(text, "POSITION(x, y)", position);
    }

    fn each_axis(&self, separator: &str, f: impl Fn(usize) -> String) -> String {
        (0..self.layout.dims.len()).map(f).collect::<Vec<_>>().join(separator)
    }
}
