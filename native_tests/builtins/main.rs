//! The GLSL built-in functions, conversions and operators that the shaders use, each alone on the device against the host's
//! exact result, over numbers of every magnitude: a driver's fault is named as that, and no formula rests on what is not tested.
//! The library's own functions that stand for built-ins which some driver gets wrong are held to the same.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "no one links a crate of tests, whose helpers may panic as the tests do"
)]

mod cases;
mod sources;
mod subgroups;
#[path = "../support/mod.rs"]
mod support;

use std::fmt::Write as _;

use nx_vulkan::pipeline::glsl;
use nx_vulkan::program::emit::head;
use nx_vulkan::program::types::Compute;
use support::numbers::Number;
use support::{Random, device, run_spirv};

/// What a call must give.
#[derive(Clone, Copy, Debug)]
pub enum Want<R> {
    Exactly(R),
    /// Vulkan allows an error, and the formulas that use the function allow any error up to this many units in the last place.
    Within(R, f64),
    /// One of the two.
    Either(R, R),
    /// No formula relies on it.
    Anything,
}

impl<R: Number> Want<R> {
    fn accepts(self, result: R) -> bool {
        match self {
            Want::Exactly(exact) => result.same(exact) || (exact.may_be_flushed() && is_zero(result)),
            Want::Within(exact, ulps) => result.ulps(exact) <= ulps || exact.may_be_flushed(),
            Want::Either(a, b) => result.same(a) || result.same(b),
            Want::Anything => true,
        }
    }
}

fn is_zero<R: Number>(x: R) -> bool {
    x == R::zeroed()
}

/// Runs an expression and says what is wrong.
type Check = Box<dyn Fn(&str) -> Result<(), String>>;

/// An expression of a, b and c with what it must give.
pub struct Case {
    pub expression: &'static str,
    /// The types of the operands and of the result.
    pub types: String,
    check: Check,
}

/// Pairs and triples of numbers: a random one of every magnitude each.
const TUPLES: usize = 30_000;

pub fn unary<A: Number, R: Number>(expression: &'static str, exact: fn(A) -> Want<R>) -> Case {
    let check = move |expression: &str| {
        let a = A::every();
        let results = compute::<R>(expression, &[operand(&a)], a.len());
        report(a.iter().map(|&a| (a, a.may_be_flushed(), exact(a))), &results)
    };
    Case { expression, types: format!("{} -> {}", A::GLSL, R::GLSL), check: Box::new(check) }
}

pub fn binary<A: Number, B: Number, R: Number>(expression: &'static str, exact: fn(A, B) -> Want<R>) -> Case {
    let check = move |expression: &str| {
        let (a, b) = pairs::<A, B>();
        let results = compute::<R>(expression, &[operand(&a), operand(&b)], a.len());
        let wants = a.iter().zip(&b).map(|(&a, &b)| ((a, b), a.may_be_flushed() || b.may_be_flushed(), exact(a, b)));
        report(wants, &results)
    };
    Case { expression, types: format!("{}, {} -> {}", A::GLSL, B::GLSL, R::GLSL), check: Box::new(check) }
}

pub fn ternary<A: Number, R: Number>(expression: &'static str, exact: fn(A, A, A) -> Want<R>) -> Case {
    let check = move |expression: &str| {
        let ((a, b), c) = (pairs::<A, A>(), numbers::<A>(5, TUPLES));
        let triples: Vec<[A; 3]> = a.into_iter().zip(b).zip(c).map(|((a, b), c)| [a, b, c]).collect();
        let operands: Vec<_> = (0..3).map(|i| operand(&triples.iter().map(|t| t[i]).collect::<Vec<A>>())).collect();
        let results = compute::<R>(expression, &operands, triples.len());
        let wants =
            triples.iter().map(|&[a, b, c]| ([a, b, c], [a, b, c].iter().any(|x| x.may_be_flushed()), exact(a, b, c)));
        report(wants, &results)
    };
    Case { expression, types: format!("3 {} -> {}", A::GLSL, R::GLSL), check: Box::new(check) }
}

fn numbers<T: Number>(seed: u64, count: usize) -> Vec<T> {
    let mut random = Random(seed);
    (0..count).map(|_| T::random(&mut random)).collect()
}

/// All pairs of special numbers, then random ones.
fn pairs<A: Number, B: Number>() -> (Vec<A>, Vec<B>) {
    let special = A::special().into_iter().flat_map(|a| B::special().into_iter().map(move |b| (a, b)));
    special.chain(numbers(3, TUPLES).into_iter().zip(numbers(4, TUPLES))).take(TUPLES).unzip()
}

/// A vector for the device: its type, and its words.
struct Operand {
    glsl: &'static str,
    compute: Compute,
    words: Vec<u32>,
}

fn operand<T: Number>(numbers: &[T]) -> Operand {
    Operand { glsl: T::GLSL, compute: T::COMPUTE, words: bytemuck::pod_collect_to_vec(numbers) }
}

/// The expression's value for each element of the operands a, b and c.
fn compute<R: Number>(expression: &str, operands: &[Operand], length: usize) -> Vec<R> {
    let result = Operand { glsl: R::GLSL, compute: R::COMPUTE, words: vec![0; length * size_of::<R>() / 4] };
    let computes: Vec<Compute> = operands.iter().chain([&result]).map(|operand| operand.compute).collect();
    let mut text = head(&device().caps, false, &[], &computes, "");
    text.push_str(cases::HELPERS);
    let names = ["a", "b", "c"].into_iter().take(operands.len()).chain(["r"]);
    let mut body = String::new();
    for ((binding, name), operand) in names.enumerate().zip(operands.iter().chain([&result])) {
        let glsl = operand.glsl;
        let _ = writeln!(
            text,
            "layout(scalar, set = 0, binding = {binding}) buffer Vector_{name} {{ {glsl} {name}s[]; }};"
        );
        if name != "r" {
            let _ = writeln!(body, "{glsl} {name} = {name}s[i];");
        }
    }
    let glsl = result.glsl;
    let _ = writeln!(
        text,
        "layout(local_size_x = 64) in;\n\
         void main() {{\n\
         uint i = gl_GlobalInvocationID.x;\n\
         if (i >= {length}) return;\n\
         {body} precise {glsl} r = {expression};\n\
         rs[i] = r;\n}}"
    );
    let words = glsl::compile(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let buffers: Vec<Vec<u32>> = operands.iter().chain([&result]).map(|operand| operand.words.clone()).collect();
    let after = run_spirv(&words, &buffers, &[], [length.div_ceil(64) as u32, 1, 1]);
    bytemuck::pod_collect_to_vec(&after[operands.len()])
}

/// What is wrong with the results, if anything: how many, and the first ones.
fn report<A: std::fmt::Debug, R: Number>(
    wants: impl ExactSizeIterator<Item = (A, bool, Want<R>)>,
    results: &[R],
) -> Result<(), String> {
    assert_eq!(wants.len(), results.len());
    let wrong: Vec<String> = wants
        .zip(results)
        // What a device makes of a subnormal that it may take for zero is tested where formulas go round it.
        .filter(|((_, flushed, want), result)| !flushed && !want.accepts(**result))
        .map(|((operands, _, want), result)| format!("of {operands:?} it is {result:?}, not {want:?}"))
        .collect();
    match wrong.as_slice() {
        [] => Ok(()),
        [first, ..] => {
            let last = &wrong[wrong.len() - 1];
            Err(format!("{first}; {last}; {} of {}", wrong.len(), results.len()))
        }
    }
}

/// Whether the device has the case's types.
fn runs_here(case: &Case) -> bool {
    let caps = &device().caps;
    (caps.float64 || !case.types.contains("double"))
        && (caps.int64 || !(case.types.contains("int64_t") || case.expression.contains("int64_t")))
        && (caps.int8 || !case.expression.contains("int8_t") && !case.expression.contains("unpack8"))
        && (caps.int16 || !case.expression.contains("int16_t") && !case.expression.contains("unpack16"))
}

fn faults(cases: Vec<Case>) -> Vec<String> {
    let checked = cases.into_iter().filter(runs_here).filter_map(|case| {
        let wrong = (case.check)(case.expression).err()?;
        Some(format!("{} ({}): {wrong}", case.expression, case.types))
    });
    checked.collect()
}

#[test]
fn the_driver_computes_what_the_shaders_use() {
    let caps = &device().caps;
    let faults = faults(cases::used());
    assert!(faults.is_empty(), "{} ({}) gets GLSL wrong:\n{}", caps.name, caps.driver, faults.join("\n"));
}

/// The library goes round these. What a driver gets wrong is printed, and no failure.
#[test]
fn the_library_rounds_where_drivers_do_not() {
    for fault in faults(cases::avoided()) {
        println!(
            "{} ({}) gets GLSL wrong, which the library avoids: {fault}",
            device().caps.name,
            device().caps.driver
        );
    }
    let faults = faults(cases::library());
    assert!(faults.is_empty(), "the library's functions are wrong:\n{}", faults.join("\n"));
}

/// Lavapipe compiles for the CPU that it runs on, and its faults differ with that: what it does on one without AVX-512 is tested
/// in a process of its own.
#[test]
fn lavapipe_computes_the_same_without_avx_512() {
    const CAPABILITIES: &str = "GALLIUM_OVERRIDE_CPU_CAPS";
    if !device().caps.name.contains("llvmpipe") || std::env::var_os(CAPABILITIES).is_some() {
        return println!("left out: this device is no lavapipe, or its capabilities are set already");
    }
    let test = std::env::current_exe().unwrap();
    let mut command = std::process::Command::new(test);
    let output =
        command.env(CAPABILITIES, "avx").args(["--nocapture", "drivers_do_not", "shaders_use"]).output().unwrap();
    let [text, errors] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    println!("{text}");
    assert!(output.status.success(), "{errors}");
}

#[test]
fn the_shaders_use_no_built_in_function_that_is_not_tested() {
    let tested = cases::used().iter().map(|case| case.expression).chain([cases::HELPERS, subgroups::SOURCE]).collect();
    sources::check(tested);
}
