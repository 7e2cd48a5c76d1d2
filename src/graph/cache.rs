//! The cache of captured calls by a hash of what they are.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use super::Graph;
use crate::pipeline::IdentityHasher;

/// Hashes of calls that came once are remembered in as many places.
const SEEN_SLOTS: usize = 1024;
/// Graphs are forgotten, all at once, when there would be more of them; each is captured again in some microseconds.
const MAX_GRAPHS: usize = 1024;
/// Commands of all graphs together: about 400 bytes each.
const MAX_COMMANDS: usize = 1 << 16;

/// Whether a call has come before.
pub enum Found {
    Graph(Arc<Graph>),
    /// Once before: it is worth a capture now. A loop over offsets makes calls that never come again.
    Seen,
    Nothing,
}

/// Graphs by what their calls are. `K` is a key as it is saved; a call's own key is compared with it.
pub struct Cache<K> {
    by_hash: HashMap<u64, (K, Arc<Graph>), BuildHasherDefault<IdentityHasher>>,
    /// Graphs that were inserted since the cache was empty: those that others of the same hash have replaced count, too.
    graphs: usize,
    commands: usize,
    /// Hashes of calls that came once, each in its slot until another takes that.
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
            return Found::Graph(graph.clone());
        }
        let seen = &mut self.seen[hash as usize % SEEN_SLOTS];
        if std::mem::replace(seen, hash) == hash { Found::Seen } else { Found::Nothing }
    }

    /// Whether the cache must be emptied before a graph of `commands` commands is inserted.
    pub fn is_full(&self, commands: usize) -> bool {
        self.graphs == MAX_GRAPHS || self.commands + commands > MAX_COMMANDS
    }

    /// Keeps a graph. One of the same hash is replaced.
    pub fn insert(&mut self, hash: u64, saved: K, graph: Graph) {
        self.graphs += 1;
        self.commands += graph.commands();
        self.by_hash.insert(hash, (saved, Arc::new(graph)));
    }
}
