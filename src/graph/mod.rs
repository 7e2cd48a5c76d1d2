//! Calls as graphs of commands. This module owns the [`Context`] that a call carries, the parameters of kernel launches, and the
//! capture and replay of a call's commands. It decides nothing about kernels: those stand in `kernels`, which records through it.
//!
//! A call that comes again is neither decoded nor checked nor decided again: while it runs its commands are captured, and a later call of
//! the same kind replays them on operands and memory of its own.

mod cache;
mod capture;
mod context;
mod iterations;
mod levels;
mod params;
mod plan;
mod recording;
mod replay;

pub use cache::{Cache, Found};
pub use context::{Context, Operand};
pub use iterations::{Iterations, LoopValue, Progress};
pub use params::{Name, Params, Signature};
pub use recording::{Recording, ResultSource};
pub use replay::Graph;
