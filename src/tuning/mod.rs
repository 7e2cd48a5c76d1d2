//! Choices: from shapes, types and the device's capabilities to the strategy of a kernel family. This module owns all that differs
//! between CPU devices and GPUs and between large and small problems; its functions are pure, and know neither buffers nor streams.

pub mod attention;
pub mod chain;
pub mod contraction;
pub mod device_loop;
pub mod fourier;
pub mod fusion;
pub mod linalg;
pub mod maps;
pub mod rows;
pub mod scan;
pub mod scatter;
pub mod sort;
pub mod window;

use crate::device::Capabilities;
use crate::program::Type;

/// Invocations of a subgroup with cooperative matrices.
pub const MATRIX_LANES: u32 = 32;

/// Whether kernels may multiply cooperative matrices of a type.
pub fn has_matrices(caps: &Capabilities, ty: Type) -> bool {
    match ty {
        Type::F16 => caps.matrices.float16,
        Type::BF16 => caps.matrices.bfloat16,
        _ => false,
    }
}

/// Invocations of a workgroup on a CPU device: the lanes of one subgroup, which run at once.
pub fn cpu_group_threads(caps: &Capabilities) -> u32 {
    if caps.subgroup > 0 { caps.subgroup } else { 8 }
}

/// The most elements of a window for which kernels have its extents as constants and are unrolled: the time to compile
/// grows with the elements. The number of windows from which that pays off depends on what a kernel saves by it.
pub const MAX_UNROLLED_WINDOW: u64 = 32;

#[cfg(test)]
pub(crate) mod devices {
    //! Devices to choose for in unit tests, which need none then.

    use crate::device::{Capabilities, IntegerFeature, MatrixTypes, lacks};

    /// Whether elements take the memory in this process that they take on the devices below. The process's own device, which other tests
    /// use, decides on that for all.
    pub fn packs_elements() -> bool {
        let _ = crate::gpu::gpu();
        ![IntegerFeature::Int8, IntegerFeature::Int16, IntegerFeature::Int64].into_iter().any(lacks)
    }

    /// An NVIDIA H200 under driver 580.
    pub fn h200() -> Capabilities {
        Capabilities {
            name: "NVIDIA H200".into(),
            driver: "NVIDIA 580.159".into(),
            api_version: "1.4.312".into(),
            kind: "discrete_gpu",
            cpu: false,
            float64: true,
            int64: true,
            int8: true,
            int16: true,
            denorm_preserve: true,
            denorm_preserve64: true,
            compares_subnormals: false,
            subnormal_doubles: true,
            round_to_even: true,
            signed_zero_inf_nan: true,
            signed_zero_inf_nan64: true,
            fma: true,
            fast_float64: true,
            push_descriptor: true,
            conditional_rendering: true,
            exponential_loops: false,
            matrices: MatrixTypes { float16: true, bfloat16: true, operations: true },
            multiprocessors: 132,
            max_groups: [2_147_483_647, 65_535, 65_535],
            max_push_constants: 256,
            max_shared: 48 << 10,
            max_threads: 1024,
            subgroup: 32,
            vector_registers: [32, 64],
            max_storage_range: u32::MAX.into(),
            storage_alignment: 16,
            heap: 150_754_820_096,
        }
    }

    /// Mesa's lavapipe on a CPU with vectors of eight floats.
    pub fn lavapipe() -> Capabilities {
        Capabilities {
            name: "llvmpipe".into(),
            driver: "llvmpipe Mesa 25.0.7".into(),
            api_version: "1.4.305".into(),
            kind: "cpu",
            cpu: true,
            denorm_preserve: false,
            denorm_preserve64: false,
            compares_subnormals: true,
            subnormal_doubles: false,
            round_to_even: false,
            fast_float64: true,
            matrices: MatrixTypes::default(),
            multiprocessors: 32,
            max_groups: [65_535; 3],
            max_shared: 32 << 10,
            subgroup: 8,
            max_storage_range: 128 << 20,
            heap: 24 << 30,
            ..h200()
        }
    }
}
