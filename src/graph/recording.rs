//! Recordings: the capture of all calls of a definition as one graph. This module owns what is captured from one call to the next,
//! and does not know where the calls come from.

use std::cell::RefCell;
use std::sync::Arc;

use super::capture::Capture;
use super::context::{Context, Operand};
use super::replay::{Graph, GraphKind};
use crate::error::Attempt;
use crate::memory::{AllocationHandle, Buffer};

/// The most commands of a definition's graph. Each takes about 400 bytes.
const MAX_RECORDED_COMMANDS: usize = 1 << 13;

/// Where a replay has a result of a definition from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultSource {
    /// It is the definition's input of this position.
    Input(usize),
    /// It is the graph's result of this position.
    Made(usize),
}

/// The most bytes that a definition's graph keeps because its calls compute them from constants alone.
const MAX_FOLDED_BYTES: u64 = 4 << 20;

/// What is captured of a definition that still runs. Its operands are the definition's inputs. The values that calls have from the
/// host become part of the graph: a definition whose values differ from call to call must not be recorded.
pub struct Recording {
    capture: Capture,
    /// Bytes of results that were folded; `None` where none may be.
    folded: Option<u64>,
    /// Whether the first result has memory that no other allocation shares.
    first_alone: bool,
}

impl Recording {
    /// The recording of a definition on these inputs, which must be buffers. With `folding`, results of calls that read nothing but
    /// constants are kept: they must not be results of the definition, whose memory is their owner's.
    /// `donated` are the positions of inputs that replays take over.
    pub fn new(inputs: &[Operand], donated: &[usize], folding: bool) -> Self {
        Self { capture: Capture::of_calls(inputs, donated), folded: folding.then_some(0), first_alone: false }
    }

    /// The recording of an iteration of a loop: its first result is the condition of the next iteration, which [`Iterations`](super::Iterations)
    /// has written elsewhere each time.
    pub fn of_iteration(self) -> Self {
        Self { first_alone: true, ..self }
    }

    /// Whether results were folded.
    pub fn folded(&self) -> bool {
        self.folded.is_some_and(|bytes| bytes > 0)
    }

    /// Runs a call of the definition, and captures it with the calls before. Of a call that fails, and of one that is to be repeated,
    /// nothing is captured. The recording is `None` where the call went past its context.
    pub fn call<R: AsRef<[Buffer]>>(
        self,
        cx: &Context,
        call: impl FnOnce(&Context) -> Attempt<R>,
    ) -> (Option<Self>, Attempt<R>) {
        let lengths = self.capture.lengths();
        let capture = Some(RefCell::new(self.capture));
        let capturing = Context { capture, ..Context::new(cx.gpu, cx.blocking) };
        let results = call(&capturing);
        let capture = capturing.capture.map(RefCell::into_inner);
        let capture = capture.filter(|capture| capture.complete && capture.commands.len() <= MAX_RECORDED_COMMANDS);
        let recording =
            capture.map(|capture| Self { capture, ..self }.after(lengths, results.as_ref().ok().map(R::as_ref)));
        (recording, results)
    }

    /// Keeps what a call added to the capture, from these lengths on.
    fn after(mut self, lengths: (usize, usize), results: Option<&[Buffer]>) -> Self {
        let Some(results) = results else {
            self.capture.truncate(lengths);
            return self;
        };
        let bytes = results.iter().map(Buffer::len).sum::<u64>();
        let allocations: Option<Vec<_>> = results.iter().map(|result| result.allocation().ok()).collect();
        if let (Some(folded), Some(allocations)) = (&mut self.folded, allocations)
            && *folded + bytes <= MAX_FOLDED_BYTES
            && self.capture.is_constant_from(lengths)
        {
            *folded += bytes;
            self.capture.truncate(lengths);
            allocations.into_iter().for_each(|allocation| self.capture.constant(allocation));
        }
        self
    }

    /// Has a buffer that no call made, and that no call will write, keep its contents for each replay.
    pub fn constant(&mut self, allocation: Arc<AllocationHandle>) {
        self.capture.constant(allocation);
    }

    /// The graph of the calls, and for each of the definition's results where it comes from. `None` where a result is neither an input nor
    /// made by the calls.
    pub fn graph(mut self, results: &[&Buffer]) -> Option<(Graph, Vec<ResultSource>)> {
        let mut made: Vec<(u64, &Buffer)> = vec![];
        let mut sources = vec![];
        for &result in results {
            let id = result.allocation().ok()?.id;
            let input = self.capture.operands.iter().position(|&input| input == id).map(ResultSource::Input);
            sources.push(input.unwrap_or_else(|| {
                let position = made.iter().position(|made| made.0 == id).unwrap_or_else(|| {
                    made.push((id, result));
                    made.len() - 1
                });
                ResultSource::Made(position)
            }));
        }
        // An input that is a result stays the caller's.
        self.capture.donated.retain(|&(position, _)| !sources.contains(&ResultSource::Input(position)));
        self.capture.remove_unread(&made.iter().map(|made| made.0).collect::<Vec<_>>());
        self.capture.order_by_level();
        let alone = self.first_alone && sources.first() == Some(&ResultSource::Made(0));
        let graph = Graph::of(self.capture, made.iter().map(|made| made.1), GraphKind { batched: false, alone })?;
        Some((graph, sources))
    }
}
