//! The first look at a module, before any parser: the split into instructions, and limits that bound the checkers' work.
//! It reads words alone, and leaves all meaning to the validator and to `reflect`.
//!
//! SPIRV-Tools' validator takes a time that is exponential in the nesting of structs and quadratic in the number of
//! structured constructs, and memory without bound for decoration groups. A malformed module that passes these limits is
//! left for the validator to name. Debug information is removed here and not by SPIRV-Tools' `--strip-debug`, which may
//! see validated modules alone: what nothing needs, no checker should have to read.

use std::collections::{HashMap, HashSet};

use ::spirv::{Capability, MAGIC_NUMBER, Op, StorageClass};

use super::sizes::{self, SizeLimits};
use super::{HEADER_WORDS, SpirvError};

/// Capabilities a kernel may declare. Left out are those that reach memory without a descriptor (physical storage
/// buffers, variable pointers), arrays of descriptors, and everything about images and graphics.
pub(super) const CAPABILITIES: &[Capability] = {
    use Capability::*;
    &[
        Matrix,
        Shader,
        Float16,
        Float64,
        Int8,
        Int16,
        Int64,
        Int64Atomics,
        StorageBuffer8BitAccess,
        UniformAndStorageBuffer8BitAccess,
        StoragePushConstant8,
        StorageBuffer16BitAccess,
        UniformAndStorageBuffer16BitAccess,
        StoragePushConstant16,
        AtomicFloat32AddEXT,
        AtomicFloat64AddEXT,
        AtomicFloat16AddEXT,
        AtomicFloat32MinMaxEXT,
        AtomicFloat64MinMaxEXT,
        AtomicFloat16MinMaxEXT,
        GroupNonUniform,
        GroupNonUniformVote,
        GroupNonUniformArithmetic,
        GroupNonUniformBallot,
        GroupNonUniformShuffle,
        GroupNonUniformShuffleRelative,
        GroupNonUniformClustered,
        GroupNonUniformQuad,
        DenormPreserve,
        DenormFlushToZero,
        SignedZeroInfNanPreserve,
        RoundingModeRTE,
        RoundingModeRTZ,
        DotProduct,
        DotProductInputAll,
        DotProductInput4x8Bit,
        DotProductInput4x8BitPacked,
        VulkanMemoryModel,
        VulkanMemoryModelDeviceScope,
    ]
};

/// Deepest nesting of types.
const MAX_TYPE_DEPTH: u32 = 32;

/// Most types in one type's tree of members and elements, each counted at every occurrence.
const MAX_TYPE_PARTS: u64 = 4096;

/// Most buffers and push-constant blocks, more than the validator checks quickly or a device binds.
const MAX_BUFFERS: u32 = 64;

/// Extensions that only say what debug information or reflection strings a module holds.
const DEBUG_EXTENSIONS: [&str; 5] = [
    "SPV_KHR_non_semantic_info",
    "SPV_KHR_relaxed_extended_instruction",
    "SPV_GOOGLE_decorate_string",
    "SPV_GOOGLE_hlsl_functionality1",
    "SPV_GOOGLE_user_type",
];

/// The words of a file in this machine's byte order, without debug information.
pub(super) fn words_of(bytes: &[u8]) -> Result<Vec<u32>, SpirvError> {
    let not_spirv = |message| Err(SpirvError::NotSpirv(message));
    let swapped = match bytes.first_chunk::<4>() {
        None => return not_spirv(format!("{} bytes", bytes.len())),
        Some(start) if u32::from_le_bytes(*start) == MAGIC_NUMBER => false,
        Some(start) if u32::from_be_bytes(*start) == MAGIC_NUMBER => true,
        Some(start) => return not_spirv(format!("it starts with {start:02x?} instead of 0x{MAGIC_NUMBER:08x}")),
    };
    if !bytes.len().is_multiple_of(4) {
        return not_spirv(format!("{} bytes are not whole 32-bit words: it is cut off", bytes.len()));
    }
    if bytes.len() < HEADER_WORDS * 4 {
        return not_spirv(format!("{} bytes hold no header: it is cut off", bytes.len()));
    }
    let (chunks, _) = bytes.as_chunks::<4>();
    let word = |chunk: &[u8; 4]| {
        if swapped { u32::from_be_bytes(*chunk) } else { u32::from_le_bytes(*chunk) }
    };
    let words: Vec<u32> = chunks.iter().map(word).collect();
    strip(&words)
}

/// The null-terminated string that starts at `words[0]`; bytes that are no UTF-8 are replaced.
pub(super) fn string(words: &[u32]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Calls `visit` with the opcode and the words of each instruction.
fn walk(words: &[u32], mut visit: impl FnMut(u32, &[u32]) -> Result<(), SpirvError>) -> Result<(), SpirvError> {
    let mut at = HEADER_WORDS;
    while at < words.len() {
        let (count, left) = ((words[at] >> 16) as usize, words.len() - at);
        if count == 0 {
            return Err(SpirvError::Invalid(format!("the instruction at word {at} claims no words")));
        }
        if count > left {
            return Err(SpirvError::NotSpirv(format!(
                "the instruction at word {at} has {count} words, {left} are left: it is cut off"
            )));
        }
        visit(words[at] & 0xffff, &words[at..at + count])?;
        at += count;
    }
    Ok(())
}

/// The module without debug information.
fn strip(words: &[u32]) -> Result<Vec<u32>, SpirvError> {
    let mut out = words[..HEADER_WORDS].to_vec();
    let mut debug_sets = HashSet::new();
    walk(words, |code, words| {
        let drop = match (Op::from_u32(code), words) {
            (
                Some(
                    Op::Source
                    | Op::SourceContinued
                    | Op::SourceExtension
                    | Op::Name
                    | Op::MemberName
                    | Op::String
                    | Op::Line
                    | Op::NoLine
                    | Op::ModuleProcessed
                    | Op::DecorateString
                    | Op::MemberDecorateString,
                ),
                _,
            ) => true,
            (Some(Op::Extension), [_, name @ ..]) => DEBUG_EXTENSIONS.contains(&string(name).as_str()),
            (Some(Op::ExtInstImport), [_, id, name @ ..]) => match string(name).as_str() {
                "GLSL.std.450" => false,
                name if name.starts_with("NonSemantic.") || name.contains("DebugInfo") => {
                    debug_sets.insert(*id);
                    true
                }
                name => return unsupported(format!("the instruction set {name:?}")),
            },
            (Some(Op::ExtInst), [_, _, _, set, ..]) => debug_sets.contains(set),
            _ => false,
        };
        if !drop {
            out.extend_from_slice(words);
        }
        Ok(())
    })?;
    Ok(out)
}

fn unsupported<T>(message: String) -> Result<T, SpirvError> {
    Err(SpirvError::Unsupported(message))
}

/// Checks what bounds the work of the validator.
pub(super) fn check(words: &[u32], limits: &SizeLimits) -> Result<(), SpirvError> {
    limits.check(&sizes::BYTES, words.len() as u64 * 4)?;
    limits.check(&sizes::IDS, words[3].into())?;
    // Lavapipe crashes on anything but the one schema that exists.
    if words[4] != 0 {
        return unsupported(format!("instruction schema {}", words[4]));
    }
    let (mut blocks, mut constructs, mut buffers) = (0, 0, 0);
    let mut types = HashMap::new();
    walk(words, |code, words| {
        let operands = &words[1..];
        match Op::from_u32(code) {
            Some(Op::Capability) => capability(operands.first().copied().unwrap_or(u32::MAX))?,
            Some(Op::DecorationGroup | Op::GroupDecorate | Op::GroupMemberDecorate) => {
                return unsupported("decoration groups".into());
            }
            Some(Op::TypeVector | Op::TypeMatrix | Op::TypeArray | Op::TypeRuntimeArray) => {
                parts(&mut types, operands, 1)?;
            }
            Some(Op::TypeStruct) => parts(&mut types, operands, usize::MAX)?,
            Some(Op::TypePointer) => {
                if let [id, _, pointee] = operands {
                    parts(&mut types, &[*id, *pointee], 1)?;
                }
            }
            Some(Op::Variable) => {
                let class = operands.get(2).and_then(|class| StorageClass::from_u32(*class));
                use StorageClass::{PushConstant, StorageBuffer, Uniform};
                buffers += u32::from(matches!(class, Some(PushConstant | StorageBuffer | Uniform)));
            }
            Some(Op::Label) => blocks += 1,
            Some(Op::SelectionMerge | Op::LoopMerge) => constructs += 1,
            Some(_) => {}
            None => return unsupported(format!("instruction {code}")),
        }
        Ok(())
    })?;
    if buffers > MAX_BUFFERS {
        return unsupported(format!("{buffers} buffers and push-constant blocks, more than {MAX_BUFFERS}"));
    }
    limits.check(&sizes::BLOCKS, blocks)?;
    limits.check(&sizes::CONSTRUCTS, constructs)
}

fn capability(number: u32) -> Result<(), SpirvError> {
    match Capability::from_u32(number) {
        Some(capability) if CAPABILITIES.contains(&capability) => Ok(()),
        Some(other) => unsupported(format!("the capability {other:?}")),
        None => unsupported(format!("the capability {number}")),
    }
}

/// Records the depth and the number of parts of a type. `operands` holds its id, then its members; the first `used` of
/// these are types.
fn parts(types: &mut HashMap<u32, (u32, u64)>, operands: &[u32], used: usize) -> Result<(), SpirvError> {
    let Some((id, parts)) = operands.split_first() else {
        return Ok(());
    };
    let mut whole = (0, 1);
    for part in parts.iter().take(used) {
        let (depth, count) = types.get(part).copied().unwrap_or((0, 1));
        whole = (whole.0.max(depth + 1), whole.1 + count);
    }
    if whole.0 > MAX_TYPE_DEPTH {
        return unsupported(format!("types nested more than {MAX_TYPE_DEPTH} deep"));
    }
    if whole.1 > MAX_TYPE_PARTS {
        return unsupported(format!("a type of more than {MAX_TYPE_PARTS} parts"));
    }
    types.insert(*id, whole);
    Ok(())
}
