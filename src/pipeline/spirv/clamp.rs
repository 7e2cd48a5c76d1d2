//! Indices into arrays outside buffers are clamped to the last element. Owns the rewriting of access chains; everything
//! else in the module stays as it is.
//!
//! Robust buffer access bounds what a kernel does through descriptors. Workgroup memory, variables and push constants
//! have no such net: an index beyond them reads and writes the neighbours, on a CPU driver those of the BEAM. Every
//! index that is not a constant in range becomes `UMin(index, length - 1)`; a negative one is huge when unsigned.
//! Buffers are left alone: a store past their end vanishes under robust buffer access, a clamped one would hit the last
//! element.
//!
//! SPIRV-Tools' `--graphics-robust-access` does not serve for that reason: it clamps indices into buffers, too, so that a
//! kernel whose last workgroup runs past the end overwrites the last element, without a way to leave them out. It also
//! gives the first element for unsigned indices beyond 2³¹, and turns an 8-bit index into an array of more than 128
//! elements into a module that declares a 16-bit type without its capability. Kernels are as fast after either.

use std::collections::HashMap;

use ::spirv::{GlslStd450Op, Op};

use super::SpirvError;
use super::reflect::Reflection;
use super::specialise::Constants;
use super::tools::Instruction;
use super::types::TypeKind;

/// The module with all such indices clamped.
pub(super) fn clamp(
    words: &[u32],
    instructions: &[Instruction],
    constants: &Constants,
    reflection: &Reflection,
) -> Result<Vec<u32>, SpirvError> {
    let is = |instruction: &Instruction, op: Op| u32::from(instruction.opcode) == op as u32;
    let start_of = |op: Op| {
        let first = instructions.iter().find(|instruction| is(instruction, op));
        first.map_or(words.len(), |instruction| instruction.start)
    };
    let (model, functions) = (start_of(Op::MemoryModel), start_of(Op::Function));

    let mut pass = Clamper {
        constants,
        reflection,
        bound: words[3],
        set: reflection.glsl,
        code: Vec::new(),
        new_constants: Vec::new(),
        known: HashMap::new(),
    };
    for instruction in instructions.iter().filter(|instruction| instruction.start >= functions) {
        let words = &words[instruction.start..][..instruction.len];
        let chain = is(instruction, Op::AccessChain) || is(instruction, Op::InBoundsAccessChain);
        if chain && !reflection.types.is_buffer_pointer(instruction.type_id) {
            pass.access_chain(words)?;
        } else {
            pass.code.extend_from_slice(words);
        }
    }

    let mut out = words[..model].to_vec();
    out[3] = pass.bound;
    if let (Some(set), None) = (pass.set, reflection.glsl) {
        let name: Vec<u32> =
            b"GLSL.std.450\0\0\0\0".as_chunks::<4>().0.iter().map(|c| u32::from_le_bytes(*c)).collect();
        out.extend([(2 + name.len() as u32) << 16 | Op::ExtInstImport as u32, set]);
        out.extend(name);
    }
    out.extend_from_slice(&words[model..functions]);
    out.extend(pass.new_constants);
    out.extend(pass.code);
    Ok(out)
}

struct Clamper<'a> {
    constants: &'a Constants,
    reflection: &'a Reflection,
    bound: u32,
    /// Result id of GLSL.std.450.
    set: Option<u32>,
    code: Vec<u32>,
    /// New constants, which go before the first function.
    new_constants: Vec<u32>,
    /// Ids of the new constants by type and value.
    known: HashMap<(u32, u64), u32>,
}

impl Clamper<'_> {
    fn new_id(&mut self) -> u32 {
        self.bound += 1;
        self.bound - 1
    }

    fn access_chain(&mut self, words: &[u32]) -> Result<(), SpirvError> {
        let types = &self.reflection.types;
        let untyped = || SpirvError::Unsupported("an access chain into a type that has no parts".into());
        let mut chain = words.to_vec();
        let base = self.reflection.value_types.get(&words[3]).and_then(|ty| types.pointee(*ty));
        let mut at = base.ok_or_else(untyped)?;
        for index in &mut chain[4..] {
            let (inner, count) = match types.kind(at).ok_or_else(untyped)? {
                TypeKind::Struct { members } => {
                    let member = self.constants.integer(*index).and_then(|member| usize::try_from(member).ok());
                    at = *member.and_then(|member| members.get(member)).ok_or_else(untyped)?;
                    continue;
                }
                TypeKind::Array { element, count } => (*element, *count),
                TypeKind::Vector { component, count } => (*component, *count),
                TypeKind::Matrix { column, count } => (*column, *count),
                _ => return Err(untyped()),
            };
            at = inner;
            let in_range = |value: i64| u64::try_from(value).is_ok_and(|value| value < count);
            if !self.constants.index(*index).is_some_and(in_range) {
                *index = self.clamped(*index, count)?;
            }
        }
        self.code.extend(chain);
        Ok(())
    }

    /// Emits the clamping of `index` to `0..count`.
    fn clamped(&mut self, index: u32, count: u64) -> Result<u32, SpirvError> {
        let ty = self.reflection.value_types.get(&index).copied();
        let typed = ty.and_then(|ty| Some((ty, self.reflection.types.integer(ty)?)));
        let Some((ty, (bits, _))) = typed else {
            return Err(SpirvError::Unsupported("an index that is no integer".into()));
        };
        // Drivers sign-extend narrow indices, whatever their type.
        let last = (count - 1).min(u64::MAX >> (65 - bits));
        let last = self.constant(ty, bits, last);
        let set = match self.set {
            Some(set) => set,
            None => {
                let set = self.new_id();
                *self.set.insert(set)
            }
        };
        let result = self.new_id();
        self.code.extend([7 << 16 | Op::ExtInst as u32, ty, result, set, GlslStd450Op::UMin as u32, index, last]);
        Ok(result)
    }

    fn constant(&mut self, ty: u32, bits: u32, value: u64) -> u32 {
        if let Some(&id) = self.known.get(&(ty, value)) {
            return id;
        }
        let id = self.new_id();
        let two_words = bits == 64;
        self.new_constants.extend([(4 + u32::from(two_words)) << 16 | Op::Constant as u32, ty, id, value as u32]);
        if two_words {
            self.new_constants.push((value >> 32) as u32);
        }
        self.known.insert((ty, value), id);
        id
    }
}
