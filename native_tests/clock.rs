//! The hold on the device's clock, by a stand-in for CUDA's driver library that child processes load.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "no one links a crate of tests, whose helpers may panic as the tests do"
)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use support::device;

/// Two devices, 10 and 11; the second has the UUID of the environment. Each call is written to a file.
const FAKE_CUDA: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void wrote(const char *name, int argument) {
  FILE *calls = fopen(getenv("FAKE_CUDA_CALLS"), "a");
  fprintf(calls, "%s %d\n", name, argument);
  fclose(calls);
}

int cuInit(unsigned flags) { wrote("init", flags); return atoi(getenv("FAKE_CUDA_ERROR")); }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int index) { *device = 10 + index; return 0; }

int cuDeviceGetUuid(unsigned char *uuid, int device) {
  for (int i = 0; i < 16; i++) {
    unsigned byte;
    sscanf(getenv("FAKE_CUDA_UUID") + 2 * i, "%2x", &byte);
    uuid[i] = device == 11 ? byte : ~byte;
  }
  return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
  wrote("retain", device);
  usleep(100000);
  wrote("retained", device);
  return 0;
}
"#;

/// What a process of its own, which makes the device, wrote of the clock's state and of its calls to CUDA.
fn process(name: &str, library: &Path, settings: &[(&str, &str)]) -> (String, Vec<String>) {
    let calls = library.join(format!("{name}.calls"));
    let _ = fs::remove_file(&calls);
    let uuid = device().device.physical_device().properties().device_uuid.expect("a device's UUID");
    let uuid: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "makes_the_device", "--nocapture"])
        .env("LD_LIBRARY_PATH", library)
        .env("FAKE_CUDA_CALLS", &calls)
        .envs([("FAKE_CUDA_UUID", uuid.as_str()), ("FAKE_CUDA_ERROR", "0"), ("NX_VULKAN_HOLD_CLOCK", "1")])
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    assert!(output.status.success(), "{name}: {output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let state = said.lines().find_map(|line| line.split_once("clock: ")).map(|(_, state)| state.to_owned());
    let calls = fs::read_to_string(calls).unwrap_or_default().lines().map(str::to_owned).collect();
    (state.unwrap_or_default(), calls)
}

/// A folder with the stand-in of this source.
fn library(name: &str, source: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("fake_cuda.c");
    fs::write(&file, source).unwrap();
    let (library, options) = (folder.join("libcuda.so.1"), ["-shared", "-fPIC", "-o"]);
    assert!(Command::new("cc").args(options).args([&library, &file]).status().unwrap().success(), "cc");
    folder
}

#[test]
#[ignore = "runs in processes of the other tests"]
fn makes_the_device() {
    let clock = &device().clock;
    match std::env::var("LEAVE_EARLY") {
        Err(_) => println!("clock: {:?}", clock.settled(Duration::from_secs(60))),
        Ok(milliseconds) => std::thread::sleep(Duration::from_millis(milliseconds.parse().unwrap())),
    }
    // The exit handlers run, and no more of the test harness.
    std::process::exit(0);
}

#[test]
fn the_context_of_the_device_with_this_uuid_is_retained() {
    let (state, calls) = process("held", &library("cuda", FAKE_CUDA), &[]);
    assert!(state.starts_with("Held"), "{state}");
    assert_eq!(calls, ["init 0", "retain 11", "retained 11"]);
}

#[test]
fn without_a_context_the_reason_is_told() {
    let folder = library("cuda_errors", FAKE_CUDA);
    let (state, calls) = process("error", &folder, &[("FAKE_CUDA_ERROR", "100")]);
    assert_eq!((state.as_str(), calls), (r#"Free("cuInit: CUDA's error 100")"#, vec!["init 0".to_owned()]));
    let (state, calls) = process("off", &folder, &[("NX_VULKAN_HOLD_CLOCK", "0")]);
    assert_eq!((state.as_str(), calls), (r#"Free("NX_VULKAN_HOLD_CLOCK=0")"#, vec![]));
    // Device 10 alone would have this UUID's complement.
    let (state, calls) = process("other", &folder, &[("FAKE_CUDA_UUID", "00112233445566778899aabbccddeeff")]);
    assert_eq!((state.as_str(), calls), (r#"Free("CUDA does not see the device")"#, vec!["init 0".to_owned()]));
    let (state, _) = process("old", &library("cuda_old", "int cuInit(unsigned flags) { return 0; }"), &[]);
    assert!(state.starts_with("Free") && state.contains("cuDeviceGetCount"), "{state}");
    let broken = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cuda_broken");
    fs::create_dir_all(&broken).unwrap();
    fs::write(broken.join("libcuda.so.1"), "no library").unwrap();
    let (state, _) = process("broken", &broken, &[]);
    assert!(state.starts_with("Free") && state.contains("libcuda.so.1"), "{state}");
}

#[test]
fn a_process_that_ends_waits_for_a_call_that_has_begun() {
    let folder = library("cuda_exit", FAKE_CUDA);
    for leave in ["0", "150", "200", "220", "260", "400"] {
        let (_, calls) = process("exit", &folder, &[("LEAVE_EARLY", leave)]);
        let count = |name| calls.iter().filter(|call| call.starts_with(name)).count();
        assert_eq!(count("retain "), count("retained "), "after {leave} ms: {calls:?}");
    }
}
