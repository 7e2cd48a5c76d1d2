//! Values as GLSL: loading, storing and converting between element types.

use crate::program::types::{Compute, Type};

/// The widest element type of a compute type.
pub(super) fn of_compute(compute: Compute) -> Type {
    match compute {
        Compute::Uint => Type::U32,
        Compute::Int => Type::S32,
        Compute::Uint64 => Type::U64,
        Compute::Int64 => Type::S64,
        Compute::Float => Type::F32,
        Compute::Double => Type::F64,
    }
}

/// A stored element as a value.
pub fn load(ty: Type, stored: &str) -> String {
    match ty {
        Type::F16 => format!("f16_to_float(uint({stored}))"),
        Type::BF16 => format!("bf16_to_float(uint({stored}))"),
        _ => format!("{}({stored})", ty.compute().glsl()),
    }
}

/// A value as it is stored.
pub fn store(ty: Type, value: &str) -> String {
    match ty {
        Type::F16 => format!("uint16_t(float_to_f16({value}))"),
        Type::BF16 => format!("uint16_t(float_to_bf16({value}))"),
        _ => format!("{}({value})", ty.storage()),
    }
}

/// A value converted to another type, as `Nx.as_type/2` does.
pub fn convert((value, from): (String, Type), to: Type) -> String {
    if from == to { value } else { format!("to_{}({value})", to.suffix()) }
}

/// A value of the compute type brought back into the range of a narrow type after an op.
pub(super) fn narrow(ty: Type, value: &str) -> String {
    match ty.bits() {
        8 | 16 => format!("to_{}({value})", ty.suffix()),
        _ => value.into(),
    }
}

/// The bits of a value as another type stores them, of the same width.
pub(super) fn bitcast((value, from): (String, Type), to: Type) -> String {
    let bits = match from.compute() {
        _ if from.bits() == 16 => format!("uint({})", store(from, &value)),
        Compute::Float => format!("floatBitsToUint({value})"),
        Compute::Double => format!("unpackDouble2x32({value})"),
        Compute::Uint64 | Compute::Int64 => format!("unpackUint2x32(uint64_t({value}))"),
        Compute::Uint | Compute::Int => format!("uint({value})"),
    };
    match to.compute() {
        Compute::Double => format!("packDouble2x32({bits})"),
        Compute::Uint64 | Compute::Int64 => format!("packUint2x32({bits})"),
        Compute::Float if to.bits() == 32 => format!("uintBitsToFloat({bits})"),
        _ => format!("{}({bits})", to.storage()),
    }
}

/// An immediate's 64 bits as its type stores them.
pub(super) fn immediate(ty: Type, bits: &str) -> String {
    match ty.compute() {
        Compute::Double => format!("packDouble2x32({bits})"),
        Compute::Uint64 | Compute::Int64 => format!("packUint2x32({bits})"),
        Compute::Float if ty.bits() == 32 => format!("uintBitsToFloat({bits}.x)"),
        _ => format!("{}({bits}.x)", ty.storage()),
    }
}
