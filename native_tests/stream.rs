//! The stream: order of dependent work, reuse of memory that is still in use, callers on many threads.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "no one links a crate of tests, whose helpers may panic as the tests do"
)]

mod support;

use std::collections::VecDeque;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use nx_vulkan::device::Timeline;
use nx_vulkan::error::{Error, Retry};
use nx_vulkan::gpu::gpu;
use nx_vulkan::memory::{Blocking, Buffer, MemoryKind};
use nx_vulkan::pipeline::{Pipeline, PipelineCreateInfo, glsl};
use nx_vulkan::program::Type;
use nx_vulkan::stream::{Dispatch, DispatchPredicate};
use support::{Random, device, download, node, run, upload};

const N: usize = 3000;

/// An op's name and what it does.
type Step = (&'static str, fn(u32, u32) -> u32);

fn step(name: &str, a: &Buffer, b: &Buffer) -> Buffer {
    let shape = [N as u64];
    run(&[node(name, Type::U32, &[0, 1])], &[(a, Type::U32, &shape), (b, Type::U32, &shape)], &shape).unwrap()
}

/// Random ops over a few live buffers, some dropped while their readers are still to run, against the same on the CPU.
fn random_work(seed: u64, steps: usize) {
    let mut random = Random(seed);
    let mut live: VecDeque<(Buffer, Vec<u32>)> = (0..3)
        .map(|_| {
            let data: Vec<u32> = (0..N).map(|_| random.next() as u32).collect();
            (upload(&data), data)
        })
        .collect();
    for _ in 0..steps {
        let (i, j) = (random.below(live.len() as u64) as usize, random.below(live.len() as u64) as usize);
        let ops: [Step; 3] =
            [("add", u32::wrapping_add), ("multiply", u32::wrapping_mul), ("bitwise_xor", |a, b| a ^ b)];
        let (name, f) = ops[random.below(3) as usize];
        let expected = live[i].1.iter().zip(&live[j].1).map(|(&a, &b)| f(a, b)).collect();
        let out = step(name, &live[i].0, &live[j].0);
        live.push_back((out, expected));
        if live.len() > 6 {
            live.pop_front();
        }
    }
    for (buffer, expected) in live {
        assert!(download::<u32>(&buffer) == expected, "seed {seed}");
    }
}

#[test]
fn dependent_work_runs_in_order() {
    for seed in 1..20 {
        random_work(seed, 200);
    }
}

#[test]
fn sixteen_threads_that_come_first_get_one_device_and_right_results() {
    let addresses: Vec<usize> = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=16)
            .map(|seed| {
                scope.spawn(move || {
                    let address = gpu().unwrap() as *const _ as usize;
                    random_work(seed * 1000, 100);
                    address
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(addresses.iter().all(|&address| address == addresses[0]));
}

/// Words of a transfer that runs beside the kernels, in chunks.
const LARGE: usize = 5 << 18;

fn large_step(name: &str, a: &Buffer, b: &Buffer) -> Buffer {
    let shape = [LARGE as u64];
    run(&[node(name, Type::U32, &[0, 1])], &[(a, Type::U32, &shape), (b, Type::U32, &shape)], &shape).unwrap()
}

#[test]
fn large_transfers_of_many_threads_are_in_order_with_the_kernels_that_use_their_memory() {
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            scope.spawn(move || {
                let ones = upload(&vec![1_u32; LARGE]);
                for round in 0..12 {
                    let data: Vec<u32> = (0..LARGE as u32).map(|i| i.wrapping_mul(2 * thread + 1) ^ round).collect();
                    let a = upload(&data);
                    let sum = large_step("add", &a, &ones);
                    // Freed memory serves other threads while kernels and transfers of it are to come.
                    let doubled = large_step("add", &sum, &a);
                    drop(a);
                    if round % 3 == 0 {
                        random_work(u64::from(100 * thread + round), 20);
                    }
                    let expected = |f: fn(u32) -> u32| data.iter().map(|&x| f(x)).collect::<Vec<_>>();
                    assert!(download::<u32>(&doubled) == expected(|x| x.wrapping_mul(2).wrapping_add(1)));
                    // A transfer after a transfer of the same memory, between kernels that read what was there before and after.
                    let before = large_step("add", &sum, &ones);
                    device().upload_into(&sum, bytemuck::cast_slice(&data), Blocking::Allowed).unwrap();
                    assert!(download::<u32>(&sum) == data);
                    let after = large_step("add", &sum, &ones);
                    assert!(download::<u32>(&before) == expected(|x| x.wrapping_add(2)));
                    assert!(download::<u32>(&after) == expected(|x| x.wrapping_add(1)));
                }
            });
        }
    });
}

#[test]
fn callers_far_ahead_of_the_device_wait_for_it() {
    let stream = &device().stream;
    let n = if device().caps.cpu { 1 << 18 } else { 1 << 26 };
    let (a, shape) = (upload(&vec![1u32; n]), [n as u64]);
    let submit = || {
        run(&[node("add", Type::U32, &[0, 0])], &[(&a, Type::U32, &shape)], &shape).unwrap();
        stream.submit().unwrap();
        stream.apply_backpressure(Blocking::Refused)
    };
    let deferred = (0..10_000).find_map(|_| submit().err());
    assert_eq!(deferred, Some(Retry::Blocking.into()));
    stream.apply_backpressure(Blocking::Allowed).unwrap();
    stream.apply_backpressure(Blocking::Refused).unwrap();
}

/// Runs a test in a process of its own: other tests share the device's memory. It makes no CUDA context: CUDA aborts a process that ends
/// while it initialises itself.
fn alone(name: &str, test: fn()) {
    const ALONE: &str = "NX_VULKAN_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return test();
    }
    let process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .env(ALONE, "1")
        .env("NX_VULKAN_HOLD_CLOCK", "0")
        .output();
    let process = process.unwrap();
    assert!(process.status.success(), "{}", String::from_utf8_lossy(&process.stdout));
}

#[test]
fn memory_stays_flat_over_many_batches() {
    alone("memory_stays_flat_over_many_batches", flat_memory);
}

fn flat_memory() {
    let a = upload(&vec![1u32; N]);
    let work = || {
        let mut sum = step("add", &a, &a);
        for _ in 0..500 {
            sum = step("add", &sum, &a);
        }
        device().stream.finish().unwrap();
    };
    work();
    let before = device().pool.info();
    (0..5).for_each(|_| work());
    let after = device().pool.info();
    assert!(after.pool <= before.pool + (1 << 20), "{before:?} grew to {after:?}");
}

#[test]
fn what_lies_free_is_in_proportion_to_what_was_used() {
    alone("what_lies_free_is_in_proportion_to_what_was_used", proportionate_memory);
}

fn proportionate_memory() {
    let before = device().pool.info();
    let largest = 200 << 20;
    // One at a time, of sizes that do not fit each other's allocations; far more than the bound in all.
    for len in (0..32).map(|i| largest - i * (6 << 20)) {
        device().zeroed(len, Blocking::Allowed).unwrap();
        device().stream.finish().unwrap();
    }
    let after = device().pool.info();
    assert!(after.pool <= 5 * (before.used + largest), "{before:?} grew to {after:?}");
}

/// A kernel that writes 7 to each of the words from an address on.
const SEVENS: &str = r"
    #version 460
    #extension GL_EXT_buffer_reference : require
    layout(buffer_reference, std430) buffer Words { uint words[]; };
    layout(push_constant) uniform Parameters { Words target; };
    layout(local_size_x = 1) in;
    void main() { target.words[gl_WorkGroupID.x] = 7; }";

const SEVENS_INFO: PipelineCreateInfo =
    PipelineCreateInfo { name: "test", push_bytes: 8, bindings: 0, entry_point: "main" };

#[test]
fn commands_of_a_pipeline_that_is_being_built_are_submitted_once_it_is() {
    let (gpu, words) = (device(), glsl::compile(SEVENS).unwrap());
    let buffer = upload(&vec![1u32; N]);
    let allocation = buffer.allocation().unwrap();
    let pipeline = Arc::new(Pipeline::unbuilt(&gpu.device, &SEVENS_INFO).unwrap());
    let push = &allocation.address.to_le_bytes();
    let (groups, writes) = ([N as u32, 1, 1], [&**allocation]);
    let dispatch = Dispatch {
        pipeline: &pipeline,
        push,
        groups,
        reads: &[],
        writes: &writes,
        bindings: &[],
        check: None,
        predicate: None,
        operations: 0,
    };
    gpu.stream.dispatch(&dispatch).unwrap();
    let sum = step("add", &buffer, &buffer);
    // Nothing here waits for the pipeline.
    gpu.stream.submit().unwrap();
    gpu.stream.start().unwrap();
    assert!(gpu.stream.submit_and_poll().is_err());
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| download::<u32>(&sum));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!reader.is_finished());
        pipeline.finish(&words, "main", &[], drop);
        assert_eq!(reader.join().unwrap(), vec![14; N]);
    });
}

#[test]
fn a_large_transfer_waits_for_no_kernel_that_does_not_use_its_memory() {
    alone("a_large_transfer_waits_for_no_kernel_that_does_not_use_its_memory", independent_transfer);
}

fn independent_transfer() {
    let gpu = device();
    let (a, data) = (upload(&vec![1_u32; N]), vec![5_u32; LARGE]);
    // The driver does not have what is recorded from here on: the kernel is not built.
    let pipeline = Arc::new(Pipeline::unbuilt(&gpu.device, &SEVENS_INFO).unwrap());
    let target = gpu.zeroed(4 * N as u64, Blocking::Allowed).unwrap();
    let allocation = target.allocation().unwrap();
    let large = upload(&data);
    gpu.stream.finish().unwrap();
    let dispatch = Dispatch {
        pipeline: &pipeline,
        push: &allocation.address.to_le_bytes(),
        groups: [N as u32, 1, 1],
        reads: &[],
        writes: &[&**allocation],
        bindings: &[],
        check: None,
        predicate: None,
        operations: 0,
    };
    gpu.stream.dispatch(&dispatch).unwrap();
    gpu.stream.submit().unwrap();
    let transferred = gpu.stream.transfer_timeline().submitted.load(Relaxed);
    let uploaded = upload(&data);
    gpu.stream.transfer_timeline().wait(transferred + 2).unwrap();
    let ready = step("add", &a, &a);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| (download::<u32>(&target), download::<u32>(&ready), download::<u32>(&uploaded)));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!reader.is_finished());
        pipeline.finish(&glsl::compile(SEVENS).unwrap(), "main", &[], drop);
        assert!(reader.join().unwrap() == (vec![7; N], vec![2; N], data.clone()));
    });
    assert!(download::<u32>(&large) == data);
}

#[test]
fn a_dispatch_runs_where_its_predicate_is_not_zero() {
    let gpu = device();
    if !gpu.caps.conditional_rendering {
        return println!("left out: the device has no conditional rendering");
    }
    const WORD: u64 = 4;
    let mut random = Random(5);
    let pipeline =
        Arc::new(Pipeline::build_now(&gpu.device, &glsl::compile(SEVENS).unwrap(), &SEVENS_INFO, &[]).unwrap().0);
    let words = [MemoryKind::Predicates, MemoryKind::Device]
        .map(|kind| gpu.allocate(kind, N as u64 * WORD, Blocking::Allowed).unwrap());
    words.iter().for_each(|words| gpu.stream.zero(words, N as u64 * WORD).unwrap());
    // Words of the predicates and of the results that are sevens.
    let mut sevens = [[false; 400]; 2];
    let offset = |word: usize| word as u64 * WORD;
    // More than a batch holds, of all callers' commands with and without predicates.
    for _ in 0..1500 {
        let target = usize::from(random.below(4) > 0);
        let (word, condition) = (random.below(400) as usize, random.below(400) as usize);
        // A kernel may not write the predicate that it is under.
        let predicate = (random.below(3) > 0 && (target, word) != (0, condition)).then_some(condition);
        let push = (words[target].address + offset(word)).to_le_bytes();
        gpu.stream
            .dispatch(&Dispatch {
                pipeline: &pipeline,
                push: &push,
                groups: [1; 3],
                reads: &[],
                writes: &[&*words[target]],
                bindings: &[],
                check: None,
                predicate: predicate.map(|word| DispatchPredicate { allocation: &words[0], offset: offset(word) }),
                operations: 0,
            })
            .unwrap();
        sevens[target][word] |= predicate.is_none_or(|word| sevens[0][word]);
    }
    let [_, results] = words.map(|words| Buffer::new(N as u64 * WORD, words));
    let expected: Vec<u32> = sevens[1].iter().map(|&seven| if seven { 7 } else { 0 }).collect();
    assert!(download::<u32>(&results)[..400] == expected);
}

#[test]
fn a_pipeline_that_cannot_be_built_is_the_error_of_what_depends_on_its_results() {
    let gpu = device();
    let refused = Arc::new(Pipeline::unbuilt(&gpu.device, &SEVENS_INFO).unwrap());
    let sevens = |buffer: &Buffer| {
        let allocation = buffer.allocation().unwrap();
        let push = &allocation.address.to_le_bytes();
        let (groups, writes) = ([N as u32, 1, 1], [&**allocation]);
        let dispatch = Dispatch {
            pipeline: &refused,
            push,
            groups,
            reads: &[],
            writes: &writes,
            bindings: &[],
            check: None,
            predicate: None,
            operations: 0,
        };
        gpu.stream.dispatch(&dispatch).unwrap();
    };
    let (ones, written) = (upload(&vec![1u32; N]), upload(&vec![1u32; N]));
    sevens(&written);
    let (dependent, other) = (step("add", &step("add", &ones, &written), &ones), step("add", &ones, &ones));
    let read = |buffer: &Buffer| gpu.read(buffer, 0, buffer.len()).map(drop);
    let failed = Err(Error::DispatchFailed("the kernel test: as it should".into()).into());
    std::thread::scope(|scope| {
        let waits = [0; 4].map(|_| scope.spawn(|| read(&dependent)));
        std::thread::sleep(Duration::from_millis(50));
        refused.fail(Error::DispatchFailed("as it should".into()));
        for wait in waits {
            assert_eq!(wait.join().unwrap(), failed);
        }
    });
    // In the same batches, before and after.
    assert_eq!(download::<u32>(&other), vec![2; N]);
    assert_eq!(read(&written), failed);
    let later = upload(&vec![1u32; N]);
    sevens(&later);
    assert_eq!(read(&step("add", &later, &other)), failed);
    assert_eq!(download::<u32>(&step("add", &other, &ones)), vec![3; N]);
    // The memory of a failed result serves again.
    drop((written, dependent, later));
    (0..20).for_each(|_| assert_eq!(download::<u32>(&step("add", &ones, &ones)), vec![2; N]));
}

#[test]
fn a_wait_for_what_will_not_be_submitted_ends() {
    let timeline = Timeline::new(device().device.clone(), device().caps.cpu).unwrap();
    timeline.abandon();
    assert_eq!(timeline.wait(1), Err(Error::DispatchFailed("the commands were not submitted".into())));
}
