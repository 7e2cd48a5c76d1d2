//! Equal values are computed once: global value numbering that sees through calls of pure functions, selections of values and loads of
//! memory that nothing has written to, which SPIRV-Tools' redundancy elimination leaves alone. Rewrites valid modules; it judges none.
//!
//! Generators that write an expression at each of its uses repeat calls above all. Inlined, they would exceed every table before anything
//! equal is found, so they are compared as they stand. A repeated value becomes a copy of the first one (`OpCopyObject`), which
//! SPIRV-Tools' passes propagate; what only the repetition needed is dead then.
//!
//! Two values are equal where the same instruction takes equal operands, decorations included, so every result stays what it was to the last
//! bit. A copy is made only of a value whose block dominates the copy's.

use std::collections::{HashMap, HashSet};

use ::spirv::{Decoration, GlslStd450Op, Op, StorageClass};

use super::HEADER_WORDS;
use super::calls::StandIns;
use super::dominators::{Block, Dominators, blocks};
use super::tools::Instruction;
use crate::pipeline::glsl::emit;

/// What a pointer points into.
#[derive(Clone, Copy, PartialEq)]
enum Root {
    /// A variable of the function, by its id.
    Local(u32),
    /// What a caller passes.
    Parameter,
    /// Memory that no kernel writes to.
    ReadOnly,
    /// All other memory.
    Shared,
}

/// The module with copies in place of repeated values and stand-ins for calls of pure functions, and what turns these into calls again.
pub(super) fn share(words: &[u32], instructions: &[Instruction]) -> (Vec<u32>, StandIns) {
    let mut pass = Sharer::default();
    for instruction in instructions {
        pass.declare(Op::from_u32(instruction.opcode.into()), &words[instruction.start..][..instruction.len]);
    }
    let functions = functions(instructions);
    for function in &functions {
        pass.judge(words, &instructions[function.clone()]);
    }
    for function in functions {
        pass.function(words, &instructions[function]);
    }
    let stand_ins = StandIns::of(&pass.pure_functions, words, instructions);
    (pass.rewritten(words, instructions, &stand_ins), stand_ins)
}

/// The ranges of instructions that are functions.
fn functions(instructions: &[Instruction]) -> Vec<std::ops::Range<usize>> {
    let at = |op: Op| {
        let found = instructions.iter().enumerate().filter(move |(_, i)| u32::from(i.opcode) == op as u32);
        found.map(|(index, _)| index)
    };
    at(Op::Function).zip(at(Op::FunctionEnd)).map(|(first, last)| first..last + 1).collect()
}

#[derive(Default)]
struct Sharer {
    /// The decorations of each id.
    decorations: HashMap<u32, Vec<Vec<u32>>>,
    /// Whether memory may change although nothing here writes to it.
    volatile: bool,
    roots: HashMap<u32, Root>,
    /// The functions whose results depend on their arguments alone, and that write to nothing.
    pure_functions: HashSet<u32>,
    /// The number of each value that has not its id for a number.
    numbers: HashMap<u32, u32>,
    /// The numbers of values by what makes them.
    keys: HashMap<Vec<u32>, u32>,
    /// The value that each repeated one is a copy of.
    copies: HashMap<u32, u32>,
    /// The arguments of the calls of pure functions: the values of those that are variables.
    calls: HashMap<u32, Vec<u32>>,
    /// The last state of memory that was given a number.
    memories: u32,
}

/// What is known where an instruction stands.
struct Here {
    /// The values that may be copied, by number.
    available: HashMap<u32, u32>,
    /// The state of memory.
    memory: u32,
    /// What variables of the function hold.
    contents: HashMap<u32, u32>,
}

impl Sharer {
    /// Takes in what stands outside functions, and all pointers.
    fn declare(&mut self, op: Option<Op>, words: &[u32]) {
        match op {
            Some(Op::Decorate) => {
                self.volatile |= is_volatile(words[2]);
                self.decorations.entry(words[1]).or_default().push(words[2..].to_vec());
            }
            Some(Op::MemberDecorate) => self.volatile |= is_volatile(words[3]),
            Some(Op::Variable) => {
                use StorageClass::{Function, Input, PushConstant};
                let root = match StorageClass::from_u32(words[3]) {
                    Some(Function) => Root::Local(words[2]),
                    Some(Input | PushConstant) => Root::ReadOnly,
                    _ => Root::Shared,
                };
                self.roots.insert(words[2], root);
            }
            // Whether it is a pointer makes no difference to what only pointers are looked up for.
            Some(Op::FunctionParameter) => _ = self.roots.insert(words[2], Root::Parameter),
            Some(Op::AccessChain | Op::InBoundsAccessChain | Op::CopyObject) => {
                if let Some(&root) = self.roots.get(&words[3]) {
                    self.roots.insert(words[2], root);
                }
            }
            _ => {}
        }
    }

    /// Finds out whether a function is pure. Callees may stand later: their callers count as impure.
    fn judge(&mut self, words: &[u32], function: &[Instruction]) {
        let pure = function.iter().all(|instruction| {
            let words = &words[instruction.start..][..instruction.len];
            let root = |at: usize| self.roots.get(&words[at]).copied();
            match Op::from_u32(instruction.opcode.into()) {
                Some(Op::Load) => words.len() == 4 && !matches!(root(3), Some(Root::Shared) | None),
                Some(Op::Store) => words.len() == 3 && matches!(root(1), Some(Root::Local(_))),
                Some(Op::FunctionCall) => self.pure_functions.contains(&words[3]),
                Some(op) => is_control(op) || is_pure(op, words),
                None => false,
            }
        });
        if let (true, Some(first)) = (pure, function.first()) {
            self.pure_functions.insert(first.result_id);
        }
    }

    fn function(&mut self, words: &[u32], function: &[Instruction]) {
        let blocks = blocks(words, function);
        let dominators = Dominators::of(&blocks);
        let mut here = Here { available: HashMap::new(), memory: 0, contents: HashMap::new() };
        // The state of memory at the end of each block.
        let mut memories = vec![None; blocks.len()];
        // What became available, and at which depth of the tree of dominators.
        let mut added: Vec<(usize, u32)> = vec![];
        for (at, depth) in dominators.in_order() {
            while let Some((_, number)) = added.pop_if(|(of, _)| *of >= depth) {
                here.available.remove(&number);
            }
            let mut before = blocks[at].predecessors.iter().map(|&block| memories[block]);
            let first = before.next().flatten();
            here.memory = match first {
                Some(memory) if before.all(|other| other == first) => memory,
                _ => self.new_memory(),
            };
            here.contents.clear();
            for instruction in &function[blocks[at].instructions.clone()] {
                let words = &words[instruction.start..][..instruction.len];
                let op = Op::from_u32(instruction.opcode.into());
                let key = match op {
                    Some(Op::Phi) => self.selection(&blocks, &dominators, at, words),
                    _ => self.key(op, words, &mut here),
                };
                let (Some(key), id) = (key, instruction.result_id) else { continue };
                let number = *self.keys.entry(key).or_insert(id);
                self.numbers.insert(id, number);
                if op.is_some_and(|op| op == Op::AccessChain || op == Op::InBoundsAccessChain) {
                    continue;
                }
                match here.available.get(&number) {
                    Some(&first) => _ = self.copies.insert(id, first),
                    None => {
                        here.available.insert(number, id);
                        added.push((depth, number));
                    }
                }
            }
            memories[at] = Some(here.memory);
        }
    }

    /// What makes an instruction's value, if an equal value may stand in for it. Follows what the instruction does to memory.
    fn key(&mut self, op: Option<Op>, words: &[u32], here: &mut Here) -> Option<Vec<u32>> {
        let op = op?;
        match op {
            Op::Variable | Op::FunctionParameter => None,
            Op::Load => {
                let root = self.roots.get(&words[3]);
                let memory = if root == Some(&Root::ReadOnly) { 0 } else { here.memory };
                let shareable = words.len() == 4 && matches!(root, Some(Root::ReadOnly | Root::Shared));
                (shareable && !self.volatile).then(|| [op as u32, words[1], memory, self.number(words[3])].to_vec())
            }
            Op::Store => {
                match self.roots.get(&words[1]) {
                    Some(&Root::Local(variable)) if variable == words[1] && words.len() == 3 => {
                        here.contents.insert(variable, words[2]);
                    }
                    Some(Root::Local(variable)) => _ = here.contents.remove(variable),
                    _ => here.memory = self.new_memory(),
                }
                None
            }
            Op::FunctionCall if self.pure_functions.contains(&words[3]) => {
                let mut arguments = vec![];
                for argument in &words[4..] {
                    arguments.push(match self.roots.get(argument) {
                        Some(Root::Local(variable)) if variable == argument => *here.contents.get(variable)?,
                        Some(_) => return None,
                        None => *argument,
                    });
                }
                let numbers = arguments.iter().map(|&argument| self.number(argument));
                let key = [op as u32, words[1], words[3]].into_iter().chain(numbers).collect();
                self.calls.insert(words[2], arguments);
                Some(key)
            }
            _ if is_control(op) => None,
            _ if is_pure(op, words) => {
                let mut key = vec![op as u32, words[1]];
                let mut decorations = self.decorations.get(&words[2]).cloned().unwrap_or_default();
                decorations.sort();
                let ids = ids_of(op, words);
                key.extend(
                    (3..words.len()).map(|at| if ids.contains(&at) { self.number(words[at]) } else { words[at] }),
                );
                key.extend(decorations.concat());
                Some(key)
            }
            _ => {
                here.memory = self.new_memory();
                here.contents.clear();
                None
            }
        }
    }

    /// The key of a phi that takes one value where a selection's condition holds and the other one where it does not.
    fn selection(&self, blocks: &[Block], dominators: &Dominators, at: usize, words: &[u32]) -> Option<Vec<u32>> {
        let header = dominators.parent(at)?;
        let (condition, yes, no) = blocks[header].condition?;
        let &[_, ty, _, first, first_from, second, second_from] = words else { return None };
        let under =
            |branch: usize, from: u32| {
                let from = blocks[at].predecessors.iter().copied().find(|&block| blocks[block].label == from);
                let alone = blocks[branch].predecessors.len() == 1;
                from.is_some_and(|from| {
                    if branch == at { from == header } else { alone && dominators.dominates(branch, from) }
                })
            };
        let (a, b) = match () {
            () if under(yes, first_from) && under(no, second_from) => (first, second),
            () if under(yes, second_from) && under(no, first_from) => (second, first),
            () => return None,
        };
        // A selection between the numbers, not between the ids: its branches are not compared.
        let decorated = self.decorations.contains_key(&words[2]);
        (!decorated).then(|| vec![Op::Phi as u32, ty, self.number(condition), self.number(a), self.number(b)])
    }

    fn number(&self, id: u32) -> u32 {
        self.numbers.get(&id).copied().unwrap_or(id)
    }

    fn new_memory(&mut self) -> u32 {
        self.memories += 1;
        self.memories
    }

    fn rewritten(&self, words: &[u32], instructions: &[Instruction], stand_ins: &StandIns) -> Vec<u32> {
        let mut out = words[..HEADER_WORDS].to_vec();
        out[3] = stand_ins.bound;
        // Copies in place of phis, which stand before all others.
        let mut later: Vec<u32> = vec![];
        for instruction in instructions {
            // A phi that stays has no copy before it.
            let phi =
                u32::from(instruction.opcode) == Op::Phi as u32 && self.copies.contains_key(&instruction.result_id);
            if u32::from(instruction.opcode) != Op::Phi as u32 {
                out.append(&mut later);
            }
            let (id, all) = (instruction.result_id, &words[instruction.start..][..instruction.len]);
            let target = if phi { &mut later } else { &mut out };
            match (self.copies.get(&id), self.calls.get(&id)) {
                (Some(&first), _) => emit(target, Op::CopyObject, &[instruction.type_id, id, first]),
                (None, Some(arguments)) => stand_ins.stand_in(target, all, arguments),
                (None, None) => stand_ins.copy(target, instruction.opcode, all),
            }
        }
        stand_ins.keep(&mut out);
        out
    }
}

fn is_volatile(decoration: u32) -> bool {
    matches!(Decoration::from_u32(decoration), Some(Decoration::Volatile | Decoration::Coherent))
}

/// Whether an instruction gives a function its shape, and neither makes a value that could be shared nor touches memory.
fn is_control(op: Op) -> bool {
    use Op::*;
    matches!(
        op,
        Function
            | FunctionParameter
            | FunctionEnd
            | Variable
            | Label
            | Phi
            | SelectionMerge
            | LoopMerge
            | Branch
            | BranchConditional
            | Switch
            | Return
            | ReturnValue
            | Unreachable
            | Undef
    )
}

/// Whether an instruction's value depends on its operands alone.
fn is_pure(op: Op, words: &[u32]) -> bool {
    use Op::*;
    let number = op as u32;
    match op {
        AccessChain | InBoundsAccessChain | CompositeConstruct | CompositeExtract | CompositeInsert | VectorShuffle
        | VectorExtractDynamic | VectorInsertDynamic | Transpose | CopyObject => true,
        // Modf and Frexp write through a pointer.
        ExtInst => ![GlslStd450Op::Modf as u32, GlslStd450Op::Frexp as u32].contains(&words[4]),
        // Conversions; arithmetic; comparisons and bits.
        _ => {
            (ConvertFToU as u32..=UConvert as u32).contains(&number)
                || [SConvert as u32, FConvert as u32, QuantizeToF16 as u32, Bitcast as u32].contains(&number)
                || (SNegate as u32..=SMulExtended as u32).contains(&number)
                || (Any as u32..=FUnordGreaterThanEqual as u32).contains(&number)
                || (ShiftRightLogical as u32..=BitCount as u32).contains(&number)
        }
    }
}

/// Which words of a pure instruction are ids; the others are literals.
fn ids_of(op: Op, words: &[u32]) -> std::ops::Range<usize> {
    match op {
        Op::CompositeExtract => 3..4,
        Op::CompositeInsert | Op::VectorShuffle => 3..5,
        Op::ExtInst => 5..words.len(),
        _ => 3..words.len(),
    }
}
