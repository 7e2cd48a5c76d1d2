//! GLSL to SPIR-V, with `#include` of the shared library in `shaders/`. Owns the compiler and the embedded sources; which
//! text is compiled is decided by the kernels.

use std::sync::OnceLock;

use ::spirv::Op;
use shaderc::{
    CompileOptions, Compiler, EnvVersion, IncludeCallbackResult, OptimizationLevel, ResolvedInclude, ShaderKind,
    SourceLanguage, TargetEnv,
};
use xxhash_rust::xxh3::Xxh3;

use super::spirv::HEADER_WORDS;
use crate::error::{Error, Result};

include!(concat!(env!("OUT_DIR"), "/shader_sources.rs"));

/// The text of a file under `shaders/`, built into the library.
pub fn source(name: &str) -> Option<&'static str> {
    SOURCES.iter().find(|(file, _)| *file == name).map(|&(_, text)| text)
}

/// A hash over all that a shader may include: what is made from the same text with another library is another thing.
pub fn library() -> u128 {
    static HASH: OnceLock<u128> = OnceLock::new();
    *HASH.get_or_init(|| {
        let mut hash = Xxh3::new();
        for part in SOURCES.iter().flat_map(|&(name, text)| [name, text]) {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        hash.digest128()
    })
}

fn include(name: &str) -> IncludeCallbackResult {
    let content = source(name).ok_or_else(|| format!("shaders/{name} does not exist"))?;
    Ok(ResolvedInclude { resolved_name: name.to_owned(), content: content.to_owned() })
}

/// Compiles a compute shader for Vulkan 1.2, or 1.3 where it says so.
pub fn compile(source: &str) -> Result<Vec<u32>> {
    let version = if source.contains(SPIRV_1_6) { EnvVersion::Vulkan1_3 } else { EnvVersion::Vulkan1_2 };
    let words = compile_for(source, "kernel", version)
        .map_err(|what| Error::DispatchFailed(format!("GLSL compiler: {what}")))?;
    Ok(if source.contains(BFLOAT16) { with_bfloat16(&words) } else { words })
}

/// Compiles a compute shader for Vulkan 1.2; the compiler's messages are about a file of that name.
pub fn compile_named(source: &str, name: &str) -> Result<Vec<u32>, String> {
    compile_for(source, name, EnvVersion::Vulkan1_2)
}

fn compile_for(source: &str, name: &str, version: EnvVersion) -> Result<Vec<u32>, String> {
    // One for the process, never dropped: with the last one glslang frees the language's built-in declarations, and parsing
    // them again takes ten times as long as a kernel.
    static COMPILER: OnceLock<Option<Compiler>> = OnceLock::new();
    let compiler = COMPILER.get_or_init(Compiler::new).as_ref().ok_or("could not be started")?;
    let mut options = CompileOptions::new().ok_or("no options")?;
    options.set_source_language(SourceLanguage::GLSL);
    options.set_target_env(TargetEnv::Vulkan, version as u32);
    // Drivers optimise; doing it twice only costs time.
    options.set_optimization_level(OptimizationLevel::Zero);
    options.set_include_callback(|name, _, _, _| include(name));
    let artifact = compiler
        .compile_into_spirv(source, ShaderKind::Compute, name, "main", Some(&options))
        .map_err(|error| error.to_string())?;
    Ok(artifact.as_binary().to_vec())
}

/// Whether the compiler knows GL_NV_cooperative_matrix2, of 2024.
pub fn has_matrix_operations() -> bool {
    let source = "#version 460\n#extension GL_NV_cooperative_matrix2 : require\nvoid main() {}\n";
    compile_for(source, "matrix operations", EnvVersion::Vulkan1_3).is_ok()
}

/// A line that makes a kernel's `float16_t` bfloat16 (SPV_KHR_bfloat16), for which the compiler has no name. It may be
/// the type of cooperative matrices only.
pub const BFLOAT16: &str = "// float16_t is bfloat16\n";

/// A line that has a kernel compiled to SPIR-V 1.6, for devices of Vulkan 1.3.
pub const SPIRV_1_6: &str = "// needs SPIR-V 1.6\n";

fn with_bfloat16(words: &[u32]) -> Vec<u32> {
    let mut result = words[..HEADER_WORDS.min(words.len())].to_vec();
    // OpCapability BFloat16TypeKHR and BFloat16CooperativeMatrixKHR.
    emit(&mut result, Op::Capability, &[5116]);
    emit(&mut result, Op::Capability, &[5118]);
    let mut extension = false;
    for (op, instruction) in instructions(words) {
        // Capabilities come first, then extensions.
        if op != Some(Op::Capability) && !extension {
            extension = true;
            let name: Vec<u32> =
                b"SPV_KHR_bfloat16".as_chunks().0.iter().map(|&bytes| u32::from_le_bytes(bytes)).chain([0]).collect();
            emit(&mut result, Op::Extension, &name);
        }
        match (op, instruction) {
            // The encoding BFloat16KHR.
            (Some(Op::TypeFloat), &[_, id, 16]) => emit(&mut result, Op::TypeFloat, &[id, 16, 0]),
            _ => result.extend(instruction),
        }
    }
    result
}

/// The instructions of a module of our compiler, whole, each with its opcode where that is known.
pub(super) fn instructions(words: &[u32]) -> impl Iterator<Item = (Option<Op>, &[u32])> {
    let mut rest = words.get(HEADER_WORDS..).unwrap_or_default();
    std::iter::from_fn(move || {
        let first = *rest.first()?;
        let (instruction, after) = rest.split_at_checked((first >> 16).max(1) as usize)?;
        rest = after;
        Some((Op::from_u32(first & 0xffff), instruction))
    })
}

/// Appends an instruction.
pub(super) fn emit(module: &mut Vec<u32>, op: Op, operands: &[u32]) {
    module.push(((operands.len() as u32 + 1) << 16) | op as u32);
    module.extend_from_slice(operands);
}
