use std::sync::Arc;

use parking_lot::Mutex;

use super::Lease;
use crate::error::{Error, Result};

/// A device buffer as the BEAM holds it: `len` bytes in a leased block, until freed or collected.
pub struct Buffer {
    len: u64,
    lease: Mutex<Option<Arc<Lease>>>,
}

impl Buffer {
    pub fn new(len: u64, lease: Lease) -> Self {
        Self { len, lease: Mutex::new(Some(Arc::new(lease))) }
    }

    /// Size in bytes as asked for (also after [`Buffer::free`]).
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The block, kept alive while the caller records work on it.
    pub fn lease(&self) -> Result<Arc<Lease>> {
        self.lease.lock().clone().ok_or(Error::Deallocated)
    }

    /// Gives the block back to the pool; false if it was given back before.
    pub fn free(&self) -> bool {
        self.lease.lock().take().is_some()
    }
}
