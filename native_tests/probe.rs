//! The probe process: what ends it is refused with its reason, remembered, and ends no other process. The same of a user's module that ends
//! the process that optimises it.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "no one links a crate of tests, whose helpers may panic as the tests do"
)]

mod support;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use nx_vulkan::device::{DEVICE, set_probe_executable};
use nx_vulkan::gpu::gpu;
use nx_vulkan::memory::Blocking;
use nx_vulkan::pipeline::{CallInterface, UserCode, UserModule, spirv};
use nx_vulkan::program::Type;
use support::{download, node, run, run_pipeline, upload};

/// Names the executable that a process started by the test takes for the probe.
const PROBE: &str = "NX_VULKAN_TEST_PROBE";

/// A probe that is the real one, but that a driver's fault ends as soon as it tries a feature.
fn dying_at(feature: &str, folder: &Path) -> PathBuf {
    let real = env!("CARGO_BIN_EXE_nx_vulkan_probe");
    let script = format!(
        "case $1,$3, in supervise,* | *,{feature},*) exec {real} \"$@\" ;; esac\n\
         {real} \"$@\" | while read -r line; do\n\
         echo \"$line\"; [ \"$line\" != 'nx_vulkan: {feature} is tried' ] || {{ kill -ILL $$; exit; }}\ndone\n"
    );
    executable(&script, &folder.join(format!("dying_at_{feature}")))
}

/// A file that does what the shell's script says.
fn executable(script: &str, path: &Path) -> PathBuf {
    // Another process writes it: one that a test beside this forks meanwhile would inherit the open file, and Linux runs no file
    // that is open for writing (ETXTBSY).
    let mut install =
        Command::new("install").args(["-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped()).spawn().unwrap();
    write!(install.stdin.take().unwrap(), "#!/bin/sh\n{script}").unwrap();
    assert!(install.wait().unwrap().success());
    path.to_owned()
}

/// An empty folder for a test.
fn empty_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// What a process prints that takes this probe, has this folder for its cache, and runs this test alone.
fn printed(probe: &Path, cache: &Path, test: &str) -> String {
    let child = Command::new(env::current_exe().unwrap())
        .args(["--nocapture", "--exact", test])
        .env(PROBE, probe)
        .env("NX_VULKAN_CACHE_DIR", cache)
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
    String::from_utf8(child.stdout).unwrap()
}

#[test]
fn what_ends_the_probe_process_is_refused_and_remembered() {
    if let Ok(probe) = env::var(PROBE) {
        return print_findings(Path::new(&probe));
    }
    let folder = empty_folder("probe");
    let findings = |probe: &Path, cache: &str| {
        printed(probe, &folder.join(cache), "what_ends_the_probe_process_is_refused_and_remembered")
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

/// Has this process take the probe as a BEAM would.
fn take_probe(probe: &Path) {
    // A BEAM ignores SIGCHLD. The numbers are those of Linux, and of macOS and FreeBSD.
    let (number, ignore) = (if cfg!(target_os = "linux") { 17 } else { 20 }, 1);
    // SAFETY: the signal of that number may be ignored, and no handler is given.
    unsafe { signal(number, ignore) };
    set_probe_executable(probe);
}

/// What a process with this probe finds; an addition runs on the device that it takes.
fn print_findings(probe: &Path) {
    take_probe(probe);
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

/// The blocks of [`in_many_blocks`], and the additions of each.
const BLOCKS: u32 = 4000;
const ADDITIONS: u32 = 10;

/// SPIR-V that adds 1 to the first word of a buffer, again and again, in blocks that follow each other. For each block SPIRV-Tools copies what
/// it has seen in all blocks before: some 4 GB in all.
fn in_many_blocks() -> Vec<u8> {
    // Ids: 1 main, 2 void, 3 its function type, 4 u32, 5 the array, 6 the block, 7 the pointer to it, 8 the buffer, 9 the pointer to a
    // word, 10 zero, 11 one, 12 the first label, 13 the word's address, 14 the word; then the labels and the sums.
    let mut words = vec![0x0723_0203, 0x0001_0300, 0, 0, 0];
    let mut emit = |opcode: u32, operands: &[u32]| {
        words.push((operands.len() as u32 + 1) << 16 | opcode);
        words.extend_from_slice(operands);
    };
    let main = u32::from_le_bytes(*b"main");
    let declarations: [(u32, &[u32]); 23] = [
        // Shader, Logical GLSL450, GLCompute, LocalSize.
        (17, &[1]),
        (14, &[0, 1]),
        (15, &[5, 1, main, 0]),
        (16, &[1, 17, 1, 1, 1]),
        // ArrayStride, Offset, Block, DescriptorSet, Binding.
        (71, &[5, 6, 4]),
        (72, &[6, 0, 35, 0]),
        (71, &[6, 2]),
        (71, &[8, 34, 0]),
        (71, &[8, 33, 0]),
        (19, &[2]),
        (33, &[3, 2]),
        (21, &[4, 32, 0]),
        (29, &[5, 4]),
        (30, &[6, 5]),
        (32, &[7, 12, 6]),
        (59, &[7, 8, 12]),
        (32, &[9, 12, 4]),
        (43, &[4, 10, 0]),
        (43, &[4, 11, 1]),
        // OpFunction, OpLabel, OpAccessChain, OpLoad.
        (54, &[2, 1, 0, 3]),
        (248, &[12]),
        (65, &[9, 13, 8, 10, 10]),
        (61, &[4, 14, 13]),
    ];
    declarations.iter().for_each(|(opcode, operands)| emit(*opcode, operands));
    let (mut sum, mut next) = (14, 15);
    for _ in 0..BLOCKS {
        for _ in 0..ADDITIONS {
            emit(128, &[4, next, sum, 11]);
            (sum, next) = (next, next + 1);
        }
        emit(249, &[next]);
        emit(248, &[next]);
        next += 1;
    }
    emit(62, &[13, sum]);
    emit(253, &[]);
    emit(56, &[]);
    words[3] = next;
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Runs a module that this probe fails to optimise.
fn run_unoptimised(probe: &Path) {
    take_probe(probe);
    let module = UserModule { name: "in many blocks", code: UserCode::Spirv(&in_many_blocks()) };
    let interface = CallInterface { constant: None, bindings: 1, push_bytes: 0 };
    let kernel = gpu().unwrap().pipelines.user_module(&module, interface, Blocking::Allowed).unwrap();
    let word = run_pipeline(&kernel.pipeline, &[vec![7]], &[], [1; 3]);
    assert_eq!(word, [[7 + BLOCKS * ADDITIONS]]);
}

/// A probe that is the real one, and appends a line to a file where it is to optimise. The script `confined` comes before the process that
/// optimises.
fn optimising_after(confined: &str, asked: &Path) -> PathBuf {
    let script = format!(
        "case $1 in {}) echo >> {} ;; {}) {confined} ;; esac\nexec {} \"$@\"\n",
        spirv::OPTIMISE,
        asked.display(),
        spirv::OPTIMISE_CONFINED,
        env!("CARGO_BIN_EXE_nx_vulkan_probe")
    );
    executable(&script, &asked.with_extension("probe"))
}

/// How often the probe is asked once each of these processes has run the module.
fn times_asked(confined: &str, asked: &Path, processes: usize) -> Vec<usize> {
    let probe = optimising_after(confined, asked);
    let run = |_| {
        printed(&probe, &asked.with_extension("cache"), "a_module_that_ends_its_optimizer_is_judged_and_run_as_it_is");
        fs::read_to_string(asked).unwrap().lines().count()
    };
    (0..processes).map(run).collect()
}

#[test]
fn a_module_that_ends_its_optimizer_is_judged_and_run_as_it_is() {
    if let Ok(probe) = env::var(PROBE) {
        return run_unoptimised(Path::new(&probe));
    }
    let folder = empty_folder("optimizer");
    // Without memory SPIRV-Tools ends the process, and an endless loop ends where it has computed for a second.
    for (name, confined) in [("memory", "ulimit -v 600000"), ("time", "ulimit -S -t 1; while :; do :; done")] {
        // The second process finds in the cache that there is nothing to wait for.
        assert_eq!(times_asked(confined, &folder.join(name), 2), [1, 1], "{name}");
    }
    // What comes from outside says nothing of the module: nothing is cached, and the second process asks again.
    for signal in ["TERM", "KILL"] {
        assert_eq!(times_asked(&format!("kill -{signal} $$"), &folder.join(signal), 2), [1, 2], "{signal}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

/// The limits of the process that optimises, and its end with that of its supervisor.
#[cfg(target_os = "linux")]
#[test]
fn the_optimizer_is_told_of_its_time_before_it_is_killed_and_outlives_no_supervisor() {
    let probe = env!("CARGO_BIN_EXE_nx_vulkan_probe");
    let mut supervisor = Command::new(probe)
        .args([spirv::OPTIMISE, probe])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let children = format!("/proc/{0}/task/{0}/children", supervisor.id());
    let wait_for = |found: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !found() {
            assert!(start.elapsed() < Duration::from_secs(60), "{children}");
            thread::sleep(Duration::from_millis(1));
        }
    };
    let child = || fs::read_to_string(&children).unwrap_or_default().trim().to_owned();
    wait_for(&|| !child().is_empty());
    let limits = format!("/proc/{}/limits", child());
    let of_time = || {
        let text = fs::read_to_string(&limits).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("Max cpu time")).unwrap_or_default();
        line.split_whitespace().filter_map(|word| word.parse::<u64>().ok()).collect::<Vec<_>>()
    };
    // Until then it has the limits of this process.
    wait_for(&|| matches!(of_time()[..], [told, killed] if told < killed));
    let command = format!("/proc/{}/cmdline", child());
    supervisor.kill().unwrap();
    // The input is open still: the process would wait for more.
    wait_for(&|| fs::read(&command).unwrap_or_default().is_empty());
    drop(supervisor.stdin.take());
    supervisor.wait().unwrap();
}
