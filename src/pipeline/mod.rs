//! Compute pipelines: built from SPIR-V once, kept in memory by key and on disk by content.

mod build;
mod disk;
pub mod glsl;
pub mod spirv;

pub use build::{Blueprint, Pipeline};

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Mutex, RwLock};
use vulkano::device::Device;

use crate::device::Capabilities;
use crate::error::{Attempt, Error, Result};
use crate::memory::Blocking;
pub use disk::Disk;

/// Held by who builds: the process must not end meanwhile.
pub static BUILDING: RwLock<()> = RwLock::new(());

/// Identifies a kernel of ours in memory: a hash over all that its source is generated from.
pub type KernelKey = u128;

/// For maps whose keys are hashes already.
#[derive(Default)]
pub struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, key: &[u8]) {
        self.0 = key.first_chunk().map_or(0, |&first| u64::from_ne_bytes(first));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A foreign module's pipeline with what its dispatch needs to know.
#[derive(Clone)]
pub struct Foreign {
    pub pipeline: Arc<Pipeline>,
    pub local_size: [u32; 3],
    /// A bit for each binding that the module may write to, inputs included.
    pub written: u32,
}

/// A specialization constant's id and the value that a call gives it.
pub type Constant = (u32, i32);

/// What a foreign module is loaded for: everything its pipeline depends on besides the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ForeignUse {
    /// The constant that the call sets, if it sets one.
    pub constant: Option<Constant>,
    pub bindings: u32,
    pub push_bytes: u32,
}

struct Loaded {
    foreign: Foreign,
    stamp: (u64, Option<SystemTime>),
    used_for: ForeignUse,
}

/// Pipelines that calls of one thread have built.
#[derive(Clone, Copy, Debug, Default)]
pub struct Builds {
    pub pipelines: u32,
    /// How many of them came from the cache on disk.
    pub from_disk: u32,
    pub elapsed: Duration,
}

thread_local! {
    static BUILDS: Cell<Builds> = const { Cell::new(Builds { pipelines: 0, from_disk: 0, elapsed: Duration::ZERO }) };
}

/// What this thread has built since it was last asked.
pub fn take_builds() -> Builds {
    BUILDS.take()
}

/// Stack of the thread that builds a pipeline.
const STACK_BYTES: usize = 64 << 20;

pub struct Pipelines {
    device: Arc<Device>,
    push_descriptor: bool,
    disk: Disk,
    kernels: RwLock<HashMap<KernelKey, Arc<Pipeline>, BuildHasherDefault<Hashed>>>,
    /// By path and constant.
    foreign: Mutex<HashMap<(String, Option<Constant>), Loaded>>,
}

impl Pipelines {
    pub fn new(device: Arc<Device>, disk: Disk, caps: &Capabilities) -> Self {
        Self {
            disk,
            device,
            push_descriptor: caps.push_descriptor,
            kernels: RwLock::default(),
            foreign: Mutex::default(),
        }
    }

    /// The folder of the cache on disk; `None` where there is no place for one.
    pub fn folder(&self) -> Option<&std::path::Path> {
        self.disk.folder()
    }

    /// The pipeline of a kernel of ours: `source` is called for its GLSL where it is not in memory yet.
    pub fn kernel(
        &self,
        key: KernelKey,
        push_bytes: u32,
        blocking: Blocking,
        source: impl FnOnce() -> String,
    ) -> Attempt<Arc<Pipeline>> {
        if let Some(pipeline) = self.kernels.read().get(&key) {
            return Ok(pipeline.clone());
        }
        blocking.require()?;
        let source = source();
        let content = self.disk.key(&[source.as_bytes(), &glsl::library().to_le_bytes(), &push_bytes.to_le_bytes()]);
        let blueprint = Blueprint { push_bytes, bindings: 0, entry_point: "main" };
        let pipeline = self.build(content, &blueprint, || glsl::compile(&source))?;
        Ok(self.kernels.write().entry(key).or_insert(pipeline).clone())
    }

    /// The pipeline of the SPIR-V file at `path`, checked. A file that changed on disk is loaded anew.
    pub fn foreign(&self, path: &str, used_for: ForeignUse, blocking: Blocking) -> Attempt<Foreign> {
        if !self.push_descriptor {
            return Err(Error::Unsupported("foreign SPIR-V needs the extension VK_KHR_push_descriptor".into()).into());
        }
        let unreadable = |e: std::io::Error| Error::DispatchFailed(format!("{path}: {e}"));
        let file = PathBuf::from(path);
        let metadata = file.metadata().map_err(unreadable)?;
        let stamp = (metadata.len(), metadata.modified().ok());
        let key = (path.to_owned(), used_for.constant);
        if let Some(loaded) = self.foreign.lock().get(&key)
            && loaded.stamp == stamp
            && loaded.used_for == used_for
        {
            return Ok(loaded.foreign.clone());
        }
        blocking.require()?;
        let bytes = std::fs::read(&file).map_err(unreadable)?;
        let named = |e: spirv::SpirvError| Error::DispatchFailed(format!("{path}: {e}"));
        let specialization: Vec<_> = used_for.constant.into_iter().collect();
        let module = spirv::load(&bytes, &specialization).map_err(named)?;
        module.check_layout(used_for.bindings, used_for.push_bytes).map_err(named)?;
        module.check_device(&spirv::Limits::of(&self.device)).map_err(named)?;
        let content = self.disk.key(&[bytemuck::cast_slice(&module.words), format!("{used_for:?}").as_bytes()]);
        let blueprint = Blueprint {
            push_bytes: used_for.push_bytes,
            bindings: used_for.bindings,
            entry_point: &module.entry_point,
        };
        let pipeline = self.build(content, &blueprint, || Ok(module.words.clone()))?;
        let written = module.bindings.iter().filter(|b| b.written).fold(0, |bits, b| bits | 1 << b.binding);
        let foreign = Foreign { pipeline, local_size: module.local_size, written };
        self.foreign.lock().insert(key, Loaded { foreign: foreign.clone(), stamp, used_for });
        Ok(foreign)
    }

    /// Builds a pipeline from the disk's SPIR-V and driver data, or from `words` where the disk has no sound copy. On a
    /// thread of its own: compilers walk deeply nested code recursively, and the BEAM's schedulers have small stacks.
    fn build(
        &self,
        content: u128,
        blueprint: &Blueprint,
        words: impl FnOnce() -> Result<Vec<u32>> + Send,
    ) -> Result<Arc<Pipeline>> {
        let failed = |what: String| Error::DispatchFailed(format!("building a pipeline: {what}"));
        let start = Instant::now();
        let _building = BUILDING.read();
        let build = || {
            let check = |words: &[u32]| match spirv::missing_capability(&self.device, words) {
                None => Ok(()),
                Some(what) => Err(Error::Unsupported(format!("the kernel needs {what:?}, which the device has not"))),
            };
            if let Some(entry) = self.disk.read(content) {
                check(&entry.words)?;
                let (pipeline, _) = Pipeline::build(&self.device, &entry.words, blueprint, &entry.driver_data)?;
                return Ok((Arc::new(pipeline), true));
            }
            let words = words()?;
            check(&words)?;
            let (pipeline, driver_data) = Pipeline::build(&self.device, &words, blueprint, &[])?;
            self.disk.write(content, &disk::Entry { words, driver_data });
            Ok((Arc::new(pipeline), false))
        };
        let (pipeline, from_disk) = std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().name("nx_vulkan build".into()).stack_size(STACK_BYTES);
            let thread = builder.spawn_scoped(scope, build).map_err(|e| failed(format!("no thread: {e}")))?;
            thread.join().unwrap_or_else(|_| Err(failed("the compiler panicked".into())))
        })?;
        let builds = BUILDS.get();
        BUILDS.set(Builds {
            pipelines: builds.pipelines + 1,
            from_disk: builds.from_disk + u32::from(from_disk),
            elapsed: builds.elapsed + start.elapsed(),
        });
        Ok(pipeline)
    }
}
