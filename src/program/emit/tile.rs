//! Elementwise kernels whose inputs and results neighbour along different axes, as in a transpose.

use std::fmt::Write as _;

use super::params::quad_of;
use super::values::store;
use super::{Emitter, Staging, Tile};

impl Emitter<'_> {
    pub(super) fn tiled(&self, text: &mut String, threads: u32, tile: Tile) {
        let Tile { output_axis: across, input_axis: along, width, height, .. } = tile;
        let (across, along) = (usize::from(across), usize::from(along));
        let rank = self.layout.dims.len();
        let result = self.program.result().storage();
        let linear: Vec<(usize, &str)> = self.linear().collect();
        let held = self.held();
        let join = |f: &dyn Fn(usize) -> String| (0..rank).map(f).collect::<Vec<_>>().join(", ");
        let list = |f: &dyn Fn(usize, &str) -> String| {
            held.iter().map(|&(_, input, storage)| format!(", {}", f(input, storage))).collect::<String>()
        };
        // One result and its place, from the elements in shared memory.
        let _ = writeln!(
            text,
            "{result} element({}{}, out IDX target) {{\n  IDX i = at0;",
            join(&|axis| format!("IDX at{axis}")),
            list(&|input, storage| format!("{storage} x{input}")),
        );
        for axis in 1..rank {
            let _ = writeln!(text, "  i = i * p.dim{axis} + at{axis};");
        }
        self.offsets(text);
        for axis in 0..rank {
            self.step(text, axis, &self.strided());
        }
        for (input, storage) in linear {
            let _ = writeln!(text, "  {storage} x{input} = AT({storage}, p.input{input}, i);");
        }
        let target = self.scattered().map_or("i".into(), |v| format!("place{v}"));
        let value = self.nodes(text, self.program.nodes.len());
        let _ = writeln!(
            text,
            "  target = {target};\n  return {};\n}}\nlayout(local_size_x = {threads}) in;",
            store(self.program.result(), &value)
        );
        for (_, input, storage) in held.iter().filter(|_| tile.staging != Staging::Registers) {
            if tile.staging == Staging::SharedVectors {
                let _ = writeln!(text, "shared {} tile{input}[{}];", quad_of(storage), height * width / 4);
                continue;
            }
            // One more than the width, so that a column lies in different banks.
            let _ = writeln!(text, "shared {storage} tile{input}[{}];", height * (width + 1));
        }
        let _ = writeln!(
            text,
            "void main() {{\n\
             \x20 IDX tile = turned(), tiles = (p.dim{across} + {w}) / {width}, rest = QUOTIENT(tile, tiles);\n\
             \x20 IDX at{across} = (tile - rest * tiles) * {width};\n\
             \x20 tile = rest, tiles = (p.dim{along} + {h}) / {height}, rest = QUOTIENT(tile, tiles);\n\
             \x20 IDX at{along} = (tile - rest * tiles) * {height};",
            w = width - 1,
            h = height - 1,
        );
        for axis in (0..rank).rev().filter(|&axis| axis != across && axis != along) {
            let _ = writeln!(
                text,
                "  tile = rest, rest = QUOTIENT(tile, p.dim{axis});\n  IDX at{axis} = tile - rest * p.dim{axis};"
            );
        }
        // More than the device promises to run along one axis of the grid leaves workgroups over.
        let _ = writeln!(
            text,
            "  if (rest > 0) return;\n\
             \x20 uint wide = uint(min(p.dim{across} - at{across}, {width})), high = uint(min(p.dim{along} - at{along}, {height}));"
        );
        for (v, input, _) in &held {
            let terms = (0..rank).map(|axis| format!(" + at{axis} * p.stride{v}_{axis}")).collect::<String>();
            let _ = writeln!(text, "  IDX from{input} = p.offset{v}{terms};");
        }
        if tile.staging == Staging::Registers {
            return self.blocks(text, threads, tile, &held);
        }
        if tile.staging == Staging::SharedVectors {
            return self.quads(text, threads, tile, &held);
        }
        let (area, stride) = (width * height, width + 1);
        if !held.is_empty() {
            self.fill(text, threads, tile, &held);
        }
        let at = |axis: usize| match axis {
            _ if axis == across => format!("at{axis} + x"),
            _ if axis == along => format!("at{axis} + y"),
            _ => format!("at{axis}"),
        };
        let _ = writeln!(
            text,
            "  for (uint j = INVOCATION; j < {area}; j += {threads}) {{\n\
             \x20   uint x = j % {width}, y = j / {width};\n\
             \x20   if (x < wide && y < high) {{\n\
             \x20     IDX target; {result} value = element({}{}, target); AT({result}, p.result, target) = value;\n\
             \x20   }}\n\
             \x20 }}\n}}",
            join(&at),
            list(&|input, _| format!("tile{input}[y * {stride} + x]")),
        );
    }

    /// Reads the tile of each held input `(view, input, storage)` into shared memory.
    fn fill(&self, text: &mut String, threads: u32, tile: Tile, held: &[(usize, usize, &str)]) {
        let Tile { output_axis: across, input_axis: along, width, height, .. } = tile;
        let (area, stride) = (width * height, width + 1);
        let each = area.div_ceil(threads);
        // A thread's loads come before its stores, so that they overlap.
        let batch = each.min(8);
        let cell =
            |k: &str| format!("uint j{k} = j + {k} * {threads}, y{k} = j{k} % {height}, x{k} = j{k} / {height};");
        let load = |v: usize, input: usize, storage: &str, k: &str| {
            format!(
                "AT({storage}, p.input{input}, from{input} + IDX(y{k}) * p.stride{v}_{along} + IDX(x{k}) * p.stride{v}_{across})"
            )
        };
        let whole = area.is_multiple_of(threads * batch);
        if whole {
            let _ = writeln!(
                text,
                "  if (wide == {width} && high == {height}) {{\n\
                 \x20   for (uint j = INVOCATION; j < {area}; j += {}) {{",
                threads * batch
            );
            for k in 0..batch {
                let k = k.to_string();
                let _ = writeln!(text, "      {}", cell(&k));
                for &(v, input, storage) in held {
                    let _ = writeln!(text, "      {storage} r{k}_{input} = {};", load(v, input, storage, &k));
                }
            }
            for k in 0..batch {
                for (_, input, _) in held {
                    let _ = writeln!(text, "      tile{input}[y{k} * {stride} + x{k}] = r{k}_{input};");
                }
            }
            text.push_str("    }\n  } else\n");
        }
        let _ = writeln!(
            text,
            "  for (uint j = INVOCATION; j < {area}; j += {threads}) {{\n    {}\n\
             \x20   if (x0 < wide && y0 < high) {{",
            cell("0")
        );
        for &(v, input, storage) in held {
            let _ = writeln!(text, "      tile{input}[y0 * {stride} + x0] = {};", load(v, input, storage, "0"));
        }
        text.push_str("    }\n  }\n  barrier();\n");
    }

    /// Four by four elements at a time: a thread turns them on their way into shared memory, whose rows of fours are
    /// rotated so that neither side of the way meets itself in a bank.
    fn quads(&self, text: &mut String, threads: u32, tile: Tile, held: &[(usize, usize, &str)]) {
        let Tile { width, height, .. } = tile;
        let (columns, rows) = (width / 4, height / 4);
        let slot = |y: &str| format!("({y}) * {columns} + (x ^ (({y}) / 4 & {}))", columns - 1);
        let _ = writeln!(
            text,
            "  for (uint j = INVOCATION; j < {}; j += {threads}) {{\n\
             \x20   uint y = j % {rows}, x = j / {rows};\n\
             \x20   if (4 * x < wide && 4 * y < high) {{",
            columns * rows
        );
        load_block(text, tile.output_axis, held);
        for &(_, input, storage) in held {
            for k in 0..4 {
                let turned = (0..4).map(|c| format!("q{c}_{input}[{k}]")).collect::<Vec<_>>().join(", ");
                let at = slot(&format!("4 * y + {k}"));
                let _ = writeln!(text, "      tile{input}[{at}] = {}({turned});", quad_of(storage));
            }
        }
        let _ = writeln!(
            text,
            "    }}\n  }}\n  barrier();\n\
             \x20 for (uint j = INVOCATION; j < {}; j += {threads}) {{\n\
             \x20   uint x = j % {columns}, y = j / {columns};\n\
             \x20   if (4 * x < wide && y < high) {{\n\
             \x20     IDX target, next;",
            columns * height
        );
        for &(_, input, storage) in held {
            let _ = writeln!(text, "      {} q_{input} = tile{input}[{}];", quad_of(storage), slot("y"));
        }
        let result = self.program.result().storage();
        for c in 0..4 {
            let stored = held.iter().map(|(_, input, _)| format!(", q_{input}[{c}]")).collect::<String>();
            let _ = writeln!(text, "      {result} e{c} = {};", self.of_quad(tile, c, "y", &stored));
        }
        let _ = writeln!(
            text,
            "      SET_QUAD({result}, p.result, target / 4, {}(e0, e1, e2, e3));\n    }}\n  }}\n}}",
            quad_of(result)
        );
    }

    /// The result at `4 * x + c` across and `y` along, from the stored elements of the held inputs; the place of the first of
    /// a four is that of all.
    fn of_quad(&self, tile: Tile, c: u32, y: &str, stored: &str) -> String {
        let at = |axis: usize| match axis {
            _ if axis == usize::from(tile.output_axis) => format!("at{axis} + 4 * x + {c}"),
            _ if axis == usize::from(tile.input_axis) => format!("at{axis} + {y}"),
            _ => format!("at{axis}"),
        };
        let places = (0..self.layout.dims.len()).map(at).collect::<Vec<_>>().join(", ");
        format!("element({places}{stored}, {})", if c == 0 { "target" } else { "next" })
    }

    /// Four by four elements at a time, which a thread turns in its registers: a processor's caches hold the tile.
    fn blocks(&self, text: &mut String, threads: u32, tile: Tile, held: &[(usize, usize, &str)]) {
        let Tile { width, height, .. } = tile;
        let result = self.program.result().storage();
        let columns = width / 4;
        // Lanes store to neighbouring places: a processor's stores reach few pages at a time, its loads more.
        let _ = writeln!(
            text,
            "  for (uint j = INVOCATION; j < {}; j += {threads}) {{\n\
             \x20   uint x = j % {columns}, y = j / {columns};\n\
             \x20   if (4 * x < wide && 4 * y < high) {{\n\
             \x20     IDX target, next;",
            height / 4 * columns
        );
        load_block(text, tile.output_axis, held);
        for k in 0..4 {
            let element = |c: u32| {
                let stored = held.iter().map(|(_, input, _)| format!(", q{c}_{input}[{k}]")).collect::<String>();
                format!("{result} e{k}_{c} = {};", self.of_quad(tile, c, &format!("4 * y + {k}"), &stored))
            };
            let elements = (0..4).map(element).collect::<Vec<_>>().join(" ");
            let _ = writeln!(
                text,
                "      {elements}\n\
                 \x20     SET_QUAD({result}, p.result, target / 4, {}(e{k}_0, e{k}_1, e{k}_2, e{k}_3));",
                quad_of(result)
            );
        }
        text.push_str("    }\n  }\n}\n");
    }
}

/// Loads the four by four elements (x, y) of each held input of a tile.
fn load_block(text: &mut String, across: u8, held: &[(usize, usize, &str)]) {
    for &(v, input, storage) in held {
        for c in 0..4 {
            let place = format!("from{input} + IDX(4 * y) + IDX(4 * x + {c}) * p.stride{v}_{across}");
            let quad = quad_of(storage);
            let _ = writeln!(text, "      {quad} q{c}_{input} = LOAD_QUAD({storage}, p.input{input}, ({place}) / 4);");
        }
    }
}
