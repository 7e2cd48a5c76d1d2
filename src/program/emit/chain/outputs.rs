//! Reductions that all invocations of a chain share: the accumulators of each, what is added to them, and how the invocations exchange them. This
//! module knows no loop; it writes what stands in a loop's body, before it and behind it.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::Writer;
use super::reductions::{ChainAccumulator, ChainExchange};
use super::statements::ChainStatement;
use super::values::{ChainValue, Emission};

/// An output of a reduction that the invocations share.
pub struct SharedOutput {
    /// The slot that it belongs to.
    pub slot: usize,
    /// The step that reduces.
    pub step: usize,
    /// Its linear index among those of the reduction.
    pub output: i64,
    /// The name of its accumulator.
    pub name: String,
    /// What an iteration adds, with the position of each.
    pub added: Vec<(ChainValue, String)>,
    /// Another output that adds the same, and whether with the other sign.
    pub same_as: Option<(usize, bool)>,
}

impl Writer<'_> {
    /// Declares the accumulators of the outputs that need one.
    pub(super) fn declared(&mut self, outputs: &[SharedOutput]) -> Emission<()> {
        for output in outputs.iter().filter(|output| output.same_as.is_none()) {
            let accumulator = ChainAccumulator::of(&self.emitter, output.step)?;
            self.emitter.write(0, &accumulator.declaration(&output.name))?;
        }
        Ok(())
    }

    /// Adds up what an iteration adds, once for all outputs that add the same. The result is what the log-density alone needs, where it may be left
    /// out.
    pub(super) fn added(&mut self, depth: usize, outputs: &mut [SharedOutput]) -> Emission<String> {
        let mut optional = String::new();
        let mut known: HashMap<(Vec<String>, Vec<bool>, bool), usize> = HashMap::new();
        for number in 0..outputs.len() {
            let output = &outputs[number];
            let accumulator = ChainAccumulator::of(&self.emitter, output.step)?;
            let terms: Vec<(ChainValue, bool)> = output
                .added
                .iter()
                .map(|(value, _)| match self.emitter.negated(value).filter(|_| accumulator.is_sum()) {
                    Some(other) => (other.clone(), true),
                    None => (value.clone(), false),
                })
                .collect();
            if accumulator.is_sum() {
                let texts: Vec<String> = terms.iter().map(|(value, _)| accumulator.contribution(value)).collect();
                let first = terms.first().is_some_and(|term| term.1);
                let signs = terms.iter().map(|term| term.1 != first).collect();
                let optional = self.emitter.plan.optional[output.slot];
                match known.entry((texts, signs, optional)) {
                    Entry::Occupied(other) => {
                        let other = *other.get();
                        let negated = outputs[other]
                            .added
                            .first()
                            .is_some_and(|(value, _)| self.emitter.negated(value).is_some());
                        outputs[number].same_as = Some((other, negated != first));
                        continue;
                    }
                    Entry::Vacant(vacant) => {
                        vacant.insert(number);
                    }
                }
            }
            let mut text = String::new();
            for ((value, negated), (_, position)) in terms.iter().zip(&output.added) {
                text += &match negated {
                    true => accumulator.subtraction(&output.name, value),
                    false => {
                        accumulator.addition(&output.name, std::slice::from_ref(value), std::slice::from_ref(position))
                    }
                };
            }
            match depth > 0 && self.emitter.plan.optional[outputs[number].slot] {
                true => optional += &text,
                false => self.emitter.write(depth, &text)?,
            }
        }
        Ok(optional)
    }

    /// What the workgroup shares after a phase.
    pub(super) fn exchanged(&mut self, outputs: &[SharedOutput], stores: bool) -> Emission<()> {
        let mut after = vec![];
        let mut sums: BTreeMap<&'static str, Vec<&str>> = BTreeMap::new();
        let mut distributed = HashSet::new();
        for SharedOutput { step, name, .. } in outputs.iter().filter(|output| output.same_as.is_none()) {
            let accumulator = ChainAccumulator::of(&self.emitter, *step)?;
            if let Some(glsl) = accumulator.summed().filter(|_| self.exchange.lanes > 1) {
                sums.entry(glsl).or_default().push(name);
                distributed.insert(name);
                continue;
            }
            let emitter = &mut self.emitter;
            emitter.write(0, &accumulator.shuffles(name, self.exchange))?;
            if self.exchange.subgroups > 1 {
                let [declared, filled, added] = accumulator.partials(name, self.exchange);
                self.partials.push_str(&declared);
                self.partial_bytes += accumulator.bytes() * u64::from(self.exchange.subgroups);
                emitter.write(0, &filled)?;
                after.push(ChainStatement::Other(added));
            }
        }
        for (glsl, names) in sums {
            let first = self.emitter.name("t");
            let sums = distributed_sums(glsl, &names, &first, self.exchange);
            self.partials.push_str(&sums.partials);
            self.partial_bytes += sums.partial_bytes;
            self.emitter.write(0, &sums.before)?;
            after.extend(sums.after);
        }
        if stores || self.exchange.subgroups > 1 && !after.is_empty() {
            self.emitter.write(0, "  meet();\n")?;
        }
        for statement in after {
            self.emitter.push(0, statement)?;
        }
        let emitter = &mut self.emitter;
        for SharedOutput { slot, step, output, name, same_as, .. } in outputs {
            let ty = emitter.step(*step).program.result();
            let (name, negated) = match *same_as {
                Some((other, negated)) => (&outputs[other].name, negated),
                None => (name, false),
            };
            let name = if distributed.contains(name) { total_name(name) } else { name.clone() };
            let value = ChainAccumulator::of(emitter, *step)?.finished(&name, ty);
            let mut value = emitter.declare(&value, ty, 0)?;
            if negated {
                value = emitter.multiple(&value, -1.0)?;
            }
            emitter.shared.insert((*slot, *output), value);
        }
        Ok(())
    }
}

/// The GLSL of sums over all invocations.
struct DistributedSums {
    /// What comes before the invocations of a workgroup meet.
    before: String,
    /// What comes after.
    after: Vec<ChainStatement>,
    /// Declarations of the memory of the workgroup that they meet in.
    partials: String,
    /// Bytes of that memory.
    partial_bytes: u64,
}

/// The name of the total of an accumulator.
fn total_name(accumulator: &str) -> String {
    format!("{accumulator}s")
}

/// The totals of accumulators, each in one lane. Two lanes that exchange values add up one half of the sums each, in the order in which each lane
/// would add up all of them: for n sums n exchanges in place of n times the logarithm of the lanes.
fn distributed_sums(
    glsl: &'static str,
    accumulators: &[&str],
    first: &str,
    exchange: ChainExchange,
) -> DistributedSums {
    let mut before = String::new();
    let mut sums: Vec<(String, Vec<(&str, u32)>)> =
        accumulators.iter().map(|&name| (format!("{name}_0"), vec![(name, 0)])).collect();
    let mut count = 0;
    let mut distance = exchange.lanes / 2;
    while distance > 0 {
        let mut left = vec![];
        let mut pairs = sums.into_iter();
        while let Some((kept, mut members)) = pairs.next() {
            let Some((other, others)) = pairs.next() else {
                before += &format!("  {kept} += subgroupShuffleXor({kept}, {distance}u);\n");
                left.push((kept, members));
                break;
            };
            count += 1;
            let name = format!("{first}_{count}");
            before += &format!("  bool upper_{name} = (LANE & {distance}u) != 0u;\n");
            before += &format!("  {glsl} {name} = upper_{name} ? {other} : {kept};\n");
            before += &format!("  {name} += subgroupShuffleXor(upper_{name} ? {kept} : {other}, {distance}u);\n");
            members.extend(others.into_iter().map(|(name, lane)| (name, lane | distance)));
            left.push((name, members));
        }
        sums = left;
        distance /= 2;
    }
    let mut result = DistributedSums { before, after: vec![], partials: String::new(), partial_bytes: 0 };
    let size = if glsl == "double" { 8 } else { 4 };
    for (name, members) in sums {
        if exchange.subgroups > 1 {
            let ChainExchange { lanes, subgroups } = exchange;
            result.partials += &format!("shared {glsl} partial_{name}[{}];\n", lanes * subgroups);
            result.partial_bytes += size * u64::from(lanes * subgroups);
            result.before += &format!("  partial_{name}[SUBGROUP * {lanes}u + LANE] = {name};\n");
            let mut text = format!("  {name} = partial_{name}[LANE];\n");
            for other in 1..subgroups {
                text += &format!("  {name} += partial_{name}[{}u + LANE];\n", other * lanes);
            }
            result.after.push(ChainStatement::Other(text));
        }
        let values = members.into_iter().map(|(member, lane)| (format!("{}_0", total_name(member)), lane)).collect();
        result.after.push(ChainStatement::Lanes { glsl, pack: name, values });
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the text computes of one number for each accumulator in each lane: the lanes of each total, and each total's exchanges.
    fn exchanges(count: usize, lanes: u32) -> (Vec<u32>, usize) {
        let names: Vec<String> = (0..count).map(|i| format!("r{i}")).collect();
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        let sums = distributed_sums("float", &names, "t", ChainExchange { lanes, subgroups: 1 });
        let mut found = vec![];
        for statement in &sums.after {
            let ChainStatement::Lanes { values, .. } = statement else { continue };
            found.extend(values.iter().map(|value| value.1));
        }
        (found, sums.before.matches("subgroupShuffleXor").count())
    }

    #[test]
    fn each_total_is_in_a_lane_of_its_own() {
        assert_eq!(exchanges(1, 32), (vec![0], 5));
        assert_eq!(exchanges(2, 8), (vec![0, 4], 3));
        let (lanes, count) = exchanges(9, 32);
        assert_eq!(count, 12);
        assert_eq!(lanes.iter().collect::<HashSet<_>>().len(), 9);
        // More sums than lanes are in several variables.
        assert_eq!(exchanges(20, 8).0.len(), 20);
    }
}
