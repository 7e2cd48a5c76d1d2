//! Specialization constants become plain constants, `LocalSizeId` becomes `LocalSize`. Owns the values of all integer
//! constants; it reads neither types other than integers nor functions.
//!
//! Done here rather than by the driver, so that array lengths and workgroup sizes are known numbers when the rules are
//! checked, and the validator sees the very module that is compiled. SPIRV-Tools' passes do not serve:
//! `--fold-spec-const-op-composite` crashes the process on modules that its validator accepts (SPIRV-Tools 2025.1: a
//! division of -2⁶³ by -1 raises SIGFPE, an `IAdd` whose declared type is bool SIGSEGV), is wrong for `SMod` beyond 2³⁰, and
//! leaves shifts and comparisons of 8 and 16 bits alone; no pass knows `LocalSizeId`; and to choose the text that
//! `--set-spec-const-default-value` reads takes the same look at each constant's type as setting its value.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use ::spirv::{Decoration, ExecutionMode, Op};

use super::tools::Instruction;
use super::{HEADER_WORDS, SpirvError};

/// The type of a scalar that folding knows: a bool is an unsigned integer of one bit.
#[derive(Clone, Copy)]
struct IntegerType {
    bits: u32,
    signed: bool,
}

impl IntegerType {
    const BOOL: Self = Self { bits: 1, signed: false };

    fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// The number that `raw` stands for, sign-extended.
    fn as_signed(self, raw: u64) -> i64 {
        let shift = 64 - self.bits;
        ((raw << shift) as i64) >> shift
    }
}

#[derive(Clone, Copy)]
struct Scalar {
    ty: IntegerType,
    /// The value's bits, zero-extended.
    raw: u64,
}

/// The constants of a module by result id.
#[derive(Default)]
pub(super) struct Constants {
    scalars: HashMap<u32, Scalar>,
    composites: HashMap<u32, Vec<u32>>,
}

impl Constants {
    /// The value of an integer constant; an unsigned one of 64 bits wraps around.
    pub fn integer(&self, id: u32) -> Option<i64> {
        let Scalar { ty, raw } = *self.scalars.get(&id)?;
        Some(if ty.signed { ty.as_signed(raw) } else { raw as i64 })
    }

    /// The same as an index of an access chain, which is signed whatever its type.
    pub fn index(&self, id: u32) -> Option<i64> {
        self.scalars.get(&id).map(|Scalar { ty, raw }| ty.as_signed(*raw))
    }

    /// The ids that a composite constant consists of.
    pub fn constituents(&self, id: u32) -> Option<&[u32]> {
        self.composites.get(&id).map(Vec::as_slice)
    }
}

/// A module without specialization constants.
pub(super) struct Specialised {
    pub words: Vec<u32>,
    /// Ids of the specialization constants it had, ascending.
    pub ids: Vec<u32>,
    pub constants: Constants,
}

/// Gives the specialization constants that `values` names their values, the others their defaults.
pub(super) fn specialise(
    words: &[u32],
    instructions: &[Instruction],
    values: &[(u32, i32)],
) -> Result<Specialised, SpirvError> {
    let mut pass = Specialiser {
        words: words[..HEADER_WORDS].to_vec(),
        values,
        spec_ids: BTreeMap::new(),
        integers: HashMap::new(),
        constants: Constants::default(),
        unfolded: HashSet::new(),
        local_size_ids: Vec::new(),
    };
    for instruction in instructions {
        let words = &words[instruction.start..][..instruction.len];
        if !pass.replaced(instruction, words)? {
            pass.words.extend_from_slice(words);
        }
    }
    for (start, ids) in &pass.local_size_ids {
        for (axis, id) in ids.iter().enumerate() {
            let size = pass
                .constants
                .scalars
                .get(id)
                .ok_or_else(|| unsupported("LocalSizeId is a constant expression that cannot be evaluated here"))?;
            pass.words[start + axis] = size.raw as u32;
        }
    }
    let ids: BTreeSet<u32> = pass.spec_ids.values().copied().collect();
    Ok(Specialised { words: pass.words, ids: ids.into_iter().collect(), constants: pass.constants })
}

fn unsupported(message: impl Into<String>) -> SpirvError {
    SpirvError::Unsupported(message.into())
}

struct Specialiser<'a> {
    /// The specialised module up to the current instruction.
    words: Vec<u32>,
    values: &'a [(u32, i32)],
    /// Specialization constant ids by result id.
    spec_ids: BTreeMap<u32, u32>,
    integers: HashMap<u32, IntegerType>,
    /// Constants whose value is known.
    constants: Constants,
    /// Constants that depend on unevaluated expressions, and these expressions.
    unfolded: HashSet<u32>,
    /// Index in `words` of the first of the three sizes that a `LocalSizeId` names.
    local_size_ids: Vec<(usize, [u32; 3])>,
}

impl Specialiser<'_> {
    /// Takes in an instruction. True where another has been emitted in its stead, or none.
    fn replaced(&mut self, instruction: &Instruction, words: &[u32]) -> Result<bool, SpirvError> {
        let &Instruction { type_id, result_id, .. } = instruction;
        match Op::from_u32(instruction.opcode.into()) {
            Some(Op::Decorate) if words[2] == Decoration::SpecId as u32 => {
                if self.spec_ids.insert(words[1], words[3]).is_some() {
                    return Err(unsupported("a constant with two specialization ids"));
                }
                return Ok(true);
            }
            Some(Op::ExecutionModeId) => {
                if words[2] != ExecutionMode::LocalSizeId as u32 {
                    return Err(unsupported(format!("execution mode {}", words[2])));
                }
                self.emit(Op::ExecutionMode, &[words[1], ExecutionMode::LocalSize as u32, 0, 0, 0]);
                self.local_size_ids.push((self.words.len() - 3, [words[3], words[4], words[5]]));
                return Ok(true);
            }
            Some(Op::TypeBool) => {
                self.integers.insert(result_id, IntegerType::BOOL);
            }
            Some(Op::TypeInt) => {
                self.integers.insert(result_id, IntegerType { bits: words[2], signed: words[3] != 0 });
            }
            Some(op @ (Op::ConstantTrue | Op::ConstantFalse)) => {
                let raw = (op == Op::ConstantTrue).into();
                self.constants.scalars.insert(result_id, Scalar { ty: IntegerType::BOOL, raw });
            }
            Some(op @ (Op::Constant | Op::ConstantNull)) => {
                if let Some(&ty) = self.integers.get(&type_id) {
                    let raw = if op == Op::Constant { literal(&words[3..]) & ty.mask() } else { 0 };
                    self.constants.scalars.insert(result_id, Scalar { ty, raw });
                }
            }
            Some(op @ (Op::SpecConstantTrue | Op::SpecConstantFalse)) => {
                let given = self.given(result_id).map(|value| value != 0);
                let raw = given.unwrap_or(op == Op::SpecConstantTrue).into();
                self.constant(type_id, result_id, Scalar { ty: IntegerType::BOOL, raw });
                return Ok(true);
            }
            Some(Op::SpecConstant) => {
                self.spec_constant(type_id, result_id, words)?;
                return Ok(true);
            }
            Some(op @ (Op::ConstantComposite | Op::SpecConstantComposite)) => {
                self.constants.composites.insert(result_id, words[3..].to_vec());
                if words[3..].iter().any(|id| self.unfolded.contains(id)) {
                    self.unfolded.insert(result_id);
                } else if op == Op::SpecConstantComposite {
                    self.emit(Op::ConstantComposite, &words[1..]);
                    return Ok(true);
                }
            }
            Some(Op::SpecConstantOp) => match self.fold(type_id, words)? {
                Some(scalar) => {
                    self.constant(type_id, result_id, scalar);
                    return Ok(true);
                }
                None => {
                    self.unfolded.insert(result_id);
                }
            },
            _ => {}
        }
        Ok(false)
    }

    /// Emits an `OpSpecConstant` as a plain constant.
    fn spec_constant(&mut self, type_id: u32, result_id: u32, words: &[u32]) -> Result<(), SpirvError> {
        let given = self.given(result_id);
        match (self.integers.get(&type_id), given) {
            (Some(&ty), given) if ty.bits == 32 || given.is_none() => {
                let raw = given.map_or_else(|| literal(&words[3..]), |value| value as u64) & ty.mask();
                self.constant(type_id, result_id, Scalar { ty, raw });
            }
            (_, None) => self.emit(Op::Constant, &words[1..]),
            (_, Some(_)) => {
                let id = self.spec_ids[&result_id];
                return Err(SpirvError::Layout(format!(
                    "specialization constant {id} is not a 32-bit integer, which the call passes"
                )));
            }
        }
        Ok(())
    }

    /// The value that the call gives a specialization constant.
    fn given(&self, result_id: u32) -> Option<i32> {
        let spec_id = self.spec_ids.get(&result_id)?;
        self.values.iter().find(|(id, _)| id == spec_id).map(|(_, value)| *value)
    }

    fn emit(&mut self, op: Op, operands: &[u32]) {
        self.words.push((operands.len() as u32 + 1) << 16 | op as u32);
        self.words.extend_from_slice(operands);
    }

    fn constant(&mut self, type_id: u32, result_id: u32, scalar: Scalar) {
        self.constants.scalars.insert(result_id, scalar);
        let Scalar { ty, raw } = scalar;
        match ty.bits {
            1 if raw != 0 => self.emit(Op::ConstantTrue, &[type_id, result_id]),
            1 => self.emit(Op::ConstantFalse, &[type_id, result_id]),
            64 => self.emit(Op::Constant, &[type_id, result_id, raw as u32, (raw >> 32) as u32]),
            // Literals narrower than a word are sign-extended to it if their type is signed.
            _ if ty.signed => self.emit(Op::Constant, &[type_id, result_id, ty.as_signed(raw) as u32]),
            _ => self.emit(Op::Constant, &[type_id, result_id, raw as u32]),
        }
    }

    /// The value of an `OpSpecConstantOp`, if it is a scalar integer or bool made of known ones.
    fn fold(&self, type_id: u32, words: &[u32]) -> Result<Option<Scalar>, SpirvError> {
        let (Some(&ty), Some(op)) = (self.integers.get(&type_id), Op::from_u32(words[3])) else {
            return Ok(None);
        };
        let Constants { scalars, composites } = &self.constants;
        if op == Op::CompositeExtract {
            let part = words[5..]
                .iter()
                .try_fold(words[4], |composite, index| composites.get(&composite)?.get(*index as usize).copied());
            return Ok(part.and_then(|part| scalars.get(&part)).copied());
        }
        let Some(args) = words[4..].iter().map(|id| scalars.get(id).copied()).collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        let raw = match args[..] {
            [a] => unary(op, a),
            [a, b] => binary(op, a, b)?,
            [condition, a, b] if op == Op::Select => Some(if condition.raw != 0 { a.raw } else { b.raw }),
            _ => None,
        };
        Ok(raw.map(|raw| Scalar { ty, raw: raw & ty.mask() }))
    }
}

fn literal(words: &[u32]) -> u64 {
    u64::from(words[0]) | words.get(1).map_or(0, |high| u64::from(*high) << 32)
}

fn unary(op: Op, a: Scalar) -> Option<u64> {
    Some(match op {
        Op::SNegate => a.raw.wrapping_neg(),
        Op::Not => !a.raw,
        Op::LogicalNot => (a.raw == 0).into(),
        Op::UConvert => a.raw,
        Op::SConvert => a.ty.as_signed(a.raw) as u64,
        _ => return None,
    })
}

fn binary(op: Op, a: Scalar, b: Scalar) -> Result<Option<u64>, SpirvError> {
    let (u, v) = (a.raw, b.raw);
    let (i, j) = (a.ty.as_signed(u), b.ty.as_signed(v));
    let bits = u64::from(a.ty.bits);
    Ok(Some(match op {
        Op::IAdd => u.wrapping_add(v),
        Op::ISub => u.wrapping_sub(v),
        Op::IMul => u.wrapping_mul(v),
        Op::UDiv | Op::UMod | Op::SDiv | Op::SRem | Op::SMod if v == 0 => {
            return Err(unsupported("a constant expression divides by zero"));
        }
        Op::UDiv => u / v,
        Op::UMod => u % v,
        Op::SDiv => i.wrapping_div(j) as u64,
        Op::SRem => i.wrapping_rem(j) as u64,
        // The sign of the divisor.
        Op::SMod => match i.wrapping_rem(j) {
            remainder if remainder != 0 && (remainder < 0) != (j < 0) => (remainder + j) as u64,
            remainder => remainder as u64,
        },
        // A shift by the width or more is undefined in SPIR-V: here it shifts everything out.
        Op::ShiftLeftLogical | Op::ShiftRightLogical if v >= bits => 0,
        Op::ShiftLeftLogical => u << v,
        Op::ShiftRightLogical => u >> v,
        Op::ShiftRightArithmetic => (i >> v.min(bits - 1)) as u64,
        Op::BitwiseOr | Op::LogicalOr => u | v,
        Op::BitwiseXor | Op::LogicalNotEqual => u ^ v,
        Op::BitwiseAnd | Op::LogicalAnd => u & v,
        Op::IEqual | Op::LogicalEqual => (u == v).into(),
        Op::INotEqual => (u != v).into(),
        Op::ULessThan => (u < v).into(),
        Op::ULessThanEqual => (u <= v).into(),
        Op::UGreaterThan => (u > v).into(),
        Op::UGreaterThanEqual => (u >= v).into(),
        Op::SLessThan => (i < j).into(),
        Op::SLessThanEqual => (i <= j).into(),
        Op::SGreaterThan => (i > j).into(),
        Op::SGreaterThanEqual => (i >= j).into(),
        _ => return Ok(None),
    }))
}
