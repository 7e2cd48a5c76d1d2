//! Calls of pure functions as instructions, while SPIRV-Tools' passes run: to these a call has effects whatever the function does, so that they
//! would keep each one, with the branches around it. An `OpCompositeConstruct`, which may have any number of operands, stands in for a call; it
//! has the function and the values of the arguments, after a function's id that no composite has for a mark. Afterwards each becomes a call
//! again, whose arguments that are pointers point to one variable for all calls of a function.

use std::collections::{HashMap, HashSet};

use ::spirv::{ExecutionModel, FunctionControl, Op, StorageClass};

use super::HEADER_WORDS;
use super::tools::Instruction;
use crate::pipeline::glsl::emit;

/// What stands in for calls, and how to call.
pub(super) struct StandIns {
    /// One more than the largest id, those here included.
    pub bound: u32,
    /// An entry point that calls all these functions, which would be removed without a caller.
    keeper: u32,
    /// The types of the parameters of each function that is pure, and whether they are pointers.
    parameters: HashMap<u32, Vec<(u32, bool)>>,
    /// The results' types, by function.
    results: HashMap<u32, u32>,
    /// The types of a function without parameters: of its result and its own.
    procedure: Option<(u32, u32)>,
}

impl StandIns {
    pub fn of(pure: &HashSet<u32>, words: &[u32], instructions: &[Instruction]) -> Self {
        let bound = words[3];
        let mut all = Self {
            bound: bound + 1,
            keeper: bound,
            parameters: HashMap::new(),
            results: HashMap::new(),
            procedure: None,
        };
        let (mut pointers, mut entries, mut current) = (HashSet::new(), vec![], 0);
        for instruction in instructions {
            let words = &words[instruction.start..][..instruction.len];
            match Op::from_u32(instruction.opcode.into()) {
                Some(Op::TypePointer) if words[2] == StorageClass::Function as u32 => _ = pointers.insert(words[1]),
                Some(Op::EntryPoint) => entries.push(words[2]),
                Some(Op::Function) => {
                    current = words[2];
                    if entries.contains(&current) {
                        all.procedure = Some((words[1], words[4]));
                    } else if pure.contains(&current) {
                        all.parameters.insert(current, vec![]);
                        all.results.insert(current, words[1]);
                    }
                }
                Some(Op::FunctionParameter) => {
                    if let Some(parameters) = all.parameters.get_mut(&current) {
                        parameters.push((words[1], pointers.contains(&words[1])));
                    }
                }
                _ => {}
            }
        }
        // The keeper has a label, and for each function a call and its arguments.
        all.bound += 1 + all.parameters.values().map(|parameters| 1 + parameters.len() as u32).sum::<u32>();
        all
    }

    /// Emits what stands in for a call.
    pub fn stand_in(&self, out: &mut Vec<u32>, call: &[u32], arguments: &[u32]) {
        let operands = [call[1], call[2], self.keeper, call[3]];
        emit(out, Op::CompositeConstruct, &[&operands, arguments].concat());
    }

    /// Emits an instruction that stays, with the keeper's declaration after the memory model.
    pub fn copy(&self, out: &mut Vec<u32>, opcode: u16, words: &[u32]) {
        if u32::from(opcode) != Op::MemoryModel as u32 {
            return out.extend_from_slice(words);
        }
        let text =
            |bytes: &[u8]| -> Vec<u32> { bytes.as_chunks().0.iter().map(|&part| u32::from_le_bytes(part)).collect() };
        out.extend_from_slice(words);
        if self.procedure.is_some() {
            let entry_point = [ExecutionModel::GLCompute as u32, self.keeper];
            emit(out, Op::EntryPoint, &[&entry_point, &*text(b"keeper\0\0")].concat());
        }
    }

    /// Emits the keeper.
    pub fn keep(&self, out: &mut Vec<u32>) {
        let Some((void, procedure)) = self.procedure else { return };
        let mut next = self.keeper + 1;
        let mut id = || {
            next += 1;
            next - 1
        };
        emit(out, Op::Function, &[void, self.keeper, FunctionControl::NONE.bits(), procedure]);
        emit(out, Op::Label, &[id()]);
        let (mut variables, mut calls) = (vec![], vec![]);
        for (&function, parameters) in &self.parameters {
            let mut call = vec![self.results[&function], id(), function];
            for &(ty, pointer) in parameters {
                let argument = id();
                call.push(argument);
                match pointer {
                    true => emit(&mut variables, Op::Variable, &[ty, argument, StorageClass::Function as u32]),
                    false => emit(&mut calls, Op::Undef, &[ty, argument]),
                }
            }
            emit(&mut calls, Op::FunctionCall, &call);
        }
        out.extend(variables);
        out.extend(calls);
        emit(out, Op::Return, &[]);
        emit(out, Op::FunctionEnd, &[]);
    }

    /// The module with calls in place of what stands in for them.
    pub fn calls(&self, words: &[u32], instructions: &[Instruction]) -> Vec<u32> {
        let mut out = words[..HEADER_WORDS].to_vec();
        let mut variables: HashMap<(u32, usize), u32> = HashMap::new();
        // Where the variables of the function go, and what they are.
        let (mut start, mut declarations) = (None, vec![]);
        for instruction in instructions {
            let all = &words[instruction.start..][..instruction.len];
            let op = Op::from_u32(instruction.opcode.into());
            match (op, all) {
                (Some(Op::CompositeConstruct), &[_, ty, id, mark, function, ref arguments @ ..])
                    if mark == self.keeper =>
                {
                    let mut call = vec![ty, id, function];
                    for (at, (&argument, &(ty, pointer))) in
                        arguments.iter().zip(&self.parameters[&function]).enumerate()
                    {
                        if !pointer {
                            call.push(argument);
                            continue;
                        }
                        let variable = *variables.entry((function, at)).or_insert_with(|| {
                            out[3] += 1;
                            emit(&mut declarations, Op::Variable, &[ty, out[3] - 1, StorageClass::Function as u32]);
                            out[3] - 1
                        });
                        emit(&mut out, Op::Store, &[variable, argument]);
                        call.push(variable);
                    }
                    emit(&mut out, Op::FunctionCall, &call);
                    continue;
                }
                (Some(Op::EntryPoint), &[_, _, function, ..]) if function == self.keeper => continue,
                (Some(Op::Function), _) => {
                    start = None;
                    variables.clear();
                }
                (Some(Op::FunctionEnd), _) => {
                    if let Some(start) = start {
                        out.splice(start..start, declarations.drain(..));
                    }
                }
                _ => {}
            }
            out.extend_from_slice(all);
            if op == Some(Op::Label) {
                start = start.or(Some(out.len()));
            }
        }
        out
    }
}
