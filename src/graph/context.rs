//! What a call carries through all that it calls.

use std::any::Any;
use std::cell::{OnceCell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use smallvec::SmallVec;

use super::capture::Capture;
use super::params::{Params, Slot};
use crate::device::Capabilities;
use crate::error::{Attempt, Error, Result};
use crate::gpu::Gpu;
use crate::memory::{Allocation, AllocationHandle, BOUNDS_RECORD_BYTES, Blocking, BoundsCheck, Buffer, MemoryKind};
use crate::pipeline::{CallInterface, KernelSource, Pipeline, UserKernel, UserModule};
use crate::stream::{Binding, Copy, Dispatch, DispatchPredicate, SubmissionGuard};

/// Bytes that a kernel touches from which they do not all stay in a device's caches.
const CACHE_EXCEEDED_BYTES: u64 = 64 << 20;

/// An operand of a call.
#[derive(Clone, Copy)]
pub enum Operand<'a> {
    /// A buffer and its size in bytes.
    Buffer(&'a Arc<AllocationHandle>, u64),
    /// One value.
    Scalar {
        /// The operand's position in the call.
        index: usize,
        /// The value in its type's representation, from the first byte on.
        value: [u8; 16],
    },
}

impl<'a> Operand<'a> {
    /// Bytes of the buffer; `None` for a value.
    pub fn bytes(&self) -> Option<u64> {
        match self {
            Self::Buffer(_, bytes) => Some(*bytes),
            Self::Scalar { .. } => None,
        }
    }

    /// The handle of the buffer's allocation; `None` for a value.
    pub fn handle(&self) -> Option<&'a Arc<AllocationHandle>> {
        match self {
            Self::Buffer(handle, _) => Some(handle),
            Self::Scalar { .. } => None,
        }
    }

    /// The buffer's allocation; `None` for a value.
    pub fn allocation(&self) -> Option<&'a Allocation> {
        match self {
            Self::Buffer(allocation, _) => Some(allocation),
            Self::Scalar { .. } => None,
        }
    }
}

/// The device, whether the call may block, and the recorder of its commands where they are captured. All that kernels record goes
/// through here, which is what makes a capture complete.
pub struct Context<'a> {
    pub(super) gpu: &'a Gpu,
    /// Whether the call may block its thread.
    pub blocking: Blocking,
    pub(super) capture: Option<RefCell<Capture>>,
    /// The check of the call's indices, once a kernel checks some.
    pub(super) check: OnceCell<Arc<BoundsCheck>>,
    /// What decides on the device whether the call's kernels run; `None` where they do.
    pub(super) predicate: Option<DispatchPredicate<'a>>,
}

impl<'a> Context<'a> {
    /// The context of a call that is not captured.
    pub fn new(gpu: &'a Gpu, blocking: Blocking) -> Self {
        Self { gpu, blocking, capture: None, check: OnceCell::new(), predicate: None }
    }

    /// The device's capabilities.
    pub fn caps(&self) -> &'a Capabilities {
        &self.gpu.caps
    }

    /// The device, for what is recorded past the context. A capture of the call is given up.
    pub fn uncaptured(&self) -> &'a Gpu {
        self.captured(Capture::give_up);
        self.gpu
    }

    /// Device memory of at least `bytes` bytes, contents undefined.
    pub fn allocate(&self, bytes: u64) -> Attempt<AllocationHandle> {
        self.gpu.allocate(MemoryKind::Device, bytes, self.blocking)
    }

    /// A buffer of `bytes` zero bytes.
    pub fn zeroed(&self, bytes: u64) -> Attempt<Buffer> {
        let allocation = self.allocate(bytes)?;
        self.zero(&allocation, bytes)?;
        Ok(Buffer::new(bytes, allocation))
    }

    /// Records setting the first `bytes` bytes of an allocation to zero, rounded up to four.
    pub fn zero(&self, allocation: &Allocation, bytes: u64) -> Result<()> {
        self.gpu.stream.zero(allocation, bytes)?;
        self.captured(|capture| capture.zero(allocation, bytes));
        Ok(())
    }

    /// Records a copy between two allocations of the device.
    pub fn copy(&self, copy: &Copy) -> Result<()> {
        self.gpu.stream.copy(copy)?;
        self.captured(|capture| capture.copy(copy));
        Ok(())
    }

    /// The pipeline of a kernel by its cache key, from `source` where it is in no cache.
    pub fn pipeline(
        &self,
        key: u128,
        push_bytes: u32,
        source: impl FnOnce() -> KernelSource,
    ) -> Attempt<Arc<Pipeline>> {
        self.gpu.pipelines.kernel(key, push_bytes, self.blocking, source)
    }

    /// The pipeline of a module that a user gives.
    pub fn user_module(&self, module: &UserModule, interface: CallInterface) -> Attempt<UserKernel> {
        self.gpu.pipelines.user_module(module, interface, self.blocking)
    }

    /// Records a launch.
    pub fn launch(&self, pipeline: &Arc<Pipeline>, groups: [u32; 3], mut params: Params) -> Attempt<()> {
        let reversed = params.slots().iter().find(|(_, slot)| matches!(slot, Slot::Reversed)).map(|slot| slot.0);
        if let Some(position) = reversed {
            params.words_mut()[position] = self.reversed(groups, params.reads(), params.writes());
        }
        let check = if params.checked().is_empty() { None } else { Some(self.check(params.reads())?) };
        if let Some(check) = check {
            params.fill_checks(|operation| check.words(operation));
        }
        let bindings: SmallVec<[Binding; 4]> =
            params.bindings().iter().map(|&(allocation, range)| Binding { allocation, offset: 0, range }).collect();
        let buffers = (params.reads(), params.writes(), &bindings[..]);
        self.dispatch(pipeline, params.words(), (groups, params.counted_operations()), buffers, check)?;
        self.captured(|capture| capture.launch(pipeline, groups, &params));
        Ok(())
    }

    /// What is recorded while the guard lives is submitted together: the device pauses between submissions.
    pub fn batch(&self) -> SubmissionGuard<'_> {
        self.gpu.stream.batch()
    }

    /// Whether parameters of this size exceed what can be pushed. They go into a buffer then, whose address is pushed.
    pub fn params_in_buffer(&self, bytes: usize) -> bool {
        bytes > self.gpu.caps.max_push_constants.min(256) as usize
    }

    /// The check of the call, for a kernel that reads these allocations.
    pub(super) fn check(&self, reads: &[&Allocation]) -> Attempt<&Arc<BoundsCheck>> {
        if self.check.get().is_none() {
            let check = match reads.iter().find_map(|read| read.checks.shared()) {
                Some(shared) => shared,
                None => {
                    let record = self.gpu.allocate(MemoryKind::Record, BOUNDS_RECORD_BYTES, self.blocking)?;
                    Arc::new(BoundsCheck::new(record))
                }
            };
            let _ = self.check.set(check);
        }
        self.check.get().ok_or_else(|| Error::Invalid("a call without its check".into()).into())
    }

    /// Records a dispatch of workgroups with that many operations in all, past the capture.
    pub(super) fn dispatch(
        &self,
        pipeline: &Arc<Pipeline>,
        words: &[u32],
        (groups, operations): ([u32; 3], u64),
        (reads, writes, bindings): (&[&Allocation], &[&Allocation], &[Binding]),
        check: Option<&Arc<BoundsCheck>>,
    ) -> Attempt<()> {
        let params: &[u8] = bytemuck::cast_slice(words);
        let stream = &self.gpu.stream;
        if !self.params_in_buffer(params.len()) {
            return Ok(stream.dispatch(&Dispatch {
                pipeline,
                push: params,
                groups,
                reads,
                writes,
                bindings,
                check,
                predicate: self.predicate,
                operations,
            })?);
        }
        let allocation = self.allocate(params.len() as u64)?;
        stream.update(&allocation, params)?;
        let push = &allocation.address.to_le_bytes();
        let mut all: SmallVec<[&Allocation; 8]> = SmallVec::from_slice(reads);
        all.push(&allocation);
        let (reads, predicate) = (&all, self.predicate);
        let dispatch = Dispatch { pipeline, push, groups, reads, writes, bindings, check, predicate, operations };
        Ok(stream.dispatch(&dispatch)?)
    }

    /// The number of workgroups where the next kernel traverses large tensors in reverse, or 0. Every second one does: what the one before
    /// touched last is still cached.
    pub(super) fn reversed(&self, groups: [u32; 3], reads: &[&Allocation], writes: &[&Allocation]) -> u32 {
        let bytes = reads.iter().chain(writes).map(|allocation| allocation.size).sum::<u64>();
        let reversed = bytes >= CACHE_EXCEEDED_BYTES && !self.gpu.reversed.fetch_xor(true, Relaxed);
        if reversed { groups.iter().product() } else { 0 }
    }

    /// Says what the contents of an allocation were just computed from, which later kernels of a recording may read in place of it: its own kernel
    /// is left out of the graph where all do.
    pub fn set_producer(&self, allocation: &Allocation, producer: impl Any + Send + Sync) {
        self.captured(|capture| capture.set_producer(allocation, Arc::new(producer)));
    }

    /// Whether the commands are captured, and later calls may ask for a producer.
    pub fn is_captured(&self) -> bool {
        self.capture.is_some()
    }

    /// What the contents of an allocation were computed from, where that is a `T`.
    pub fn producer<T: Any + Send + Sync>(&self, allocation: &Allocation) -> Option<Arc<T>> {
        self.capture.as_ref()?.borrow().producer(allocation)?.downcast().ok()
    }

    fn captured(&self, record: impl FnOnce(&mut Capture)) {
        if let Some(capture) = &self.capture {
            record(&mut capture.borrow_mut());
        }
    }
}
