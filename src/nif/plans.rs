//! The plans of programs that have run, by the terms that these came from: a program that comes again is neither decoded nor
//! checked nor planned again.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use rustler::Term;
use rustler::env::{OwnedEnv, SavedTerm};

use crate::kernels::program::Plan;
use crate::pipeline::Hashed;

/// Plans are forgotten, all at once, when there are so many: some kilobytes each, and made again in some microseconds.
const MOST: usize = 1024;

/// A term that says all that a program is, but its operands.
#[derive(Clone, Copy)]
pub(super) struct Key<'a> {
    term: Term<'a>,
    hash: u64,
}

impl<'a> Key<'a> {
    pub fn new(term: Term<'a>) -> Self {
        Self { term, hash: term.hash_internal(0) }
    }
}

struct Plans {
    /// Holds the keys' terms.
    terms: OwnedEnv,
    by_hash: HashMap<u64, (SavedTerm, Arc<Plan>), BuildHasherDefault<Hashed>>,
    /// How many terms there are, those that others of the same hash have replaced among them.
    kept: usize,
    /// Hashes of keys that have come once, each at its place until another takes that.
    seen: [u64; MOST],
}

impl Plans {
    fn new() -> Self {
        Self { terms: OwnedEnv::new(), by_hash: HashMap::default(), kept: 0, seen: [0; MOST] }
    }
}

static PLANS: LazyLock<Mutex<Plans>> = LazyLock::new(|| Mutex::new(Plans::new()));

/// The plan that is kept for a key.
pub(super) fn find(key: Key) -> Option<Arc<Plan>> {
    let plans = PLANS.lock();
    let (saved, plan) = plans.by_hash.get(&key.hash)?;
    plans.terms.run(|env| saved.load(env) == key.term).then(|| plan.clone())
}

/// Keeps the plan of a key that comes a second time: a loop over offsets makes programs that never do.
pub(super) fn keep(key: Key, plan: Plan) {
    let mut plans = PLANS.lock();
    let seen = &mut plans.seen[key.hash as usize % MOST];
    if *seen != key.hash {
        *seen = key.hash;
        return;
    }
    if plans.kept == MOST {
        *plans = Plans::new();
    }
    plans.kept += 1;
    let saved = plans.terms.save(key.term);
    plans.by_hash.insert(key.hash, (saved, Arc::new(plan)));
}
