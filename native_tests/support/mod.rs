//! What the native tests share: running programs and moving vectors.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod numbers;

use std::path::Path;
use std::sync::Arc;

use bytemuck::Pod;
use nx_vulkan::device::set_probe_executable;
use nx_vulkan::error::Attempt;
use nx_vulkan::gpu::{Gpu, gpu};
use nx_vulkan::graph::{Context, Operand};
use nx_vulkan::kernels;
use nx_vulkan::memory::{Allocation, Blocking, Buffer};
use nx_vulkan::pipeline::{Pipeline, PipelineCreateInfo};
use nx_vulkan::program::{Attribute, Axes, Input, Node, Program, Source, Type, broadcast_strides, op};
use nx_vulkan::stream::{self, Dispatch};

pub fn device() -> &'static Gpu {
    set_probe_executable(Path::new(env!("CARGO_BIN_EXE_nx_vulkan_probe")));
    gpu().unwrap_or_else(|error| panic!("these tests need a Vulkan device: {error}"))
}

pub fn upload<T: Pod>(data: &[T]) -> Buffer {
    device().upload(bytemuck::cast_slice(data), Blocking::Allowed).unwrap()
}

pub fn download<T: Pod>(buffer: &Buffer) -> Vec<T> {
    let readback = device().read(buffer, 0, buffer.len()).unwrap();
    bytemuck::allocation::pod_collect_to_vec(readback.bytes())
}

/// The context of calls that may block, on the process's device.
pub fn context() -> Context<'static> {
    Context::new(device(), Blocking::Allowed)
}

pub fn node(name: &str, ty: Type, args: &[usize]) -> Node {
    with(name, ty, args, Attribute::None)
}

pub fn with(name: &str, ty: Type, args: &[usize], attribute: Attribute) -> Node {
    Node { op: op::find(name).unwrap(), ty, args: args.into(), attribute }
}

/// Runs a kernel of SPIR-V over copies of `buffers`, bound in order, and returns what is in them afterwards.
pub fn run_spirv(words: &[u32], buffers: &[Vec<u32>], push: &[u32], groups: [u32; 3]) -> Vec<Vec<u32>> {
    let blueprint = PipelineCreateInfo {
        name: "test",
        push_bytes: 4 * push.len() as u32,
        bindings: buffers.len() as u32,
        entry_point: "main",
    };
    let pipeline = Arc::new(Pipeline::build_now(&device().device, words, &blueprint, &[]).unwrap().0);
    run_pipeline(&pipeline, buffers, push, groups)
}

/// As [`run_spirv`], of a kernel that is built.
pub fn run_pipeline(pipeline: &Arc<Pipeline>, buffers: &[Vec<u32>], push: &[u32], groups: [u32; 3]) -> Vec<Vec<u32>> {
    let buffers: Vec<Buffer> = buffers.iter().map(|data| upload(data)).collect();
    let allocations: Vec<_> = buffers.iter().map(|buffer| buffer.allocation().unwrap()).collect();
    let blocks: Vec<&Allocation> = allocations.iter().map(|allocation| &***allocation).collect();
    let binding = |(block, buffer): (_, &Buffer)| stream::Binding { allocation: block, offset: 0, range: buffer.len() };
    let bindings: Vec<_> = blocks.iter().copied().zip(&buffers).map(binding).collect();
    let dispatch = Dispatch {
        pipeline,
        push: bytemuck::cast_slice(push),
        groups,
        reads: &[],
        writes: &blocks,
        bindings: &bindings,
        check: None,
        predicate: None,
        operations: 0,
    };
    device().stream.dispatch(&dispatch).unwrap();
    buffers.iter().map(download).collect()
}

/// Runs nodes over dense inputs that broadcast to `shape`.
pub fn run(nodes: &[Node], inputs: &[(&Buffer, Type, &[u64])], shape: &[u64]) -> Attempt<Buffer> {
    let views: Vec<_> =
        inputs.iter().map(|(buffer, ty, dims)| (*buffer, *ty, 0, broadcast_strides(dims, shape).unwrap())).collect();
    run_views(nodes, &views, shape)
}

/// Runs nodes that end with `count` sums over dense inputs of that shape.
pub fn run_sums(nodes: &[Node], count: usize, inputs: &[(&Buffer, Type)], shape: &[u64]) -> Attempt<Vec<Buffer>> {
    let dense = |&(buffer, ty): &(_, _)| (buffer, ty, 0, broadcast_strides(shape, shape).unwrap());
    let views: Vec<_> = inputs.iter().map(dense).collect();
    with_views(nodes, &views, shape, |program, operands| {
        kernels::fusion::run_sums(&context(), program, count, operands)
    })
}

/// Runs nodes over any views.
pub fn run_views(nodes: &[Node], inputs: &[(&Buffer, Type, i64, Axes<i64>)], shape: &[u64]) -> Attempt<Buffer> {
    with_views(nodes, inputs, shape, |program, operands| kernels::fusion::run(&context(), program, operands))
}

fn with_views<T>(
    nodes: &[Node],
    inputs: &[(&Buffer, Type, i64, Axes<i64>)],
    shape: &[u64],
    run: impl FnOnce(&Program, &[Operand]) -> Attempt<T>,
) -> Attempt<T> {
    let source = |(buffer, ty, offset, strides): &(_, Type, i64, Axes<i64>)| {
        (*buffer, Input { ty: *ty, source: Source::View { offset: *offset, strides: strides.clone() } })
    };
    with_inputs(nodes, &inputs.iter().map(source).collect::<Vec<_>>(), shape, run)
}

/// Runs nodes over inputs that each read a buffer.
pub fn run_inputs(nodes: &[Node], inputs: &[(&Buffer, Input)], shape: &[u64]) -> Attempt<Buffer> {
    with_inputs(nodes, inputs, shape, |program, operands| kernels::fusion::run(&context(), program, operands))
}

fn with_inputs<T>(
    nodes: &[Node],
    inputs: &[(&Buffer, Input)],
    shape: &[u64],
    run: impl FnOnce(&Program, &[Operand]) -> Attempt<T>,
) -> Attempt<T> {
    let decoded = inputs.iter().map(|(_, input)| input.clone()).collect();
    let program = Program { inputs: decoded, nodes: nodes.into(), shape: shape.into(), output: None };
    let allocations = inputs.iter().map(|input| input.0.allocation()).collect::<Result<Vec<_>, _>>()?;
    let operand = |(allocation, input): (_, &(&Buffer, _))| Operand::Buffer(allocation, input.0.len());
    let operands: Vec<_> = allocations.iter().zip(inputs).map(operand).collect();
    run(&program, &operands)
}

/// The seed of a run's random inputs: `NX_VULKAN_SEED`, or a new one, which is printed.
pub fn seed() -> u64 {
    let seed = std::env::var("NX_VULKAN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |t| t.as_nanos() as u64)
    });
    println!("NX_VULKAN_SEED={seed}");
    // Zeros alone would follow 0.
    seed.max(1)
}

/// A small generator of pseudo-random numbers (xorshift64*), so that a printed seed repeats a run.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Uniform in [0, n).
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Uniform in [-1, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}
