//! Keys and values that attention puts into those that it reads, as a decoder appends a token's to its caches. This module owns what such an update is
//! and the parameters of its row; the kernel takes the row from where it was computed, and stores it beside its other work.

use std::fmt::Write as _;
use std::sync::Arc;

use super::{Attention, AttentionAxis};
use crate::error::{Attempt, Error};
use crate::graph::{Context, Params};
use crate::kernels::contraction::OperandView;
use crate::kernels::{Tensor, assemble};
use crate::memory::{AllocationHandle, Buffer};
use crate::program::Type;
use crate::program::emit::element;
use crate::program::layout::{check_bounds, is_whole};

/// A row of keys or of values, one for each batch, that is put at one position along the keys.
pub struct AttentionUpdate<'a> {
    /// The row, of the type of what it is put into.
    pub row: OperandView<'a>,
    /// Its strides along the batch axes, in elements.
    pub batch: Vec<i64>,
    /// Its stride along a head, in elements.
    pub head: i64,
    /// Where it is put along the keys.
    pub position: RowPosition<'a>,
}

/// An index along the keys.
#[derive(Clone, Copy)]
pub enum RowPosition<'a> {
    /// One that the caller knows.
    Known(u64),
    /// One integer in a buffer; what is out of bounds is taken as the nearest index that is not.
    Stored(&'a Buffer, Type),
}

/// What the GLSL of an update depends on.
#[derive(Clone, Copy, Hash)]
pub(super) struct UpdateKernel {
    /// The type of the position, where it is in a buffer.
    pub position: Option<Type>,
}

/// The memory of an update.
pub(super) struct UpdateMemory {
    /// A copy of what is updated, which the kernel completes.
    pub updated: Buffer,
    row: Arc<AllocationHandle>,
    position: Option<Arc<AllocationHandle>>,
}

impl UpdateMemory {
    /// Copies the keys or values `into` which the row is put.
    pub fn new(cx: &Context, update: &AttentionUpdate, into: &OperandView) -> Attempt<Self> {
        let position = match update.position {
            RowPosition::Known(_) => None,
            RowPosition::Stored(buffer, _) => Some(buffer.allocation()?),
        };
        let &OperandView { buffer, ty, .. } = into;
        // Bits are copied: floats might change, as NaNs do.
        let bits = Type::from_nx("u", ty.bits().max(8)).unwrap_or(ty);
        let updated = assemble::copy(cx, &Tensor { buffer, ty: bits, shape: &[buffer.len() / bits.size()] }, bits)?;
        Ok(Self { updated, row: update.row.buffer.allocation()?, position })
    }
}

/// The names of an update's parameters: the row, its position, and strides of the row along a batch axis and a head.
struct UpdateNames {
    row: &'static str,
    position: &'static str,
    batch: &'static str,
    depth: &'static str,
}

/// Those of the update of the keys and of the values.
const UPDATE_NAMES: [UpdateNames; 2] = [
    UpdateNames { row: "k_new", position: "k_position", batch: "k_new_batch", depth: "k_new_depth" },
    UpdateNames { row: "v_new", position: "v_position", batch: "v_new_batch", depth: "v_new_depth" },
];

impl AttentionUpdate<'_> {
    /// The kernel's part.
    pub(super) fn kernel(&self) -> UpdateKernel {
        let position = match self.position {
            RowPosition::Known(_) => None,
            RowPosition::Stored(_, ty) => Some(ty),
        };
        UpdateKernel { position }
    }

    /// Elements of the buffer that has the row.
    pub(super) fn len(&self) -> u64 {
        self.row.buffer.len() / self.row.ty.size()
    }

    /// Whether runs of neighbours along a head are contiguous and aligned.
    pub(super) fn has_runs(&self, batch: &[AttentionAxis], run: u64) -> bool {
        let across = batch.iter().zip(&self.batch).filter(|(axis, _)| axis.dim != 1);
        self.head == 1 && is_whole(self.row.offset, run) && across.into_iter().all(|(_, &stride)| is_whole(stride, run))
    }

    /// Fails where a buffer is too small, or what is put is no row of the operand `into` with heads of `head` elements.
    fn check(&self, cx: &Context, attention: &Attention, into: &OperandView, head: u64) -> Attempt<()> {
        let argument = |text: &'static str| Err(Error::Argument(text.into()).into());
        if self.row.ty != into.ty || self.batch.len() != attention.batch.len() {
            return argument("updates: expected rows of the type and with the batch axes of what they are put into");
        }
        let axes = attention.batch.iter().zip(&self.batch).map(|(axis, &stride)| (axis.dim, stride));
        check_bounds(self.row.offset, axes.chain([(head, self.head)]), self.len())?;
        match self.position {
            RowPosition::Known(position) if position < attention.keys.dim => Ok(()),
            RowPosition::Stored(buffer, ty) if !ty.is_float() && !ty.is_complex() => {
                ty.check_program(cx.caps())?;
                Ok(check_bounds(0, [].into_iter(), buffer.len() / ty.size())?)
            }
            _ => argument("updates: expected the index of a key, or one integer in a buffer"),
        }
    }
}

/// Fails where an update does not fit the attention, which has a result.
pub(super) fn check(cx: &Context, attention: &Attention) -> Attempt<()> {
    let heads = [attention.depth.dim, attention.columns.dim];
    for (i, update) in attention.updates.iter().enumerate() {
        if let Some(update) = update {
            update.check(cx, attention, &attention.operands[i + 1], heads[i])?;
        }
    }
    Ok(())
}

impl UpdateKernel {
    /// The addresses of the update of the keys, which is the first, or of the values.
    pub fn inputs<'a>(
        &self,
        i: usize,
        update: &AttentionUpdate<'a>,
        memory: &'a UpdateMemory,
        params: &mut Params<'a>,
    ) {
        let OperandView { ty, offset, .. } = update.row;
        let names = &UPDATE_NAMES[i];
        params.read_at(&memory.row, offset as u64 * ty.size(), ty.storage(), names.row);
        if let (Some(ty), Some(position)) = (self.position, &memory.position) {
            params.read(position, ty.storage(), names.position);
        }
    }

    /// The indices.
    pub fn steps(&self, i: usize, update: &AttentionUpdate, index64: bool, params: &mut Params) {
        let names = &UPDATE_NAMES[i];
        if let RowPosition::Known(position) = update.position {
            params.extent(position, index64, names.position);
        }
        for (axis, &stride) in update.batch.iter().enumerate() {
            params.index(stride, index64, (names.batch, axis));
        }
        params.index(update.head, index64, names.depth);
    }

    /// The macros of the update: where it is put, and how an element of type `ty` is.
    pub fn macros(&self, text: &mut String, i: usize, ty: Type) {
        let (names, storage) = (&UPDATE_NAMES[i], ty.storage());
        let (upper, name) = [("KEY", "k"), ("VALUE", "v")][i];
        let position = match self.position {
            Some(ty) => format!("clamp_index({}, p.keys)", element(ty, names.position, "IDX(0)").0),
            None => format!("p.{}", names.position),
        };
        let _ = writeln!(
            text,
            "#define NEW_{upper}_POSITION {position}\n#define {upper}_BUFFER Buffer_{storage}\n\
             #define PUT_{upper}(to, from) AT({storage}, p.{name}, to) = AT({storage}, p.{}, from)",
            names.row
        );
    }

    /// The parameter that the strides along the batch axes begin with.
    pub fn batch_name(i: usize) -> &'static str {
        UPDATE_NAMES[i].batch
    }
}
