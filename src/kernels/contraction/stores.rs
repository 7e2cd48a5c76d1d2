//! How the kernel of a tile stores its sums: the macros of `lib/matmul.glsl` and its likes. Where they go is the launch's.

use std::fmt::Write as _;

use super::loads::vector_of;
use super::matmul::MatmulKernel;
use crate::device::Capabilities;
use crate::program::emit::{EmittedEpilogue, StoredElements, VectorInputs, assign, stored, vec4_of};
use crate::program::epilogue::EpilogueProgram;
use crate::tuning::contraction::{of_accumulator, shared_width};

/// The epilogue of a kernel of a contraction.
#[derive(Hash)]
pub struct KernelEpilogue {
    pub program: EpilogueProgram,
    /// Whether the kernel holds the program once, in a loop over a thread's sums.
    pub rolled: bool,
    /// What is read at once for four neighbours of a row; `None` where they cannot be stored at once.
    pub vectors: Option<VectorInputs>,
    /// Whether the program's last axis is that of the columns, and those are innermost in the result.
    pub columns: bool,
}

impl KernelEpilogue {
    /// The text, for a kernel whose parameter for its own results is `c`.
    pub fn emit(&self, caps: &Capabilities) -> EmittedEpilogue {
        let elements = StoredElements { vectors: self.vectors.unwrap_or_default(), columns: self.columns };
        EmittedEpilogue::new(&self.program, "c", elements, caps)
    }
}

impl MatmulKernel {
    /// How sums are stored: one, four or two neighbours at once. An epilogue takes one or four.
    pub(super) fn stores(&self) -> String {
        let ty = self.ty;
        let sum = |value: &str| (format!("({value})"), of_accumulator(self.accumulator, ty));
        let values = |count: usize| {
            let converted = |value: &&str| stored(ty, sum(value));
            ["v0", "v1", "v2", "v3"][..count].iter().map(converted).collect::<Vec<_>>().join(", ")
        };
        let offset = |group, index| self.indexing.offset('c', group, index);
        let at = format!("c_base + {} + {}", offset("m", "i"), offset("n", "j"));
        let (storage, vec4) = (ty.storage(), vec4_of(ty.storage()));
        if let Some(epilogue) = &self.epilogue {
            // The results of a batch begin with a row.
            let place = if epilogue.columns { ", c_base / p.n + (i), j" } else { "" };
            return format!(
                "#define ROLLED_STORES {}\n\
                 #define STORE(i, j, v) store_element({at}{place}, {})\n\
                 #define STORE_VEC4(i, j, v0, v1, v2, v3) store_elements({at}{place}, {})\n",
                u8::from(epilogue.rolled),
                stored(ty, sum("v")),
                values(4),
            );
        }
        let mut text = format!(
            "#define STORE(i, j, v) {}\n\
             #define STORE_VEC4(i, j, v0, v1, v2, v3) VEC4_AT({storage}, p.c, ({at}) / 4) = {vec4}({})\n",
            assign(ty, "c", &at, sum("v")),
            values(4),
        );
        if self.vector_stores && shared_width(self.inner.compute()) == 2 {
            let pair = vector_of(storage, 2);
            let target = if self.index64 {
                format!("Pairs(uint64_t(p.c) + ({at}) * 8ul).v[0]")
            } else {
                format!("CAST(Pairs, p.c).v[({at}) / 2]")
            };
            let _ = writeln!(
                text,
                "layout(buffer_reference, scalar, buffer_reference_align = 16) buffer Pairs {{ {pair} v[]; }};\n\
                 #define STORE_VEC2(i, j, v0, v1) {target} = {pair}({})",
                values(2),
            );
        }
        text
    }
}
