//! Tensor element types: how they are stored, and the type that kernels compute them in.

use crate::device::{Capabilities, IntegerFeature, lacks};
use crate::error::{Error, Result};

/// What numbers a type has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Numbers {
    Unsigned,
    Signed,
    Float,
    Complex,
}

/// All that is particular to an element type.
struct TypeRow {
    /// Nx's name of the kind, as in `{:f, 32}`.
    kind: &'static str,
    bits: u32,
    numbers: Numbers,
    /// The GLSL type of an element in a buffer, on a device with integers of every width.
    storage: &'static str,
    compute: Compute,
}

macro_rules! element_types {
    ($($(#[$doc:meta])* $name:ident: $kind:literal, $bits:literal, $numbers:ident, $storage:literal, $compute:ident;)*) => {
        /// The element types that kernels read and write, by their Nx names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Type {
            $(
                #[doc = concat!("Nx's `{:", $kind, ", ", $bits, "}`.")]
                $(#[$doc])*
                $name,
            )*
        }

        /// The table of element types, in the order of [`Type`].
        const ROWS: &[TypeRow] = &[$(TypeRow {
            kind: $kind,
            bits: $bits,
            numbers: Numbers::$numbers,
            storage: $storage,
            compute: Compute::$compute,
        },)*];

        impl Type {
            /// All element types, in the order of the table.
            pub const ALL: [Type; ROWS.len()] = [$(Type::$name,)*];
        }
    };
}

// A new type is a row here, its conversions in shaders/lib/convert.glsl, and what CONTRIBUTING.md lists besides. The narrow floats
// are bits in buffers: rounding to them is the conversions'.
element_types! {
    U2: "u", 2, Unsigned, "uint8_t", Uint;
    U4: "u", 4, Unsigned, "uint8_t", Uint;
    U8: "u", 8, Unsigned, "uint8_t", Uint;
    U16: "u", 16, Unsigned, "uint16_t", Uint;
    U32: "u", 32, Unsigned, "uint", Uint;
    U64: "u", 64, Unsigned, "uint64_t", Uint64;
    S2: "s", 2, Signed, "uint8_t", Int;
    S4: "s", 4, Signed, "uint8_t", Int;
    S8: "s", 8, Signed, "int8_t", Int;
    S16: "s", 16, Signed, "int16_t", Int;
    S32: "s", 32, Signed, "int", Int;
    S64: "s", 64, Signed, "int64_t", Int64;
    /// 5 bits of exponent, 2 of significand.
    F8: "f", 8, Float, "uint8_t", Float;
    /// 4 bits of exponent, 3 of significand, no infinities.
    F8E4M3FN: "f8_e4m3fn", 8, Float, "uint8_t", Float;
    F16: "f", 16, Float, "uint16_t", Float;
    BF16: "bf", 16, Float, "uint16_t", Float;
    F32: "f", 32, Float, "float", Float;
    F64: "f", 64, Float, "double", Double;
    C64: "c", 64, Complex, "vec2", Complex;
    C128: "c", 128, Complex, "dvec2", ComplexDouble;
}

/// Who computes with a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// The device, with its own types.
    Device,
    /// The device, in kernels that do without a feature it lacks.
    Emulated,
    /// Only the CPU.
    Fallback,
}

/// What a value is while a kernel holds it: narrow types are widened on loading and narrowed after every op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compute {
    /// An unsigned integer of 32 bits.
    Uint,
    /// A signed integer of 32 bits.
    Int,
    /// An unsigned integer of 64 bits, a structure where the device has none.
    Uint64,
    /// A signed integer of 64 bits, a structure where the device has none.
    Int64,
    /// A float of 32 bits.
    Float,
    /// A float of 64 bits.
    Double,
    /// Two floats, real and imaginary part.
    Complex,
    /// Two doubles.
    ComplexDouble,
}

impl Type {
    /// By Nx's kind and number of bits, as in `{:f, 32}`.
    pub fn from_nx(kind: &str, bits: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|ty| ty.bits() == bits && ty.kind() == kind)
    }

    fn row(self) -> &'static TypeRow {
        &ROWS[self as usize]
    }

    /// Nx's name of the kind: `f` of `{:f, 32}`.
    pub fn kind(self) -> &'static str {
        self.row().kind
    }

    /// Bits of an element, as Nx counts them.
    pub fn bits(self) -> u32 {
        self.row().bits
    }

    /// Bytes of an element in a buffer.
    pub fn size(self) -> u64 {
        (self.held_bits() / 8).into()
    }

    /// Bits that an element takes in a buffer, of which it uses the low ones: a byte at least.
    pub fn held_bits(self) -> u32 {
        match self.bits() {
            2 | 4 | 8 if lacks(IntegerFeature::Int8) => 32,
            16 if lacks(IntegerFeature::Int16) => 32,
            bits => bits.max(8),
        }
    }

    /// Whether an element has more bits in a buffer than its own.
    fn is_padded(self) -> bool {
        self.bits() < self.held_bits()
    }

    /// Whether a narrower element has a 32-bit word of its own.
    fn takes_word(self) -> bool {
        self.bits() < 32 && self.held_bits() == 32
    }

    /// Whether the sign of an element has to be extended when it is read.
    pub fn extends_sign(self) -> bool {
        self.is_signed_int() && self.is_padded()
    }

    /// Whether its numbers are real floats, of any width.
    pub fn is_float(self) -> bool {
        self.row().numbers == Numbers::Float
    }

    /// Whether it is a float that buffers hold as bits, and kernels compute with as f32.
    pub fn is_narrow_float(self) -> bool {
        self.is_float() && self.bits() < 32
    }

    /// Whether its numbers are complex.
    pub fn is_complex(self) -> bool {
        self.row().numbers == Numbers::Complex
    }

    /// The type of a complex type's parts; every other type itself.
    pub fn part(self) -> Self {
        match self {
            Type::C64 => Type::F32,
            Type::C128 => Type::F64,
            other => other,
        }
    }

    /// The type that formulas compute in: c64 in double where the device has it, rounded once, as BinaryBackend does.
    pub fn working(self, caps: &Capabilities) -> Self {
        if self == Type::C64 && caps.float64 { Type::C128 } else { self }
    }

    /// Whether its numbers are signed integers.
    pub fn is_signed_int(self) -> bool {
        self.row().numbers == Numbers::Signed
    }

    /// The type that kernels hold its values in.
    pub fn compute(self) -> Compute {
        self.row().compute
    }

    /// The GLSL type of an element in a buffer.
    pub fn storage(self) -> &'static str {
        match self.compute() {
            _ if self.takes_word() => "uint",
            compute if compute.is_emulated() => compute.glsl(),
            _ => self.row().storage,
        }
    }

    /// The suffix of this type's functions in `shaders/lib/convert.glsl`.
    pub fn suffix(self) -> String {
        let (kind, bits) = (self.kind(), self.bits());
        // The names of some kinds have their width in them.
        if kind.contains(|c: char| c.is_ascii_digit()) { kind.into() } else { format!("{kind}{bits}") }
    }

    /// The type in which both operands of a comparison meet, as `Nx.Type.merge/2` has it but that floats of one width
    /// and different formats meet in f32.
    pub fn merge(self, other: Self) -> Self {
        if self == other {
            return self;
        }
        if self.is_complex() || other.is_complex() {
            let double = [self, other].iter().any(|ty| matches!(ty, Type::F64 | Type::C128));
            return if double { Type::C128 } else { Type::C64 };
        }
        match (self.is_float(), other.is_float()) {
            (true, false) => self,
            (false, true) => other,
            (true, true) if self.bits() == other.bits() => Type::F32,
            (true, true) => Self::wider(self, other),
            (false, false) if self.is_signed_int() == other.is_signed_int() => Self::wider(self, other),
            (false, false) => {
                let (signed, unsigned) = if self.is_signed_int() { (self, other) } else { (other, self) };
                let bits = signed.bits().max(unsigned.bits() * 2).min(64);
                Self::from_nx("s", bits).unwrap_or(Type::S64)
            }
        }
    }

    fn wider(a: Self, b: Self) -> Self {
        if a.bits() >= b.bits() { a } else { b }
    }

    /// Who computes with this type in programs and products.
    pub fn support(self, caps: &Capabilities) -> Support {
        match self {
            Type::F64 | Type::C128 if !caps.float64 => Support::Fallback,
            Type::U64 | Type::S64 if !caps.int64 => Support::Emulated,
            _ if self.takes_word() => Support::Emulated,
            _ => Support::Device,
        }
    }

    /// Fails where programs cannot compute with this type.
    pub fn check_program(self, caps: &Capabilities) -> Result<()> {
        match self.support(caps) {
            Support::Fallback => Err(Error::Unsupported(format!("{} has no {}", caps.name, self.suffix()))),
            _ => Ok(()),
        }
    }

    /// Fails where hand-written kernels, which use GLSL's operators, cannot compute with this type.
    pub fn check(self, caps: &Capabilities) -> Result<()> {
        self.check_program(caps)?;
        if self.compute().is_emulated() {
            return Err(Error::Unsupported(format!("{} has no {}", caps.name, self.suffix())));
        }
        Ok(())
    }
}

impl Compute {
    /// Whether values are structures, which GLSL's operators do not take.
    pub fn is_emulated(self) -> bool {
        matches!(self, Compute::Uint64 | Compute::Int64) && lacks(IntegerFeature::Int64)
    }

    /// A small number as a value.
    pub fn literal(self, number: u32) -> String {
        if self.is_emulated() {
            return format!("{}(uvec2({number}u, 0u))", self.glsl());
        }
        format!("{}({number})", self.glsl())
    }

    /// The GLSL name of the type, a structure of `shaders/lib` where it is emulated.
    pub fn glsl(self) -> &'static str {
        match self {
            Compute::Uint => "uint",
            Compute::Int => "int",
            Compute::Uint64 if lacks(IntegerFeature::Int64) => "U64",
            Compute::Int64 if lacks(IntegerFeature::Int64) => "S64",
            Compute::Uint64 => "uint64_t",
            Compute::Int64 => "int64_t",
            Compute::Float => "float",
            Compute::Double => "double",
            Compute::Complex => "vec2",
            Compute::ComplexDouble => "dvec2",
        }
    }

    /// The type of a local value that compilers may not compute in another way. Integers have no rounding that could differ, and
    /// compilers add three at once.
    pub fn precise(self) -> String {
        let integer = matches!(self, Compute::Uint | Compute::Int | Compute::Uint64 | Compute::Int64);
        let qualifier = if integer { "" } else { "precise " };
        format!("{qualifier}{}", self.glsl())
    }

    /// Bytes of a value.
    pub fn size(self) -> u64 {
        match self {
            Compute::Uint | Compute::Int | Compute::Float => 4,
            Compute::Uint64 | Compute::Int64 | Compute::Double | Compute::Complex => 8,
            Compute::ComplexDouble => 16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_known_by_nx_names() {
        for ty in Type::ALL {
            assert_eq!(Type::from_nx(ty.kind(), ty.bits()), Some(ty));
            assert_eq!(Type::ALL[ty as usize], ty);
        }
        assert_eq!(Type::F8E4M3FN.suffix(), "f8_e4m3fn");
        assert_eq!(Type::BF16.suffix(), "bf16");
        assert!(Type::from_nx("f8_e4m3fn", 16).is_none());
    }

    #[test]
    fn merging_is_symmetric_and_follows_nx() {
        for a in Type::ALL {
            for b in Type::ALL {
                assert_eq!(a.merge(b), b.merge(a), "{a:?} {b:?}");
            }
        }
        assert_eq!(Type::U8.merge(Type::S8), Type::S16);
        assert_eq!(Type::U2.merge(Type::S2), Type::S4);
        assert_eq!(Type::U4.merge(Type::S16), Type::S16);
        assert_eq!(Type::U64.merge(Type::S8), Type::S64);
        assert_eq!(Type::F8.merge(Type::F16), Type::F16);
        assert_eq!(Type::S64.merge(Type::BF16), Type::BF16);
        assert_eq!(Type::BF16.merge(Type::F16), Type::F32);
        assert_eq!(Type::F64.merge(Type::BF16), Type::F64);
    }
}
