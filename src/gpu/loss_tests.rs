//! Devices that are lost: each call of Vulkan that submits, waits or allocates fails in turn. The tests lose devices, and run in a process
//! of their own therefore, with two devices of one physical device.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use std::{env, thread};

use ash::vk::Result as Vk;

use super::*;
use crate::device::fault;
use crate::memory::{Allocation, Buffer};
use crate::pipeline::KernelSource;
use crate::stream::Dispatch;

/// Set in the process that loses devices.
const CHILD: &str = "NX_VULKAN_TEST_LOSS";

/// Adds one to each of 64 words, by their address.
const COUNT: &str = "#version 460
    #extension GL_EXT_buffer_reference : require
    layout(local_size_x = 64) in;
    layout(buffer_reference) buffer Words { uint word[]; };
    layout(push_constant) uniform Parameters { Words words; };
    void main() { words.word[gl_LocalInvocationID.x] += 1u; }";
/// The most that a process may take: what waits for a lost device waits a second at most.
const MAX_TIME: Duration = Duration::from_secs(200);

/// Runs a test alone, in processes in which a CPU device is used as one, and as a GPU.
fn in_own_process(name: &str, test: fn()) {
    if env::var(CHILD).is_ok() {
        thread::spawn(|| {
            thread::sleep(MAX_TIME);
            std::process::abort();
        });
        return test();
    }
    let wanted = env::var("NX_VULKAN_DEVICE").unwrap_or("0".into());
    for disabled in ["", "cpu"] {
        let output = Command::new(env::current_exe().unwrap())
            .args(["--exact", &format!("gpu::loss_tests::{name}"), "--nocapture"])
            .env_remove("NX_VULKAN_DEVICE")
            .envs([(CHILD, "1"), ("NX_VULKAN_DEVICES", &format!("{wanted},{wanted}")), ("NX_VULKAN_DISABLE", disabled)])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{disabled}: {text}");
    }
}

fn words(gpu: &Gpu, buffer: &Buffer) -> Attempt<Vec<u32>> {
    Ok(bytemuck::pod_collect_to_vec(gpu.read(buffer, 0, buffer.len())?.bytes()))
}

/// Uploads, runs a kernel and reads, with enough work that the host waits.
fn work(gpu: &Gpu) -> Attempt<Vec<u32>> {
    const LARGE: u64 = 64 << 20;
    let large = gpu.zeroed(LARGE, Blocking::Allowed)?;
    (0..8).try_for_each(|_| gpu.stream.zero(&*large.allocation()?, LARGE))?;
    let buffer = gpu.upload(bytemuck::cast_slice(&[6_u32; 64]), Blocking::Allowed)?;
    count(gpu, &buffer)?;
    words(gpu, &buffer)
}

fn count(gpu: &Gpu, buffer: &Buffer) -> Attempt<()> {
    let source = || KernelSource { name: "count".into(), glsl: COUNT.into() };
    let pipeline = &gpu.pipelines.kernel(1, 8, Blocking::Allowed, source)?;
    let handle = buffer.allocation()?;
    let allocation: &Allocation = &handle;
    let (push, groups) = (&allocation.address.to_ne_bytes(), [1; 3]);
    let dispatch = Dispatch {
        pipeline,
        push,
        groups,
        reads: &[],
        writes: &[allocation],
        bindings: &[],
        check: None,
        predicate: None,
    };
    Ok(gpu.stream.dispatch(&dispatch)?)
}

fn assert_lost<T: std::fmt::Debug>(result: Attempt<T>, call: &str) {
    let Err(Unfinished::Failed(Error::DeviceLost(text))) = result else { panic!("{call}: {result:?}") };
    assert!(text.starts_with("device 1 (") && text.contains("was lost, and its tensors with it: "), "{call}: {text}");
}

#[test]
fn what_submits_or_waits_and_fails_loses_its_device_alone() {
    in_own_process("what_submits_or_waits_and_fails_loses_its_device_alone", || {
        let other = gpu_at(Some(0)).unwrap();
        let kept = other.upload(bytemuck::cast_slice(&[3_u32; 64]), Blocking::Allowed).unwrap();
        for (call, error) in [
            // The first submission of a device allocates one; later ones may find one that has run.
            ("vkAllocateCommandBuffers", Vk::ERROR_OUT_OF_DEVICE_MEMORY),
            ("vkQueueSubmit", Vk::ERROR_DEVICE_LOST),
            ("vkQueueSubmit", Vk::ERROR_OUT_OF_DEVICE_MEMORY),
            ("vkWaitSemaphores", Vk::ERROR_DEVICE_LOST),
            ("vkGetSemaphoreCounterValue", Vk::ERROR_DEVICE_LOST),
            ("vkBeginCommandBuffer", Vk::ERROR_OUT_OF_HOST_MEMORY),
            ("vkEndCommandBuffer", Vk::ERROR_OUT_OF_HOST_MEMORY),
        ] {
            let gpu = gpu_at(Some(1)).unwrap();
            let old = gpu.upload(bytemuck::cast_slice(&[5_u32; 64]), Blocking::Allowed).unwrap();
            fault::inject(&gpu.device, call, error);
            assert_lost(work(gpu), call);

            // What was there before is lost, the error is the first one, and the next use opens the device anew.
            assert_lost(words(gpu, &old), call);
            assert_lost(count(gpu, &old), call);
            assert_lost(gpu.stream.apply_backpressure(Blocking::Refused), call);
            assert!(gpu_if_ready(Some(1)).is_err() && losses() > 0, "{call}");
            let new = gpu_at(Some(1)).unwrap();
            assert!(
                !std::ptr::eq(new, gpu) && std::ptr::eq(Gpu::of(&old.allocation().unwrap()).unwrap(), gpu),
                "{call}"
            );
            assert_eq!(work(new).unwrap(), [7; 64], "{call}");
            assert_eq!(words(other, &kept).unwrap(), [3; 64], "{call}");
            assert!(std::ptr::eq(gpu_at(Some(0)).unwrap(), other));

            // The memory goes back to the driver as soon as nobody holds it.
            drop(old);
            let freed = (0..3_000).any(|_| {
                thread::sleep(Duration::from_millis(10));
                gpu.pool.info().pool == 0
            });
            assert!(freed, "{call}: {:?}", gpu.pool.info());
        }
    });
}

#[test]
fn what_only_allocates_or_builds_and_fails_is_the_error_of_one_call() {
    in_own_process("what_only_allocates_or_builds_and_fails_is_the_error_of_one_call", || {
        let gpu = gpu_at(Some(1)).unwrap();
        for (call, times) in [("vkCreateComputePipelines", 1), ("vkAllocateMemory", 2)] {
            let old = gpu.upload(bytemuck::cast_slice(&[5_u32; 64]), Blocking::Allowed).unwrap();
            gpu.pool.trim();
            (0..times).for_each(|_| fault::inject(&gpu.device, call, Vk::ERROR_OUT_OF_DEVICE_MEMORY));
            assert!(matches!(work(gpu), Err(Unfinished::Failed(Error::OutOfMemory(_)))), "{call}");
            assert_eq!(words(gpu, &old).unwrap(), [5; 64], "{call}");
            assert_eq!(work(gpu).unwrap(), [7; 64], "{call}");
            assert!(std::ptr::eq(gpu_at(Some(1)).unwrap(), gpu) && losses() == 0);
        }
        // Free memory goes back to the driver, and the allocation is tried again.
        fault::inject(&gpu.device, "vkAllocateMemory", Vk::ERROR_OUT_OF_DEVICE_MEMORY);
        assert_eq!(gpu.zeroed(3 << 20, Blocking::Allowed).map(|buffer| buffer.len()), Ok(3 << 20));
    });
}

#[test]
fn every_thread_learns_of_a_loss() {
    in_own_process("every_thread_learns_of_a_loss", || {
        let (other, lost) = (gpu_at(Some(0)).unwrap(), gpu_at(Some(1)).unwrap());
        let ended = AtomicBool::new(false);
        let small = |gpu: &Gpu| {
            let buffer = gpu.upload(bytemuck::cast_slice(&[6_u32; 64]), Blocking::Allowed)?;
            (0..20).try_for_each(|_| count(gpu, &buffer))?;
            words(gpu, &buffer)
        };
        thread::scope(|scope| {
            let on_lost: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        loop {
                            if let Err(error) = small(lost) {
                                break error;
                            }
                        }
                    })
                })
                .collect();
            let on_other = scope.spawn(|| {
                while !ended.load(Relaxed) {
                    assert_eq!(small(other).unwrap(), [26; 64]);
                }
            });
            thread::sleep(Duration::from_millis(100));
            fault::inject(&lost.device, "vkQueueSubmit", Vk::ERROR_DEVICE_LOST);
            on_lost.into_iter().for_each(|thread| assert_lost::<()>(Err(thread.join().unwrap()), "threads"));
            ended.store(true, Relaxed);
            on_other.join().unwrap();
        });
        // Those that come first open it once.
        let opened: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| gpu_at(Some(1)).unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(opened.iter().all(|gpu| std::ptr::eq(*gpu, opened[0])) && losses() == 1);
        assert_eq!(small(opened[0]).unwrap(), [26; 64]);
    });
}

#[test]
fn a_reset_ends_what_waits_for_a_device_and_what_records_a_profile() {
    in_own_process("a_reset_ends_what_waits_for_a_device_and_what_records_a_profile", || {
        let gpu = gpu().unwrap();
        let old = gpu.upload(bytemuck::cast_slice(&[5_u32; 64]), Blocking::Allowed).unwrap();
        let profiled = gpu.stream.start_profile();
        count(gpu, &old).unwrap();
        reset(None).unwrap();
        assert!(matches!(gpu.stream.stop_profile().map(drop), Err(Error::DeviceLost(_))) || profiled.is_err());
        let Err(Unfinished::Failed(Error::DeviceLost(text))) = words(gpu, &old) else { panic!("not lost") };
        assert!(text.starts_with("device 0 (") && text.ends_with("it was reset"), "{text}");
        let new = super::gpu().unwrap();
        assert!(new.index == 0 && !std::ptr::eq(new, gpu));
        assert_eq!(work(new).unwrap(), [7; 64]);
        let waited = thread::scope(|scope| {
            let waiting = scope.spawn(|| work(new));
            thread::sleep(Duration::from_millis(20));
            reset(Some(0)).unwrap();
            waiting.join().unwrap()
        });
        assert!(matches!(waited, Ok(_) | Err(Unfinished::Failed(Error::DeviceLost(_)))), "{waited:?}");
    });
}
