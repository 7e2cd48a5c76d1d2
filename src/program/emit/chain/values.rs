//! Elements of slots as GLSL: what is computed where it is read. This module owns the scopes of the kernel's text and the values that are
//! known in each; which slots are stored is the plan's.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;

use super::algebra::{as_type, literal};
use super::index::{ElementIndex, Variable};
use super::plan::{MAX_UNIFORM_ELEMENTS, Plan, SlotKind};
use super::statements::{ChainStatement, Scope};
use crate::device::Capabilities;
use crate::error::Error;
use crate::program::chain::ChainProgram;
use crate::program::emit::values::{convert, load};
use crate::program::emit::{Emitter, VectorInputs};
use crate::program::op::Typing;
use crate::program::workgroup::{LoopStep, StepInput};
use crate::program::{Attribute, Node, Source, Type, dense_strides};

/// The most characters of a kernel: compilers take seconds for more.
const MAX_TEXT: usize = 4 << 20;
/// The most elements that are computed within one another: each takes some kilobytes of [`EMISSION_STACK_BYTES`].
const MAX_NESTED_ELEMENTS: usize = 4096;
/// The stack that the text is written on.
pub const EMISSION_STACK_BYTES: usize = 128 << 20;

/// Whether a node's operation takes longer than handing its result to other invocations.
fn is_costly(node: &Node) -> bool {
    node.op.typing == Typing::Divide || node.op.real.is_some_and(|formula| formula.compute_bound)
}

/// A value of the kernel: its GLSL, a name or a literal, and the depth of the scope that knows it.
#[derive(Clone, Debug)]
pub struct ChainValue {
    /// A name, or a literal.
    pub text: String,
    /// Its type.
    pub ty: Type,
    /// The depth of the scope that declares it.
    pub depth: usize,
    /// The bits of a literal.
    pub bits: Option<[u8; 16]>,
}

/// Why the text was given up.
pub enum Stop {
    /// The slot has to be stored.
    Store(usize),
    /// The program has no kernel.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

pub type Emission<T> = std::result::Result<T, Stop>;

/// The text of a chain's kernel while it is written.
pub struct ChainEmitter<'a> {
    pub program: &'a ChainProgram,
    pub caps: &'a Capabilities,
    pub plan: Plan,
    pub variables: Vec<Variable>,
    pub scopes: Vec<Scope>,
    /// Results of reductions that the invocations share, by slot and element.
    pub shared: HashMap<(usize, i64), ChainValue>,
    /// The values that are others times a power of two, by name, with the other value and the factor.
    pub multiples: HashMap<String, (ChainValue, f64)>,
    emitters: Vec<Emitter<'a>>,
    /// Slots whose elements are computed, though they are stored, as they are about to be.
    pub storing: BTreeSet<usize>,
    count: usize,
    characters: usize,
    /// Elements that are being computed for one another.
    nested: usize,
}

impl<'a> ChainEmitter<'a> {
    pub fn new(program: &'a ChainProgram, plan: Plan, caps: &'a Capabilities) -> Self {
        let emitter = |step: &'a LoopStep| Emitter {
            program: &step.program,
            layout: &step.layout,
            caps,
            vectors: VectorInputs::default(),
            vector_axis: None,
            window: false,
            shared_input: None,
        };
        Self {
            program,
            caps,
            plan,
            variables: vec![],
            scopes: vec![Scope::default()],
            shared: HashMap::new(),
            multiples: HashMap::new(),
            emitters: program.given.steps.iter().map(emitter).collect(),
            storing: BTreeSet::new(),
            count: 0,
            characters: 0,
            nested: 0,
        }
    }

    /// The emitter of a step's nodes.
    pub fn emitter(&self, step: usize) -> &Emitter<'a> {
        &self.emitters[step]
    }

    /// The step of that number.
    pub fn step(&self, step: usize) -> &'a LoopStep {
        &self.program.given.steps[step]
    }

    /// A name that nothing has yet.
    pub fn name(&mut self, prefix: &str) -> String {
        self.count += 1;
        format!("{prefix}{}", self.count)
    }

    /// Writes into the scope of that depth.
    pub fn write(&mut self, depth: usize, text: &str) -> Emission<()> {
        self.push(depth, ChainStatement::Other(text.into()))
    }

    /// Adds a statement to the scope of that depth.
    pub fn push(&mut self, depth: usize, statement: ChainStatement) -> Emission<()> {
        self.characters += statement.text().len();
        if self.characters > MAX_TEXT {
            return Err(Error::Unsupported("a log-density whose kernel has more than 4 MiB of source".into()).into());
        }
        self.scopes[depth].statements.push(statement);
        Ok(())
    }

    /// The depth at which a value is declared that depends on the scopes up to `depth`.
    pub fn floor(&self, depth: usize) -> usize {
        if depth == 0 {
            return 0;
        }
        self.scopes.iter().rposition(|scope| scope.branch).unwrap_or(0).max(depth)
    }

    /// What `write` writes into a new scope, directly within that of `depth`, with its result.
    pub fn scope<T>(
        &mut self,
        depth: usize,
        branch: bool,
        write: impl FnOnce(&mut Self) -> Emission<T>,
    ) -> Emission<(Scope, T)> {
        let inner = self.scopes.split_off(depth + 1);
        self.scopes.push(Scope { branch, ..Scope::default() });
        let result = write(self);
        let scope = self.scopes.pop().unwrap_or_default();
        self.scopes.truncate(depth + 1);
        self.scopes.extend(inner);
        Ok((scope, result?))
    }

    /// A loop's counter, which the scope of `depth` declares.
    pub fn counter(&mut self, count: u64, depth: usize) -> (String, ElementIndex) {
        let name = self.name("i");
        self.variables.push(Variable { name: name.clone(), largest: count as i64 - 1, depth });
        (name, ElementIndex::variable(self.variables.len() - 1))
    }

    /// The name of an expression, which is declared unless it is known.
    pub fn declare(&mut self, expression: &str, ty: Type, depth: usize) -> Emission<ChainValue> {
        self.declare_as(expression, ty, depth, false)
    }

    /// As [`ChainEmitter::declare`] does. `costly` expressions are worth an exchange between invocations.
    pub fn declare_as(&mut self, expression: &str, ty: Type, depth: usize, costly: bool) -> Emission<ChainValue> {
        let depth = self.floor(depth);
        let glsl = ty.compute().glsl();
        let key = format!("{glsl} {expression}");
        for scope in &self.scopes[..=depth] {
            if let Some(name) = scope.names.get(&key) {
                return Ok(ChainValue { text: name.clone(), ty, depth, bits: None });
            }
        }
        let name = self.name("v");
        let (declared, expression) = (name.clone(), expression.to_owned());
        self.push(depth, ChainStatement::Value { glsl, name: declared, expression, costly })?;
        self.scopes[depth].names.insert(key, name.clone());
        Ok(ChainValue { text: name, ty, depth, bits: None })
    }

    /// An index that the kernel computes: `largest` is the largest value of the expression.
    fn computed_index(&mut self, expression: &str, largest: i64, depth: usize) -> Emission<ElementIndex> {
        let value = self.declare(expression, Type::U32, depth)?;
        let known = self.variables.iter().position(|variable| variable.name == value.text);
        let number = known.unwrap_or(self.variables.len());
        if known.is_none() {
            self.variables.push(Variable { name: value.text, largest, depth: value.depth });
        }
        Ok(ElementIndex::variable(number))
    }

    /// The quotient and the remainder by a divisor.
    pub fn divided(&mut self, index: &ElementIndex, divisor: i64) -> Emission<(ElementIndex, ElementIndex)> {
        if divisor == 1 {
            return Ok((index.clone(), ElementIndex::constant(0)));
        }
        let (mut quotient, mut rest) = match index.divide(divisor, &self.variables) {
            Ok(parts) => return Ok(parts),
            Err(parts) => parts,
        };
        if rest.range(&self.variables).0 < 0 {
            (quotient, rest) = (ElementIndex::constant(0), index.clone());
        }
        let (text, most, depth) =
            (rest.text(&self.variables), rest.range(&self.variables).1, rest.depth(&self.variables));
        let above = self.computed_index(&format!("QUOTIENT({text}, {divisor}u)"), most / divisor, depth)?;
        let name = &self.variables[above.terms[0].0].name;
        let below = format!("{text} - {name} * {divisor}u");
        let below = self.computed_index(&below, divisor - 1, depth)?;
        Ok((quotient.add(&above, 1), below))
    }

    /// The quotient by a divisor of what need not be positive: it wraps.
    pub fn quotient(&mut self, index: &ElementIndex, divisor: i64) -> Emission<ElementIndex> {
        let (text, depth) = (index.text(&self.variables), index.depth(&self.variables));
        let largest = index.range(&self.variables).1.max(0) / divisor;
        self.computed_index(&format!("{text} / {divisor}u"), largest, depth)
    }

    /// The index along each axis of the element at a linear index.
    pub fn coordinates(&mut self, index: &ElementIndex, dims: &[u64]) -> Emission<Vec<ElementIndex>> {
        let mut rest = index.clone();
        let mut coordinates = vec![ElementIndex::constant(0); dims.len()];
        for axis in (1..dims.len()).rev() {
            (rest, coordinates[axis]) = self.divided(&rest, dims[axis] as i64)?;
        }
        if let Some(first) = coordinates.first_mut() {
            *first = rest;
        }
        Ok(coordinates)
    }

    /// The indices of a step's views at a point of its collapsed iteration space.
    pub fn collapsed_views(&self, step: usize, coordinates: &[ElementIndex]) -> Vec<ElementIndex> {
        let views = &self.step(step).layout.views;
        let index =
            |strides: &[i64], offset| ElementIndex::strided(offset, coordinates.iter().zip(strides.iter().copied()));
        views.iter().map(|view| index(&view.strides, view.offset)).collect()
    }

    /// The indices of a step's views at a point of its iteration space.
    pub fn views(&self, step: usize, coordinates: &[ElementIndex]) -> Vec<ElementIndex> {
        let program = &self.step(step).program;
        let at =
            |strides: &[i64], offset| ElementIndex::strided(offset, coordinates.iter().zip(strides.iter().copied()));
        let mut views = vec![];
        for input in &program.inputs {
            if let Source::View { offset, strides } = &input.source {
                views.push(at(strides, *offset));
            }
        }
        let rank = program.shape.len();
        for node in &program.nodes {
            match (node.op.typing, &node.attribute) {
                (Typing::Iota, Attribute::Axis(Some(axis))) => views.push(coordinates[*axis].clone()),
                (Typing::Iota, _) => views.push(at(&dense_strides(&program.shape), 0)),
                (Typing::Eye, _) => views.extend_from_slice(&coordinates[rank - 2..]),
                _ => {}
            }
        }
        views
    }

    /// An element of a slot.
    pub fn element(&mut self, slot: usize, index: &ElementIndex) -> Emission<ChainValue> {
        let key = (slot, index.clone());
        for scope in &self.scopes {
            if let Some(value) = scope.elements.get(&key) {
                return Ok(value.clone());
            }
        }
        if self.nested == MAX_NESTED_ELEMENTS {
            return Err(Error::Unsupported("a log-density of too many operations one after the other".into()).into());
        }
        self.nested += 1;
        let value = self.new_element(slot, index)?;
        self.nested -= 1;
        let depth = self.floor(value.depth.max(index.depth(&self.variables))).min(self.scopes.len() - 1);
        self.scopes[depth].elements.insert(key, value.clone());
        Ok(value)
    }

    fn new_element(&mut self, slot: usize, index: &ElementIndex) -> Emission<ChainValue> {
        let depth = index.depth(&self.variables);
        let text = index.text(&self.variables);
        match self.plan.kinds[slot] {
            SlotKind::Operand => {
                let ty = self.program.given.operands[slot];
                self.declare(&load(ty, &format!("S{slot}({text})")), ty, depth)
            }
            SlotKind::Memory if !self.storing.contains(&slot) => {
                let ty = self.stored_type(slot);
                self.declare(&format!("M{slot}({text})"), ty, depth)
            }
            SlotKind::Shared => match index.known() {
                Some(number) => self.shared.get(&(slot, number)).cloned().ok_or(Stop::Store(slot)),
                None => self.listed(slot, index),
            },
            // Elements of which there are few are computed once, and chosen from.
            SlotKind::Inline if index.known().is_none() && self.is_listed(slot) => self.listed(slot, index),
            SlotKind::Inline | SlotKind::Memory => {
                let writers = &self.program.writers[slot];
                if self.step(writers[0]).program.output.is_some() {
                    self.region(writers, index)
                } else {
                    self.computed(writers[0], index)
                }
            }
        }
    }

    /// The type of a slot's elements in memory.
    pub fn stored_type(&self, slot: usize) -> Type {
        let own = || self.step(self.program.writers[slot][0]).program.result();
        self.program.typed.get(&slot).copied().unwrap_or_else(own)
    }

    fn is_listed(&self, slot: usize) -> bool {
        let writers = &self.program.writers[slot];
        (2..=MAX_UNIFORM_ELEMENTS).contains(&self.program.slot_elements[slot])
            && !writers.iter().all(|&step| self.program.copied_input(step) && self.step(step).program.output.is_none())
    }

    /// An element of an array of all elements.
    fn listed(&mut self, slot: usize, index: &ElementIndex) -> Emission<ChainValue> {
        let elements = self.program.slot_elements[slot];
        let values = (0..elements as i64)
            .map(|i| self.element(slot, &ElementIndex::constant(i)))
            .collect::<Emission<Vec<_>>>()?;
        let ty = values[0].ty;
        let texts = values.iter().map(|value| as_type(value, ty).text).collect::<Vec<_>>();
        let glsl = ty.compute().glsl();
        let expression = format!("{glsl}[{elements}]({})", texts.join(", "));
        let key = format!("{glsl}[] {expression}");
        let name = match self.scopes[0].names.get(&key) {
            Some(name) => name.clone(),
            None => {
                let name = self.name("a");
                self.write(0, &format!("  {glsl} {name}[{elements}] = {expression};\n"))?;
                self.scopes[0].names.insert(key, name.clone());
                name
            }
        };
        let (text, depth) = (index.text(&self.variables), index.depth(&self.variables));
        self.declare(&format!("{name}[{text}]"), ty, depth)
    }

    /// The element of that linear index that a step computes.
    pub fn computed(&mut self, step: usize, index: &ElementIndex) -> Emission<ChainValue> {
        let layout = &self.step(step).layout;
        if self.step(step).program.reduced_axes().is_some() {
            return self.reduced(step, index);
        }
        let coordinates = self.coordinates(index, &layout.dims)?;
        let views = self.collapsed_views(step, &coordinates);
        self.result(step, &views)
    }

    /// The last of a step's nodes, at those indices of its views.
    pub fn result(&mut self, step: usize, views: &[ElementIndex]) -> Emission<ChainValue> {
        if self.program.copied_input(step) {
            let StepInput::Slot(slot) = self.step(step).inputs[0] else { unreachable!("a copied input is a slot") };
            return self.element(slot, &views[0]);
        }
        let LoopStep { program, inputs, .. } = self.step(step);
        // A number that is only moved keeps its bits: what reads it says of which type they are.
        if let ([node], &[StepInput::Value(bits)]) = (&program.nodes[..], &inputs[..])
            && node.op.typing == Typing::Convert
            && node.ty == program.inputs[0].ty
        {
            return Ok(literal(node.ty, &bits));
        }
        self.nodes(step, views, program.nodes.len())
    }

    /// The last of a step's first `count` nodes, or the last input.
    pub fn nodes(&mut self, step: usize, views: &[ElementIndex], count: usize) -> Emission<ChainValue> {
        let LoopStep { program, inputs, .. } = self.step(step);
        let mut views = views.iter();
        let mut values: Vec<ChainValue> = vec![];
        let mut sources: Vec<(Option<usize>, ElementIndex)> = vec![];
        for (index, input) in program.inputs.iter().enumerate() {
            let (value, source) = match inputs[index] {
                StepInput::Value(bits) => (literal(input.ty, &bits), (None, ElementIndex::constant(0))),
                StepInput::Slot(slot) => {
                    let at = views.next().cloned().unwrap_or_else(|| ElementIndex::constant(0));
                    let gathered = program.steps(index).next().is_some();
                    let value = match gathered {
                        true => literal(input.ty, &[0; 16]),
                        false => as_type(&self.element(slot, &at)?, input.ty),
                    };
                    (value, (Some(slot), at))
                }
            };
            values.push(value);
            sources.push(source);
        }
        for node in &program.nodes[..count] {
            let value = match node.op.typing {
                Typing::Gather => self.gathered(node, &values, &sources)?,
                Typing::Iota => {
                    let at = views.next().cloned().unwrap_or_else(|| ElementIndex::constant(0));
                    self.number(&at, node.ty)?
                }
                Typing::Eye => {
                    let (row, column) = (views.next(), views.next());
                    let difference = row
                        .zip(column)
                        .map(|(row, column)| row.add(column, -1))
                        .unwrap_or_else(|| ElementIndex::constant(1));
                    match (difference.known(), difference.range(&self.variables)) {
                        (Some(number), _) => self.number(&ElementIndex::constant(i64::from(number == 0)), node.ty)?,
                        (None, _) => {
                            let equal = format!("uint({} == 0u)", difference.text(&self.variables));
                            let text = convert((equal, Type::U8), node.ty);
                            self.declare(&text, node.ty, difference.depth(&self.variables))?
                        }
                    }
                }
                _ => self.operation(step, node, &values)?,
            };
            values.push(value);
        }
        values.pop().ok_or_else(|| Error::Argument("nodes: must not be empty".into()).into())
    }

    fn operation(&mut self, step: usize, node: &Node, values: &[ChainValue]) -> Emission<ChainValue> {
        let given: Vec<&ChainValue> = node.args.iter().map(|&arg| &values[arg]).collect();
        if let Some(value) = self.spared(node, &given)? {
            return Ok(value);
        }
        let depth = given.iter().map(|value| value.depth).max().unwrap_or(0);
        let operands: Vec<(String, Type)> = values.iter().map(|value| (value.text.clone(), value.ty)).collect();
        let emitter = self.emitter(step);
        let mut expression = emitter.node(node, &operands, &mut (0..0));
        if self.caps.cpu && emitter.may_be_known(node) {
            let _ = write!(expression, " + {}(gl_WorkGroupID.z)", node.ty.compute().glsl());
        }
        self.declare_as(&expression, node.ty, depth, is_costly(node))
    }

    /// An index as a number of that type.
    fn number(&mut self, index: &ElementIndex, ty: Type) -> Emission<ChainValue> {
        let text = convert((index.text(&self.variables), Type::U32), ty);
        self.declare(&text, ty, index.depth(&self.variables))
    }

    /// The element of a view that indices choose.
    fn gathered(
        &mut self,
        node: &Node,
        values: &[ChainValue],
        sources: &[(Option<usize>, ElementIndex)],
    ) -> Emission<ChainValue> {
        let Attribute::Steps { steps, .. } = &node.attribute else { unreachable!("a gather has steps") };
        let (slot, mut at) = sources[node.args[0]].clone();
        for (&(extent, step), &argument) in steps.iter().zip(&node.args[1..]) {
            let chosen = self.clamped(&values[argument], extent)?;
            at = at.add(&chosen, step);
        }
        match slot {
            Some(slot) => self.element(slot, &at),
            None => Ok(values[node.args[0]].clone()),
        }
    }

    /// A value as an index below `extent`.
    pub fn clamped(&mut self, value: &ChainValue, extent: u64) -> Emission<ElementIndex> {
        let expression = format!("clamp_index({}, {extent}u)", value.text);
        self.computed_index(&expression, extent as i64 - 1, value.depth)
    }
}
