//! How rows of updates are spread over threads. This module owns the choices of `shaders/lib/scatter.glsl`.

use crate::device::Capabilities;

/// Threads of a workgroup.
pub const SCATTER_THREADS: u64 = 256;
/// Rows that a GPU's thread loads before it uses the first, whose indices are not known early either.
const ROWS_IN_FLIGHT: u64 = 8;
/// Rows of a chunk, which one thread of a GPU adds up: in the first pass, and in those over the open sums that passes leave. The
/// additions of a chunk follow each other; longer chunks take fewer passes.
const FIRST_CHUNK: u64 = 32;
const LATER_CHUNK: u64 = 64;
/// The longest chunk on a CPU device.
const MAX_CPU_CHUNK: u64 = 1 << 12;

/// Rows that a thread loads at once.
pub fn rows_in_flight(caps: &Capabilities) -> u64 {
    if caps.cpu { 1 } else { ROWS_IN_FLIGHT }
}

/// Rows that a thread adds up of `rows`, in the first pass or a later one.
pub fn sum_chunk(caps: &Capabilities, rows: u64, first: bool) -> u64 {
    match first {
        // The square root of the rows balances the number of threads with the rows of each.
        _ if caps.cpu => rows.isqrt().clamp(LATER_CHUNK, MAX_CPU_CHUNK),
        true if rows > LATER_CHUNK => FIRST_CHUNK,
        _ => LATER_CHUNK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::devices::{h200, lavapipe};

    #[test]
    fn every_pass_leaves_fewer_rows() {
        for caps in [h200(), lavapipe()] {
            let (mut rows, mut passes) = (1u64 << 30, 0);
            loop {
                let chunks = rows.div_ceil(sum_chunk(&caps, rows, passes == 0));
                passes += 1;
                if chunks == 1 {
                    break;
                }
                assert!(2 * chunks < rows);
                rows = 2 * chunks;
            }
            assert!(passes <= 8, "{passes} passes");
        }
    }

    #[test]
    fn few_rows_are_one_chunk() {
        assert_eq!(sum_chunk(&h200(), 64, true), 64);
        assert_eq!(sum_chunk(&h200(), 65, true), 32);
        assert_eq!(sum_chunk(&lavapipe(), 64, true), 64);
        assert_eq!(sum_chunk(&lavapipe(), 1 << 30, true), 1 << 12);
    }
}
