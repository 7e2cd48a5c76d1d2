//! Tensor element types: how they are stored, and the type that kernels compute them in.

use crate::device::Capabilities;
use crate::error::{Error, Result};

/// The element types that kernels read and write, by their Nx names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Type {
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    BF16,
    F32,
    F64,
}

/// What a value is while a kernel holds it: narrow types are widened on loading and narrowed after every op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compute {
    Uint,
    Int,
    Uint64,
    Int64,
    Float,
    Double,
}

impl Type {
    pub const ALL: [Type; 12] = [
        Type::U8,
        Type::U16,
        Type::U32,
        Type::U64,
        Type::S8,
        Type::S16,
        Type::S32,
        Type::S64,
        Type::F16,
        Type::BF16,
        Type::F32,
        Type::F64,
    ];

    /// By Nx's kind and number of bits, as in `{:f, 32}`.
    pub fn from_nx(kind: &str, bits: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|ty| ty.kind() == kind && ty.bits() == bits)
    }

    pub fn kind(self) -> &'static str {
        match self {
            Type::U8 | Type::U16 | Type::U32 | Type::U64 => "u",
            Type::S8 | Type::S16 | Type::S32 | Type::S64 => "s",
            Type::F16 | Type::F32 | Type::F64 => "f",
            Type::BF16 => "bf",
        }
    }

    pub fn bits(self) -> u32 {
        match self {
            Type::U8 | Type::S8 => 8,
            Type::U16 | Type::S16 | Type::F16 | Type::BF16 => 16,
            Type::U32 | Type::S32 | Type::F32 => 32,
            Type::U64 | Type::S64 | Type::F64 => 64,
        }
    }

    /// Bytes of an element.
    pub fn size(self) -> u64 {
        (self.bits() / 8).into()
    }

    pub fn is_float(self) -> bool {
        matches!(self, Type::F16 | Type::BF16 | Type::F32 | Type::F64)
    }

    pub fn is_signed_int(self) -> bool {
        matches!(self, Type::S8 | Type::S16 | Type::S32 | Type::S64)
    }

    pub fn compute(self) -> Compute {
        match self {
            Type::U8 | Type::U16 | Type::U32 => Compute::Uint,
            Type::S8 | Type::S16 | Type::S32 => Compute::Int,
            Type::U64 => Compute::Uint64,
            Type::S64 => Compute::Int64,
            Type::F16 | Type::BF16 | Type::F32 => Compute::Float,
            Type::F64 => Compute::Double,
        }
    }

    /// The GLSL type of an element in a buffer. The 16-bit floats are bits there: rounding to them is ours.
    pub fn storage(self) -> &'static str {
        match self {
            Type::U8 => "uint8_t",
            Type::S8 => "int8_t",
            Type::U16 | Type::F16 | Type::BF16 => "uint16_t",
            Type::S16 => "int16_t",
            Type::U32 => "uint",
            Type::S32 => "int",
            Type::U64 => "uint64_t",
            Type::S64 => "int64_t",
            Type::F32 => "float",
            Type::F64 => "double",
        }
    }

    /// The suffix of this type's functions in `shaders/lib/convert.glsl`.
    pub fn suffix(self) -> String {
        format!("{}{}", self.kind(), self.bits())
    }

    /// The type that both operands of a comparison are converted to, as `Nx.Type.merge/2` has it.
    pub fn merge(self, other: Self) -> Self {
        if self == other {
            return self;
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

    /// Fails where the device cannot hold or compute this type.
    pub fn check(self, caps: &Capabilities) -> Result<()> {
        let has = match self.bits() {
            8 => caps.int8,
            16 => caps.int16,
            64 if self.is_float() => caps.float64,
            64 => caps.int64,
            _ => true,
        };
        if has {
            return Ok(());
        }
        Err(Error::Unsupported(format!("{} has no {}{}", caps.name, self.kind(), self.bits())))
    }
}

impl Compute {
    pub fn glsl(self) -> &'static str {
        match self {
            Compute::Uint => "uint",
            Compute::Int => "int",
            Compute::Uint64 => "uint64_t",
            Compute::Int64 => "int64_t",
            Compute::Float => "float",
            Compute::Double => "double",
        }
    }

    /// Bytes of a value.
    pub fn size(self) -> u64 {
        match self {
            Compute::Uint | Compute::Int | Compute::Float => 4,
            Compute::Uint64 | Compute::Int64 | Compute::Double => 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_is_symmetric_and_follows_nx() {
        for a in Type::ALL {
            for b in Type::ALL {
                assert_eq!(a.merge(b), b.merge(a), "{a:?} {b:?}");
            }
        }
        assert_eq!(Type::U8.merge(Type::S8), Type::S16);
        assert_eq!(Type::U64.merge(Type::S8), Type::S64);
        assert_eq!(Type::S64.merge(Type::BF16), Type::BF16);
        assert_eq!(Type::BF16.merge(Type::F16), Type::F32);
        assert_eq!(Type::F64.merge(Type::BF16), Type::F64);
    }
}
