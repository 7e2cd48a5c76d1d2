//! Sums of products by `shaders/lib/products.glsl`, beside sums in double on the host: on any device with doubles, in the form for those that
//! convert no subnormals.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "no one links a crate of tests, whose helpers may panic as the tests do"
)]

mod support;

use nx_vulkan::device::Capabilities;
use nx_vulkan::pipeline::glsl;
use nx_vulkan::program::emit::head;
use nx_vulkan::program::types::Compute;
use support::{Random, device, run_spirv, seed};

/// Each invocation adds up TERMS products as a loop of `lib/loops/reduce.glsl` does.
const SOURCE: &str = "
#include \"lib/products.glsl\"
layout(local_size_x = 64) in;
layout(scalar, set = 0, binding = 0) buffer Left { float xs[]; };
layout(scalar, set = 0, binding = 1) buffer Right { float ys[]; };
layout(scalar, set = 0, binding = 2) buffer Sums { uvec2 sums[]; };
void main() {
  uint start = gl_GlobalInvocationID.x * TERMS;
  precise double sum = 0;
  for (uint i = start; i < start + TERMS; i++) add_product(product_factor(xs[i]), ys[i], sum);
  sums[gl_GlobalInvocationID.x] = unpackDouble2x32(product_sum(sum));
}
";

const TERMS: usize = 12;
const SUMS: usize = 64 * 256;

/// A float of any magnitude, mostly near 1; of every so many one is 0, infinite or NaN. Without `subnormals` these are 0.
fn float(random: &mut Random, rare: u64, subnormals: bool) -> f32 {
    let bits = random.next() as u32;
    let number = match random.below(rare) {
        0 => [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN_POSITIVE][bits as usize % 7],
        1 => f32::from_bits(bits),
        2 => f32::from_bits(bits & 0x807f_ffff),
        _ => f32::from_bits(bits & 0x87ff_ffff | 0x3800_0000),
    };
    if subnormals || !number.is_subnormal() { number } else { 0.0 }
}

#[test]
fn sums_of_products_are_those_in_double() {
    let caps = &device().caps;
    if !caps.float64 {
        return println!("left out: the device has no doubles");
    }
    let mut random = Random(seed() ^ 71);
    let mut draw =
        |rare| -> Vec<f32> { (0..SUMS * TERMS).map(|_| float(&mut random, rare, caps.subnormal_doubles)).collect() };
    let (xs, ys) = (draw(60), draw(40));
    let by_bits = Capabilities { subnormal_doubles: true, denorm_preserve: false, ..caps.clone() };
    let source = SOURCE.replace("TERMS", &TERMS.to_string());
    let text = head(&by_bits, false, &[], &[Compute::Float, Compute::Double], "") + &source;
    let words = glsl::compile(&text).unwrap();
    let bits = |numbers: &[f32]| numbers.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
    let buffers = [bits(&xs), bits(&ys), vec![0; 2 * SUMS]];
    let after = run_spirv(&words, &buffers, &[], [(SUMS / 64) as u32, 1, 1]);

    let (mut infinite, mut unknown) = (0, 0);
    for (i, words) in after[2].chunks(2).enumerate() {
        let terms = i * TERMS..(i + 1) * TERMS;
        let products = xs[terms.clone()].iter().zip(&ys[terms.clone()]).map(|(&x, &y)| f64::from(x) * f64::from(y));
        let expected = products.sum::<f64>() as f32;
        let sum = f64::from_bits(u64::from(words[1]) << 32 | u64::from(words[0])) as f32;
        let same =
            sum.to_bits() == expected.to_bits() || sum.is_nan() && expected.is_nan() || sum == 0.0 && expected == 0.0;
        assert!(same, "{sum:e}, not {expected:e}, of {:?} and {:?}", &xs[terms.clone()], &ys[terms]);
        infinite += u32::from(expected.is_infinite());
        unknown += u32::from(expected.is_nan());
    }
    assert!(infinite > 100 && unknown > 100, "{infinite} sums are infinite, and {unknown} NaN");
}
