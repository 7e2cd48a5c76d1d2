//! The plans of calls that have run, by the terms that these came from: a call that comes again is neither decoded nor checked
//! nor decided again.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use rustler::env::{OwnedEnv, SavedTerm};
use rustler::types::tuple::make_tuple;
use rustler::{Encoder, Env, Term};
use smallvec::SmallVec;

use super::gpu;
use crate::device::Gpu;
use crate::error::Attempt;
use crate::kernels::plan::{Operand, Plan};
use crate::memory::{Blocking, Buffer};
use crate::pipeline::Hashed;

/// Plans are forgotten, all at once, when there are so many: some kilobytes each, and made again in some microseconds.
const MOST: usize = 1024;

/// Calls of more operands are decided each time: here each is compared with all before it.
const MOST_OPERANDS: usize = 64;

/// The result of a call, by its plan where it has come twice before. `parts` say all that the call is, but what its operands
/// hold, and no other call's are the same.
pub(super) fn planned<'a>(
    env: Env<'a>,
    mut parts: Parts<'a>,
    operands: &[Operand],
    blocking: Blocking,
    call: impl FnOnce(&Gpu) -> Attempt<Buffer>,
) -> Attempt<Buffer> {
    let gpu = gpu(blocking)?;
    if operands.len() > MOST_OPERANDS {
        return call(gpu);
    }
    // Operands that are one buffer are so in each run of a plan.
    for (i, operand) in operands.iter().enumerate() {
        let Some(block) = operand.block() else { continue };
        let same = |other: &Operand| other.block().is_some_and(|other| other.address == block.address);
        parts.extend(operands[..i].iter().position(same).map(|first| (i, first).encode(env)));
    }
    let key = Key::new(make_tuple(env, &parts));
    match find(key) {
        Found::Plan(plan) if plan.fits(operands) => plan.run(gpu, operands, blocking),
        Found::Nothing => call(gpu),
        Found::Plan(_) | Found::Seen => {
            let (buffer, plan) = Plan::of(operands, || call(gpu))?;
            plan.into_iter().for_each(|plan| keep(key, plan));
            Ok(buffer)
        }
    }
}

/// The terms that a call's key is made of.
pub(super) type Parts<'a> = SmallVec<[Term<'a>; 16]>;

/// A term that says all that a call is, but its operands.
#[derive(Clone, Copy)]
struct Key<'a> {
    term: Term<'a>,
    hash: u64,
}

impl<'a> Key<'a> {
    fn new(term: Term<'a>) -> Self {
        Self { term, hash: term.hash_internal(0) }
    }
}

enum Found {
    Plan(Arc<Plan>),
    /// A call that has come before. A loop over offsets makes calls that never come again.
    Seen,
    Nothing,
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

fn find(key: Key) -> Found {
    let mut plans = PLANS.lock();
    if let Some((saved, plan)) = plans.by_hash.get(&key.hash)
        && plans.terms.run(|env| saved.load(env) == key.term)
    {
        return Found::Plan(plan.clone());
    }
    let seen = &mut plans.seen[key.hash as usize % MOST];
    if std::mem::replace(seen, key.hash) == key.hash { Found::Seen } else { Found::Nothing }
}

fn keep(key: Key, plan: Plan) {
    let mut plans = PLANS.lock();
    if plans.kept == MOST {
        *plans = Plans::new();
    }
    plans.kept += 1;
    let saved = plans.terms.save(key.term);
    plans.by_hash.insert(key.hash, (saved, Arc::new(plan)));
}
