//! The pool of allocations in size classes: who owns which memory, and when the driver is asked for more.

mod growth;
mod reuse;

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use ash::vk;
use once_cell::sync::OnceCell;
use vulkano::VulkanObject;
use vulkano::buffer::Subbuffer;
use vulkano::device::Device;
use vulkano::memory::allocator::{GenericMemoryAllocatorCreateInfo, StandardMemoryAllocator};
use vulkano::memory::{MemoryPropertyFlags, MemoryType};

use super::create::create_buffer;
use super::size_class::{MIN_SIZE_BYTES, size_class};
use super::thread_cache::ThreadCache;
use super::usage::Usage;
use super::{BOUNDS_RECORD_BYTES, Blocking, PendingChecks};
use crate::device::{Timeline, fault};
use crate::error::{Attempt, Error, Retry};
use crate::mutex::AdaptiveMutex;
use growth::MIN_HEADROOM_BYTES;

/// What an allocation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryKind {
    /// A tensor: device-local, never mapped.
    Device,
    /// Staging on the way to the device: the host writes it in order.
    Upload,
    /// Staging on the way back: the host reads it in any order.
    Readback,
    /// What kernels report to the host: see [`BoundsCheck`](super::BoundsCheck).
    Record,
    /// What kernels write to decide whether later ones run: device-local, and small.
    Predicates,
}

/// A piece of memory with its buffer. It stays in one size class from its making to its end.
pub struct Allocation {
    /// All of its memory.
    pub buffer: Subbuffer<[u8]>,
    /// The buffer's Vulkan handle.
    pub handle: vk::Buffer,
    /// Device address of the first byte, aligned for four elements of any type.
    pub address: u64,
    /// Bytes: a size class.
    pub size: u64,
    /// Tells this use of the memory from earlier and later ones: no two allocations of a pool have the same.
    pub id: u64,
    pub(super) kind: MemoryKind,
    /// The stream's epoch of the last read. An epoch is what is recorded between two barriers; the stream writes it under its lock.
    pub(crate) read_epoch: AtomicU64,
    /// The stream's epoch of the last write.
    pub(crate) write_epoch: AtomicU64,
    /// The timeline value after which the last use is over.
    pub(crate) last_use: AtomicU64,
    /// The timeline value after which the last command that writes it is over.
    pub(crate) last_write: AtomicU64,
    /// The transfer timeline's value after which the last large transfer of it is over.
    pub(crate) last_transfer: AtomicU64,
    /// The checks that the contents depend on.
    pub(crate) checks: PendingChecks,
}

/// An allocation in use; it returns to the pool when the handle is dropped.
pub struct AllocationHandle {
    allocation: Option<Allocation>,
    pool: Arc<PoolShared>,
}

impl Deref for AllocationHandle {
    type Target = Allocation;

    #[expect(clippy::expect_used, reason = "`drop` alone takes the allocation")]
    fn deref(&self) -> &Allocation {
        self.allocation.as_ref().expect("a handle has its allocation until it is dropped")
    }
}

impl AllocationHandle {
    /// The first `len` bytes of a readback allocation, once the device has written them.
    pub fn mapped(&self, len: usize) -> &[u8] {
        match self.buffer.mapped_slice() {
            // SAFETY: the memory stays mapped as long as the allocation lives, which `self` holds; the device wrote it before
            // the timeline value that the reader waited for, and nothing else is recorded on it while `self` lives.
            Ok(slice) if slice.len() >= len => unsafe { &slice.as_ref()[..len] },
            _ => &[],
        }
    }

    /// What owns the pool, once it was set.
    #[inline]
    pub fn owner(&self) -> Option<&'static (dyn Any + Send + Sync)> {
        self.pool.owner.get().copied()
    }

    /// Whether all commands on it have run, as far as the host has learned.
    pub(super) fn has_run(&self) -> bool {
        self.last_use.load(Relaxed) <= self.pool.timeline.known_completed()
    }

    /// The words of a record.
    pub(super) fn words(&self) -> [u32; BOUNDS_RECORD_BYTES as usize / 4] {
        // SAFETY: the memory is mapped, coherent and aligned, and lives as long as `self`. A kernel that runs may write it, hence the
        // volatile read, which takes any bits.
        self.record().map_or([0; 4], |record| unsafe { record.read_volatile() })
    }

    /// Sets the words of a record to zero, while no command uses it.
    pub(super) fn clear(&self) {
        if let Some(record) = self.record() {
            // SAFETY: as in `words`.
            unsafe { record.write_volatile([0; 4]) };
        }
    }

    /// The mapped words of a record.
    fn record(&self) -> Option<*mut [u32; 4]> {
        let mapped = self.buffer.mapped_slice().ok()?;
        (self.kind == MemoryKind::Record && mapped.len() as u64 >= BOUNDS_RECORD_BYTES).then(|| mapped.as_ptr().cast())
    }
}

impl Drop for AllocationHandle {
    fn drop(&mut self) {
        if let Some(mut allocation) = self.allocation.take() {
            // The checks' records return to the pool, too, which is not locked yet.
            allocation.checks.clear();
            if allocation.kind == MemoryKind::Device {
                self.pool.usage.give_back(allocation.size);
            }
            let Some(allocation) = self.pool.thread_cache.keep(allocation, &self.pool.retired) else { return };
            let mut state = self.pool.state.lock();
            if allocation.kind == MemoryKind::Readback {
                state.live_readbacks -= 1;
            }
            if self.pool.retired.load(Relaxed) {
                state.reserved -= allocation.size;
                drop(state);
                drop(allocation);
            } else {
                state.free.entry((allocation.kind, allocation.size)).or_default().push(allocation);
            }
        }
    }
}

/// What the pool holds, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// The most that the pool may reserve from the device and the host together.
    pub limit: u64,
    /// Reserved now, in use or free.
    pub pool: u64,
    /// Bytes of the allocations in use.
    pub used: u64,
    /// How many allocations are in use.
    pub buffers: u64,
    /// The most bytes in use at a time since the start or [`Pool::reset_most_used`].
    pub most_used: u64,
}

struct PoolState {
    /// Allocations that can be handed out, by kind and size class.
    free: BTreeMap<(MemoryKind, u64), Vec<Allocation>>,
    /// Bytes that the driver has given.
    reserved: u64,
    /// How many readback allocations the host holds.
    live_readbacks: u64,
    /// The most bytes in use at a time when there was no garbage to collect.
    peak: u64,
    /// Bytes that may be reserved before a call that may not block is told to collect garbage: the BEAM does not see how large the memory
    /// behind a reference is. Where collections give back little, the headroom grows by a share of what is reserved, as a heap does.
    headroom: u64,
    /// Bytes handed out since a call that may not block was last told to collect garbage.
    since_collection: u64,
    /// Whether that was to be all of its garbage.
    collected_all: bool,
    /// Whether one more tensor of the last large one's size class would have to wait for memory.
    short: bool,
}

struct PoolShared {
    device: Arc<Device>,
    allocator: Arc<StandardMemoryAllocator>,
    timeline: Arc<Timeline>,
    /// The timeline of large transfers.
    transfers: Arc<Timeline>,
    limit: u64,
    /// The device that the pool is a part of.
    owner: OnceCell<&'static (dyn Any + Send + Sync)>,
    /// Whether the device runs nothing any more: free memory goes back to the driver at once.
    retired: AtomicBool,
    usage: Usage,
    thread_cache: ThreadCache,
    state: AdaptiveMutex<PoolState>,
}

/// The size-class pool. See the [module's documentation](super).
pub struct Pool(Arc<PoolShared>);

/// Four of the largest elements: kernels load as much at once.
pub(super) const ALIGNMENT_BYTES: u64 = 64;
/// The share that smaller allocations may add when a larger one asks for a collection, so that not each of them asks for one.
const SMALL_HEADROOM_DIVISOR: u64 = 64;
/// Size of the pieces of device memory that small allocations are cut from.
const DEVICE_SLAB_BYTES: u64 = 32 << 20;
/// Size of the pieces of host memory: 32 MiB of it took the driver of an H200 10 ms.
const HOST_SLAB_BYTES: u64 = 8 << 20;
/// A tensor from this size on is worth a collection of garbage while the device works.
const LARGE_BYTES: u64 = 8 << 20;

impl Pool {
    /// An empty pool that reserves at most `limit` bytes, for uses on these timelines.
    pub fn new(device: Arc<Device>, timeline: Arc<Timeline>, transfers: Arc<Timeline>, limit: u64) -> Self {
        let slab = |ty: &MemoryType| {
            if ty.property_flags.contains(MemoryPropertyFlags::DEVICE_LOCAL) {
                DEVICE_SLAB_BYTES
            } else {
                HOST_SLAB_BYTES
            }
        };
        let slabs: Vec<_> = device.physical_device().memory_properties().memory_types.iter().map(slab).collect();
        let create_info = GenericMemoryAllocatorCreateInfo { block_sizes: &slabs, ..Default::default() };
        let allocator = Arc::new(StandardMemoryAllocator::new(device.clone(), create_info));
        let state = PoolState::new(limit);
        let (owner, retired) = (OnceCell::new(), AtomicBool::new(false));
        let state = AdaptiveMutex::new(state, timeline.on_cpu());
        let (usage, thread_cache) = (Usage::default(), ThreadCache::default());
        Self(Arc::new(PoolShared {
            device,
            allocator,
            timeline,
            transfers,
            limit,
            owner,
            retired,
            usage,
            thread_cache,
            state,
        }))
    }

    /// Sets what [`AllocationHandle::owner`] gives. The first call counts.
    pub fn set_owner(&self, owner: &'static (dyn Any + Send + Sync)) {
        let _ = self.0.owner.set(owner);
    }

    /// Gives memory back to the driver as soon as it is free from now on, as the device was lost. It must run nothing any more.
    pub fn retire(&self) {
        self.0.retired.store(true, Relaxed);
        self.trim();
    }

    /// What the pool holds now.
    pub fn info(&self) -> MemoryInfo {
        let Usage { used, most_used, live, .. } = &self.0.usage;
        MemoryInfo {
            limit: self.0.limit,
            pool: self.0.state.lock().reserved,
            used: used.load(Relaxed),
            buffers: live.load(Relaxed),
            most_used: most_used.load(Relaxed),
        }
    }

    /// Has [`MemoryInfo::most_used`] count from now on.
    pub fn reset_most_used(&self) {
        let Usage { used, most_used, .. } = &self.0.usage;
        most_used.store(used.load(Relaxed), Relaxed);
    }

    /// An allocation of at least `len` bytes, contents undefined, without waiting for the device.
    ///
    /// A call that may not block gets [`Retry::AfterCollection`] or [`Retry::AfterFullCollection`] where garbage should be collected before
    /// the pool grows, and [`Retry::Blocking`] where that has happened and the driver must be asked for memory, which can take milliseconds.
    pub fn allocate(&self, kind: MemoryKind, len: u64, blocking: Blocking) -> Attempt<AllocationHandle> {
        self.allocate_with(kind, len, blocking, |state, size| self.0.reuse(state, kind, size))
    }

    /// As [`Pool::allocate`], device memory that a transfer writes beside the kernels: it would wait for commands that still use
    /// the memory.
    pub fn allocate_for_transfer(&self, len: u64, blocking: Blocking) -> Attempt<AllocationHandle> {
        self.allocate_with(MemoryKind::Device, len, blocking, |state, size| self.0.reuse_for_transfer(state, size))
    }

    fn allocate_with(
        &self,
        kind: MemoryKind,
        len: u64,
        blocking: Blocking,
        reuse: impl Fn(&mut PoolState, u64) -> Option<Allocation>,
    ) -> Attempt<AllocationHandle> {
        let shared = &self.0;
        let too_large = || Error::OutOfMemory(format!("a buffer of {len} bytes is over the limit of {}", shared.limit));
        let size = size_class(len).filter(|&size| size <= shared.limit || len <= shared.limit).ok_or_else(too_large)?;
        let size = size.min(shared.limit.max(MIN_SIZE_BYTES));
        if let Some(allocation) = shared.thread_cache.take(kind, size) {
            return Ok(self.hand_out(allocation));
        }
        let released = {
            let mut state = shared.state.lock();
            if let Some(allocation) = reuse(&mut state, size) {
                state.handed_out(&allocation);
                return Ok(self.hand_out(allocation));
            }
            if state.headroom < size {
                if blocking == Blocking::Refused
                    && let Some(collection) = state.collection(size, shared.limit)
                {
                    state.headroom = state.headroom.max(state.reserved / SMALL_HEADROOM_DIVISOR).min(size - 1);
                    return Err(collection.into());
                }
                let rest = shared.limit.saturating_sub(state.reserved).max(size);
                state.headroom = (size + state.growth()).min(rest);
                // What was handed out since the last collection may be garbage.
                let garbage = if blocking == Blocking::Refused { state.since_collection } else { 0 };
                let used = shared.usage.used.load(Relaxed).saturating_sub(garbage);
                state.peak = state.peak.max(used + size);
            }
            // Where sizes change, free allocations of other sizes make room: they would add up otherwise.
            let most = (MIN_HEADROOM_BYTES + 2 * state.peak).min(shared.limit);
            let wanted = (state.reserved + size).saturating_sub(most);
            let released = shared.release(&mut state, wanted);
            if state.reserved + size > shared.limit {
                return Err(Error::OutOfMemory(format!(
                    "{size} bytes more than the {} in use would pass the limit of {}",
                    state.reserved, shared.limit
                ))
                .into());
            }
            state.reserved += size;
            state.headroom -= size;
            released
        };
        drop(released);
        let created = shared.create(kind, size, blocking);
        let mut state = shared.state.lock();
        match created {
            Ok(allocation) => {
                state.handed_out(&allocation);
                Ok(self.hand_out(allocation))
            }
            Err(error) => {
                state.reserved -= size;
                state.headroom += size;
                if blocking == Blocking::Refused {
                    // A collection costs less than memory of the driver's.
                    return Err(state.collection(size, shared.limit).unwrap_or(Retry::Blocking).into());
                }
                drop(state);
                self.trim();
                Err(error)
            }
        }
    }

    fn hand_out(&self, mut allocation: Allocation) -> AllocationHandle {
        let usage = &self.0.usage;
        allocation.id = usage.handed_out.fetch_add(1, Relaxed) + 1;
        if allocation.kind == MemoryKind::Device {
            usage.take(allocation.size);
        }
        AllocationHandle { allocation: Some(allocation), pool: self.0.clone() }
    }

    /// Whether callers that wait for the device should collect garbage meanwhile: the next large tensor would have to wait for a collection.
    /// True once for each tensor.
    pub fn take_shortage(&self) -> bool {
        std::mem::take(&mut self.0.state.lock().short)
    }

    /// Whether a readback of `len` bytes needs new memory while the host holds earlier ones.
    pub fn must_grow_for_readback(&self, len: u64) -> bool {
        let state = self.0.state.lock();
        let free = size_class(len).and_then(|size| state.free.get(&(MemoryKind::Readback, size)));
        state.live_readbacks > 0 && free.is_none_or(|list| self.0.first_finished(list).is_none())
    }

    /// Gives all free memory that the device no longer uses back to the driver.
    pub fn trim(&self) {
        let released = self.0.release(&mut self.0.state.lock(), u64::MAX);
        drop(released);
    }
}

impl PoolState {
    /// Counts an allocation that is handed out.
    fn handed_out(&mut self, allocation: &Allocation) {
        self.since_collection = self.since_collection.saturating_add(allocation.size);
        match allocation.kind {
            MemoryKind::Device if allocation.size >= LARGE_BYTES => {
                let free = self.free.get(&(allocation.kind, allocation.size));
                self.short = free.is_none_or(Vec::is_empty);
            }
            MemoryKind::Readback => self.live_readbacks += 1,
            _ => {}
        }
    }
}

impl PoolShared {
    /// Makes an allocation: for a call that may not block from memory that the driver has given before, or not at all.
    fn create(&self, kind: MemoryKind, size: u64, blocking: Blocking) -> Attempt<Allocation> {
        let failed = |why| Error::OutOfMemory(format!("no memory for a buffer of {size} bytes: {why}"));
        // The calls of `create_buffer`, in their order.
        let mapped = matches!(kind, MemoryKind::Upload | MemoryKind::Readback | MemoryKind::Record);
        ["vkCreateBuffer", "vkAllocateMemory", "vkMapMemory", "vkBindBufferMemory"]
            .into_iter()
            .filter(|call| mapped || *call != "vkMapMemory")
            .try_for_each(|call| fault::point(&self.device, call))
            .map_err(|fault| failed(fault.to_string()))?;
        let buffer = create_buffer(&self.allocator, kind, size, blocking).map_err(failed)?;
        let address = match kind {
            MemoryKind::Device | MemoryKind::Record | MemoryKind::Predicates => {
                buffer.device_address().map_err(|e| Error::DispatchFailed(format!("{e:?}")))?.get()
            }
            MemoryKind::Upload | MemoryKind::Readback => 0,
        };
        debug_assert_eq!(buffer.offset(), 0);
        if self.device.instance().enabled_extensions().ext_debug_utils {
            // A failure costs the name alone.
            let _ = self.device.set_debug_utils_object_name(&**buffer.buffer(), Some(&format!("{kind:?} {size} B")));
        }
        if !address.is_multiple_of(ALIGNMENT_BYTES) {
            return Err(Error::Unsupported(format!(
                "the device's memory starts at {address:#x}, which is not aligned"
            ))
            .into());
        }
        Ok(Allocation {
            handle: buffer.buffer().handle(),
            buffer,
            address,
            size,
            id: 0,
            kind,
            read_epoch: AtomicU64::new(0),
            write_epoch: AtomicU64::new(0),
            last_use: AtomicU64::new(0),
            last_write: AtomicU64::new(0),
            last_transfer: AtomicU64::new(0),
            checks: PendingChecks::default(),
        })
    }
}

impl Drop for PoolShared {
    fn drop(&mut self) {
        // The device must be idle before its buffers are destroyed; nothing can be done about a failure here.
        // SAFETY: the queue is not used any more, as this is the last owner of the pool.
        let _ = unsafe { self.device.wait_idle() };
    }
}
