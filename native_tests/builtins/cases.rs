//! The built-ins that the shaders use, with what formulas rely on; those that the library avoids; and its own replacements.

use crate::Want::{Anything, Either, Exactly, Within};
use crate::support::device;
use crate::support::numbers::Number;
use crate::{Case, binary, ternary, unary};

/// Results that expressions take from functions of several results.
pub const HELPERS: &str = "
#include \"lib/ops/rounding.glsl\"
uint product_high(uint a, uint b) { uint high, low; umulExtended(a, b, high, low); return high; }
uint product_low(uint a, uint b) { uint high, low; umulExtended(a, b, high, low); return low; }
uint sum_carry(uint a, uint b) { uint carry; uaddCarry(a, b, carry); return carry; }
uint sum_low(uint a, uint b) { uint carry; return uaddCarry(a, b, carry); }
";

/// The error that formulas allow of a device's division and roots, in units of the last place. Vulkan allows it for floats.
const QUOTIENT: f64 = 2.5;
const ROOT: f64 = 4.0;

macro_rules! of_floats {
    ($cases:ident, $float:ty) => {
        $cases.extend([
            unary("floor(a)", |a: $float| Exactly(a.floor())),
            unary("ceil(a)", |a: $float| Exactly(a.ceil())),
            unary("abs(a)", |a: $float| Exactly(a.abs())),
            unary("-a", |a: $float| Exactly(-a)),
            unary("sqrt(a)", |a: $float| match a {
                0.0 | <$float>::INFINITY => Exactly(a),
                _ if a.is_normal() && a > 0.0 => Within(a.sqrt(), ROOT),
                _ => Anything,
            }),
            unary("inversesqrt(a)", |a: $float| match a {
                _ if a.is_normal() && a > 0.0 => Within(1.0 / a.sqrt(), ROOT),
                _ => Anything,
            }),
            unary("uint(isnan(a))", |a: $float| Exactly(u32::from(a.is_nan()))),
            unary("uint(isinf(a))", |a: $float| Exactly(u32::from(a.is_infinite()))),
            unary("uint(a)", |a: $float| match a {
                0.0..4294967296.0 => Exactly(a as u32),
                _ => Anything,
            }),
            unary("int(a)", |a: $float| match a {
                -2147483648.0..2147483648.0 => Exactly(a as i32),
                _ => Anything,
            }),
            // Formulas handle NaN by themselves.
            binary("min(a, b)", |a: $float, b: $float| match () {
                _ if a.is_nan() || b.is_nan() => Anything,
                _ if a == b => Either(a, b),
                _ => Exactly(a.min(b)),
            }),
            binary("max(a, b)", |a: $float, b: $float| match () {
                _ if a.is_nan() || b.is_nan() => Anything,
                _ if a == b => Either(a, b),
                _ => Exactly(a.max(b)),
            }),
            ternary("clamp(a, b, c)", |a: $float, b: $float, c: $float| match () {
                _ if a.is_nan() || b.is_nan() || c.is_nan() || b > c => Anything,
                _ if a == b || (a < b && b == c) => Either(b, if a == b { a } else { c }),
                _ if a == c || b == c => Either(c, if a == c { a } else { b }),
                _ => Exactly(a.clamp(b, c)),
            }),
            ternary("fma(a, b, c)", |a: $float, b: $float, c: $float| match a.mul_add(b, c) {
                fused if !fused.is_normal() => Anything,
                fused if device().caps.fma => Exactly(fused),
                // Formulas take a product and its error apart only where `fma` rounds once.
                _ if (a * b / 2.0).may_be_flushed() => Anything,
                fused => Either(fused, a * b + c),
            }),
            binary("a + b", |a: $float, b: $float| Exactly(a + b)),
            binary("a - b", |a: $float, b: $float| Exactly(a - b)),
            // The least normal number may be subnormal before it is rounded.
            binary("a * b", |a: $float, b: $float| match a * b {
                product if product.abs() == <$float>::MIN_POSITIVE && (product / 2.0).may_be_flushed() => {
                    Either(product, <$float>::copysign(0.0, product))
                }
                product => Exactly(product),
            }),
            binary("a / b", |a: $float, b: $float| {
                let reciprocal_is_normal = b.is_normal() && (1.0 / b).is_normal();
                if (a / b).is_normal() && reciprocal_is_normal { Within(a / b, QUOTIENT) } else { Anything }
            }),
            binary("uint(a < b)", |a: $float, b: $float| Exactly(u32::from(a < b))),
            binary("uint(a <= b)", |a: $float, b: $float| Exactly(u32::from(a <= b))),
            binary("uint(a > b)", |a: $float, b: $float| Exactly(u32::from(a > b))),
            binary("uint(a >= b)", |a: $float, b: $float| Exactly(u32::from(a >= b))),
            binary("uint(a == b)", |a: $float, b: $float| Exactly(u32::from(a == b))),
            binary("uint(a != b)", |a: $float, b: $float| Exactly(u32::from(a != b))),
            ternary("a < b ? b : c", |a: $float, b: $float, c: $float| Exactly(if a < b { b } else { c })),
            ternary("a < b ? -c : c", |a: $float, b: $float, c: $float| Exactly(if a < b { -c } else { c })),
        ]);
    };
}

macro_rules! of_integers {
    ($cases:ident, $integer:ident, $mask:literal) => {
        $cases.extend([
            binary("a + b", |a: $integer, b: $integer| Exactly(a.wrapping_add(b))),
            binary("a - b", |a: $integer, b: $integer| Exactly(a.wrapping_sub(b))),
            binary("a * b", |a: $integer, b: $integer| Exactly(a.wrapping_mul(b))),
            binary("a / b", |a: $integer, b: $integer| a.checked_div(b).map_or(Anything, Exactly)),
            binary(concat!("a << (b & ", $mask, ")"), |a: $integer, b: $integer| Exactly(a.wrapping_shl(b as u32))),
            binary(concat!("a >> (b & ", $mask, ")"), |a: $integer, b: $integer| Exactly(a.wrapping_shr(b as u32))),
            binary("a & b", |a: $integer, b: $integer| Exactly(a & b)),
            binary("a | b", |a: $integer, b: $integer| Exactly(a | b)),
            binary("a ^ b", |a: $integer, b: $integer| Exactly(a ^ b)),
            unary("~a", |a: $integer| Exactly(!a)),
            unary("-a", |a: $integer| Exactly((0 as $integer).wrapping_sub(a))),
            binary("min(a, b)", |a: $integer, b: $integer| Exactly(a.min(b))),
            binary("max(a, b)", |a: $integer, b: $integer| Exactly(a.max(b))),
            ternary(
                "clamp(a, b, c)",
                |a: $integer, b: $integer, c: $integer| {
                    if b <= c { Exactly(a.clamp(b, c)) } else { Anything }
                },
            ),
            binary("uint(a < b)", |a: $integer, b: $integer| Exactly(u32::from(a < b))),
            binary("uint(a >= b)", |a: $integer, b: $integer| Exactly(u32::from(a >= b))),
            binary("uint(a == b)", |a: $integer, b: $integer| Exactly(u32::from(a == b))),
            ternary("a < b ? b : c", |a: $integer, b: $integer, c: $integer| Exactly(if a < b { b } else { c })),
            unary("double(a)", |a: $integer| Exactly(a as f64)),
            unary("uint(a)", |a: $integer| Exactly(a as u32)),
            unary("int(a)", |a: $integer| Exactly(a as i32)),
            unary("uint64_t(a)", |a: $integer| Exactly(a as u64)),
            unary("int64_t(a)", |a: $integer| Exactly(a as i64)),
            unary("uint(uint8_t(a))", |a: $integer| Exactly(u32::from(a as u8))),
            unary("uint(uint16_t(a))", |a: $integer| Exactly(u32::from(a as u16))),
            unary("int(int8_t(a))", |a: $integer| Exactly(i32::from(a as i8))),
            unary("int(int16_t(a))", |a: $integer| Exactly(i32::from(a as i16))),
        ]);
    };
}

/// What the shaders use.
pub fn used() -> Vec<Case> {
    let mut cases = vec![];
    of_floats!(cases, f32);
    of_floats!(cases, f64);
    of_integers!(cases, u32, "31u");
    of_integers!(cases, i32, "31");
    of_integers!(cases, u64, "63ul");
    of_integers!(cases, i64, "63l");
    if device().caps.int64 {
        cases.push(float_of_uint());
    }
    cases.extend([
        unary("float(a)", |a: i32| Exactly(a as f32)),
        unary("float(a)", |a: u64| Exactly(a as f32)),
        unary("float(a)", |a: i64| Exactly(a as f32)),
        unary("fract(a)", |a: f32| if a >= 0.0 && a.is_finite() { Exactly(a.fract()) } else { Anything }),
        // Weights that are rounded to 16 bits. Vulkan allows 3 + 2 |a| units.
        unary("exp2(a)", |a: f32| if (-126.0..=0.0).contains(&a) { Within(a.exp2(), 255.0) } else { Anything }),
        unary("double(a)", |a: f32| Exactly(f64::from(a))),
        // Subnormals are rounded to in units.
        unary("float(a)", |a: f64| match a.abs() {
            magnitude if magnitude == 0.0 || magnitude >= f64::from(f32::MIN_POSITIVE) || a.is_nan() => {
                Exactly(a as f32)
            }
            _ => Anything,
        }),
        binary("a % b", |a: u32, b: u32| a.checked_rem(b).map_or(Anything, Exactly)),
        binary("a % b", |a: u64, b: u64| a.checked_rem(b).map_or(Anything, Exactly)),
    ]);
    cases.extend(of_bits());
    cases
}

fn of_bits() -> Vec<Case> {
    fn extended(a: i32, width: u32) -> crate::Want<i32> {
        Exactly(a << (32 - width) >> (32 - width))
    }
    vec![
        unary("floatBitsToUint(a)", |a: f32| Exactly(a.to_bits())),
        unary("floatBitsToInt(a)", |a: f32| Exactly(a.to_bits() as i32)),
        unary("uintBitsToFloat(a)", |a: u32| Exactly(f32::from_bits(a))),
        unary("unpackDouble2x32(a).x", |a: f64| Exactly(a.to_bits() as u32)),
        unary("unpackDouble2x32(a).y", |a: f64| Exactly((a.to_bits() >> 32) as u32)),
        binary("packDouble2x32(uvec2(a, b))", |a: u32, b: u32| Exactly(f64::from_bits(words(a, b)))),
        unary("unpackUint2x32(a).x", |a: u64| Exactly(a as u32)),
        unary("unpackUint2x32(a).y", |a: u64| Exactly((a >> 32) as u32)),
        binary("packUint2x32(uvec2(a, b))", |a: u32, b: u32| Exactly(words(a, b))),
        unary("unpack32(a).x", |a: u64| Exactly(a as u32)),
        unary("unpack32(a).y", |a: u64| Exactly((a >> 32) as u32)),
        binary("pack64(uvec2(a, b))", |a: u32, b: u32| Exactly(words(a, b))),
        unary("uint(unpack16(a).y)", |a: u64| Exactly(u32::from((a >> 16) as u16))),
        unary("pack64(u16vec4(unpack16(a)))", |a: u64| Exactly(a)),
        unary("uint(unpack8(a).z)", |a: u32| Exactly(u32::from((a >> 16) as u8))),
        unary("pack32(u8vec4(unpack8(a)))", |a: u32| Exactly(a)),
        unary("findMSB(a)", |a: u32| Exactly(31 - a.leading_zeros() as i32)),
        unary("findLSB(a)", |a: u32| Exactly(if a == 0 { -1 } else { a.trailing_zeros() as i32 })),
        unary("bitCount(a)", |a: u32| Exactly(a.count_ones() as i32)),
        unary("bitfieldExtract(a, 0, 2)", |a: i32| extended(a, 2)),
        unary("bitfieldExtract(a, 0, 4)", |a: i32| extended(a, 4)),
        unary("bitfieldExtract(a, 0, 8)", |a: i32| extended(a, 8)),
        unary("bitfieldExtract(a, 0, 16)", |a: i32| extended(a, 16)),
        binary("product_high(a, b)", |a: u32, b: u32| Exactly(((u64::from(a) * u64::from(b)) >> 32) as u32)),
        binary("product_low(a, b)", |a: u32, b: u32| Exactly(a.wrapping_mul(b))),
        binary("sum_carry(a, b)", |a: u32, b: u32| Exactly(u32::from(a.checked_add(b).is_none()))),
        binary("sum_low(a, b)", |a: u32, b: u32| Exactly(a.wrapping_add(b))),
    ]
}

fn words(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// The library converts by `int` where there are no 64-bit integers, because SwiftShader rounds numbers from 2^31 on twice.
fn float_of_uint() -> Case {
    unary("float(a)", |a: u32| Exactly(a as f32))
}

/// What some driver gets wrong. Lavapipe (Mesa 25.0.7) leaves doubles from 2^24 on as they are in both, where a vector of them is
/// wider than the CPU's instruction for rounding.
pub fn avoided() -> Vec<Case> {
    vec![
        unary("trunc(a)", |a: f32| Exactly(a.trunc())),
        unary("trunc(a)", |a: f64| Exactly(a.trunc())),
        unary("roundEven(a)", |a: f32| Exactly(a.round_ties_even())),
        unary("roundEven(a)", |a: f64| Exactly(a.round_ties_even())),
        float_of_uint(),
    ]
}

macro_rules! library_of_floats {
    ($cases:ident, $float:ident, $nearest:literal, $whole:literal) => {
        $cases.extend([
            unary("fp_truncate(a)", |a: $float| if a.is_nan() { Anything } else { Exactly(a.abs().trunc()) }),
            unary("uint(fp_is_whole(a))", |a: $float| match a {
                _ if a.is_nan() => Anything,
                _ => Exactly(u32::from(a.is_infinite() || a.fract() == 0.0)),
            }),
            unary("fp_nearest(a)", |a: $float| match a.abs() {
                magnitude if magnitude <= $nearest => Exactly(a.round_ties_even() + 0.0),
                _ => Anything,
            }),
            unary("fp_whole(a)", |a: $float| match a.abs() {
                magnitude if magnitude <= $whole => Exactly(a.round_ties_even() as i32),
                _ => Anything,
            }),
            unary("nx_floor(a)", |a: $float| Exactly(a.floor())),
            unary("nx_ceil(a)", |a: $float| Exactly(a.ceil())),
            // Without negative zeros: as BinaryBackend.
            unary("nx_round(a)", |a: $float| Exactly(a.round() + 0.0)),
            unary("nx_abs(a)", |a: $float| Exactly(a.abs())),
            unary("nx_negate(a)", |a: $float| Exactly(-a)),
            unary("uint(is_nan(a))", |a: $float| Exactly(u32::from(a.is_nan()))),
            unary("uint(is_infinity(a))", |a: $float| Exactly(u32::from(a.is_infinite()))),
            unary("uint(is_finite(a))", |a: $float| Exactly(u32::from(a.is_finite()))),
            unary("uint(is_zero(a))", |a: $float| Exactly(u32::from(a == 0.0))),
            unary("uint(is_negative(a))", |a: $float| Exactly(u32::from(a.is_sign_negative()))),
            unary("to_u8(a)", |a: $float| Exactly(wrapped(a.into(), 0, 0xff) as u32 & 0xff)),
            unary("to_s8(a)", |a: $float| Exactly(i32::from(wrapped(a.into(), 0x80, 0x7f) as i8))),
            unary("to_s16(a)", |a: $float| Exactly(i32::from(wrapped(a.into(), 0x8000, 0x7fff) as i16))),
            unary("to_u32(a)", |a: $float| Exactly(wrapped(a.into(), 0, u32::MAX.into()) as u32)),
            unary("to_s32(a)", |a: $float| Exactly(wrapped(a.into(), 1 << 31, i32::MAX as u64) as i32)),
            unary("to_u64(a)", |a: $float| Exactly(wrapped(a.into(), 0, u64::MAX))),
            unary("to_s64(a)", |a: $float| Exactly(wrapped(a.into(), 1 << 63, i64::MAX as u64) as i64)),
            unary("to_f32(a)", |a: $float| Exactly(a as f32)),
            unary("to_f64(a)", |a: $float| Exactly(f64::from(a))),
        ]);
    };
}

/// A float as an integer of 64 bits: truncated and wrapped around, NaN as 0 and infinities as these.
fn wrapped(x: f64, lowest: u64, highest: u64) -> u64 {
    match x {
        f64::INFINITY => highest,
        f64::NEG_INFINITY => lowest,
        _ => (x.trunc() % 18_446_744_073_709_551_616.0) as i128 as u64,
    }
}

/// The library's own.
pub fn library() -> Vec<Case> {
    let mut cases = vec![];
    library_of_floats!(cases, f32, 4194304.0, 4194304.0);
    library_of_floats!(cases, f64, 2251799813685248.0, 2147483647.0);
    cases.extend([
        unary("to_f32(a)", |a: u32| Exactly(a as f32)),
        unary("to_f32(a)", |a: i32| Exactly(a as f32)),
        unary("to_f32(a)", |a: u64| Exactly(a as f32)),
        unary("to_f32(a)", |a: i64| Exactly(a as f32)),
        unary("to_f64(a)", |a: u64| Exactly(a as f64)),
        unary("to_f64(a)", |a: i64| Exactly(a as f64)),
    ]);
    cases
}
