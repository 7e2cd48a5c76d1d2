//! The probe process: what ends it is refused with its reason, remembered, and ends no other process.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "no one links a crate of tests, whose helpers may panic as the tests do"
)]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use nx_vulkan::device::{DEVICE, set_probe_executable};
use nx_vulkan::gpu::gpu;
use nx_vulkan::program::Type;
use support::{download, node, run, upload};

/// Names the executable that a process started by the test takes for the probe.
const PROBE: &str = "NX_VULKAN_TEST_PROBE";

/// A probe that is the real one, but that a driver's fault ends as soon as it tries a feature.
fn dying_at(feature: &str, folder: &Path) -> PathBuf {
    let path = folder.join(format!("dying_at_{feature}"));
    let real = env!("CARGO_BIN_EXE_nx_vulkan_probe");
    let script = format!(
        "#!/bin/sh\ncase $1,$3, in supervise,* | *,{feature},*) exec {real} \"$@\" ;; esac\n\
         {real} \"$@\" | while read -r line; do\n\
         echo \"$line\"; [ \"$line\" != 'nx_vulkan: {feature} is tried' ] || {{ kill -ILL $$; exit; }}\ndone\n"
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn what_ends_the_probe_process_is_refused_and_remembered() {
    if let Ok(probe) = env::var(PROBE) {
        return print_findings(Path::new(&probe));
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("probe");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let findings = |probe: &Path, cache: &str| {
        let child = Command::new(env::current_exe().unwrap())
            .args(["--nocapture", "--exact", "what_ends_the_probe_process_is_refused_and_remembered"])
            .env(PROBE, probe)
            .env("NX_VULKAN_CACHE_DIR", folder.join(cache))
            .output()
            .unwrap();
        assert!(child.status.success(), "{child:?}");
        String::from_utf8(child.stdout).unwrap()
    };
    // Everything that the driver claims works.
    let all = findings(Path::new(env!("CARGO_BIN_EXE_nx_vulkan_probe")), "all");
    assert!(all.contains("refused []") && all.contains("device works"), "{all}");
    // A feature, in the process that has it tried and in later ones. What a driver does not claim is not tried.
    let claimed = all.contains("int8 true");
    for probe in [dying_at("int8", &folder), PathBuf::from("/nonexistent")].into_iter().filter(|_| claimed) {
        let without = findings(&probe, "int8");
        assert!(without.contains(r#"refused [("int8", "the process ended (signal: 4 (SIGILL)"#), "{without}");
        assert!(without.contains("int8 false"), "{without}");
    }
    // The device.
    for probe in [dying_at(DEVICE, &folder), PathBuf::from("/nonexistent")] {
        let none = findings(&probe, "device");
        assert!(none.contains("no device: ") && none.contains("SIGILL"), "{none}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

unsafe extern "C" {
    fn signal(number: i32, handler: usize) -> usize;
}

/// What a process with this probe finds; an addition runs on the device that it takes.
fn print_findings(probe: &Path) {
    // A BEAM ignores SIGCHLD. The numbers are those of Linux, and of macOS and FreeBSD.
    let (number, ignore) = (if cfg!(target_os = "linux") { 17 } else { 20 }, 1);
    // SAFETY: the signal of that number may be ignored, and no handler is given.
    unsafe { signal(number, ignore) };
    set_probe_executable(probe);
    match gpu() {
        Ok(gpu) => {
            let bytes = upload(&[7_u8; 40]);
            let shape = [10];
            let sum = run(&[node("add", Type::U32, &[0, 0])], &[(&bytes, Type::U32, &shape)], &shape).unwrap();
            assert_eq!(download::<u8>(&sum), [14; 40]);
            println!("refused {:?}", gpu.findings.refused().collect::<Vec<_>>());
            println!("int8 {}", gpu.caps.int8);
            println!("device {}", if gpu.findings.works(DEVICE) { "works" } else { "is unknown" });
        }
        Err(error) => println!("no device: {error}"),
    }
}
