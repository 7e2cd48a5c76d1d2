//! Plans: what a call came to runs again on other operands, and calls that cannot be run so have none.

mod support;

use nx_vulkan::error::Attempt;
use nx_vulkan::kernels::contraction::{Axis, Contraction, View};
use nx_vulkan::kernels::plan::{Operand, Plan};
use nx_vulkan::kernels::program;
use nx_vulkan::memory::{Blocking, Buffer};
use nx_vulkan::program::{Attribute, Input, Program, Source, Type};
use support::{device, download, node, upload, with};

const N: u64 = 300_000;

/// The sum of a vector's products with a scalar: on every device in two passes.
fn scaled_sum(operands: &[Operand]) -> Attempt<Buffer> {
    let view = Input { ty: Type::F32, source: Source::View { offset: 0, strides: [1].into_iter().collect() } };
    let scalar = Input { ty: Type::F32, source: Source::Scalar };
    let sum = with("sum", Type::F32, &[2], Attribute::Axes([0].into_iter().collect()));
    let nodes = [node("multiply", Type::F32, &[0, 1]), sum].into_iter().collect();
    let program =
        Program { inputs: [view, scalar].into_iter().collect(), nodes, shape: [N].into_iter().collect(), output: None };
    program::run(device(), &program, operands, Blocking::Allowed)
}

fn scalar(place: usize, x: f32) -> Operand<'static> {
    let mut value = [0; 16];
    value[..4].copy_from_slice(&x.to_ne_bytes());
    Operand::Scalar { place, value }
}

#[test]
fn a_plan_runs_on_other_blocks_and_values() {
    let [ones, twos] = [1f32, 2.0].map(|x| upload(&vec![x; N as usize]));
    let allocations = [&ones, &twos].map(|buffer| buffer.allocation().unwrap());
    let operands = [&allocations[0], &allocations[1]].map(|allocation| Operand::Buffer(allocation, 4 * N));
    let (sum, plan) = Plan::of(&[operands[0], scalar(1, 3.0)], || scaled_sum(&[operands[0], scalar(1, 3.0)])).unwrap();
    assert_eq!(download::<f32>(&sum), [3.0 * N as f32]);
    let plan = plan.unwrap();
    for (operand, x, expected) in [(operands[1], 5.0, 10.0), (operands[0], 7.0, 7.0), (operands[1], 0.0, 0.0)] {
        let operands = [operand, scalar(1, x)];
        assert!(plan.fits(&operands));
        let sum = plan.run(device(), &operands, Blocking::Allowed).unwrap();
        assert_eq!(download::<f32>(&sum), [expected * N as f32]);
    }
}

#[test]
fn a_plan_is_for_operands_of_its_sizes() {
    let [exact, longer] = [N, N + 1].map(|n| upload(&vec![1f32; n as usize]));
    let allocations = [&exact, &longer].map(|buffer| buffer.allocation().unwrap());
    let block = |i: usize, buffer: &Buffer| Operand::Buffer(&allocations[i], buffer.len());
    let operands = [block(0, &exact), scalar(1, 1.0)];
    let plan = Plan::of(&operands, || scaled_sum(&operands)).unwrap().1.unwrap();
    assert!(plan.fits(&operands));
    assert!(!plan.fits(&[block(1, &longer), scalar(1, 1.0)]));
    assert!(!plan.fits(&operands[..1]));
}

#[test]
fn products_have_plans() {
    // In one kernel or several, and as a reduction.
    for [m, n, k] in [[3, 5, 7], [70, 66, 200], [2, 3, 90_000], [1, 6, 5000]] {
        let sizes = [m * k, k * n];
        let buffers = [1f32, 2.0].map(|x| sizes.map(|size| upload(&vec![x; size as usize])));
        let axis =
            |dim, a: u64, b: u64, c: u64| vec![Axis { dim, a: a as i64, b: b as i64, c: c as i64, border: None }];
        let product = |[a, b]: [&Buffer; 2]| {
            let view = |buffer| View { buffer, ty: Type::F32, offset: 0 };
            let contraction = Contraction {
                ty: Type::F32,
                a: view(a),
                b: view(b),
                batch: vec![],
                rows: axis(m, k, 0, n),
                columns: axis(n, 0, 1, 1),
                depth: axis(k, 1, n, 0),
                borders: vec![],
            };
            contraction.run(device(), Blocking::Allowed)
        };
        let allocations = buffers.each_ref().map(|pair| pair.each_ref().map(|buffer| buffer.allocation().unwrap()));
        let operands = |i: usize| [0, 1].map(|j| Operand::Buffer(&allocations[i][j], 4 * sizes[j]));
        let (_, plan) = Plan::of(&operands(0), || product(buffers[0].each_ref())).unwrap();
        let result = plan.unwrap().run(device(), &operands(1), Blocking::Allowed).unwrap();
        assert_eq!(download::<f32>(&result), vec![4.0 * k as f32; (m * n) as usize], "{m}×{k}×{n}");
    }
}

#[test]
fn what_is_more_than_kernels_on_the_operands_has_no_plan() {
    let ones = upload(&vec![1f32; N as usize]);
    let allocation = ones.allocation().unwrap();
    let operands = [Operand::Buffer(&allocation, 4 * N), scalar(1, 1.0)];
    let has_plan =
        |operands: &[Operand], call: &dyn Fn() -> Attempt<Buffer>| Plan::of(operands, call).unwrap().1.is_some();
    assert!(has_plan(&operands, &|| scaled_sum(&operands)));
    // Kernels that read what is no operand, or another value.
    assert!(!has_plan(&operands[1..], &|| scaled_sum(&operands)));
    assert!(!has_plan(&[operands[0], scalar(1, 2.0)], &|| scaled_sum(&operands)));
    // Other commands, and no kernel at all.
    assert!(!has_plan(&operands, &|| device().upload(&[1; 4], Blocking::Allowed).and_then(|_| scaled_sum(&operands))));
    assert!(!has_plan(&operands, &|| device().zeroed(4, Blocking::Allowed)));
    // Notes end with a call that fails.
    assert!(Plan::of(&operands, || Err(nx_vulkan::error::Error::SizeMismatch.into())).is_err());
    assert!(has_plan(&operands, &|| scaled_sum(&operands)));
}
