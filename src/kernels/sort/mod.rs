//! Sorting along an axis: `Nx.sort/2`, `Nx.argsort/2`, `Nx.top_k/2`.
//!
//! Elements stay as they are; kernels compare their keys (`shaders/lib/sort/key.glsl`). The order is stable, ascending and
//! descending: NaN above all numbers, NaNs equal to each other, -0.0 equal to 0.0, as BinaryBackend has it. Short rows are
//! merged in shared memory, several a workgroup; long ones are sorted by radix, if not only a few elements are kept of each.

mod merge;
mod radix;
mod select;

use super::{Kernel, Rows};
use crate::error::{Attempt, Error};
use crate::graph::{Context, Params};
use crate::memory::{Allocation, AllocationHandle, Buffer};
use crate::program::emit::{assign, head, lanes};
use crate::program::types::{Compute, Type};

/// What to sort.
pub struct Sort<'a> {
    pub rows: Rows<'a>,
    /// How many bits of the elements, from the lowest, tell them apart: those of the type, or fewer of unsigned integers.
    pub bits: u32,
    pub descending: bool,
    /// How many elements of each row the results keep, at least one and at most all.
    pub keep: u64,
    /// Whether the sorted elements are a result.
    pub values: bool,
    /// The type of the places that the sorted elements had, if they are a result.
    pub places: Option<Type>,
}

/// The sorted elements and their places, of `outer` × `keep` × `inner` elements, as far as they were asked for.
pub struct Sorted {
    pub values: Option<Buffer>,
    pub places: Option<Buffer>,
}

/// Places and counters within a row are 32-bit numbers, with room for the last block.
const LONGEST: u64 = 1 << 31;

/// The results that `sort` asks for. Complex numbers, which have no order, are unsupported.
pub fn run(cx: &Context, sort: &Sort) -> Attempt<Sorted> {
    let Rows { buffer, ty, len, .. } = sort.rows;
    ty.check(cx.caps())?;
    sort.places.map_or(Ok(()), |ty| ty.check(cx.caps()))?;
    if ty.is_complex() {
        return Err(Error::Unsupported("complex numbers have no order".into()).into());
    }
    if len > LONGEST {
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
            places: sort.places.map(zeroed).transpose()?,
        });
    }
    let allocate = |ty: Type| cx.allocate(elements * ty.size());
    let source = buffer.allocation()?;
    let values = sort.values.then(|| allocate(ty)).transpose()?;
    let places = sort.places.map(allocate).transpose()?;
    let whole = Moved {
        sort,
        first: true,
        last: true,
        source: &source,
        source_places: None,
        values: values.as_deref(),
        places: places.as_deref(),
    };
    let run = Run { cx, whole };
    if !run.select()? && !run.merge()? {
        run.radix()?;
    }
    let result = |ty: Type, allocation| Buffer::new(elements * ty.size(), allocation);
    Ok(Sorted {
        values: values.map(|allocation| result(ty, allocation)),
        places: places.zip(sort.places).map(|(allocation, ty)| result(ty, allocation)),
    })
}

impl Sort<'_> {
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
        // The magnitude above which a float's bits are NaN.
        let largest: u64 = match (self.rows.ty.kind(), self.rows.ty.size()) {
            ("bf", _) => 0x7f80,
            ("f8_e4m3fn", _) => 0x7e,
            (_, 1) => 0x7c,
            (_, 2) => 0x7c00,
            (_, 4) => 0x7f80_0000,
            _ => 0x7ff0_0000,
        };
        params.extent(kind | u64::from(self.descending) << 2 | shift << 8, self.rows.index64(), "order");
        params.extent(largest, self.rows.index64(), "largest");
    }
}

/// What a kernel moves: elements and, where places are a result, the places that they had in their rows.
#[derive(Clone, Copy)]
struct Moved<'a> {
    sort: &'a Sort<'a>,
    /// Whether it is the first of several kernels, which reads the tensor: an element's place is where it stands.
    first: bool,
    /// Whether it is the last one, which writes the results.
    last: bool,
    source: &'a Allocation,
    /// The places so far, where it is not the first.
    source_places: Option<&'a Allocation>,
    values: Option<&'a Allocation>,
    places: Option<&'a Allocation>,
}

impl<'a> Moved<'a> {
    /// The place that an element had, as a GLSL expression for WRITE, and the type in which it is written.
    fn place(&self) -> Option<(&'static str, Type)> {
        let expression = if self.first { "i" } else { "AT(uint, p.source_places, from)" };
        self.sort.places.map(|ty| (expression, if self.last { ty } else { Type::U32 }))
    }

    /// What the addresses' declarations and the text of [`Self::head`] depend on.
    fn key(&self) -> [u8; 5] {
        let rows = &self.sort.rows;
        let place = self.place().map_or(255, |(_, ty)| ty as u8);
        [rows.ty.bits() as u8, rows.index64().into(), self.values.is_some().into(), place, self.first.into()]
    }

    fn addresses(&self, params: &mut Params) {
        let stored = self.sort.stored();
        params.legacy(self.source, 0, stored, "source");
        if let Some(block) = self.source_places {
            params.legacy(block, 0, "uint", "source_places");
        }
        if let Some(block) = self.values {
            params.legacy(block, 0, stored, "values");
        }
        if let Some((block, (_, ty))) = self.places.zip(self.place()) {
            params.legacy(block, 0, ty.storage(), "places");
        }
    }

    /// How far neighbours of a row are apart where they are read and written: between the first kernel and the last the rows
    /// are dense.
    fn steps(&self) -> [(&'static str, u64); 2] {
        let inner = |outside| if outside { self.sort.rows.inner } else { 1 };
        [("inner", inner(self.first)), ("inner_to", inner(self.last))]
    }

    fn reads(&self) -> impl Iterator<Item = &'a Allocation> {
        [self.source].into_iter().chain(self.source_places)
    }

    fn writes(&self) -> impl Iterator<Item = &'a Allocation> {
        self.values.into_iter().chain(self.places)
    }

    /// The start of a kernel of so many invocations up to its own definitions, with WRITE, which moves an element and its place.
    fn head(&self, cx: &Context, parameters: &str, invocations: u32) -> String {
        let (sort, place) = (self.sort, self.place());
        let place_type = place.map_or(Type::U32, |(_, ty)| ty);
        let storages = [sort.stored(), "uint", place_type.storage()];
        let mut text =
            head(cx.caps(), sort.rows.index64(), &storages, &[Compute::Uint, place_type.compute()], parameters);
        // What is indexed by such a loop's counter stays in a GPU's registers only without the loop. A CPU's compiler takes
        // seconds over the unrolled text, and gains nothing.
        let repeat = if cx.caps().cpu { "dont_unroll" } else { "unroll" };
        text += &format!(
            "#define STORED {stored}\n#define WIDTH {width}\n#define REPEAT [[{repeat}]]\n\
             layout(local_size_x = {invocations}) in;\n\
             #define WRITE(to, from, i) {{",
            stored = sort.stored(),
            width = sort.rows.ty.bits(),
        );
        if self.values.is_some() {
            text += &format!(" AT({0}, p.values, to) = AT({0}, p.source, from);", sort.stored());
        }
        if let Some((place, ty)) = place {
            text += &format!(" {};", assign(ty, "places", "to", (format!("({place})"), Type::U32)));
        }
        text + " }\n"
    }
}

/// Bytes of shared memory that as many keys and places take.
fn shared(count: u64, ty: Type) -> u64 {
    count * (ty.size().max(4) + 4)
}

struct Run<'a> {
    cx: &'a Context<'a>,
    /// From the tensor to the results at once.
    whole: Moved<'a>,
}
