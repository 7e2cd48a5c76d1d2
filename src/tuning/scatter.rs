//! How rows of updates are spread over threads. This module owns the choices of `shaders/lib/scatter.glsl`.

use crate::device::Capabilities;

/// Threads of a workgroup.
pub const SCATTER_THREADS: u64 = 256;
/// Rows that a GPU's thread loads before it uses the first, whose indices are not known early either. With 8 rows of 4 columns an H200
/// has registers for fewer threads, and sums 32,768 rows of 256 in 45 µs instead of 28.
const ROWS_IN_FLIGHT: u64 = 4;
/// Neighbours in a row that a GPU's thread takes at most, as a vector: with one instead of 4 the same sums took 36 µs.
pub const MAX_COLUMNS: u64 = 4;
/// Bytes of the largest elements that are taken as vectors: four of them are the 16 bytes that a thread loads at once.
const MAX_COLUMN_BYTES: u64 = 4;
/// Rows behind a chunk within which its last target is finished instead of left open. Up to this many rows more are loaded for it.
pub const SUM_REACH: u64 = 8;
/// Rows of a chunk, which one thread of a GPU adds up. The additions of a chunk follow each other; longer chunks take fewer passes. An H200 takes
/// 86 µs to add 2^20 elements to 100, and 99 with chunks of 64 in the passes over open sums; 88 µs to add 32,768 rows of 256, and 92 with chunks
/// of 16 in the first pass.
const SUM_CHUNK: u64 = 32;
/// The shortest chunk on a CPU device.
const MIN_CPU_SUM_CHUNK: u64 = 64;
/// The longest chunk on a CPU device.
const MAX_CPU_SUM_CHUNK: u64 = 1 << 12;

/// Rows that a thread loads at once.
pub fn rows_in_flight(caps: &Capabilities) -> u64 {
    if caps.cpu { 1 } else { ROWS_IN_FLIGHT }
}

/// Neighbours in a row that a thread takes where the largest type of the operands has `bytes`, and vectors of them may be loaded.
pub fn scatter_columns(caps: &Capabilities, bytes: u64) -> u64 {
    if caps.cpu || bytes > MAX_COLUMN_BYTES { 1 } else { MAX_COLUMNS }
}

/// Rows that a thread adds up of `rows`.
pub fn sum_chunk(caps: &Capabilities, rows: u64) -> u64 {
    // The square root of the rows balances the number of threads with the rows of each.
    if caps.cpu { rows.isqrt().clamp(MIN_CPU_SUM_CHUNK, MAX_CPU_SUM_CHUNK) } else { SUM_CHUNK }
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
                let chunks = rows.div_ceil(sum_chunk(&caps, rows));
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
    fn chunks_on_a_cpu_grow_with_the_rows() {
        assert_eq!(sum_chunk(&lavapipe(), 64), 64);
        assert_eq!(sum_chunk(&lavapipe(), 1 << 30), 1 << 12);
        assert_eq!(sum_chunk(&h200(), 1 << 30), 32);
    }

    #[test]
    fn what_a_chunk_takes_behind_it_lies_in_the_next_one() {
        for caps in [h200(), lavapipe()] {
            assert!(SUM_REACH <= sum_chunk(&caps, 1));
            assert_eq!(SUM_REACH % rows_in_flight(&caps), 0);
        }
    }

    #[test]
    fn vectors_are_of_small_elements_on_gpus() {
        assert_eq!([1, 2, 4, 8, 16].map(|bytes| scatter_columns(&h200(), bytes)), [4, 4, 4, 1, 1]);
        assert_eq!(scatter_columns(&lavapipe(), 4), 1);
    }
}
