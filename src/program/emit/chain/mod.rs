//! A log-density and its gradient as one function of a chain kernel. This module owns the phases of that function: loops of all invocations
//! that store elements or add up, with what the invocations exchange between them. It knows nothing of integrators.
//!
//! The function reads `S{n}(i)`, an element of an operand, and `M{n}(i)`, an element of a slot in memory, and writes the latter. The kernel
//! defines both.

mod algebra;
mod index;
mod kernel;
mod lanes;
mod matrices;
mod module;
mod outputs;
mod plan;
mod reductions;
mod regions;
mod sampler;
mod statements;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use crate::device::Capabilities;
use crate::error::{Error, Result};
use crate::program::chain::ChainProgram;
use crate::program::dense_strides;
use crate::program::types::Compute;
use algebra::as_type;
use index::ElementIndex;
use outputs::SharedOutput;
use plan::{MAX_UNIFORM_ELEMENTS, MAX_UNROLLED_AXIS, Plan, SlotKind};
use reductions::ChainExchange;
use statements::{ChainStatement, Scope, with_branch};
use values::{ChainEmitter, EMISSION_STACK_BYTES, Emission, Stop};

pub use kernel::{ChainMemory, InverseMass, LeapfrogCost, leapfrog_source};
pub use module::{LeapfrogModule, leapfrog_module};
pub use sampler::{DENSE_MATRICES, SamplerAlgorithm, SamplerKind, SamplerShape, SamplerState, sampler_source};

/// The most times that elements of an iteration are unrolled along short axes.
const MAX_UNROLLED_ELEMENTS: u64 = 16;

/// A slot that the function keeps in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemorySlot {
    /// Its number.
    pub slot: usize,
    /// Its elements.
    pub elements: u64,
    /// The type that they are computed in, which is that in memory.
    pub compute: Compute,
}

/// A log-density with its gradient as GLSL.
#[derive(Clone, Debug)]
pub struct ChainEvaluation {
    /// The body of the function, after which `logp` holds the log-density.
    pub body: String,
    /// The slots in memory, the gradient's among them.
    pub memory: Vec<MemorySlot>,
    /// Declarations of memory through which sums are exchanged.
    pub partials: String,
    /// Bytes of that memory.
    pub partial_bytes: u64,
    /// The files with what the body calls.
    pub files: Vec<&'static str>,
    /// Types that it computes in.
    pub computes: Vec<Compute>,
    /// Iterations of loops that one invocation makes.
    pub iterations: u64,
    /// Lines that one invocation runs.
    pub operations: u64,
    /// Elements of the longest loop of all invocations.
    pub longest: u64,
}

/// What the invocations do together in a phase.
struct Sink {
    slot: usize,
    step: usize,
    /// Extents of the axes of the step's iteration space that a loop goes through, and which they are.
    looped: Vec<usize>,
    /// The other axes that the sink goes through, which are unrolled.
    unrolled: Vec<usize>,
    /// Whether it is a reduction that the invocations share.
    shared: bool,
    /// Whether the whole slot is computed, by the regions that its steps write.
    whole: bool,
}

/// Writes the function for a workgroup of that many invocations, on a stack of its own: elements are computed within one another.
pub fn evaluation(program: &ChainProgram, threads: u32, caps: &Capabilities) -> Result<ChainEvaluation> {
    let failed = |what: &str| Error::Unsupported(format!("a log-density whose kernel was not written: {what}"));
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("nx_vulkan chain".into())
            .stack_size(EMISSION_STACK_BYTES)
            .spawn_scoped(scope, || written(program, threads, caps))
            .map_err(|error| failed(&error.to_string()))?
            .join()
            .unwrap_or_else(|_| Err(failed("its writer panicked")))
    })
}

fn written(program: &ChainProgram, threads: u32, caps: &Capabilities) -> Result<ChainEvaluation> {
    let lanes = caps.subgroup.clamp(1, threads);
    let exchange = ChainExchange { lanes, subgroups: threads / lanes };
    let mut stored = BTreeSet::new();
    loop {
        let plan = Plan::new(program, &stored);
        let mut writer = Writer {
            emitter: ChainEmitter::new(program, plan, caps),
            exchange,
            threads: threads.into(),
            partials: String::new(),
            partial_bytes: 0,
            longest: 0,
            logp: String::new(),
        };
        match writer.phases() {
            Ok(()) => return Ok(writer.finished()),
            Err(Stop::Store(slot)) if stored.insert(slot) => {}
            Err(Stop::Store(_)) => return Err(Error::Unsupported("a log-density whose order is unknown".into())),
            Err(Stop::Failed(error)) => return Err(error),
        }
    }
}

struct Writer<'a> {
    emitter: ChainEmitter<'a>,
    exchange: ChainExchange,
    threads: u64,
    partials: String,
    partial_bytes: u64,
    longest: u64,
    /// The log-density at the end of the function.
    logp: String,
}

impl<'a> Writer<'a> {
    fn phases(&mut self) -> Emission<()> {
        let program = self.emitter.program;
        let last = self.emitter.plan.available[program.given.gradient];
        let last = last.max(self.emitter.plan.available[program.given.logp]);
        for phase in 0..last {
            self.phase(phase)?;
        }
        let logp = self.emitter.element(program.given.logp, &ElementIndex::constant(0))?;
        self.logp = as_type(&logp, program.real()).text;
        Ok(())
    }

    fn phase(&mut self, phase: usize) -> Emission<()> {
        let mut loops: BTreeMap<u64, Vec<Sink>> = BTreeMap::new();
        let mut stores = false;
        for sink in self.sinks(phase) {
            stores |= !sink.shared;
            loops.entry(self.count(&sink)).or_default().push(sink);
        }
        let mut accumulators = vec![];
        for (count, sinks) in &loops {
            let first = accumulators.len();
            for &Sink { slot, step, .. } in sinks.iter().filter(|sink| sink.shared) {
                for output in 0..self.emitter.step(step).layout.outputs() as i64 {
                    let name = self.emitter.name("r");
                    accumulators.push(SharedOutput { slot, step, output, name, added: vec![], same_as: None });
                }
            }
            self.looped(*count, sinks, &mut accumulators[first..])?;
            for output in &mut accumulators[first..] {
                output.same_as = output.same_as.map(|(other, negated)| (first + other, negated));
            }
        }
        for step in self.matrices(phase) {
            stores = true;
            let operation = self.emitter.program.given.matrices[&step];
            self.emitter.matrix(step, operation, self.threads)?;
        }
        self.exchanged(&accumulators, stores)
    }

    /// The statements with those that the log-density alone needs, which `end` computes, in a branch. A CPU device runs both sides of one.
    fn optional(&self, mut statements: Vec<ChainStatement>, end: &str) -> Vec<ChainStatement> {
        if !end.is_empty() && !self.emitter.caps.cpu {
            return with_branch(statements, "wants_logp", end);
        }
        statements.push(ChainStatement::Other(end.into()));
        statements
    }

    /// The operations on matrices of a phase, by the steps.
    fn matrices(&self, phase: usize) -> Vec<usize> {
        let plan = &self.emitter.plan;
        let now = |step: &usize| {
            let slot = self.emitter.step(*step).slot;
            plan.needed[slot] && plan.available[slot] == phase + 1
        };
        self.emitter.program.given.matrices.keys().copied().filter(now).collect()
    }

    /// The loop of that many elements, or what each invocation does.
    fn looped(&mut self, count: u64, sinks: &[Sink], outputs: &mut [SharedOutput]) -> Emission<()> {
        if count == 1 {
            for sink in sinks {
                self.sink(sink, &ElementIndex::constant(0), 0, outputs)?;
            }
            self.declared(outputs)?;
            return self.added(0, outputs).map(drop);
        }
        self.longest = self.longest.max(count);
        let (counter, index) = self.emitter.counter(count, 1);
        let inner = self.emitter.scopes.split_off(1);
        self.emitter.scopes.push(Scope::default());
        let written = sinks.iter().try_for_each(|sink| self.sink(sink, &index, 1, outputs));
        let written = written.and_then(|()| self.added(1, outputs));
        let mut scope = self.emitter.scopes.pop().unwrap_or_default();
        self.emitter.scopes.extend(inner);
        scope.statements = self.optional(scope.statements, &written?);
        self.declared(outputs)?;
        let text = format!(
            "  for (uint {counter} = INVOCATION; {counter} < {count}u; {counter} += THREADS) {{\n{}  }}\n",
            scope.text()
        );
        self.emitter.scopes[0].add_loop(count.div_ceil(self.threads), &scope);
        self.emitter.write(0, &text)
    }

    /// What the invocations do together in a phase, in the order of the steps.
    fn sinks(&self, phase: usize) -> Vec<Sink> {
        let (program, plan) = (self.emitter.program, &self.emitter.plan);
        let mut sinks = vec![];
        for slot in 0..plan.kinds.len() {
            if !plan.needed[slot] || plan.available[slot] != phase + 1 {
                continue;
            }
            let writers = &program.writers[slot];
            if program.given.matrices.contains_key(&writers[0]) {
                continue;
            }
            match plan.kinds[slot] {
                SlotKind::Shared => sinks.push(self.sink_of(slot, writers[0], true, false)),
                SlotKind::Memory => {
                    let elements = |&step: &usize| self.emitter.step(step).program.elements();
                    let dynamic = |&step: &usize| !self.emitter.step(step).program.dynamic_offsets().is_empty();
                    let written: u64 = writers.iter().map(elements).sum();
                    // Regions that overlap are not written by several invocations.
                    let overlap = self.emitter.step(writers[0]).program.output.is_some()
                        && (written != program.slot_elements[slot] || writers.iter().any(dynamic));
                    if overlap {
                        sinks.push(self.sink_of(slot, writers[0], false, true));
                    } else {
                        sinks.extend(writers.iter().map(|&step| self.sink_of(slot, step, false, false)));
                    }
                }
                _ => {}
            }
        }
        sinks
    }

    fn sink_of(&self, slot: usize, step: usize, shared: bool, whole: bool) -> Sink {
        let given = self.emitter.step(step);
        let shape = if whole { &given.slot_shape } else { &given.program.shape };
        let reduced = if whole { None } else { given.program.reduced_axes() };
        let reduced = reduced.unwrap_or_default();
        let axes: Vec<usize> = (0..shape.len()).filter(|axis| reduced.contains(axis) == shared).collect();
        let count = |axes: &[usize]| axes.iter().map(|&axis| shape[axis]).product::<u64>();
        let (mut looped, mut unrolled): (Vec<usize>, Vec<usize>) =
            axes.iter().partition(|&&axis| shape[axis] > MAX_UNROLLED_AXIS);
        if count(&axes) <= MAX_UNIFORM_ELEMENTS {
            (looped, unrolled) = (vec![], axes);
        } else if looped.is_empty() || count(&unrolled) > MAX_UNROLLED_ELEMENTS {
            (looped, unrolled) = (axes, vec![]);
        }
        Sink { slot, step, looped, unrolled, shared, whole }
    }

    fn count(&self, sink: &Sink) -> u64 {
        self.dims(sink, &sink.looped).iter().product()
    }

    fn dims(&self, sink: &Sink, axes: &[usize]) -> Vec<u64> {
        let given = self.emitter.step(sink.step);
        let shape = if sink.whole { &given.slot_shape } else { &given.program.shape };
        axes.iter().map(|&axis| shape[axis]).collect()
    }

    /// One iteration of a sink, at `index` along its looped axes.
    fn sink(&mut self, sink: &Sink, index: &ElementIndex, depth: usize, outputs: &mut [SharedOutput]) -> Emission<()> {
        let (looped, unrolled) = (self.dims(sink, &sink.looped), self.dims(sink, &sink.unrolled));
        let along = self.emitter.coordinates(index, &looped)?;
        let shape = if sink.whole {
            &self.emitter.step(sink.step).slot_shape
        } else {
            &self.emitter.step(sink.step).program.shape
        };
        let mut coordinates = vec![ElementIndex::constant(0); shape.len()];
        for (&axis, at) in sink.looped.iter().zip(along) {
            coordinates[axis] = at;
        }
        for number in 0..unrolled.iter().product::<u64>() as i64 {
            let points = self.emitter.coordinates(&ElementIndex::constant(number), &unrolled)?;
            for (&axis, at) in sink.unrolled.iter().zip(points) {
                coordinates[axis] = at;
            }
            if sink.shared {
                self.add(sink, &coordinates, outputs)?;
            } else {
                self.store(sink, &coordinates, depth, number)?;
            }
        }
        Ok(())
    }

    /// Computes what an element adds to each output of a reduction that the invocations share.
    fn add(&mut self, sink: &Sink, coordinates: &[ElementIndex], outputs: &mut [SharedOutput]) -> Emission<()> {
        let given = self.emitter.step(sink.step);
        let reduced = given.program.reduced_axes().unwrap_or_default();
        let shape = &given.program.shape;
        let (kept, own): (Vec<usize>, Vec<usize>) = (0..shape.len()).partition(|axis| !reduced.contains(axis));
        let dims: Vec<u64> = kept.iter().map(|&axis| shape[axis]).collect();
        let own_dims: Vec<u64> = own.iter().map(|&axis| shape[axis]).collect();
        let strides = dense_strides(&own_dims);
        let position =
            ElementIndex::strided(0, own.iter().map(|&axis| &coordinates[axis]).zip(strides.iter().copied()));
        let position = position.text(&self.emitter.variables);
        for output in outputs.iter_mut().filter(|output| output.slot == sink.slot) {
            let mut coordinates = coordinates.to_vec();
            for (&axis, at) in kept.iter().zip(self.emitter.coordinates(&ElementIndex::constant(output.output), &dims)?)
            {
                coordinates[axis] = at;
            }
            let views = self.emitter.views(sink.step, &coordinates);
            let value = self.emitter.nodes(sink.step, &views, given.program.nodes.len() - 1)?;
            output.added.push((value, position.clone()));
        }
        Ok(())
    }

    /// Stores an element. Outside of loops one invocation does, another for each element.
    fn store(&mut self, sink: &Sink, coordinates: &[ElementIndex], depth: usize, number: i64) -> Emission<()> {
        let given = self.emitter.step(sink.step);
        let strided =
            |strides: &[i64], offset| ElementIndex::strided(offset, coordinates.iter().zip(strides.iter().copied()));
        let reduced = given.program.reduced_axes();
        self.emitter.storing.insert(sink.slot);
        let (target, value) = if sink.whole {
            let target = strided(&dense_strides(&given.slot_shape), 0);
            let value = self.emitter.element(sink.slot, &target)?;
            (target, value)
        } else if let Some(output) = &given.program.output {
            let views = self.emitter.views(sink.step, coordinates);
            (strided(&output.strides, output.offset), self.emitter.result(sink.step, &views)?)
        } else if let Some(reduced) = reduced {
            let kept: Vec<usize> = (0..given.program.shape.len()).filter(|axis| !reduced.contains(axis)).collect();
            let dims: Vec<u64> = kept.iter().map(|&axis| given.program.shape[axis]).collect();
            let strides = dense_strides(&dims);
            let target =
                ElementIndex::strided(0, kept.iter().map(|&axis| &coordinates[axis]).zip(strides.iter().copied()));
            let value = self.emitter.element(sink.slot, &target)?;
            (target, value)
        } else {
            let target = strided(&dense_strides(&given.program.shape), 0);
            let views = self.emitter.views(sink.step, coordinates);
            (target, self.emitter.result(sink.step, &views)?)
        };
        self.emitter.storing.remove(&sink.slot);
        let value = as_type(&value, self.emitter.stored_type(sink.slot)).text;
        let guard = match depth {
            0 => format!("if (INVOCATION == {}u) ", number as u64 % self.threads),
            _ => String::new(),
        };
        let text = format!("  {guard}M{}({}) = {value};\n", sink.slot, target.text(&self.emitter.variables));
        self.emitter.push(depth, ChainStatement::Store(text))
    }

    fn finished(mut self) -> ChainEvaluation {
        let emitter = &self.emitter;
        let (program, plan) = (emitter.program, &emitter.plan);
        let in_memory = (0..plan.kinds.len()).filter(|&slot| plan.needed[slot] && plan.kinds[slot] == SlotKind::Memory);
        let memory: Vec<MemorySlot> = in_memory
            .map(|slot| MemorySlot {
                slot,
                elements: program.slot_elements[slot],
                compute: emitter.stored_type(slot).compute(),
            })
            .collect();
        let mut files = vec!["indices.glsl", "ops/arithmetic.glsl"];
        let mut computes = vec![program.real().compute()];
        computes.extend(memory.iter().map(|slot| slot.compute));
        for number in (0..program.given.steps.len()).filter(|&number| plan.needed[program.given.steps[number].slot]) {
            computes.extend(emitter.emitter(number).types(None).1);
            files.extend(emitter.emitter(number).files());
        }
        let mut scope = std::mem::take(&mut self.emitter.scopes[0]);
        let (iterations, operations) = (scope.iterations, scope.operations());
        let end = format!("  logp = {};\n", self.logp);
        scope.statements.push(ChainStatement::Other(end.clone()));
        let mut statements = lanes::packed(scope.statements, self.exchange.lanes);
        statements.pop();
        ChainEvaluation {
            iterations,
            operations,
            body: self.optional(statements, &end).iter().map(ChainStatement::text).collect(),
            memory,
            partials: self.partials,
            partial_bytes: self.partial_bytes,
            files,
            computes,
            longest: self.longest,
        }
    }
}
