//! Specialization constants become plain constants, `LocalSizeId` becomes `LocalSize`.
//!
//! Done here rather than by the driver, so that array lengths and workgroup sizes are known numbers when the rules are
//! checked, and the validator sees the very module that is compiled.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use ::spirv::{Decoration, ExecutionMode, Op};

use super::tools::Instruction;
use super::{HEADER_WORDS, SpirvError};

/// The type of a scalar that folding knows: a bool is an unsigned integer of one bit.
#[derive(Clone, Copy)]
struct Integer {
    bits: u32,
    signed: bool,
}

impl Integer {
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
    ty: Integer,
    /// The value's bits, zero-extended.
    raw: u64,
}

/// The specialised module, and the ids of the specialization constants it had.
pub(super) fn specialise(
    words: &[u32],
    instructions: &[Instruction],
    values: &[(u32, i32)],
) -> Result<(Vec<u32>, Vec<u32>), SpirvError> {
    let mut pass = Pass { out: words[..HEADER_WORDS].to_vec(), ..Pass::default() };
    for instruction in instructions {
        let words = &words[instruction.start..][..instruction.len];
        pass.instruction(instruction, words, values)?;
    }
    for (at, ids) in &pass.local_size_ids {
        for (offset, id) in ids.iter().enumerate() {
            let size = pass.scalars.get(id).ok_or_else(|| unknown("LocalSizeId"))?;
            pass.out[at + offset] = size.raw as u32;
        }
    }
    let ids: BTreeSet<u32> = pass.spec_ids.values().copied().collect();
    Ok((pass.out, ids.into_iter().collect()))
}

fn unknown(what: &str) -> SpirvError {
    SpirvError::Unsupported(format!("{what} is a constant expression that cannot be evaluated here"))
}

#[derive(Default)]
struct Pass {
    out: Vec<u32>,
    /// Specialization constant ids by result id.
    spec_ids: BTreeMap<u32, u32>,
    integers: HashMap<u32, Integer>,
    /// Scalar constants whose value is known.
    scalars: HashMap<u32, Scalar>,
    /// Constituents of composite constants.
    composites: HashMap<u32, Vec<u32>>,
    /// Constants that depend on unevaluated expressions, and these expressions.
    unfolded: HashSet<u32>,
    /// Where in `out` the three sizes of a `LocalSizeId` go.
    local_size_ids: Vec<(usize, [u32; 3])>,
}

impl Pass {
    fn instruction(
        &mut self,
        instruction: &Instruction,
        words: &[u32],
        values: &[(u32, i32)],
    ) -> Result<(), SpirvError> {
        let &Instruction { type_id, result_id, .. } = instruction;
        match Op::from_u32(instruction.opcode.into()) {
            Some(Op::Decorate) if words[2] == Decoration::SpecId as u32 => {
                if self.spec_ids.insert(words[1], words[3]).is_some() {
                    return Err(SpirvError::Unsupported("a constant with two specialization ids".into()));
                }
                return Ok(());
            }
            Some(Op::ExecutionModeId) => {
                if words[2] != ExecutionMode::LocalSizeId as u32 {
                    return Err(SpirvError::Unsupported(format!("execution mode {}", words[2])));
                }
                self.emit(Op::ExecutionMode, &[words[1], ExecutionMode::LocalSize as u32, 0, 0, 0]);
                self.local_size_ids.push((self.out.len() - 3, [words[3], words[4], words[5]]));
                return Ok(());
            }
            Some(Op::TypeBool) => {
                self.integers.insert(result_id, Integer::BOOL);
            }
            Some(Op::TypeInt) => {
                self.integers.insert(result_id, Integer { bits: words[2], signed: words[3] != 0 });
            }
            Some(op @ (Op::ConstantTrue | Op::ConstantFalse)) => {
                let raw = (op == Op::ConstantTrue).into();
                self.scalars.insert(result_id, Scalar { ty: Integer::BOOL, raw });
            }
            Some(Op::ConstantNull) => {
                if let Some(&ty) = self.integers.get(&type_id) {
                    self.scalars.insert(result_id, Scalar { ty, raw: 0 });
                }
            }
            Some(Op::Constant) => {
                if let Some(&ty) = self.integers.get(&type_id) {
                    let raw = literal(&words[3..]) & ty.mask();
                    self.scalars.insert(result_id, Scalar { ty, raw });
                }
            }
            Some(op @ (Op::SpecConstantTrue | Op::SpecConstantFalse)) => {
                let raw = match self.value(result_id, values) {
                    Some(value) => (value != 0).into(),
                    None => (op == Op::SpecConstantTrue).into(),
                };
                self.constant(type_id, result_id, Scalar { ty: Integer::BOOL, raw });
                return Ok(());
            }
            Some(Op::SpecConstant) => {
                let given = self.value(result_id, values);
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
                return Ok(());
            }
            Some(op @ (Op::ConstantComposite | Op::SpecConstantComposite)) => {
                self.composites.insert(result_id, words[3..].to_vec());
                let folded = !words[3..].iter().any(|id| self.unfolded.contains(id));
                if op == Op::SpecConstantComposite && folded {
                    self.emit(Op::ConstantComposite, &words[1..]);
                    return Ok(());
                }
                if !folded {
                    self.unfolded.insert(result_id);
                }
            }
            Some(Op::SpecConstantOp) => {
                if let Some(scalar) = self.fold(type_id, words)? {
                    self.constant(type_id, result_id, scalar);
                    return Ok(());
                }
                self.unfolded.insert(result_id);
            }
            _ => {}
        }
        self.out.extend_from_slice(words);
        Ok(())
    }

    fn value(&self, result_id: u32, values: &[(u32, i32)]) -> Option<i32> {
        let spec_id = self.spec_ids.get(&result_id)?;
        values.iter().find(|(id, _)| id == spec_id).map(|(_, value)| *value)
    }

    fn emit(&mut self, op: Op, operands: &[u32]) {
        self.out.push((operands.len() as u32 + 1) << 16 | op as u32);
        self.out.extend_from_slice(operands);
    }

    fn constant(&mut self, type_id: u32, result_id: u32, scalar: Scalar) {
        self.scalars.insert(result_id, scalar);
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
        let Some(&ty) = self.integers.get(&type_id) else {
            return Ok(None);
        };
        let Some(op) = Op::from_u32(words[3]) else {
            return Ok(None);
        };
        if op == Op::CompositeExtract {
            let part = words[5..]
                .iter()
                .try_fold(words[4], |composite, index| self.composites.get(&composite)?.get(*index as usize).copied());
            return Ok(part.and_then(|part| self.scalars.get(&part)).copied());
        }
        let Some(args) = words[4..].iter().map(|id| self.scalars.get(id).copied()).collect::<Option<Vec<_>>>() else {
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
            return Err(SpirvError::Unsupported("a constant expression divides by zero".into()));
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
        Op::ShiftLeftLogical => {
            if v < bits {
                u << v
            } else {
                0
            }
        }
        Op::ShiftRightLogical => {
            if v < bits {
                u >> v
            } else {
                0
            }
        }
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
