//! What a module declares, and our rules beyond the validator's. Reads the specialised module in one walk and changes
//! nothing in it.
//!
//! No library reports what `Reflection` holds: reflection crates (spirq, rspirv-reflect) stop at bindings and workgroup
//! sizes, parse the module once more, and check none of the rules.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ::spirv::{AddressingModel, BuiltIn, Capability, ExecutionMode, ExecutionModel, Op, StorageClass};

use super::functions::Functions;
use super::sizes::{self, SizeLimits};
use super::specialise::Constants;
use super::structure::string;
use super::tools::Instruction;
use super::types::{BlockKind, Decorations, Types};
use super::{BufferBinding, SpirvError};

/// Number of 32-bit integers in a built-in input of compute kernels. Drivers take the declared type at its word, and the
/// validator does not check all of them.
fn input_components(built_in: u32) -> Option<u64> {
    use BuiltIn::*;
    Some(match BuiltIn::from_u32(built_in)? {
        NumWorkgroups | WorkgroupId | LocalInvocationId | GlobalInvocationId => 3,
        LocalInvocationIndex | SubgroupSize | NumSubgroups | SubgroupId | SubgroupLocalInvocationId => 1,
        SubgroupEqMask | SubgroupGeMask | SubgroupGtMask | SubgroupLeMask | SubgroupLtMask => 4,
        _ => return None,
    })
}

/// Longest name of an entry point.
const MAX_NAME_BYTES: usize = 256;

/// Most scalars in one value: drivers take an array apart when it is loaded or stored whole.
const MAX_VALUE_SCALARS: u64 = 1 << 14;

/// What a module declares, as far as `Module` and `clamp` need it.
pub(super) struct Reflection {
    pub entry_point: String,
    pub local_size: [u32; 3],
    pub bindings: Vec<BufferBinding>,
    pub push_constant_bytes: u32,
    pub shared_memory_bytes: u64,
    pub capabilities: BTreeSet<Capability>,
    pub types: Types,
    /// Type of every value.
    pub value_types: HashMap<u32, u32>,
    /// Result id of the instruction set GLSL.std.450, if the module imports it.
    pub glsl: Option<u32>,
}

fn unsupported<T>(message: impl Into<String>) -> Result<T, SpirvError> {
    Err(SpirvError::Unsupported(message.into()))
}

/// Reflects a specialised module and checks it against the rules.
pub(super) fn reflect(
    words: &[u32],
    instructions: &[Instruction],
    constants: &Constants,
    limits: &SizeLimits,
) -> Result<Reflection, SpirvError> {
    let mut walk = Reflector {
        constants,
        limits,
        capabilities: BTreeSet::new(),
        glsl: None,
        entry_points: Vec::new(),
        local_sizes: HashMap::new(),
        decorations: Decorations::default(),
        types: Types::default(),
        value_types: HashMap::new(),
        buffers: HashMap::new(),
        roots: HashMap::new(),
        written: BTreeMap::new(),
        push_constant_bytes: 0,
        shared_bytes: 0,
        private_bytes: 0,
        constant_scalars: 0,
        functions: Functions::default(),
    };
    for instruction in instructions {
        walk.instruction(instruction, &words[instruction.start..][..instruction.len])?;
    }
    walk.finish()
}

struct Reflector<'a> {
    constants: &'a Constants,
    limits: &'a SizeLimits,
    capabilities: BTreeSet<Capability>,
    glsl: Option<u32>,
    entry_points: Vec<(u32, String)>,
    local_sizes: HashMap<u32, [u32; 3]>,
    decorations: Decorations,
    types: Types,
    value_types: HashMap<u32, u32>,
    /// Binding numbers of the storage buffer variables.
    buffers: HashMap<u32, u32>,
    /// The buffer variable that each pointer is derived from.
    roots: HashMap<u32, u32>,
    /// Whether the module may write to each binding.
    written: BTreeMap<u32, bool>,
    push_constant_bytes: u32,
    shared_bytes: u64,
    private_bytes: u64,
    /// Scalars in all constants.
    constant_scalars: u64,
    functions: Functions,
}

impl Reflector<'_> {
    fn instruction(&mut self, instruction: &Instruction, words: &[u32]) -> Result<(), SpirvError> {
        let &Instruction { type_id, result_id, .. } = instruction;
        let Some(op) = Op::from_u32(instruction.opcode.into()) else {
            return unsupported(format!("instruction {}", instruction.opcode));
        };
        if type_id != 0 && result_id != 0 {
            self.value_types.insert(result_id, type_id);
            self.count(type_id)?;
        } else {
            self.functions.add_scalars(1);
        }
        let selector = if op == Op::Switch { self.value_types.get(&words[1]) } else { None };
        let selector_bits = selector.and_then(|ty| self.types.integer(*ty)).map_or(32, |(bits, _)| bits);
        self.functions.instruction(op, words, if selector_bits == 64 { 2 } else { 1 });
        match op {
            Op::Capability => self.capabilities.extend(Capability::from_u32(words[1])),
            // `structure` has left no other instruction set.
            Op::ExtInstImport => self.glsl = Some(result_id),
            Op::MemoryModel if words[1] != AddressingModel::Logical as u32 => {
                return unsupported("physical addresses: a kernel reaches memory through its bindings alone");
            }
            Op::EntryPoint => self.entry_point(words)?,
            Op::ExecutionMode => self.execution_mode(words)?,
            Op::Decorate => self.decorations.add(words[1], None, &words[2..])?,
            Op::MemberDecorate => self.decorations.add(words[1], Some(words[2]), &words[3..])?,
            Op::Variable => self.variable(type_id, result_id, words[3])?,
            Op::PtrAccessChain | Op::InBoundsPtrAccessChain => {
                return unsupported("pointer arithmetic: a kernel reaches memory through its bindings alone");
            }
            Op::CopyMemory => {
                if let Some(pointee) = self.value_types.get(&words[2]).and_then(|ty| self.types.pointee(*ty)) {
                    self.count(pointee)?;
                }
            }
            // OpTypeVoid to OpTypeForwardPointer; the later ones need capabilities that are refused.
            _ if (Op::TypeVoid as u16..=Op::TypeForwardPointer as u16).contains(&instruction.opcode) => {
                self.types.add(op, words, &self.decorations, self.constants)?;
            }
            _ => {}
        }
        self.pointers(op, words);
        Ok(())
    }

    /// Follows pointers from a buffer's variable to the instructions that may write through them.
    fn pointers(&mut self, op: Op, words: &[u32]) {
        match op {
            Op::AccessChain | Op::InBoundsAccessChain | Op::CopyObject => {
                if let Some(&root) = self.roots.get(&words[3]) {
                    self.roots.insert(words[2], root);
                }
            }
            Op::Store | Op::CopyMemory | Op::AtomicStore => self.write(words[1]),
            Op::FunctionCall => words[4..].iter().for_each(|id| self.write(*id)),
            // Modf and Frexp write through a pointer.
            Op::ExtInst => words[5..].iter().for_each(|id| self.write(*id)),
            Op::AtomicExchange
            | Op::AtomicCompareExchange
            | Op::AtomicIIncrement
            | Op::AtomicIDecrement
            | Op::AtomicIAdd
            | Op::AtomicISub
            | Op::AtomicSMin
            | Op::AtomicUMin
            | Op::AtomicSMax
            | Op::AtomicUMax
            | Op::AtomicAnd
            | Op::AtomicOr
            | Op::AtomicXor
            | Op::AtomicFMinEXT
            | Op::AtomicFMaxEXT
            | Op::AtomicFAddEXT => self.write(words[3]),
            _ => {}
        }
    }

    fn entry_point(&mut self, words: &[u32]) -> Result<(), SpirvError> {
        let name = string(&words[3..]);
        // A name that is replaced in part would not be found again.
        if name.len() > MAX_NAME_BYTES || name.contains(char::REPLACEMENT_CHARACTER) {
            return unsupported("an entry point whose name is no short UTF-8 string");
        }
        if words[1] != ExecutionModel::GLCompute as u32 {
            let model = ExecutionModel::from_u32(words[1]);
            let model = model.map_or_else(|| words[1].to_string(), |model| format!("{model:?}"));
            return unsupported(format!("the entry point {name:?} is a {model} shader, not a compute one"));
        }
        self.entry_points.push((words[2], name));
        Ok(())
    }

    /// Counts the scalars of a value of type `type_id` that an instruction produces.
    fn count(&mut self, type_id: u32) -> Result<(), SpirvError> {
        let scalars = self.types.scalars(type_id).max(1);
        if scalars > MAX_VALUE_SCALARS {
            return unsupported(format!("a value of {scalars} scalars, more than {MAX_VALUE_SCALARS}"));
        }
        if self.functions.inside() {
            self.functions.add_scalars(scalars);
        } else {
            self.constant_scalars = self.constant_scalars.saturating_add(scalars);
        }
        self.limits.check(&sizes::CONSTANT_SCALARS, self.constant_scalars)
    }

    fn execution_mode(&mut self, words: &[u32]) -> Result<(), SpirvError> {
        match ExecutionMode::from_u32(words[2]) {
            Some(ExecutionMode::LocalSize) => {
                let sizes = [words[3], words[4], words[5]];
                if self.local_sizes.insert(words[1], sizes).is_some_and(|other| other != sizes) {
                    return unsupported("two workgroup sizes");
                }
            }
            Some(
                ExecutionMode::DenormPreserve
                | ExecutionMode::DenormFlushToZero
                | ExecutionMode::SignedZeroInfNanPreserve
                | ExecutionMode::RoundingModeRTE
                | ExecutionMode::RoundingModeRTZ,
            ) => {}
            Some(other) => return unsupported(format!("the execution mode {other:?}")),
            None => return unsupported(format!("the execution mode {}", words[2])),
        }
        Ok(())
    }

    /// Records that an instruction may write through the pointer `id`.
    fn write(&mut self, id: u32) {
        if let Some(binding) = self.roots.get(&id).and_then(|root| self.buffers.get(root)) {
            self.written.insert(*binding, true);
        }
    }

    fn variable(&mut self, type_id: u32, result_id: u32, class: u32) -> Result<(), SpirvError> {
        let Some(pointee) = self.types.pointee(type_id) else {
            return unsupported("a variable without a type of known size");
        };
        let decorations = self.decorations.of(result_id);
        match StorageClass::from_u32(class) {
            Some(StorageClass::Input) => {
                let components = decorations.built_in.and_then(input_components);
                if components.is_none() || components != self.types.components32(pointee) {
                    return unsupported("an input variable that is no compute built-in of its proper type");
                }
            }
            Some(StorageClass::Function) => self.functions.add_bytes(self.types.bytes(pointee)),
            Some(StorageClass::Private) => {
                self.private_bytes = self.private_bytes.saturating_add(self.types.bytes(pointee));
            }
            Some(StorageClass::Workgroup) => {
                self.shared_bytes = self.shared_bytes.saturating_add(self.types.bytes(pointee));
            }
            Some(StorageClass::PushConstant) => match self.types.extent(pointee) {
                Some(bytes) => self.push_constant_bytes = self.push_constant_bytes.max(bytes as u32),
                None => return unsupported("push constants of more than 4 GiB"),
            },
            Some(class @ (StorageClass::StorageBuffer | StorageClass::Uniform)) => {
                let storage = match class {
                    StorageClass::StorageBuffer => BlockKind::Block,
                    _ => BlockKind::BufferBlock,
                };
                let (Some(set), Some(binding)) = (decorations.set, decorations.binding) else {
                    return unsupported("a buffer without a descriptor set and binding");
                };
                if self.types.block(pointee) != Some(storage) {
                    return unsupported(format!("binding {binding} is no single storage buffer"));
                }
                if set != 0 {
                    return unsupported(format!("binding {binding} of descriptor set {set}: only set 0 is bound"));
                }
                if self.types.extent(pointee).is_none() {
                    return unsupported(format!("binding {binding} declares more than 4 GiB"));
                }
                self.buffers.insert(result_id, binding);
                self.roots.insert(result_id, result_id);
                self.written.entry(binding).or_insert(false);
            }
            Some(StorageClass::UniformConstant | StorageClass::Image) => {
                return unsupported("images, samplers and texel buffers");
            }
            Some(other) => return unsupported(format!("variables of storage class {other:?}")),
            None => return unsupported(format!("variables of storage class {class}")),
        }
        Ok(())
    }

    fn finish(self) -> Result<Reflection, SpirvError> {
        let (entry, entry_point) = match self.entry_points.as_slice() {
            [] => return unsupported("no entry point"),
            [only] => only.clone(),
            several => match several.iter().find(|(_, name)| name == "main") {
                Some(main) => main.clone(),
                None => {
                    let count = several.len();
                    return unsupported(format!("{count} entry points, none of them named \"main\""));
                }
            },
        };
        let local_size = match self.decorations.workgroup_size() {
            // The built-in constant overrules the execution mode.
            Some(constant) => self.workgroup_size(constant),
            None => self.local_sizes.get(&entry).copied(),
        };
        let Some(local_size) = local_size.filter(|sizes| !sizes.contains(&0)) else {
            return unsupported("a workgroup size that is zero or unknown");
        };
        self.functions.check(self.private_bytes, self.limits)?;
        let bindings = self.written.into_iter().map(|(binding, written)| BufferBinding { binding, written }).collect();
        Ok(Reflection {
            entry_point,
            local_size,
            bindings,
            push_constant_bytes: self.push_constant_bytes,
            shared_memory_bytes: self.shared_bytes,
            capabilities: self.capabilities,
            types: self.types,
            value_types: self.value_types,
            glsl: self.glsl,
        })
    }

    fn workgroup_size(&self, constant: u32) -> Option<[u32; 3]> {
        let ids: &[u32; 3] = self.constants.constituents(constant)?.first_chunk()?;
        let sizes = ids.map(|id| self.constants.integer(id).and_then(|size| u32::try_from(size).ok()));
        Some([sizes[0]?, sizes[1]?, sizes[2]?])
    }
}
