//! Users' kernels on tensors.

use rustler::{Atom, Term};

use super::graphs::KeyTerms;
use super::*;
use crate::graph::{Context, Operand};
use crate::kernels::Tensor;
use crate::kernels::tensor_kernel::{self, TensorKernel, TensorKernelCall};
use crate::memory::Blocking;
use crate::pipeline::UserCode;

mod names {
    rustler::atoms! { tensor_kernel, glsl, spirv, f32, s32, u32 }
}

pair!(tensor_kernel, tensor_kernel_dirty, (kernel, inputs, outputs, params, grid), reply, ran);

/// The outputs of a kernel. `kernel` is `{kind, name, code, inputs, outputs, params, local_size, zeroed}`, `inputs` are tensors
/// `{ref, type, shape}`, `outputs` their types and shapes, and `params` is a binary of 32-bit words.
fn ran<'a>(
    kernel: Term<'a>,
    inputs: Term<'a>,
    outputs: Term<'a>,
    params: Term<'a>,
    grid: Term<'a>,
    blocking: Blocking,
) -> Attempt<Vec<BufferRef>> {
    let env = kernel.get_env();
    let mut key = KeyTerms::from_slice(&[names::tensor_kernel().to_term(env), kernel, outputs, params, grid]);
    let mut tensors = vec![];
    for input in list_arg(inputs, "inputs")? {
        let (buffer, ty, shape) = tensor_terms(input, "inputs")?;
        key.extend([ty, shape]);
        let buffer = buffer_arg(buffer, "inputs")?;
        tensors.push((TensorArg::of(buffer, ty, shape, "inputs")?, buffer.allocation()?));
    }
    let operands: SmallVec<[Operand; 8]> =
        tensors.iter().map(|(tensor, allocation)| Operand::Buffer(allocation, tensor.buffer.len())).collect();
    let count = list_arg(outputs, "outputs")?.count();
    let call = |cx: &Context| {
        let inputs: Vec<Tensor> = tensors.iter().map(|(tensor, _)| tensor.tensor()).collect();
        let params = bytes_arg(params, "params")?;
        let outputs = list_arg(outputs, "outputs")?.map(output_arg).collect::<Result<_>>()?;
        let call = TensorKernelCall { inputs, outputs, params: &params, grid: extents_arg(grid, "grid")? };
        let terms = tuple_arg(kernel, "kernel")?;
        let &[kind, name, code, inputs, outputs, params, local_size, zeroed] = &terms[..] else {
            return Err(wrong("kernel", "a tuple of eight").into());
        };
        let code = bytes_arg(code, "code")?;
        let kernel = TensorKernel {
            name: text_arg(name, "name")?,
            code: code_arg(kind, &code)?,
            inputs: texts_arg(inputs, "inputs")?,
            outputs: texts_arg(outputs, "outputs")?,
            params: list_arg(params, "params")?.map(param_arg).collect::<Result<_>>()?,
            local_size: extents_arg(local_size, "workgroup")?,
            zeroed: bool_arg(zeroed, "zeroed")?,
        };
        if kernel.inputs.len() != call.inputs.len() || kernel.outputs.len() != call.outputs.len() {
            return Err(wrong("kernel", "a name for each input and output").into());
        }
        tensor_kernel::run(cx, &kernel, &call)
    };
    let results = graphs::run_list(env, None, key, &operands, blocking, count, call)?;
    Ok(results.into_iter().map(BufferRef::from).collect())
}

fn code_arg<'a>(kind: Term, bytes: &'a [u8]) -> Result<UserCode<'a>> {
    match kind.decode::<Atom>() {
        Ok(kind) if kind == names::glsl() => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(UserCode::Glsl(text)),
            Err(_) => Err(wrong("code", "a string")),
        },
        Ok(kind) if kind == names::spirv() => Ok(UserCode::Spirv(bytes)),
        _ => Err(wrong("kernel", ":glsl or :spirv as its kind")),
    }
}

fn output_arg(term: Term) -> Result<(crate::program::Type, SmallVec<[u64; 4]>)> {
    let (ty, shape): (Term, Term) = term.decode().map_err(|_| wrong("outputs", "{type, shape}"))?;
    Ok((type_arg(ty, "outputs")?, SmallVec::from_slice(&shape_arg(shape, "outputs")?)))
}

/// A parameter's name and GLSL type.
fn param_arg<'a>(term: Term<'a>) -> Result<(&'a str, &'static str)> {
    let (name, ty): (Term, Atom) = term.decode().map_err(|_| wrong("params", "{name, type}"))?;
    let types = [(names::f32(), "float"), (names::s32(), "int"), (names::u32(), "uint")];
    let ty = types.iter().find(|(known, _)| *known == ty).ok_or_else(|| wrong("params", ":f32, :s32 or :u32"))?;
    Ok((text_arg(name, "params")?, ty.1))
}

fn texts_arg<'a>(term: Term<'a>, name: &str) -> Result<Vec<&'a str>> {
    list_arg(term, name)?.map(|text| text_arg(text, name)).collect()
}

/// Three extents.
fn extents_arg(term: Term, name: &str) -> Result<[u64; 3]> {
    let extents = shape_arg(term, name)?;
    extents.as_slice().try_into().map_err(|_| wrong(name, "three extents"))
}
