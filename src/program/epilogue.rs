//! Epilogues: programs that a kernel applies to each element of its result before it stores it. This module owns when a program may
//! be one; it knows neither the kernel nor buffers.

use super::layout::{Layout, Pattern, View};
use super::types::Type;
use super::{Node, Program};
use crate::error::{Error, Result};

/// A program over the elements of another kernel's result, in row-major order. Run alone on that result, it gives the same bits.
#[derive(Clone, Debug, Hash)]
pub struct EpilogueProgram {
    /// The program. Its result is stored, and it has no reduction.
    pub program: Program,
    /// The program's layout.
    pub layout: Layout,
    /// The input that stands for the kernel's result: dense, each element read at its own index.
    pub element: usize,
    /// Whether the kernel stores its own result, too.
    pub keeps_element: bool,
}

impl EpilogueProgram {
    /// Fails where the program is not sound, or its input `element` is not what a kernel has at hand when it stores an element.
    pub fn new(program: Program, element: usize, keeps_element: bool) -> Result<Self> {
        program.check()?;
        let argument = |text: &'static str| Err(Error::Argument(text.into()));
        if program.reduced_axes().is_some() || program.output.is_some() {
            return argument("epilogue: has a reduction or an output");
        }
        let mut layout = Layout::new(&program)?;
        let one = program.elements() <= 1;
        let gathered = program.steps(element).next().is_some();
        let own = |view: &&mut View| view.input == Some(element) && view.offset == 0 && !gathered;
        let view = layout.views.iter_mut().find(own).filter(|view| one || view.pattern == Pattern::Linear);
        let Some(view) = view else {
            return argument("epilogue: reads the result at other indices than its own");
        };
        // A result of one element has no axes.
        view.pattern = Pattern::Linear;
        Ok(Self { program, layout, element, keeps_element })
    }

    /// The type of the elements of the kernel's own result.
    pub fn element_type(&self) -> Type {
        self.program.inputs[self.element].ty
    }

    /// Whether a kernel should hold the program once: its formulas take long to compute, and compilers long to compile.
    pub fn is_compute_bound(&self) -> bool {
        let nodes = &self.program.nodes;
        let compute_bound = |node: &Node| node.op.real.is_some_and(|formula| formula.compute_bound);
        nodes.iter().any(|node| compute_bound(node) || self.program.is_complex(node))
    }

    /// Whether an element's indices in what it reads take more than one division.
    pub fn divides_often(&self) -> bool {
        let strided = |view: &View| view.pattern == Pattern::Strided;
        self.layout.dims.len() > 2 && self.layout.views.iter().any(strided)
    }

    /// Whether it reads a tensor with an element for each of the result's, besides the result: a residual, say.
    pub fn reads_elements(&self) -> bool {
        let dims = &self.layout.dims;
        let dense = |view: &View| view.strides.iter().zip(dims).all(|(&stride, &dim)| stride != 0 || dim == 1);
        self.layout.views.iter().any(|view| view.input != Some(self.element) && dense(view))
    }

    /// The epilogue without what are parameters of its kernel.
    pub fn without_parameters(&self) -> Self {
        Self { program: self.program.without_parameters(), layout: self.layout.without_parameters(false), ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{Attribute, Axes, Input, Source, op};

    #[test]
    fn an_epilogue_reads_the_result_at_its_own_index_alone() {
        let epilogue = |strides: &[i64], name: &str, attribute| {
            let input = Input { ty: Type::F32, source: Source::View { offset: 0, strides: strides.into() } };
            let node = Node { op: op::find(name).unwrap(), ty: Type::F32, args: [0].into_iter().collect(), attribute };
            let shape: Axes<u64> = [3, 4].into_iter().collect();
            EpilogueProgram::new(
                Program {
                    inputs: [input].into_iter().collect(),
                    nodes: [node].into_iter().collect(),
                    shape,
                    output: None,
                },
                0,
                false,
            )
        };
        assert!(epilogue(&[4, 1], "negate", Attribute::None).is_ok());
        assert!(epilogue(&[1, 3], "negate", Attribute::None).is_err());
        assert!(epilogue(&[0, 1], "negate", Attribute::None).is_err());
        assert!(epilogue(&[4, 1], "sum", Attribute::Axes([1].into_iter().collect())).is_err());
    }
}
