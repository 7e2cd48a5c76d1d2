//! Accounts of memory: the buffers that are charged to somebody, and their bytes. This module counts; it does not know whose an account is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What is charged to one user of memory.
#[derive(Debug, Default)]
pub struct Account {
    bytes: AtomicU64,
    buffers: AtomicU64,
}

/// A buffer's charge, which ends when it is dropped.
#[derive(Debug)]
pub struct Charge {
    account: Arc<Account>,
    bytes: u64,
}

impl Account {
    /// Charges a buffer of that many bytes.
    pub fn charge(self: &Arc<Self>, bytes: u64) -> Charge {
        self.bytes.fetch_add(bytes, Relaxed);
        self.buffers.fetch_add(1, Relaxed);
        Charge { account: self.clone(), bytes }
    }

    /// The bytes that are charged now.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// The number of buffers that are charged now.
    pub fn buffers(&self) -> u64 {
        self.buffers.load(Relaxed)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.bytes.fetch_sub(self.bytes, Relaxed);
        self.account.buffers.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_what_was_charged_and_is_not_dropped() {
        let account = Arc::new(Account::default());
        let charges = [account.charge(8), account.charge(0), account.charge(100)];
        assert_eq!((account.bytes(), account.buffers()), (108, 3));
        let [first, second, third] = charges;
        drop((second, third));
        assert_eq!((account.bytes(), account.buffers()), (8, 1));
        drop(first);
        assert_eq!((account.bytes(), account.buffers()), (0, 0));
    }
}
