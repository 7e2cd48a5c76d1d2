//! Rows that a reduction's kernel computes before it reads them: what computes one, what its text depends on, and its parameters.

use super::kernel::ProgramArgs;
use super::rows::Row;
use crate::device::Capabilities;
use crate::graph::Params;
use crate::kernels::attention::{Combination, CombinationText};
use crate::program::emit::{EmittedPrologue, PROLOGUE_PARAMETERS, RowPrologue};
use crate::program::layout::Layout;
use crate::tuning::fusion::FusionLaunch;
use crate::tuning::rows::combining_threads;

/// What computes a row that a kernel reads.
#[derive(Clone, Copy)]
pub enum RowSource<'a> {
    /// A row program.
    Program(&'a Row<'a>),
    /// The parts of an attention.
    Combination(&'a Combination),
}

/// What the text of a prologue depends on.
#[derive(Hash)]
pub(super) enum Prologue {
    Program(Box<RowPrologue>),
    /// By that many invocations.
    Combination(CombinationText, u32),
}

/// What a launch of a kernel with a prologue reads for it.
#[derive(Clone, Copy)]
pub(super) struct PrologueArgs<'a> {
    pub source: RowSource<'a>,
    /// The kernel's input that the row is.
    pub input: usize,
}

impl<'a> RowSource<'a> {
    /// As a prologue of a reduction's kernel that reads it and has so many bytes of shared memory besides, where that is faster.
    pub(super) fn prologue(
        &self,
        layout: &Layout,
        launch: (&FusionLaunch, u64),
        caps: &Capabilities,
    ) -> Option<Prologue> {
        match self {
            Self::Program(row) => row.prologue(layout, launch, caps).map(Box::new).map(Prologue::Program),
            Self::Combination(combination) => {
                let text = combination.text();
                let threads = combining_threads(text.shared_bytes(), launch, caps);
                let fits = !layout.index64 && layout.reduced() == text.elements();
                threads.filter(|_| fits).map(|threads| Prologue::Combination(text, threads))
            }
        }
    }
}

impl Prologue {
    pub fn emit(&self, caps: &Capabilities) -> EmittedPrologue {
        match self {
            Self::Program(rows) => EmittedPrologue::new(rows, caps),
            Self::Combination(text, threads) => text.emit(*threads, caps),
        }
    }

    /// What it does, in a profile's words.
    pub fn name(&self) -> String {
        match self {
            Self::Program(rows) => format!("rows {}", rows.rows.program.summary()),
            Self::Combination(..) => "combine attention".into(),
        }
    }
}

impl<'a> PrologueArgs<'a> {
    /// Arithmetic operations of one workgroup.
    pub fn operations(&self) -> u64 {
        match self.source {
            RowSource::Program(row) => row.operations(),
            RowSource::Combination(combination) => combination.operations(),
        }
    }

    /// The addresses and values of what it reads.
    pub fn inputs(&self, params: &mut Params<'a>) {
        match self.source {
            RowSource::Program(row) => Self::program(row).inputs(params),
            RowSource::Combination(combination) => combination.inputs(params),
        }
    }

    /// Extents, strides and steps.
    pub fn steps(&self, params: &mut Params<'a>) {
        if let RowSource::Program(row) = self.source {
            Self::program(row).steps(params);
        }
    }

    fn program(row: &'a Row<'a>) -> ProgramArgs<'a> {
        let (program, layout, operands) = (&row.rows.program, &row.sound.layout, row.operands);
        ProgramArgs { program, layout, operands, prefix: PROLOGUE_PARAMETERS, given: None, index64: layout.index64 }
    }
}
