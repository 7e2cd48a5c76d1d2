//! Numbers that are known, and arithmetic that chain kernels are spared: on numbers that are known, with zeros, ones and powers of two, on negated
//! operands, and divisions by what a loop does not change. Gradients have many of these. This module decides about single operations. What it puts in
//! their place has the same bits, save products with reciprocals, and products of two powers of two with a subnormal number in between.

use super::values::{ChainEmitter, ChainValue, Emission};
use crate::program::emit::values::{bitcast, convert, load};
use crate::program::{Node, Type};

/// The largest exponent of a factor: products of some are numbers still.
const LARGEST_EXPONENT: f64 = 30.0;

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

/// Whether multiplying by the number changes a float's exponent and sign alone.
fn is_power_of_two(number: f64) -> bool {
    number.is_normal() && number.to_bits() << 12 == 0 && number.abs().log2().abs() <= LARGEST_EXPONENT
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
            _ if operands.iter().any(|operand| operand.ty != node.ty) => {
                let hoisted = node.op.name == "divide" && operands[0].depth > operands[1].depth;
                match hoisted {
                    true => Some(self.quotient_of(operands[0], operands[1], node.ty)?),
                    false => None,
                }
            }
            ("negate", &[None]) => Some(self.multiple(operands[0], -1.0)?),
            ("multiply", &[Some(factor), None]) if is_power_of_two(factor) => Some(self.multiple(operands[1], factor)?),
            ("multiply", &[None, Some(factor)]) if is_power_of_two(factor) => Some(self.multiple(operands[0], factor)?),
            ("divide", &[None, Some(divisor)]) if is_power_of_two(divisor) => {
                Some(self.multiple(operands[0], 1.0 / divisor)?)
            }
            (name @ ("multiply" | "divide" | "add" | "subtract" | "abs"), _) => self.signed(name, node, operands)?,
            _ => None,
        })
    }

    /// An operation on negated operands, as the negated result of another or as the opposite operation: each has the same bits.
    fn signed(&mut self, name: &str, node: &Node, operands: &[&ChainValue]) -> Emission<Option<ChainValue>> {
        let plain: Vec<ChainValue> =
            operands.iter().map(|operand| self.negated(operand).unwrap_or(operand).clone()).collect();
        let signs: Vec<bool> = operands.iter().map(|operand| self.negated(operand).is_some()).collect();
        let depth = operands.iter().map(|operand| operand.depth).max().unwrap_or(0);
        let call = |function: &str, operands: &[&ChainValue]| {
            let texts: Vec<&str> = operands.iter().map(|operand| &*operand.text).collect();
            format!("{function}({})", texts.join(", "))
        };
        Ok(match (name, &signs[..]) {
            ("abs", [true]) => Some(self.declare(&call("nx_abs", &[&plain[0]]), node.ty, depth)?),
            ("add", [true, false]) => {
                Some(self.declare(&call("nx_subtract", &[&plain[1], &plain[0]]), node.ty, depth)?)
            }
            ("add", [false, true]) => {
                Some(self.declare(&call("nx_subtract", &[&plain[0], &plain[1]]), node.ty, depth)?)
            }
            ("subtract", [false, true]) => {
                Some(self.declare(&call("nx_add", &[&plain[0], &plain[1]]), node.ty, depth)?)
            }
            ("multiply", &[a, b]) if a || b => {
                let product = self.declare(&call("nx_multiply", &[&plain[0], &plain[1]]), node.ty, depth)?;
                Some(if a && b { product } else { self.multiple(&product, -1.0)? })
            }
            ("divide", &[a, b]) => {
                let quotient = self.quotient_of(&plain[0], &plain[1], node.ty)?;
                Some(if a != b { self.multiple(&quotient, -1.0)? } else { quotient })
            }
            _ => None,
        })
    }

    /// A quotient, with the reciprocal of a divisor that a loop does not change outside of the loop.
    fn quotient_of(&mut self, dividend: &ChainValue, divisor: &ChainValue, ty: Type) -> Emission<ChainValue> {
        let [above, below] = [dividend, divisor].map(|value| convert((value.text.clone(), value.ty), ty));
        if known(divisor).is_none() && dividend.depth > divisor.depth {
            let one = ty.compute().literal(1);
            let inverse = self.declare_as(&format!("{one} / {below}"), ty, divisor.depth, true)?;
            return self.declare(&format!("{above} * {}", inverse.text), ty, dividend.depth);
        }
        self.declare_as(&format!("nx_divide({above}, {below})"), ty, dividend.depth.max(divisor.depth), true)
    }

    /// What a value negates.
    pub fn negated(&self, value: &ChainValue) -> Option<&ChainValue> {
        self.multiples.get(&value.text).filter(|multiple| multiple.1 == -1.0).map(|multiple| &multiple.0)
    }

    /// The product of a value and a power of two.
    pub fn multiple(&mut self, value: &ChainValue, factor: f64) -> Emission<ChainValue> {
        let (base, factor) = match self.multiples.get(&value.text) {
            Some((base, own)) if is_power_of_two(own * factor) => (base.clone(), own * factor),
            _ => (value.clone(), factor),
        };
        let Some(literal) = number(base.ty, factor).filter(|_| factor != 1.0) else { return Ok(base) };
        let text = match factor {
            -1.0 => format!("nx_negate({})", base.text),
            _ => format!("nx_multiply({}, {})", literal.text, base.text),
        };
        let product = self.declare(&text, base.ty, base.depth)?;
        self.multiples.insert(product.text.clone(), (base, factor));
        Ok(product)
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
