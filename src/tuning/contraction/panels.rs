//! Packed panels on CPU devices: their sizes, and for which contractions they pay.

use super::axes::AxisGroups;
use crate::device::Capabilities;
use crate::program::Type;
use crate::program::types::Compute;

/// Bytes of both operands' panels: larger ones would exceed the operands by far, as a convolution's windows overlap.
const MAX_PANEL_BYTES: u64 = 256 << 20;
/// Multiplications below which two more kernels do not pay.
const MIN_PANEL_MULTIPLICATIONS: u64 = 1 << 15;
/// The most steps along k that an iteration takes: panels are as deep as a multiple of it.
pub const PANEL_STEPS: u64 = 16;
/// Multiplications below which a kernel has a quarter of the instructions: LLVM builds it in 0.1 s where it takes 0.2 to 0.5, and it is
/// as fast for few multiplications, within what this device's speed varies by.
const MIN_UNROLLED_MULTIPLICATIONS: u64 = 1 << 23;
/// Workgroups that keep a CPU's cores busy.
pub const MIN_BUSY_WORKGROUPS: u64 = 32;

/// What a subgroup computes: `panels` of `rows`, and two columns for each of its `lanes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PanelTile {
    pub lanes: u64,
    pub rows: u64,
    pub panels: u64,
    /// Steps along k that an iteration takes.
    pub steps: u64,
}

/// Rows whose sums, two vectors of `lanes` each, take three quarters of the CPU's registers.
fn max_rows(caps: &Capabilities, lanes: u64, accumulator: Compute) -> u64 {
    let [registers, bytes] = caps.vector_registers;
    let parts = if matches!(accumulator, Compute::Complex | Compute::ComplexDouble) { 2 } else { 1 };
    let vector = parts * (lanes * accumulator.size() / parts).div_ceil(bytes);
    (registers * 3 / 4 / (2 * vector) / 2 * 2).max(2)
}

impl PanelTile {
    /// Where the device is a CPU, the contraction large enough and all indices fit 32 bits. Both operands are multiplied in
    /// the type `inner`; `operand_elements` are those of their allocations.
    pub fn choose(
        caps: &Capabilities,
        groups: &AxisGroups,
        operand_elements: [u64; 2],
        inner: Type,
        accumulator: Compute,
    ) -> Option<Self> {
        use Compute::{Complex, ComplexDouble, Double, Float, Int, Uint};
        let [batch, m, n, k] = groups.sizes();
        let lanes = u64::from(caps.subgroup);
        let types = [Float, Double, Int, Uint, Complex, ComplexDouble];
        let fits = caps.cpu && caps.int64 && (4..=16).contains(&lanes) && lanes.is_power_of_two();
        if !fits || !types.contains(&inner.compute()) || !types.contains(&accumulator) {
            return None;
        }
        let max_rows = max_rows(caps, lanes, accumulator);
        // Two panels of A share what is loaded of B, if that leaves every core its part.
        let workgroups = m.div_ceil(2 * max_rows) * n.div_ceil(2 * lanes) * batch;
        let small = batch * m * n * k < MIN_UNROLLED_MULTIPLICATIONS;
        let panels = if small || workgroups < MIN_BUSY_WORKGROUPS { 1 } else { 2 };
        // The rows of a step are whole pairs of what the lanes load of A.
        let steps = if small { lanes.min(PANEL_STEPS) } else { PANEL_STEPS };
        // Panels are of one size, and pairs of rows are in one panel.
        let rows = m.div_ceil(m.div_ceil(panels * max_rows)).div_ceil(panels).next_multiple_of(2);
        let lines = m.next_multiple_of(panels * rows) + n.next_multiple_of(2 * lanes);
        let elements = batch * lines * k.next_multiple_of(PANEL_STEPS);
        let largest = elements.max(batch * m * n).max(operand_elements[0]).max(operand_elements[1]);
        let pays = batch * m * n * k >= MIN_PANEL_MULTIPLICATIONS
            && elements * inner.compute().size() <= MAX_PANEL_BYTES
            && largest < 1 << 31;
        pays.then_some(Self { lanes, rows, panels, steps })
    }
}
