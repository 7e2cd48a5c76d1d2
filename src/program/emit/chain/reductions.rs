//! Reductions in chain kernels: short ones as expressions, long ones as loops of one invocation, and those that all invocations share.

use super::index::ElementIndex;
use super::lanes::exchangeable;
use super::values::{ChainEmitter, ChainValue, Emission};
use crate::error::Error;
use crate::program::Type;
use crate::program::emit::Accumulator;
use crate::program::emit::values::{convert, of_compute};
use crate::program::op::Reduction;
use crate::program::types::Compute;

use super::plan::MAX_UNROLLED_SUM;

/// How the invocations of a workgroup exchange values.
#[derive(Clone, Copy, Debug)]
pub struct ChainExchange {
    /// Invocations that exchange values without memory, a power of two.
    pub lanes: u32,
    /// How many of these groups a workgroup has.
    pub subgroups: u32,
}

/// What a reduction of a chain kernel adds up in: its parts by name.
pub struct ChainAccumulator {
    /// The reduction.
    pub reduction: Reduction,
    /// The type of what is reduced.
    element: Type,
    /// Types and identities of the parts.
    parts: Vec<(Compute, String)>,
    function: String,
}

impl ChainAccumulator {
    /// That of a step which reduces.
    pub fn of(this: &ChainEmitter, step: usize) -> Emission<Self> {
        let given = this.step(step);
        let ends = given.program.reduced_type().zip(Accumulator::of(&given.program, &given.layout, this.caps));
        let Some(((reduction, element), accumulator)) = ends else {
            return Err(Error::Unsupported("a reduction by a function in a log-density".into()).into());
        };
        // A chain combines several values in one expression, too.
        let accumulator = accumulator.without_keys(element.compute());
        let last = &given.program.nodes[given.program.nodes.len() - 1];
        if last.args[0] + 1 != given.program.inputs.len() + given.program.nodes.len() - 1 {
            return Err(Error::Argument("nodes: a reduction is of the value before it".into()).into());
        }
        let parts = match reduction {
            Reduction::Sum => vec![(element.compute(), element.compute().literal(0))],
            Reduction::Product => vec![(element.compute(), element.compute().literal(1))],
            _ => accumulator.parts.iter().enumerate().map(|(i, &part)| (part, accumulator.identity(i))).collect(),
        };
        Ok(Self { reduction, element, parts, function: accumulator.function() })
    }

    /// Bytes of all parts.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|(part, _)| part.size()).sum()
    }

    /// The type of a sum's parts, where it is one that subgroups exchange.
    pub fn summed(&self) -> Option<&'static str> {
        let glsl = self.parts[0].0.glsl();
        (self.is_sum() && exchangeable(glsl)).then_some(glsl)
    }

    /// Whether it is a sum.
    pub fn is_sum(&self) -> bool {
        self.reduction == Reduction::Sum
    }

    /// What an element contributes to the first part.
    pub fn contribution(&self, value: &ChainValue) -> String {
        let value = convert((value.text.clone(), value.ty), self.element);
        match self.reduction {
            Reduction::All | Reduction::Any => format!("uint(!is_zero({value}))"),
            _ => value,
        }
    }

    /// Declares the parts, with nothing in them.
    pub fn declaration(&self, name: &str) -> String {
        let part = |(i, (part, identity)): (usize, &(Compute, String))| {
            format!("  {} {name}_{i} = {identity};\n", part.glsl())
        };
        self.parts.iter().enumerate().map(part).collect()
    }

    /// Adds elements, of which `positions` are the positions among those that are reduced.
    pub fn addition(&self, name: &str, values: &[ChainValue], positions: &[String]) -> String {
        let given: Vec<String> = values.iter().map(|value| self.contribution(value)).collect();
        match self.reduction {
            Reduction::Sum => format!("  {name}_0 += {};\n", given.join(" + ")),
            Reduction::Product => format!("  {name}_0 *= {};\n", given.join(" * ")),
            _ => given
                .iter()
                .zip(positions)
                .map(|(value, position)| self.combination(name, &[value, position]))
                .collect(),
        }
    }

    /// Adds to a sum what an element negates.
    pub fn subtraction(&self, name: &str, negated: &ChainValue) -> String {
        format!("  {name}_0 -= {};\n", self.contribution(negated))
    }

    /// Adds other parts.
    fn combination(&self, name: &str, others: &[impl std::fmt::Display]) -> String {
        match self.reduction {
            Reduction::Sum => format!("  {name}_0 += {};\n", others[0]),
            Reduction::Product => format!("  {name}_0 *= {};\n", others[0]),
            _ => {
                let own: Vec<String> = (0..self.parts.len()).map(|i| format!("{name}_{i}")).collect();
                let others: Vec<String> = others[..self.parts.len()].iter().map(ToString::to_string).collect();
                format!("  last_wins = {};\n  {}({}, {});\n", false, self.function, own.join(", "), others.join(", "))
            }
        }
    }

    /// The result as a value of that type.
    pub fn finished(&self, name: &str, ty: Type) -> String {
        let part = if matches!(self.reduction, Reduction::ArgMax | Reduction::ArgMin) { 1 } else { 0 };
        convert((format!("{name}_{part}"), of_compute(self.parts[part].0)), ty)
    }

    /// The elements in one expression, for the reductions that have one.
    fn expression(&self, values: &[ChainValue]) -> Option<String> {
        let given: Vec<String> = values.iter().map(|value| self.contribution(value)).collect();
        let joined = |operator: &str| Some(format!("({})", given.join(operator)));
        let nested = |function: &str| {
            let nest = |all: String, value: &String| format!("{function}({all}, {value})");
            given.split_first().map(|(first, rest)| rest.iter().fold(first.clone(), nest))
        };
        match self.reduction {
            Reduction::Sum => joined(" + "),
            Reduction::Product => joined(" * "),
            Reduction::All => joined(" & "),
            Reduction::Any => joined(" | "),
            Reduction::Max => nested("nx_max"),
            Reduction::Min => nested("nx_min"),
            Reduction::ArgMax | Reduction::ArgMin | Reduction::Fold => None,
        }
    }

    /// What every invocation has, of what each had: first within subgroups, then by the `partial` memory of the workgroup.
    pub fn shuffles(&self, name: &str, exchange: ChainExchange) -> String {
        let mut text = String::new();
        let mut distance = exchange.lanes / 2;
        while distance > 0 {
            let shuffled: Vec<String> =
                (0..self.parts.len()).map(|i| format!("subgroupShuffleXor({name}_{i}, {distance}u)")).collect();
            text.push_str(&self.combination(name, &shuffled));
            distance /= 2;
        }
        text
    }

    /// The declarations of the workgroup's memory, its filling, and its addition.
    pub fn partials(&self, name: &str, exchange: ChainExchange) -> [String; 3] {
        let mut texts = [const { String::new() }; 3];
        for (i, (part, _)) in self.parts.iter().enumerate() {
            texts[0] += &format!("shared {} partial_{name}_{i}[{}];\n", part.glsl(), exchange.subgroups);
            texts[1] += &format!("  if (LANE == 0u) partial_{name}_{i}[SUBGROUP] = {name}_{i};\n");
            texts[2] += &format!("  {name}_{i} = partial_{name}_{i}[0];\n");
        }
        for other in 1..exchange.subgroups {
            let others: Vec<String> = (0..self.parts.len()).map(|i| format!("partial_{name}_{i}[{other}]")).collect();
            texts[2] += &self.combination(name, &others);
        }
        texts
    }
}

impl ChainEmitter<'_> {
    /// The output of a reduction at that linear index.
    pub fn reduced(&mut self, step: usize, index: &ElementIndex) -> Emission<ChainValue> {
        let layout = &self.step(step).layout;
        let result = self.step(step).program.result();
        let accumulator = ChainAccumulator::of(self, step)?;
        let kept = self.coordinates(index, &layout.dims[..layout.kept])?;
        let count = layout.reduced();
        if count <= MAX_UNROLLED_SUM
            && let Some(value) = self.unrolled(step, &accumulator, &kept, count)?
        {
            return Ok(value);
        }
        let depth = self.floor(index.depth(&self.variables));
        let name = self.name("r");
        let most = if self.caps.cpu { 8 } else { 4 };
        let unrolled = (1..=most).rev().find(|&unrolled| count.is_multiple_of(unrolled)).unwrap_or(1);
        let (counter, first) = self.counter(count / unrolled, depth + 1);
        let (scope, ()) = self.scope(depth, false, |this| {
            let positions: Vec<ElementIndex> =
                (0..unrolled as i64).map(|i| ElementIndex::constant(i).add(&first, unrolled as i64)).collect();
            let values = this.contributions(step, &kept, &positions)?;
            let texts: Vec<String> = positions.iter().map(|position| position.text(&this.variables)).collect();
            let own = this.scopes.len() - 1;
            this.write(own, &accumulator.addition(&name, &values, &texts))
        })?;
        let text = format!(
            "{}  for (uint {counter} = 0u; {counter} < {}u; ++{counter}) {{\n{}  }}\n",
            accumulator.declaration(&name),
            count / unrolled,
            scope.text()
        );
        self.write(depth, &text)?;
        self.scopes[depth].add_loop(count / unrolled, &scope);
        self.declare(&accumulator.finished(&name, result), result, depth)
    }

    fn unrolled(
        &mut self,
        step: usize,
        accumulator: &ChainAccumulator,
        kept: &[ElementIndex],
        count: u64,
    ) -> Emission<Option<ChainValue>> {
        let positions: Vec<ElementIndex> = (0..count as i64).map(ElementIndex::constant).collect();
        let values = self.contributions(step, kept, &positions)?;
        let Some(expression) = accumulator.expression(&values) else { return Ok(None) };
        let depth = values.iter().map(|value| value.depth).max().unwrap_or(0);
        let result = self.step(step).program.result();
        let text = convert((expression, of_compute(accumulator.parts[0].0)), result);
        self.declare(&text, result, depth).map(Some)
    }

    /// What is reduced at those positions along the reduced axes.
    fn contributions(
        &mut self,
        step: usize,
        kept: &[ElementIndex],
        positions: &[ElementIndex],
    ) -> Emission<Vec<ChainValue>> {
        let given = self.step(step);
        let count = given.program.nodes.len() - 1;
        let value = |position: &ElementIndex| {
            let along = self.coordinates(position, &given.layout.dims[given.layout.kept..])?;
            let coordinates: Vec<ElementIndex> = kept.iter().chain(&along).cloned().collect();
            let views = self.collapsed_views(step, &coordinates);
            self.nodes(step, &views, count)
        };
        positions.iter().map(value).collect()
    }
}
