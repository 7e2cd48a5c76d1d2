//! Selections with two branches as two selections with one. Owns this rewriting of the modules that our compiler of GLSL makes; it
//! checks nothing, and knows no device.
//!
//! A driver may look for paths through a loop without remembering where it was. Each `if` with an `else`, and each conditional
//! expression whose operands are computed, doubles its queue then, while an `if` alone does not: its end is the first block that
//! the search meets.

use std::collections::{HashMap, HashSet};

use ::spirv::Op;

use super::glsl::{emit, instructions};
use super::spirv::HEADER_WORDS;

/// The word of the header that is larger than each identifier.
const BOUND: usize = 3;

/// The second half of a selection: `if (!condition) …`.
struct SecondHalf {
    label: u32,
    condition: u32,
    merge: u32,
    control: u32,
}

/// The module with `if (c) {A} else {B}` as `if (c) {A} if (!c) {B}`, in all functions.
pub fn one_sided(words: &[u32]) -> Vec<u32> {
    let Some(bool_type) = instructions(words).find_map(|(op, words)| (op == Some(Op::TypeBool)).then(|| words[1]))
    else {
        return words.to_vec();
    };
    let after_phi = labels_of_phis(words);
    let mut out = words[..HEADER_WORDS].to_vec();
    // By the label of the branch that comes second, and what its first branch goes to instead of the merge block.
    let mut halves: HashMap<u32, SecondHalf> = HashMap::new();
    let mut redirected: HashMap<u32, u32> = HashMap::new();
    let mut merge = None;
    for (op, instruction) in instructions(words) {
        match (op, instruction) {
            (Some(Op::SelectionMerge), &[_, label, control]) => {
                merge = Some((label, control));
                continue;
            }
            (Some(Op::BranchConditional), &[_, condition, first, second, ..])
                if let Some((end, control)) = merge
                    && ![first, second].contains(&end)
                    && ![end, second].iter().any(|label| after_phi.contains(label)) =>
            {
                let label = fresh(&mut out);
                emit(&mut out, Op::SelectionMerge, &[label, control]);
                emit(&mut out, Op::BranchConditional, &[condition, first, label]);
                redirected.insert(end, label);
                halves.insert(second, SecondHalf { label, condition, merge: end, control });
                merge = None;
                continue;
            }
            (Some(Op::Label), &[_, label]) if let Some(half) = halves.remove(&label) => {
                redirected.remove(&half.merge);
                let negated = fresh(&mut out);
                emit(&mut out, Op::Label, &[half.label]);
                emit(&mut out, Op::LogicalNot, &[bool_type, negated, half.condition]);
                emit(&mut out, Op::SelectionMerge, &[half.merge, half.control]);
                emit(&mut out, Op::BranchConditional, &[negated, label, half.merge]);
            }
            _ => {}
        }
        if let Some((label, control)) = merge.take() {
            emit(&mut out, Op::SelectionMerge, &[label, control]);
        }
        let start = out.len();
        out.extend_from_slice(instruction);
        let targets = match op {
            Some(Op::Branch) => start + 1..out.len(),
            Some(Op::BranchConditional) => start + 2..start + 4,
            _ => continue,
        };
        for word in &mut out[targets] {
            *word = redirected.get(word).copied().unwrap_or(*word);
        }
    }
    out
}

/// The labels of blocks that begin with a phi: these name their predecessors.
fn labels_of_phis(words: &[u32]) -> HashSet<u32> {
    let mut label = 0;
    let mut labels = HashSet::new();
    for (op, words) in instructions(words) {
        match op {
            Some(Op::Label) => label = words[1],
            Some(Op::Phi) => {
                labels.insert(label);
            }
            _ => {}
        }
    }
    labels
}

/// An identifier that the module has not used.
fn fresh(module: &mut [u32]) -> u32 {
    module[BOUND] += 1;
    module[BOUND] - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{glsl, spirv};

    /// Selections with two branches: each has a merge block that neither of its branches is.
    fn two_sided(words: &[u32]) -> usize {
        let mut merge = None;
        let mut count = 0;
        for (op, words) in instructions(words) {
            if let (Some(Op::BranchConditional), Some(end)) = (op, merge) {
                count += usize::from(!words[2..4].contains(&end));
            }
            merge = (op == Some(Op::SelectionMerge)).then(|| words[1]);
        }
        count
    }

    const SHADER: &str = "
        #version 460
        layout(local_size_x = 1) in;
        layout(binding = 0) buffer Numbers { uint x[]; };
        uint chosen(uint a) {
          if (a > 7u) return x[a]; else if (a > 3u) return x[a + 1u];
          return a == 2u ? x[2] * x[3] : x[4] / x[5];
        }
        void main() {
          for (uint i = 0u; i < x[0]; i++) {
            if (x[i] > 3u) {
              if (x[i] > 5u || x[1] > x[i + 1u]) x[i] = chosen(i); else x[i] += 2u;
            } else {
              switch (x[i]) { case 0u: x[i] = 1u; break; case 1u: continue; default: x[i] = 2u; }
              if (x[2] < 9u && x[3] < x[i]) break; else x[3]++;
            }
          }
        }";

    #[test]
    fn no_selection_has_two_branches_and_the_module_is_valid() {
        let words = glsl::compile(SHADER).unwrap();
        let rewritten = one_sided(&words);
        assert_eq!([two_sided(&words), two_sided(&rewritten)], [5, 0]);
        spirv::validate(&rewritten).unwrap();
    }

    #[test]
    fn a_module_without_selections_stays_as_it_is() {
        for text in
            ["void main() {}", "void main() { for (uint i = 0u; i < gl_NumWorkGroups.x; i++) if (i > 3u) break; }"]
        {
            let words = glsl::compile(&format!("#version 460\nlayout(local_size_x = 1) in;\n{text}\n")).unwrap();
            assert_eq!(one_sided(&words), words);
        }
    }
}
