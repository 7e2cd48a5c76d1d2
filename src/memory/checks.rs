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

/// Checks in the order in which commands got them. Commands that follow each other share one list.
pub type CheckList = Arc<[PendingCheck]>;

/// The checks that an allocation's contents depend on, and that have not passed yet.
#[derive(Default)]
pub struct PendingChecks {
    any: AtomicBool,
    list: Mutex<Option<CheckList>>,
}

impl PendingChecks {
    /// Whether there are some.
    #[inline]
    pub fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Those that have not passed; `None` where all have.
    pub fn pending(&self) -> Option<CheckList> {
        if !self.any() {
            return None;
        }
        let mut list = self.list.lock();
        let passed = |list: &CheckList| list.iter().any(PendingCheck::has_passed);
        if let Some(all) = list.take_if(|list| passed(list)) {
            let left: Vec<_> = all.iter().filter(|check| !check.has_passed()).cloned().collect();
            *list = (!left.is_empty()).then(|| left.into());
            self.any.store(list.is_some(), Relaxed);
        }
        list.clone()
    }

    /// Adds a check.
    pub fn add(&self, check: PendingCheck) {
        self.add_all(&Arc::from([check]));
    }

    /// Adds checks. One list is kept of two where it has all checks of the other: a chain of commands shares it.
    pub fn add_all(&self, more: &CheckList) {
        let mut list = self.list.lock();
        let has_all = |list: &CheckList, of: &CheckList| of.iter().all(|check| list.contains(check));
        *list = Some(match list.take() {
            Some(own) if Arc::ptr_eq(&own, more) || has_all(&own, more) => own,
            Some(own) if !has_all(more, &own) => {
                let new = more.iter().filter(|check| !own.contains(check));
                own.iter().chain(new).cloned().collect()
            }
            _ => more.clone(),
        });
        self.any.store(true, Relaxed);
    }

    /// A check that a call on the allocation shares, where there are too many for another one.
    pub fn shared(&self) -> Option<Arc<BoundsCheck>> {
        let pending = self.pending()?;
        let mut indices = pending.iter().filter_map(|check| match check {
            PendingCheck::Indices(check) => Some(check.clone()),
            PendingCheck::Kernel(_) => None,
        });
        indices.nth(MAX_CHECKS - 1)
    }

    /// The first failure, once the commands that wrote the allocation have run.
    pub fn failure(&self) -> Option<Error> {
        if !self.any() {
            return None;
        }
        let list = self.list.lock().clone();
        list.and_then(|list| list.iter().find_map(PendingCheck::failure))
    }

    /// Forgets all checks: the memory gets another use.
    pub fn clear(&mut self) {
        if std::mem::take(self.any.get_mut()) {
            *self.list.get_mut() = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build() -> (Arc<KernelBuild>, PendingCheck) {
        let build = Arc::new(KernelBuild::default());
        (build.clone(), PendingCheck::Kernel(build))
    }

    #[test]
    fn a_chain_shares_its_list_and_drops_what_has_passed() {
        let (a, b) = (PendingChecks::default(), PendingChecks::default());
        let ((first, check), (_, other)) = (build(), build());
        a.add(check.clone());
        a.add(other.clone());
        b.add_all(&a.pending().unwrap());
        assert!(Arc::ptr_eq(&a.pending().unwrap(), &b.pending().unwrap()));
        // What the list has already changes nothing.
        b.add(check.clone());
        assert!(Arc::ptr_eq(&a.pending().unwrap(), &b.pending().unwrap()));
        // The longer list of two takes the other's place.
        let c = PendingChecks::default();
        c.add(other.clone());
        c.add_all(&a.pending().unwrap());
        assert!(Arc::ptr_eq(&a.pending().unwrap(), &c.pending().unwrap()));
        first.end(None);
        assert!(*b.pending().unwrap() == [other]);
        assert!(b.any());
    }

    #[test]
    fn lists_with_checks_of_their_own_are_joined() {
        let (a, b) = (PendingChecks::default(), PendingChecks::default());
        let (checks, builds): (Vec<_>, Vec<_>) = (0..3).map(|_| build()).map(|(build, check)| (check, build)).unzip();
        a.add(checks[0].clone());
        a.add(checks[1].clone());
        b.add(checks[1].clone());
        b.add(checks[2].clone());
        a.add_all(&b.pending().unwrap());
        assert!(*a.pending().unwrap() == *checks);
        builds[1].end(Some(Error::SizeMismatch));
        assert!(matches!(a.failure(), Some(Error::SizeMismatch)));
        builds[0].end(None);
        builds[2].end(None);
        assert!(*a.pending().unwrap() == [checks[1].clone()]);
        let passed = PendingChecks::default();
        passed.add(checks[0].clone());
        assert!(passed.pending().is_none() && !passed.any() && passed.failure().is_none());
    }
}
