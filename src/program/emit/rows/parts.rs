//! Inputs that are sums of several parts: functions that add up the parts of an element.

use std::fmt::Write as _;

use super::RowEmitter;
use crate::program::rows::SummedInput;

/// Parts that are loaded before they are added up, so that their loads overlap.
const LOADED_PARTS: usize = 8;

impl RowEmitter<'_> {
    /// Whether the input is a sum of parts.
    pub(super) fn is_summed(&self, input: usize) -> bool {
        self.rows.summed.is_some_and(|summed| summed.input == input)
    }

    /// Whether the value is what is made of such a sum.
    pub(super) fn is_made_of_sum(&self, value: usize) -> bool {
        self.rows.summed.is_some_and(|summed| summed.result == value)
    }

    /// `sum_of_parts` gives the sum of an element's parts, which lie `elements` apart, and `sums_of_parts` those of four neighbours.
    pub(super) fn parts(&self, text: &mut String) {
        let Some(SummedInput { input, parts, .. }) = self.rows.summed else { return };
        let vectors = ("dvec4 sums_of_parts", "dvec4", "LOAD_VEC4(double, parts, (index + PART * elements) / 4)");
        let scalars = ("double sum_of_parts", "double", "AT(double, parts, index + PART * elements)");
        for (function, ty, load) in [scalars].into_iter().chain(self.emitter.is_given(input).then_some(vectors)) {
            let _ = writeln!(text, "{function}(Buffer_double parts, IDX index, IDX elements) {{");
            let _ = writeln!(text, "  precise {ty} sum = {ty}(0.0lf);");
            for first in (0..parts).step_by(LOADED_PARTS) {
                let loaded = first..parts.min(first + LOADED_PARTS as u64);
                for part in loaded.clone() {
                    let _ = writeln!(text, "  {ty} x{part} = {};", load.replace("PART", &part.to_string()));
                }
                for part in loaded {
                    let _ = writeln!(text, "  sum += x{part};");
                }
            }
            text.push_str("  return sum;\n}\n");
        }
    }
}
