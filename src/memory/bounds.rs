//! Checks of indices that only the device knows. Kernels report an index that is out of bounds in a record that the host maps; this module
//! owns the records, and what their words mean. It knows no kernels and no commands.

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::{Allocation, AllocationHandle};
use crate::error::Error;

/// Bytes of a record: the words of `BoundsRecord` in `shaders/lib/bounds.glsl`.
pub const BOUNDS_RECORD_BYTES: u64 = 16;
/// Marks an index of an unsigned type, as in `shaders/lib/bounds.glsl`.
const UNSIGNED_INDEX: u32 = 1 << 31;

/// What an operation's error message says of its indices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CheckedIndices {
    /// The operation's name, a function of Nx.
    pub op: String,
    /// The shape that the indices choose from.
    pub shape: SmallVec<[u64; 4]>,
    /// The axis of `shape` that each index of a row points along.
    pub axes: SmallVec<[usize; 4]>,
}

/// The check of a call, or of all calls of a definition: the record that its kernels report to.
pub struct BoundsCheck {
    record: AllocationHandle,
    /// The operations of the call, by the numbers that they report, which start with 1.
    operations: Mutex<SmallVec<[Arc<CheckedIndices>; 1]>>,
}

impl BoundsCheck {
    /// A check whose record is an allocation of [`MemoryKind::Record`](super::MemoryKind) that no command uses yet.
    pub fn new(record: AllocationHandle) -> Self {
        if record.words()[0] != 0 {
            record.clear();
        }
        Self { record, operations: Mutex::default() }
    }

    /// The record.
    pub fn record(&self) -> &Allocation {
        &self.record
    }

    /// What a kernel gets as `check`: the record's address and the operation's number.
    pub fn words(&self, operation: &Arc<CheckedIndices>) -> [u32; 4] {
        let mut operations = self.operations.lock();
        let known = operations.iter().position(|known| Arc::ptr_eq(known, operation) || known == operation);
        let index = known.unwrap_or_else(|| {
            operations.push(operation.clone());
            operations.len() - 1
        });
        let address = self.record.address;
        [address as u32, (address >> 32) as u32, index as u32 + 1, 0]
    }

    /// The error where an index was out of bounds, of commands that have run.
    pub(super) fn failure(&self) -> Option<Error> {
        let [number, k, low, high] = self.record.words();
        let operation = self.operations.lock().get((number as usize).checked_sub(1)?).cloned()?;
        let CheckedIndices { op, shape, axes } = &*operation;
        let index = u64::from(low) | u64::from(high) << 32;
        let index = if k & UNSIGNED_INDEX == 0 { (index as i64).to_string() } else { index.to_string() };
        let axis = axes.get((k & !UNSIGNED_INDEX) as usize).copied().unwrap_or_default();
        let dims: Vec<_> = shape.iter().map(u64::to_string).collect();
        let shape = dims.join(", ");
        Some(Error::Argument(
            format!("index {index} is out of bounds for axis {axis} in shape {{{shape}}}, by Nx.{op}").into(),
        ))
    }

    /// Whether the commands that were recorded with it have run, and none has failed.
    pub(super) fn has_passed(&self) -> bool {
        self.record.has_run() && self.record.words()[0] == 0
    }
}
