//! Types and decorations of a module: sizes, layouts in buffers, and what a pointer points to. Owns both tables; the walk
//! over the module is `reflect`'s.

use std::collections::HashMap;

use ::spirv::{BuiltIn, Decoration, Op, StorageClass};

use super::SpirvError;
use super::specialise::Constants;

/// Largest block in a buffer or push constants, in bytes: drivers compute offsets in 32 bits.
const MAX_EXTENT: u64 = u32::MAX as u64;

/// What a struct's decoration declares it to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    /// A uniform or storage block, by its storage class.
    Block,
    /// A storage block as SPIR-V 1.0 declares it: storage class `Uniform`.
    BufferBlock,
}

/// The decorations of one id or member that matter here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DecorationSet {
    pub set: Option<u32>,
    pub binding: Option<u32>,
    pub built_in: Option<u32>,
    block: Option<BlockKind>,
    offset: Option<u32>,
    array_stride: Option<u32>,
    matrix_stride: Option<u32>,
    row_major: bool,
}

#[derive(Debug, Default)]
pub(super) struct Decorations {
    /// By id, and by member where it is one.
    all: HashMap<(u32, Option<u32>), DecorationSet>,
    workgroup_size: Option<u32>,
}

impl Decorations {
    /// Adds the decoration `words` (number and operands) of an id or of one of its members.
    pub fn add(&mut self, id: u32, member: Option<u32>, words: &[u32]) -> Result<(), SpirvError> {
        let of = self.all.entry((id, member)).or_default();
        let slot = match Decoration::from_u32(words[0]) {
            Some(Decoration::DescriptorSet) => &mut of.set,
            Some(Decoration::Binding) => &mut of.binding,
            Some(Decoration::BuiltIn) => {
                let second = words[1] == BuiltIn::WorkgroupSize as u32 && self.workgroup_size.replace(id).is_some();
                if second {
                    return Err(SpirvError::Unsupported("two workgroup sizes".into()));
                }
                &mut of.built_in
            }
            Some(Decoration::Offset) => &mut of.offset,
            Some(Decoration::ArrayStride) => &mut of.array_stride,
            Some(Decoration::MatrixStride) => &mut of.matrix_stride,
            Some(Decoration::Block) => {
                of.block = Some(BlockKind::Block);
                return Ok(());
            }
            Some(Decoration::BufferBlock) => {
                of.block = Some(BlockKind::BufferBlock);
                return Ok(());
            }
            Some(Decoration::RowMajor) => {
                of.row_major = true;
                return Ok(());
            }
            _ => return Ok(()),
        };
        // Which of two values a driver takes is its own choice, so it might not be the one checked here.
        match slot.replace(words[1]) {
            None => Ok(()),
            Some(_) => Err(SpirvError::Unsupported(format!("two decorations {} of one thing", words[0]))),
        }
    }

    pub fn of(&self, id: u32) -> DecorationSet {
        self.all.get(&(id, None)).copied().unwrap_or_default()
    }

    fn member(&self, id: u32, member: u32) -> DecorationSet {
        self.all.get(&(id, Some(member))).copied().unwrap_or_default()
    }

    /// The constant that holds the workgroup size, if one does.
    pub fn workgroup_size(&self) -> Option<u32> {
        self.workgroup_size
    }
}

#[derive(Clone, Debug)]
pub(super) enum TypeKind {
    Integer {
        bits: u32,
        signed: bool,
    },
    Vector {
        component: u32,
        count: u64,
    },
    Matrix {
        column: u32,
        count: u64,
    },
    Array {
        element: u32,
        count: u64,
    },
    RuntimeArray {
        element: u32,
    },
    Struct {
        members: Vec<u32>,
    },
    Pointer {
        class: u32,
        pointee: u32,
    },
    /// Void, bool, floats and functions.
    Other,
}

#[derive(Clone, Debug)]
struct TypeInfo {
    kind: TypeKind,
    scalars: u64,
    /// Bytes without padding, which is what a variable outside buffers takes.
    bytes: u64,
    block: Option<BlockKind>,
    /// Bytes from one array element to the next, in a buffer.
    stride: u64,
    /// For each member of a struct, in a buffer: offset, matrix stride, row-major.
    layout: Vec<(u64, u64, bool)>,
}

/// The types of a module by id.
#[derive(Debug, Default)]
pub(super) struct Types {
    all: HashMap<u32, TypeInfo>,
}

impl Types {
    /// Adds the type that an `OpType*` instruction declares.
    pub fn add(
        &mut self,
        op: Op,
        words: &[u32],
        decorations: &Decorations,
        constants: &Constants,
    ) -> Result<(), SpirvError> {
        let unsupported = |message: &str| Err(SpirvError::Unsupported(message.into()));
        let id = words[1];
        let part = |id: u32| {
            self.all.get(&id).ok_or_else(|| SpirvError::Unsupported("a type used before its declaration".into()))
        };
        let repeated = |id: u32, count: u64| -> Result<_, SpirvError> {
            let part = part(id)?;
            Ok((part.scalars.saturating_mul(count), part.bytes.saturating_mul(count)))
        };
        let (kind, (scalars, bytes)) = match op {
            Op::TypeVoid | Op::TypeFunction => (TypeKind::Other, (0, 0)),
            // Drivers hold a bool in 32 bits.
            Op::TypeBool => (TypeKind::Other, (1, 4)),
            Op::TypeInt => (TypeKind::Integer { bits: words[2], signed: words[3] != 0 }, (1, u64::from(words[2] / 8))),
            Op::TypeFloat => (TypeKind::Other, (1, u64::from(words[2] / 8))),
            Op::TypeVector => {
                let count = words[3].into();
                (TypeKind::Vector { component: words[2], count }, repeated(words[2], count)?)
            }
            Op::TypeMatrix => {
                let count = words[3].into();
                (TypeKind::Matrix { column: words[2], count }, repeated(words[2], count)?)
            }
            Op::TypeArray => {
                let count = match constants.integer(words[3]) {
                    Some(count) if (1..=i64::from(i32::MAX)).contains(&count) => count as u64,
                    Some(count) => {
                        return Err(SpirvError::Unsupported(format!("an array of {count} elements")));
                    }
                    None => return unsupported("an array whose length cannot be evaluated here"),
                };
                (TypeKind::Array { element: words[2], count }, repeated(words[2], count)?)
            }
            Op::TypeRuntimeArray => (TypeKind::RuntimeArray { element: words[2] }, repeated(words[2], 1)?),
            Op::TypeStruct => {
                let mut sum = (0u64, 0u64);
                for member in &words[2..] {
                    let part = part(*member)?;
                    sum = (sum.0.saturating_add(part.scalars), sum.1.saturating_add(part.bytes));
                }
                (TypeKind::Struct { members: words[2..].to_vec() }, sum)
            }
            Op::TypePointer => (TypeKind::Pointer { class: words[2], pointee: words[3] }, (1, 8)),
            _ => return unsupported("images, samplers and other opaque types"),
        };
        let layout = match &kind {
            TypeKind::Struct { members } => (0..members.len() as u32)
                .map(|member| {
                    let of = decorations.member(id, member);
                    (of.offset.unwrap_or(0).into(), of.matrix_stride.unwrap_or(0).into(), of.row_major)
                })
                .collect(),
            _ => Vec::new(),
        };
        let of = decorations.of(id);
        let stride = of.array_stride.unwrap_or(0).into();
        self.all.insert(id, TypeInfo { kind, scalars, bytes, block: of.block, stride, layout });
        Ok(())
    }

    pub fn kind(&self, id: u32) -> Option<&TypeKind> {
        self.all.get(&id).map(|ty| &ty.kind)
    }

    /// Width in bits and signedness of an integer type.
    pub fn integer(&self, id: u32) -> Option<(u32, bool)> {
        match self.kind(id)? {
            TypeKind::Integer { bits, signed } => Some((*bits, *signed)),
            _ => None,
        }
    }

    /// Number of components of a 32-bit integer type or vector of such.
    pub fn components32(&self, id: u32) -> Option<u64> {
        let (scalar, count) = match self.kind(id)? {
            TypeKind::Vector { component, count } => (*component, *count),
            _ => (id, 1),
        };
        self.integer(scalar).filter(|(bits, _)| *bits == 32).map(|_| count)
    }

    /// What a pointer type points to.
    pub fn pointee(&self, id: u32) -> Option<u32> {
        match self.kind(id)? {
            TypeKind::Pointer { pointee, .. } => Some(*pointee),
            _ => None,
        }
    }

    /// Scalars in a value of the type; a runtime array counts as one element.
    pub fn scalars(&self, id: u32) -> u64 {
        self.all.get(&id).map_or(0, |ty| ty.scalars)
    }

    /// Bytes of a variable of the type outside buffers.
    pub fn bytes(&self, id: u32) -> u64 {
        self.all.get(&id).map_or(0, |ty| ty.bytes)
    }

    /// Whether a type is a block, and of which kind.
    pub fn block(&self, id: u32) -> Option<BlockKind> {
        self.all.get(&id).filter(|ty| matches!(ty.kind, TypeKind::Struct { .. })).and_then(|ty| ty.block)
    }

    /// End of a block in bytes, by its explicit layout; a runtime array counts as one element. `None` if it exceeds
    /// 32 bits.
    pub fn extent(&self, id: u32) -> Option<u64> {
        self.extent_of(id, 0, false).filter(|bytes| *bytes <= MAX_EXTENT)
    }

    fn extent_of(&self, id: u32, matrix_stride: u64, row_major: bool) -> Option<u64> {
        let ty = self.all.get(&id)?;
        match &ty.kind {
            TypeKind::Array { element, count } => {
                let element = self.extent_of(*element, matrix_stride, row_major)?;
                ty.stride.checked_mul(count - 1)?.checked_add(element)
            }
            TypeKind::RuntimeArray { element } => self.extent_of(*element, matrix_stride, row_major),
            TypeKind::Struct { members } => {
                let mut ends = members.iter().zip(&ty.layout).map(|(member, &(offset, stride, row_major))| {
                    offset.checked_add(self.extent_of(*member, stride, row_major)?)
                });
                ends.try_fold(0, |end, member| Some(end.max(member?)))
            }
            TypeKind::Matrix { column, count } => {
                let column_type = self.all.get(column)?;
                let TypeKind::Vector { component, count: rows } = column_type.kind else {
                    return None;
                };
                let (lines, length) = if row_major { (rows, *count) } else { (*count, rows) };
                let line = self.bytes(component).checked_mul(length)?;
                matrix_stride.checked_mul(lines - 1)?.checked_add(line)
            }
            _ => Some(ty.bytes),
        }
    }

    /// Whether a pointer type points into memory whose accesses the driver bounds itself (robust buffer access).
    pub fn is_buffer_pointer(&self, id: u32) -> bool {
        let buffers = [StorageClass::StorageBuffer as u32, StorageClass::Uniform as u32];
        matches!(self.kind(id), Some(TypeKind::Pointer { class, .. }) if buffers.contains(class))
    }
}
