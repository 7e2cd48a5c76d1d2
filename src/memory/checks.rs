//! What the contents of allocations depend on that is not known yet when commands are recorded: checks of indices, and kernels that the driver
//! still builds. This module owns which allocations carry which of these; it records no commands and builds nothing.
//!
//! Nobody waits for a check. What a checked command writes carries the check, and so does what later commands make of it: the stream hands
//! checks on from what a command reads to what it writes. Reading an allocation whose check has failed is an error, and it names the operation
//! or the kernel that failed. Checks that have passed are dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::BoundsCheck;
use crate::error::Error;

/// The checks of indices of an allocation from which a call on it shares the last of them, so that a chain of calls that nobody reads
/// carries a bounded number.
const MAX_CHECKS: usize = 16;

/// Whether the driver has built a kernel.
#[derive(Default)]
pub struct KernelBuild(OnceCell<Option<Error>>);

impl KernelBuild {
    /// Says that the build is over, and why it failed if it did. The first call counts.
    pub fn end(&self, failure: Option<Error>) {
        let _ = self.0.set(failure);
    }

    /// Whether the driver has built the kernel.
    pub fn has_passed(&self) -> bool {
        matches!(self.0.get(), Some(None))
    }

    fn failure(&self) -> Option<Error> {
        self.0.get().cloned().flatten()
    }
}

/// What an allocation's contents depend on.
#[derive(Clone)]
pub enum PendingCheck {
    /// Indices are in bounds.
    Indices(Arc<BoundsCheck>),
    /// The driver builds the kernel that writes the contents.
    Kernel(Arc<KernelBuild>),
}

impl PartialEq for PendingCheck {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Indices(a), Self::Indices(b)) => Arc::ptr_eq(a, b),
            (Self::Kernel(a), Self::Kernel(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl PendingCheck {
    fn failure(&self) -> Option<Error> {
        match self {
            Self::Indices(check) => check.failure(),
            Self::Kernel(build) => build.failure(),
        }
    }

    fn has_passed(&self) -> bool {
        match self {
            Self::Indices(check) => check.has_passed(),
            Self::Kernel(build) => build.has_passed(),
        }
    }
}

/// The checks that an allocation's contents depend on, and that have not passed yet.
#[derive(Default)]
pub struct PendingChecks {
    any: AtomicBool,
    list: Mutex<SmallVec<[PendingCheck; 1]>>,
}

impl PendingChecks {
    /// Whether there are some.
    #[inline]
    pub fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Those that have not passed.
    pub fn pending(&self) -> SmallVec<[PendingCheck; 1]> {
        if !self.any() {
            return SmallVec::new();
        }
        let mut list = self.list.lock();
        list.retain(|check| !check.has_passed());
        self.any.store(!list.is_empty(), Relaxed);
        list.clone()
    }

    /// Adds a check.
    pub fn add(&self, check: PendingCheck) {
        let mut list = self.list.lock();
        if !list.contains(&check) {
            list.push(check);
            self.any.store(true, Relaxed);
        }
    }

    /// A check that a call on the allocation shares, where there are too many for another one.
    pub fn shared(&self) -> Option<Arc<BoundsCheck>> {
        let indices = |check| match check {
            PendingCheck::Indices(check) => Some(check),
            PendingCheck::Kernel(_) => None,
        };
        self.pending().into_iter().filter_map(indices).nth(MAX_CHECKS - 1)
    }

    /// The first failure, once the commands that wrote the allocation have run.
    pub fn failure(&self) -> Option<Error> {
        if self.any() { self.list.lock().iter().find_map(|check| check.failure()) } else { None }
    }

    /// Forgets all checks: the memory gets another use.
    pub fn clear(&mut self) {
        if std::mem::take(self.any.get_mut()) {
            self.list.get_mut().clear();
        }
    }
}
