//! Pipelines of modules that users give: SPIR-V files, and GLSL or SPIR-V that comes with a call. All of them are checked and made
//! memory-safe before the driver sees them. This module owns the two caches of these in memory, and knows no buffers.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use xxhash_rust::xxh3::Xxh3;

use super::disk::CachedPipeline;
use super::{Pipeline, PipelineCreateInfo, Pipelines, glsl, on_large_stack, spirv};
use crate::error::{Attempt, Error, Result};
use crate::memory::Blocking;

/// The pipeline of a user's module, and what a dispatch of it depends on.
#[derive(Clone)]
pub struct UserKernel {
    /// The pipeline, with the values of its specialization constants.
    pub pipeline: Arc<Pipeline>,
    /// Invocations of a workgroup along each axis.
    pub local_size: [u32; 3],
    /// A bit for each binding that the module may write to, inputs included.
    pub written: u32,
}

/// A specialization constant's id and the value that a call gives it.
pub type SpecializationConstant = (u32, i32);

/// What a call passes to a user's kernel: everything that the pipeline depends on besides the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallInterface {
    /// The specialization constant that the call sets, if it sets one.
    pub constant: Option<SpecializationConstant>,
    /// Storage buffers, bound from 0 up in descriptor set 0.
    pub bindings: u32,
    /// Bytes of push constants.
    pub push_bytes: u32,
}

/// A module that comes with a call.
pub struct UserModule<'a> {
    /// What errors and profiles call it.
    pub name: &'a str,
    /// Its text or its words.
    pub code: UserCode<'a>,
}

/// The code of a module that comes with a call.
pub enum UserCode<'a> {
    /// A whole compute shader.
    Glsl(&'a str),
    /// The bytes of a SPIR-V module.
    Spirv(&'a [u8]),
}

struct LoadedFile {
    kernel: UserKernel,
    /// Size and time of change of the file when it was read.
    stamp: (u64, Option<SystemTime>),
    interface: CallInterface,
}

/// The users' kernels that are in memory.
#[derive(Default)]
pub(super) struct UserKernels {
    /// By path and specialization constant.
    files: Mutex<HashMap<(String, Option<SpecializationConstant>), LoadedFile>>,
    /// By a hash of the code, the name and the interface.
    modules: Mutex<HashMap<u128, UserKernel>>,
}

impl UserKernels {
    /// Forgets all kernels.
    pub fn clear(&self) {
        self.files.lock().clear();
        self.modules.lock().clear();
    }
}

impl Pipelines {
    /// The pipeline of the SPIR-V file at `path`, checked. A file that changed on disk is loaded anew.
    pub fn user_kernel(&self, path: &str, interface: CallInterface, blocking: Blocking) -> Attempt<UserKernel> {
        let unreadable = |e: std::io::Error| Error::DispatchFailed(format!("{path}: {e}"));
        let file = PathBuf::from(path);
        let metadata = file.metadata().map_err(unreadable)?;
        let stamp = (metadata.len(), metadata.modified().ok());
        let key = (path.to_owned(), interface.constant);
        if let Some(loaded) = self.user_kernels.files.lock().get(&key)
            && loaded.stamp == stamp
            && loaded.interface == interface
        {
            return Ok(loaded.kernel.clone());
        }
        blocking.require()?;
        let bytes = std::fs::read(&file).map_err(unreadable)?;
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let refused = |e| Error::DispatchFailed(format!("{path}: {e}"));
        let kernel = self.checked(&name, &bytes, interface, refused)?;
        self.user_kernels.files.lock().insert(key, LoadedFile { kernel: kernel.clone(), stamp, interface });
        Ok(kernel)
    }

    /// The pipeline of a module, checked. What is wrong with the module is [`Error::Invalid`].
    pub fn user_module(
        &self,
        module: &UserModule,
        interface: CallInterface,
        blocking: Blocking,
    ) -> Attempt<UserKernel> {
        let (kind, code) = match module.code {
            UserCode::Glsl(text) => ("glsl", text.as_bytes()),
            UserCode::Spirv(bytes) => ("spirv", bytes),
        };
        let mut hash = Xxh3::new();
        for part in [kind.as_bytes(), code, module.name.as_bytes(), format!("{interface:?}").as_bytes()] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let key = hash.digest128();
        if let Some(kernel) = self.user_kernels.modules.lock().get(&key) {
            return Ok(kernel.clone());
        }
        blocking.require()?;
        let compiled;
        let bytes = match module.code {
            UserCode::Glsl(text) => {
                compiled = self.compiled(module.name, text)?;
                bytemuck::cast_slice(&compiled)
            }
            UserCode::Spirv(bytes) => bytes,
        };
        let refused = |e| Error::Invalid(format!("the kernel {}: {e}", module.name));
        let kernel = self.checked(module.name, bytes, interface, refused)?;
        self.user_kernels.modules.lock().insert(key, kernel.clone());
        Ok(kernel)
    }

    /// The SPIR-V of a user's GLSL, from the disk or from the compiler.
    fn compiled(&self, name: &str, text: &str) -> Result<Vec<u32>> {
        let content = self.disk.key(&[b"user", text.as_bytes(), &glsl::library().to_le_bytes()]);
        if let Some(CachedPipeline { words, .. }) = self.disk.read(content) {
            return Ok(words);
        }
        let words = on_large_stack(|| {
            let failed = |e| Error::Invalid(format!("the kernel {name} does not compile:\n{e}"));
            glsl::compile_named(text, name).map(|words| self.for_driver(words)).map_err(failed)
        })?;
        self.disk.write(content, &CachedPipeline { words: words.clone(), driver_data: vec![] });
        Ok(words)
    }

    /// A smaller module with the same results, from the disk or from the optimizer; no words where that fails on the module, which is
    /// cached, too. `None` where there is none, or something else ended it: the next process asks again.
    fn optimised(&self, words: &[u32]) -> Option<Vec<u32>> {
        let content = self.disk.key(&[spirv::optimiser().as_bytes(), bytemuck::cast_slice(words)]);
        if let Some(CachedPipeline { words, .. }) = self.disk.read(content) {
            return Some(words);
        }
        let words = spirv::optimise(words)?;
        self.disk.write(content, &CachedPipeline { words: words.clone(), driver_data: vec![] });
        Some(words)
    }

    /// The pipeline of a SPIR-V module, built once the checks have passed.
    fn checked(
        &self,
        name: &str,
        bytes: &[u8],
        interface: CallInterface,
        refused: impl Fn(spirv::SpirvError) -> Error,
    ) -> Result<UserKernel> {
        let specialization: Vec<_> = interface.constant.into_iter().collect();
        let module = spirv::load(bytes, &specialization, &self.module_limits, |words| self.optimised(words));
        let module = module.map_err(&refused)?;
        module.check_layout(interface.bindings, interface.push_bytes).map_err(&refused)?;
        module.check_device(&spirv::Limits::of(&self.device)).map_err(&refused)?;
        let content = self.disk.key(&[bytemuck::cast_slice(&module.words), format!("{interface:?}").as_bytes()]);
        let info = PipelineCreateInfo {
            name,
            push_bytes: interface.push_bytes,
            bindings: interface.bindings,
            entry_point: &module.entry_point,
        };
        let pipeline = self.start(content, &info, || Ok(module.words.clone()))?;
        // A driver may refuse what a user gives it, and the call says so.
        pipeline.handle()?;
        let written = module.bindings.iter().filter(|b| b.written).fold(0, |bits, b| bits | 1 << b.binding);
        Ok(UserKernel { pipeline, local_size: module.local_size, written })
    }
}
