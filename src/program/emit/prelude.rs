//! The text that every kernel starts with: extensions, float modes, and how elements are addressed. It rests on the device's
//! capabilities and on the types alone.

use std::fmt::Write as _;

use crate::device::Capabilities;
use crate::program::types::{Compute, Type};

/// The start of every built-in kernel: extensions, float modes, buffer and index types, the parameters' block, and the
/// conversions. `storages` names the buffers' types; `computes` all types that the kernel computes in: the library's
/// 64-bit halves are compiled only where they are used. `workgroup()` is the index of the workgroup in the grid.
pub fn head(caps: &Capabilities, index64: bool, storages: &[&str], computes: &[Compute], parameters: &str) -> String {
    let divided = if caps.cpu || index64 { DIVIDED } else { DIVIDED_BY_MAGIC };
    head_of(caps, index64, "", storages, computes, parameters) + divided
}

/// `DIVIDED(a, b, magic)` is the quotient of an index and a parameter that `Params::divisor` gave, or a constant.
const DIVIDED: &str = "#define DIVIDED(a, b, magic) QUOTIENT(a, b)\n";
const DIVIDED_BY_MAGIC: &str = "uint divided(uint a, uvec2 magic) {\n  uint high, low;\n  umulExtended(a, magic.x, high, low);\n  \
                                return (high + a) >> magic.y;\n}\n#define DIVIDED(a, b, magic) divided(a, magic)\n";

/// As [`head`], of a kernel whose invocations read what others wrote, by 32-bit indices.
pub(super) fn coherent_head(caps: &Capabilities, storages: &[&str], computes: &[Compute], parameters: &str) -> String {
    head_of(caps, false, "coherent ", storages, computes, parameters) + DIVIDED
}

/// `qualifier` is that of the buffers' blocks.
fn head_of(
    caps: &Capabilities,
    index64: bool,
    qualifier: &str,
    storages: &[&str],
    computes: &[Compute],
    parameters: &str,
) -> String {
    let complex = computes.iter().any(|compute| matches!(compute, Compute::Complex | Compute::ComplexDouble));
    let mut computes = computes.to_vec();
    if complex {
        computes.push(Type::C64.working(caps).compute());
    }
    let mut text = prelude(caps, index64, qualifier, storages, &computes);
    text.push_str(parameters);
    text.push_str("#include \"lib/convert.glsl\"\n");
    if complex {
        text.push_str("#include \"lib/complex/convert.glsl\"\n");
    }
    text.push_str("#include \"lib/grid.glsl\"\n");
    text
}

fn prelude(caps: &Capabilities, index64: bool, qualifier: &str, storages: &[&str], computes: &[Compute]) -> String {
    let uses = |types: &[Compute]| computes.iter().any(|compute| types.contains(compute));
    let float64 = uses(&[Compute::Double, Compute::ComplexDouble]);
    let int64 = caps.int64 && (index64 || float64 || uses(&[Compute::Uint64, Compute::Int64]));
    let mut text = String::from(
        "#version 460\n\
         #extension GL_GOOGLE_include_directive : require\n\
         #include \"lib/extensions.glsl\"\n",
    );
    // Subnormals, infinities and NaN are kept and rounding is to even wherever the device can promise it.
    let mut mode = |has: bool, capability: u32, mode: u32, width: u32| {
        if has {
            let extension = "extensions = [\"SPV_KHR_float_controls\"]";
            let _ =
                writeln!(text, "spirv_execution_mode({extension}, capabilities = [{capability}], {mode}, {width});");
        }
    };
    mode(caps.denorm_preserve, 4464, 4459, 32);
    mode(caps.signed_zero_inf_nan, 4466, 4461, 32);
    mode(caps.round_to_even, 4467, 4462, 32);
    mode(float64 && caps.denorm_preserve64, 4464, 4459, 64);
    mode(float64 && caps.signed_zero_inf_nan64, 4466, 4461, 64);
    for (has, name) in [
        (float64, "HAS_FLOAT64"),
        (int64, "HAS_INT64"),
        (caps.fma, "HAS_FMA"),
        (caps.fast_float64, "FAST_FLOAT64"),
        (caps.denorm_preserve, "KEEPS_SUBNORMALS"),
        (caps.compares_subnormals, "COMPARES_SUBNORMALS"),
        (caps.subnormal_doubles, "SUBNORMAL_DOUBLES"),
        // Of the drivers that were tried, the one without 64-bit integers converts unsigned ones inexactly.
        (!caps.int64, "UINT_BY_INT"),
    ] {
        if has {
            let _ = writeln!(text, "#define {name}");
        }
    }
    // The remainder of doubles is found in words too.
    if (float64 || uses(&[Compute::Uint64, Compute::Int64])) && !caps.int64 {
        text.push_str("#define EMULATED_INT64\nstruct U64 { uvec2 bits; };\nstruct S64 { uvec2 bits; };\n");
    }
    let _ = writeln!(text, "#define IDX {}", if index64 { "uint64_t" } else { "uint" });
    let mut seen: Vec<&str> = vec![];
    for &storage in storages {
        if !seen.contains(&storage) {
            seen.push(storage);
            let _ = writeln!(
                text,
                "layout(buffer_reference, scalar) {qualifier}buffer Buffer_{storage} {{ {storage} v[]; }};"
            );
            let vector = vec4_of(storage);
            let align = vec4_bytes(storage);
            let _ = writeln!(
                text,
                "layout(buffer_reference, scalar, buffer_reference_align = {align}) buffer Vec4_{storage} {{ {vector} v[]; }};\n\
                 #define SIZE_{storage} {}ul",
                align / 4
            );
        }
    }
    // A buffer reference as one of another type, and one of two. SwiftShader, which has no 64-bit integers, ends the process on an
    // `OpBitcast` between two pointer types, and on an `OpSelect` of pointers.
    let (cast, either) = if caps.int64 { ("b", "x ? a : b") } else { ("uvec2(b)", "R(x ? uvec2(a) : uvec2(b))") };
    let _ = writeln!(text, "#define CAST(R, b) R({cast})\n#define EITHER(R, x, a, b) ({either})");
    // Arrays take 32-bit indices; beyond that the address itself is moved.
    text.push_str(if index64 {
        "#define AT(T, b, i) Buffer_##T(uint64_t(b) + uint64_t(i) * SIZE_##T).v[0]\n\
         #define VEC4_AT(T, b, i) Vec4_##T(uint64_t(b) + uint64_t(i) * 4ul * SIZE_##T).v[0]\n"
    } else {
        "#define AT(T, b, i) b.v[i]\n\
         #define VEC4_AT(T, b, i) CAST(Vec4_##T, b).v[i]\n"
    });
    words(&mut text, caps, &seen);
    invocations(&mut text, caps, index64);
    text
}

/// How four elements are loaded and stored: at once or, on a CPU device, which moves the elements of
/// vectors one by one, in words as large as it moves.
fn words(text: &mut String, caps: &Capabilities, storages: &[&str]) {
    if !(caps.cpu && caps.int64) {
        text.push_str(
            "#define LOAD_VEC4(T, b, i) VEC4_AT(T, b, i)\n#define SET_VEC4(T, b, i, q) VEC4_AT(T, b, i) = q\n",
        );
        return;
    }
    for &storage in storages {
        let (vector, align) = (vec4_of(storage), vec4_bytes(storage));
        let (word, from, to) = match storage {
            "float" => (
                "u64vec2",
                "uintBitsToFloat(uvec4(unpack32(w.x), unpack32(w.y)))",
                "u64vec2(pack64(floatBitsToUint(q.xy)), pack64(floatBitsToUint(q.zw)))",
            ),
            "uint" | "int" => (
                "u64vec2",
                "(uvec4(unpack32(w.x), unpack32(w.y)))",
                "u64vec2(pack64(uvec2(q.xy)), pack64(uvec2(q.zw)))",
            ),
            "uint16_t" | "int16_t" => ("uint64_t", "(unpack16(w))", "pack64(u16vec4(q))"),
            "uint8_t" | "int8_t" => ("uint", "(unpack8(w))", "pack32(u8vec4(q))"),
            _ => (vector, "(w)", "q"),
        };
        let _ = writeln!(
            text,
            "layout(buffer_reference, scalar, buffer_reference_align = {align}) buffer Words_{storage} {{ {word} v[]; }};\n\
             {vector} load_vec4_{storage}(Words_{storage} b) {{ {word} w = b.v[0]; return {vector}({from}); }}\n\
             void set_vec4_{storage}(Words_{storage} b, {vector} q) {{ b.v[0] = {to}; }}"
        );
    }
    let at = "Words_##T(uint64_t(b) + uint64_t(i) * (4ul * SIZE_##T))";
    let _ = writeln!(
        text,
        "#define LOAD_VEC4(T, b, i) load_vec4_##T({at})\n#define SET_VEC4(T, b, i, q) set_vec4_##T({at}, q)"
    );
}

/// `INVOCATION` is the index of the invocation in its workgroup, of whole subgroups along one axis; `QUOTIENT` divides
/// indices. A CPU device divides neither the one nor the other as vectors, nor does it convert to integers. `ONCE` is a
/// number that all invocations of a workgroup have: in kernels with barriers llvmpipe repeats the arithmetic that led to a value in each
/// branch behind them, divisions included, but not what lanes handed to each other.
fn invocations(text: &mut String, caps: &Capabilities, index64: bool) {
    let invocation = match caps.subgroup {
        1.. if caps.cpu => format!("(gl_SubgroupID * {}u + gl_SubgroupInvocationID)", caps.subgroup),
        _ => "gl_LocalInvocationID.x".into(),
    };
    let quotient = if caps.cpu && caps.float64 && !index64 {
        // A quotient q of 32-bit integers lies 2^-32 q or more below the next whole number, so q (1 + 2^-50) - 1/2 is nearer
        // to the whole number wanted than to any other. Adding 1.5 * 2^52 leaves that in the low word.
        text.push_str(
            "uint quotient(uint a, uint b) {\n\
             \x20 precise double q = double(a) / double(b);\n\
             \x20 precise double above = q + q * 8.8817841970012523e-16lf;\n\
             \x20 precise double shifted = (above - 0.5lf) + 6755399441055744.0lf;\n\
             \x20 return unpackDouble2x32(shifted).x;\n}\n",
        );
        "quotient(a, b)"
    } else {
        "((a) / (b))"
    };
    let once = if caps.cpu && caps.subgroup > 0 { "subgroupBroadcastFirst(x)" } else { "(x)" };
    let _ =
        writeln!(text, "#define INVOCATION {invocation}\n#define QUOTIENT(a, b) {quotient}\n#define ONCE(x) {once}");
}

/// The GLSL type of four elements of a storage type.
pub fn vec4_of(storage: &str) -> &'static str {
    match storage {
        "uint8_t" => "u8vec4",
        "int8_t" => "i8vec4",
        "uint16_t" => "u16vec4",
        "int16_t" => "i16vec4",
        "uint" => "uvec4",
        "int" => "ivec4",
        "uint64_t" => "u64vec4",
        "int64_t" => "i64vec4",
        "double" => "dvec4",
        // Four columns of two.
        "vec2" => "mat4x2",
        "dvec2" => "dmat4x2",
        _ => "vec4",
    }
}

/// Bytes of four elements of a storage type, to which their address is aligned.
pub fn vec4_bytes(storage: &str) -> u64 {
    match storage {
        "uint8_t" | "int8_t" => 4,
        "uint16_t" | "int16_t" => 8,
        "uint64_t" | "int64_t" | "double" | "vec2" | "uvec2" => 32,
        "dvec2" => 64,
        _ => 16,
    }
}
