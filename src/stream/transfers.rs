//! Large transfers on a queue of their own, beside the kernels: a device has copy engines that work while its multiprocessors do. This
//! module submits them in order; the recorder decides what they wait for, and what waits for them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use vulkano::device::{Device, Queue};

use super::batch::Batch;
use super::encoder::Encoder;
use super::submitter::{Submission, submit};
use crate::device::Timeline;
use crate::error::Result;

/// The queue of transfers, and those that it does not have yet.
pub(super) struct Transfers {
    device: Arc<Device>,
    /// The queue of kernels, where the device has none for transfers alone.
    pub queue: Arc<Queue>,
    /// Counts the transfers.
    pub timeline: Arc<Timeline>,
    pending: Mutex<VecDeque<PendingTransfer>>,
    /// Locked while transfers are submitted, so that they keep their order.
    encoder: Mutex<Encoder>,
    /// The value of the last transfer that the queue has.
    pub submitted: AtomicU64,
}

struct PendingTransfer {
    /// Begins after a value of the kernels' timeline.
    batch: Batch,
    /// The value of the transfers' timeline that it signals.
    value: u64,
}

impl Transfers {
    pub fn new(device: Arc<Device>, queue: Arc<Queue>, cpu: bool) -> Result<Self> {
        let timeline = Arc::new(Timeline::new(device.clone(), cpu)?);
        let encoder = Mutex::new(Encoder::new(device.clone(), &queue, timeline.clone())?);
        Ok(Self { device, queue, timeline, pending: Mutex::default(), encoder, submitted: AtomicU64::new(0) })
    }

    /// Takes a transfer, which is submitted at the latest by the [`Transfers::flush`] of the batch that it waits for.
    pub fn push(&self, batch: Batch, value: u64) {
        self.pending.lock().push_back(PendingTransfer { batch, value });
    }

    /// Submits the transfers that wait for no batch after this one, which the queue of kernels has: where there is one queue, a transfer
    /// that waits for a later one would hold it up. `kernels` is the timeline of the batches. A transfer is dropped where `check` fails.
    pub fn flush(&self, kernels: &Timeline, submitted: u64, check: impl Fn() -> Result<()>) -> Result<()> {
        if self.pending.lock().is_empty() {
            return Ok(());
        }
        let mut encoder = self.encoder.lock();
        loop {
            let next = self.pending.lock().pop_front_if(|next| next.batch.after <= submitted);
            let Some(PendingTransfer { batch, value }) = next else {
                return Ok(());
            };
            check()?;
            let after = batch.after;
            let commands = encoder.encode(batch, value)?;
            let (signals, waits) = ((&*self.timeline, value), (kernels, after));
            submit(&self.device, &self.queue, &Submission { commands, signals, waits })?;
            self.submitted.store(value, Relaxed);
        }
    }
}
