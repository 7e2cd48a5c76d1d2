//! The accounts of the BEAM's processes: what each of them has made of device memory that is not free yet. This module knows whose an account
//! is, and counts nothing itself.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustler::{Encoder, Env, LocalPid, NifResult, Term};

use super::{atoms, reply_bare};
use crate::error::Error;
use crate::memory::{Account, Buffer};

/// The accounts of processes. One without charges ends once no scheduler remembers it.
#[derive(Default)]
struct Accounts {
    by_process: HashMap<LocalPid, Weak<Account>>,
    /// The number of entries at which those that have ended are removed.
    limit: usize,
}

/// The fewest entries at which those that have ended are looked for.
const MIN_LIMIT: usize = 1024;

static ACCOUNTS: Mutex<Option<Accounts>> = Mutex::new(None);

thread_local! {
    /// The account of the process that made a buffer last on this scheduler: most often the same one makes the next.
    static LAST: RefCell<Option<(LocalPid, Arc<Account>)>> = const { RefCell::new(None) };
}

/// Charges a buffer to the calling process.
pub fn charge(env: Env, buffer: &Buffer) {
    let process = env.pid();
    LAST.with_borrow_mut(|last| match last {
        Some((of, account)) if *of == process => buffer.charge_to(account),
        _ => {
            let account = ACCOUNTS.lock().get_or_insert_default().of(process);
            buffer.charge_to(&account);
            *last = Some((process, account));
        }
    });
}

impl Accounts {
    fn of(&mut self, process: LocalPid) -> Arc<Account> {
        if let Some(account) = self.by_process.get(&process).and_then(Weak::upgrade) {
            return account;
        }
        if self.by_process.len() >= self.limit {
            self.by_process.retain(|_, account| account.strong_count() > 0);
            self.limit = (2 * self.by_process.len()).max(MIN_LIMIT);
        }
        let account = Arc::new(Account::default());
        self.by_process.insert(process, Arc::downgrade(&account));
        account
    }

    /// The accounts with charges.
    fn charged(&self) -> Vec<(LocalPid, Arc<Account>)> {
        let account = |(process, account): (&LocalPid, &Weak<Account>)| Some((*process, account.upgrade()?));
        self.by_process.iter().filter_map(account).filter(|(_, account)| account.buffers() > 0).collect()
    }
}

/// What each process has made and is not free: maps with `:pid`, `:bytes` and `:buffers`.
#[rustler::nif]
fn memory_by_process<'a>(env: Env<'a>) -> NifResult<Term<'a>> {
    let charged = ACCOUNTS.lock().as_ref().map(Accounts::charged).unwrap_or_default();
    let entry = |(process, account): (LocalPid, Arc<Account>)| {
        let keys = [atoms::pid(), atoms::bytes(), atoms::buffers()].map(|key| key.encode(env));
        let values = [process.encode(env), account.bytes().encode(env), account.buffers().encode(env)];
        Term::map_from_term_arrays(env, &keys, &values).map_err(|_| Error::Invalid("keys are distinct".into()))
    };
    reply_bare(env, charged.into_iter().map(entry).collect::<Result<Vec<_>, Error>>())
}
