//! Large modules made smaller, in a process of their own: SPIRV-Tools' optimizer ends the process on some modules that its validator accepts,
//! and bounds neither its time nor its memory. This module starts that process and is what runs in it; whatever comes back is a module like
//! any other, to be validated and judged.
//!
//! A supervisor, which no module ends, starts the process that optimises: it learns how that process ended, which a BEAM does not, and bounds
//! the time of one that does not compute.
//!
//! No pass here computes with constants or rearranges arithmetic: results stay what they were to the last bit, as far as the driver gives the
//! same instructions the same results.

use std::ffi::CStr;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use super::SpirvError;
use super::share::share;
use super::sizes::SizeLimits;
use super::tools::Tools;
use crate::device::{confine, ends_by_its_own_fault, probe_executable};

/// The first argument of the supervisor, before the executable that it starts.
pub const OPTIMISE: &str = "optimise";
/// The only argument of the process that optimises.
pub const OPTIMISE_CONFINED: &str = "optimise-confined";

/// Words from which a module is optimised. The process takes a quarter of a second for one of 450 kB, whose repeated expressions cost
/// lavapipe 25 s.
const MIN_WORDS: usize = 1 << 14;

/// How long the process may compute, and the most address space that it may have. Neither depends on what else the machine does: a module
/// that the process fails on, it fails on again.
const SECONDS: u64 = 120;
const ADDRESS_BYTES: u64 = 4 << 30;

/// How long the process may take in all: a machine that swaps, or on which much else runs, takes longer than [`SECONDS`].
const LIMIT: Duration = Duration::from_secs(600);

/// Variables become values, as far as no call takes their address.
const TO_VALUES: [&CStr; 5] = [
    c"--private-to-local",
    c"--eliminate-local-single-block",
    c"--eliminate-local-single-store",
    c"--ssa-rewrite",
    c"--eliminate-dead-code-aggressive",
];

/// Copies go, with the branches and calls that nothing needs then.
const WITHOUT_COPIES: [&CStr; 4] = [
    c"--eliminate-dead-code-aggressive",
    c"--redundancy-elimination",
    c"--eliminate-dead-code-aggressive",
    c"--merge-blocks",
];

/// Distinguishes what this version makes of a module from what others do.
pub fn version() -> String {
    format!("{} {TO_VALUES:?} {WITHOUT_COPIES:?}", env!("CARGO_PKG_VERSION"))
}

/// Whether a module is large enough to be optimised.
pub(super) fn is_large(words: &[u32]) -> bool {
    words.len() >= MIN_WORDS
}

/// A smaller module with the same results; no words where the process fails on this module, as it will again. `None` where there is no
/// process, or something else ended it.
pub fn optimise(words: &[u32]) -> Option<Vec<u32>> {
    let executable = probe_executable()?;
    let mut command = Command::new(executable);
    // A terminal's interrupt of the process that asks does not end it.
    command.arg(OPTIMISE).arg(executable).process_group(0);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let (mut input, mut output) = (child.stdin.take()?, child.stdout.take()?);
    let mut bytes = vec![];
    let read = thread::scope(|scope| {
        // Reading goes on beside it, or a process that answers early would wait for its reader, and this one for its own.
        scope.spawn(move || input.write_all(bytemuck::cast_slice(words)));
        output.read_to_end(&mut bytes)
    });
    // In a BEAM the system forgets the process by itself.
    let _ = child.wait();
    read.ok()?;
    answer(&bytes)
}

/// The words that the process has written.
fn answer(bytes: &[u8]) -> Option<Vec<u32>> {
    // Their number is at the end: a process that ends early has not written it.
    let (words, last) = bytes.as_chunks::<4>().0.split_at_checked((bytes.len() / 4).checked_sub(1)?)?;
    let complete = last.first().is_some_and(|count| u32::from_le_bytes(*count) as usize == words.len());
    complete.then(|| words.iter().map(|word| u32::from_le_bytes(*word)).collect())
}

/// What the supervisor does: it has the executable optimise what it reads, and answers itself where that process fails on the module.
pub fn supervise(executable: &Path) {
    if ends_by_its_own_fault(executable, OPTIMISE_CONFINED, LIMIT) {
        write(&[]);
    }
}

/// What the process does: reads a module, and writes a smaller one.
pub fn main() {
    confine(SECONDS, ADDRESS_BYTES);
    let mut bytes = vec![];
    if std::io::stdin().read_to_end(&mut bytes).is_err() {
        return;
    }
    let words: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    match super::on_checker_thread(|| optimised(&words)) {
        Ok(smaller) => write(&smaller.unwrap_or_default()),
        // It says nothing of the module.
        Err(SpirvError::Internal(_)) => {}
        Err(_) => write(&[]),
    }
}

/// Writes words as [`answer`] reads them.
fn write(words: &[u32]) {
    let count = words.len() as u32;
    let output: Vec<u8> = words.iter().chain([&count]).flat_map(|word| word.to_le_bytes()).collect();
    let _ = std::io::stdout().write_all(&output);
}

fn optimised(words: &[u32]) -> Result<Option<Vec<u32>>, SpirvError> {
    let tools = Tools::new()?;
    super::structure::check(words, &SizeLimits::NONE)?;
    tools.validate(words)?;
    let Some(words) = tools.optimise(words, &TO_VALUES) else { return Ok(None) };
    let (words, stand_ins) = share(&words, &tools.parse(&words)?);
    let Some(words) = tools.optimise(&words, &WITHOUT_COPIES) else { return Ok(None) };
    let words = stand_ins.calls(&words, &tools.parse(&words)?);
    Ok(tools.optimise(&words, &[c"--eliminate-dead-functions", c"--eliminate-dead-code-aggressive"]))
}
