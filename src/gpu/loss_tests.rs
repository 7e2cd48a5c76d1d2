//! Devices that are lost: each call of Vulkan that opens, submits, waits, allocates or builds fails in turn. The tests lose devices, and run
//! in a process of their own therefore, with two devices of one physical device.

mod soak;

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use std::{env, thread};

use ash::vk::Result as Vk;

use super::devices::opened;
use super::*;
use crate::device::{HUNG, fault};
use crate::memory::{Allocation, Buffer};
use crate::pipeline::{CallInterface, KernelSource, UserCode, UserModule};
use crate::stream::{Binding, Dispatch};

/// Set in the process that loses devices.
const CHILD: &str = "NX_VULKAN_TEST_LOSS";

/// Adds one to each of 64 words, by their address.
const COUNT: &str = "#version 460
    #extension GL_EXT_buffer_reference : require
    layout(local_size_x = 64) in;
    layout(buffer_reference) buffer Words { uint word[]; };
    layout(push_constant) uniform Parameters { Words words; };
    void main() { words.word[gl_LocalInvocationID.x] += 1u; }";
/// The same of a bound buffer.
const COUNT_BOUND: &str = "#version 460
    layout(local_size_x = 64) in;
    layout(set = 0, binding = 0) buffer Words { uint word[]; };
    void main() { word[gl_LocalInvocationID.x] += 1u; }";
/// The most that a process may take besides a soak: what waits for a lost device waits a second at most.
const MAX_TIME: Duration = Duration::from_secs(200);
/// Seconds that the soak runs.
const SOAK_SECONDS: &str = "NX_VULKAN_SOAK_SECONDS";

/// Runs a test alone, in processes in which a CPU device is used as one, and as a GPU.
fn in_own_process(name: &str, test: fn()) {
    in_processes(name, &["", "cpu"], test);
}

/// Runs a test alone, in processes in which devices do without these features.
fn in_processes(name: &str, disabled: &[&str], test: fn()) {
    if env::var(CHILD).is_ok() {
        thread::spawn(|| {
            thread::sleep(MAX_TIME + soak_time());
            std::process::abort();
        });
        return test();
    }
    let wanted = env::var("NX_VULKAN_DEVICE").unwrap_or("0".into());
    for disabled in disabled {
        let output = Command::new(env::current_exe().unwrap())
            .args(["--exact", &format!("gpu::loss_tests::{name}"), "--nocapture", "--include-ignored"])
            .env_remove("NX_VULKAN_DEVICE")
            .envs([(CHILD, "1"), ("NX_VULKAN_DEVICES", &format!("{wanted},{wanted}")), ("NX_VULKAN_DISABLE", disabled)])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{disabled}: {text}");
        text.lines().filter(|line| line.contains(" faults, ")).for_each(|line| println!("{line}"));
    }
}

fn soak_time() -> Duration {
    Duration::from_secs(env::var(SOAK_SECONDS).map_or(0, |seconds| seconds.parse().unwrap()))
}

/// Has a call of the device fail, after `after` calls that succeed.
fn inject(gpu: &Gpu, call: &'static str, after: usize, result: Vk) {
    fault::inject(&gpu.device, fault::Fault { call, after, result });
}

fn lose(gpu: &Gpu) {
    gpu.stream.lose(Error::DeviceLost("it is lost".into()));
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
    count_by(gpu, 1, buffer)
}

/// Counts by the kernel of a key: each key has a pipeline of its own.
fn count_by(gpu: &Gpu, key: u64, buffer: &Buffer) -> Attempt<()> {
    let source = || KernelSource { name: "count".into(), glsl: format!("{COUNT}\n// {key}\n") };
    let pipeline = &gpu.pipelines.kernel(key.into(), 8, Blocking::Allowed, source)?;
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
        operations: 0,
    };
    Ok(gpu.stream.dispatch(&dispatch)?)
}

/// As [`count_by`], by a kernel whose buffer is bound.
fn count_bound_by(gpu: &Gpu, key: u64, buffer: &Buffer) -> Attempt<()> {
    let glsl = format!("{COUNT_BOUND}\n// {key}\n");
    let module = UserModule { name: "count", code: UserCode::Glsl(&glsl) };
    let interface = CallInterface { constant: None, bindings: 1, push_bytes: 0 };
    let kernel = gpu.pipelines.user_module(&module, interface, Blocking::Allowed)?;
    let handle = buffer.allocation()?;
    let allocation: &Allocation = &handle;
    let dispatch = Dispatch {
        pipeline: &kernel.pipeline,
        push: &[],
        groups: [1; 3],
        reads: &[],
        writes: &[allocation],
        bindings: &[Binding { allocation, offset: 0, range: buffer.len() }],
        check: None,
        predicate: None,
        operations: 0,
    };
    Ok(gpu.stream.dispatch(&dispatch)?)
}

/// As [`work`], by a kernel whose buffer is bound.
fn bound_work(gpu: &Gpu) -> Attempt<Vec<u32>> {
    let buffer = gpu.upload(bytemuck::cast_slice(&[6_u32; 64]), Blocking::Allowed)?;
    count_bound_by(gpu, 0, &buffer)?;
    words(gpu, &buffer)
}

fn assert_lost<T: std::fmt::Debug>(result: Attempt<T>, call: &str) {
    let Err(Unfinished::Failed(Error::DeviceLost(text))) = result else { panic!("{call}: {result:?}") };
    assert!(text.starts_with("device 1 (") && text.contains("was lost, and its tensors with it: "), "{call}: {text}");
}

#[test]
fn what_submits_or_waits_and_fails_loses_its_device_alone() {
    in_own_process("what_submits_or_waits_and_fails_loses_its_device_alone", || {
        loses_its_device_alone(
            work,
            &[
                // The first submission of a device allocates one; later ones may find one that has run.
                ("vkAllocateCommandBuffers", Vk::ERROR_OUT_OF_DEVICE_MEMORY),
                ("vkQueueSubmit", Vk::ERROR_DEVICE_LOST),
                ("vkQueueSubmit", Vk::ERROR_OUT_OF_DEVICE_MEMORY),
                ("vkWaitSemaphores", Vk::ERROR_DEVICE_LOST),
                ("vkGetSemaphoreCounterValue", Vk::ERROR_DEVICE_LOST),
                ("vkBeginCommandBuffer", Vk::ERROR_OUT_OF_HOST_MEMORY),
                ("vkEndCommandBuffer", Vk::ERROR_OUT_OF_HOST_MEMORY),
            ],
        );
    });
}

/// Devices that push descriptors have neither pools nor sets. The first work of a process makes a pool; later work may find one whose batch has
/// run, so that a pool is the first that fails.
#[test]
fn a_descriptor_set_that_there_is_no_room_for_loses_its_device_alone() {
    let name = "a_descriptor_set_that_there_is_no_room_for_loses_its_device_alone";
    in_processes(name, &["push_descriptor", "push_descriptor,cpu"], || {
        loses_its_device_alone(
            bound_work,
            &[
                ("vkCreateDescriptorPool", Vk::ERROR_OUT_OF_HOST_MEMORY),
                ("vkAllocateDescriptorSets", Vk::ERROR_OUT_OF_DEVICE_MEMORY),
                ("vkAllocateDescriptorSets", Vk::ERROR_FRAGMENTED_POOL),
            ],
        );
    });
}

#[test]
fn a_descriptor_pool_that_there_is_no_memory_for_loses_its_device_alone() {
    let name = "a_descriptor_pool_that_there_is_no_memory_for_loses_its_device_alone";
    in_processes(name, &["push_descriptor", "push_descriptor,cpu"], || {
        loses_its_device_alone(bound_work, &[("vkCreateDescriptorPool", Vk::ERROR_OUT_OF_DEVICE_MEMORY)]);
    });
}

/// Has these calls fail one after the other while work is done.
fn loses_its_device_alone(work: fn(&Gpu) -> Attempt<Vec<u32>>, calls: &[(&'static str, Vk)]) {
    let other = gpu_at(Some(0)).unwrap();
    let kept = other.upload(bytemuck::cast_slice(&[3_u32; 64]), Blocking::Allowed).unwrap();
    for &(call, error) in calls {
        let gpu = gpu_at(Some(1)).unwrap();
        let old = gpu.upload(bytemuck::cast_slice(&[5_u32; 64]), Blocking::Allowed).unwrap();
        inject(gpu, call, 0, error);
        assert_lost(work(gpu), call);

        // What was there before is lost, the error is the first one, and the next use opens the device anew.
        assert_lost(words(gpu, &old), call);
        assert_lost(count(gpu, &old), call);
        assert_lost(gpu.stream.apply_backpressure(Blocking::Refused), call);
        assert!(gpu_if_ready(Some(1)).is_err() && losses() > 0, "{call}");
        let new = gpu_at(Some(1)).unwrap();
        assert!(!std::ptr::eq(new, gpu) && std::ptr::eq(Gpu::of(&old.allocation().unwrap()).unwrap(), gpu), "{call}");
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
}

#[test]
fn a_device_that_cannot_be_opened_is_opened_by_a_later_call() {
    in_own_process("a_device_that_cannot_be_opened_is_opened_by_a_later_call", || {
        let other = gpu_at(Some(0)).unwrap();
        let kept = other.upload(bytemuck::cast_slice(&[3_u32; 64]), Blocking::Allowed).unwrap();
        for (call, result) in [
            ("vkCreateDevice", Vk::ERROR_OUT_OF_HOST_MEMORY),
            ("vkCreateDevice", Vk::ERROR_INITIALIZATION_FAILED),
            ("vkCreateDevice", Vk::ERROR_DEVICE_LOST),
            ("vkCreateSemaphore", Vk::ERROR_OUT_OF_HOST_MEMORY),
            ("vkCreateCommandPool", Vk::ERROR_OUT_OF_DEVICE_MEMORY),
        ] {
            let lost = gpu_at(Some(1)).unwrap();
            let old = lost.upload(bytemuck::cast_slice(&[5_u32; 64]), Blocking::Allowed).unwrap();
            lose(lost);
            fault::inject_opening(fault::Fault { call, after: 0, result });
            let refused = gpu_at(Some(1)).map(drop).unwrap_err();
            match call {
                "vkCreateDevice" => assert!(matches!(&refused, Error::NoDevice(_)), "{call}: {refused:?}"),
                _ => assert!(matches!(&refused, Error::OutOfMemory(_)), "{call}: {refused:?}"),
            }
            assert!(gpu_if_ready(Some(1)).is_err());
            // A device that is lost stays so until the test ends that.
            assert_eq!(fault::withdraw_opening(), usize::from(result == Vk::ERROR_DEVICE_LOST), "{call}");

            assert_eq!(work(gpu_at(Some(1)).unwrap()).unwrap(), [7; 64], "{call}");
            assert_lost(words(lost, &old), call);
            assert_eq!(words(other, &kept).unwrap(), [3; 64], "{call}");
        }
    });
}

/// Uploads and reads so much that it runs beside the kernels, with a kernel between.
fn transfers(gpu: &Gpu) -> Attempt<bool> {
    const LARGE: usize = 6 << 20;
    let mut data = vec![6_u32; LARGE / 4];
    let buffer = gpu.upload(bytemuck::cast_slice(&data), Blocking::Allowed)?;
    count(gpu, &buffer)?;
    data[..64].fill(7);
    Ok(words(gpu, &buffer)? == data)
}

#[test]
fn each_call_of_a_large_transfer_that_fails_loses_the_device() {
    in_own_process("each_call_of_a_large_transfer_that_fails_loses_the_device", || {
        // The kernel is built. What is submitted is two chunks, the kernel and the way back.
        assert_eq!(transfers(gpu_at(Some(1)).unwrap()), Ok(true));
        for (call, error, times) in [
            ("vkQueueSubmit", Vk::ERROR_DEVICE_LOST, 4),
            ("vkBeginCommandBuffer", Vk::ERROR_OUT_OF_HOST_MEMORY, 4),
            ("vkEndCommandBuffer", Vk::ERROR_OUT_OF_HOST_MEMORY, 4),
            ("vkGetSemaphoreCounterValue", Vk::ERROR_DEVICE_LOST, 2),
        ] {
            for after in 0..times {
                let gpu = gpu_at(Some(1)).unwrap();
                let old = gpu.upload(bytemuck::cast_slice(&vec![5_u32; 2 << 20]), Blocking::Allowed).unwrap();
                gpu.stream.finish().unwrap();
                inject(gpu, call, after, error);
                assert_lost(transfers(gpu), call);
                assert_lost(words(gpu, &old), call);
                assert_eq!(transfers(gpu_at(Some(1)).unwrap()), Ok(true), "{call} {after}");
                drop(old);
                let freed = (0..3_000).any(|_| {
                    thread::sleep(Duration::from_millis(10));
                    gpu.pool.info().pool == 0
                });
                assert!(freed, "{call} {after}: {:?}", gpu.pool.info());
            }
        }
    });
}

#[test]
fn what_only_allocates_or_builds_and_fails_is_the_error_of_one_call() {
    in_own_process("what_only_allocates_or_builds_and_fails_is_the_error_of_one_call", || {
        let gpu = gpu_at(Some(1)).unwrap();
        let old = gpu.upload(bytemuck::cast_slice(&[5_u32; 64]), Blocking::Allowed).unwrap();
        let by_address =
            ["vkCreateComputePipelines", "vkCreateShaderModule", "vkCreatePipelineLayout", "vkCreatePipelineCache"];
        type Count = fn(&Gpu, u64, &Buffer) -> Attempt<()>;
        let calls = by_address.map(|call| (call, count_by as Count));
        let bound = [("vkCreateDescriptorSetLayout", count_bound_by as Count)];
        for (key, (call, count)) in (100..).zip(calls.into_iter().chain(bound)) {
            inject(gpu, call, 0, Vk::ERROR_OUT_OF_DEVICE_MEMORY);
            let buffer = gpu.upload(bytemuck::cast_slice(&[6_u32; 64]), Blocking::Allowed).unwrap();
            let counted = |buffer: &Buffer| count(gpu, key, buffer).and_then(|()| words(gpu, buffer));
            assert!(matches!(counted(&buffer), Err(Unfinished::Failed(Error::OutOfMemory(_)))), "{call}");
            assert_eq!(fault::withdraw(&gpu.device), 0, "{call}");
            // What the kernel was to write is not known, and nothing else has suffered.
            let buffer = gpu.upload(bytemuck::cast_slice(&[6_u32; 64]), Blocking::Allowed).unwrap();
            assert_eq!(counted(&buffer), Ok(vec![7; 64]), "{call}");
            assert_eq!(words(gpu, &old).unwrap(), [5; 64], "{call}");
        }
        assert!(std::ptr::eq(gpu_at(Some(1)).unwrap(), gpu) && losses() == 0);
    });
}

#[test]
fn each_allocation_in_turn_may_find_no_memory() {
    in_own_process("each_allocation_in_turn_may_find_no_memory", || {
        let gpu = gpu_at(Some(1)).unwrap();
        let old = gpu.upload(bytemuck::cast_slice(&[5_u32; 64]), Blocking::Allowed).unwrap();
        for (call, result) in [
            ("vkCreateBuffer", Vk::ERROR_OUT_OF_HOST_MEMORY),
            ("vkAllocateMemory", Vk::ERROR_OUT_OF_DEVICE_MEMORY),
            ("vkMapMemory", Vk::ERROR_MEMORY_MAP_FAILED),
            ("vkBindBufferMemory", Vk::ERROR_OUT_OF_DEVICE_MEMORY),
        ] {
            let mut refused = 0;
            let allocations = (0..).take_while(|&after| {
                gpu.stream.finish().unwrap();
                gpu.pool.trim();
                // An allocation that fails once is tried again, after free memory has gone back to the driver.
                inject(gpu, call, after, result);
                assert_eq!(work(gpu), Ok(vec![7; 64]), "{call} {after}");
                fault::withdraw(&gpu.device);
                gpu.pool.trim();
                (0..2).for_each(|_| inject(gpu, call, after, result));
                let worked = work(gpu);
                // What is tried again may find memory that has become free, and the second fault meets another allocation.
                let left = fault::withdraw(&gpu.device);
                let out_of_memory = left == 0 && matches!(worked, Err(Unfinished::Failed(Error::OutOfMemory(_))));
                assert!(out_of_memory || worked == Ok(vec![7; 64]), "{call} {after}: {worked:?}");
                refused += u32::from(out_of_memory);
                assert_eq!(words(gpu, &old), Ok(vec![5; 64]), "{call} {after}");
                left < 2
            });
            // Small uploads are commands: the read's memory alone is mapped.
            let least = if call == "vkMapMemory" { 1 } else { 3 };
            assert!(allocations.count() >= least && refused >= 1, "{call}: {refused} refused");
        }
        assert!(std::ptr::eq(gpu_at(Some(1)).unwrap(), gpu) && losses() == 0);
    });
}

#[test]
fn a_device_that_finishes_nothing_is_lost() {
    in_own_process("a_device_that_finishes_nothing_is_lost", || {
        let gpu = gpu_at(Some(1)).unwrap();
        inject(gpu, "vkWaitSemaphores", 0, Vk::TIMEOUT);
        inject(gpu, HUNG, 0, Vk::TIMEOUT);
        // Work that is done before the host looks is not waited for.
        let result = (0..100).map(|_| work(gpu)).find(Result::is_err).unwrap();
        assert!(format!("{result:?}").contains("the device has finished nothing for 600 s"), "{result:?}");
        assert_lost(result, HUNG);
        assert_eq!(work(gpu_at(Some(1)).unwrap()).unwrap(), [7; 64]);
    });
}

#[test]
fn a_profile_that_has_no_queries_is_an_error() {
    in_own_process("a_profile_that_has_no_queries_is_an_error", || {
        let profiled = |call| {
            let gpu = gpu_at(Some(1)).unwrap();
            gpu.stream.start_profile().unwrap();
            inject(gpu, call, 0, Vk::ERROR_OUT_OF_HOST_MEMORY);
            let worked = work(gpu);
            (worked, gpu.stream.stop_profile().map(drop))
        };
        // Commands without queries are not submitted, and what depends on them is lost.
        let (worked, stopped) = profiled("vkCreateQueryPool");
        assert_lost(worked, "vkCreateQueryPool");
        assert!(matches!(stopped, Err(Error::DeviceLost(_))), "{stopped:?}");
        let (worked, stopped) = profiled("vkGetQueryPoolResults");
        assert_eq!(worked, Ok(vec![7; 64]));
        assert!(matches!(stopped, Err(Error::OutOfMemory(_))), "{stopped:?}");
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
            inject(lost, "vkQueueSubmit", 0, Vk::ERROR_DEVICE_LOST);
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
