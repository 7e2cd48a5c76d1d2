//! Epilogues: programs that a kernel applies to each element of its result before it stores it or reduces all of them. This module owns
//! when a program may be one; it knows neither the kernel nor buffers.

use smallvec::smallvec;

use super::layout::{Layout, Pattern, View};
use super::op::{self, Reduction, Typing};
use super::types::Type;
use super::{Attribute, Axes, Input, Node, Program, Source};
use crate::error::{Error, Result};

/// A program over the elements of another kernel's result, in row-major order. Run alone on that result, it gives the same bits.
#[derive(Clone, Debug, Hash)]
pub struct EpilogueProgram {
    /// The element-wise program, whose results are stored unless they are reduced.
    pub program: Program,
    /// The program's layout.
    pub layout: Layout,
    /// The input that stands for the kernel's result: dense, each element read at its own index.
    pub element: usize,
    /// Whether the kernel stores its own result, too.
    pub keeps_element: bool,
    /// What all of the program's results are reduced to, if they are.
    pub reduction: Option<EpilogueReduction>,
}

/// A reduction of all results of an epilogue to one element.
#[derive(Clone, Debug, Hash)]
pub struct EpilogueReduction {
    /// The reduction of the one axis of its input, the dense results.
    pub program: Program,
    /// The program's layout.
    pub layout: Layout,
}

impl EpilogueProgram {
    /// Of a program that may end with a reduction to one element. Fails where it is not sound, or its input `element` is not what a kernel has
    /// at hand when it stores an element.
    pub fn new(program: Program, element: usize, keeps_element: bool) -> Result<Self> {
        program.check()?;
        let argument = |text: &'static str| Err(Error::Argument(text.into()));
        if program.output.is_some() {
            return argument("epilogue: has an output");
        }
        let (program, reduction) = match program.reduced_axes() {
            None => (program, None),
            Some(_) => {
                let (program, reduction) = EpilogueReduction::split(program)?;
                (program, Some(reduction))
            }
        };
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
        Ok(Self { program, layout, element, keeps_element, reduction })
    }

    /// The epilogue and what its results are reduced to as one program.
    pub fn whole(&self) -> Program {
        let mut program = self.program.clone();
        if let Some(last) = self.reduction.as_ref().and_then(|reduction| reduction.program.nodes.last()) {
            let results = program.inputs.len() + program.nodes.len() - 1;
            let attribute = match &last.attribute {
                Attribute::Axes(_) => Attribute::Axes((0..program.shape.len()).collect()),
                other => other.clone(),
            };
            program.nodes.push(Node { args: smallvec![results], attribute, ..*last });
        }
        program
    }

    /// The type of the result.
    pub fn result(&self) -> Type {
        self.reduction.as_ref().map_or(&self.program, |reduction| &reduction.program).result()
    }

    /// Elements of the result.
    pub fn outputs(&self) -> u64 {
        if self.reduction.is_some() { 1 } else { self.program.elements() }
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
        let reduction = |reduction: &EpilogueReduction| EpilogueReduction {
            program: reduction.program.without_parameters(),
            layout: reduction.layout.without_parameters(false),
        };
        Self {
            program: self.program.without_parameters(),
            layout: self.layout.without_parameters(false),
            reduction: self.reduction.as_ref().map(reduction),
            ..*self
        }
    }
}

impl EpilogueReduction {
    /// What is reduced as an element-wise program, and the reduction of its results.
    fn split(mut program: Program) -> Result<(Program, Self)> {
        let argument = |text: &'static str| Err(Error::Argument(text.into()));
        let Some(last) = program.nodes.pop() else { return argument("epilogue: has no nodes") };
        // The flat index is the one along the only axis that has several elements.
        let attribute = match last.attribute {
            Attribute::Arg { last, .. } => Attribute::Arg { axis: None, last },
            _ => Attribute::Axes(smallvec![0]),
        };
        let whole = Program { nodes: program.nodes.iter().chain([&last]).cloned().collect(), ..program.clone() };
        let folds = matches!(last.op.typing, Typing::Reduce(Reduction::Fold));
        if folds || Layout::new(&whole)?.outputs() != 1 {
            return argument("epilogue: ends with a reduction that is a fold or leaves several elements");
        }
        let (results, ty) = (last.args[0], program.type_of(last.args[0]));
        program.nodes.truncate((results + 1).saturating_sub(program.inputs.len()));
        if program.nodes.is_empty() {
            program.nodes.push(Node { op: op::AS_TYPE, ty, args: smallvec![results], attribute: Attribute::None });
        }
        let shape: Axes<u64> = smallvec![program.elements()];
        let input = Input { ty, source: Source::View { offset: 0, strides: smallvec![1] } };
        let node = Node { args: smallvec![0], attribute, ..last };
        let reduction = Program { inputs: smallvec![input], nodes: smallvec![node], ..Program::over(shape) };
        let layout = Layout::new(&reduction)?;
        Ok((program, Self { program: reduction, layout }))
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
    }

    /// What is reduced of two inputs, the first of which is the element, by these nodes: names, arguments and attributes.
    fn reducing(nodes: &[(&str, usize, Attribute)]) -> Result<EpilogueProgram> {
        let input = Input { ty: Type::F32, source: Source::View { offset: 0, strides: [4, 1].into_iter().collect() } };
        let node = |&(name, arg, ref attribute): &(&str, usize, Attribute)| {
            let ty = if name.starts_with("arg") { Type::S32 } else { Type::F32 };
            Node { op: op::find(name).unwrap(), ty, args: smallvec![arg], attribute: attribute.clone() }
        };
        let program = Program {
            inputs: smallvec![input.clone(), input],
            nodes: nodes.iter().map(node).collect(),
            ..Program::over(smallvec![1, 4])
        };
        EpilogueProgram::new(program, 0, false)
    }

    #[test]
    fn an_epilogue_may_end_with_a_reduction_to_one_element() {
        let argmax = |axis| Attribute::Arg { axis, last: true };
        let axes = |axes: &[usize]| Attribute::Axes(axes.into());
        let names = |program: &Program| program.nodes.iter().map(|node| node.op.name).collect::<Vec<_>>();
        for (attribute, whole) in [(argmax(Some(1)), argmax(None)), (argmax(None), argmax(None))] {
            let epilogue = reducing(&[("negate", 0, Attribute::None), ("argmax", 2, attribute)]).unwrap();
            assert_eq!(names(&epilogue.program), ["negate"]);
            assert_eq!(names(&epilogue.whole()), ["negate", "argmax"]);
            assert_eq!(epilogue.whole().nodes[1].attribute, whole);
            assert_eq!((epilogue.result(), epilogue.outputs()), (Type::S32, 1));
            let reduction = epilogue.reduction.unwrap();
            assert_eq!((reduction.layout.outputs(), reduction.layout.reduced()), (1, 4));
        }
        // The elements themselves, and nodes that nothing reads.
        let epilogue = reducing(&[("negate", 1, Attribute::None), ("reduce_max", 0, axes(&[0, 1]))]).unwrap();
        assert_eq!(names(&epilogue.program), ["as_type"]);
        assert_eq!(epilogue.whole().nodes[1].attribute, axes(&[0, 1]));
        assert!(reducing(&[("reduce_max", 0, axes(&[1]))]).is_ok());
        assert!(reducing(&[("reduce_max", 0, axes(&[0]))]).is_err());
        assert!(reducing(&[("negate", 0, Attribute::None), ("argmax", 2, argmax(Some(0)))]).is_err());
    }
}
