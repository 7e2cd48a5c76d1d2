//! The pipeline cache on disk. A process of its own, because the folder is read once.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "no one links a crate of tests, whose helpers may panic as the tests do"
)]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use nx_vulkan::error::Unfinished;
use nx_vulkan::memory::Blocking;
use nx_vulkan::pipeline::{DiskCache, KernelSource, Pipelines};
use support::device;

const SOURCE: &str = "#version 460\nlayout(local_size_x = 1) in;\nvoid main() {}\n";

#[test]
fn kernels_come_from_disk_and_damaged_files_are_rebuilt() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pipelines");
    // An earlier run left a file there.
    let _ = fs::remove_dir_all(&folder).or_else(|_| fs::remove_file(&folder));
    // SAFETY: the only test of this process, and nothing has read the environment yet.
    unsafe { std::env::set_var("NX_VULKAN_CACHE_DIR", &folder) };
    let gpu = device();
    let files = || -> BTreeSet<PathBuf> {
        fs::read_dir(&folder).map_or_else(|_| BTreeSet::new(), |dir| dir.map(|entry| entry.unwrap().path()).collect())
    };
    let probed = files();
    assert!(!probed.is_empty(), "what the probe process found is remembered");
    // A new store in memory each time, so that only the disk remembers.
    let empty =
        || Pipelines::new(gpu.device.clone(), DiskCache::new(gpu.device.physical_device()).unwrap(), false).unwrap();
    let build = || {
        let pipelines = empty();
        let pipeline = pipelines
            .kernel(1, 0, Blocking::Allowed, || KernelSource { name: "test".into(), glsl: SOURCE.to_owned() })?;
        Ok::<_, Unfinished>(pipeline.handle().map(drop)?)
    };
    build().unwrap();
    let made: Vec<PathBuf> = files().difference(&probed).cloned().collect();
    let [file] = &made[..] else { panic!("one kernel is one file: {made:?}") };
    let bytes = fs::read(file).unwrap();
    let written = file.metadata().unwrap().ino();
    build().unwrap();
    assert_eq!(file.metadata().unwrap().ino(), written, "the file was not used");

    for damaged in [vec![], bytes[..bytes.len() / 2].to_vec(), [&bytes[..40], &[0xff; 40], &bytes[80..]].concat()] {
        fs::write(file, damaged).unwrap();
        build().unwrap();
        assert_eq!(fs::read(file).unwrap()[..24], bytes[..24], "the file was not mended");
    }

    let deferred =
        empty().kernel(1, 0, Blocking::Refused, || unreachable!("nothing is compiled on a normal scheduler"));
    assert!(deferred.is_err());

    fs::remove_dir_all(&folder).unwrap();
    fs::write(&folder, "a file where the folder should be").unwrap();
    build().expect("a folder that cannot be written costs only time");
}
