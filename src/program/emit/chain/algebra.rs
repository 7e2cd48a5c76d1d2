//! Numbers that are known, and arithmetic that chain kernels are spared: on numbers that are known, with zeros and ones, and divisions by what a loop does not change.
//! Gradients have many of these. This module decides about single operations; it declares nothing but reciprocals and their products.

use super::values::{ChainEmitter, ChainValue, Emission};
use crate::program::emit::values::{bitcast, convert, load};
use crate::program::{Node, Type};

/// The number that a literal stands for.
fn known(value: &ChainValue) -> Option<f64> {
    let bits = value.bits?;
    let low = u64::from_ne_bytes([bits[0], bits[1], bits[2], bits[3], bits[4], bits[5], bits[6], bits[7]]);
    match value.ty {
        Type::F64 => Some(f64::from_bits(low)),
        Type::F32 => Some(f64::from(f32::from_bits(low as u32))),
        Type::S32 => Some(f64::from(low as u32 as i32)),
        Type::U32 => Some(f64::from(low as u32)),
        Type::U8 => Some(f64::from(low as u8)),
        _ => None,
    }
}

/// A number as a literal.
fn number(ty: Type, value: f64) -> Option<ChainValue> {
    let mut bits = [0; 16];
    match ty {
        Type::F64 => bits[..8].copy_from_slice(&value.to_ne_bytes()),
        Type::F32 => bits[..4].copy_from_slice(&(value as f32).to_ne_bytes()),
        _ => return None,
    }
    Some(literal(ty, &bits))
}

impl ChainEmitter<'_> {
    /// The operation's value, where it needs no operation, or a cheaper one.
    pub fn spared(&mut self, node: &Node, operands: &[&ChainValue]) -> Emission<Option<ChainValue>> {
        if !matches!(node.ty, Type::F32 | Type::F64) {
            return Ok(None);
        }
        let numbers: Vec<Option<f64>> = operands.iter().map(|operand| known(operand)).collect();
        let same = |operand: usize| (operands[operand].ty == node.ty).then(|| operands[operand].clone());
        Ok(match (node.op.name, &numbers[..]) {
            ("as_type", &[Some(value)]) => number(node.ty, value),
            ("as_type", _) => same(0),
            ("negate", &[Some(value)]) => number(node.ty, -value),
            // Rounded once, to the operands' type.
            ("add", &[Some(a), Some(b)]) => number(node.ty, a + b),
            ("multiply", &[Some(a), Some(b)]) => number(node.ty, a * b),
            ("add", &[Some(0.0), None]) | ("multiply", &[Some(1.0), None]) => same(1),
            ("add" | "subtract", &[None, Some(0.0)]) | ("multiply" | "divide", &[None, Some(1.0)]) => same(0),
            ("divide", &[_, None]) if operands[0].depth > operands[1].depth => {
                let divisor = convert((operands[1].text.clone(), operands[1].ty), node.ty);
                let one = node.ty.compute().literal(1);
                let inverse = self.declare(&format!("{one} / {divisor}"), node.ty, operands[1].depth)?;
                let dividend = convert((operands[0].text.clone(), operands[0].ty), node.ty);
                Some(self.declare(&format!("{dividend} * {}", inverse.text), node.ty, operands[0].depth)?)
            }
            _ => None,
        })
    }
}

/// A value as one of another type of the same width: its bits, where the types differ.
pub fn as_type(value: &ChainValue, ty: Type) -> ChainValue {
    match value.bits {
        _ if value.ty == ty => value.clone(),
        Some(bits) => literal(ty, &bits),
        None => {
            let text = load(ty, &bitcast((value.text.clone(), value.ty), ty));
            ChainValue { text, ty, ..value.clone() }
        }
    }
}

/// A number whose bits are known.
pub fn literal(ty: Type, bits: &[u8; 16]) -> ChainValue {
    let low = u64::from_ne_bytes([bits[0], bits[1], bits[2], bits[3], bits[4], bits[5], bits[6], bits[7]]);
    let text = match ty {
        Type::F64 if f64::from_bits(low).is_finite() => format!("({:?}lf)", f64::from_bits(low)),
        Type::F64 => format!("packDouble2x32(uvec2({}u, {}u))", low as u32, low >> 32),
        Type::F32 if f32::from_bits(low as u32).is_finite() => format!("({:?}f)", f32::from_bits(low as u32)),
        Type::F32 => format!("uintBitsToFloat({}u)", low as u32),
        Type::U64 => format!("{low}ul"),
        Type::S64 => format!("int64_t({low}ul)"),
        Type::S32 => format!("int({}u)", low as u32),
        Type::U32 => format!("{}u", low as u32),
        _ => load(ty, &format!("{}({}u)", ty.storage(), low as u32)),
    };
    ChainValue { text, ty, depth: 0, bits: Some(*bits) }
}
