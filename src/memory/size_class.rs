//! The sizes that allocations have. Nothing is known here of the memory.

/// The smallest size class.
pub(super) const MIN_SIZE_BYTES: u64 = 256;

/// Rounds up to the size class: four classes to each power of two, so that at most a quarter is lost.
pub(super) fn size_class(len: u64) -> Option<u64> {
    let len = len.max(MIN_SIZE_BYTES);
    let step = 1u64 << ((len - 1).ilog2().max(8) - 2);
    len.checked_next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_lose_at_most_a_quarter_and_are_fixed_points() {
        for len in (0..100_000).chain((0..60).map(|e| (1u64 << e) + 1)) {
            let size = size_class(len).unwrap();
            assert!(size >= len && size.is_multiple_of(64), "{len} → {size}");
            assert!(size - len <= (len / 4).max(MIN_SIZE_BYTES), "{len} → {size}");
            assert_eq!(size_class(size), Some(size), "{len}");
        }
        assert_eq!(size_class(u64::MAX), None);
    }
}
