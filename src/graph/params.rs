//! The parameters of a kernel launch: their values and, where the source is wanted, their declarations in GLSL.

use std::fmt::{self, Display, Write as _};
use std::hash::Hasher;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::device::Capabilities;
use crate::memory::{Allocation, CheckedIndices};

/// A parameter's name: one or two words, followed by up to two numbers as in `stride0_1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name([&'static str; 2], [Option<usize>; 2]);

impl Name {
    /// A name of one word with another before it.
    pub fn after(self, word: &'static str) -> Self {
        let Self([name, _], numbers) = self;
        if word.is_empty() { self } else { Self([word, name], numbers) }
    }
}

impl From<&'static str> for Name {
    fn from(name: &'static str) -> Self {
        Self([name, ""], [None, None])
    }
}

impl From<(&'static str, &'static str)> for Name {
    fn from((first, second): (&'static str, &'static str)) -> Self {
        Self([first, second], [None, None])
    }
}

impl From<(&'static str, usize)> for Name {
    fn from((name, number): (&'static str, usize)) -> Self {
        Self([name, ""], [Some(number), None])
    }
}

impl From<(&'static str, usize, usize)> for Name {
    fn from((name, first, second): (&'static str, usize, usize)) -> Self {
        Self([name, ""], [Some(first), Some(second)])
    }
}

impl From<(&'static str, &'static str, usize)> for Name {
    fn from((first, second, number): (&'static str, &'static str, usize)) -> Self {
        Self([first, second], [Some(number), None])
    }
}

impl Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self(words, [first, second]) = self;
        words.iter().try_for_each(|word| f.write_str(word))?;
        first.iter().try_for_each(|number| write!(f, "{number}"))?;
        second.iter().try_for_each(|number| write!(f, "_{number}"))
    }
}

/// The GLSL type of a parameter.
#[derive(Clone, Copy)]
enum ParamType<'t> {
    /// A buffer's device address; the text is the storage type of its elements.
    Address(&'t str),
    /// An index, extent or stride: `IDX`.
    Index,
    /// 8 bytes of an immediate value.
    Bits64,
    /// 16 bytes of an immediate value.
    Bits128,
}

impl Display for ParamType<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            ParamType::Address(storage) => write!(f, "Buffer_{storage}"),
            ParamType::Index => f.write_str("IDX"),
            ParamType::Bits64 => f.write_str("uvec2"),
            ParamType::Bits128 => f.write_str("uvec4"),
        }
    }
}

/// The allocation that an address leads to: its identity and its start.
#[derive(Clone, Copy, Debug)]
pub struct AddressTarget {
    /// The allocation's identity.
    pub id: u64,
    /// The device address of its first byte.
    pub address: u64,
}

/// A parameter whose words each launch of a captured kernel fills in. `A` is how an allocation is known.
#[derive(Clone, Copy, Debug)]
pub enum Slot<A> {
    /// The allocation's device address, added to the words.
    Address(A),
    /// The value of an operand of the call.
    Scalar {
        /// The operand's position in the call.
        operand: usize,
        /// 32-bit words of the value.
        words: usize,
    },
    /// Whether to traverse large tensors in reverse.
    Reversed,
    /// The record of the call's check and the number of the launch's operation of this position.
    Check(usize),
}

/// The parameters of one launch. Each is given once, with its name, its GLSL type and its value; the allocations among them are what
/// the kernel reads and writes. The words, the declarations and the part of the cache key that stands for them come from that.
#[derive(Default)]
pub struct Params<'a> {
    words: SmallVec<[u32; 64]>,
    slots: SmallVec<[(usize, Slot<AddressTarget>); 8]>,
    reads: SmallVec<[&'a Allocation; 4]>,
    writes: SmallVec<[&'a Allocation; 4]>,
    checked: SmallVec<[&'a Arc<CheckedIndices>; 1]>,
    /// Pairs of what is read and what is written.
    in_place: SmallVec<[(u64, u64); 4]>,
    overwritten: SmallVec<[u64; 1]>,
    bindings: SmallVec<[(&'a Allocation, u64); 4]>,
    copies: bool,
    operations: u64,
    signature: Signature,
    index64: bool,
    divides_slowly: bool,
    declarations: Option<String>,
}

impl<'a> Params<'a> {
    /// Of a kernel of a device.
    pub fn of(caps: &Capabilities) -> Self {
        Self { divides_slowly: !caps.cpu, ..Self::default() }
    }

    /// Parameters that also keep their declarations.
    pub fn with_declarations(caps: &Capabilities) -> Self {
        Self { declarations: Some(String::new()), ..Self::of(caps) }
    }

    /// A buffer that the kernel reads, of elements of a storage type.
    pub fn read(&mut self, allocation: &'a Allocation, storage: &str, name: impl Into<Name>) {
        self.read_at(allocation, 0, storage, name);
    }

    /// A buffer that the kernel reads from byte `offset` on. Offsets wrap: elements with padding begin before the allocation.
    pub fn read_at(&mut self, allocation: &'a Allocation, offset: u64, storage: &str, name: impl Into<Name>) {
        self.reads.push(allocation);
        self.address(allocation, offset, storage, name.into());
    }

    /// A buffer that the kernel writes, and reads only where it wrote itself.
    pub fn write(&mut self, allocation: &'a Allocation, storage: &str, name: impl Into<Name>) {
        self.write_at(allocation, 0, storage, name);
    }

    /// A buffer that the kernel writes from byte `offset` on.
    pub fn write_at(&mut self, allocation: &'a Allocation, offset: u64, storage: &str, name: impl Into<Name>) {
        self.writes.push(allocation);
        self.address(allocation, offset, storage, name.into());
    }

    /// A buffer that the kernel reads and writes.
    pub fn update(&mut self, allocation: &'a Allocation, storage: &str, name: impl Into<Name>) {
        self.update_at(allocation, 0, storage, name);
    }

    /// A buffer that the kernel reads and writes from byte `offset` on.
    pub fn update_at(&mut self, allocation: &'a Allocation, offset: u64, storage: &str, name: impl Into<Name>) {
        self.reads.push(allocation);
        self.write_at(allocation, offset, storage, name);
    }

    /// A buffer that the declarations name and this launch does not use.
    pub fn absent(&mut self, storage: &str, name: impl Into<Name>) {
        self.push(&[0, 0], ParamType::Address(storage), name.into());
    }

    /// An index or stride, of 64 bits where `index64` says that those of the kernel have them. Strides wrap.
    #[inline]
    pub fn index(&mut self, value: i64, index64: bool, name: impl Into<Name>) {
        let words = halves(value as u64);
        self.index64 |= index64;
        self.push(if index64 { &words } else { &words[..1] }, ParamType::Index, name.into());
    }

    /// An extent or count.
    #[inline]
    pub fn extent(&mut self, value: u64, index64: bool, name: impl Into<Name>) {
        self.index(value as i64, index64, name);
    }

    /// An extent by which the kernel divides indices. Where these have 32 bits, `magic` has what takes the place of the division, for a device
    /// that divides slowly.
    pub fn divisor(&mut self, value: u64, index64: bool, name: impl Into<Name>, magic: impl Into<Name>) {
        self.extent(value, index64, name);
        if self.divides_slowly && !index64 {
            self.push(&magic_of(value as u32), ParamType::Bits64, magic.into());
        }
    }

    /// Several extents with their names.
    pub fn extents(&mut self, index64: bool, list: impl IntoIterator<Item = (&'static str, u64)>) {
        list.into_iter().for_each(|(name, value)| self.extent(value, index64, name));
    }

    /// The value of the call's operand `operand`, in 8 or 16 bytes.
    pub fn scalar(&mut self, operand: usize, value: &[u8], name: impl Into<Name>) {
        self.slots.push((self.words.len(), Slot::Scalar { operand, words: value.len() / 4 }));
        self.bits(value, name);
    }

    /// The bits of an immediate value, in 8 or 16 bytes.
    pub fn bits(&mut self, value: &[u8], name: impl Into<Name>) {
        let words: SmallVec<[u32; 4]> = value.as_chunks().0.iter().map(|&word| u32::from_ne_bytes(word)).collect();
        self.push(&words, if words.len() > 2 { ParamType::Bits128 } else { ParamType::Bits64 }, name.into());
    }

    /// `reversed`: the number of workgroups where large tensors are traversed from their ends, or 0. What the kernel before touched last is
    /// still in the cache.
    pub fn reversed(&mut self, index64: bool) {
        self.slots.push((self.words.len(), Slot::Reversed));
        self.extent(0, index64, "reversed");
    }

    /// A storage buffer of user SPIR-V, at the next binding: the first `bytes` bytes of an allocation, which the kernel reads.
    pub fn bind_read(&mut self, allocation: &'a Allocation, bytes: u64) {
        self.reads.push(allocation);
        self.bindings.push((allocation, bytes));
    }

    /// As [`Params::bind_read`], of a buffer that the kernel writes. Of its contents before the kernel reads those alone that commands of the
    /// same call wrote.
    pub fn bind_write(&mut self, allocation: &'a Allocation, bytes: u64) {
        self.writes.push(allocation);
        self.bindings.push((allocation, bytes));
    }

    /// A push constant of user SPIR-V, whose module declares it.
    pub fn word(&mut self, word: u32) {
        self.words.push(word);
    }

    /// Says of a buffer that was given by `read` that the kernel reads its elements only where it writes an element of the same size and at the
    /// same index of the buffer `written`, which may be in its memory.
    pub fn in_place(&mut self, read: &Allocation, written: &Allocation) {
        self.in_place.push((read.id, written.id));
    }

    /// Says of a buffer that was given by `write` that the kernel writes again all that earlier commands have written there.
    pub fn overwrites(&mut self, written: &Allocation) {
        self.overwritten.push(written.id);
    }

    /// Says that the kernel writes nothing but the elements of the buffer that [`Params::in_place`] names.
    pub fn copies(&mut self) {
        self.copies = true;
    }

    /// Says how many arithmetic operations the launch does, for profiles. More are added to those that were said before.
    pub fn operations(&mut self, count: u64) {
        self.operations = self.operations.saturating_add(count);
    }

    /// The launch's arithmetic operations; 0 where they are not counted.
    pub(crate) fn counted_operations(&self) -> u64 {
        self.operations
    }

    /// The identities of allocations that are read, each with that of what may be written in its memory.
    pub(crate) fn may_be_in_place(&self) -> impl Iterator<Item = (u64, u64)> {
        // Each time that the kernel reads them it does so.
        let count = |id: u64| self.reads.iter().filter(|read| read.id == id).count();
        let named = |pair: (u64, u64)| self.in_place.iter().filter(|&&named| named == pair).count();
        self.in_place.iter().copied().filter(move |&pair| count(pair.0) == named(pair))
    }

    /// The identities of allocations whose contents from before are lost.
    pub(crate) fn overwritten(&self) -> &[u64] {
        &self.overwritten
    }

    /// Whether the kernel copies the elements of one buffer to the same indices of another.
    pub(crate) fn is_copy(&self) -> bool {
        self.copies
    }

    /// `check`, which `lib/bounds.glsl` takes: where the kernel reports indices of the operation that are out of bounds.
    pub fn check(&mut self, operation: &'a Arc<CheckedIndices>, name: impl Into<Name>) {
        self.slots.push((self.words.len(), Slot::Check(self.checked.len())));
        self.checked.push(operation);
        self.bits(&[0; 16], name);
    }

    /// Gives the launch's checks their words.
    pub(crate) fn fill_checks(&mut self, words: impl Fn(&Arc<CheckedIndices>) -> [u32; 4]) {
        for &(position, slot) in &self.slots {
            if let Slot::Check(index) = slot {
                self.words[position..position + 4].copy_from_slice(&words(self.checked[index]));
            }
        }
    }

    /// The operations whose indices the kernel checks.
    pub(crate) fn checked(&self) -> &[&'a Arc<CheckedIndices>] {
        &self.checked
    }

    /// The storage buffers and their sizes in bytes, by their bindings.
    pub(crate) fn bindings(&self) -> &[(&'a Allocation, u64)] {
        &self.bindings
    }

    /// The values, in the order of the declarations.
    pub(crate) fn words(&self) -> &[u32] {
        &self.words
    }

    pub(crate) fn words_mut(&mut self) -> &mut [u32] {
        &mut self.words
    }

    /// The parameters that differ between two launches of one call's kind, by the positions of their first words.
    pub(crate) fn slots(&self) -> &[(usize, Slot<AddressTarget>)] {
        &self.slots
    }

    pub(crate) fn reads(&self) -> &[&'a Allocation] {
        &self.reads
    }

    pub(crate) fn writes(&self) -> &[&'a Allocation] {
        &self.writes
    }

    /// Whether indices have 64 bits.
    pub(crate) fn index64(&self) -> bool {
        self.index64
    }

    /// Types and names of all parameters, as part of a kernel's cache key.
    pub(crate) fn signature(&self) -> &[u8] {
        &self.signature.0
    }

    /// The GLSL of the block `p` of the parameters: pushed or, where they are too many, in a buffer.
    pub(crate) fn block(self, in_buffer: bool) -> String {
        let declarations = self.declarations.unwrap_or_default();
        if in_buffer {
            format!(
                "layout(buffer_reference, scalar) readonly buffer Params {{\n{declarations}}};\n\
                 layout(push_constant, scalar) uniform Push {{ Params p; }};\n"
            )
        } else {
            format!("layout(push_constant, scalar) uniform Params {{\n{declarations}}} p;\n")
        }
    }

    fn address(&mut self, allocation: &Allocation, offset: u64, storage: &str, name: Name) {
        let target = AddressTarget { id: allocation.id, address: allocation.address };
        self.slots.push((self.words.len(), Slot::Address(target)));
        self.push(&halves(allocation.address.wrapping_add(offset)), ParamType::Address(storage), name);
    }

    #[inline]
    fn push(&mut self, words: &[u32], kind: ParamType, name: Name) {
        words.iter().for_each(|&word| self.words.push(word));
        self.signature.sign(kind, words.len(), name);
        if let Some(text) = &mut self.declarations {
            let _ = writeln!(text, "  {kind} {name};");
        }
    }
}

/// The multiplier and the shift by which kernels divide an index below 2^31: the quotient is the high word of its product with the multiplier
/// and the index itself, shifted (T. Granlund, P. L. Montgomery, "Division by invariant integers using multiplication", 1994).
fn magic_of(divisor: u32) -> [u32; 2] {
    let divisor = u64::from(divisor.max(1));
    let shift = divisor.next_power_of_two().ilog2();
    let multiplier = ((1u64 << 32) * ((1 << shift) - divisor)) / divisor + 1;
    [multiplier as u32, shift]
}

/// The low word and the high one.
fn halves(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

/// Collects what is hashed: hashing all at once takes less than hashing piece by piece.
#[derive(Default)]
pub struct Signature(pub SmallVec<[u8; 512]>);

impl Signature {
    /// Adds a parameter. Lengths come first, so that no two lists of parameters have the same bytes. Written by hand, as a decomposition
    /// launches thousands of kernels: derived hashing takes three times as many writes.
    fn sign(&mut self, ty: ParamType, words: usize, Name([first, second], numbers): Name) {
        let (tag, storage) = match ty {
            ParamType::Address(storage) => (0, storage),
            ParamType::Index => (1, ""),
            ParamType::Bits64 => (2, ""),
            ParamType::Bits128 => (3, ""),
        };
        let [a, b] = numbers.map(|number| number.map_or(u32::MAX, |number| number as u32).to_ne_bytes());
        let lengths = [storage, first, second].map(|text| text.len() as u8);
        let head =
            [tag, words as u8, lengths[0], lengths[1], lengths[2], a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]];
        self.0.extend_from_slice(&head);
        [storage, first, second].iter().for_each(|text| self.0.extend_from_slice(text.as_bytes()));
    }
}

impl Hasher for Signature {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        xxhash_rust::xxh3::xxh3_64(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(give: impl Fn(&mut Params)) -> Vec<u8> {
        let mut params = Params::default();
        give(&mut params);
        params.signature().to_vec()
    }

    #[test]
    fn signatures_differ_with_names_and_types_and_not_with_values() {
        let one = signature(|p| p.extent(1, false, ("dim", 0)));
        assert_eq!(one, signature(|p| p.extent(2, false, ("dim", 0))));
        assert_ne!(one, signature(|p| p.extent(1, true, ("dim", 0))));
        assert_ne!(one, signature(|p| p.extent(1, false, ("dim", 1))));
        assert_ne!(one, signature(|p| p.extent(1, false, "dim")));
        assert_ne!(one, signature(|p| p.bits(&[0; 8], ("dim", 0))));
        let two = |names: [&'static str; 2]| signature(|p| names.into_iter().for_each(|name| p.extent(1, false, name)));
        assert_ne!(two(["a", "bc"]), two(["ab", "c"]));
    }

    #[test]
    fn products_with_a_magic_number_are_quotients() {
        let divisors = (1..300).chain((0..31).flat_map(|bit| [(1u32 << bit) - 1, 1 << bit, (1 << bit) + 1]));
        for divisor in divisors.chain([641, 1000, 12_345_677, (1 << 31) - 1]).filter(|&divisor| divisor > 0) {
            let [multiplier, shift] = magic_of(divisor);
            let multiples = (0..40).map(|i| divisor.wrapping_mul(i * 53_687_091 / divisor.max(2)));
            let near = multiples.flat_map(|at| [at.wrapping_sub(1), at, at.wrapping_add(1)]);
            for index in near.chain([0, 1, (1 << 31) - 1]).filter(|&index| index < 1 << 31) {
                let high = ((u64::from(index) * u64::from(multiplier)) >> 32) as u32;
                assert_eq!((high + index) >> shift, index / divisor, "{index} / {divisor}");
            }
        }
    }

    #[test]
    fn declarations_stand_in_the_order_of_the_words() {
        let mut params = Params::with_declarations(&crate::tuning::devices::lavapipe());
        params.extent(7, false, ("dim", 2));
        params.index(-1, true, ("stride", 0, 1));
        params.bits(&[1; 16], "start");
        assert_eq!(params.words(), [7, u32::MAX, u32::MAX, 0x0101_0101, 0x0101_0101, 0x0101_0101, 0x0101_0101]);
        let block = params.block(false);
        assert!(block.contains("  IDX dim2;\n  IDX stride0_1;\n  uvec4 start;\n"), "{block}");
    }
}
