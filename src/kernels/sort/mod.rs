//! Sorting along an axis: `Nx.sort/2`, `Nx.argsort/2`, `Nx.top_k/2`. This module owns what the kernels of all methods read and write;
//! which method sorts, and how it is split, is the choice of `tuning::sort`.
//!
//! Elements stay as they are; kernels compare their keys (`shaders/lib/sort/key.glsl`). The order is stable, ascending and
//! descending: NaN above all numbers, NaNs equal to each other, -0.0 equal to 0.0, as BinaryBackend has it. Short rows are
//! merged in shared memory, several a workgroup; long ones are sorted by radix, if not only a few elements are kept of each.

mod merge;
mod radix;
mod select;

use super::{KernelSpec, Rows, launch};
use crate::device::Capabilities;
use crate::error::{Attempt, Error};
use crate::graph::{Context, Params};
use crate::memory::{Allocation, AllocationHandle, Buffer};
use crate::program::emit::{assign, head};
use crate::program::types::{Compute, Type};
use crate::tuning::sort::{SortMethod, SortShape, items_loop, method};

/// What to sort.
pub struct Sort<'a> {
    /// The operand, as rows along the axis that is sorted.
    pub rows: Rows<'a>,
    /// How many bits of the elements, from the lowest, tell them apart: those of the type, or fewer of unsigned integers.
    pub bits: u32,
    /// Whether the largest element comes first.
    pub descending: bool,
    /// How many elements of each row the results keep, at least one and at most all.
    pub keep: u64,
    /// Whether the sorted elements are a result.
    pub values: bool,
    /// The type of the sorted elements' indices in their rows, if those are a result.
    pub indices: Option<Type>,
}

/// The sorted elements and their indices, of `outer` × `keep` × `inner` elements: those of the two that the sort asks for.
pub struct Sorted {
    /// The sorted elements, in the type of the operand; `None` where the sort does not ask for them.
    pub values: Option<Buffer>,
    /// The sorted elements' indices in their rows; `None` where the sort does not ask for them.
    pub indices: Option<Buffer>,
}

/// The longest row: indices and counters within one are 32-bit numbers, with room for the last block.
const MAX_SORTED_LEN: u64 = 1 << 31;

/// The results that `sort` asks for. Complex numbers, which have no order, are unsupported.
pub fn run(cx: &Context, sort: &Sort) -> Attempt<Sorted> {
    let Rows { buffer, ty, len, .. } = sort.rows;
    ty.check(cx.caps())?;
    sort.indices.map_or(Ok(()), |ty| ty.check(cx.caps()))?;
    if ty.is_complex() {
        return Err(Error::Unsupported("complex numbers have no order".into()).into());
    }
    if len > MAX_SORTED_LEN {
        return Err(Error::Unsupported(format!("sorting of {len} elements along an axis")).into());
    }
    if sort.keep > len {
        return Err(Error::Argument("keep: more elements than the axis has".into()).into());
    }
    let elements = sort.rows.count() * sort.keep;
    if elements == 0 {
        let zeroed = |ty: Type| cx.zeroed(elements * ty.size());
        return Ok(Sorted {
            values: sort.values.then(|| zeroed(ty)).transpose()?,
            indices: sort.indices.map(zeroed).transpose()?,
        });
    }
    let allocate = |ty: Type| cx.allocate(elements * ty.size());
    let source = buffer.allocation()?;
    let values = sort.values.then(|| allocate(ty)).transpose()?;
    let indices = sort.indices.map(allocate).transpose()?;
    let whole = SortStep {
        sort,
        first: true,
        last: true,
        source: &source,
        source_indices: None,
        values: values.as_deref(),
        indices: indices.as_deref(),
    };
    match method(cx.caps(), sort.shape()) {
        SortMethod::Select => select::run(cx, &whole)?,
        SortMethod::Merge { items } => merge::run(cx, &whole, items)?,
        SortMethod::Radix => radix::run(cx, &whole)?,
    }
    let result = |ty: Type, allocation| Buffer::new(elements * ty.size(), allocation);
    Ok(Sorted {
        values: values.map(|allocation| result(ty, allocation)),
        indices: indices.zip(sort.indices).map(|(allocation, ty)| result(ty, allocation)),
    })
}

impl Sort<'_> {
    fn shape(&self) -> SortShape {
        let Self { rows, keep, .. } = *self;
        SortShape { rows: rows.count(), len: rows.len, keep, bytes: rows.ty.size() }
    }

    /// The GLSL type of an element in a buffer: only its bits count.
    fn stored(&self) -> &'static str {
        match self.rows.ty.size() {
            1 => "uint8_t",
            2 => "uint16_t",
            4 => "uint",
            _ => "uvec2",
        }
    }

    /// The parameters that `sort/key.glsl` reads.
    fn order(&self, params: &mut Params, shift: u64) {
        let kind = if self.rows.ty.is_float() { 2 } else { u64::from(self.rows.ty.is_signed_int()) };
        // The magnitude above which a float's bits are NaN, whatever word an element has in a buffer.
        let largest: u64 = match (self.rows.ty.kind(), self.rows.ty.bits()) {
            ("bf", _) => 0x7f80,
            ("f8_e4m3fn", _) => 0x7e,
            (_, 8) => 0x7c,
            (_, 16) => 0x7c00,
            (_, 32) => 0x7f80_0000,
            _ => 0x7ff0_0000,
        };
        params.extent(kind | u64::from(self.descending) << 2 | shift << 8, self.rows.index64(), "order");
        params.extent(largest, self.rows.index64(), "largest");
    }
}

/// How a sort's kernels hold elements. Types are told apart by parameters, so that few kernels sort all of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct SortElements {
    /// Bits of an element.
    width: u32,
    /// The GLSL type of an element in a buffer: only its bits count.
    stored: &'static str,
    index64: bool,
}

/// What a kernel writes of the elements that it moves.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct SortMoves {
    /// Whether it writes the elements.
    values: bool,
    /// The type in which it writes their indices, if it does.
    indices: Option<Type>,
    /// Whether it reads these: an element's index is its position in the row otherwise.
    reads_indices: bool,
}

impl SortElements {
    /// Of kernels that read no elements.
    fn words(index64: bool) -> Self {
        Self { width: 32, stored: "uint", index64 }
    }

    /// The start of a kernel of `threads` threads up to its own definitions: with WRITE, which moves an element and its index,
    /// where it moves any. Where the last workgroup of a row merges what all of them have left of it, it writes `merged`.
    fn head(
        &self,
        caps: &Capabilities,
        parameters: &str,
        threads: u32,
        [moves, merged]: [Option<SortMoves>; 2],
    ) -> String {
        let indices = merged.or(moves).and_then(|moves| moves.indices).unwrap_or(Type::U32);
        let storages = [self.stored, "uint", indices.storage()];
        let mut text = head(caps, self.index64, &storages, &[Compute::Uint, indices.compute()], parameters);
        text += &format!(
            "#define STORED {stored}\n#define WIDTH {width}\n#define REPEAT [[{repeat}]]\n\
             layout(local_size_x = {threads}) in;\n",
            stored = self.stored,
            width = self.width,
            repeat = items_loop(caps),
        );
        let Some(moves) = moves else { return text };
        text += "#define WRITE(to, from, i) {";
        if moves.values {
            let value = if merged.is_some() { "LEFT(to)".into() } else { format!("AT({}, p.values, to)", self.stored) };
            text += &format!(" {value} = AT({}, p.source, from);", self.stored);
        }
        if let Some(ty) = moves.indices {
            let index = if moves.reads_indices { "(AT(uint, p.source_indices, from))" } else { "(i)" };
            text += &match merged {
                Some(_) => format!(" LEFT_INDEX(to) = uint{index};"),
                None => format!(" {};", assign(ty, "indices", "to", (index.into(), Type::U32))),
            };
        }
        text + " }\n" + &merged.map_or_else(String::new, |merged| self.merging(merged))
    }

    /// What `sort/select.glsl` asks for with MERGED.
    fn merging(&self, moves: SortMoves) -> String {
        let stored = self.stored;
        let block = |ty: &str| format!("layout(buffer_reference, scalar) coherent buffer Left_{ty} {{ {ty} v[]; }};\n");
        let blocks = if stored == "uint" { block("uint") } else { block("uint") + &block(stored) };
        let values =
            if moves.values { format!(" AT({stored}, p.merged_values, to) = LEFT(from);") } else { String::new() };
        let indices = moves.indices.map_or_else(String::new, |ty| {
            format!(" {};", assign(ty, "merged_indices", "to", ("LEFT_INDEX(from)".into(), Type::U32)))
        });
        format!(
            "{blocks}#define MERGED\n#define LEFT(i) CAST(Left_{stored}, p.values).v[i]\n\
             #define LEFT_INDEX(i) CAST(Left_uint, p.indices).v[i]\n#define ARRIVALS(row) CAST(Left_uint, p.arrivals).v[row]\n\
             #define WRITE_MERGED(to, from) {{{values}{indices} }}\n"
        )
    }
}

/// One kernel's part of a sort: where it reads elements, and where it writes them and their indices.
#[derive(Clone, Copy)]
struct SortStep<'a> {
    sort: &'a Sort<'a>,
    /// Whether it reads the operand.
    first: bool,
    /// Whether it writes the results.
    last: bool,
    source: &'a Allocation,
    source_indices: Option<&'a Allocation>,
    values: Option<&'a Allocation>,
    indices: Option<&'a Allocation>,
}

/// Dense rows between two kernels, with their elements' indices where those are wanted.
struct Between {
    values: AllocationHandle,
    indices: Option<AllocationHandle>,
}

impl Between {
    fn new(cx: &Context, sort: &Sort, len: u64) -> Attempt<Self> {
        let allocate = |bytes: u64| cx.allocate(sort.rows.count() * len * bytes);
        Ok(Self {
            values: allocate(sort.rows.ty.size())?,
            indices: sort.indices.map(|_| allocate(Type::U32.size())).transpose()?,
        })
    }
}

impl<'a> SortStep<'a> {
    /// A part of this step: it reads what `from` has instead of the operand, and writes to `to` instead of the results.
    fn between(&self, from: Option<&'a Between>, to: Option<&'a Between>) -> Self {
        let mut step = Self { first: from.is_none(), last: to.is_none(), ..*self };
        if let Some(Between { values, indices }) = from {
            (step.source, step.source_indices) = (values, indices.as_deref());
        }
        if let Some(Between { values, indices }) = to {
            (step.values, step.indices) = (Some(&**values), indices.as_deref());
        }
        step
    }

    fn elements(&self) -> SortElements {
        let Rows { ty, .. } = self.sort.rows;
        SortElements { width: ty.bits(), stored: self.sort.stored(), index64: self.sort.rows.index64() }
    }

    fn moves(&self) -> SortMoves {
        SortMoves { values: self.values.is_some(), indices: self.index_type(), reads_indices: !self.first }
    }

    /// The type in which indices are written, if they are: of 32 bits between two kernels.
    fn index_type(&self) -> Option<Type> {
        self.sort.indices.map(|ty| if self.last { ty } else { Type::U32 })
    }

    /// The parameters that WRITE uses.
    fn buffers(&self, params: &mut Params<'a>) {
        params.read(self.source, self.sort.stored(), "source");
        if let Some(indices) = self.source_indices {
            params.read(indices, "uint", "source_indices");
        }
        self.results(params, ["values", "indices"]);
    }

    /// What it writes, by these names.
    fn results(&self, params: &mut Params<'a>, [values_name, indices_name]: [&'static str; 2]) {
        if let Some(values) = self.values {
            params.write(values, self.sort.stored(), values_name);
        }
        if let Some((indices, ty)) = self.indices.zip(self.index_type()) {
            params.write(indices, ty.storage(), indices_name);
        }
    }

    /// The distances between neighbours of a row where they are read and where they are written: between two kernels rows are dense.
    fn strides(&self) -> [(&'static str, u64); 2] {
        let inner = |outside| if outside { self.sort.rows.inner } else { 1 };
        [("inner", inner(self.first)), ("inner_to", inner(self.last))]
    }
}
