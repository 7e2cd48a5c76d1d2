//! Large modules: what the optimizer's process makes of them computes the same, and what ends that process ends no other.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::support::{device, run_spirv};
use crate::*;

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect()
}

/// What the process makes of a module, which has to pass.
pub fn optimised(bytes: &[u8]) -> Vec<u32> {
    // Says where the executable is.
    device();
    let smaller = spirv::optimise(&words(bytes)).expect("an optimised module");
    let bytes: Vec<u8> = smaller.iter().flat_map(|word| word.to_le_bytes()).collect();
    load(&bytes).unwrap().words
}

/// Repeated reads of workgroup memory and buffers with writes, barriers and loops between them; calls with and without effects; early
/// returns; selections whose branches write, and whose branches do not.
const REPEATING: &str = "
layout(local_size_x = 8) in;
layout(set = 0, binding = 0) buffer A { float a[]; };
layout(set = 0, binding = 1) buffer B { float b[]; };
layout(push_constant) uniform Push { uint n; };
shared float s[8];
float cube(float x) { if (x > 2.0) return x; float y = x * x; x = y * x; return x; }
float pure(float x) { if (x > 1.0) return x * 0.5; return x * x + 1.0; }
float reads(float x) { return x + s[0]; }
float twice(float x) { return pure(x) + pure(x); }
float count(inout float x) { x += 1.0; return x; }
void main() {
    uint l = gl_LocalInvocationID.x;
    s[l] = a[l];
    barrier();
    precise float exact = a[l] * b[l] + a[l];
    float x = pure(s[0]) + pure(s[0]) + reads(s[1]) + cube(a[1]) + cube(a[1]);
    float before = s[0] > 0.5 ? pure(s[1] + a[0]) : twice(s[2]);
    barrier();
    if (l == 0) s[0] = x;
    barrier();
    float after = s[0] > 0.5 ? pure(s[1] + a[0]) : twice(s[2]);
    float c = 0.0;
    for (uint i = 0; i < n; i++) {
        c += (s[i % 8] > 0.25 ? pure(s[i % 8]) : twice(b[i])) + (s[i % 8] > 0.25 ? pure(s[i % 8]) : twice(b[i]));
        if (i == 3) b[5] = c;
        c += count(x) + count(x) + b[5];
        if (c > 1000.0) break;
    }
    a[l] = before - after * 3.0 + c + a[(l + 1) % 8] * 0.0;
    b[l] = exact + x + reads(b[l]) - a[l];
}";

#[test]
fn an_optimised_kernel_computes_what_the_original_does() {
    let floats = |n: usize| (0..n).map(|i| (i as f32 * 0.37 - 1.0).to_bits()).collect::<Vec<u32>>();
    let doubles = |n: usize| {
        let values = (0..n).map(|i| (i as f64 * 0.37 - 20.0).to_bits());
        values.flat_map(|bits| [bits as u32, (bits >> 32) as u32]).collect::<Vec<u32>>()
    };
    type Case = (&'static str, Vec<Vec<u32>>, Vec<u32>, [u32; 3]);
    let cases: [Case; 5] = [
        (BINARY, vec![floats(1000), floats(1000), vec![0; 1000]], vec![990], [4, 1, 1]),
        (REDUCE, vec![floats(1000), vec![0; 2]], vec![1, 1000, 1, 0], [2, 1, 1]),
        (MATMUL, vec![doubles(9 * 13), doubles(13 * 11), vec![0; 9 * 11 * 2]], vec![9, 11, 13], [2, 3, 1]),
        (MIXED, vec![vec![0], vec![0; 200]], [1f32.to_bits(); 15].to_vec(), [1, 1, 1]),
        (REPEATING, vec![floats(16), floats(16)], vec![7], [1, 1, 1]),
    ];
    let limits = spirv::Limits::of(&device().device);
    for (source, buffers, push, groups) in cases {
        let bytes = compile(source);
        let original = load(&bytes).unwrap();
        if let Err(missing) = original.check_device(&limits) {
            println!("left out on this device: {missing}");
            continue;
        }
        let smaller = optimised(&bytes);
        assert!(smaller.len() < original.words.len(), "{source}");
        let expected = run_spirv(&original.words, &buffers, &push, groups);
        assert_eq!(run_spirv(&smaller, &buffers, &push, groups), expected, "{source}");
    }
}

/// Expressions that are repeated a thousand times, with calls, selections and reads of workgroup memory.
fn repetitive(times: usize) -> Vec<u8> {
    let one = "x += s[0] > f(s[1]) ? f(f(s[0]) + a[2]) : g(s[0] * s[1]);";
    compile(&format!(
        "layout(set=0, binding=0) buffer A {{ float a[]; }};\nshared float s[2];
         float f(float x) {{ if (x > 3.0) return 3.0; return x * x; }}\nfloat g(float x) {{ return f(x) + f(x + 1.0); }}
         void main() {{ s[0] = a[0]; s[1] = a[1]; barrier(); float x = 0.0; {} a[3] = x; }}",
        one.repeat(times)
    ))
}

#[test]
fn a_module_is_judged_once_it_is_optimised() {
    let bytes = repetitive(3000);
    let message = load(&bytes).unwrap_err().to_string();
    assert!(
        message.contains("3001 selections and loops, more than 2048; NX_VULKAN_SPIRV_LIMITS=1.5 takes it"),
        "{message}"
    );
    device();
    let module = spirv::load(&bytes, &[], &SizeLimits::times(1.0), spirv::optimise).unwrap();
    let run =
        |words: &[u32]| run_spirv(words, &[vec![1.5f32.to_bits(), 0.25f32.to_bits(), 2f32.to_bits(), 0]], &[], [1; 3]);
    let alone = load(&repetitive(1)).unwrap();
    // The sum of equal terms, rounded at each step.
    let term = f32::from_bits(run(&alone.words)[0][3]);
    let sum = (0..3000).fold(0f32, |sum, _| sum + term);
    assert_eq!(f32::from_bits(run(&module.words)[0][3]), sum);
    // Small modules are taken as they are, without a process.
    let mut asked = false;
    let small = spirv::load(&repetitive(1), &[], &SizeLimits::times(1.0), |_| {
        asked = true;
        None
    });
    assert!(small.is_ok() && !asked);
}

#[test]
fn limits_are_raised_and_lowered() {
    let bytes = repetitive(3000);
    let judged = |times: f64| spirv::load(&bytes, &[], &SizeLimits::times(times), |_| None).map_err(|e| e.to_string());
    assert!(judged(1.5).is_ok());
    assert!(judged(1.0).is_err());
    let small = spirv::load(&compile(MIXED), &[], &SizeLimits::times(0.0001), |_| None);
    let message = small.unwrap_err().to_string();
    assert!(message.contains("bytes, more than 419; NX_VULKAN_SPIRV_LIMITS=0.1 takes it"), "{message}");
}

/// Where the process ends, or gives nonsense, the module is judged as it is.
#[test]
fn what_the_optimizer_fails_on_is_judged_as_it_is() {
    let bytes = repetitive(1000);
    let plain = load(&bytes).unwrap();
    for answer in [None, Some(vec![]), Some(vec![7; 100]), Some(words(&bytes)[..1000].to_vec())] {
        let module = spirv::load(&bytes, &[], &SizeLimits::times(1.0), |_| answer).unwrap();
        assert_eq!(module.words, plain.words);
    }
}

/// The process ends by itself, whatever it is given.
#[test]
fn damaged_modules_end_the_optimizer_alone() {
    let mut random = support::Random(support::seed());
    let original = words(&compile(REPEATING));
    let mut answers = 0;
    for _ in 0..60 {
        let mut damaged = original.clone();
        let at = 5 + random.below(damaged.len() as u64 - 5) as usize;
        damaged[at] = random.below(damaged[3].into()) as u32;
        let mut child = Command::new(env!("CARGO_BIN_EXE_nx_vulkan_probe"))
            .arg(spirv::OPTIMISE_CONFINED)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let bytes: Vec<u8> = damaged.iter().flat_map(|word| word.to_le_bytes()).collect();
        let _ = child.stdin.take().unwrap().write_all(&bytes);
        // The number of words is a word itself.
        answers += usize::from(child.wait_with_output().unwrap().stdout.len() > 4);
    }
    println!("{answers} of 60 damaged modules are optimised");
    assert!(answers < 60);
}
