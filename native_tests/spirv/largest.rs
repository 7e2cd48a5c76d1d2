//! Modules up to the default limits of their sizes, each built and run in a process of its own: a table of how the driver takes them, which
//! guides/spirv.md has. Takes some minutes, and runs only when it is named:
//!
//!     cargo test --release --test spirv -- --ignored --nocapture largest
//!
//! LARGEST=ids,blocks takes these sizes alone. The device is the first, or NX_VULKAN_DEVICE's; VK_DRIVER_FILES chooses the driver.

use std::env;
use std::fmt::Write as _;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::support::{device, run_spirv};
use crate::*;

/// Names the module that a process started by the test builds.
const CASE: &str = "NX_VULKAN_TEST_MODULE";

/// How long a process may compute.
const LIMIT_SECONDS: f64 = 300.0;

/// A kernel of one invocation that adds to the first word what the statements make of `x`.
fn adding(declarations: &str, statements: &str) -> Vec<u8> {
    compile(&format!(
        "layout(set = 0, binding = 0) buffer A {{ uint a[]; }};\n{declarations}\n\
         void main() {{ uint x = a[0]; {statements} a[0] = x; }}"
    ))
}

fn repeated(count: usize, statement: impl Fn(usize) -> String) -> String {
    (0..count).map(statement).collect()
}

/// A module that has this share of the limit of one size, and little of the others.
fn module(size: &str, share: f64) -> Vec<u8> {
    let of = |limit: usize| (limit as f64 * share) as usize;
    match size {
        // A statement is two loads, a constant, a product, a sum and a store.
        "bytes" => adding("", &repeated(of((4 << 20) / 104), |i| format!("x = x * {}u + x;\n", 2 * i + 3))),
        "ids" => {
            let mut bytes = adding("", "x += 1;");
            bytes[12..16].copy_from_slice(&(of(1 << 20) as u32).to_le_bytes());
            bytes
        }
        "blocks" => {
            let cases = repeated(of((1 << 14) - 8), |i| format!("case {i}u: x += {}u; break;\n", 7 * i));
            adding("", &format!("switch (x) {{ {cases} }}"))
        }
        "selections" => adding("", &repeated(of(2044), |i| format!("if ((x & {}u) == 1u) x += {i}u * x;\n", i | 1))),
        "loops" => {
            let one = |i| format!("for (uint i = 0; i < (x & 3u); ++i) x += {i}u * x;\n");
            adding("", &repeated(of(2044), one))
        }
        // Loops in loops as deep as they may be, which run once.
        "nested loops" => {
            let nest = |_| {
                let heads = repeated(60, |i| format!("for (uint i{i} = 0; i{i} < (x & 1u); ++i{i}) {{ x += {i}u;\n"));
                heads + &"}".repeat(60)
            };
            adding("", &repeated(of(2044) / 60, nest))
        }
        // A function of 1,024 scalars, called so often that inlining makes the limit of them.
        "scalars" => {
            let body = repeated(128, |i| format!("x = (x * {}u + x) ^ (x >> 3);\n", 2 * i + 3));
            let calls = repeated(of((1 << 20) / 1040), |i| format!("x += f(x + {i}u);\n"));
            adding(&format!("uint f(uint x) {{ {body} return x; }}"), &calls)
        }
        // A scalar has four words, and one more in its table: the limit of bytes ends at a fifth of this size's.
        "scalars of constants" => {
            let (mut tables, count) = (String::new(), of(200_000 >> 12));
            for table in 0..count {
                let list: Vec<_> = (0..1 << 12).map(|i| format!("{}u", table * 4096 + i)).collect();
                let _ = writeln!(tables, "const uint c{table}[4096] = uint[4096]({});", list.join(","));
            }
            adding(&tables, &repeated(count, |table| format!("x += c{table}[x & 4095u];\n")))
        }
        "variables" => {
            let words = of((64 << 10) / 4 - 64);
            let fill = format!("uint v[{words}]; for (uint i = 0; i < {words}u; ++i) v[i] = i * x;");
            adding("", &format!("{fill} for (uint i = 0; i < 99u; ++i) x += v[(x * 31u) % {words}u];"))
        }
        "variables of 64 invocations" => {
            let words = of((64 << 10) / 4 - 64);
            let fill = format!("uint v[{words}]; for (uint i = 0; i < {words}u; ++i) v[i] = i * x;");
            let head = "layout(local_size_x = 64) in;";
            adding(head, &format!("{fill} for (uint i = 0; i < 99u; ++i) x += v[(x * 31u) % {words}u];"))
        }
        _ => panic!("there is no size {size}"),
    }
}

const SIZES: [&str; 10] = [
    "bytes",
    "ids",
    "blocks",
    "selections",
    "loops",
    "nested loops",
    "scalars",
    "scalars of constants",
    "variables",
    "variables of 64 invocations",
];

/// The processor's seconds that a child takes and the most memory that it has, in MB; its end where that is none, or not in time.
fn taken(mut child: Child) -> Result<(f64, u64), String> {
    let (mut seconds, mut most) = (0.0, 0);
    loop {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", child.id())).unwrap_or_default();
        let status = read("status");
        let peak =
            status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
        most = most.max(peak.unwrap_or(0) / 1000);
        // In hundredths, of the program and of the system for it, behind the program's name and 11 other fields.
        let stat = read("stat");
        let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(11).take(2);
        seconds = fields.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>().max(seconds * 100.0) / 100.0;
        match child.try_wait().unwrap() {
            Some(status) if status.success() => return Ok((seconds, most)),
            Some(status) => return Err(format!("{status}, {seconds:.1} s, {most} MB")),
            None if seconds > LIMIT_SECONDS => {
                child.kill().unwrap();
                child.wait().unwrap();
                return Err(format!("no end in {LIMIT_SECONDS} s, {most} MB"));
            }
            None => sleep(Duration::from_millis(20)),
        }
    }
}

#[test]
#[ignore = "a measurement"]
fn largest_modules_on_this_driver() {
    if let Ok(case) = env::var(CASE) {
        let (size, share) = case.split_once('/').unwrap();
        let module = load(&module(size, share.parse().unwrap())).unwrap_or_else(|refusal| panic!("refused: {refusal}"));
        return println!("{:?}", run_spirv(&module.words, &[vec![5]], &[], [1; 3]));
    }
    println!("on {}", device().device.physical_device().properties().device_name);
    let chosen = env::var("LARGEST").unwrap_or_else(|_| SIZES.join(","));
    for size in chosen.split(',') {
        for share in [0.25, 0.5, 0.99] {
            let child = Command::new(env::current_exe().unwrap())
                .args(["--ignored", "--exact", "largest::largest_modules_on_this_driver"])
                .env(CASE, format!("{size}/{share}"))
                .env("MESA_SHADER_CACHE_DISABLE", "true")
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            match taken(child) {
                Ok((seconds, most)) => println!("{size}, {share} of the limit: {seconds:.1} s, {most} MB"),
                Err(end) => println!("{size}, {share} of the limit: {end}"),
            }
        }
    }
}
