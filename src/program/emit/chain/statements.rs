//! The text of a chain's kernel: statements in scopes. This module owns what a scope knows and counts; it writes no expression.

use std::collections::{HashMap, HashSet};

use super::index::ElementIndex;
use super::values::ChainValue;

/// A part of a scope's text.
#[derive(Clone, Debug)]
pub enum ChainStatement {
    /// The declaration of a value that no other statement changes.
    Value {
        /// Its type.
        glsl: &'static str,
        /// Its name.
        name: String,
        /// The expression that it is declared with.
        expression: String,
        /// Whether computing it takes longer than handing it to other invocations.
        costly: bool,
    },
    /// A store that no statement of its phase depends on.
    Store(String),
    /// Values that are in lanes of a variable: their names and lanes.
    Lanes {
        /// Their type.
        glsl: &'static str,
        /// The variable.
        pack: String,
        /// The names and lanes.
        values: Vec<(String, u32)>,
    },
    /// Anything else, past which nothing is moved.
    Other(String),
}

impl ChainStatement {
    /// The GLSL.
    pub fn text(&self) -> String {
        match self {
            Self::Value { glsl, name, expression, .. } => format!("  {glsl} {name} = {expression};\n"),
            Self::Store(text) | Self::Other(text) => text.clone(),
            Self::Lanes { glsl, pack, values } => {
                let text =
                    |(name, lane): &(String, u32)| format!("  {glsl} {name} = subgroupBroadcast({pack}, {lane}u);\n");
                values.iter().map(text).collect()
            }
        }
    }

    /// Its lines.
    pub fn lines(&self) -> u64 {
        match self {
            Self::Value { .. } => 1,
            Self::Store(text) | Self::Other(text) => text.lines().count() as u64,
            Self::Lanes { values, .. } => values.len() as u64,
        }
    }
}

/// A block of the kernel.
#[derive(Default)]
pub struct Scope {
    /// What it has so far.
    pub statements: Vec<ChainStatement>,
    /// Elements of slots that it knows.
    pub elements: HashMap<(usize, ElementIndex), ChainValue>,
    /// Names of expressions that it knows.
    pub names: HashMap<String, String>,
    /// Whether it is a branch, from which nothing that depends on a loop is moved.
    pub branch: bool,
    /// Iterations of loops that it contains.
    pub iterations: u64,
    /// Lines that an invocation runs in these loops.
    pub work: u64,
}

impl Scope {
    /// The GLSL.
    pub fn text(&self) -> String {
        self.statements.iter().map(ChainStatement::text).collect()
    }

    /// Lines that an invocation runs.
    pub fn operations(&self) -> u64 {
        self.statements.iter().map(ChainStatement::lines).sum::<u64>() + self.work
    }

    /// Counts iterations of that many lines each.
    pub fn add_iterations(&mut self, iterations: u64, lines: u64) {
        self.iterations += iterations;
        self.work += iterations * lines;
    }

    /// Counts a loop, or a branch of one iteration.
    pub fn add_loop(&mut self, count: u64, body: &Self) {
        self.iterations += if count == 1 { body.iterations } else { count * (1 + body.iterations) };
        self.work += count * body.operations();
    }
}

/// The statements, with the values that `end` alone reads behind them in a branch with it: `end` is left out where `condition` does not hold.
pub fn with_branch(statements: Vec<ChainStatement>, condition: &str, end: &str) -> Vec<ChainStatement> {
    let names = |text: &str| words(text).map(str::to_owned).collect::<Vec<_>>();
    let reached = |mut read: HashSet<String>, all: bool| {
        for statement in statements.iter().rev() {
            match statement {
                ChainStatement::Value { name, expression, .. } if read.contains(name) => read.extend(names(expression)),
                ChainStatement::Value { .. } => {}
                other if all => read.extend(names(&other.text())),
                _ => {}
            }
        }
        read
    };
    let (always, at_end) = (reached(HashSet::new(), true), reached(names(end).into_iter().collect(), false));
    let (mut kept, mut text) = (vec![], String::new());
    for statement in statements {
        match &statement {
            ChainStatement::Value { name, .. } if !always.contains(name) => {
                if at_end.contains(name) {
                    text += &statement.text();
                }
            }
            _ => kept.push(statement),
        }
    }
    kept.push(ChainStatement::Other(format!("  if ({condition}) {{\n{text}{end}  }}\n")));
    kept
}

/// The words of a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_has_what_its_end_alone_reads() {
        let value = |name: &str, expression: &str| ChainStatement::Value {
            glsl: "float",
            name: name.into(),
            expression: expression.into(),
            costly: false,
        };
        let statements = vec![
            value("v1", "x"),
            value("v2", "nx_log(v1)"),
            value("v3", "v1 + v2"),
            value("v4", "-v1"),
            ChainStatement::Store("  store(v4);\n".into()),
            value("v5", "v2"),
        ];
        let text: String =
            with_branch(statements, "wanted", "  sum += v3;\n").iter().map(ChainStatement::text).collect();
        let branch = "  if (wanted) {\n  float v2 = nx_log(v1);\n  float v3 = v1 + v2;\n  sum += v3;\n  }\n";
        assert_eq!(text, format!("  float v1 = x;\n  float v4 = -v1;\n  store(v4);\n{branch}"));
    }
}
