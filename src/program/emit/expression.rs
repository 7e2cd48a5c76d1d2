//! A program's nodes as local values: `v{i}` is the value of input or node `i`.

use std::fmt::Write as _;
use std::ops::Range;

use super::values::{bitcast, immediate, widen};
use super::{Emitter, Pattern, Type, Typing, convert, load, of_compute};
use crate::program::{Attribute, Input, Node, Source};

/// A value as GLSL, and its type.
pub(super) type Value = (String, Type);

impl Emitter<'_> {
    /// Writes the inputs and the first `count` nodes as local values and returns the name of the last.
    pub(super) fn nodes(&self, text: &mut String, count: usize) -> String {
        let mut views = 0..self.layout.views.len();
        let mut values: Vec<Value> = vec![];
        for (index, input) in self.program.inputs.iter().enumerate() {
            let ty = input.ty;
            let loaded = match input.source {
                Source::View { .. } | Source::Padded(_) => self.input(index, views.next().unwrap_or_default()),
                Source::Scalar | Source::Constant(_) => load(ty, &self.one_value(index)),
            };
            let _ = writeln!(text, "  {} v{index} = {loaded};", ty.compute().precise());
            values.push((format!("v{index}"), ty));
        }
        for node in &self.program.nodes[..count] {
            let name = format!("v{}", values.len());
            let (expression, compute) = (self.node(node, &values, &mut views), node.ty.compute());
            let hidden = if self.may_be_known(node) {
                format!(" + {}(gl_WorkGroupID.z)", compute.glsl())
            } else {
                String::new()
            };
            let _ = writeln!(text, "  {} {name} = {expression}{hidden};", compute.precise());
            values.push((name, node.ty));
        }
        values.pop().map(|(name, _)| name).unwrap_or_default()
    }

    /// An input that is one value and no element of a buffer, as it is stored.
    pub(super) fn one_value(&self, input: usize) -> String {
        let Input { ty, source } = &self.program.inputs[input];
        let bits = match source {
            Source::Constant(bits) => format!("uvec2({}u, {}u)", *bits as u32, bits >> 32),
            _ => format!("p.scalar{input}"),
        };
        immediate(*ty, &bits)
    }

    /// Whether a compiler may find out what an integer is, as that of `x > x`. Lavapipe takes `0.0 - y` for `-y` where it knows the zero,
    /// which is wrong for zeros. The third axis of a grid has one workgroup, and its index, which no compiler knows, hides the integer.
    pub(super) fn may_be_known(&self, node: &Node) -> bool {
        let integer = !node.ty.is_float() && !node.ty.is_complex() && !node.ty.compute().is_emulated();
        let predicate = matches!(node.op.typing, Typing::Merged | Typing::Operand);
        integer && (predicate || matches!(node.args[..], [a, b] if a == b))
    }

    /// An element of an input's view.
    pub(super) fn input(&self, input: usize, view: usize) -> String {
        let ty = self.program.inputs[input].ty;
        if self.layout.views[view].pattern == Pattern::Linear || self.is_given(input) {
            return load(ty, &format!("x{input}"));
        }
        let element = self.stored_element(input, &self.index(view));
        load(ty, &self.or_padding(view, &self.exists(view), element, false))
    }

    /// A node's value. `views` are those of the nodes that are indices themselves and have not been written yet.
    pub(super) fn node(&self, node: &Node, values: &[Value], views: &mut Range<usize>) -> String {
        let operand = |i: usize| values[node.args[i]].clone();
        match node.op.typing {
            Typing::Own(_) | Typing::Part | Typing::Divide => self.arithmetic(node, &operand),
            Typing::Merged | Typing::Operand => self.predicate(node, &operand),
            Typing::Width => {
                let (value, ty) = operand(0);
                convert((call(node, &[value, format!("{}u", ty.bits())]), Type::U32), node.ty)
            }
            Typing::Convert => convert(operand(0), node.ty),
            Typing::Bitcast => load(node.ty, &bitcast(operand(0), node.ty)),
            Typing::Select => {
                let (a, b) = (widen(operand(1), node.ty), widen(operand(2), node.ty));
                let chosen = format!("!is_zero({}) ? {a} : {b}", operand(0).0);
                convert((chosen, of_compute(node.ty.compute())), node.ty)
            }
            Typing::Gather => self.gather(node, values),
            Typing::Accumulator => "accumulator".into(),
            Typing::Iota => {
                let index = self.index(views.next().unwrap_or_default());
                convert((index, self.index_type()), node.ty)
            }
            Typing::Eye => {
                let (row, column) = (views.next().unwrap_or_default(), views.next().unwrap_or_default());
                let equal = format!("uint({} == {})", self.index(row), self.index(column));
                convert((equal, Type::U8), node.ty)
            }
            Typing::Reduce(_) => unreachable!("a reduction is the last node and is not written as a value"),
        }
    }

    /// An op whose operands are converted to the type that it computes in.
    fn arithmetic(&self, node: &Node, operand: &dyn Fn(usize) -> Value) -> String {
        let complex = self.program.is_complex(node);
        let arguments =
            |argument: &dyn Fn(usize) -> String| call(node, &(0..node.op.arity).map(argument).collect::<Vec<_>>());
        match node.op.typing {
            Typing::Part if complex => {
                let (value, ty) = operand(0);
                let working = ty.working(self.caps);
                convert((call(node, &[convert((value, ty), working)]), working.part()), node.ty)
            }
            _ if complex => {
                let ty = node.ty.working(self.caps);
                convert((arguments(&|i| convert(operand(i), ty)), ty), node.ty)
            }
            typing => {
                let double = typing == Typing::Divide && self.divides_in_double(node);
                let ty = if double { Type::F64 } else { node.ty };
                convert((arguments(&|i| widen(operand(i), ty)), of_compute(ty.compute())), node.ty)
            }
        }
    }

    /// An op whose result is 0 or 1.
    fn predicate(&self, node: &Node, operand: &dyn Fn(usize) -> Value) -> String {
        let arguments = if node.op.typing == Typing::Merged {
            let (a, b) = (operand(0), operand(1));
            let merged = a.1.merge(b.1).working(self.caps);
            // Against 64 unsigned bits a signed operand keeps its sign: no type holds both.
            [a, b]
                .map(|value| match value.1 {
                    Type::U64 if merged == Type::S64 => value.0,
                    _ => widen(value, merged),
                })
                .to_vec()
        } else {
            let (value, ty) = operand(0);
            vec![convert((value, ty), ty.working(self.caps))]
        };
        convert((format!("uint({})", call(node, &arguments)), Type::U8), node.ty)
    }

    /// The element of an input's view that indices point to.
    fn gather(&self, node: &Node, values: &[Value]) -> String {
        let (input, ty) = (node.args[0], node.ty);
        let view = self.layout.views.iter().position(|view| view.input == Some(input));
        let mut index = self.index(view.unwrap_or_default());
        let number = values.len();
        for (k, &argument) in node.args[1..].iter().enumerate() {
            let (value, extent) = (&values[argument].0, format!("p.extentv{number}_{k}"));
            let chosen = match node.attribute {
                Attribute::Steps { check: Some(_), .. } => {
                    format!("checked_index({value}, {extent}, p.checkv{number}, {k}u)")
                }
                _ => format!("clamp_index({value}, {extent})"),
            };
            let _ = write!(index, " + {chosen} * p.stepv{number}_{k}");
        }
        load(ty, &format!("AT({}, p.input{input}, {index})", ty.storage()))
    }
}

/// A call of the op's formula.
fn call(node: &Node, arguments: &[String]) -> String {
    format!("nx_{}({})", node.op.name, arguments.join(", "))
}
