//! Recordings: the capture of all calls of a definition as one graph. This module owns what is captured from one call to the next,
//! and does not know where the calls come from.

use std::cell::RefCell;
use std::sync::Arc;

use super::capture::Capture;
use super::context::{Context, Operand};
use super::replay::Graph;
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

/// What is captured of a definition that still runs. Its operands are the definition's inputs. The values that calls have from the
/// host become part of the graph: a definition whose values differ from call to call must not be recorded.
pub struct Recording(Capture);

impl Recording {
    /// The recording of a definition on these inputs, which must be buffers.
    pub fn new(inputs: &[Operand]) -> Self {
        Self(Capture::of_calls(inputs))
    }

    /// Runs a call of the definition, and captures it with the calls before. Of a call that fails, and of one that is to be repeated,
    /// nothing is captured. The recording is `None` where the call went past its context.
    pub fn call<T>(self, cx: &Context, call: impl FnOnce(&Context) -> Attempt<T>) -> (Option<Self>, Attempt<T>) {
        let lengths = self.0.lengths();
        let capturing = Context { gpu: cx.gpu, blocking: cx.blocking, capture: Some(RefCell::new(self.0)) };
        let results = call(&capturing);
        let capture = capturing.capture.map(RefCell::into_inner);
        let capture = capture.filter(|capture| capture.complete && capture.commands.len() <= MAX_RECORDED_COMMANDS);
        let recording = capture.map(|mut capture| {
            if results.is_err() {
                capture.truncate(lengths);
            }
            Self(capture)
        });
        (recording, results)
    }

    /// Has a buffer that no call made, and that no call will write, keep its contents for each replay.
    pub fn constant(&mut self, allocation: Arc<AllocationHandle>) {
        self.0.constant(allocation);
    }

    /// The graph of the calls, and for each of the definition's results where it comes from. `None` where a result is neither an input nor
    /// made by the calls.
    pub fn graph(self, results: &[&Buffer]) -> Option<(Graph, Vec<ResultSource>)> {
        let mut made: Vec<(u64, &Buffer)> = vec![];
        let mut sources = vec![];
        for &result in results {
            let id = result.allocation().ok()?.id;
            let input = self.0.operands.iter().position(|&input| input == id).map(ResultSource::Input);
            sources.push(input.unwrap_or_else(|| {
                let position = made.iter().position(|made| made.0 == id).unwrap_or_else(|| {
                    made.push((id, result));
                    made.len() - 1
                });
                ResultSource::Made(position)
            }));
        }
        let graph = Graph::of(self.0, made.iter().map(|made| made.1), false)?;
        Some((graph, sources))
    }
}
