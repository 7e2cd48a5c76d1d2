//! Choices of Fourier transforms: the precision they compute in, the lengths of their passes, and the kernel of each pass.

use crate::device::Capabilities;

/// Transforms of at most this many points in all compute in double where the device has it, as BinaryBackend does;
/// larger ones compute in the result's type.
const MAX_DOUBLE_POINTS: u64 = 1 << 16;
/// Transforms that a workgroup has at most.
pub const MAX_TILES: u64 = 64;
/// Bytes of a workgroup's indices of its columns: four of 8 bytes for each.
const INDEX_BYTES: u64 = 4 * 8 * MAX_TILES;
/// Points of a workgroup of small transforms: few enough for several workgroups on a multiprocessor.
const SMALL_CAPACITY: u64 = 256;
/// From this many points in all on, transforms of powers of two run in kernels that are made for their length.
const MIN_REGISTER_POINTS: u64 = 1 << 18;
/// Points that an invocation of such a kernel keeps in registers.
pub const THREAD_POINTS: u64 = 16;

/// How a pass is computed. Kernels are made for these values; the others are parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PassKernel {
    /// Any length, in shared memory of `capacity` points (`shaders/lib/fourier/general.glsl`).
    General { capacity: u64 },
    /// A power of two, in registers (`shaders/lib/fourier/registers.glsl`): transforms of `length` points, `tile` of them a
    /// workgroup; `span` points are transformed after the pass. Whether neighbouring columns' points are neighbours otherwise.
    Registers { length: u64, tile: u64, span: u64, contiguous_in: bool, contiguous_out: bool },
}

/// One pass of transforms: what the choice of its kernel depends on.
#[derive(Clone, Copy, Debug)]
pub struct PassShape {
    /// Points that the pass transforms at once.
    pub length: u64,
    /// How many times it does so.
    pub columns: u64,
    /// Product of the lengths of the passes up to this one.
    pub span: u64,
    /// Whether the points of a column are neighbours where they are read, and where they are written.
    pub contiguous: [bool; 2],
    /// Whether points are pairs of doubles.
    pub in_double: bool,
}

/// Whether transforms of `points` points in all compute in double.
pub fn in_double(caps: &Capabilities, result_is_double: bool, points: u64) -> bool {
    result_is_double || (caps.float64 && points <= MAX_DOUBLE_POINTS)
}

/// The most points of a pass: of the only one, and of one of several. `total` are the points of all transforms.
pub fn max_lengths(caps: &Capabilities, points: u64, total: u64, in_double: bool) -> [u64; 2] {
    if in_registers(points, total) {
        let most = register_capacity(caps, in_double);
        return [most, most / 8];
    }
    let most = shared_capacity(caps, in_double);
    [most, most / 4]
}

/// The kernel of a pass, and how many transforms a workgroup of it has.
pub fn pass_kernel(caps: &Capabilities, pass: &PassShape) -> (PassKernel, u64) {
    let &PassShape { length, columns, span, contiguous: [contiguous_in, contiguous_out], in_double } = pass;
    if in_registers(length, columns * length) && span.is_power_of_two() {
        let tile = register_capacity(caps, in_double) / length;
        return (PassKernel::Registers { length, tile, span, contiguous_in, contiguous_out }, tile);
    }
    let most = shared_capacity(caps, in_double);
    let is_small = length <= SMALL_CAPACITY / 4 && columns * length <= 64 * SMALL_CAPACITY;
    let capacity = if is_small { SMALL_CAPACITY.min(most) } else { most };
    let tile = (1 << (capacity / length).ilog2()).min(MAX_TILES).min(columns.next_power_of_two());
    (PassKernel::General { capacity }, tile)
}

/// Whether transforms of `points` points, of `total` in all, go through registers.
fn in_registers(points: u64, total: u64) -> bool {
    points.is_power_of_two() && points >= THREAD_POINTS && total >= MIN_REGISTER_POINTS
}

/// The most points of a workgroup that holds them in registers: they are exchanged through shared memory, with one unused element
/// after every 16.
fn register_capacity(caps: &Capabilities, in_double: bool) -> u64 {
    let most = u64::from(caps.max_shared) / 17 * 16 / point_bytes(in_double);
    1 << most.clamp(2 * THREAD_POINTS, 256 * THREAD_POINTS).ilog2()
}

/// The most points that a workgroup transforms in shared memory, which has two copies of them, a root of unity for each, and
/// some indices.
fn shared_capacity(caps: &Capabilities, in_double: bool) -> u64 {
    let most = u64::from(caps.max_shared).saturating_sub(INDEX_BYTES) / (3 * point_bytes(in_double));
    1 << most.max(2).ilog2()
}

fn point_bytes(in_double: bool) -> u64 {
    if in_double { 16 } else { 8 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::devices::{h200, lavapipe};

    fn shape(length: u64, columns: u64) -> PassShape {
        PassShape { length, columns, span: length, contiguous: [true; 2], in_double: false }
    }

    #[test]
    fn small_totals_compute_in_double_where_the_device_has_it() {
        assert!(in_double(&h200(), false, 1 << 16) && !in_double(&h200(), false, (1 << 16) + 1));
        assert!(in_double(&h200(), true, 1 << 30));
        let caps = Capabilities { float64: false, ..h200() };
        assert!(!in_double(&caps, false, 1));
    }

    #[test]
    fn large_powers_of_two_go_through_registers() {
        for caps in [h200(), lavapipe()] {
            let (kernel, tile) = pass_kernel(&caps, &shape(1024, 256));
            assert!(matches!(kernel, PassKernel::Registers { length: 1024, .. }), "{kernel:?}");
            assert!(tile >= 1);
            for shape in [shape(1024, 255), shape(1000, 1 << 20), PassShape { span: 3 << 10, ..shape(1024, 1 << 20) }] {
                let kernel = pass_kernel(&caps, &shape).0;
                assert!(matches!(kernel, PassKernel::General { .. }), "{shape:?}: {kernel:?}");
            }
        }
    }

    #[test]
    fn workgroups_fit_shared_memory() {
        for caps in [h200(), lavapipe(), Capabilities { max_shared: 16 << 10, ..h200() }] {
            for in_double in [false, true] {
                let [whole, part] = max_lengths(&caps, 1000, 1000, in_double);
                assert!(3 * whole * point_bytes(in_double) + INDEX_BYTES <= caps.max_shared.into());
                assert!(part >= 61);
                for length in [2, 61, 128, whole] {
                    let (kernel, tile) = pass_kernel(&caps, &PassShape { in_double, ..shape(length, 1 << 20) });
                    let PassKernel::General { capacity } = kernel else { continue };
                    assert!(length * tile <= capacity && capacity <= whole, "{length} {tile} {capacity}");
                }
            }
        }
        assert_eq!(max_lengths(&h200(), 1 << 20, 1 << 20, false), [4096, 512]);
    }

    #[test]
    fn few_small_transforms_leave_room_for_other_workgroups() {
        assert_eq!(pass_kernel(&h200(), &shape(8, 4)), (PassKernel::General { capacity: 256 }, 4));
    }
}
