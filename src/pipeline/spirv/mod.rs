//! User SPIR-V: checked, specialised, made memory-safe and reflected before any driver sees it. Works on words alone: it
//! opens no files, builds no pipelines and knows no buffers.
//!
//! A driver trusts the SPIR-V it gets: an invalid module, or an index outside an array, can take the whole process
//! down. [`load`] therefore lets a module through in four steps. A large one is optimised before ([`optimise`]), and taken as it is where
//! that comes to no end or its result does not pass.
//!
//! 1. **Structure** ([`structure`]): the words themselves, and what would make the checkers run forever; debug
//!    information is removed.
//! 2. **Validation** ([`tools`]): SPIRV-Tools' validator for Vulkan 1.3.
//! 3. **Specialisation** ([`specialise`]): every specialization constant becomes a plain constant, `LocalSizeId` becomes
//!    `LocalSize`. What follows sees exactly what the driver will see.
//! 4. **Our rules** ([`reflect`], [`functions`]) and **clamping** ([`clamp`]): no pointers but those into the bound
//!    buffers, nothing that grows without bound in a driver, and no index outside an array in memory that robust buffer
//!    access does not cover. The result is validated once more.
//!
//! What remains undecidable (a loop that never ends, a barrier that not all invocations reach) is bounded by the time
//! limit of the wait for the dispatch.
//!
//! SPIRV-Tools gives the parser and the validator, and the optimizer of large modules, which runs in a process of its own: it crashes on
//! modules that the validator accepts, and bounds neither its time nor its memory. Its passes for constants and for robust access stay unused
//! ([`specialise`] and [`clamp`] say why), and its inliner, too: nothing in it bounds nesting, calls or sizes ([`functions`]), which is what
//! overruns drivers' tables.

mod calls;
mod clamp;
mod dominators;
mod functions;
mod limits;
mod optimise;
mod reflect;
mod share;
mod sizes;
mod specialise;
mod structure;
mod tools;
mod types;

use std::collections::BTreeSet;

pub use ::spirv::Capability;
pub use limits::{Limits, missing_capability};
pub use optimise::{
    OPTIMISE, OPTIMISE_CONFINED, main as optimise_main, optimise, supervise as supervise_optimiser,
    version as optimiser,
};
pub use sizes::SizeLimits;

use super::SpecializationConstant;
use specialise::Specialised;
use tools::Tools;

/// Words before the first instruction: magic number, version, generator, id bound, schema.
pub(super) const HEADER_WORDS: usize = 5;

/// Stack of the thread that checks a module. The BEAM's schedulers have a few hundred KiB, too little for the
/// recursive walks over deeply nested control flow in SPIRV-Tools.
const VALIDATOR_STACK_BYTES: usize = 64 << 20;

/// Why a module was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpirvError {
    /// No SPIR-V at all, or cut off.
    #[error("not a SPIR-V module: {0}")]
    NotSpirv(String),
    /// SPIR-V that breaks the rules of SPIR-V or Vulkan; the validator's words.
    #[error("invalid SPIR-V: {0}")]
    Invalid(String),
    /// Valid SPIR-V that is not a compute kernel over storage buffers, or could reach beyond them.
    #[error("unsupported SPIR-V: {0}")]
    Unsupported(String),
    /// A kernel with other bindings or push constants than the call provides.
    #[error("the SPIR-V does not fit the call: {0}")]
    Layout(String),
    /// A kernel that needs more than the device has.
    #[error("the SPIR-V does not fit the device: {0}")]
    Device(String),
    /// A checker failed, which says nothing certain about the module.
    #[error("the SPIR-V could not be checked: {0}")]
    Internal(String),
}

/// A storage buffer of descriptor set 0 that a module declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferBinding {
    /// Its binding number.
    pub binding: u32,
    /// Whether some instruction may write to it.
    pub written: bool,
}

/// A compute kernel that is safe to hand to a driver, and what it needs.
#[derive(Clone, Debug)]
pub struct Module {
    /// The module to compile: specialised, so `VkSpecializationInfo` stays empty, and clamped.
    pub words: Vec<u32>,
    /// Name of the compute entry point.
    pub entry_point: String,
    /// Invocations per workgroup.
    pub local_size: [u32; 3],
    /// The storage buffers it declares, by ascending binding, each once.
    pub bindings: Vec<BufferBinding>,
    /// End of its push-constant block in bytes; 0 without one.
    pub push_constant_bytes: u32,
    /// Workgroup memory in bytes.
    pub shared_memory_bytes: u64,
    /// Ids of the specialization constants it had, ascending.
    pub specialization_ids: Vec<u32>,
    /// What it declares to use.
    pub capabilities: BTreeSet<Capability>,
    /// SPIR-V version, major and minor.
    pub version: (u8, u8),
}

/// Checks a SPIR-V module and prepares it for the driver.
///
/// `bytes` is the file in either byte order. `specialization` pairs specialization constant ids with 32-bit values;
/// ids that the module lacks are ignored, constants that are not named keep their defaults. `optimised` is asked for a smaller
/// module where this one is large; the smaller one is taken if it passes.
///
/// Never panics: whatever `bytes` holds, the answer is a [`Module`] or a [`SpirvError`].
pub fn load(
    bytes: &[u8],
    specialization: &[SpecializationConstant],
    limits: &SizeLimits,
    optimised: impl FnOnce(&[u32]) -> Option<Vec<u32>>,
) -> Result<Module, SpirvError> {
    let words = structure::words_of(bytes)?;
    let smaller = if optimise::is_large(&words) { optimised(&words) } else { None };
    let smaller = smaller.filter(|words| words.len() > HEADER_WORDS);
    on_checker_thread(|| match smaller {
        Some(smaller) => check(smaller, specialization, limits)
            .or_else(|refusal| check(words, specialization, limits).map_err(|_| refusal)),
        None => check(words, specialization, limits),
    })
}

/// Runs what checks or changes a module on a thread of its own, with a large stack. A panic is an error.
fn on_checker_thread<T: Send>(work: impl FnOnce() -> Result<T, SpirvError> + Send) -> Result<T, SpirvError> {
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("nx_vulkan spirv".into())
            .stack_size(VALIDATOR_STACK_BYTES)
            .spawn_scoped(scope, work)
            .map_err(|error| SpirvError::Internal(format!("no thread: {error}")))?
            .join()
            .unwrap_or_else(|_| Err(SpirvError::Internal("the checker panicked".into())))
    })
}

/// Whether a built-in kernel keeps SPIR-V's and Vulkan 1.3's rules, for tests of kernels that no device here runs.
#[cfg(test)]
pub fn validate(words: &[u32]) -> Result<(), SpirvError> {
    Tools::new()?.validate(words)
}

impl Module {
    /// Whether the kernel runs with storage buffers at bindings `0..bindings` of set 0 and `push_bytes` bytes of push
    /// constants. Buffers and bytes that the kernel leaves unused are fine.
    pub fn check_layout(&self, bindings: u32, push_bytes: u32) -> Result<(), SpirvError> {
        if let Some(beyond) = self.bindings.iter().find(|b| b.binding >= bindings) {
            return Err(SpirvError::Layout(format!(
                "it uses binding {}, the call binds {bindings} buffers (0 to {})",
                beyond.binding,
                bindings.saturating_sub(1)
            )));
        }
        if self.push_constant_bytes > push_bytes {
            return Err(SpirvError::Layout(format!(
                "it reads {} bytes of push constants, the call passes {push_bytes}",
                self.push_constant_bytes
            )));
        }
        Ok(())
    }

    /// Whether a device with these limits can run the kernel.
    pub fn check_device(&self, limits: &Limits) -> Result<(), SpirvError> {
        let refuse = |message| Err(SpirvError::Device(message));
        if self.version > limits.max_version {
            let ((a, b), (c, d)) = (self.version, limits.max_version);
            return refuse(format!("it is SPIR-V {a}.{b}, the device takes up to {c}.{d}"));
        }
        if let Some(missing) = self.capabilities.difference(&limits.capabilities).next() {
            return refuse(format!("it needs {missing:?}, which the device lacks"));
        }
        let [x, y, z] = self.local_size;
        let invocations = u64::from(x).saturating_mul(y.into()).saturating_mul(z.into());
        let fits = self.local_size.iter().zip(limits.max_local_size).all(|(size, max)| *size <= max);
        if !fits || invocations > limits.max_invocations.into() {
            return refuse(format!(
                "its workgroups of {x}x{y}x{z} invocations exceed {:?} along the axes or {} in all",
                limits.max_local_size, limits.max_invocations
            ));
        }
        if self.shared_memory_bytes > limits.max_shared_memory.into() {
            return refuse(format!(
                "it needs {} bytes of workgroup memory, the device has {}",
                self.shared_memory_bytes, limits.max_shared_memory
            ));
        }
        Ok(())
    }
}

fn check(
    words: Vec<u32>,
    specialization: &[SpecializationConstant],
    limits: &SizeLimits,
) -> Result<Module, SpirvError> {
    let tools = Tools::new()?;
    structure::check(&words, limits)?;
    tools.validate(&words)?;
    let Specialised { words, ids, constants } = specialise::specialise(&words, &tools.parse(&words)?, specialization)?;
    let instructions = tools.parse(&words)?;
    let reflection = reflect::reflect(&words, &instructions, &constants, limits)?;
    let words = clamp::clamp(&words, &instructions, &constants, &reflection)?;
    tools.validate(&words)?;
    Ok(Module {
        version: ((words[1] >> 16) as u8, (words[1] >> 8) as u8),
        words,
        entry_point: reflection.entry_point,
        local_size: reflection.local_size,
        bindings: reflection.bindings,
        push_constant_bytes: reflection.push_constant_bytes,
        shared_memory_bytes: reflection.shared_memory_bytes,
        specialization_ids: ids,
        capabilities: reflection.capabilities,
    })
}
