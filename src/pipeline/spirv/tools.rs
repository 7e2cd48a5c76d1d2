//! SPIRV-Tools' validator, parser and optimizer, through its C interface (`spirv-tools/libspirv.h`). Owns all
//! `unsafe` code of user SPIR-V, and keeps nothing between two calls.
//!
//! libshaderc, which the crate links anyway, carries SPIRV-Tools and exports this interface: the shared library of
//! Debian and its relatives as well as the static `libshaderc_combined.a`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

// Puts the library that defines the symbols below onto the linker's command line.
use shaderc as _;

use super::SpirvError;

/// One instruction: where it stands, and its type and result (0 where it has none).
#[derive(Clone, Copy, Debug)]
pub(super) struct Instruction {
    pub opcode: u16,
    pub type_id: u32,
    pub result_id: u32,
    /// Index of its first word in the module.
    pub start: usize,
    /// Number of its words, the first one included.
    pub len: usize,
}

#[repr(C)]
struct OpaqueContext {
    _opaque: [u8; 0],
}

#[repr(C)]
struct ValidatorOptions {
    _opaque: [u8; 0],
}

#[repr(C)]
struct Optimizer {
    _opaque: [u8; 0],
}

#[repr(C)]
struct OptimizerOptions {
    _opaque: [u8; 0],
}

/// What the library gives back: its words and their number.
#[repr(C)]
struct Binary {
    code: *const u32,
    word_count: usize,
}

#[repr(C)]
struct ConstBinary {
    code: *const u32,
    word_count: usize,
}

#[repr(C)]
struct Diagnostic {
    position: [usize; 3],
    error: *const c_char,
    is_text_source: bool,
}

#[repr(C)]
struct ParsedInstruction {
    words: *const u32,
    num_words: u16,
    opcode: u16,
    ext_inst_type: c_int,
    type_id: u32,
    result_id: u32,
    operands: *const c_void,
    num_operands: u16,
}

const SUCCESS: c_int = 0;

/// `spv_validator_limit_max_control_flow_nesting_depth`.
const LIMIT_NESTING: c_int = 6;

// SAFETY: the declarations follow spirv-tools/libspirv.h, whose C interface has kept these since 2016.
unsafe extern "C" {
    fn spvParseTargetEnv(name: *const c_char, env: *mut c_int) -> bool;
    fn spvContextCreate(env: c_int) -> *mut OpaqueContext;
    fn spvContextDestroy(context: *mut OpaqueContext);
    fn spvValidatorOptionsCreate() -> *mut ValidatorOptions;
    fn spvValidatorOptionsDestroy(options: *mut ValidatorOptions);
    fn spvValidatorOptionsSetScalarBlockLayout(options: *mut ValidatorOptions, allowed: bool);
    fn spvValidatorOptionsSetUniversalLimit(options: *mut ValidatorOptions, limit: c_int, value: u32);
    fn spvValidatorOptionsSetFriendlyNames(options: *mut ValidatorOptions, wanted: bool);
    fn spvValidatorOptionsSetAllowLocalSizeId(options: *mut ValidatorOptions, allowed: bool);
    fn spvValidateWithOptions(
        context: *const OpaqueContext,
        options: *const ValidatorOptions,
        binary: *const ConstBinary,
        diagnostic: *mut *mut Diagnostic,
    ) -> c_int;
    fn spvBinaryParse(
        context: *const OpaqueContext,
        user_data: *mut c_void,
        words: *const u32,
        num_words: usize,
        header: *const c_void,
        instruction: Option<unsafe extern "C" fn(*mut c_void, *const ParsedInstruction) -> c_int>,
        diagnostic: *mut *mut Diagnostic,
    ) -> c_int;
    fn spvDiagnosticDestroy(diagnostic: *mut Diagnostic);
    fn spvOptimizerCreate(env: c_int) -> *mut Optimizer;
    fn spvOptimizerDestroy(optimizer: *mut Optimizer);
    fn spvOptimizerRegisterPassFromFlag(optimizer: *mut Optimizer, flag: *const c_char) -> bool;
    fn spvOptimizerOptionsCreate() -> *mut OptimizerOptions;
    fn spvOptimizerOptionsDestroy(options: *mut OptimizerOptions);
    fn spvOptimizerOptionsSetRunValidator(options: *mut OptimizerOptions, wanted: bool);
    fn spvOptimizerRun(
        optimizer: *mut Optimizer,
        words: *const u32,
        word_count: usize,
        optimized: *mut *mut Binary,
        options: *mut OptimizerOptions,
    ) -> c_int;
    fn spvBinaryDestroy(binary: *mut Binary);
}

/// A SPIRV-Tools context for Vulkan 1.3. It is never shared: every call makes its own, so no two threads meet in it.
pub(super) struct Tools {
    env: c_int,
    context: *mut OpaqueContext,
    options: *mut ValidatorOptions,
}

impl Tools {
    pub fn new() -> Result<Self, SpirvError> {
        let mut env = 0;
        // SAFETY: both pointers are valid for the call; the function only reads the one and writes the other.
        if !unsafe { spvParseTargetEnv(c"vulkan1.3".as_ptr(), &mut env) } {
            return Err(SpirvError::Internal("libshaderc's SPIRV-Tools does not know Vulkan 1.3".into()));
        }
        // SAFETY: the environment is one that the library named itself; both objects are released in `drop`.
        let tools = unsafe { Self { env, context: spvContextCreate(env), options: spvValidatorOptionsCreate() } };
        if tools.context.is_null() || tools.options.is_null() {
            return Err(SpirvError::Internal("SPIRV-Tools could not be initialised".into()));
        }
        // SAFETY: `options` is a live options object that nobody else holds.
        unsafe {
            // The device is opened with scalarBlockLayout; it permits every stricter layout too.
            spvValidatorOptionsSetScalarBlockLayout(tools.options, true);
            // Making up names takes a time that is quadratic in the number of equal declarations.
            spvValidatorOptionsSetFriendlyNames(tools.options, false);
            // `specialise` turns LocalSizeId into LocalSize, so no driver meets it.
            spvValidatorOptionsSetAllowLocalSizeId(tools.options, true);
            // Without this limit the validator's time grows with the third power of the nesting.
            spvValidatorOptionsSetUniversalLimit(tools.options, LIMIT_NESTING, super::functions::MAX_NESTING);
        }
        Ok(tools)
    }

    /// Validates a module against SPIR-V's own rules and Vulkan 1.3's.
    pub fn validate(&self, words: &[u32]) -> Result<(), SpirvError> {
        let binary = ConstBinary { code: words.as_ptr(), word_count: words.len() };
        let mut diagnostic = ptr::null_mut();
        // SAFETY: the context and the options live as long as `self`, `binary` points into `words`, and the library
        // keeps none of them after the call.
        let result = unsafe { spvValidateWithOptions(self.context, self.options, &binary, &mut diagnostic) };
        check(result, diagnostic)
    }

    /// The instructions of a module in their order.
    pub fn parse(&self, words: &[u32]) -> Result<Vec<Instruction>, SpirvError> {
        unsafe extern "C" fn push(list: *mut c_void, parsed: *const ParsedInstruction) -> c_int {
            // SAFETY: `list` is the vector that `parse` passes below and uses for nothing else until the parser
            // returns; `parsed` is valid for the duration of this call.
            let (list, parsed) = unsafe { (&mut *list.cast::<Vec<Instruction>>(), &*parsed) };
            list.push(Instruction {
                opcode: parsed.opcode,
                type_id: parsed.type_id,
                result_id: parsed.result_id,
                start: list.last().map_or(super::HEADER_WORDS, |last| last.start + last.len),
                len: parsed.num_words.into(),
            });
            SUCCESS
        }

        let mut list: Vec<Instruction> = Vec::new();
        let mut diagnostic = ptr::null_mut();
        // SAFETY: the context lives as long as `self`, `words` outlives the call, and the callback gets the vector it
        // expects.
        let result = unsafe {
            spvBinaryParse(
                self.context,
                ptr::from_mut(&mut list).cast(),
                words.as_ptr(),
                words.len(),
                ptr::null(),
                Some(push),
                &mut diagnostic,
            )
        };
        check(result, diagnostic)?;
        Ok(list)
    }

    /// The module after these passes, by the names that `spirv-opt` gives them; `None` where one fails. May end the process or take
    /// forever, even for a valid module.
    pub fn optimise(&self, words: &[u32], passes: &[&CStr]) -> Option<Vec<u32>> {
        let mut optimised = ptr::null_mut();
        // SAFETY: the environment is one that the library named itself; the objects are used here alone and released below; `words` and the
        // passes' names outlive the calls. The library's words are copied before they are released.
        unsafe {
            let (optimizer, options) = (spvOptimizerCreate(self.env), spvOptimizerOptionsCreate());
            // The caller has validated the module, with this one's options.
            spvOptimizerOptionsSetRunValidator(options, false);
            let registered = passes.iter().all(|pass| spvOptimizerRegisterPassFromFlag(optimizer, pass.as_ptr()));
            let passed = registered
                && spvOptimizerRun(optimizer, words.as_ptr(), words.len(), &mut optimised, options) == SUCCESS;
            let binary = optimised.as_ref().filter(|_| passed);
            let words = binary.map(|binary| std::slice::from_raw_parts(binary.code, binary.word_count).to_vec());
            spvBinaryDestroy(optimised);
            spvOptimizerOptionsDestroy(options);
            spvOptimizerDestroy(optimizer);
            words
        }
    }
}

impl Drop for Tools {
    fn drop(&mut self) {
        // SAFETY: both came from the matching create calls (either may be null, which these functions accept) and are
        // released only here.
        unsafe {
            spvValidatorOptionsDestroy(self.options);
            spvContextDestroy(self.context);
        }
    }
}

/// Turns a result code and its diagnostic into an error, and releases the diagnostic.
fn check(result: c_int, diagnostic: *mut Diagnostic) -> Result<(), SpirvError> {
    let message = if diagnostic.is_null() {
        format!("SPIRV-Tools' result {result}")
    } else {
        // SAFETY: the library made the diagnostic for this call, with a null-terminated message, and hands over its
        // ownership; nothing uses it after the release.
        unsafe {
            let message = CStr::from_ptr((*diagnostic).error).to_string_lossy().trim().to_owned();
            spvDiagnosticDestroy(diagnostic);
            message
        }
    };
    if result == SUCCESS { Ok(()) } else { Err(SpirvError::Invalid(message)) }
}
