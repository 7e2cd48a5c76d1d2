//! The pipeline cache on disk: a file for each pipeline, named by the hash of its content, device and driver, that
//! holds its SPIR-V and the driver's data behind a checksum. A file that is missing, damaged or of another format is
//! the same as none; a folder that cannot be written costs only time. What the bytes mean is the callers' matter.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::SystemTime;

use vulkano::device::physical::PhysicalDevice;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::prune::prune_in_background;
use crate::error::{Error, Result};

/// The cache of one device and driver.
#[derive(Clone)]
pub struct DiskCache {
    /// `None` where no folder for one is known.
    folder: Option<PathBuf>,
    /// Bytes that distinguish the device and its driver.
    device: Vec<u8>,
    /// The most bytes of all files, those of other devices included.
    limit: u64,
}

/// What a file holds.
pub struct CachedPipeline {
    /// SPIR-V; empty where the file holds an answer about the device.
    pub words: Vec<u32>,
    /// The driver's own data for building the pipeline faster, or the answer's text.
    pub driver_data: Vec<u8>,
}

/// First bytes of each file: another format gets another number.
const MAGIC: &[u8; 8] = b"nxvulk01";

impl DiskCache {
    /// The cache of a device and its driver. It touches no file yet.
    pub fn new(physical: &PhysicalDevice) -> Result<Self> {
        let p = physical.properties();
        let mut device = p.pipeline_cache_uuid.to_vec();
        for number in [p.vendor_id, p.device_id, p.driver_version] {
            device.extend(number.to_le_bytes());
        }
        device.extend(p.device_name.as_bytes());
        Ok(Self { folder: folder(), device, limit: limit()? })
    }

    /// The key of a pipeline made from these parts on this device.
    pub fn key(&self, parts: &[&[u8]]) -> u128 {
        let mut hash = Xxh3::new();
        for part in [MAGIC.as_slice(), &self.device].iter().chain(parts) {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.digest128()
    }

    /// What a file holds; `None` where it is missing, damaged or of another format.
    pub fn read(&self, key: u128) -> Option<CachedPipeline> {
        let (mut file, mut bytes) = (fs::File::open(self.path(key)?).ok()?, vec![]);
        file.read_to_end(&mut bytes).ok()?;
        // The time of change is that of the last use: the files that are not used are pruned first. It fails for another user's file.
        let _ = file.set_modified(SystemTime::now());
        decode(&bytes)
    }

    /// Writes a file, for all processes at once; without an effect where the folder cannot be written.
    pub fn write(&self, key: u128, entry: &CachedPipeline) {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let Some(path) = self.path(key) else { return };
        let unique = format!("tmp-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let temporary = path.with_extension(unique);
        let bytes = encode(entry);
        // Renaming is atomic: readers see a whole file or none.
        let written = path
            .parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&temporary, &bytes))
            .and_then(|()| fs::rename(&temporary, &path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        } else if let Some(folder) = self.folder()
            && starts_pruning(key, bytes.len() as u64, self.limit)
        {
            prune_in_background(folder, self.limit);
        }
    }

    /// What was found out about the device with this version of the library; `None` where nothing is remembered.
    pub fn recall(&self, question: &str) -> Option<String> {
        let entry = self.read(self.question_key(question))?;
        String::from_utf8(entry.driver_data).ok()
    }

    /// Has every process recall this answer for the device, its driver and this version of the library.
    pub fn remember(&self, question: &str, answer: &str) {
        let entry = CachedPipeline { words: vec![], driver_data: answer.as_bytes().to_vec() };
        self.write(self.question_key(question), &entry);
    }

    fn question_key(&self, question: &str) -> u128 {
        self.key(&[b"device", question.as_bytes(), env!("CARGO_PKG_VERSION").as_bytes()])
    }

    /// Whether the folder has no file, so that nothing is remembered of any device.
    pub fn is_empty_folder() -> bool {
        folder().and_then(|folder| fs::read_dir(folder).ok()).is_none_or(|mut files| files.next().is_none())
    }

    /// The folder of the files; `None` where no folder for one is known.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The most bytes that all files take.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    fn path(&self, key: u128) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(format!("{key:032x}.pipeline")))
    }
}

/// `NX_VULKAN_CACHE_DIR`, else `nx_vulkan/pipelines` in the user's cache folder.
fn folder() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("NX_VULKAN_CACHE_DIR").or_else(|| {
        let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
        Some(cache.join("nx_vulkan").join("pipelines"))
    })
}

/// The limit of the files' size where `NX_VULKAN_CACHE_LIMIT` sets none.
const DEFAULT_LIMIT_BYTES: u64 = 1 << 30;

/// `NX_VULKAN_CACHE_LIMIT` in bytes.
fn limit() -> Result<u64> {
    let Ok(text) = std::env::var("NX_VULKAN_CACHE_LIMIT") else { return Ok(DEFAULT_LIMIT_BYTES) };
    let wrong = |_| Error::NoDevice(format!("NX_VULKAN_CACHE_LIMIT={text} is not a number of bytes"));
    text.trim().parse().map_err(wrong)
}

/// The part of the limit that is written, on average, between two scans of the folder.
const SCANS_PER_LIMIT: u64 = 64;

/// Whether the folder is scanned once this file is written, with a probability of its share of what is written between two scans. Many
/// processes share the folder, and none knows what the others have written; the key, a hash, is a random number.
fn starts_pruning(key: u128, bytes: u64, limit: u64) -> bool {
    key % u128::from((limit / SCANS_PER_LIMIT).max(1)) < bytes.into()
}

/// Whether a file of this name belongs to the cache: a pipeline, or one that is being written.
pub(super) fn is_cache_file(name: &str) -> bool {
    let Some((key, kind)) = name.split_once('.') else { return false };
    let hash = key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
    hash && (kind == "pipeline" || kind.starts_with("tmp-"))
}

fn encode(entry: &CachedPipeline) -> Vec<u8> {
    let mut body = (entry.words.len() as u64).to_le_bytes().to_vec();
    body.extend_from_slice(bytemuck::cast_slice(&entry.words));
    body.extend_from_slice(&entry.driver_data);
    let checksum = xxh3_128(&body).to_le_bytes();
    [MAGIC.as_slice(), &checksum, &body].concat()
}

fn decode(bytes: &[u8]) -> Option<CachedPipeline> {
    let bytes = bytes.strip_prefix(MAGIC)?;
    let (checksum, body) = bytes.split_first_chunk::<16>()?;
    if xxh3_128(body).to_le_bytes() != *checksum {
        return None;
    }
    let (count, rest) = body.split_first_chunk::<8>()?;
    let len = usize::try_from(u64::from_le_bytes(*count)).ok()?.checked_mul(4)?;
    let (words, driver_data) = rest.split_at_checked(len)?;
    Some(CachedPipeline { words: bytemuck::allocation::pod_collect_to_vec(words), driver_data: driver_data.to_vec() })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn scans_are_rare_and_frequent_enough() {
        let scans = |bytes, limit| {
            let keys = (0_u32..10_000).map(|i| xxh3_128(&i.to_le_bytes()));
            keys.filter(|&key| starts_pruning(key, bytes, limit)).count()
        };
        // 10,000 files of a kernel's usual size are 0.15 of the limit: there should be 9.8 scans.
        assert!((2..30).contains(&scans(1 << 14, 1 << 30)), "{}", scans(1 << 14, 1 << 30));
        assert!((500..750).contains(&scans(1 << 20, 1 << 30)), "{}", scans(1 << 20, 1 << 30));
        assert_eq!(scans(1 << 25, 1 << 30), 10_000);
        assert_eq!(scans(1, 0), 10_000);
    }

    #[test]
    fn reading_a_file_counts_as_its_use() {
        let folder = std::env::temp_dir().join(format!("nx_vulkan_disk_{}", std::process::id()));
        let cache = DiskCache { folder: Some(folder.clone()), device: vec![], limit: u64::MAX };
        cache.write(7, &CachedPipeline { words: vec![1], driver_data: vec![] });
        let file = fs::File::open(cache.path(7).unwrap()).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
        let age = || file.metadata().unwrap().modified().unwrap().elapsed().unwrap_or_default();
        assert!(age() > Duration::from_secs(3000));
        assert_eq!(cache.read(7).unwrap().words, [1]);
        assert!(age() < Duration::from_secs(3000));
        assert!(is_cache_file(cache.path(7).unwrap().file_name().unwrap().to_str().unwrap()));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn writing_keeps_the_files_within_their_limit() {
        let folder = std::env::temp_dir().join(format!("nx_vulkan_limit_{}", std::process::id()));
        let cache = DiskCache { folder: Some(folder.clone()), device: vec![], limit: 10_000 };
        let entry = CachedPipeline { words: vec![0; 200], driver_data: vec![] };
        (0..100).for_each(|key| cache.write(key, &entry));
        let bytes = || fs::read_dir(&folder).unwrap().filter_map(|file| Some(file.ok()?.metadata().ok()?.len())).sum();
        // The files are deleted in the background, after a later write at the latest.
        let within = (100..1100).any(|key| {
            cache.write(key, &entry);
            std::thread::sleep(Duration::from_millis(10));
            let bytes: u64 = bytes();
            bytes <= cache.limit
        });
        assert!(within);
        // A scan may still be deleting.
        let _ = fs::remove_dir_all(folder);
    }

    #[test]
    fn an_entry_comes_back_and_any_damage_is_noticed() {
        let entry = CachedPipeline { words: vec![1, 2, 3], driver_data: vec![4, 5, 6, 7, 8] };
        let bytes = encode(&entry);
        let back = decode(&bytes).unwrap();
        assert_eq!((back.words, back.driver_data), (entry.words, entry.driver_data));
        for i in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[i] ^= 1;
            assert!(decode(&damaged).is_none(), "byte {i}");
            assert!(decode(&bytes[..i]).is_none(), "cut at {i}");
        }
    }
}
