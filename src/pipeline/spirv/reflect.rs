//! What a module declares, and the rules of ours that the validator does not know.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ::spirv::{AddressingModel, BuiltIn, Capability, ExecutionMode, ExecutionModel, Op, StorageClass};

use super::specialise::string;
use super::tools::Instruction;
use super::types::{Class, Decorations, Types};
use super::{Binding, SpirvError};

/// Capabilities a kernel may declare. Left out are those that reach memory without a descriptor (physical storage
/// buffers, variable pointers), arrays of descriptors, and everything about images and graphics.
pub(super) const CAPABILITIES: &[Capability] = {
    use Capability::*;
    &[
        Matrix,
        Shader,
        Float16,
        Float64,
        Int8,
        Int16,
        Int64,
        Int64Atomics,
        StorageBuffer8BitAccess,
        UniformAndStorageBuffer8BitAccess,
        StoragePushConstant8,
        StorageBuffer16BitAccess,
        UniformAndStorageBuffer16BitAccess,
        StoragePushConstant16,
        AtomicFloat32AddEXT,
        AtomicFloat64AddEXT,
        AtomicFloat16AddEXT,
        AtomicFloat32MinMaxEXT,
        AtomicFloat64MinMaxEXT,
        AtomicFloat16MinMaxEXT,
        GroupNonUniform,
        GroupNonUniformVote,
        GroupNonUniformArithmetic,
        GroupNonUniformBallot,
        GroupNonUniformShuffle,
        GroupNonUniformShuffleRelative,
        GroupNonUniformClustered,
        GroupNonUniformQuad,
        DenormPreserve,
        DenormFlushToZero,
        SignedZeroInfNanPreserve,
        RoundingModeRTE,
        RoundingModeRTZ,
        DotProduct,
        DotProductInputAll,
        DotProductInput4x8Bit,
        DotProductInput4x8BitPacked,
        VulkanMemoryModel,
        VulkanMemoryModelDeviceScope,
    ]
};

/// Built-in inputs of compute kernels.
const INPUTS: &[BuiltIn] = {
    use BuiltIn::*;
    &[
        NumWorkgroups,
        WorkgroupId,
        LocalInvocationId,
        GlobalInvocationId,
        LocalInvocationIndex,
        SubgroupSize,
        NumSubgroups,
        SubgroupId,
        SubgroupLocalInvocationId,
        SubgroupEqMask,
        SubgroupGeMask,
        SubgroupGtMask,
        SubgroupLeMask,
        SubgroupLtMask,
    ]
};

/// Most bytes of variables one invocation may hold outside buffers and workgroup memory, callees included: CPU drivers
/// put them on a thread's stack, once for each lane.
const MAX_PRIVATE_BYTES: u64 = 64 << 10;

/// Most scalars in one value: drivers take an array apart when it is loaded or stored whole.
const MAX_VALUE_SCALARS: u64 = 1 << 16;

/// Most scalars that the instructions of all functions produce, callees counted at each call because drivers inline
/// them; and most scalars in all constants.
const MAX_TOTAL_SCALARS: u64 = 1 << 20;

/// What a module declares, as far as `Module` and `clamp` need it.
pub(super) struct Facts {
    pub entry_point: String,
    pub local_size: [u32; 3],
    pub bindings: Vec<Binding>,
    pub push_constant_bytes: u32,
    pub shared_memory_bytes: u64,
    pub capabilities: BTreeSet<Capability>,
    pub types: Types,
    /// Type of every value.
    pub value_types: HashMap<u32, u32>,
    /// Value of every constant integer of up to 64 bits, sign-extended.
    pub integers: HashMap<u32, i64>,
    /// Result id of the instruction set GLSL.std.450, if the module imports it.
    pub glsl: Option<u32>,
}

fn unsupported<T>(message: impl Into<String>) -> Result<T, SpirvError> {
    Err(SpirvError::Unsupported(message.into()))
}

/// Reflects a specialised module and checks it against the rules.
pub(super) fn reflect(words: &[u32], instructions: &[Instruction]) -> Result<Facts, SpirvError> {
    let mut walk = Walk::default();
    for instruction in instructions {
        walk.instruction(instruction, &words[instruction.start..][..instruction.len])?;
    }
    walk.finish()
}

/// A function's size in scalars produced and bytes of variables, without and with its callees.
#[derive(Default)]
struct Function {
    scalars: u64,
    bytes: u64,
    calls: Vec<u32>,
    total: Option<(u64, u64)>,
}

#[derive(Default)]
struct Walk {
    capabilities: BTreeSet<Capability>,
    glsl: Option<u32>,
    entry_points: Vec<(u32, String)>,
    local_sizes: HashMap<u32, [u32; 3]>,
    decorations: Decorations,
    types: Types,
    value_types: HashMap<u32, u32>,
    integers: HashMap<u32, i64>,
    composites: HashMap<u32, Vec<u32>>,
    /// Storage buffer variables: binding number.
    buffers: HashMap<u32, u32>,
    /// The buffer variable that a pointer came from.
    roots: HashMap<u32, u32>,
    written: BTreeMap<u32, bool>,
    push_constant_bytes: u32,
    shared_bytes: u64,
    private_bytes: u64,
    constant_scalars: u64,
    functions: HashMap<u32, Function>,
    current: Option<u32>,
}

impl Walk {
    fn instruction(&mut self, instruction: &Instruction, words: &[u32]) -> Result<(), SpirvError> {
        let &Instruction { type_id, result_id, .. } = instruction;
        let Some(op) = Op::from_u32(instruction.opcode.into()) else {
            return unsupported(format!("instruction {}", instruction.opcode));
        };
        if type_id != 0 && result_id != 0 {
            self.value_types.insert(result_id, type_id);
            self.count(type_id)?;
        } else if let Some(function) = self.current.and_then(|id| self.functions.get_mut(&id)) {
            function.scalars += 1;
        }
        match op {
            Op::Capability => match Capability::from_u32(words[1]) {
                Some(capability) if CAPABILITIES.contains(&capability) => {
                    self.capabilities.insert(capability);
                }
                Some(other) => return unsupported(format!("the capability {other:?}")),
                None => return unsupported(format!("the capability {}", words[1])),
            },
            // `specialise` has left no other instruction set.
            Op::ExtInstImport => self.glsl = Some(result_id),
            Op::MemoryModel if words[1] != AddressingModel::Logical as u32 => {
                return unsupported("physical addresses: a kernel reaches memory through its bindings alone");
            }
            Op::EntryPoint => {
                let name = string(&words[3..]);
                if words[1] != ExecutionModel::GLCompute as u32 {
                    let model = ExecutionModel::from_u32(words[1]);
                    let model = model.map_or_else(|| words[1].to_string(), |model| format!("{model:?}"));
                    return unsupported(format!("the entry point \"{name}\" is a {model} shader, not a compute one"));
                }
                self.entry_points.push((words[2], name));
            }
            Op::ExecutionMode => self.execution_mode(words)?,
            Op::Decorate => self.decorations.add(words[1], None, &words[2..])?,
            Op::MemberDecorate => self.decorations.add(words[1], Some(words[2]), &words[3..])?,
            Op::DecorationGroup | Op::GroupDecorate | Op::GroupMemberDecorate => {
                return unsupported("decoration groups");
            }
            Op::Constant => {
                if let Some((bits, signed)) = self.types.integer(type_id) {
                    let raw = u64::from(words[3]) | words.get(4).map_or(0, |high| u64::from(*high) << 32);
                    let shift = 64 - bits;
                    let value = if signed { (raw << shift) as i64 >> shift } else { (raw << shift >> shift) as i64 };
                    self.integers.insert(result_id, value);
                }
            }
            Op::ConstantNull if self.types.integer(type_id).is_some() => {
                self.integers.insert(result_id, 0);
            }
            Op::ConstantComposite => {
                self.composites.insert(result_id, words[3..].to_vec());
            }
            Op::Variable => self.variable(type_id, result_id, words[3])?,
            Op::Function => {
                self.current = Some(result_id);
                self.functions.insert(result_id, Function::default());
            }
            Op::FunctionEnd => self.current = None,
            Op::FunctionCall => {
                if let Some(function) = self.current.and_then(|id| self.functions.get_mut(&id)) {
                    function.calls.push(words[3]);
                }
                words[4..].iter().for_each(|id| self.write(*id));
            }
            Op::AccessChain | Op::InBoundsAccessChain | Op::CopyObject => {
                if let Some(&root) = self.roots.get(&words[3]) {
                    self.roots.insert(result_id, root);
                }
            }
            Op::PtrAccessChain | Op::InBoundsPtrAccessChain => {
                return unsupported("pointer arithmetic: a kernel reaches memory through its bindings alone");
            }
            Op::Store => self.write(words[1]),
            Op::CopyMemory => {
                self.write(words[1]);
                if let Some(pointee) = self.value_types.get(&words[2]).and_then(|ty| self.types.pointee(*ty)) {
                    self.count(pointee)?;
                }
            }
            // Modf and Frexp write through a pointer.
            Op::ExtInst => words[5..].iter().for_each(|id| self.write(*id)),
            Op::AtomicStore => self.write(words[1]),
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
            // OpTypeVoid to OpTypeForwardPointer; the later ones need capabilities that are refused.
            _ if (Op::TypeVoid as u16..=Op::TypeForwardPointer as u16).contains(&instruction.opcode) => {
                self.types.add(op, words, &self.decorations, &self.integers)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Counts the scalars of a value of type `type_id` that an instruction produces.
    fn count(&mut self, type_id: u32) -> Result<(), SpirvError> {
        let scalars = self.types.scalars(type_id).max(1);
        if scalars > MAX_VALUE_SCALARS {
            return unsupported(format!("a value of {scalars} scalars, more than {MAX_VALUE_SCALARS}"));
        }
        match self.current.and_then(|id| self.functions.get_mut(&id)) {
            Some(function) => function.scalars += scalars,
            None => self.constant_scalars += scalars,
        }
        if self.constant_scalars > MAX_TOTAL_SCALARS {
            return unsupported(format!("constants of more than {MAX_TOTAL_SCALARS} scalars"));
        }
        Ok(())
    }

    fn execution_mode(&mut self, words: &[u32]) -> Result<(), SpirvError> {
        match ExecutionMode::from_u32(words[2]) {
            Some(ExecutionMode::LocalSize) => {
                self.local_sizes.insert(words[1], [words[3], words[4], words[5]]);
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

    /// Notes that an instruction may write through the pointer `id`.
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
                let input = decorations.built_in.and_then(BuiltIn::from_u32);
                if !input.is_some_and(|built_in| INPUTS.contains(&built_in)) {
                    return unsupported("an input variable that is no compute built-in");
                }
            }
            Some(StorageClass::Function) => {
                let bytes = self.types.bytes(pointee);
                if let Some(function) = self.current.and_then(|id| self.functions.get_mut(&id)) {
                    function.bytes = function.bytes.saturating_add(bytes);
                }
            }
            Some(StorageClass::Private) => {
                self.private_bytes = self.private_bytes.saturating_add(self.types.bytes(pointee));
            }
            Some(StorageClass::Workgroup) => {
                self.shared_bytes = self.shared_bytes.saturating_add(self.types.bytes(pointee));
            }
            Some(StorageClass::PushConstant) => match self.types.extent(pointee) {
                Some(bytes) if bytes <= u32::MAX.into() => {
                    self.push_constant_bytes = self.push_constant_bytes.max(bytes as u32);
                }
                _ => return unsupported("a push-constant block without a fixed size"),
            },
            Some(class @ (StorageClass::StorageBuffer | StorageClass::Uniform)) => {
                let storage = match class {
                    StorageClass::StorageBuffer => Class::Block,
                    _ => Class::BufferBlock,
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

    fn finish(mut self) -> Result<Facts, SpirvError> {
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
        for id in self.functions.keys().copied().collect::<Vec<_>>() {
            let (scalars, bytes) = inlined(&mut self.functions, id, 0)?;
            if scalars > MAX_TOTAL_SCALARS {
                return unsupported(format!("functions of more than {MAX_TOTAL_SCALARS} scalar values when inlined"));
            }
            let bytes = bytes.saturating_add(self.private_bytes);
            if bytes > MAX_PRIVATE_BYTES {
                return unsupported(format!("{bytes} bytes of variables an invocation, more than {MAX_PRIVATE_BYTES}"));
            }
        }
        let bindings = self.written.into_iter().map(|(binding, written)| Binding { binding, written }).collect();
        Ok(Facts {
            entry_point,
            local_size,
            bindings,
            push_constant_bytes: self.push_constant_bytes,
            shared_memory_bytes: self.shared_bytes,
            capabilities: self.capabilities,
            types: self.types,
            value_types: self.value_types,
            integers: self.integers,
            glsl: self.glsl,
        })
    }

    fn workgroup_size(&self, constant: u32) -> Option<[u32; 3]> {
        let ids: &[u32; 3] = self.composites.get(&constant)?.first_chunk()?;
        let sizes = ids.map(|id| self.integers.get(&id).and_then(|size| u32::try_from(*size).ok()));
        Some([sizes[0]?, sizes[1]?, sizes[2]?])
    }
}

/// The size of a function with all its callees inlined.
fn inlined(functions: &mut HashMap<u32, Function>, id: u32, depth: u32) -> Result<(u64, u64), SpirvError> {
    let Some(function) = functions.get(&id) else {
        return unsupported("a call of an undefined function");
    };
    if let Some(total) = function.total {
        return Ok(total);
    }
    if depth > 64 {
        return unsupported("calls nested more than 64 deep, or recursion");
    }
    let mut total = (function.scalars, function.bytes);
    for callee in function.calls.clone() {
        let (scalars, bytes) = inlined(functions, callee, depth + 1)?;
        total = (total.0.saturating_add(scalars), total.1.saturating_add(bytes));
    }
    if let Some(function) = functions.get_mut(&id) {
        function.total = Some(total);
    }
    Ok(total)
}
