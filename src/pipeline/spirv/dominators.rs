//! The blocks of a function and which of them dominate which. Knows control flow alone.

use std::collections::HashMap;
use std::ops::Range;

use ::spirv::Op;

use super::tools::Instruction;

/// A basic block.
pub(super) struct Block {
    pub label: u32,
    /// Its instructions, the label and the last one included, as indices into those of the function.
    pub instructions: Range<usize>,
    pub predecessors: Vec<usize>,
    /// The condition that it ends with, and the blocks for true and for false, where these differ.
    pub condition: Option<(u32, usize, usize)>,
    successors: Vec<usize>,
}

/// The blocks of a function of a valid module, in their order.
pub(super) fn blocks(words: &[u32], function: &[Instruction]) -> Vec<Block> {
    let is = |instruction: &Instruction, op: Op| u32::from(instruction.opcode) == op as u32;
    let starts: Vec<usize> = (0..function.len()).filter(|&at| is(&function[at], Op::Label)).collect();
    let by_label: HashMap<u32, usize> =
        starts.iter().enumerate().map(|(block, &at)| (function[at].result_id, block)).collect();
    let ends = starts.iter().skip(1).copied().chain([function.len().saturating_sub(1)]);
    let mut blocks: Vec<Block> = starts
        .iter()
        .zip(ends)
        .map(|(&start, end)| {
            let last = &function[end - 1];
            let operands = &words[last.start..][..last.len][1..];
            let target = |label: &u32| by_label.get(label).copied();
            let (successors, condition): (Vec<usize>, _) = match (Op::from_u32(last.opcode.into()), operands) {
                (Some(Op::Branch), [label, ..]) => (target(label).into_iter().collect(), None),
                (Some(Op::BranchConditional), [condition, yes, no, ..]) => {
                    let branches = target(yes).zip(target(no)).filter(|(yes, no)| yes != no);
                    let targets = [yes, no].into_iter().filter_map(target).collect();
                    (targets, branches.map(|(yes, no)| (*condition, yes, no)))
                }
                // No literal of a switch is taken for a label's id by what follows: one edge too many only hides equal values.
                (Some(Op::Switch), [_, labels @ ..]) => (labels.iter().filter_map(target).collect(), None),
                _ => (vec![], None),
            };
            let label = function[start].result_id;
            Block { label, instructions: start..end, predecessors: vec![], condition, successors }
        })
        .collect();
    for from in 0..blocks.len() {
        for to in blocks[from].successors.clone() {
            if !blocks[to].predecessors.contains(&from) {
                blocks[to].predecessors.push(from);
            }
        }
    }
    blocks
}

/// The tree of dominators of the blocks that can be reached.
pub(super) struct Dominators {
    /// The immediate dominator of each block: itself of the first one, none of what cannot be reached.
    parents: Vec<Option<usize>>,
    /// For each block its position in the tree's order and the end of its subtree there.
    spans: Vec<(usize, usize)>,
    order: Vec<(usize, usize)>,
}

impl Dominators {
    /// By K. D. Cooper, T. J. Harvey and K. Kennedy, "A simple, fast dominance algorithm", 2001.
    pub fn of(blocks: &[Block]) -> Self {
        let postorder = postorder(blocks);
        let mut rank = vec![0; blocks.len()];
        postorder.iter().enumerate().for_each(|(at, &block)| rank[block] = at);
        let mut parents: Vec<Option<usize>> = vec![None; blocks.len()];
        if let Some(first) = parents.first_mut() {
            *first = Some(0);
        }
        let mut changed = true;
        while std::mem::take(&mut changed) {
            for &block in postorder.iter().rev().filter(|&&block| block != 0) {
                let mut parent: Option<usize> = None;
                for &from in blocks[block].predecessors.iter().filter(|&&from| parents[from].is_some()) {
                    let (mut a, mut b) = (from, parent.unwrap_or(from));
                    while a != b {
                        let lower = if rank[a] < rank[b] { &mut a } else { &mut b };
                        *lower = parents[*lower].unwrap_or(0);
                    }
                    parent = Some(a);
                }
                changed |= parents[block] != parent;
                parents[block] = parent;
            }
        }
        let mut tree = Self { parents, spans: vec![(0, 0); blocks.len()], order: vec![] };
        tree.arrange();
        tree
    }

    /// Orders the blocks: each one after its dominators, and beside each other as they stand in the function.
    fn arrange(&mut self) {
        let mut children: Vec<Vec<usize>> = vec![vec![]; self.parents.len()];
        for (block, parent) in self.parents.iter().enumerate().skip(1) {
            if let Some(parent) = parent {
                children[*parent].push(block);
            }
        }
        let mut work = if children.is_empty() { vec![] } else { vec![(0, 0, false)] };
        while let Some((block, depth, done)) = work.pop() {
            if done {
                self.spans[block].1 = self.order.len();
                continue;
            }
            self.spans[block].0 = self.order.len();
            self.order.push((block, depth));
            work.push((block, depth, true));
            work.extend(children[block].iter().rev().map(|&child| (child, depth + 1, false)));
        }
    }

    /// The blocks that can be reached, each after its dominators, with its depth in the tree.
    pub fn in_order(&self) -> impl Iterator<Item = (usize, usize)> {
        self.order.iter().copied()
    }

    /// The immediate dominator of a block other than the first.
    pub fn parent(&self, block: usize) -> Option<usize> {
        self.parents[block].filter(|&parent| parent != block)
    }

    pub fn dominates(&self, above: usize, below: usize) -> bool {
        let ((start, end), (at, _)) = (self.spans[above], self.spans[below]);
        self.parents[above].is_some() && self.parents[below].is_some() && (start..end).contains(&at)
    }
}

/// The blocks that can be reached, each after its successors but for the edges back.
fn postorder(blocks: &[Block]) -> Vec<usize> {
    let (mut seen, mut order) = (vec![false; blocks.len()], vec![]);
    let mut work = if blocks.is_empty() { vec![] } else { vec![(0, false)] };
    while let Some((block, done)) = work.pop() {
        if done {
            order.push(block);
        } else if !std::mem::replace(&mut seen[block], true) {
            work.push((block, true));
            work.extend(blocks[block].successors.iter().map(|&next| (next, false)));
        }
    }
    order
}
