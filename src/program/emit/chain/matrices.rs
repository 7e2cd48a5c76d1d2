//! Matrix operations in chain kernels: the macros of `shaders/lib/chain/matrices.glsl`, and what they cost. Their operands are in memory.

use std::fmt::Write as _;

use super::plan::SlotKind;
use super::values::{ChainEmitter, Emission};
use crate::program::chain::MatrixOperation;
use crate::program::workgroup::StepInput;

impl ChainEmitter<'_> {
    /// Writes the operation of a step, after which its slot is known where the invocations meet.
    pub fn matrix(&mut self, step: usize, operation: MatrixOperation, threads: u64) -> Emission<()> {
        let given = self.step(step);
        let accessor = |input: usize| match given.inputs.get(input) {
            Some(&StepInput::Slot(slot)) if self.plan.kinds[slot] == SlotKind::Operand => format!("S{slot}"),
            Some(&StepInput::Slot(slot)) => format!("M{slot}"),
            _ => String::new(),
        };
        let (first, second, result) = (accessor(0), accessor(1), format!("M{}", given.slot));
        let glsl = given.program.result().compute().glsl();
        let n = operation.order();
        let mut macros = vec![("N", format!("{n}u"))];
        let (call, iterations) = match operation {
            MatrixOperation::Cholesky { .. } => {
                macros.extend([("A(i)", format!("{first}(i)")), ("L(i)", format!("{result}(i)"))]);
                // Each column has its rows, and sums of half as many products on average, eight at a time.
                let rows = n.div_ceil(threads);
                (format!("CHAIN_CHOLESKY({glsl})"), n * (2 + rows + (1 + rows) * n.div_ceil(16)))
            }
            MatrixOperation::Solve { lower, transposed, left, .. } => {
                let sides = given.program.elements() / n;
                // On the right the transposes are solved.
                let exchanged = transposed == left;
                let (row, column) = if exchanged { (1, n) } else { (n, 1) };
                let (side_row, side_column) = if left { (sides, 1) } else { (1, n) };
                macros.extend([
                    ("A(i)", format!("{second}(i)")),
                    ("B(i)", format!("{first}(i)")),
                    ("X(i)", format!("{result}(i)")),
                    ("SIDES", format!("{sides}u")),
                    ("ROW", format!("{row}u")),
                    ("COLUMN", format!("{column}u")),
                    ("SIDE_ROW", format!("{side_row}u")),
                    ("SIDE_COLUMN", format!("{side_column}u")),
                ]);
                (
                    format!("CHAIN_SOLVE({glsl}, {})", lower != exchanged),
                    sides.div_ceil(threads) * (1 + n * (1 + n.div_ceil(16))),
                )
            }
        };
        let mut text = String::new();
        for (name, value) in &macros {
            let _ = writeln!(text, "#define CHAIN_{name} {value}");
        }
        let _ = writeln!(text, "  {call}");
        for (name, _) in &macros {
            let _ = writeln!(text, "#undef CHAIN_{}", name.trim_end_matches("(i)"));
        }
        self.write(0, &text)?;
        self.scopes[0].add_iterations(iterations, 4);
        Ok(())
    }
}
