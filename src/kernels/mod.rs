//! Kernel families: when each applies, its grid and its parameters.

pub mod assemble;
pub mod attention;
pub mod chain;
pub mod contraction;
pub mod device_loop;
pub mod dot;
pub mod fourier;
pub mod fusion;
pub mod linalg;
pub mod sampler;
pub mod scan;
pub mod scatter;
pub mod sort;
mod spec;
mod tensor;
pub mod tensor_kernel;
pub mod user_spirv;
pub mod window;

pub use spec::{KernelSpec, launch};
pub use tensor::{Rows, Tensor};
