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

    /// Whether the value is what is made of such a sum.
    pub(super) fn is_made_of_sum(&self, value: usize) -> bool {
        self.rows.summed.is_some_and(|summed| summed.result == value)
    }

    /// `sum_of_parts` gives the sum of an element's parts, which lie `elements` apart, and `sums_of_parts` those of four neighbours.
    pub(super) fn parts(&self, text: &mut String) {
        let Some(SummedInput { input, .. }) = self.rows.summed else { return };
        let storage = self.program().inputs[input].ty.storage();
        let scalar = |part| format!("AT({storage}, parts, index + {part} * elements)");
        self.parts_function(text, "sum_of_parts", [storage, "double"], &[""], &scalar);
        if self.emitter.is_given(input) {
            let vector = |part| format!("LOAD_VEC4({storage}, parts, (index + {part} * elements) / 4)");
            let components = [".x", ".y", ".z", ".w"];
            self.parts_function(text, "sums_of_parts", [vec4_of(storage), "dvec4"], &components, &vector);
        }
    }

    /// A function of that name: the types of what it returns and of the sum, the suffixes of their components, and what it loads of a part.
    fn parts_function(
        &self,
        text: &mut String,
        name: &str,
        [value, sum]: [&str; 2],
        components: &[&str],
        load: &dyn Fn(u64) -> String,
    ) {
        let Some(SummedInput { input, parts, .. }) = self.rows.summed else { return };
        let ty = self.program().inputs[input].ty;
        let converted = |name: &str, from, to| {
            let each = |component: &&str| convert((format!("{name}{component}"), from), to);
            components.iter().map(each).collect::<Vec<_>>().join(", ")
        };
        let _ = writeln!(text, "{value} {name}(Buffer_{} parts, IDX index, IDX elements) {{", ty.storage());
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
