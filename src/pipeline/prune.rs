//! The limit of the pipeline cache on disk: which files go where they exceed it. This module deletes files of the cache and
//! knows nothing of what they hold.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::SystemTime;

use super::disk::is_cache_file;

/// A file of the cache: the time of its last use first, which files are ordered by.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct CacheFile {
    used: SystemTime,
    path: PathBuf,
    bytes: u64,
}

/// Starts [`prune`] on a thread of its own, unless one of this process is at it.
pub(super) fn prune_in_background(folder: &Path, limit: u64) {
    static AT_WORK: AtomicBool = AtomicBool::new(false);
    if AT_WORK.swap(true, Relaxed) {
        return;
    }
    let folder = folder.to_owned();
    let work = move || {
        prune(&folder, limit);
        AT_WORK.store(false, Relaxed);
    };
    // The next file tries again where there is no thread.
    if std::thread::Builder::new().name("nx_vulkan prune".into()).spawn(work).is_err() {
        AT_WORK.store(false, Relaxed);
    }
}

/// Deletes the least recently used files where all take more than `limit` bytes, until the others take seven eighths of it: the next
/// file does not exceed it again. Other processes may read, write and prune at the same time.
fn prune(folder: &Path, limit: u64) {
    let mut files = files(folder);
    let mut total: u64 = files.iter().map(|file| file.bytes).sum();
    if total <= limit {
        return;
    }
    files.sort_unstable();
    for file in files {
        if total <= limit / 8 * 7 {
            return;
        }
        // What another process deleted takes no more room either.
        if fs::remove_file(&file.path).map_or_else(|error| error.kind() == ErrorKind::NotFound, |()| true) {
            total -= file.bytes;
        }
    }
}

/// The files of the cache. Those that an ended process left half written are among them.
fn files(folder: &Path) -> Vec<CacheFile> {
    let Ok(entries) = fs::read_dir(folder) else { return vec![] };
    let file = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.ok()?;
        let metadata = entry.metadata().ok()?;
        let of_cache = metadata.is_file() && is_cache_file(entry.file_name().to_str()?);
        of_cache.then_some(CacheFile { used: metadata.modified().ok()?, path: entry.path(), bytes: metadata.len() })
    };
    entries.filter_map(file).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A folder that goes with the value.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("nx_vulkan_prune_{name}_{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        /// A file of 100 bytes that was used this many seconds ago.
        fn file(&self, name: &str, age: u64) {
            fs::write(self.0.join(name), [0; 100]).unwrap();
            let file = fs::File::open(self.0.join(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        }

        fn names(&self) -> Vec<String> {
            let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
            let mut names: Vec<_> = fs::read_dir(&self.0).unwrap().map(name).collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn pipeline(i: u64) -> String {
        format!("{i:032x}.pipeline")
    }

    #[test]
    fn what_was_not_used_for_longest_goes_once_the_limit_is_exceeded() {
        let folder = Folder::new("order");
        // File 3 was used last, then 0, 4, 1, and 2 longest ago.
        [20, 40, 50, 10, 30].into_iter().zip(0..).for_each(|(age, i)| folder.file(&pipeline(i), age));
        prune(&folder.0, 500);
        assert_eq!(folder.names().len(), 5, "within the limit nothing goes");
        prune(&folder.0, 400);
        assert_eq!(folder.names(), [pipeline(0), pipeline(3), pipeline(4)], "seven eighths of 400 bytes stay");
        prune(&folder.0, 0);
        assert_eq!(folder.names(), Vec::<String>::new());
        prune(&folder.0.join("missing"), 0);
    }

    #[test]
    fn only_files_of_the_cache_count_and_go() {
        let folder = Folder::new("others");
        let unfinished = format!("{:032x}.tmp-12-0", 9);
        for name in [&pipeline(1), &unfinished, "notes.txt", "1.pipeline", "data.tmp-1"] {
            folder.file(name, 10);
        }
        prune(&folder.0, 200);
        assert_eq!(folder.names().len(), 5, "files of others do not count");
        prune(&folder.0, 0);
        assert_eq!(folder.names(), ["1.pipeline", "data.tmp-1", "notes.txt"]);
    }

    #[test]
    fn several_at_once_leave_what_one_alone_would() {
        let folder = Folder::new("several");
        for round in 0..20 {
            (0..40).for_each(|i| folder.file(&pipeline(i), 1000 - i));
            std::thread::scope(|scope| {
                (0..4).for_each(|_| drop(scope.spawn(|| prune(&folder.0, 2_000))));
            });
            let kept: Vec<String> = (23..40).map(pipeline).collect();
            assert_eq!(folder.names(), kept, "round {round}");
        }
    }
}
