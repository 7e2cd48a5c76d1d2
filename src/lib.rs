//! GPU tensors for the BEAM on anything with a Vulkan driver: the native half of nx_vulkan.

pub mod device;
pub mod error;
pub mod gpu;
pub mod graph;
pub mod kernels;
pub mod memory;
mod nif;
pub mod pipeline;
pub mod program;
pub mod stream;
mod tuning;

rustler::init!("Elixir.Nx.Vulkan.Native");
