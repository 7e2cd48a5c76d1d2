//! The contract of kernels: what a kernel is, and how it is launched.

use std::any::type_name;
use std::hash::Hash;

use xxhash_rust::xxh3::xxh3_128;

use crate::device::Capabilities;
use crate::error::{Attempt, Error, Result};
use crate::graph::{Context, Params, Signature};
use crate::pipeline::KernelSource;

/// A kernel: all that its source depends on. The pipeline is found by the hash of the specification, of its type's name and of the
/// parameters' names and types, so that no field can be forgotten in a key.
pub trait KernelSpec: Hash {
    /// What one launch gives: operands, results, extents and values.
    type Args<'a>;

    /// The GLSL. It is made of the specification and of the device's capabilities alone; `parameters` is the text of the declarations that
    /// [`KernelSpec::params`] gives.
    fn source(&self, caps: &Capabilities, parameters: &str) -> String;

    /// The parameters of a launch, in the order of their declaration.
    fn params<'a>(&self, args: &Self::Args<'a>, params: &mut Params<'a>);

    /// What profiles call it: the family, unless it says more.
    fn name(&self) -> String {
        let path = type_name::<Self>().split('<').next().unwrap_or_default();
        let name = path.rsplit("::").next().unwrap_or_default();
        name.strip_suffix("Kernel").unwrap_or(name).to_lowercase()
    }

    /// How many workgroups a launch has.
    fn groups(&self, args: &Self::Args<'_>) -> u64;
}

/// Builds the kernel's pipeline where it is not in memory yet, and records a launch. Fails where indices need 64 bits and the device has no
/// such integers.
pub fn launch<S: KernelSpec>(cx: &Context, spec: &S, args: &S::Args<'_>) -> Attempt<()> {
    let mut params = Params::of(cx.caps());
    spec.params(args, &mut params);
    if params.index64() && !cx.caps().int64 {
        return Err(
            Error::Unsupported(format!("{} has no 64-bit integers to index 2^31 elements", cx.caps().name)).into()
        );
    }
    let grid = grid(cx.caps(), spec.groups(args))?;
    let mut key = Signature::default();
    type_name::<S>().hash(&mut key);
    spec.hash(&mut key);
    let several_lines = grid[1] > 1;
    several_lines.hash(&mut key);
    key.0.extend_from_slice(params.signature());
    let bytes = 4 * params.words().len();
    let in_buffer = cx.params_in_buffer(bytes);
    let push_bytes = if in_buffer { 8 } else { bytes as u32 };
    let pipeline = cx.pipeline(xxh3_128(&key.0), push_bytes, || {
        let mut declared = Params::with_declarations(cx.caps());
        spec.params(args, &mut declared);
        let mut declarations = declared.block(in_buffer);
        if several_lines {
            declarations.insert_str(0, "#define GRID_LINES 2\n");
        }
        KernelSource { name: spec.name(), glsl: spec.source(cx.caps(), &declarations) }
    })?;
    cx.launch(&pipeline, grid, params)
}

/// Spreads `groups` workgroups over two axes: devices promise no more than 65,535 along one. Evenly, as workgroups beyond the
/// last one cost time too: with 65,534 of them a pass over 2^27 numbers took an H200 305 us instead of 258.
fn grid(caps: &Capabilities, groups: u64) -> Result<[u32; 3]> {
    let most = u64::from(caps.max_groups[0]).min(65_535);
    let y = groups.div_ceil(most).max(1);
    if y > u64::from(caps.max_groups[1]) {
        return Err(Error::Unsupported(format!("{groups} workgroups are more than the device runs at once")));
    }
    let x = groups.div_ceil(y).max(1);
    Ok([x as u32, y as u32, 1])
}

/// Fails unless a kernel of cooperative matrices of a type compiles to a valid module.
#[cfg(test)]
pub(super) fn check_matrix_kernel(source: &str, ty: crate::program::Type) {
    let words = crate::pipeline::glsl::compile(source).unwrap();
    // SPIRV-Tools of 2025 do not know bfloat16; that module differs in the type alone.
    if ty == crate::program::Type::BF16 {
        assert!(words.windows(4).any(|words| matches!(words, &[0x0004_0016, _, 16, 0])));
    } else {
        crate::pipeline::spirv::validate(&words).unwrap();
    }
}
