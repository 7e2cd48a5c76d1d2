//! Runs SPIR-V files of the project's binding layout (see `Nx.Vulkan.NativeV`): checks sizes against the call, and cuts
//! grids and bindings to what the device takes.

use smallvec::SmallVec;

use crate::error::{Attempt, Error, Result};
use crate::gpu::Gpu;
use crate::gpu::Readback;
use crate::memory::{Allocation, Blocking, Buffer, MemoryKind};
use crate::pipeline::{CallInterface, SpecializationConstant, UserKernel};
use crate::stream::{Binding, Copy, Dispatch};

/// A call of user SPIR-V: the file, whether the caller may block, and the size of an element, 8 bytes in a file whose
/// name says `_f64`, else 4.
pub struct Call<'a> {
    gpu: &'a Gpu,
    path: &'a str,
    blocking: Blocking,
    size: u64,
}

/// A range of an allocation, in elements.
#[derive(Clone, Copy)]
struct Span<'a> {
    allocation: &'a Allocation,
    start: u64,
    len: u64,
}

/// Specialization constants: the op code, and how many invocations the workgroup of a chain has.
const OP_CODE: u32 = 0;
const WORKGROUP: u32 = 1;

/// One output that is reduced from this many elements or more is reduced in several steps.
const SPLIT_REDUCTION: u64 = 64;
/// This many outputs keep any device busy.
const BUSY: u64 = 1 << 16;

/// The four results of leapfrog chains: positions, momenta, gradients, log densities.
pub type Chain = [Readback; 4];

impl<'a> Call<'a> {
    /// A call of the file at `path` on a device. The file's name decides on the size of an element.
    pub fn new(gpu: &'a Gpu, path: &'a str, blocking: Blocking) -> Self {
        let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
        Self { gpu, path, blocking, size: if name.contains("_f64") { 8 } else { 4 } }
    }

    /// The same for a file of doubles, whatever its name.
    pub fn of_doubles(self) -> Self {
        Self { size: 8, ..self }
    }

    /// `out[i] = op(inputs[0][i], …)` for i < n.
    pub fn elementwise(&self, out: &Buffer, inputs: &[&Buffer], n: u64, op: i32) -> Attempt<()> {
        self.check_len(out, n)?;
        inputs.iter().try_for_each(|input| self.check_len(input, n))?;
        let kernel = self.load(Some((OP_CODE, op)), inputs.len() as u32 + 1, 4)?;
        let allocations = inputs.iter().map(|input| input.allocation()).collect::<Result<SmallVec<[_; 2]>>>()?;
        let out = out.allocation()?;
        // Pieces start at a multiple of 64 elements, which suits every alignment of a binding.
        let most = self.most_groups(0) * u64::from(kernel.local_size[0]);
        let piece = most.min(self.gpu.caps.max_storage_range / self.size).max(64) / 64 * 64;
        let mut start = 0;
        while start < n {
            let len = piece.min(n - start);
            let span = |allocation| Span { allocation, start, len };
            let reads: SmallVec<[Span; 2]> = allocations.iter().map(|allocation| span(allocation)).collect();
            let groups = [len.div_ceil(kernel.local_size[0].into()), 1, 1];
            self.dispatch(&kernel, &reads, &[span(&out)], &(len as u32).to_le_bytes(), groups)?;
            start += len;
        }
        Ok(())
    }

    /// `out[o, i]` = reduction over r of `a[o, r, i]`.
    pub fn reduce(&self, out: &Buffer, a: &Buffer, outer: u64, reduce: u64, inner: u64, op: i32) -> Attempt<()> {
        let outputs = outer.checked_mul(inner).ok_or(Error::SizeMismatch)?;
        self.check_len(out, outputs)?;
        self.check_len(a, outputs.checked_mul(reduce).ok_or(Error::SizeMismatch)?)?;
        let kernel = self.load(Some((OP_CODE, op)), 2, 16)?;
        if outputs == 0 {
            return Ok(());
        }
        self.reduce_step(&kernel, &*out.allocation()?, &*a.allocation()?, [outer, reduce, inner], op)
    }

    /// A kernel runs one thread for each output. Where that is too few, `reduce` is read as C × r, C is reduced with
    /// r more outputs, which lie next to each other in memory, and the r that remain are reduced next. The up to r - 1
    /// elements beyond C × r join them by a copy.
    fn reduce_step(
        &self,
        kernel: &UserKernel,
        out: &Allocation,
        a: &Allocation,
        shape: [u64; 3],
        op: i32,
    ) -> Attempt<()> {
        let [outer, reduce, inner] = shape;
        let outputs = outer * inner;
        let wanted = (BUSY / outputs.max(1)).min(reduce / 8);
        // With several outer rows the rows must stay where they are, so only a divisor will do.
        let r = if outer == 1 { wanted } else { (2..=wanted).rev().find(|r| reduce % r == 0).unwrap_or(1) };
        if reduce < SPLIT_REDUCTION || r < 2 {
            return Ok(self.reduce_whole(kernel, out, a, shape, op)?);
        }
        let (c, rest) = (reduce / r, reduce % r);
        let partial = self.gpu.allocate(MemoryKind::Device, outer * (r + rest) * inner * self.size, self.blocking)?;
        self.reduce_whole(kernel, &partial, a, [outer, c, r * inner], op)?;
        if rest > 0 {
            self.gpu.stream.copy(&Copy {
                from: a,
                from_offset: c * r * inner * self.size,
                to: &partial,
                to_offset: r * inner * self.size,
                len: rest * inner * self.size,
                to_host: false,
            })?;
        }
        self.reduce_step(kernel, out, &partial, [outer, r + rest, inner], op)
    }

    fn reduce_whole(
        &self,
        kernel: &UserKernel,
        out: &Allocation,
        a: &Allocation,
        shape: [u64; 3],
        op: i32,
    ) -> Result<()> {
        let [outer, reduce, inner] = shape;
        let most = self.most_groups(0) * u64::from(kernel.local_size[0]);
        // Rows at a time: all, or those that grid and binding take; pieces start at multiples of 64 rows, to be aligned.
        let (row, range) = (reduce.max(1) * inner * self.size, self.gpu.caps.max_storage_range);
        let rows = if outer * inner <= most && outer * row <= range {
            outer
        } else {
            (most / inner).min(range / row) / 64 * 64
        };
        if rows == 0 {
            return Err(self.too_large("the grid"));
        }
        let mut start = 0;
        while start < outer {
            let len = rows.min(outer - start);
            let from = Span { allocation: a, start: start * reduce * inner, len: len * reduce * inner };
            let to = Span { allocation: out, start: start * inner, len: len * inner };
            let push = push_words(&[len, reduce, inner, op as u64])?;
            let groups = [(len * inner).div_ceil(kernel.local_size[0].into()), 1, 1];
            self.dispatch(kernel, &[from], &[to], &push, groups)?;
            start += len;
        }
        Ok(())
    }

    /// C (m×n) = A (m×k) · B (k×n), row-major.
    pub fn matmul(&self, out: &Buffer, a: &Buffer, b: &Buffer, m: u64, n: u64, k: u64) -> Attempt<()> {
        let (c_len, a_len, b_len) = (area(m, n)?, area(m, k)?, area(k, n)?);
        self.check_len(out, c_len)?;
        self.check_len(a, a_len)?;
        self.check_len(b, b_len)?;
        let kernel = self.load(None, 3, 12)?;
        let (c, a, b) = (out.allocation()?, a.allocation()?, b.allocation()?);
        let span = |allocation, len| Span { allocation, start: 0, len };
        let groups = [n.div_ceil(kernel.local_size[0].into()), m.div_ceil(kernel.local_size[1].into()), 1];
        Ok(self.dispatch(
            &kernel,
            &[span(&a, a_len), span(&b, b_len)],
            &[span(&c, c_len)],
            &push_words(&[m, n, k])?,
            groups,
        )?)
    }

    /// out (n×m) = transpose of A (m×n).
    pub fn transpose(&self, out: &Buffer, a: &Buffer, m: u64, n: u64) -> Attempt<()> {
        let len = area(m, n)?;
        self.check_len(out, len)?;
        self.check_len(a, len)?;
        let kernel = self.load(None, 2, 8)?;
        let (a, out) = (a.allocation()?, out.allocation()?);
        let span = |allocation| Span { allocation, start: 0, len };
        let groups = [n.div_ceil(kernel.local_size[0].into()), m.div_ceil(kernel.local_size[1].into()), 1];
        Ok(self.dispatch(&kernel, &[span(&a)], &[span(&out)], &push_words(&[m, n])?, groups)?)
    }

    /// Chains of `k` leapfrog steps, from host memory to host memory: see [`Call::chains`].
    pub fn leapfrog(&self, inputs: [&[u8]; 3], push: &[u8], k: u64, batch: bool) -> Attempt<Chain> {
        let inputs = inputs.map(|data| self.gpu.upload(data, self.blocking));
        let [q, p, extras] = inputs;
        let outputs = self.chains([&q?, &p?, &extras?], push, k, batch)?;
        self.gpu.read_all([0, 1, 2, 3].map(|i| (&outputs[i], 0, outputs[i].len())))
    }

    /// Chains of `k` leapfrog steps, a workgroup each: one, or in a batch the number that `push` says. `inputs` are the
    /// positions, the momenta, and the extras: of each chain the observations, then the inverse masses. `push` holds K,
    /// n_obs, d and the number of chains as u32, the step size, then the model's parameters. The step size is a float of
    /// the module's type; where there is nothing after it, f32 serves f64 modules too.
    pub fn chains(&self, inputs: [&Buffer; 3], push: &[u8], k: u64, batch: bool) -> Attempt<[Buffer; 4]> {
        let invalid = |text: &str| Err(Error::Invalid(text.to_owned()));
        if !(20..=128).contains(&push.len()) || !push.len().is_multiple_of(4) {
            return invalid("push: expected 20 to 128 bytes, a multiple of 4")?;
        }
        let (words, _) = push.as_chunks::<4>();
        let word = |i: usize| u64::from(u32::from_le_bytes(words[i]));
        let (n_obs, d, chains) = (word(1), word(2), if batch { word(3) } else { 1 });
        if k == 0 || word(0) != k {
            return invalid("k: expected at least one step, and the first word of push to say the same")?;
        }
        if !(1..=256).contains(&d) {
            return invalid("push: d, its third word, must lie between 1 and 256")?;
        }
        if chains == 0 {
            return invalid("push: the number of chains, its fourth word, must be at least 1")?;
        }
        let mut push = SmallVec::<[u8; 128]>::from_slice(push);
        if self.size == 8 && push.len() == 20 {
            let eps = f64::from(f32::from_le_bytes(words[4]));
            push.truncate(16);
            push.extend_from_slice(&eps.to_le_bytes());
        }
        let lens = [area(chains, d)?, area(chains, d)?, area(chains, n_obs + d)?];
        for (input, len) in inputs.iter().zip(lens) {
            if area(len, self.size)? != input.len() {
                return Err(Error::SizeMismatch.into());
            }
        }
        let steps = area(chains, k)?;
        let out_lens = [area(steps, d)?, area(steps, d)?, area(steps, d)?, steps];
        let kernel = self.load(Some((WORKGROUP, self.invocations(d, n_obs))), 7, push.len() as u32)?;
        // Zeroed: a module that leaves a part unwritten must not show what lay there before.
        let zeroed = |len: u64| self.gpu.zeroed(area(len, self.size)?, self.blocking);
        let [q, p, gradient, logp] = out_lens.map(zeroed);
        let outputs = [q?, p?, gradient?, logp?];
        let allocations = |buffers: &[&Buffer]| {
            buffers.iter().map(|buffer| buffer.allocation()).collect::<Result<SmallVec<[_; 4]>>>()
        };
        let (inputs, results) = (allocations(&inputs)?, allocations(&outputs.each_ref())?);
        let reads = [0, 1, 2].map(|i| Span { allocation: &inputs[i], start: 0, len: lens[i] });
        let writes = [0, 1, 2, 3].map(|i| Span { allocation: &results[i], start: 0, len: out_lens[i] });
        self.dispatch(&kernel, &reads, &writes, &push, [chains, 1, 1])?;
        Ok(outputs)
    }

    /// [`Call::chains`] of one chain of the module `leapfrog_normal`, on the inputs' coordinates, with the
    /// step size, the mean and the standard deviation.
    pub fn normal_chain(&self, inputs: [&Buffer; 3], k: u64, floats: [f64; 3]) -> Attempt<[Buffer; 4]> {
        let rounded = |value: f64| if self.size == 8 { value } else { f64::from(value as f32) };
        let [eps, mu, sigma] = floats.map(rounded);
        if !(eps.is_finite() && mu.is_finite() && sigma.is_finite() && sigma > 0.0) {
            let kind = if self.size == 8 { "f64" } else { "f32" };
            return Err(Error::Invalid(format!(
                "eps, mu, sigma: expected numbers that {kind} holds, and sigma to be positive there"
            ))
            .into());
        }
        let mut push: SmallVec<[u8; 128]> = push_words(&[k, 0, inputs[0].len() / self.size, 1])?.as_slice().into();
        for value in [eps, mu, sigma] {
            match self.size {
                8 => push.extend_from_slice(&value.to_le_bytes()),
                _ => push.extend_from_slice(&(value as f32).to_le_bytes()),
            }
        }
        self.chains(inputs, &push, k, false)
    }

    /// How many invocations work on a chain, at least one a coordinate. With more than one for two observations, what each
    /// does besides takes a GPU longer than the observations (measured on an H200); a CPU runs subgroups one after the other
    /// anyway, but sums of more than 4096 observations lose digits. Fewer than 32 are one subgroup.
    fn invocations(&self, d: u64, n_obs: u64) -> i32 {
        let caps = &self.gpu.caps;
        let (least, observations) = if caps.cpu { (caps.subgroup.clamp(8, 32).into(), 4096) } else { (64, 2) };
        let invocations = d.max(n_obs / observations).clamp(least, 256).next_power_of_two();
        (if invocations > caps.subgroup.into() { invocations.max(32) } else { invocations }) as i32
    }

    fn load(&self, constant: Option<SpecializationConstant>, bindings: u32, push_bytes: u32) -> Attempt<UserKernel> {
        self.gpu.pipelines.user_kernel(self.path, CallInterface { constant, bindings, push_bytes }, self.blocking)
    }

    fn check_len(&self, buffer: &Buffer, elements: u64) -> Result<()> {
        let bytes = elements.checked_mul(self.size).ok_or(Error::SizeMismatch)?;
        if bytes > buffer.len() { Err(Error::SizeMismatch) } else { Ok(()) }
    }

    fn most_groups(&self, axis: usize) -> u64 {
        self.gpu.caps.max_groups[axis].into()
    }

    fn too_large(&self, what: &str) -> Error {
        Error::DispatchFailed(format!("{}: {what} is larger than the device takes", self.path))
    }

    fn dispatch(
        &self,
        kernel: &UserKernel,
        reads: &[Span],
        writes: &[Span],
        push: &[u8],
        groups: [u64; 3],
    ) -> Result<()> {
        if groups.contains(&0) {
            return Ok(());
        }
        if (0..3).any(|axis| groups[axis] > self.most_groups(axis)) {
            return Err(self.too_large("the grid"));
        }
        let bindings = reads.iter().chain(writes).map(|span| {
            let (offset, range) = (span.start * self.size, (span.len * self.size).max(4));
            if range > self.gpu.caps.max_storage_range {
                return Err(self.too_large("a buffer"));
            }
            if !offset.is_multiple_of(self.gpu.caps.storage_alignment) {
                return Err(self.too_large("the part of a buffer that one dispatch covers"));
            }
            Ok(Binding { allocation: span.allocation, offset, range })
        });
        let bindings = bindings.collect::<Result<SmallVec<[Binding; 8]>>>()?;
        let (mut read, mut written): (SmallVec<[&Allocation; 4]>, SmallVec<[&Allocation; 4]>) = Default::default();
        for (i, binding) in bindings.iter().enumerate() {
            let list = if kernel.written >> i & 1 == 1 { &mut written } else { &mut read };
            list.push(binding.allocation);
        }
        self.gpu.stream.dispatch(&Dispatch {
            pipeline: &kernel.pipeline,
            push,
            groups: groups.map(|groups| groups as u32),
            reads: &read,
            writes: &written,
            bindings: &bindings,
            check: None,
            predicate: None,
            operations: 0,
        })
    }
}

/// Push constants of 32 bits each.
fn push_words(values: &[u64]) -> Result<SmallVec<[u8; 16]>> {
    let mut bytes = SmallVec::new();
    for &value in values {
        bytes.extend_from_slice(&u32::try_from(value).map_err(|_| Error::SizeMismatch)?.to_le_bytes());
    }
    Ok(bytes)
}

fn area(a: u64, b: u64) -> Result<u64> {
    a.checked_mul(b).ok_or(Error::SizeMismatch)
}
