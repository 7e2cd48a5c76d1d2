//! Programs against references in Rust.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "no one links a crate of tests, whose helpers may panic as the tests do"
)]

mod support;

use nx_vulkan::pipeline::{glsl, selections};
use nx_vulkan::program::{Attribute, Node, Type};
use support::{Random, download, node, run, run_spirv, run_sums, upload, with};

/// Sizes around the workgroup and the grid's first axis.
const SIZES: [usize; 6] = [1, 255, 256, 257, 4096 + 3, 65_535 * 256 + 1];

#[test]
fn sums_of_two_vectors_of_every_size() {
    let mut random = Random(7);
    for n in SIZES {
        let a: Vec<f32> = (0..n).map(|_| random.unit() as f32).collect();
        let b: Vec<f32> = (0..n).map(|_| random.unit() as f32).collect();
        let shape = [n as u64];
        let inputs = [(&upload(&a), Type::F32, shape.as_slice()), (&upload(&b), Type::F32, shape.as_slice())];
        let out: Vec<f32> = download(&run(&[node("add", Type::F32, &[0, 1])], &inputs, &shape).unwrap());
        assert!(a.iter().zip(&b).map(|(a, b)| a + b).eq(out), "{n}");
    }
}

#[test]
fn reductions_over_each_axis_of_a_cube() {
    let mut random = Random(11);
    for shape in [[3u64, 4, 5], [70, 1, 300], [2, 513, 129], [1, 100_000, 3]] {
        let n: u64 = shape.iter().product();
        let a: Vec<f32> = (0..n).map(|_| random.unit() as f32).collect();
        let buffer = upload(&a);
        for axes in [vec![0], vec![1], vec![2], vec![0, 1], vec![0, 2], vec![1, 2], vec![0, 1, 2]] {
            let attribute = Attribute::Axes(axes.as_slice().into());
            let sum = with("sum", Type::F32, &[0], attribute);
            let out: Vec<f32> = download(&run(&[sum], &[(&buffer, Type::F32, &shape)], &shape).unwrap());
            let mut expected = std::collections::BTreeMap::<Vec<u64>, f64>::new();
            for (i, x) in a.iter().enumerate() {
                let i = i as u64;
                let at = [i / (shape[1] * shape[2]), i / shape[2] % shape[1], i % shape[2]];
                let kept = (0..3).filter(|axis| !axes.contains(axis)).map(|axis| at[axis]).collect();
                *expected.entry(kept).or_default() += f64::from(*x);
            }
            let expected: Vec<f32> = expected.values().map(|x| *x as f32).collect();
            assert_eq!(out, expected, "{shape:?} {axes:?}");
        }
    }
}

const BRANCHES: &str = "
    #version 460
    layout(local_size_x = 64) in;
    layout(binding = 0) buffer Numbers { uint x[]; };
    uint next(uint v) {
      if (v % 5u == 0u) { if (v > 40u) return v / 5u; } else if (v % 3u == 0u) return v + 1u;
      else { v += v % 7u == 1u ? v / 2u + 3u : v / 3u + 2u; }
      return v % 97u;
    }
    void main() {
      uint v = x[gl_GlobalInvocationID.x];
      for (uint i = 0u; i < 20u; i++) {
        if (v > 60u) { v -= i < 5u || v % 2u == 0u ? v / 4u : v / 8u; } else { v = next(v); continue; }
        if (v == 31u && i > 3u) break; else v++;
      }
      x[gl_GlobalInvocationID.x] = v;
    }";

/// The sums of small integers are the same in any order, and in any type that holds them.
#[test]
fn several_sums_are_those_of_each_value() {
    let mut random = Random(13);
    for shape in [[3u64, 4, 5], [70, 1, 300], [2, 513, 129], [20_000, 3, 4], [1, 100_000, 3], [40_000, 2, 64]] {
        let n: u64 = shape.iter().product();
        let mut numbers = || -> Vec<i32> { (0..n).map(|_| random.below(15) as i32 - 7).collect() };
        let (a, b) = (numbers(), numbers());
        let values = [|a: i32, b: i32| a * b, |a, _| a, |_, b| b, |a, b| a + b];
        for (axes, count) in [(&[0][..], 4), (&[0, 1], 3), (&[0, 2], 2), (&[2], 1), (&[1, 2], 4), (&[0, 1, 2], 2)] {
            let sum = |value| with("sum", Type::S32, &[value], Attribute::Axes(axes.into()));
            let all = [sum(2), sum(0), sum(1), sum(3)];
            let mut nodes = vec![node("multiply", Type::S32, &[0, 1]), node("add", Type::S32, &[0, 1])];
            nodes.extend_from_slice(&all[..count]);
            let (x, y) = (upload(&a), upload(&b));
            let given = run_sums(&nodes, count, &[(&x, Type::S32), (&y, Type::S32)], &shape).unwrap();
            let in_floats: Vec<Vec<f32>> = [&a, &b].map(|v| v.iter().map(|&x| x as f32).collect()).to_vec();
            let (x, y) = (upload(&in_floats[0]), upload(&in_floats[1]));
            let of_floats: Vec<_> = nodes.iter().cloned().map(|node| Node { ty: Type::F32, ..node }).collect();
            let floats = run_sums(&of_floats, count, &[(&x, Type::F32), (&y, Type::F32)], &shape).unwrap();
            assert_eq!((given.len(), floats.len()), (count, count));
            for ((value, given), floats) in values.iter().zip(&given).zip(&floats) {
                let expected = reduced(&shape, axes, |i| value(a[i], b[i]));
                assert_eq!(download::<i32>(given), expected, "{shape:?} {axes:?}");
                let floats: Vec<i32> = download::<f32>(floats).into_iter().map(|x| x as i32).collect();
                assert_eq!(floats, expected, "{shape:?} {axes:?}");
            }
        }
    }
}

/// The sums of a dense tensor's elements along the axes.
fn reduced(shape: &[u64; 3], axes: &[usize], element: impl Fn(usize) -> i32) -> Vec<i32> {
    let kept = |axis: usize| !axes.contains(&axis);
    let outputs: u64 = (0..3).filter(|&axis| kept(axis)).map(|axis| shape[axis]).product();
    let mut sums = vec![0; outputs as usize];
    for i in 0..shape.iter().product() {
        let index = [i / (shape[1] * shape[2]), i / shape[2] % shape[1], i % shape[2]];
        let output = (0..3).filter(|&axis| kept(axis)).fold(0, |at, axis| at * shape[axis] + index[axis]);
        sums[output as usize] += element(i as usize);
    }
    sums
}

#[test]
fn only_sums_of_the_same_axes_and_types_share_a_program() {
    let buffer = upload(&[1f32; 6]);
    let sum = |value, axes: &[usize]| with("sum", Type::F32, &[value], Attribute::Axes(axes.into()));
    let taken = |nodes: &[Node], count| run_sums(nodes, count, &[(&buffer, Type::F32)], &[2, 3]).is_ok();
    assert!(taken(&[node("negate", Type::F32, &[0]), sum(0, &[0]), sum(1, &[0])], 2));
    assert!(!taken(&[sum(0, &[0]), sum(0, &[1])], 2), "of different axes");
    assert!(!taken(&[sum(0, &[0]), sum(1, &[0])], 2), "of a sum");
    assert!(!taken(&[sum(0, &[0]), with("sum", Type::F64, &[0], Attribute::Axes([0].as_slice().into()))], 2));
    assert!(!taken(&[sum(0, &[0]), with("reduce_max", Type::F32, &[0], Attribute::Axes([0].as_slice().into()))], 2));
    assert!(!taken(&[sum(0, &[0]), node("negate", Type::F32, &[1]), sum(2, &[0])], 1), "of what a sum leads to");
    assert!(!taken(&[node("negate", Type::F32, &[0])], 0), "none");
    assert!(!taken(&[sum(0, &[0]), sum(0, &[0])], 1), "of another number");
    assert!(!taken(&vec![sum(0, &[0]); 5], 5), "too many");
}

fn branches(mut v: u32) -> u32 {
    let next = |v: u32| match v {
        v if v % 5 == 0 && v > 40 => v / 5,
        v if v % 5 == 0 => v % 97,
        v if v % 3 == 0 => v + 1,
        v => (v + if v % 7 == 1 { v / 2 + 3 } else { v / 3 + 2 }) % 97,
    };
    for i in 0..20 {
        if v <= 60 {
            v = next(v);
            continue;
        }
        v -= if i < 5 || v.is_multiple_of(2) { v / 4 } else { v / 8 };
        if v == 31 && i > 3 {
            break;
        }
        v += 1;
    }
    v
}

#[test]
fn selections_of_one_branch_compute_what_those_of_two_do() {
    let numbers: Vec<u32> = (0..1024).collect();
    let expected: Vec<u32> = numbers.iter().map(|&v| branches(v)).collect();
    let words = glsl::compile(BRANCHES).unwrap();
    for module in [selections::one_sided(&words), words] {
        assert_eq!(
            run_spirv(&module, std::slice::from_ref(&numbers), &[], [16, 1, 1]),
            std::slice::from_ref(&expected)
        );
    }
}
