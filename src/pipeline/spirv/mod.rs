//! Foreign SPIR-V: checked, specialised, made memory-safe and reflected before any driver sees it.
//!
//! A driver trusts the SPIR-V it gets: an invalid module, or an index outside an array, can take the whole process
//! down. [`load`] therefore lets a module through in four steps:
//!
//! 1. **Structure** (here): the magic number, the sizes and the id bound.
//! 2. **Validation** ([`tools`]): SPIRV-Tools' validator for Vulkan 1.3.
//! 3. **Specialisation** ([`specialise`]): every specialization constant becomes a plain constant, `LocalSizeId` becomes
//!    `LocalSize`, and debug information goes. What follows sees exactly what the driver will see.
//! 4. **Our rules** ([`reflect`]) and **clamping** ([`clamp`]): no pointers but those into the bound buffers, nothing
//!    that grows without bound in a driver, and no index outside an array in memory that robust buffer access does not
//!    cover. The result is validated once more.
//!
//! What remains undecidable (a loop that never ends, a barrier that not all invocations reach) is bounded by whoever
//! waits for the dispatch.

mod clamp;
mod limits;
mod reflect;
mod specialise;
mod tools;
mod types;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use ::spirv::Capability;
pub use limits::Limits;

use tools::Tools;

/// Words before the first instruction: magic number, version, generator, id bound, schema.
const HEADER_WORDS: usize = 5;

/// Largest module in words (4 MiB): drivers' compile time and memory grow faster than linearly with it.
const MAX_WORDS: usize = 1 << 20;

/// Largest id bound: drivers allocate a table of this length whatever the module holds.
const MAX_BOUND: u32 = 1 << 20;

/// Stack of the thread that checks a module. The BEAM's schedulers have a few hundred KiB, too little for the
/// recursive walks over deeply nested control flow in SPIRV-Tools.
const STACK_BYTES: usize = 64 << 20;

/// Why a module was turned away.
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

/// A storage buffer of descriptor set 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
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
    pub bindings: Vec<Binding>,
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
/// ids that the module lacks are ignored, constants that are not named keep their defaults.
///
/// Never panics: whatever `bytes` holds, the answer is a [`Module`] or a [`SpirvError`].
pub fn load(bytes: &[u8], specialization: &[(u32, i32)]) -> Result<Module, SpirvError> {
    let words = words_of(bytes)?;
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("nx_vulkan spirv".into())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || check(words, specialization))
            .map_err(|error| SpirvError::Internal(format!("no thread: {error}")))?
            .join()
            .unwrap_or_else(|_| Err(SpirvError::Internal("the checker panicked".into())))
    })
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
        let invocations = u64::from(x) * u64::from(y) * u64::from(z);
        let fits = self.local_size.iter().zip(limits.max_local_size).all(|(size, max)| *size <= max);
        if !fits || invocations > limits.max_invocations.into() {
            return refuse(format!(
                "its workgroups of {x}x{y}x{z} invocations exceed the device's {:?}, at most {} in all",
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

/// The words of a file, in this machine's byte order, after the checks that need no parser.
fn words_of(bytes: &[u8]) -> Result<Vec<u32>, SpirvError> {
    let magic = ::spirv::MAGIC_NUMBER;
    let swapped = match bytes.first_chunk::<4>() {
        None => return Err(SpirvError::NotSpirv(format!("{} bytes", bytes.len()))),
        Some(start) if u32::from_le_bytes(*start) == magic => false,
        Some(start) if u32::from_be_bytes(*start) == magic => true,
        Some(start) => {
            return Err(SpirvError::NotSpirv(format!("it starts with {start:02x?} instead of 0x{magic:08x}")));
        }
    };
    if !bytes.len().is_multiple_of(4) {
        return Err(SpirvError::NotSpirv(format!("{} bytes are not whole 32-bit words: it is cut off", bytes.len())));
    }
    if bytes.len() < HEADER_WORDS * 4 {
        return Err(SpirvError::NotSpirv(format!("{} bytes hold no header: it is cut off", bytes.len())));
    }
    if bytes.len() > MAX_WORDS * 4 {
        let error = format!("{} bytes, more than {}", bytes.len(), MAX_WORDS * 4);
        return Err(SpirvError::Unsupported(error));
    }
    let words: Vec<u32> = bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|chunk| if swapped { u32::from_be_bytes(*chunk) } else { u32::from_le_bytes(*chunk) })
        .collect();
    if words[3] > MAX_BOUND {
        return Err(SpirvError::Unsupported(format!("an id bound of {}, more than {MAX_BOUND}", words[3])));
    }
    let mut at = HEADER_WORDS;
    while at < words.len() {
        let count = (words[at] >> 16) as usize;
        if count == 0 {
            return Err(SpirvError::Invalid(format!("the instruction at word {at} claims no words")));
        }
        if count > words.len() - at {
            let left = words.len() - at;
            let error = format!("the instruction at word {at} has {count} words, {left} are left: it is cut off");
            return Err(SpirvError::NotSpirv(error));
        }
        at += count;
    }
    Ok(words)
}

fn check(words: Vec<u32>, specialization: &[(u32, i32)]) -> Result<Module, SpirvError> {
    let tools = Tools::new()?;
    tools.validate(&words)?;
    let (words, specialization_ids) = specialise::specialise(&words, &tools.parse(&words)?, specialization)?;
    let instructions = tools.parse(&words)?;
    let facts = reflect::reflect(&words, &instructions)?;
    let words = clamp::clamp(&words, &instructions, &facts)?;
    tools.validate(&words)?;
    check_vulkano(&words)?;
    Ok(Module {
        version: ((words[1] >> 16) as u8, (words[1] >> 8) as u8),
        words,
        entry_point: facts.entry_point,
        local_size: facts.local_size,
        bindings: facts.bindings,
        push_constant_bytes: facts.push_constant_bytes,
        shared_memory_bytes: facts.shared_memory_bytes,
        specialization_ids,
        capabilities: facts.capabilities,
    })
}

/// Whether vulkano's parser and reflection take the module: they panic on some that are valid.
fn check_vulkano(words: &[u32]) -> Result<(), SpirvError> {
    use vulkano::shader::reflect::entry_points;
    use vulkano::shader::spirv::Spirv;
    let parse = || -> Result<(), String> {
        let spirv = Spirv::new(words).map_err(|error| error.to_string())?;
        entry_points(&spirv).for_each(drop);
        Ok(())
    };
    catch_unwind(AssertUnwindSafe(parse))
        .unwrap_or_else(|_| Err("its parser panicked".into()))
        .map_err(|error| SpirvError::Unsupported(format!("vulkano cannot read it: {error}")))
}
