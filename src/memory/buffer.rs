//! Buffers: what the BEAM holds of device memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::RwLock;

use super::{Account, AllocationHandle, Charge};
use crate::error::{Error, Result};

/// A device buffer as the BEAM holds it: `len` bytes of an allocation, until it is freed or collected.
pub struct Buffer {
    len: u64,
    /// Whether it is a copy of elements of the host, which belongs to no device: a call moves it to its other operands'.
    movable: AtomicBool,
    /// Many threads may read one buffer in calls at the same time.
    memory: RwLock<Option<BufferMemory>>,
}

/// What a buffer has until it is freed.
struct BufferMemory {
    allocation: Arc<AllocationHandle>,
    /// What it is charged for, to the process that made it.
    charge: Option<Charge>,
}

impl Buffer {
    /// A buffer of the first `len` bytes of an allocation.
    pub fn new(len: u64, allocation: AllocationHandle) -> Self {
        Self::of(len, Arc::new(allocation))
    }

    /// As [`Buffer::new`], of an allocation that commands in flight may share.
    pub fn of(len: u64, allocation: Arc<AllocationHandle>) -> Self {
        Self {
            len,
            movable: AtomicBool::new(false),
            memory: RwLock::new(Some(BufferMemory { allocation, charge: None })),
        }
    }

    /// Size in bytes as asked for (also after [`Buffer::free`]).
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the size is zero.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The allocation, kept alive while the caller records commands on it.
    pub fn allocation(&self) -> Result<Arc<AllocationHandle>> {
        self.memory.read().as_ref().map(|memory| memory.allocation.clone()).ok_or(Error::Deallocated)
    }

    /// Marks the buffer as a copy of elements of the host.
    pub fn set_movable(&self) {
        self.movable.store(true, Relaxed);
    }

    /// Whether calls may move it to their other operands' device.
    pub fn is_movable(&self) -> bool {
        self.movable.load(Relaxed)
    }

    /// Takes another buffer's allocation in place of its own, unless it was freed.
    pub fn move_to(&self, other: &Self) {
        if let Some(memory) = &mut *self.memory.write()
            && let Some(allocation) = other.take()
        {
            memory.allocation = allocation;
        }
    }

    /// Charges the bytes to an account until the allocation is given back or taken.
    pub fn charge_to(&self, account: &Arc<Account>) {
        if let Some(memory) = &mut *self.memory.write() {
            memory.charge = Some(account.charge(self.len));
        }
    }

    /// Returns the allocation to the pool; false if it was returned before.
    pub fn free(&self) -> bool {
        self.take().is_some()
    }

    /// The allocation, which the buffer no longer has.
    pub fn take(&self) -> Option<Arc<AllocationHandle>> {
        self.memory.write().take().map(|memory| memory.allocation)
    }
}
