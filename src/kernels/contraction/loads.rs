//! What the kernels of products load at once: the vectors of tiles, and eight neighbours for cooperative matrices.

use crate::pipeline::glsl::BFLOAT16;
use crate::program::Type;
use crate::program::emit::vec4_of;
use crate::program::types::Compute;

/// What kernels of cooperative matrices of a type need: `EIGHT`, which loads eight elements of 16 bits at once, and bfloat16 under the name
/// that the compiler knows.
pub fn matrix_loads(ty: Type, index64: bool) -> String {
    format!(
        "{}layout(buffer_reference, scalar, buffer_reference_align = 16) readonly restrict buffer Eights {{ uvec4 v[]; }};\n\
         #define EIGHT(b, i) {}\n",
        if ty == Type::BF16 { BFLOAT16 } else { "" },
        if index64 { "Eights(uint64_t(b) + (i) * 2ul).v[0]" } else { "Eights(b).v[(i) / 8]" },
    )
}

/// `EIGHT_BYTES`, which loads eight integers of a type at once, and `eight_of_bytes`, which makes 16-bit floats of them: these have all 8 bits.
pub(super) fn byte_loads(bytes: Type, float: Type, index64: bool) -> String {
    let bits = if float == Type::BF16 { "bf16_bits" } else { "float_to_f16" };
    format!(
        "layout(buffer_reference, scalar, buffer_reference_align = 8) readonly restrict buffer ByteEights {{ uvec2 v[]; }};\n\
         #define EIGHT_BYTES(b, i) {eight}\n\
         uint pair_of_bytes(uint bytes, uint at) {{\n\
         \x20 float a = float({byte}(bytes << (24 - at)) >> 24), b = float({byte}(bytes << (16 - at)) >> 24);\n\
         \x20 return {bits}(a) | {bits}(b) << 16;\n}}\n\
         uvec4 eight_of_bytes(uvec2 q) {{\n\
         \x20 return uvec4(pair_of_bytes(q.x, 0), pair_of_bytes(q.x, 16), pair_of_bytes(q.y, 0), pair_of_bytes(q.y, 16));\n}}\n",
        eight = if index64 { "ByteEights(uint64_t(b) + (i)).v[0]" } else { "ByteEights(b).v[(i) / 8]" },
        byte = if bytes == Type::S8 { "int" } else { "uint" },
    )
}

/// The GLSL type of the elements that are read from shared memory at once.
pub fn shared_vector(element: Compute) -> &'static str {
    match element {
        Compute::Float => "vec4",
        Compute::Uint => "uvec4",
        Compute::Int => "ivec4",
        Compute::Double | Compute::ComplexDouble => "dvec2",
        Compute::Uint64 => "u64vec2",
        Compute::Int64 => "i64vec2",
        Compute::Complex => "vec2",
    }
}

/// The GLSL type of `width` elements of a storage type.
pub(super) fn vector_of(storage: &'static str, width: u64) -> &'static str {
    match (width, storage) {
        (1, _) => storage,
        (2, "double") => "dvec2",
        (2, "uint64_t") => "u64vec2",
        (2, "int64_t") => "i64vec2",
        (2, "vec2") => "mat2",
        _ => vec4_of(storage),
    }
}
