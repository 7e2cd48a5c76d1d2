//! Row programs: several results of one iteration space, with reductions of its rows among their operations. This module owns what such a
//! program is made of and whether it is sound; how rows are spread over invocations is `tuning::rows`' choice.
//!
//! The last axes make a row. A value is an element's, one for each index, or a row's, one for each row: what a reduction gives, and what is
//! computed of such values alone. A row's value is the same for all elements of the row.

use super::layout::{Layout, View};
use super::op::{Reduction, Typing};
use super::{Attribute, Axes, Node, Program, Source, Type};
use crate::error::{Error, Result};

/// The most results of a row program.
pub const MAX_OUTPUTS: usize = 8;

/// Programs of several results over rows.
#[derive(Clone, Debug, Hash)]
pub struct RowProgram {
    /// The operations, any of which may reduce the rows.
    pub program: Program,
    /// How many of the last axes make a row; at least one.
    pub row_axes: usize,
    /// The results: each goes to dense memory of its own.
    pub outputs: Vec<RowOutput>,
    /// An input that is a sum of several parts. What is made of the sum is the last result then.
    pub summed: Option<SummedInput>,
}

/// A dense input of f32 or f64 whose buffer has several parts of as many elements, one after the other. An element is the sum of its parts, formed
/// in double.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SummedInput {
    /// The input.
    pub input: usize,
    /// How many parts there are.
    pub parts: u64,
}

/// A result of a row program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowOutput {
    /// Its index among inputs and nodes.
    pub value: usize,
    /// Whether it has one value for each element, else one for each row. A row's value that is stored for each element is an element's.
    pub of_element: bool,
}

/// What a sound row program goes through.
#[derive(Clone, Debug, Hash)]
pub struct SoundRows {
    /// Axes outside of rows are kept, those of rows reduced.
    pub layout: Layout,
    /// Of each input and node whether it is an element's, else a row's.
    pub of_element: Vec<bool>,
    /// Of each view whether it differs within a row.
    pub varying: Vec<bool>,
}

impl SoundRows {
    /// One operation for each node, conversions excepted, and each element or row that it is computed for. A reduction takes elements.
    pub fn operations(&self, program: &Program) -> u64 {
        let (rows, elements) = (self.layout.outputs(), self.layout.outputs() * self.layout.reduced());
        let of_elements = |&value: &usize| self.of_element[value];
        let count = |(index, node): (usize, &Node)| match node.computes() {
            true if of_elements(&(program.inputs.len() + index)) || node.args.iter().any(of_elements) => elements,
            true => rows,
            false => 0,
        };
        program.nodes.iter().enumerate().map(count).sum()
    }

    /// As a kernel has it, whose parameters are extents, strides and offsets.
    pub fn without_parameters(&self) -> Self {
        Self { layout: self.layout.without_parameters(false), ..self.clone() }
    }
}

impl RowProgram {
    /// The layout of a sound program. Fails for one that is not.
    pub fn check(&self) -> Result<SoundRows> {
        let argument = |text: &'static str| Err(Error::Argument(text.into()));
        let Self { program, row_axes, outputs, .. } = self;
        if !(1..=program.shape.len()).contains(row_axes) || program.output.is_some() {
            return argument("rows: expected some of the axes of the iteration space");
        }
        let values = program.inputs.len()..program.inputs.len() + program.nodes.len();
        let of_values = outputs.iter().all(|output| values.contains(&output.value));
        if outputs.is_empty() || outputs.len() > MAX_OUTPUTS || !of_values {
            return argument("outputs: expected up to eight nodes");
        }
        program.check_nodes()?;
        program.check_unpadded()?;
        let outer = program.shape.len() - row_axes;
        for node in &program.nodes {
            let Typing::Reduce(reduction) = node.op.typing else {
                if node.op.typing == Typing::Accumulator {
                    return argument("nodes: rows are not reduced by a function");
                }
                continue;
            };
            // Axes of one element are reduced or not.
            let spans = |reduced: &dyn Fn(usize) -> bool| {
                (0..program.shape.len()).all(|axis| program.shape[axis] == 1 || reduced(axis) == (axis >= outer))
            };
            let fits = match &node.attribute {
                _ if reduction == Reduction::Fold => false,
                Attribute::Axes(axes) => spans(&|axis| axes.contains(&axis)),
                Attribute::Arg { axis: Some(arg), .. } => spans(&|axis| axis == *arg),
                _ => false,
            };
            if !fits {
                return argument("nodes: a reduction must be of whole rows");
            }
        }
        let reduced: Axes<usize> = (outer..program.shape.len()).collect();
        let layout = Layout::reducing(program, Some(reduced))?;
        let varies = |view: &View| view.strides[layout.kept..].iter().any(|&step| step != 0);
        let varying: Vec<bool> = layout.views.iter().map(varies).collect();
        let of_element = self.of_element(&varying);
        if outputs.iter().any(|output| output.of_element != of_element[output.value]) {
            return argument("outputs: expected what reduces a row, or is computed of such values alone, for each row");
        }
        Ok(SoundRows { layout, of_element, varying })
    }

    /// Of each value whether it is an element's: it differs within a row, or is a result for each element.
    fn of_element(&self, varying: &[bool]) -> Vec<bool> {
        let Program { inputs, nodes, .. } = &self.program;
        let mut views = varying.iter();
        let mut varies = || views.next() == Some(&true);
        let mut of_element: Vec<bool> =
            inputs.iter().map(|input| matches!(input.source, Source::View { .. }) && varies()).collect();
        for (index, node) in nodes.iter().enumerate() {
            let stored = RowOutput { value: inputs.len() + index, of_element: true };
            let own = match node.op.typing {
                Typing::Iota => varies(),
                Typing::Eye => {
                    let row = varies();
                    varies() || row
                }
                _ => false,
            };
            let reduces = matches!(node.op.typing, Typing::Reduce(_));
            let value =
                own || !reduces && (self.outputs.contains(&stored) || node.args.iter().any(|&arg| of_element[arg]));
            of_element.push(value);
        }
        of_element
    }

    /// The type of each result, and whether it has one value for each element, else one for each row.
    pub fn results(&self) -> impl Iterator<Item = (Type, bool)> {
        self.outputs.iter().map(|output| (self.program.type_of(output.value), output.of_element))
    }
}
