//! When the pool grows, and when garbage is collected first.

use std::collections::BTreeMap;

use super::PoolState;
use crate::error::Retry;

/// The least that may be reserved before garbage is collected.
pub(super) const MIN_HEADROOM_BYTES: u64 = 64 << 20;
/// The share of the reserved memory that the headroom grows by once there was no garbage to collect.
const HEADROOM_DIVISOR: u64 = 4;

impl PoolState {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            free: BTreeMap::new(),
            reserved: 0,
            live_readbacks: 0,
            peak: 0,
            headroom: MIN_HEADROOM_BYTES.min(limit),
            since_collection: u64::MAX,
            collected_all: false,
            short: false,
        }
    }

    /// The bytes by which the pool grows where there is no garbage to collect.
    pub(super) fn growth(&self) -> u64 {
        (self.reserved / HEADROOM_DIVISOR).max(MIN_HEADROOM_BYTES)
    }

    /// What garbage a call that may not block should collect before the pool grows: what is new, or all where that gave back less than the
    /// pool would grow by. `None` where that was less, too: a pool that never grows collects all the time.
    pub(super) fn collection(&mut self, size: u64, limit: u64) -> Option<Retry> {
        let exhausted = self.reserved + size > limit && self.since_collection > 0;
        let due = exhausted || self.since_collection >= self.growth();
        if !due && self.collected_all {
            return None;
        }
        self.since_collection = 0;
        self.collected_all = !due;
        Some(if due { Retry::AfterCollection } else { Retry::AfterFullCollection })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const LIMIT: u64 = 4096 * MIB;

    /// What calls are told that find no free memory, each after so many MiB were handed out.
    fn told(reserved: u64, handed_out: &[u64]) -> Vec<Option<Retry>> {
        let mut state = PoolState { reserved: reserved * MIB, ..PoolState::new(LIMIT) };
        let mut tell = |mib: &u64| {
            state.since_collection = state.since_collection.saturating_add(mib * MIB);
            state.collection(MIB, LIMIT)
        };
        handed_out.iter().map(&mut tell).collect()
    }

    #[test]
    fn a_pool_grows_where_collections_give_back_less_than_it_grows_by() {
        let (new, all, none) = (Some(Retry::AfterCollection), Some(Retry::AfterFullCollection), None);
        // In vain, or for little.
        assert_eq!(told(100, &[0, 0, 0]), [new, all, none]);
        assert_eq!(told(100, &[0, 63, 62, 1, 1]), [new, all, none, none, new]);
        // A quarter of a large pool.
        assert_eq!(told(1000, &[0, 249, 249, 1]), [new, all, none, new]);
        // Collections that give back as much are all that is needed.
        assert_eq!(told(100, &[64, 64, 64]), [new, new, new]);
        assert_eq!(told(100, &[64, 10, 64]), [new, all, new]);
    }

    #[test]
    fn a_pool_at_its_limit_collects_each_time_it_has_handed_out_anything() {
        let (new, all, none) = (Some(Retry::AfterCollection), Some(Retry::AfterFullCollection), None);
        assert_eq!(told(4096, &[1, 1, 0, 0, 1]), [new, new, all, none, new]);
    }
}
