//! Compute pipelines: built from SPIR-V once, kept in memory by key and on disk by content. Owns both caches, the GLSL
//! compiler and the checks of user SPIR-V; it records no commands and allocates no device memory.

mod build;
mod builders;
mod disk;
pub mod glsl;
mod prune;
pub mod selections;
pub mod spirv;
mod user;

pub use build::{Pipeline, PipelineCreateInfo};
pub use user::{CallInterface, SpecializationConstant, UserCode, UserKernel, UserModule};

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use vulkano::device::Device;

use crate::error::{Attempt, Error, Result};
use crate::memory::Blocking;
use builders::{BUILD_STACK_BYTES, Builders};
pub use disk::DiskCache;
use user::UserKernels;

/// Whether builds are refused, as the process ends. Locked for reading while something is compiled: the process must not end meanwhile.
static BUILDS_REFUSED: RwLock<bool> = RwLock::new(false);

/// Has every later build fail, and waits up to `limit` for those in progress.
pub fn stop_builds(limit: Duration) {
    if let Some(mut refused) = BUILDS_REFUSED.try_write_for(limit) {
        *refused = true;
    }
}

/// Identifies a built-in kernel in memory: a hash over all that its source is generated from.
pub type KernelKey = u128;

/// What a built-in kernel's pipeline is made of.
pub struct KernelSource {
    /// What profiles call it.
    pub name: String,
    /// Its text.
    pub glsl: String,
}

/// The hasher of maps whose keys are hashes: it takes a key's first 8 bytes as they are.
#[derive(Default)]
pub struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn write(&mut self, key: &[u8]) {
        self.0 = key.first_chunk().map_or(0, |&first| u64::from_ne_bytes(first));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// How many pipelines calls of one thread have built, and in what time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Builds {
    /// Number of pipelines built, those from the cache on disk included.
    pub pipelines: u32,
    /// How many of them came from the cache on disk.
    pub from_disk: u32,
    /// Time that the calls took for them: that of the compilation of GLSL. Drivers build on while calls go on.
    pub elapsed: Duration,
}

thread_local! {
    static BUILDS: Cell<Builds> = const { Cell::new(Builds { pipelines: 0, from_disk: 0, elapsed: Duration::ZERO }) };
}

/// What this thread has built since it was last asked.
pub fn take_builds() -> Builds {
    BUILDS.take()
}

/// The pipelines of a device.
pub struct Pipelines {
    device: Arc<Device>,
    /// Whether what is made of GLSL has selections of one branch alone.
    one_sided: bool,
    disk: DiskCache,
    /// How large users' modules may be.
    module_limits: spirv::SizeLimits,
    builders: Builders,
    kernels: RwLock<HashMap<KernelKey, Arc<Pipeline>, BuildHasherDefault<IdentityHasher>>>,
    user_kernels: UserKernels,
}

impl Pipelines {
    /// No pipelines yet; `disk` is where they come from and go to. `one_sided` says whether [`selections`] are rewritten for the driver.
    pub fn new(device: Arc<Device>, disk: DiskCache, one_sided: bool) -> Result<Self> {
        Ok(Self {
            one_sided,
            disk,
            module_limits: spirv::SizeLimits::of_environment()?,
            builders: Builders::default(),
            device,
            kernels: RwLock::default(),
            user_kernels: UserKernels::default(),
        })
    }

    /// The folder of the cache on disk; `None` where no folder for one is known.
    pub fn folder(&self) -> Option<&std::path::Path> {
        self.disk.folder()
    }

    /// The most bytes that the files of the cache on disk take.
    pub fn disk_limit(&self) -> u64 {
        self.disk.limit()
    }

    /// The pipeline of a built-in kernel: `source` is called for its name and its GLSL where it is not in memory yet. The driver may still be building
    /// it on return; commands with it are submitted once it is built.
    pub fn kernel(
        &self,
        key: KernelKey,
        push_bytes: u32,
        blocking: Blocking,
        source: impl FnOnce() -> KernelSource,
    ) -> Attempt<Arc<Pipeline>> {
        // One that the driver refused is built anew: memory may have been short.
        let usable = |pipeline: &&Arc<Pipeline>| !pipeline.is_built() || pipeline.build().has_passed();
        if let Some(pipeline) = self.kernels.read().get(&key).filter(usable) {
            return Ok(pipeline.clone());
        }
        blocking.require()?;
        let KernelSource { name, glsl: source } = source();
        let content = self.disk.key(&[source.as_bytes(), &glsl::library().to_le_bytes(), &push_bytes.to_le_bytes()]);
        let info = PipelineCreateInfo { name: &name, push_bytes, bindings: 0, entry_point: "main" };
        let pipeline = self.start(content, &info, || glsl::compile(&source).map(|words| self.for_driver(words)))?;
        let mut kernels = self.kernels.write();
        if let Some(other) = kernels.get(&key).filter(usable) {
            return Ok(other.clone());
        }
        kernels.insert(key, pipeline.clone());
        Ok(pipeline)
    }

    /// Forgets all pipelines, as the device was lost: those that nothing else holds are destroyed.
    pub fn clear(&self) {
        self.kernels.write().clear();
        self.user_kernels.clear();
    }

    /// The SPIR-V of a compute shader as a file for [`Pipelines::user_kernel`], whose name is a hash of the source and of the library. It stays
    /// until it is deleted.
    pub fn module_file(&self, source: &str, suffix: &str) -> Result<PathBuf> {
        let folder = match self.disk.folder() {
            Some(folder) => folder.join("modules"),
            None => std::env::temp_dir().join("nx_vulkan_modules"),
        };
        let content = self.disk.key(&[source.as_bytes(), &glsl::library().to_le_bytes()]);
        let path = folder.join(format!("{content:032x}{suffix}"));
        if path.exists() {
            return Ok(path);
        }
        let words = on_large_stack(|| glsl::compile(source).map(|words| self.for_driver(words)))?;
        // Written under another name first: no process sees a part of it.
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let part = path.with_extension(format!("{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
        let failed = |e: std::io::Error| Error::DispatchFailed(format!("{}: {e}", path.display()));
        std::fs::create_dir_all(&folder).map_err(failed)?;
        std::fs::write(&part, bytemuck::cast_slice::<u32, u8>(&words)).map_err(failed)?;
        std::fs::rename(&part, &path).map_err(failed)?;
        Ok(path)
    }

    /// A module of our compiler, as the driver builds it best.
    fn for_driver(&self, words: Vec<u32>) -> Vec<u32> {
        if self.one_sided { selections::one_sided(&words) } else { words }
    }

    /// Has a pipeline built from the disk's SPIR-V and driver data, or from `words` where the disk has no sound copy. On return the
    /// module is there and checked, and the driver builds on a thread of its own.
    fn start(
        &self,
        content: u128,
        info: &PipelineCreateInfo,
        words: impl FnOnce() -> Result<Vec<u32>> + Send,
    ) -> Result<Arc<Pipeline>> {
        let start = Instant::now();
        let (module, from_disk) = self.module(content, words)?;
        let build = BuildInProgress(Arc::new(Pipeline::unbuilt(&self.device, info)?));
        let (pipeline, disk, entry_point) = (build.0.clone(), self.disk.clone(), info.entry_point.to_owned());
        self.builders.start(move || {
            let refused = BUILDS_REFUSED.read();
            if *refused {
                return build.0.fail(failed("the process ends"));
            }
            build.0.finish(&module.words, &entry_point, &module.driver_data, |driver_data| {
                if !from_disk {
                    disk.write(content, &disk::CachedPipeline { words: module.words.clone(), driver_data });
                }
            });
        })?;
        let builds = BUILDS.get();
        BUILDS.set(Builds {
            pipelines: builds.pipelines + 1,
            from_disk: builds.from_disk + u32::from(from_disk),
            elapsed: builds.elapsed + start.elapsed(),
        });
        Ok(pipeline)
    }

    /// A pipeline's SPIR-V with the driver's data, and whether they come from the disk. The compiler of GLSL runs on a thread of its own: it
    /// walks deeply nested code recursively, and the BEAM's schedulers have small stacks.
    fn module(
        &self,
        content: u128,
        words: impl FnOnce() -> Result<Vec<u32>> + Send,
    ) -> Result<(disk::CachedPipeline, bool)> {
        let read = || {
            let entry = self.disk.read(content);
            let from_disk = entry.is_some();
            let module = match entry {
                Some(entry) => entry,
                None => disk::CachedPipeline { words: words()?, driver_data: vec![] },
            };
            match spirv::missing_capability(&self.device, &module.words) {
                None => Ok((module, from_disk)),
                Some(what) => Err(Error::Unsupported(format!("the kernel needs {what:?}, which the device lacks"))),
            }
        };
        on_large_stack(read)
    }
}

/// Runs the compiler on a thread of its own, unless the process ends.
fn on_large_stack<T: Send>(compile: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let refused = BUILDS_REFUSED.read();
    if *refused {
        return Err(failed("the process ends"));
    }
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("nx_vulkan build".into()).stack_size(BUILD_STACK_BYTES);
        let thread = builder.spawn_scoped(scope, compile).map_err(|e| failed(&format!("no thread: {e}")))?;
        thread.join().unwrap_or_else(|_| Err(failed("the compiler panicked")))
    })
}

fn failed(what: &str) -> Error {
    Error::DispatchFailed(format!("building a pipeline: {what}"))
}

/// A pipeline that fails where this is dropped before the driver has built it: nobody waits for it forever.
struct BuildInProgress(Arc<Pipeline>);

impl Drop for BuildInProgress {
    fn drop(&mut self) {
        self.0.fail(failed("the driver's compiler panicked"));
    }
}
