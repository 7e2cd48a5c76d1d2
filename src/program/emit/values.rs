//! Values as GLSL: loading, storing and converting between element types.

use crate::program::types::{Compute, Type};

/// The widest element type of a compute type.
pub fn of_compute(compute: Compute) -> Type {
    match compute {
        Compute::Uint => Type::U32,
        Compute::Int => Type::S32,
        Compute::Uint64 => Type::U64,
        Compute::Int64 => Type::S64,
        Compute::Float => Type::F32,
        Compute::Double => Type::F64,
        Compute::Complex => Type::C64,
        Compute::ComplexDouble => Type::C128,
    }
}

/// A stored element as a value.
pub fn load(ty: Type, stored: &str) -> String {
    match ty {
        _ if ty.is_narrow_float() => format!("{}_to_float(uint({stored}))", ty.suffix()),
        _ if ty.extends_sign() => format!("to_{}(uint({stored}))", ty.suffix()),
        _ if ty.compute().is_emulated() => stored.into(),
        _ => format!("{}({stored})", ty.compute().glsl()),
    }
}

/// A value of the type, which needs no rounding, as it is stored.
pub fn store(ty: Type, value: &str) -> String {
    match ty {
        Type::BF16 => format!("{}(bf16_bits({value}))", ty.storage()),
        _ if ty.is_narrow_float() => rounded(ty, value),
        _ if ty.extends_sign() => format!("{}(to_u{}({value}))", ty.storage(), ty.bits()),
        _ if ty.compute().is_emulated() => value.into(),
        _ => format!("{}({value})", ty.storage()),
    }
}

/// A float as a narrow type stores it.
fn rounded(ty: Type, value: &str) -> String {
    format!("{}(float_to_{}({value}))", ty.storage(), ty.suffix())
}

/// The element at `index` of the buffer that is the parameter `name`, as a value.
pub fn element(ty: Type, name: &str, index: &str) -> (String, Type) {
    (load(ty, &format!("AT({}, p.{name}, {index})", ty.storage())), ty)
}

/// The assignment of a value, converted to `ty`, to the element at `index` of the buffer that is the parameter `name`.
pub fn assign(ty: Type, name: &str, index: &str, value: (String, Type)) -> String {
    format!("AT({}, p.{name}, {index}) = {}", ty.storage(), stored(ty, value))
}

/// A value, converted to `ty`, as it is stored.
pub fn stored(ty: Type, value: (String, Type)) -> String {
    match (ty, value.1) {
        // Storing rounds f32 as conversions do: twice would be as long again.
        (Type::F16 | Type::BF16, Type::F32) => rounded(ty, &value.0),
        _ => store(ty, &convert(value, ty)),
    }
}

/// A value converted to another type, as `Nx.as_type/2` does.
pub fn convert((value, from): (String, Type), to: Type) -> String {
    match (from.is_complex(), to.is_complex()) {
        _ if from == to => value,
        // Of a complex number the real part is left; a real one gets the imaginary part 0, which grids of two axes
        // have as an index that no compiler knows (see complex/formula.glsl).
        (true, false) => convert((format!("({value}).x"), from.part()), to),
        (false, true) => {
            format!("{}({}, gl_WorkGroupID.z)", to.compute().glsl(), convert((value, from), to.part()))
        }
        _ => format!("to_{}({value})", to.suffix()),
    }
}

/// A value converted to what kernels compute values of `to` in, without the loss of converting it to a narrow `to`.
pub(super) fn widen((value, from): (String, Type), to: Type) -> String {
    convert((value, of_compute(from.compute())), of_compute(to.compute()))
}

/// The bits of a value as another type stores them, of the same width.
pub(super) fn bitcast((value, from): (String, Type), to: Type) -> String {
    let bits = match from.compute() {
        _ if from.bits() < 32 => format!("uint({})", store(from, &value)),
        Compute::Float => format!("floatBitsToUint({value})"),
        Compute::Double => format!("unpackDouble2x32({value})"),
        compute if compute.is_emulated() => format!("({value}).bits"),
        Compute::Uint64 | Compute::Int64 => format!("unpackUint2x32(uint64_t({value}))"),
        Compute::Uint | Compute::Int => format!("uint({value})"),
        Compute::Complex | Compute::ComplexDouble => unreachable!("complex numbers have no bitcast"),
    };
    match to.compute() {
        Compute::Double => format!("packDouble2x32({bits})"),
        compute if compute.is_emulated() => format!("{}({bits})", compute.glsl()),
        Compute::Uint64 | Compute::Int64 => format!("packUint2x32({bits})"),
        Compute::Float if to.bits() == 32 => format!("uintBitsToFloat({bits})"),
        _ => format!("{}({bits})", to.storage()),
    }
}

/// An immediate as its type stores it: `bits` holds 64 bits of it, or 128.
pub(super) fn immediate(ty: Type, bits: &str) -> String {
    match ty.compute() {
        Compute::Double => format!("packDouble2x32({bits})"),
        Compute::Complex => format!("uintBitsToFloat({bits})"),
        Compute::ComplexDouble => format!("dvec2(packDouble2x32({bits}.xy), packDouble2x32({bits}.zw))"),
        compute if compute.is_emulated() => format!("{}({bits})", compute.glsl()),
        Compute::Uint64 | Compute::Int64 => format!("packUint2x32({bits})"),
        Compute::Float if ty.bits() == 32 => format!("uintBitsToFloat({bits}.x)"),
        _ => format!("{}({bits}.x)", ty.storage()),
    }
}
