//! How scatters from windows are done. This module owns the choice of `kernels::window`.

use super::MAX_UNROLLED_WINDOW;

/// The fewest elements of a tensor for which unrolled code pays off. With 2×2 or 3×3 windows of this many it saves lavapipe 0.6
/// to 0.8 ms a call and takes 50 to 160 ms to build.
const MIN_UNROLLED_ELEMENTS: u64 = 1 << 14;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowScatterStrategy {
    /// One kernel chooses an element in each window, in a loop over it, and one adds up for each element, in a loop over windows.
    Loops,
    /// The same with the extents of windows as constants: a thread of the second takes the elements from one window's start to the next.
    Unrolled,
    /// One such kernel does both, as no two windows overlap.
    UnrolledAtOnce,
}

/// `cell` is the number of elements of a window, or from the start of one to the start of the next where that is larger.
pub fn strategy(elements: u64, cell: Option<u64>, overlap: bool) -> WindowScatterStrategy {
    let small = cell.is_some_and(|cell| cell <= MAX_UNROLLED_WINDOW);
    match small && elements >= MIN_UNROLLED_ELEMENTS {
        false => WindowScatterStrategy::Loops,
        true if overlap => WindowScatterStrategy::Unrolled,
        true => WindowScatterStrategy::UnrolledAtOnce,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_windows_of_many_elements_are_unrolled() {
        assert_eq!(strategy(1 << 14, Some(32), false), WindowScatterStrategy::UnrolledAtOnce);
        assert_eq!(strategy(1 << 14, Some(9), true), WindowScatterStrategy::Unrolled);
        assert_eq!(strategy((1 << 14) - 1, Some(4), true), WindowScatterStrategy::Loops);
        assert_eq!(strategy(1 << 20, Some(33), false), WindowScatterStrategy::Loops);
        assert_eq!(strategy(1 << 20, None, false), WindowScatterStrategy::Loops);
    }
}
