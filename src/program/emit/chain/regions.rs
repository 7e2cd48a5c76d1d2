//! Slots that several steps write, each a region: concatenated and padded tensors, and those that a slice was put into.

use std::fmt::Write as _;

use super::algebra::{as_type, literal};
use super::index::ElementIndex;
use super::values::{ChainEmitter, ChainValue, Emission};
use crate::program::{DynamicOffset, OutputView, dense_strides};

/// Where an element is in a region.
enum Located {
    /// Not in it.
    Outside,
    /// At that point of the region's iteration space, where the conditions hold.
    Inside(Vec<ElementIndex>, Vec<String>),
}

impl ChainEmitter<'_> {
    /// The element that the last of the steps wrote.
    pub fn region(&mut self, writers: &[usize], index: &ElementIndex) -> Emission<ChainValue> {
        let Some((&last, rest)) = writers.split_last() else {
            // Regions that leave nothing out cover each element.
            return self.element(0, &ElementIndex::constant(0));
        };
        let (coordinates, conditions) = match self.located(last, index)? {
            Located::Outside => return self.region(rest, index),
            Located::Inside(coordinates, conditions) => (coordinates, conditions),
        };
        if conditions.is_empty() || rest.is_empty() {
            let views = self.views(last, &coordinates);
            return self.result(last, &views);
        }
        let depth = self.floor(index.depth(&self.variables));
        let (inside, own) = self.scope(depth, true, |this| {
            let views = this.views(last, &coordinates);
            this.result(last, &views)
        })?;
        let (outside, other) = self.scope(depth, true, |this| this.region(rest, index))?;
        let ty = if own.bits.is_some() { other.ty } else { own.ty };
        let (own, other) = (as_type(&own, ty).text, as_type(&other, ty).text);
        let condition = conditions.join(" && ");
        if inside.statements.is_empty() && outside.statements.is_empty() {
            return self.declare(&format!("{condition} ? {own} : {other}"), ty, depth);
        }
        let name = self.name("v");
        let text = format!(
            "  {glsl} {name};\n  if ({condition}) {{\n{}  {name} = {own};\n  }} else {{\n{}  {name} = {other};\n  }}\n",
            inside.text(),
            outside.text(),
            glsl = ty.compute().glsl()
        );
        self.write(depth, &text)?;
        for branch in [&inside, &outside] {
            self.scopes[depth].add_loop(1, branch);
        }
        Ok(ChainValue { text: name, ty, depth, bits: None })
    }

    fn located(&mut self, step: usize, index: &ElementIndex) -> Emission<Located> {
        let given = self.step(step);
        let (shape, program) = (&given.slot_shape, &given.program);
        let Some(OutputView { offset, strides, dynamic_offsets }) = &program.output else {
            return Ok(Located::Inside(vec![], vec![]));
        };
        let dense = dense_strides(shape);
        let at = self.coordinates(index, shape)?;
        let mut coordinates = vec![ElementIndex::constant(0); program.shape.len()];
        let mut conditions = vec![];
        let mut rest = *offset;
        for axis in 0..shape.len() {
            if shape[axis] == 1 {
                continue;
            }
            let start = rest / dense[axis];
            rest -= start * dense[axis];
            // The region's axis that goes along this one.
            let within = |stride: i64| stride % dense[axis] == 0 && stride < dense[axis] * shape[axis] as i64;
            let own = (0..program.shape.len())
                .find(|&own| program.shape[own] != 1 && within(strides[own]) && strides[own] > 0);
            let (count, step_along) = own.map_or((1, 1), |own| (program.shape[own] as i64, strides[own] / dense[axis]));
            let mut distance = at[axis].plus(-start);
            for dynamic in dynamic_offsets.iter().filter(|dynamic| dynamic.step == dense[axis]) {
                distance = self.moved(step, &distance, dynamic)?;
            }
            let (mut least, mut most) = distance.range(&self.variables);
            let mut along = distance.clone();
            if step_along > 1 {
                match distance.divide(step_along, &self.variables) {
                    Ok((quotient, remainder)) if remainder.known() == Some(0) => along = quotient,
                    Ok((_, remainder)) if remainder.known().is_some() => return Ok(Located::Outside),
                    _ => {
                        // Before the region's start the distance wraps to what is far beyond its end.
                        let text = distance.text(&self.variables);
                        conditions.push(format!("{text} % {step_along}u == 0u"));
                        along = self.quotient(&distance, step_along)?;
                    }
                }
                (least, most) = (least.div_euclid(step_along), most.div_euclid(step_along));
            }
            if least >= count || most < 0 {
                return Ok(Located::Outside);
            }
            if least < 0 || most >= count {
                let mut condition = String::new();
                let _ = write!(condition, "{} < {count}u", along.text(&self.variables));
                conditions.push(condition);
            }
            if let Some(own) = own {
                coordinates[own] = along;
            }
        }
        Ok(Located::Inside(coordinates, conditions))
    }

    /// The distance from a start that an operand moves.
    fn moved(&mut self, step: usize, distance: &ElementIndex, dynamic: &DynamicOffset) -> Emission<ElementIndex> {
        let value = self.input(step, dynamic.value)?;
        let start = self.clamped(&value, dynamic.extent)?;
        Ok(distance.add(&start, -1))
    }

    /// An input of one element.
    fn input(&mut self, step: usize, input: usize) -> Emission<ChainValue> {
        let given = self.step(step);
        let before =
            given.program.inputs[..input].iter().filter(|i| matches!(i.source, crate::program::Source::View { .. }));
        let at = ElementIndex::constant(given.layout.views[before.count()].offset);
        match given.inputs[input] {
            crate::program::workgroup::StepInput::Slot(slot) => {
                Ok(as_type(&self.element(slot, &at)?, given.program.inputs[input].ty))
            }
            crate::program::workgroup::StepInput::Value(bits) => Ok(literal(given.program.inputs[input].ty, &bits)),
        }
    }
}
