//! The cache of captured calls by a hash of what they are.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use super::Graph;
use crate::pipeline::IdentityHasher;

/// Slots for the hashes of calls that came once.
const SEEN_SLOTS: usize = 1024;
/// The most graphs in the cache. Where there would be more, all are dropped; capturing one again takes some microseconds.
const MAX_GRAPHS: usize = 1024;
/// The most commands of all graphs together. Each takes about 400 bytes.
const MAX_CACHED_COMMANDS: usize = 1 << 14;

/// Whether a call has come before.
pub enum Found {
    /// It was captured: its graph.
    Graph(Arc<Graph>),
    /// Often, and its capture failed: the call runs as it does the first time.
    Uncapturable,
    /// Once before: it is worth a capture now. A loop over offsets makes calls that never come again.
    Seen,
    /// It has not come, or its slot was overwritten since.
    Nothing,
}

/// Graphs by the hashes of their calls. `K` is a saved key, which the key of a later call is compared with.
pub struct Cache<K> {
    by_hash: HashMap<u64, (K, Option<Arc<Graph>>), BuildHasherDefault<IdentityHasher>>,
    /// Graphs that were inserted since the cache was empty: those that others of the same hash have replaced count, too.
    graphs: usize,
    commands: usize,
    /// Hashes of calls that came once. Each stays in its slot until another hash overwrites it.
    seen: [u64; SEEN_SLOTS],
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self { by_hash: HashMap::default(), graphs: 0, commands: 0, seen: [0; SEEN_SLOTS] }
    }
}

impl<K> Cache<K> {
    /// What is known of a call; `same` compares its key with a saved one.
    pub fn find(&mut self, hash: u64, same: impl FnOnce(&K) -> bool) -> Found {
        if let Some((saved, graph)) = self.by_hash.get(&hash)
            && same(saved)
        {
            return graph.clone().map_or(Found::Uncapturable, Found::Graph);
        }
        let seen = &mut self.seen[hash as usize % SEEN_SLOTS];
        if std::mem::replace(seen, hash) == hash { Found::Seen } else { Found::Nothing }
    }

    /// Whether the cache must be emptied before a graph of `commands` commands is inserted.
    pub fn is_full(&self, commands: usize) -> bool {
        self.graphs == MAX_GRAPHS || self.commands + commands > MAX_CACHED_COMMANDS
    }

    /// Keeps what the capture of a call gave. An entry of the same hash is replaced.
    pub fn insert(&mut self, hash: u64, saved: K, graph: Option<Graph>) {
        self.graphs += 1;
        self.commands += graph.as_ref().map_or(0, Graph::commands);
        self.by_hash.insert(hash, (saved, graph.map(Arc::new)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(cache: &mut Cache<&'static str>, hash: u64, key: &'static str) -> &'static str {
        match cache.find(hash, |&saved| saved == key) {
            Found::Graph(_) => "graph",
            Found::Uncapturable => "uncapturable",
            Found::Seen => "seen",
            Found::Nothing => "nothing",
        }
    }

    #[test]
    fn a_call_is_captured_the_second_time_and_replayed_from_then_on() {
        let mut cache = Cache::default();
        assert_eq!([(); 2].map(|()| found(&mut cache, 7, "add")), ["nothing", "seen"]);
        cache.insert(7, "add", Some(Graph::empty(3)));
        assert_eq!([(); 2].map(|()| found(&mut cache, 7, "add")), ["graph"; 2]);
        assert_eq!(found(&mut cache, 8, "add"), "nothing");
    }

    #[test]
    fn a_call_whose_capture_failed_is_not_captured_again() {
        let mut cache = Cache::default();
        assert_eq!([(); 2].map(|()| found(&mut cache, 7, "eigh")), ["nothing", "seen"]);
        cache.insert(7, "eigh", None);
        assert_eq!([(); 2].map(|()| found(&mut cache, 7, "eigh")), ["uncapturable"; 2]);
    }

    #[test]
    fn calls_of_one_hash_are_told_apart() {
        let mut cache = Cache::default();
        cache.insert(7, "add", Some(Graph::empty(1)));
        assert_eq!([(); 2].map(|()| found(&mut cache, 7, "subtract")), ["nothing", "seen"]);
        cache.insert(7, "subtract", Some(Graph::empty(1)));
        assert_eq!(found(&mut cache, 7, "subtract"), "graph");
        assert_ne!(found(&mut cache, 7, "add"), "graph");
    }

    #[test]
    fn calls_that_never_come_again_are_not_captured() {
        let mut cache = Cache::default();
        for hash in 0..10 * SEEN_SLOTS as u64 {
            assert_eq!(found(&mut cache, hash + 1, "slice"), "nothing");
        }
    }

    #[test]
    fn graphs_and_their_commands_are_bounded() {
        let mut cache = Cache::default();
        assert!(!cache.is_full(MAX_CACHED_COMMANDS) && cache.is_full(MAX_CACHED_COMMANDS + 1));
        cache.insert(1, "cholesky", Some(Graph::empty(MAX_CACHED_COMMANDS - 10)));
        assert!(!cache.is_full(10) && cache.is_full(11));
        let mut cache = Cache::default();
        for hash in 0..MAX_GRAPHS as u64 {
            assert!(!cache.is_full(0));
            cache.insert(hash, "add", Some(Graph::empty(0)));
        }
        assert!(cache.is_full(0));
    }
}
