//! Inputs that are sums of several parts: functions that add up the parts of an element.

use std::fmt::Write as _;

use super::super::values::convert;
use super::super::vec4_of;
use super::RowEmitter;
use crate::program::Type;
use crate::program::rows::SummedInput;

/// Parts that are loaded before they are added up, so that their loads overlap.
const LOADED_PARTS: usize = 8;

impl RowEmitter<'_> {
    /// Whether the input is a sum of parts.
    pub(super) fn is_summed(&self, input: usize) -> bool {
        self.rows.summed.is_some_and(|summed| summed.input == input)
    }

    /// Whether the value is what is made of such a sum: the last result.
    pub(super) fn is_made_of_sum(&self, value: usize) -> bool {
        self.rows.summed.is_some() && self.rows.outputs.last().is_some_and(|output| output.value == value)
    }

    /// `sum_of_parts` gives the sum of an element's parts, which lie `elements` apart or, where the loop gives vectors, those of four neighbours.
    pub(super) fn parts(&self, text: &mut String) {
        let Some(SummedInput { input, parts }) = self.rows.summed else { return };
        let ty = self.program().inputs[input].ty;
        let storage = ty.storage();
        let (value, sum, components) = match self.emitter.is_given(input) {
            true => (vec4_of(storage), "dvec4", &[".x", ".y", ".z", ".w"][..]),
            false => (storage, "double", &[""][..]),
        };
        let load = |part: u64| match components {
            [_] => format!("AT({storage}, parts, index + {part} * elements)"),
            _ => format!("LOAD_VEC4({storage}, parts, (index + {part} * elements) / 4)"),
        };
        let converted = |name: &str, from, to| {
            let each = |component: &&str| convert((format!("{name}{component}"), from), to);
            components.iter().map(each).collect::<Vec<_>>().join(", ")
        };
        let _ = writeln!(text, "{value} sum_of_parts(Buffer_{storage} parts, IDX index, IDX elements) {{");
        let _ = writeln!(text, "  precise {sum} sum = {sum}(0.0lf);");
        for first in (0..parts).step_by(LOADED_PARTS) {
            let loaded = first..parts.min(first + LOADED_PARTS as u64);
            for part in loaded.clone() {
                let _ = writeln!(text, "  {value} x{part} = {};", load(part));
            }
            for part in loaded {
                let _ = writeln!(text, "  sum += {sum}({});", converted(&format!("x{part}"), ty, Type::F64));
            }
        }
        let _ = writeln!(text, "  return {value}({});\n}}", converted("sum", Type::F64, ty));
    }
}
