//! Kernels that users write for tensors: GLSL whose buffers are declared here from the tensors, or SPIR-V with the same interface. This module
//! owns that interface, and does not know what a kernel computes.
//!
//! Inputs are bound from binding 0 up, outputs follow. The push constants are the extents of all of them in that order, 32 bits each,
//! and then the parameters.

use std::fmt::Write as _;

use smallvec::SmallVec;

use super::Tensor;
use crate::error::{Attempt, Error, Result};
use crate::graph::{Context, Params};
use crate::memory::{AllocationHandle, Buffer};
use crate::pipeline::{CallInterface, UserCode, UserModule};
use crate::program::{Type, elements};

/// The fewest bytes of a binding.
const MIN_BINDING_BYTES: u64 = 4;

/// A user's kernel.
pub struct TensorKernel<'a> {
    /// What errors and profiles call it.
    pub name: &'a str,
    /// GLSL from its own first line on, without declarations of buffers; or a SPIR-V module.
    pub code: UserCode<'a>,
    /// Names of the inputs.
    pub inputs: Vec<&'a str>,
    /// Names of the outputs.
    pub outputs: Vec<&'a str>,
    /// The parameters' names and GLSL types.
    pub params: Vec<(&'a str, &'static str)>,
    /// Invocations of a workgroup along each axis. A SPIR-V module declares its own.
    pub local_size: [u64; 3],
    /// Whether outputs hold zeros before the kernel runs. Elsewhere an element that it does not write is undefined.
    pub zeroed: bool,
}

/// What one call gives.
pub struct TensorKernelCall<'a> {
    /// A tensor for each input.
    pub inputs: Vec<Tensor<'a>>,
    /// Types and shapes of the outputs.
    pub outputs: Vec<(Type, SmallVec<[u64; 4]>)>,
    /// The parameters' bytes, 32 bits each.
    pub params: &'a [u8],
    /// The fewest invocations along each axis.
    pub grid: [u64; 3],
}

/// The outputs of a kernel.
pub fn run(cx: &Context, kernel: &TensorKernel, call: &TensorKernelCall) -> Attempt<Vec<Buffer>> {
    let words = push_words(call)?;
    let push_bytes = 4 * words.len();
    if cx.params_in_buffer(push_bytes) {
        let most = cx.caps().max_push_constants.min(256);
        return Err(
            invalid(kernel, format!("its extents and parameters have {push_bytes} bytes, more than {most}")).into()
        );
    }
    let types = call.inputs.iter().map(|input| input.ty).chain(call.outputs.iter().map(|output| output.0));
    types.clone().try_for_each(|ty| ty.check(cx.caps()))?;
    let bindings = (call.inputs.len() + call.outputs.len()) as u32;
    let interface = CallInterface { constant: None, bindings, push_bytes: push_bytes as u32 };
    let text;
    let code = match kernel.code {
        UserCode::Glsl(own) => {
            text = source(kernel, call, own);
            UserCode::Glsl(&text)
        }
        UserCode::Spirv(bytes) => UserCode::Spirv(bytes),
    };
    let module = cx.user_module(&UserModule { name: kernel.name, code }, interface)?;
    if let Some(input) = (0..call.inputs.len()).find(|i| module.written >> i & 1 == 1) {
        return Err(invalid(kernel, format!("it writes its input {}", kernel.inputs[input])).into());
    }
    let groups = groups(cx, kernel, call.grid, module.local_size)?;
    let mut results: SmallVec<[(u64, AllocationHandle); 2]> = SmallVec::new();
    for (ty, shape) in &call.outputs {
        let bytes = elements(shape)?.saturating_mul(ty.size());
        let result = cx.allocate(bytes)?;
        if kernel.zeroed {
            cx.zero(&result, bytes)?;
        }
        results.push((bytes, result));
    }
    let sources = call.inputs.iter().map(|input| input.buffer.allocation()).collect::<Result<SmallVec<[_; 4]>>>()?;
    {
        let mut params = Params::default();
        words.iter().for_each(|&word| params.word(word));
        for (input, source) in call.inputs.iter().zip(&sources) {
            params.bind_read(source, binding_bytes(cx, kernel, input.elements()?, input.ty)?);
        }
        for ((ty, shape), (_, result)) in call.outputs.iter().zip(&results) {
            params.bind_write(result, binding_bytes(cx, kernel, elements(shape)?, *ty)?);
        }
        cx.launch(&module.pipeline, groups, params)?;
    }
    Ok(results.into_iter().map(|(bytes, result)| Buffer::new(bytes, result)).collect())
}

fn invalid(kernel: &TensorKernel, what: String) -> Error {
    Error::Invalid(format!("the kernel {}: {what}", kernel.name))
}

/// The push constants.
fn push_words(call: &TensorKernelCall) -> Result<SmallVec<[u32; 32]>> {
    let inputs = call.inputs.iter().map(|input| input.shape);
    let extents = inputs.chain(call.outputs.iter().map(|output| &output.1[..])).flatten();
    let mut words: SmallVec<[u32; 32]> =
        extents.map(|&extent| u32::try_from(extent).map_err(|_| Error::SizeMismatch)).collect::<Result<_>>()?;
    let (params, rest) = call.params.as_chunks();
    if !rest.is_empty() {
        return Err(Error::SizeMismatch);
    }
    words.extend(params.iter().map(|&word| u32::from_le_bytes(word)));
    Ok(words)
}

fn binding_bytes(cx: &Context, kernel: &TensorKernel, elements: u64, ty: Type) -> Result<u64> {
    let bytes = elements.saturating_mul(ty.size()).max(MIN_BINDING_BYTES);
    let most = cx.caps().max_storage_range;
    if bytes > most {
        return Err(invalid(kernel, format!("a tensor has {bytes} bytes, {} binds {most} at most", cx.caps().name)));
    }
    Ok(bytes)
}

/// Workgroups along each axis.
fn groups(cx: &Context, kernel: &TensorKernel, grid: [u64; 3], local_size: [u32; 3]) -> Result<[u32; 3]> {
    let groups = [0, 1, 2].map(|axis| grid[axis].div_ceil(local_size[axis].into()));
    let most = cx.caps().max_groups;
    if groups.contains(&0) {
        return Err(invalid(kernel, "grid: expected at least one invocation along each axis".into()));
    }
    if (0..3).any(|axis| groups[axis] > most[axis].into()) {
        let message = format!("grid: it takes {groups:?} workgroups, {} runs {most:?} at most", cx.caps().name);
        return Err(invalid(kernel, message));
    }
    Ok(groups.map(|groups| groups as u32))
}

/// The GLSL of a kernel: declarations, then the user's text, whose first line is line 1 of the file in the compiler's messages. Those about
/// the declarations name another file.
fn source(kernel: &TensorKernel, call: &TensorKernelCall, own: &str) -> String {
    let [x, y, z] = kernel.local_size;
    let inputs = call.inputs.iter().map(|input| (input.ty, input.shape, "readonly "));
    let outputs = call.outputs.iter().map(|output| (output.0, &output.1[..], ""));
    let buffers: Vec<_> = kernel.inputs.iter().chain(&kernel.outputs).zip(inputs.chain(outputs)).collect();
    let name = kernel.name;
    let mut text = format!("{EXTENSIONS}#line 1 \"declarations of {name}\"\n");
    if buffers.iter().any(|(_, (ty, ..))| ty.is_narrow_float()) {
        text.push_str("#include \"lib/convert.glsl\"\n");
    }
    let _ = writeln!(text, "layout(local_size_x = {x}, local_size_y = {y}, local_size_z = {z}) in;");
    let mut constants = String::new();
    for (binding, (name, (ty, shape, access))) in buffers.iter().enumerate() {
        if !shape.is_empty() {
            let _ = writeln!(constants, "  uint {name}_shape[{}];", shape.len());
        }
        let sizes = (0..shape.len()).map(|axis| format!(" * {name}_shape[{axis}]")).collect::<String>();
        let _ = writeln!(text, "#define {name}_size (1u{sizes})\n#define {name}_type {}", ty.storage());
        let _ = writeln!(
            text,
            "layout(set = 0, binding = {binding}, scalar) restrict {access}buffer Buffer_{name} {{ {name}_type {name}[]; }};"
        );
    }
    for (name, ty) in &kernel.params {
        let _ = writeln!(constants, "  {ty} {name};");
    }
    if !constants.is_empty() {
        let _ = writeln!(text, "layout(push_constant, scalar) uniform Constants {{\n{constants}}};");
    }
    let _ = writeln!(text, "#line 1 \"{name}\"\n{own}");
    text
}

/// The extensions that a user's text may rely on. A module declares those alone that it uses.
const EXTENSIONS: &str = "#version 460\n\
    #extension GL_GOOGLE_include_directive : require\n\
    #extension GL_EXT_scalar_block_layout : require\n\
    #extension GL_EXT_shader_explicit_arithmetic_types : require\n\
    #extension GL_EXT_shader_8bit_storage : require\n\
    #extension GL_EXT_shader_16bit_storage : require\n\
    #extension GL_EXT_control_flow_attributes : require\n\
    #extension GL_EXT_shader_atomic_float : enable\n\
    #extension GL_EXT_shader_atomic_int64 : enable\n\
    #extension GL_KHR_shader_subgroup_basic : enable\n\
    #extension GL_KHR_shader_subgroup_vote : enable\n\
    #extension GL_KHR_shader_subgroup_arithmetic : enable\n\
    #extension GL_KHR_shader_subgroup_ballot : enable\n\
    #extension GL_KHR_shader_subgroup_shuffle : enable\n\
    #extension GL_KHR_shader_subgroup_shuffle_relative : enable\n\
    #extension GL_KHR_shader_subgroup_clustered : enable\n";
