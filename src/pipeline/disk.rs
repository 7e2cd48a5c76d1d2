//! The pipeline cache on disk: a file for each pipeline, named by the hash of its content, device and driver, that
//! holds its SPIR-V and the driver's data behind a checksum. A file that is missing, damaged or of another format is
//! the same as none; a folder that cannot be written costs only time. What the bytes mean is the callers' matter.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use vulkano::device::physical::PhysicalDevice;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// The cache of one device and driver.
pub struct DiskCache {
    /// `None` where no folder for one is known.
    folder: Option<PathBuf>,
    /// Bytes that distinguish the device and its driver.
    device: Vec<u8>,
}

/// What a file holds.
pub struct CachedPipeline {
    /// SPIR-V, or the answer of a probe.
    pub words: Vec<u32>,
    /// The driver's own data for building the pipeline faster.
    pub driver_data: Vec<u8>,
}

/// First bytes of each file: another format gets another number.
const MAGIC: &[u8; 8] = b"nxvulk01";

impl DiskCache {
    /// The cache of a device and its driver. It touches no file yet.
    pub fn new(physical: &PhysicalDevice) -> Self {
        let p = physical.properties();
        let mut device = p.pipeline_cache_uuid.to_vec();
        for number in [p.vendor_id, p.device_id, p.driver_version] {
            device.extend(number.to_le_bytes());
        }
        device.extend(p.device_name.as_bytes());
        Self { folder: folder(), device }
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
        decode(&fs::read(self.path(key)?).ok()?)
    }

    /// Writes a file, for all processes at once; without an effect where the folder cannot be written.
    pub fn write(&self, key: u128, entry: &CachedPipeline) {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let Some(path) = self.path(key) else { return };
        let unique = format!("tmp-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let temporary = path.with_extension(unique);
        // Renaming is atomic: readers see a whole file or none.
        let written = path
            .parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&temporary, encode(entry)))
            .and_then(|()| fs::rename(&temporary, &path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
    }

    /// What `ask` says of the device, asked once for each device and driver. An error is not remembered.
    pub fn remember<E>(&self, question: &str, ask: impl FnOnce() -> Result<bool, E>) -> Option<bool> {
        let key = self.key(&[b"device", question.as_bytes()]);
        if let Some(&[answer]) = self.read(key).as_ref().map(|entry| entry.words.as_slice()) {
            return Some(answer != 0);
        }
        let answer = ask().ok()?;
        self.write(key, &CachedPipeline { words: vec![answer.into()], driver_data: vec![] });
        Some(answer)
    }

    /// The folder of the files; `None` where no folder for one is known.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
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
    use super::*;

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
