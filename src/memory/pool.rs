use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ash::vk;
use parking_lot::Mutex;
use vulkano::VulkanObject;
use vulkano::buffer::{Buffer, BufferCreateInfo, BufferUsage, Subbuffer};
use vulkano::device::Device;
use vulkano::memory::allocator::{
    AllocationCreateInfo, DeviceLayout, GenericMemoryAllocatorCreateInfo, MemoryAllocatePreference, MemoryTypeFilter,
    StandardMemoryAllocator,
};
use vulkano::memory::{MemoryPropertyFlags, MemoryType};

use super::Blocking;
use crate::device::Timeline;
use crate::error::{Attempt, Error, Retry};

/// What a block is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A tensor: device-local, never mapped.
    Device,
    /// Staging on the way to the device: the host writes it in order.
    Upload,
    /// Staging on the way back: the host reads it in any order.
    Readback,
}

/// A piece of memory with its buffer, in one size class for life.
pub struct Allocation {
    pub buffer: Subbuffer<[u8]>,
    pub handle: vk::Buffer,
    /// Device address of the first byte, aligned for four elements of any type.
    pub address: u64,
    pub size: u64,
    /// Tells this use of the memory from earlier and later ones: no two allocations of a process have the same.
    pub id: u64,
    kind: Kind,
    /// The stream's marks, written under its lock: the epochs (runs between two barriers) of the last read and write,
    /// and the timeline value after which the last use is over.
    pub(crate) read_epoch: AtomicU64,
    pub(crate) write_epoch: AtomicU64,
    pub(crate) last_use: AtomicU64,
}

/// A block taken from the pool; it returns there when the last owner drops it.
pub struct AllocationHandle {
    block: Option<Allocation>,
    pool: Arc<Shared>,
}

impl Deref for AllocationHandle {
    type Target = Allocation;

    fn deref(&self) -> &Allocation {
        // `block` is taken by `drop` alone.
        self.block.as_ref().expect("a allocation holds its block until it is dropped")
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
}

impl Drop for AllocationHandle {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            let mut state = self.pool.state.lock();
            match block.kind {
                Kind::Device => {
                    state.used -= block.size;
                    state.leased -= 1;
                }
                Kind::Readback => state.readbacks -= 1,
                Kind::Upload => {}
            }
            state.free.entry((block.kind, block.size)).or_default().push(block);
        }
    }
}

/// The pool's figures, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Most that the pool may take from the device and the host together.
    pub limit: u64,
    /// Taken now, whether in use or free.
    pub pool: u64,
    /// In blocks that live buffers hold.
    pub used: u64,
    /// How many blocks live buffers hold.
    pub buffers: u64,
}

struct State {
    free: BTreeMap<(Kind, u64), Vec<Allocation>>,
    taken: u64,
    used: u64,
    leased: u64,
    /// Blocks of read-back data that the host still holds.
    readbacks: u64,
    /// The most that live buffers held when there was no garbage to collect.
    peak: u64,
    /// What may be taken before a prompt caller is asked to collect garbage: the BEAM does not see how large the memory
    /// behind a reference is. Grows when that was in vain, by a share of what is taken, as a heap does.
    slack: u64,
    /// The size for which a prompt caller was last asked to in place of memory of the driver's, which is what comes next.
    asked: u64,
    /// Whether one more tensor of the size of the last large one would have to wait for memory.
    low: bool,
    /// How many allocations were handed out.
    handed_out: u64,
}

struct Shared {
    device: Arc<Device>,
    allocator: Arc<StandardMemoryAllocator>,
    timeline: Arc<Timeline>,
    limit: u64,
    state: Mutex<State>,
}

/// The size-class pool. See the [module's documentation](super).
pub struct Pool(Arc<Shared>);

const SMALLEST: u64 = 256;
/// Four of the largest elements: kernels load so many at once.
const ALIGNMENT: u64 = 64;
/// What may be taken before garbage is collected, at least.
const FIRST: u64 = 64 << 20;
/// The share of what is taken that may be added once there was no garbage to collect.
const GROWTH: u64 = 4;
/// And the share that smaller blocks may add when a larger one asks for a collection: these need not ask for one each.
const SMALL: u64 = 64;
/// Size of the pieces of device memory that small blocks are cut from.
const SLAB: u64 = 32 << 20;
/// And of those of the host's: 32 MiB of it took the driver of an H200 10 ms.
const HOST_SLAB: u64 = 8 << 20;
/// Memory for tensors from this size on is worth a collection of garbage while the device works.
const LARGE: u64 = 8 << 20;

/// Rounds up to the size class: four classes to each power of two, so that at most a quarter is lost.
fn size_class(len: u64) -> Option<u64> {
    let len = len.max(SMALLEST);
    let step = 1u64 << ((len - 1).ilog2().max(8) - 2);
    len.checked_next_multiple_of(step)
}

impl Pool {
    pub fn new(device: Arc<Device>, timeline: Arc<Timeline>, limit: u64) -> Self {
        let slab = |ty: &MemoryType| {
            if ty.property_flags.contains(MemoryPropertyFlags::DEVICE_LOCAL) { SLAB } else { HOST_SLAB }
        };
        let slabs: Vec<_> = device.physical_device().memory_properties().memory_types.iter().map(slab).collect();
        let create_info = GenericMemoryAllocatorCreateInfo { block_sizes: &slabs, ..Default::default() };
        let allocator = Arc::new(StandardMemoryAllocator::new(device.clone(), create_info));
        let state = State {
            free: BTreeMap::new(),
            taken: 0,
            used: 0,
            leased: 0,
            readbacks: 0,
            peak: 0,
            slack: FIRST.min(limit),
            asked: 0,
            low: false,
            handed_out: 0,
        };
        Self(Arc::new(Shared { device, allocator, timeline, limit, state: Mutex::new(state) }))
    }

    pub fn info(&self) -> MemoryInfo {
        let state = self.0.state.lock();
        MemoryInfo { limit: self.0.limit, pool: state.taken, used: state.used, buffers: state.leased }
    }

    /// A block of at least `len` bytes, contents undefined, without waiting for the device.
    ///
    /// Prompt callers get [`Retry::AfterCollection`] where garbage should be collected before the pool grows, and [`Retry::Blocking`] where
    /// that has happened and the driver must be asked for memory, which can take it milliseconds.
    pub fn allocate(&self, kind: Kind, len: u64, blocking: Blocking) -> Attempt<AllocationHandle> {
        let shared = &self.0;
        let too_large = || Error::OutOfMemory(format!("a buffer of {len} bytes is over the limit of {}", shared.limit));
        let size = size_class(len).filter(|&size| size <= shared.limit || len <= shared.limit).ok_or_else(too_large)?;
        let size = size.min(shared.limit.max(SMALLEST));
        let released = {
            let mut state = shared.state.lock();
            if let Some(block) = shared.reuse(&mut state, kind, size) {
                return Ok(self.hand_out(&mut state, block));
            }
            if state.slack < size {
                match blocking {
                    Blocking::Refused => {
                        state.slack = state.slack.max(state.taken / SMALL).min(size - 1);
                        return Err(Retry::AfterCollection.into());
                    }
                    Blocking::Allowed => {
                        let rest = shared.limit.saturating_sub(state.taken).max(size);
                        state.slack = (size + (state.taken / GROWTH).max(FIRST)).min(rest);
                        state.peak = state.peak.max(state.used + size);
                    }
                }
            }
            // Sizes that come and go do not add up: what lies free of other sizes makes room.
            let most = (FIRST + 2 * state.peak).min(shared.limit);
            let wanted = (state.taken + size).saturating_sub(most);
            let released = shared.release(&mut state, wanted);
            if state.taken + size > shared.limit {
                return Err(Error::OutOfMemory(format!(
                    "{size} bytes more than the {} in use would pass the limit of {}",
                    state.taken, shared.limit
                ))
                .into());
            }
            state.taken += size;
            state.slack -= size;
            released
        };
        drop(released);
        let created = shared.create(kind, size, blocking);
        let mut state = shared.state.lock();
        match created {
            Ok(block) => Ok(self.hand_out(&mut state, block)),
            Err(error) => {
                state.taken -= size;
                state.slack += size;
                if blocking == Blocking::Refused {
                    // Garbage costs less than memory of the driver's. But with a few blocks more it is collected less often.
                    let again = state.asked == size;
                    state.asked = if again { 0 } else { size };
                    return Err(if again { Retry::Blocking } else { Retry::AfterCollection }.into());
                }
                drop(state);
                self.trim();
                Err(error)
            }
        }
    }

    fn hand_out(&self, state: &mut State, mut block: Allocation) -> AllocationHandle {
        state.handed_out += 1;
        block.id = state.handed_out;
        match block.kind {
            Kind::Device => {
                state.used += block.size;
                state.leased += 1;
                if block.size >= LARGE {
                    let free = state.free.get(&(block.kind, block.size));
                    state.low = free.is_none_or(Vec::is_empty);
                }
            }
            Kind::Readback => state.readbacks += 1,
            Kind::Upload => {}
        }
        AllocationHandle { block: Some(block), pool: self.0.clone() }
    }

    /// Whether callers who wait for the device should collect garbage meanwhile, or the next large tensor has to wait for
    /// that. Told once for each tensor.
    pub fn take_low(&self) -> bool {
        std::mem::take(&mut self.0.state.lock().low)
    }

    /// Whether a block for reading back `len` bytes would have to be made while earlier ones are still held.
    pub fn is_short_of_readback(&self, len: u64) -> bool {
        let state = self.0.state.lock();
        let free = size_class(len).and_then(|size| state.free.get(&(Kind::Readback, size)));
        state.readbacks > 0 && free.is_none_or(|list| self.0.first_passed(list).is_none())
    }

    /// Gives all free memory that the device no longer uses back to the driver.
    pub fn trim(&self) {
        let released = self.0.release(&mut self.0.state.lock(), u64::MAX);
        drop(released);
    }
}

impl Shared {
    /// Tells blocks that the device is through with. It is asked once, not for each block.
    fn passed(&self) -> impl Fn(&Allocation) -> bool {
        let completed = self.timeline.completed().unwrap_or(0);
        move |block| block.last_use.load(Relaxed) <= completed
    }

    fn first_passed(&self, list: &[Allocation]) -> Option<usize> {
        if list.is_empty() { None } else { list.iter().position(self.passed()) }
    }

    /// Takes a free block of the class. The host may write or read only what the device is through with; for device
    /// memory the stream's barriers order the uses.
    fn reuse(&self, state: &mut State, kind: Kind, size: u64) -> Option<Allocation> {
        let list = state.free.get_mut(&(kind, size))?;
        match kind {
            Kind::Device => list.pop(),
            Kind::Upload | Kind::Readback => {
                let index = self.first_passed(list)?;
                Some(list.swap_remove(index))
            }
        }
    }

    /// Takes free blocks that the device is through with, until they are `bytes` together. Dropping them frees their
    /// memory, which takes the driver long: that is for the caller to do once the state is unlocked.
    #[must_use]
    fn release(&self, state: &mut State, bytes: u64) -> Vec<Allocation> {
        let (mut released, mut sum) = (vec![], 0);
        if bytes == 0 {
            return released;
        }
        let passed = self.passed();
        for list in state.free.values_mut() {
            let mut index = 0;
            while index < list.len() && sum < bytes {
                if passed(&list[index]) {
                    let block = list.swap_remove(index);
                    sum += block.size;
                    released.push(block);
                } else {
                    index += 1;
                }
            }
        }
        state.free.retain(|_, list| !list.is_empty());
        state.taken -= sum;
        released
    }

    /// Prompt callers get a piece of memory that the driver has given before, or an error.
    fn create(&self, kind: Kind, size: u64, blocking: Blocking) -> Attempt<Allocation> {
        let transfer = BufferUsage::TRANSFER_SRC | BufferUsage::TRANSFER_DST;
        let (usage, memory_type_filter) = match kind {
            Kind::Device => (
                transfer | BufferUsage::STORAGE_BUFFER | BufferUsage::SHADER_DEVICE_ADDRESS,
                MemoryTypeFilter {
                    required_flags: MemoryPropertyFlags::DEVICE_LOCAL,
                    // Of the device's own memory, the host sees a small window only on many machines.
                    not_preferred_flags: MemoryPropertyFlags::HOST_VISIBLE,
                    ..MemoryTypeFilter::empty()
                },
            ),
            Kind::Upload => (transfer, MemoryTypeFilter::PREFER_HOST | MemoryTypeFilter::HOST_SEQUENTIAL_WRITE),
            Kind::Readback => (transfer, MemoryTypeFilter::PREFER_HOST | MemoryTypeFilter::HOST_RANDOM_ACCESS),
        };
        let allocate_preference = match blocking {
            Blocking::Refused => MemoryAllocatePreference::NeverAllocate,
            Blocking::Allowed => MemoryAllocatePreference::Unknown,
        };
        let failed = |why: String| Error::OutOfMemory(format!("no memory for a buffer of {size} bytes: {why}"));
        let layout = DeviceLayout::from_size_alignment(size, ALIGNMENT).ok_or_else(|| failed("too large".into()))?;
        let buffer = Buffer::new(
            self.allocator.clone(),
            BufferCreateInfo { usage, ..Default::default() },
            AllocationCreateInfo { memory_type_filter, allocate_preference, ..Default::default() },
            layout,
        )
        .map(Subbuffer::new)
        .map_err(|error| failed(format!("{error:?}")))?;
        let address = match kind {
            Kind::Device => buffer.device_address().map_err(|e| Error::DispatchFailed(format!("{e:?}")))?.get(),
            _ => 0,
        };
        debug_assert_eq!(buffer.offset(), 0);
        if !address.is_multiple_of(ALIGNMENT) {
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
        })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The device must be idle before its buffers go; nothing can be done about a failure here.
        // SAFETY: the queue is not used any more, this is the last owner of the pool.
        let _ = unsafe { self.device.wait_idle() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_lose_at_most_a_quarter_and_are_fixed_points() {
        for len in (0..100_000).chain((0..60).map(|e| (1u64 << e) + 1)) {
            let size = size_class(len).unwrap();
            assert!(size >= len && size.is_multiple_of(64), "{len} → {size}");
            assert!(size - len <= (len / 4).max(SMALLEST), "{len} → {size}");
            assert_eq!(size_class(size), Some(size), "{len}");
        }
        assert_eq!(size_class(u64::MAX), None);
    }
}
