//! The pool: its limit, reuse, release, and where tensors lie. A process of its own, because the limit is read once.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "no one links a crate of tests, whose helpers may panic as the tests do"
)]

mod support;

use std::sync::Once;

use nx_vulkan::error::{Error, Retry, Unfinished};
use nx_vulkan::gpu::{Gpu, gpu};
use nx_vulkan::memory::{Blocking, Buffer, MemoryKind};
use nx_vulkan::program::Type;
use support::{download, node, run, upload};
use vulkano::memory::{MemoryHeapFlags, MemoryPropertyFlags, MemoryType};

const LIMIT: u64 = 96 << 20;

fn limited() -> &'static Gpu {
    static SET: Once = Once::new();
    // SAFETY: every test calls this first, and the device, which reads the variable, is made after it.
    SET.call_once(|| unsafe { std::env::set_var("NX_VULKAN_MEMORY_LIMIT", LIMIT.to_string()) });
    gpu().unwrap()
}

/// The tests share one pool and compare its statistics, so they run one at a time.
static ALONE: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

#[test]
fn temporaries_of_fifty_times_the_limit_fit() {
    let (_alone, gpu) = (ALONE.lock(), limited());
    let n = 1 << 20;
    let ones = upload(&vec![1f32; n]);
    let shape = [n as u64];
    let mut sum = upload(&vec![0f32; n]);
    for _ in 0..(50 * LIMIT / (4 << 20)) {
        sum = run(&[node("add", Type::F32, &[0, 1])], &[(&sum, Type::F32, &shape), (&ones, Type::F32, &shape)], &shape)
            .unwrap();
    }
    assert!(download::<f32>(&sum).iter().all(|&x| x == 1200.0));
    assert!(gpu.pool.info().pool <= LIMIT);
}

#[test]
fn past_the_limit_is_an_error_and_leaves_everything_usable() {
    let (_alone, gpu) = (ALONE.lock(), limited());
    let before = gpu.pool.info().used;
    let mut live = vec![];
    let error = loop {
        match gpu.zeroed(5 << 20, Blocking::Allowed) {
            Ok(buffer) => live.push(buffer),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Unfinished::Failed(Error::OutOfMemory(_))), "{error:?}");
    assert!(live.len() >= 8, "only {} buffers of 5 MiB fit into 96", live.len());
    assert!(matches!(gpu.zeroed(u64::MAX, Blocking::Allowed), Err(Unfinished::Failed(Error::OutOfMemory(_)))));
    assert!(matches!(gpu.zeroed(LIMIT + 1, Blocking::Allowed), Err(Unfinished::Failed(Error::OutOfMemory(_)))));
    live.clear();
    assert_eq!(gpu.pool.info().used, before);
    // Another size class: the free blocks of the first must make room.
    assert!(gpu.zeroed(40 << 20, Blocking::Allowed).is_ok());
}

#[test]
fn a_caller_that_may_not_block_is_asked_to_collect_garbage_before_the_driver_is_asked_for_memory() {
    let (_alone, gpu) = (ALONE.lock(), limited());
    // Each has a piece of memory of its own.
    let zeroed = |blocking| gpu.zeroed(40 << 20, blocking);
    // Collections are worth it after so much.
    (0..2).for_each(|_| drop(zeroed(Blocking::Allowed).unwrap()));
    gpu.stream.finish().unwrap();
    gpu.pool.trim();
    let live = zeroed(Blocking::Allowed).unwrap();
    assert_eq!(zeroed(Blocking::Refused).err(), Some(Retry::AfterCollection.into()));
    // That was in vain.
    assert!(matches!(zeroed(Blocking::Refused), Err(Unfinished::Retry(_))));
    let more = zeroed(Blocking::Allowed).unwrap();
    assert_eq!(zeroed(Blocking::Refused).err(), Some(Retry::AfterCollection.into()));
    drop(live);
    let live = zeroed(Blocking::Refused).unwrap();
    drop((live, more));
    // Small blocks share pieces: none of them asks.
    let small = (0..100).map(|_| gpu.zeroed(1000, Blocking::Refused)).collect::<Result<Vec<_>, _>>();
    assert!(small.is_ok(), "{:?}", small.err());
}

#[test]
fn a_transfer_takes_memory_that_the_device_still_uses_only_where_three_allocations_are_so() {
    let (_alone, gpu) = (ALONE.lock(), limited());
    const BYTES: u64 = 6 << 20;
    gpu.stream.finish().unwrap();
    gpu.pool.trim();
    let zeroed = || gpu.zeroed(BYTES, Blocking::Allowed).unwrap();
    let address = |buffer: &Buffer| buffer.allocation().unwrap().address;
    let for_transfer = || gpu.allocate_for_transfer(BYTES, Blocking::Allowed).unwrap();
    // The device has none of these commands before the batch ends.
    let batch = gpu.stream.batch();
    let buffers = [zeroed(), zeroed(), zeroed()];
    let addresses = buffers.each_ref().map(address);
    let [first, second, third] = buffers;
    drop(first);
    drop(second);
    let another = for_transfer();
    assert!(!addresses.contains(&another.address));
    drop(third);
    assert_eq!(for_transfer().address, addresses[0]);
    drop(batch);
    gpu.stream.finish().unwrap();
    let free = [for_transfer(), for_transfer(), for_transfer()].map(|allocation| allocation.address);
    assert!(addresses.iter().all(|address| free.contains(address)), "{free:?}, {addresses:?}");
}

#[test]
fn a_caller_that_may_not_block_is_asked_to_collect_garbage_before_memory_runs_out() {
    let (_alone, gpu) = (ALONE.lock(), limited());
    gpu.stream.finish().unwrap();
    gpu.pool.trim();
    let (mut live, mut asked) = (vec![], 0);
    let error = loop {
        match gpu.zeroed(1 << 20, Blocking::Refused) {
            Ok(buffer) => live.push(buffer),
            Err(error @ Unfinished::Failed(Error::OutOfMemory(_))) => break error,
            Err(error) => {
                asked += u32::from(error == Retry::AfterCollection.into());
                match gpu.zeroed(1 << 20, Blocking::Allowed) {
                    Ok(buffer) => live.push(buffer),
                    Err(error) => break error,
                }
            }
        }
        assert!(live.len() as u64 <= LIMIT >> 20, "no limit was noticed");
    };
    assert!(matches!(error, Unfinished::Failed(Error::OutOfMemory(_))), "{error:?}");
    assert!(asked > 0, "nobody was asked to collect garbage");
}

#[test]
fn a_caller_that_may_not_block_gets_memory_without_asking_the_driver() {
    let (_alone, gpu) = (ALONE.lock(), limited());
    gpu.stream.finish().unwrap();
    gpu.pool.trim();
    let before = gpu.device.allocation_count();
    // More than any piece of memory that small blocks are cut from.
    let refused = gpu.allocate(MemoryKind::Device, 40 << 20, Blocking::Refused).err();
    assert!(matches!(refused, Some(Unfinished::Retry(_))), "{refused:?}");
    assert_eq!(gpu.device.allocation_count(), before);
    let _small = gpu.allocate(MemoryKind::Device, 1000, Blocking::Allowed).unwrap();
    let made = gpu.device.allocation_count();
    assert!(gpu.allocate(MemoryKind::Device, 3000, Blocking::Refused).is_ok(), "the rest of that piece was not used");
    assert_eq!(gpu.device.allocation_count(), made);
}

#[test]
fn freeing_returns_the_memory_once() {
    let (_alone, gpu) = (ALONE.lock(), limited());
    let before = gpu.pool.info().buffers;
    let buffer = upload(&[1f32; 100]);
    assert_eq!(gpu.pool.info().buffers, before + 1);
    assert!(buffer.free());
    assert!(!buffer.free());
    assert_eq!(gpu.pool.info().buffers, before);
    assert!(matches!(gpu.read(&buffer, 0, 4), Err(Unfinished::Failed(Error::Deallocated))));
    assert_eq!(buffer.len(), 400);
}

#[test]
fn trimming_gives_free_memory_back() {
    let (_alone, gpu) = (ALONE.lock(), limited());
    drop(upload(&vec![0u8; 8 << 20]));
    gpu.stream.finish().unwrap();
    gpu.pool.trim();
    let info = gpu.pool.info();
    assert!(info.pool <= info.used + LIMIT / 8, "{info:?}");
}

#[test]
fn tensors_lie_in_the_devices_own_memory() {
    let (_alone, gpu) = (ALONE.lock(), limited());
    for len in [1, 5 << 20] {
        let allocation = gpu.allocate(MemoryKind::Device, len, Blocking::Allowed).unwrap();
        let vulkano::buffer::BufferMemory::Normal(memory) = allocation.buffer.buffer().memory() else {
            panic!("a buffer without memory of its own");
        };
        let properties = gpu.device.physical_device().memory_properties();
        let ty = &properties.memory_types[memory.device_memory().memory_type_index() as usize];
        let flags = ty.property_flags;
        assert!(flags.contains(MemoryPropertyFlags::DEVICE_LOCAL), "{flags:?}");
        let heap = properties.memory_heaps[ty.heap_index as usize].flags;
        assert!(heap.contains(MemoryHeapFlags::DEVICE_LOCAL), "{heap:?}");
        // Where the device's memory is its own, the host does not see that of tensors: nothing they hold crosses the bus.
        let hidden = |ty: &MemoryType| {
            ty.property_flags & (MemoryPropertyFlags::DEVICE_LOCAL | MemoryPropertyFlags::HOST_VISIBLE)
                == MemoryPropertyFlags::DEVICE_LOCAL
        };
        assert_eq!(hidden(ty), properties.memory_types.iter().any(hidden), "{properties:?}");
    }
}
