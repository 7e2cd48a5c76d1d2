//! The probe process: a device of a driver that was not seen before is tried in a process of its own, because a fault of the driver ends
//! the process that it happens in. This module starts that process and reads what it found; it knows no kernels.
//!
//! Two processes stand between the BEAM and a driver: the BEAM ignores SIGCHLD, which hides from it how a process ended, and so a
//! supervisor, which calls no driver, starts the one that does as often as it takes: first for all features at once, which takes a fraction
//! of the time, and for one after the other where that process does not end well.

use std::ffi::c_int;
#[cfg(any(target_os = "linux", target_os = "android"))]
use std::ffi::c_ulong;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The name under which the probe process tries what no kernel can do without: a device that fails there is refused.
pub const DEVICE: &str = "device";

/// The first argument of the process that starts others, before their executable and the device.
pub const SUPERVISE: &str = "supervise";
/// The first argument of a process that tries a device's features one after the other. The device, as `NX_VULKAN_DEVICE` names it, and the
/// features that the process leaves out follow.
pub const TRY: &str = "try";
/// As [`TRY`], for a process that tries the features at once.
pub const TRY_AT_ONCE: &str = "try-at-once";

/// What the probe process says of one feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The device has it, and it works.
    Works,
    /// The device has it not.
    Absent,
    /// Its kernel ended the process, hung, failed or was wrong: the words say which.
    Refused(String),
}

/// What the probe process found: a verdict for each feature that the device claims, by the names of `NX_VULKAN_DISABLE`, and for
/// [`DEVICE`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings(Vec<(String, Verdict)>);

impl Findings {
    /// Reads lines as [`Findings::text`] writes them; other lines are left out.
    pub fn parse(text: &str) -> Self {
        let mut findings = Self::default();
        text.lines().for_each(|line| findings.read(line));
        findings
    }

    /// A line for each verdict.
    pub fn text(&self) -> String {
        self.0.iter().fold(String::new(), |mut text, (name, verdict)| {
            let _ = writeln!(text, "{}", line(name, verdict));
            text
        })
    }

    /// Whether the device has a feature, and it works.
    pub fn works(&self, name: &str) -> bool {
        self.0.iter().any(|(found, verdict)| found == name && *verdict == Verdict::Works)
    }

    /// Why a feature is refused; `None` where it is not.
    pub fn reason_against(&self, name: &str) -> Option<&str> {
        self.refused().find(|(refused, _)| *refused == name).map(|(_, reason)| reason)
    }

    /// The features that are refused, with the reasons.
    pub fn refused(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|(name, verdict)| match verdict {
            Verdict::Refused(reason) => Some((name.as_str(), reason.as_str())),
            _ => None,
        })
    }

    fn refuse(&mut self, name: &str, reason: String) {
        self.0.push((name.to_owned(), Verdict::Refused(reason)));
    }

    fn read(&mut self, line: &str) {
        let Some((name, rest)) = line.strip_prefix(PREFIX).and_then(|line| line.split_once(' ')) else { return };
        let verdict = match rest {
            "works" => Verdict::Works,
            "absent" => Verdict::Absent,
            _ => match rest.strip_prefix("refused ") {
                Some(reason) => Verdict::Refused(reason.to_owned()),
                None => return,
            },
        };
        self.0.push((name.to_owned(), verdict));
    }
}

/// What the process's own lines begin with: drivers and layers may print others.
const PREFIX: &str = "nx_vulkan: ";

/// The line that says a verdict.
pub fn line(name: &str, verdict: &Verdict) -> String {
    match verdict {
        Verdict::Works => format!("{PREFIX}{name} works"),
        Verdict::Absent => format!("{PREFIX}{name} absent"),
        // A reason is one line.
        Verdict::Refused(reason) => format!("{PREFIX}{name} refused {}", reason.replace('\n', " ")),
    }
}

/// The line that says that the process begins to try a feature.
pub fn beginning(name: &str) -> String {
    format!("{PREFIX}{name}{TRIED}")
}

const TRIED: &str = " is tried";

/// The line that says that the driver has built the smallest kernel.
pub fn built() -> String {
    format!("{PREFIX}the smallest kernel is built")
}

/// The line that says that all was tried.
pub fn end() -> String {
    format!("{PREFIX}{END}")
}

const END: &str = "end";

static EXECUTABLE: OnceLock<PathBuf> = OnceLock::new();

/// Says where the probe's executable is; the first call counts. Without one, no device is tried before it is used.
pub fn set_probe_executable(path: &Path) {
    let _ = EXECUTABLE.set(path.to_owned());
}

/// Where the probe's executable is, if that is known.
pub fn probe_executable() -> Option<&'static Path> {
    EXECUTABLE.get().map(PathBuf::as_path)
}

/// How long the process may take for one feature, and to begin. Drivers build a kernel in a second at most, on a busy machine in some more.
const STEP_LIMIT: Duration = Duration::from_secs(60);

/// How long the process may take to end once it has closed its output.
const END_LIMIT: Duration = Duration::from_secs(10);

/// A probe process at work.
pub struct ProbeRun {
    supervisor: Child,
    output: BufReader<ChildStdout>,
    text: String,
}

impl ProbeRun {
    /// Has a device tried, which is given as `NX_VULKAN_DEVICE` gives it. `None` where there is no executable.
    pub fn start(wanted: &str) -> Option<Self> {
        let executable = probe_executable()?;
        let mut command = Command::new(executable);
        // The process is over before a clock counts.
        command.arg(SUPERVISE).arg(executable).arg(wanted).env("NX_VULKAN_HOLD_CLOCK", "0");
        let mut supervisor = start(&mut command)?;
        let output = BufReader::new(supervisor.stdout.take()?);
        Some(Self { supervisor, output, text: String::new() })
    }

    /// Waits until it is known whether the driver builds the smallest kernel and lives on.
    pub fn has_built(&mut self) -> bool {
        loop {
            let start = self.text.len();
            match self.output.read_line(&mut self.text) {
                Ok(1..) if self.text[start..].trim_end() == built() => return true,
                Ok(1..) => {}
                Ok(0) | Err(_) => return false,
            }
        }
    }

    /// Waits for what the process found; `None` where what ended it says nothing about the device.
    pub fn findings(mut self) -> Option<Findings> {
        let read = self.output.read_to_string(&mut self.text);
        // In a BEAM the system forgets the process by itself.
        let _ = self.supervisor.wait();
        read.ok().filter(|_| self.text.lines().last() == Some(end().as_str()))?;
        Some(Findings::parse(&self.text))
    }
}

/// What the supervisor finds out: it starts `executable` with the device and the features that it is to leave out, until it has tried all
/// others. `forward` gets the line [`built`] as soon as it comes.
pub fn supervise(executable: &Path, wanted: &str, forward: impl Fn(&str)) -> Option<Findings> {
    learn_how_processes_end();
    Supervisor { executable, wanted, limit: STEP_LIMIT, forward }.ask()
}

/// Has this process see how those that it starts end, which a BEAM's setting hides.
fn learn_how_processes_end() {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const SIGCHLD: c_int = 17;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const SIGCHLD: c_int = 20;
    const DEFAULT: usize = 0;
    // SAFETY: the number is that of SIGCHLD, and the default action of it needs no handler.
    unsafe { signal(SIGCHLD, DEFAULT) };
}

/// Runs the executable with this argument, and with the input and output of this process, for `limit` at most. Whether a signal ended it
/// that its own work brings about, and not the user, the system or its memory's shortage.
pub fn ends_by_its_own_fault(executable: &Path, argument: &str, limit: Duration) -> bool {
    learn_how_processes_end();
    let Ok(mut child) = Command::new(executable).arg(argument).stderr(Stdio::null()).spawn() else { return false };
    // A loader that finds no memory ends a process by an exit status.
    ended(&mut child, limit).is_some_and(|status| status.signal().is_some() && by_its_own_fault(&status))
}

/// From SIGXCPU, which ends a process that has computed for too long, to SIGKILL, which ends one that ignores it.
const SECONDS_TO_END: u64 = 5;

/// Has the system end this process once it has computed for these seconds or the process that started it has ended, and refuse it more than
/// these bytes of address space. Limits that are lower already stay.
pub fn confine(seconds: u64, bytes: u64) {
    const CPU_TIME: c_int = 0;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const ADDRESS_SPACE: c_int = 9;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const ADDRESS_SPACE: c_int = 10;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        const SIGNAL_AT_PARENTS_END: c_int = 1;
        const SIGKILL: c_ulong = 9;
        // SAFETY: the option takes the number of a signal.
        unsafe { prctl(SIGNAL_AT_PARENTS_END, SIGKILL) };
    }
    // The first number of a limit brings SIGXCPU, the second SIGKILL, which the system sends for other reasons, too.
    for (resource, most) in [(CPU_TIME, [seconds, seconds + SECONDS_TO_END]), (ADDRESS_SPACE, [bytes; 2])] {
        let mut limit = most;
        // SAFETY: the numbers are the system's, and a limit is the pair of numbers that the calls write and read.
        unsafe {
            getrlimit(resource, limit.as_mut_ptr());
            limit = [limit[0].min(most[0]), limit[1].min(most[1])];
            setrlimit(resource, limit.as_ptr());
        }
    }
}

unsafe extern "C" {
    fn signal(number: c_int, handler: usize) -> usize;
    fn getrlimit(resource: c_int, limit: *mut u64) -> c_int;
    fn setrlimit(resource: c_int, limit: *const u64) -> c_int;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn prctl(option: c_int, ...) -> c_int;
}

fn start(command: &mut Command) -> Option<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()
}

/// How a run of the process ended.
enum Run {
    /// It tried everything.
    Complete(Findings),
    /// It ended, or had to be ended, while it tried a feature.
    Ended(String, String),
}

/// The supervisor of the processes that try a device.
struct Supervisor<'a, F> {
    executable: &'a Path,
    wanted: &'a str,
    /// How long a process may take for one feature.
    limit: Duration,
    forward: F,
}

impl<F: Fn(&str)> Supervisor<'_, F> {
    fn ask(&self) -> Option<Findings> {
        let mut refused = Findings::default();
        // What ends this process may be any of the features.
        if let Some(Run::Complete(findings)) = self.run(TRY_AT_ONCE, &refused) {
            return Some(findings);
        }
        loop {
            match self.run(TRY, &refused)? {
                Run::Complete(mut findings) => {
                    findings.0.extend(refused.0);
                    return Some(findings);
                }
                // Once more without what ended the process.
                Run::Ended(name, reason) if refused.refused().all(|(earlier, _)| earlier != name) => {
                    let device = name == DEVICE;
                    refused.refuse(&name, reason);
                    if device {
                        return Some(refused);
                    }
                }
                Run::Ended(..) => return None,
            }
        }
    }

    fn run(&self, way: &str, refused: &Findings) -> Option<Run> {
        let without: Vec<_> = refused.refused().map(|(name, _)| name).collect();
        let mut child = start(Command::new(self.executable).args([way, self.wanted, &without.join(",")]))?;
        let lines = lines(&mut child)?;
        let (mut findings, mut trying) = (Findings::default(), None::<String>);
        loop {
            match lines.recv_timeout(if trying.is_some() { self.limit } else { STEP_LIMIT }) {
                Ok(line) if line == end() => {
                    reap(child);
                    return Some(Run::Complete(findings));
                }
                Ok(line) if line == built() => (self.forward)(&line),
                Ok(line) => {
                    findings.read(&line);
                    let begun = line.strip_prefix(PREFIX).and_then(|line| line.strip_suffix(TRIED));
                    trying = begun.map(str::to_owned).or(trying);
                }
                Err(RecvTimeoutError::Timeout) => {
                    let _ = child.kill();
                    reap(child);
                    let reason = format!("the process took more than {} s", self.limit.as_secs_f32());
                    return Some(Run::Ended(trying?, reason));
                }
                // The process ends after a kernel that failed.
                Err(RecvTimeoutError::Disconnected) if findings.refused().next().is_some() => {
                    reap(child);
                    let (name, reason) = findings.refused().next()?;
                    return Some(Run::Ended(name.to_owned(), reason.to_owned()));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = ended(&mut child, END_LIMIT);
                    reap(child);
                    let reason =
                        status.filter(by_its_own_fault).map(|status| format!("the process ended ({status})"))?;
                    return Some(Run::Ended(trying?, reason));
                }
            }
        }
    }
}

/// The lines that the process prints, as they come.
fn lines(child: &mut Child) -> Option<Receiver<String>> {
    let output = BufReader::new(child.stdout.take()?);
    let (sender, receiver) = channel();
    let read = move || {
        for line in output.lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("nx_vulkan probe".into()).spawn(read).ok()?;
    Some(receiver)
}

/// How the process ended; `None` where it has not within `limit`, and is killed.
fn ended(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < limit {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) => thread::sleep(Duration::from_millis(1)),
            Err(_) => return None,
        }
    }
    let _ = child.kill();
    None
}

/// Waits for the process without keeping anyone waiting: a driver may hang while the process ends.
fn reap(mut child: Child) {
    let wait = move || drop(child.wait());
    // Without a thread the process stays in the system's table until this one ends.
    let _ = thread::Builder::new().name("nx_vulkan probe".into()).spawn(wait);
}

/// Whether what it called ended the process: the user, the system or its memory's shortage end processes by these signals.
fn by_its_own_fault(status: &ExitStatus) -> bool {
    const FROM_OUTSIDE: [i32; 4] = [1, 2, 9, 15];
    !status.success() && status.signal().is_none_or(|signal| !FROM_OUTSIDE.contains(&signal))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn supervisor(executable: &Path, limit: Duration) -> Supervisor<'_, impl Fn(&str)> {
        Supervisor { executable, wanted: "0", limit, forward: |_: &str| () }
    }

    /// What `f` makes of an executable that does what a script says.
    fn with_script<T>(name: &str, script: &str, f: impl FnOnce(&Path) -> T) -> T {
        let path = std::env::temp_dir().join(format!("nx_vulkan_probe_{name}_{}", std::process::id()));
        // A file that this process wrote itself could not be run while a process that another test starts still holds it open.
        let writing = r#"printf '#!/bin/sh\n%s' "$1" > "$0" && chmod +x "$0""#;
        let written = Command::new("sh").args(["-c", writing]).args([path.as_os_str(), script.as_ref()]).status();
        assert!(written.unwrap().success());
        let made = f(&path);
        fs::remove_file(&path).unwrap();
        made
    }

    /// What comes of a probe process that does what a script says; `$3` has the features that it leaves out.
    fn findings_of(name: &str, script: &str, limit: Duration) -> Option<Findings> {
        with_script(name, script, |path| supervisor(path, limit).ask())
    }

    const FINE: &str = "echo 'nx_vulkan: device works'; echo 'a word of the driver'; echo 'nx_vulkan: fma absent'\n";
    const END_LINE: &str = "echo 'nx_vulkan: end'\n";

    /// Tries float64, which the script does; left out in the next run.
    fn trying(fault: &str) -> String {
        let tried = format!("echo 'nx_vulkan: float64 is tried'; {fault}");
        format!("{FINE} case $3 in *float64*) ;; *) {tried} ;; esac\n{END_LINE}")
    }

    #[test]
    fn what_ends_or_hangs_the_process_is_refused_and_the_rest_is_tried() {
        // The limit counts while a feature is tried, which is in the run that hangs alone.
        for (name, fault, limit, reason) in [
            ("ends", "kill -ILL $$", STEP_LIMIT, "SIGILL"),
            ("hangs", "exec sleep 1000", Duration::from_millis(500), "0.5 s"),
            ("exits", "exit 3", STEP_LIMIT, "exit status: 3"),
        ] {
            let findings = findings_of(name, &trying(fault), limit).unwrap();
            assert!(findings.works(DEVICE) && !findings.works("fma"), "{findings:?}");
            let [(feature, why)] = findings.refused().collect::<Vec<_>>()[..] else { panic!("{findings:?}") };
            assert!(feature == "float64" && why.contains(reason), "{why}");
        }
    }

    #[test]
    fn a_device_that_ends_the_process_is_refused() {
        let findings = findings_of("device", "echo 'nx_vulkan: device is tried'; kill -SEGV $$", STEP_LIMIT).unwrap();
        assert!(findings.refused().any(|(name, reason)| name == DEVICE && reason.contains("SIGSEGV")));
    }

    #[test]
    fn what_ends_the_process_from_outside_says_nothing_of_the_device() {
        for (name, fault) in [("kill", "kill -KILL $$"), ("term", "kill -TERM $$"), ("end", "exit 0")] {
            assert_eq!(findings_of(name, &trying(fault), STEP_LIMIT), None);
        }
        assert_eq!(supervisor(Path::new("/nonexistent"), STEP_LIMIT).ask(), None);
        // It claims to leave out what it tries.
        assert_eq!(findings_of("again", "echo 'nx_vulkan: int8 is tried'; kill -ILL $$", STEP_LIMIT), None);
    }

    #[test]
    fn what_fails_at_once_is_tried_one_after_the_other() {
        let at_once = |fault| format!("case $1 in {TRY_AT_ONCE}) {fault} ;; esac\n{FINE}{END_LINE}");
        for (name, fault) in [("fault", "kill -ILL $$"), ("wrong", "exit 0"), ("killed", "kill -KILL $$")] {
            let findings = findings_of(name, &at_once(fault), STEP_LIMIT).unwrap();
            assert!(findings.works(DEVICE) && findings.refused().count() == 0, "{findings:?}");
        }
        let one_after_the_other = format!("case $1 in {TRY}) kill -ILL $$ ;; esac\n{FINE}{END_LINE}");
        assert!(findings_of("once", &one_after_the_other, STEP_LIMIT).unwrap().works(DEVICE));
    }

    #[test]
    fn only_what_a_process_does_itself_is_its_fault() {
        let second = Duration::from_secs(1);
        for (script, limit, fault) in [
            ("kill -ABRT $$", STEP_LIMIT, true),
            ("ulimit -S -t 1; while :; do :; done", STEP_LIMIT, true),
            ("kill -KILL $$", STEP_LIMIT, false),
            ("kill -TERM $$", STEP_LIMIT, false),
            ("exit 127", STEP_LIMIT, false),
            ("exit 0", STEP_LIMIT, false),
            ("kill -STOP $$", second, false),
        ] {
            let ends = with_script("own_fault", script, |path| ends_by_its_own_fault(path, "", limit));
            assert_eq!(ends, fault, "{script}");
        }
        assert!(!ends_by_its_own_fault(Path::new("/nonexistent"), "", STEP_LIMIT));
    }

    #[test]
    fn findings_are_read_as_they_are_written() {
        let mut findings = Findings::parse("nx_vulkan: fma works\nnx_vulkan: int8 absent\nnonsense\n");
        findings.refuse("float64", "signal: 4 (SIGILL)".into());
        assert_eq!(findings.text().lines().count(), 3);
        assert_eq!(Findings::parse(&findings.text()), findings);
    }
}
