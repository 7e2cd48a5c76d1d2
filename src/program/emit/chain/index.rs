//! Indices of elements as sums of multiples of variables: loop counters, and what kernels compute or read. This module owns their
//! arithmetic; it emits nothing.

use std::fmt::Write as _;

use smallvec::{SmallVec, smallvec};

/// A variable of the kernel that indices are made of.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Its name in GLSL.
    pub name: String,
    /// The largest value that it takes; the least is 0.
    pub largest: i64,
    /// The depth of the scope that declares it.
    pub depth: usize,
}

/// `constant + Σ factor · variable`, where variables are numbered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ElementIndex {
    /// Numbers of variables, ascending, with their factors, none of which is 0.
    pub terms: SmallVec<[(usize, i64); 2]>,
    /// What is added.
    pub constant: i64,
}

impl ElementIndex {
    /// A number.
    pub fn constant(constant: i64) -> Self {
        Self { terms: SmallVec::new(), constant }
    }

    /// A variable.
    pub fn variable(number: usize) -> Self {
        Self { terms: smallvec![(number, 1)], constant: 0 }
    }

    /// The number, where it is one.
    pub fn known(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// `self + factor · other`.
    pub fn add(&self, other: &Self, factor: i64) -> Self {
        let mut sum = self.clone();
        sum.constant += factor * other.constant;
        for &(number, own) in other.terms.iter().filter(|_| factor != 0) {
            match sum.terms.binary_search_by_key(&number, |term| term.0) {
                Ok(at) => {
                    sum.terms[at].1 += factor * own;
                    if sum.terms[at].1 == 0 {
                        sum.terms.remove(at);
                    }
                }
                Err(at) => sum.terms.insert(at, (number, factor * own)),
            }
        }
        sum
    }

    /// `self + constant`.
    pub fn plus(&self, constant: i64) -> Self {
        Self { terms: self.terms.clone(), constant: self.constant + constant }
    }

    /// `Σ stride · index`, from `offset` on.
    pub fn strided<'a>(offset: i64, axes: impl Iterator<Item = (&'a Self, i64)>) -> Self {
        axes.fold(Self::constant(offset), |sum, (index, stride)| sum.add(index, stride))
    }

    /// The least and the largest value.
    pub fn range(&self, variables: &[Variable]) -> (i64, i64) {
        self.terms.iter().fold((self.constant, self.constant), |(least, most), &(number, factor)| {
            let end = factor.saturating_mul(variables[number].largest);
            (least.saturating_add(end.min(0)), most.saturating_add(end.max(0)))
        })
    }

    /// The depth of the innermost scope that it needs.
    pub fn depth(&self, variables: &[Variable]) -> usize {
        self.terms.iter().map(|&(number, _)| variables[number].depth).max().unwrap_or(0)
    }

    /// The quotient by `divisor` and the remainder, where they are known to be sums of the same variables: the multiples of the divisor, and
    /// what is always less than it.
    pub fn divide(&self, divisor: i64, variables: &[Variable]) -> Result<(Self, Self), (Self, Self)> {
        let mut quotient = Self::constant(self.constant.div_euclid(divisor));
        let mut rest = Self::constant(self.constant.rem_euclid(divisor));
        for &(number, factor) in &self.terms {
            if factor % divisor == 0 {
                quotient.terms.push((number, factor / divisor));
            } else {
                rest.terms.push((number, factor));
            }
        }
        let (least, most) = rest.range(variables);
        if least >= 0 && most < divisor { Ok((quotient, rest)) } else { Err((quotient, rest)) }
    }

    /// As GLSL. Negative factors and constants wrap.
    pub fn text(&self, variables: &[Variable]) -> String {
        if self.terms.is_empty() {
            return format!("{}u", self.constant as u32);
        }
        let mut text = String::from("(");
        for (position, &(number, factor)) in self.terms.iter().enumerate() {
            let plus = if position > 0 { " + " } else { "" };
            let name = &variables[number].name;
            let _ = match factor {
                1 => write!(text, "{plus}{name}"),
                _ => write!(text, "{plus}{name} * {}u", factor as u32),
            };
        }
        if self.constant != 0 {
            let _ = write!(text, " + {}u", self.constant as u32);
        }
        text.push(')');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> Vec<Variable> {
        let variable = |name: &str, largest| Variable { name: name.into(), largest, depth: 1 };
        vec![variable("i", 9), variable("j", 2)]
    }

    #[test]
    fn division_splits_multiples_from_what_is_less() {
        let variables = variables();
        // 3 i + j + 7 over rows of 3: j may reach 2, and 7 is two rows and 1.
        let index = ElementIndex::variable(0).add(&ElementIndex::constant(0), 1);
        let sum = ElementIndex::constant(7).add(&index, 3);
        let (row, column) = sum.divide(3, &variables).unwrap();
        assert_eq!((row.text(&variables), column.text(&variables)), ("(i + 2u)".into(), "1u".into()));
        // j + 1 may be 3.
        assert!(sum.add(&ElementIndex::variable(1), 1).divide(3, &variables).is_err());
        assert!(sum.plus(-1).add(&ElementIndex::variable(1), 1).divide(3, &variables).is_ok());
        assert_eq!(sum.range(&variables), (7, 34));
        assert_eq!(sum.add(&ElementIndex::variable(0), -3), ElementIndex::constant(7));
    }
}
