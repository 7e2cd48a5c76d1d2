//! How the invocations of a subgroup share statements of a chain's kernel that are alike: in place of each computing all of them, every invocation
//! computes one, and hands it to the others. This module owns the packing of such statements; it moves no statement past one that is no value.
//!
//! Algorithm: superword-level parallelism by a list schedule (S. Larsen, S. Amarasinghe, "Exploiting superword level parallelism with
//! multimedia instruction sets", 2000). Costly statements wait until no other is ready, and those of one form become a pack. Cheap ones
//! that read packs become packs where that takes fewer operations.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;

use super::statements::ChainStatement;

/// A value of a segment that waits for its operands.
struct Waiting {
    glsl: &'static str,
    name: String,
    /// The expression with a mark for each operand.
    form: String,
    operands: Vec<String>,
    costly: bool,
}

/// Where a packed value is.
#[derive(Clone)]
struct Lane {
    glsl: &'static str,
    pack: String,
    lane: u32,
}

/// The mark of an operand in a form: no expression has it.
const OPERAND: char = '\u{1}';

/// The statements with those that are alike packed into up to `lanes` invocations of a subgroup, all of which run them.
pub fn packed(statements: Vec<ChainStatement>, lanes: u32) -> Vec<ChainStatement> {
    let mut packer = Packer {
        lanes,
        last_reads: last_reads(&statements),
        done: vec![],
        packed: HashMap::new(),
        scalars: HashSet::new(),
        count: 0,
    };
    let (mut values, mut stores, mut number) = (vec![], vec![], 0);
    for statement in statements {
        match statement {
            ChainStatement::Value { glsl, name, expression, costly } => {
                let (form, operands) = form(&expression);
                values.push(Waiting { glsl, name, form, operands, costly });
            }
            ChainStatement::Store(_) => stores.push(statement),
            ChainStatement::Other(_) | ChainStatement::Lanes { .. } => {
                packer.segment(number, std::mem::take(&mut values));
                packer.done.append(&mut stores);
                packer.end(statement);
                number += 1;
            }
        }
    }
    packer.segment(number, values);
    packer.done.append(&mut stores);
    packer.done
}

/// Where each name is read last: in the values of segment `n`, which is `(n, false)`, or in what comes before the next, which is `(n, true)`.
fn last_reads(statements: &[ChainStatement]) -> HashMap<String, (usize, bool)> {
    let mut reads = HashMap::new();
    let mut number = 0;
    for statement in statements {
        let (text, behind) = match statement {
            ChainStatement::Value { expression, .. } => (expression.clone(), false),
            other => (other.text(), true),
        };
        for (start, end) in identifiers(&text) {
            reads.insert(text[start..end].to_owned(), (number, behind));
        }
        number += usize::from(matches!(statement, ChainStatement::Other(_) | ChainStatement::Lanes { .. }));
    }
    reads
}

/// The identifiers of values in an expression: a letter and a number.
fn identifiers(text: &str) -> impl Iterator<Item = (usize, usize)> + '_ {
    let bytes = text.as_bytes();
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() {
            let start = at;
            if !word(bytes[at]) {
                at += 1;
                continue;
            }
            while at < bytes.len() && word(bytes[at]) {
                at += 1;
            }
            let value = matches!(bytes[start], b'v' | b'r') && bytes.get(start + 1).is_some_and(u8::is_ascii_digit);
            if value && bytes.get(at) != Some(&b'(') {
                return Some((start, at));
            }
        }
        None
    })
}

/// The number literals in parentheses.
fn literals(text: &str) -> Vec<(usize, usize)> {
    let bytes = text.as_bytes();
    let mut found = vec![];
    for (start, _) in text.match_indices('(') {
        let Some(length) = text[start..].find(')') else { continue };
        let inner = &bytes[start + 1..start + length];
        let digits = inner.strip_prefix(b"-").unwrap_or(inner);
        let number = digits.first().is_some_and(u8::is_ascii_digit)
            && digits.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'-' | b'l' | b'f'));
        let called = start > 0 && (bytes[start - 1].is_ascii_alphanumeric() || bytes[start - 1] == b'_');
        if number && digits.contains(&b'.') && !called {
            found.push((start, start + length + 1));
        }
    }
    found
}

/// An expression's form and its operands.
fn form(expression: &str) -> (String, Vec<String>) {
    let mut spans: Vec<(usize, usize)> = identifiers(expression).chain(literals(expression)).collect();
    spans.sort_unstable();
    let (mut text, mut operands, mut at) = (String::new(), vec![], 0);
    for (start, end) in spans {
        text.push_str(&expression[at..start]);
        text.push(OPERAND);
        operands.push(expression[start..end].to_owned());
        at = end;
    }
    text.push_str(&expression[at..]);
    (text, operands)
}

/// A form with its operands.
fn filled(form: &str, operands: &[String]) -> String {
    let mut parts = form.split(OPERAND);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for (operand, rest) in operands.iter().zip(parts) {
        text.push_str(operand);
        text.push_str(rest);
    }
    text
}

struct Packer {
    lanes: u32,
    last_reads: HashMap<String, (usize, bool)>,
    done: Vec<ChainStatement>,
    /// Where the packed values are.
    packed: HashMap<String, Lane>,
    /// The packed values that are variables of their own, too.
    scalars: HashSet<String>,
    count: usize,
}

impl Packer {
    /// Takes what ends a segment.
    fn end(&mut self, statement: ChainStatement) {
        match statement {
            ChainStatement::Lanes { glsl, pack, values } => {
                for (name, lane) in values {
                    self.packed.insert(name, Lane { glsl, pack: pack.clone(), lane });
                }
            }
            other => self.done.push(other),
        }
    }

    /// Writes the values of the segment of that number. Those that are read later become variables.
    fn segment(&mut self, number: usize, values: Vec<Waiting>) {
        let numbers: HashMap<&str, usize> = values.iter().enumerate().map(|(i, value)| (&*value.name, i)).collect();
        let mut readers = vec![vec![]; values.len()];
        let mut missing = vec![0; values.len()];
        for (reader, value) in values.iter().enumerate() {
            for &operand in value.operands.iter().filter_map(|operand| numbers.get(&**operand)) {
                readers[operand].push(reader);
                missing[reader] += 1;
            }
        }
        let mut cheap = BTreeSet::new();
        let mut costly: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
        let mut ready: Vec<usize> = (0..values.len()).filter(|&i| missing[i] == 0).collect();
        loop {
            for i in ready.drain(..) {
                match values[i].costly {
                    true => costly.entry((&values[i].form, values[i].glsl)).or_default().push(i),
                    false => _ = cheap.insert(i),
                }
            }
            let written: Vec<usize> = if cheap.is_empty() {
                // The largest group, and of equal ones the first.
                let largest = costly.iter().max_by_key(|(_, group)| (group.len(), Reverse(group[0])));
                let Some((&form, _)) = largest else { break };
                costly.remove(&form).unwrap_or_default()
            } else {
                std::mem::take(&mut cheap).into_iter().collect()
            };
            let group: Vec<&Waiting> = written.iter().map(|&i| &values[i]).collect();
            if group[0].costly {
                self.costly(&group)
            } else {
                self.cheap(&group)
            }
            for reader in written.into_iter().flat_map(|i| std::mem::take(&mut readers[i])) {
                missing[reader] -= 1;
                if missing[reader] == 0 {
                    ready.push(reader);
                }
            }
        }
        for value in &values {
            if self.last_reads.get(&value.name).is_some_and(|&read| read > (number, false)) {
                self.scalar(&value.name);
            }
        }
    }

    /// Writes costly statements of one form.
    fn costly(&mut self, group: &[&Waiting]) {
        let most = if exchangeable(group[0].glsl) { self.lanes as usize } else { 1 };
        for part in group.chunks(most) {
            match part {
                [one] => self.one(one),
                _ => self.pack(part),
            }
        }
    }

    /// Writes cheap statements: as packs those that read packs in different lanes, where that is less to do.
    fn cheap(&mut self, ready: &[&Waiting]) {
        let mut groups: BTreeMap<(&str, &str, String), Vec<&Waiting>> = BTreeMap::new();
        for &value in ready {
            let lane = value.operands.iter().find_map(|operand| self.packed.get(operand));
            match lane.filter(|_| exchangeable(value.glsl)) {
                Some(lane) => {
                    groups.entry((&value.form, value.glsl, lane.pack.clone())).or_default().push(value);
                }
                None => self.one(value),
            }
        }
        for mut group in groups.into_values() {
            while !group.is_empty() {
                let mut taken = HashSet::new();
                let (part, rest): (Vec<&Waiting>, Vec<&Waiting>) =
                    group.into_iter().partition(|value| self.own_lane(value).is_some_and(|lane| taken.insert(lane)));
                group = rest;
                let unpacked = part
                    .iter()
                    .flat_map(|value| &value.operands)
                    .filter(|&operand| self.packed.contains_key(operand) && !self.scalars.contains(operand));
                let saved = part.len() + unpacked.count();
                if part.len() > 1 && self.selections(&part) < saved {
                    self.pack(&part);
                } else {
                    part.iter().for_each(|value| self.one(value));
                }
            }
        }
    }

    /// The lane of the first packed operand.
    fn own_lane(&self, value: &Waiting) -> Option<u32> {
        value.operands.iter().find_map(|operand| self.packed.get(operand)).map(|lane| lane.lane)
    }

    /// The lanes of statements that become a pack: those of what they read, where no two have the same.
    fn lanes_of(&self, group: &[&Waiting]) -> Vec<u32> {
        let mut taken = HashSet::new();
        let wanted: Vec<Option<u32>> =
            group.iter().map(|value| self.own_lane(value).filter(|&lane| taken.insert(lane))).collect();
        let mut free = (0..self.lanes).filter(|lane| !taken.contains(lane));
        wanted.into_iter().map(|lane| lane.or_else(|| free.next()).unwrap_or(0)).collect()
    }

    /// What each lane reads at a position, as the text and the lanes that read it.
    fn sources(&self, group: &[&Waiting], lanes: &[u32], position: usize) -> Vec<(String, Vec<u32>)> {
        let mut sources: Vec<(String, Vec<u32>)> = vec![];
        for (value, &lane) in group.iter().zip(lanes) {
            let operand = &value.operands[position];
            let text = match self.packed.get(operand) {
                Some(packed) if packed.lane == lane => &packed.pack,
                _ => operand,
            };
            match sources.iter_mut().find(|source| source.0 == *text) {
                Some(source) => source.1.push(lane),
                None => sources.push((text.clone(), vec![lane])),
            }
        }
        sources
    }

    /// Selections that a pack of these statements takes.
    fn selections(&self, group: &[&Waiting]) -> usize {
        let lanes = self.lanes_of(group);
        (0..group[0].operands.len()).map(|position| self.sources(group, &lanes, position).len() - 1).sum()
    }

    fn one(&mut self, value: &Waiting) {
        for operand in &value.operands {
            self.scalar(operand);
        }
        self.declare(value.glsl, value.name.clone(), filled(&value.form, &value.operands), value.costly);
    }

    fn pack(&mut self, group: &[&Waiting]) {
        let lanes = self.lanes_of(group);
        let mut operands = vec![];
        for position in 0..group[0].operands.len() {
            let mut sources = self.sources(group, &lanes, position);
            let most = sources.iter().map(|source| source.1.len()).max().unwrap_or(0);
            let last = sources.iter().position(|source| source.1.len() == most).unwrap_or(0);
            let (default, _) = sources.remove(last);
            let mut text = String::new();
            for (source, lanes) in &sources {
                self.scalar(source);
                let conditions: Vec<String> = lanes.iter().map(|lane| format!("LANE == {lane}u")).collect();
                let _ = write!(text, "{} ? {source} : ", conditions.join(" || "));
            }
            self.scalar(&default);
            operands.push(if sources.is_empty() { default } else { format!("({text}{default})") });
        }
        self.count += 1;
        let pack = format!("p{}", self.count);
        for (value, &lane) in group.iter().zip(&lanes) {
            self.packed.insert(value.name.clone(), Lane { glsl: value.glsl, pack: pack.clone(), lane });
        }
        self.declare(group[0].glsl, pack, filled(&group[0].form, &operands), true);
    }

    /// Makes a packed value a variable.
    fn scalar(&mut self, name: &str) {
        if let Some(Lane { glsl, pack, lane }) = self.packed.get(name).cloned()
            && self.scalars.insert(name.to_owned())
        {
            self.declare(glsl, name.to_owned(), format!("subgroupBroadcast({pack}, {lane}u)"), false);
        }
    }

    fn declare(&mut self, glsl: &'static str, name: String, expression: String, costly: bool) {
        self.done.push(ChainStatement::Value { glsl, name, expression, costly });
    }
}

/// Whether subgroups exchange values of the type without an extension.
pub fn exchangeable(glsl: &str) -> bool {
    matches!(glsl, "float" | "double" | "uint" | "int")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(name: &str, expression: &str) -> ChainStatement {
        let costly = expression.starts_with("nx_exp");
        ChainStatement::Value { glsl: "float", name: name.into(), expression: expression.into(), costly }
    }

    fn texts(statements: Vec<ChainStatement>, lanes: u32) -> Vec<String> {
        packed(statements, lanes).iter().map(|statement| statement.text().trim().to_owned()).collect()
    }

    /// `exp(-v1)` and `exp(-v2)`, whose sum is stored.
    fn two_exponentials() -> Vec<ChainStatement> {
        vec![
            value("v3", "nx_negate(v1)"),
            value("v4", "nx_exp(v3)"),
            value("v5", "nx_negate(v2)"),
            value("v6", "nx_exp(v5)"),
            value("v7", "nx_add(v4, (1.0f))"),
            value("v8", "nx_add(v6, (2.0f))"),
            value("v9", "v7 + v8"),
            ChainStatement::Store("  store(v9);\n".into()),
        ]
    }

    #[test]
    fn alike_statements_are_one_in_several_lanes_with_what_reads_them() {
        let expected = [
            "float v3 = nx_negate(v1);",
            "float v5 = nx_negate(v2);",
            "float p1 = nx_exp((LANE == 1u ? v5 : v3));",
            "float p2 = nx_add(p1, (LANE == 1u ? (2.0f) : (1.0f)));",
            "float v7 = subgroupBroadcast(p2, 0u);",
            "float v8 = subgroupBroadcast(p2, 1u);",
            "float v9 = v7 + v8;",
            "store(v9);",
        ];
        assert_eq!(texts(two_exponentials(), 32), expected);
        assert!(texts(two_exponentials(), 1).iter().all(|text| !text.contains("LANE")));
    }

    #[test]
    fn values_stay_before_and_behind_what_is_no_value() {
        let meet = || ChainStatement::Other("  meet();\n".into());
        let halves = [value("v3", "nx_exp(v1)"), meet(), value("v4", "nx_exp(v2)"), meet(), value("v5", "v3 + v4")];
        let expected = halves.clone().map(|statement| statement.text().trim().to_owned());
        assert_eq!(texts(halves.to_vec(), 32), expected);
        // What is read behind is a variable there.
        let both = vec![value("v3", "nx_exp(v1)"), value("v4", "nx_exp(v2)"), meet(), value("v5", "v3 + v4")];
        let expected = [
            "float p1 = nx_exp((LANE == 1u ? v2 : v1));",
            "float v3 = subgroupBroadcast(p1, 0u);",
            "float v4 = subgroupBroadcast(p1, 1u);",
            "meet();",
            "float v5 = v3 + v4;",
        ];
        assert_eq!(texts(both, 32), expected);
    }

    #[test]
    fn more_alike_statements_than_lanes_are_several_packs() {
        let all: Vec<ChainStatement> =
            (0..5).map(|i| value(&format!("v{}", i + 10), &format!("nx_exp(v{i})"))).collect();
        let packs = texts([all, vec![ChainStatement::Store("  v10 v11 v12 v13 v14\n".into())]].concat(), 2);
        assert_eq!(packs.iter().filter(|text| text.contains("nx_exp")).count(), 3);
    }

    #[test]
    fn totals_are_read_in_their_lanes() {
        let totals = ChainStatement::Lanes {
            glsl: "float",
            pack: "t1".into(),
            values: vec![("r1".into(), 4), ("r2".into(), 2)],
        };
        let read = [value("v1", "nx_exp(r1)"), value("v2", "nx_exp(r2)"), ChainStatement::Store("  v1 v2\n".into())];
        let expected = [
            "float p1 = nx_exp(t1);",
            "float v1 = subgroupBroadcast(p1, 4u);",
            "float v2 = subgroupBroadcast(p1, 2u);",
            "v1 v2",
        ];
        assert_eq!(texts([vec![totals], read.to_vec()].concat(), 32), expected);
    }
}
