//! Row programs as prologues: each workgroup of a kernel computes the one row that the kernel reads, and has it in shared memory.

use std::fmt::Write as _;

use super::super::vec4_of;
use super::super::workgroup::replaced;
use super::{RowEmitter, RowSchedule};
use crate::device::Capabilities;
use crate::program::rows::{RowProgram, SoundRows};
use crate::program::types::Compute;

/// What the names of a prologue's parameters begin with, as its kernel may have inputs of the same names.
pub const PROLOGUE_PARAMETERS: &str = "prologue_";

/// The array of a prologue's elements as they are stored, in vectors of four.
pub const SHARED_ROW: &str = "shared_row";

/// An element of the row in shared memory.
pub fn shared_element(index: &str) -> String {
    format!("{SHARED_ROW}[({index}) / 4][({index}) % 4]")
}

/// A row program of one row and one result, which a kernel reads as one of its inputs.
#[derive(Clone, Debug, Hash)]
pub struct RowPrologue {
    /// The program, as a kernel has it.
    pub rows: RowProgram,
    /// What it goes through.
    pub sound: SoundRows,
    /// How the kernel's workgroup goes through the row; its invocations are those of the kernel.
    pub schedule: RowSchedule,
    /// Vectors of four that hold the row.
    pub vectors: u32,
}

/// The text of a prologue, and what the head of its kernel has to know of it.
pub struct EmittedPrologue {
    /// Types of the elements of the buffers that it reads.
    pub storages: Vec<&'static str>,
    /// Types that it computes in.
    pub computes: Vec<Compute>,
    /// Files of `shaders/lib` besides those of every reduction, each of which the kernel includes once.
    pub files: Vec<&'static str>,
    /// The declaration of the row.
    pub memory: String,
    /// `prologue()` computes the row. It follows the files of reductions.
    pub function: String,
}

impl EmittedPrologue {
    /// Of a row program without its parameters.
    pub fn new(prologue: &RowPrologue, caps: &Capabilities) -> Self {
        let RowPrologue { rows, sound, schedule, vectors, .. } = prologue;
        let emitter = RowEmitter { is_prologue: true, ..RowEmitter::new(rows, sound, *schedule, caps) };
        let (storages, computes, mut files) = emitter.uses();
        files.retain(|&file| file != "reduce.glsl");
        let result = rows.program.type_of(rows.outputs[0].value).storage();
        let memory = format!("shared {} {SHARED_ROW}[{vectors}];\n", vec4_of(result));
        let mut text = String::new();
        emitter.macros(&mut text);
        emitter.memory(&mut text);
        text.push_str("void prologue() {\n  const IDX group = 0;\n");
        emitter.rows(&mut text);
        for name in ["LANES", "ROWS", "SUBGROUP_LANES", "PARTIALS"] {
            let _ = writeln!(text, "#undef {name}");
        }
        // The kernel reduces what is a row here.
        let function = replaced(&text, |name| match name {
            "rows" => Some("IDX(1)".into()),
            "reduced" => None,
            _ => Some(format!("p.{PROLOGUE_PARAMETERS}{name}")),
        });
        Self { storages, computes, files, memory, function }
    }
}
