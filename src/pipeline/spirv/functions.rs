//! How large functions become and how deep their control flow nests once a driver has inlined all calls. Owns the limits on
//! these; SPIRV-Tools' validator limits the nesting of one function alone, and its inliner takes exponential time.

use std::collections::HashMap;

use ::spirv::Op;

use super::SpirvError;
use super::sizes::{self, SizeLimits};

/// Deepest nesting of selections and loops, callers' included. Lavapipe's code generator keeps them on a stack of 80
/// entries whose end it does not check. Drivers turn a return inside a construct into one more selection around what
/// follows, so each counts.
pub(super) const MAX_NESTING: u32 = 64;

/// Deepest nesting of calls: they are followed by recursion here and in drivers.
const MAX_CALL_DEPTH: u32 = 64;

/// Size of a function.
#[derive(Clone, Copy, Default)]
struct FunctionSize {
    /// Scalars that its instructions produce.
    scalars: u64,
    /// Bytes of its variables.
    bytes: u64,
    /// Deepest nesting of its constructs, plus its returns inside constructs.
    nesting: u32,
    /// Length of the longest chain of calls from here.
    calls: u32,
}

#[derive(Default)]
struct Function {
    /// Without callees.
    size: FunctionSize,
    calls: Vec<u32>,
    blocks: Vec<BasicBlock>,
    by_label: HashMap<u32, usize>,
    /// With callees, once known.
    total: Option<FunctionSize>,
}

#[derive(Default)]
struct BasicBlock {
    /// Merge block, and continue target of a loop (0 in a selection).
    construct: Option<(u32, u32)>,
    successors: Vec<u32>,
    returns: bool,
}

/// The functions of a module.
#[derive(Default)]
pub(super) struct Functions {
    all: HashMap<u32, Function>,
    current: Option<Function>,
    id: u32,
}

impl Functions {
    /// Whether the walk is inside a function.
    pub fn inside(&self) -> bool {
        self.current.is_some()
    }

    /// Counts the scalars that an instruction of the current function produces.
    pub fn add_scalars(&mut self, scalars: u64) {
        if let Some(function) = &mut self.current {
            function.size.scalars = function.size.scalars.saturating_add(scalars);
        }
    }

    /// Counts a variable of the current function.
    pub fn add_bytes(&mut self, bytes: u64) {
        if let Some(function) = &mut self.current {
            function.size.bytes = function.size.bytes.saturating_add(bytes);
        }
    }

    /// Takes in an instruction if it shapes functions. `selector_words` is the number of words of a literal of
    /// `OpSwitch`.
    pub fn instruction(&mut self, op: Op, words: &[u32], selector_words: usize) {
        if op == Op::Function {
            (self.current, self.id) = (Some(Function::default()), words[2]);
        }
        let Some(function) = &mut self.current else { return };
        match op {
            Op::FunctionCall => function.calls.push(words[3]),
            Op::Label => {
                function.by_label.insert(words[1], function.blocks.len());
                function.blocks.push(BasicBlock::default());
            }
            Op::FunctionEnd => {
                function.size.nesting = function.nesting();
                if let Some(function) = self.current.take() {
                    self.all.insert(self.id, function);
                }
                return;
            }
            _ => {}
        }
        let Some(block) = function.blocks.last_mut() else {
            return;
        };
        match op {
            Op::SelectionMerge => block.construct = Some((words[1], 0)),
            Op::LoopMerge => block.construct = Some((words[1], words[2])),
            Op::Branch => block.successors.push(words[1]),
            Op::BranchConditional => block.successors.extend([words[2], words[3]]),
            Op::Switch => {
                block.successors.push(words[2]);
                block.successors.extend(words[3..].chunks(selector_words + 1).filter_map(|case| case.last()));
            }
            Op::Return | Op::ReturnValue => block.returns = true,
            _ => {}
        }
    }

    /// Checks every function with its callees against the limits. `global_bytes` are those of the variables outside
    /// functions.
    pub fn check(mut self, global_bytes: u64, limits: &SizeLimits) -> Result<(), SpirvError> {
        let ids: Vec<u32> = self.all.keys().copied().collect();
        for id in ids {
            let FunctionSize { scalars, bytes, nesting, calls } = self.inlined(id, 0)?;
            limits.check(&sizes::SCALARS, scalars)?;
            limits.check(&sizes::PRIVATE_BYTES, bytes.saturating_add(global_bytes))?;
            let message = if calls > MAX_CALL_DEPTH {
                too_many_calls()
            } else if nesting > MAX_NESTING {
                format!("control flow nested {nesting} deep, calls and early returns included, more than {MAX_NESTING}")
            } else {
                continue;
            };
            return Err(SpirvError::Unsupported(message));
        }
        Ok(())
    }

    /// The size of a function with all its callees inlined.
    fn inlined(&mut self, id: u32, depth: u32) -> Result<FunctionSize, SpirvError> {
        // The order in which functions come may hide a long chain from `depth`, recursion it cannot.
        if depth > MAX_CALL_DEPTH {
            return Err(SpirvError::Unsupported(too_many_calls()));
        }
        let (own, calls) = match self.all.get(&id) {
            Some(Function { total: Some(total), .. }) => return Ok(*total),
            Some(function) => (function.size, function.calls.clone()),
            None => return Err(SpirvError::Unsupported("a call of an undefined function".into())),
        };
        let (mut total, mut nesting) = (own, 0);
        for callee in calls {
            let callee = self.inlined(callee, depth + 1)?;
            total.scalars = total.scalars.saturating_add(callee.scalars);
            total.bytes = total.bytes.saturating_add(callee.bytes);
            nesting = nesting.max(callee.nesting);
            total.calls = total.calls.max(callee.calls + 1);
        }
        total.nesting = total.nesting.saturating_add(nesting);
        if let Some(function) = self.all.get_mut(&id) {
            function.total = Some(total);
        }
        Ok(total)
    }
}

fn too_many_calls() -> String {
    format!("calls nested more than {MAX_CALL_DEPTH} deep, or recursion")
}

/// A construct that is open on the way to a block.
struct OpenConstruct {
    outer: usize,
    merge: u32,
    continue_target: u32,
    depth: u32,
}

impl Function {
    /// Deepest nesting of constructs, plus the number of returns inside constructs.
    ///
    /// Follows the edges from the entry block. A header opens a construct for its successors; arriving at the merge
    /// block of an open construct closes it and all within, at a continue target all within its loop. Structured
    /// control flow, which the validator has checked, makes this the same on every way to a block.
    fn nesting(&self) -> u32 {
        let mut constructs = vec![OpenConstruct { outer: 0, merge: 0, continue_target: 0, depth: 0 }];
        let mut seen = vec![false; self.blocks.len()];
        let mut work = vec![(0, 0)];
        let (mut deepest, mut returns) = (0, 0);
        while let Some((at, mut innermost)) = work.pop() {
            let Some(block) = self.blocks.get(at).filter(|_| !std::mem::replace(&mut seen[at], true)) else {
                continue;
            };
            returns += u32::from(block.returns && innermost != 0);
            if let Some((merge, continue_target)) = block.construct {
                let depth = constructs[innermost].depth + 1;
                deepest = deepest.max(depth);
                constructs.push(OpenConstruct { outer: innermost, merge, continue_target, depth });
                innermost = constructs.len() - 1;
            }
            for &label in &block.successors {
                let mut target = innermost;
                let mut open = innermost;
                while open != 0 {
                    if constructs[open].merge == label {
                        target = constructs[open].outer;
                        break;
                    }
                    if constructs[open].continue_target == label {
                        target = open;
                        break;
                    }
                    open = constructs[open].outer;
                }
                if let Some(&block) = self.by_label.get(&label) {
                    work.push((block, target));
                }
            }
        }
        deepest + returns
    }
}
