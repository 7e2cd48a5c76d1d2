//! How a kernel goes through the iteration space of its program. `tuning::fusion` chooses a schedule; emission writes it, and decides
//! nothing about it.

/// Inputs that a thread reads for four neighbouring elements at once, as a bit for each input. The others it reads element by element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VectorInputs {
    /// Inputs whose four elements are neighbours in memory: one load of a vec4.
    pub vec4: u32,
    /// Inputs with one element for all four.
    pub broadcast: u32,
}

/// The loops of a kernel, and in which direction they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Schedule {
    /// The loops around the kernel's program.
    pub nest: LoopNest,
    /// Whether the parameter `reversed` may have the kernel go through large tensors from their ends.
    pub reversible: bool,
}

/// The loops of a kernel around its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoopNest {
    /// Element-wise. With `vectors` a thread makes vectors of four neighbouring results, for which all addresses are aligned;
    /// without it makes scalars.
    Map {
        /// Threads of a workgroup.
        threads: u32,
        /// The elements of the iteration space that a workgroup goes through.
        traversal: MapTraversal,
        /// How a thread reads the inputs of four results; `None` where it makes scalars.
        vectors: Option<VectorInputs>,
    },
    /// Element-wise, tile by tile of two axes.
    Tile {
        /// Threads of a workgroup.
        threads: u32,
        /// The two axes, and the extents of a tile along them.
        tile: TransposeTile,
    },
    /// A reduction whose elements are combined in any order.
    Reduce(ReduceSchedule),
    /// A reduction over a window of a few elements, in straight code.
    Window(WindowSchedule),
    /// A reduction by a function, in order: each thread makes one output.
    Fold {
        /// Threads of a workgroup.
        threads: u32,
    },
}

/// What a workgroup of an element-wise kernel goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapTraversal {
    /// A chunk, whose extent is a parameter, in a loop.
    Chunk,
    /// One a thread, without a loop: for compilers that are slow with those, and for long programs.
    Single,
    /// [`SCALARS_PER_THREAD`] or [`VECTORS_PER_THREAD`] a thread, unrolled: the loads overlap.
    Unrolled,
    /// [`SCALARS_PER_THREAD`] a thread in a loop, so that the kernel holds the program once.
    Rolled,
}

/// Elements of a thread in an element-wise kernel of scalars.
pub const SCALARS_PER_THREAD: u32 = 4;
/// Vectors of a thread in an element-wise kernel of vectors: enough loads in flight to fill the memory bus.
pub const VECTORS_PER_THREAD: u32 = 2;

/// The loops of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReduceSchedule {
    /// Threads of a workgroup with outputs of their own.
    pub output_threads: u32,
    /// Threads of a workgroup that share an output. The workgroup has `output_threads` times this number of threads.
    pub reduction_threads: u32,
    /// What a thread reads for four neighbours: along the last axis, which is reduced, or along the last kept axis where
    /// `output_vectors` is not 0.
    pub vectors: VectorInputs,
    /// Vectors of four outputs that a thread makes; 0 where it makes one output.
    pub output_vectors: u32,
    /// Elements (or vectors along the reduced axes) of an output that a thread loads before it combines them.
    pub unrolled: u32,
    /// Whether what a thread loads at once is all of its elements: there is no loop.
    pub exact: bool,
    /// Threads of a subgroup that share an output: they hand each other their accumulators by shuffles first.
    pub lanes: u32,
    /// Whether neighbouring threads share an output, in place of having neighbouring ones.
    pub neighbours_share: bool,
    /// Whether the kernel reads partial results in place of the program's inputs.
    pub from_partial: bool,
    /// Whether the kernel writes partial results.
    pub to_partial: bool,
}

impl ReduceSchedule {
    /// Threads of a workgroup.
    pub fn threads(&self) -> u32 {
        self.output_threads * self.reduction_threads
    }

    /// Outputs of a workgroup.
    pub fn outputs(&self) -> u32 {
        self.output_threads * (4 * self.output_vectors).max(1)
    }

    /// Bytes of shared memory through which threads exchange accumulators of so many bytes.
    pub fn exchanged_bytes(&self, accumulator: u64) -> u64 {
        u64::from(self.threads() / self.lanes) * u64::from(4 * self.output_vectors).max(1) * accumulator
    }

    /// Whether threads that share an output exchange through shared memory, after shuffles within subgroups.
    pub fn shares_memory(&self) -> bool {
        self.reduction_threads > self.lanes
    }
}

/// A reduction over a small window, whose extents are constants of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowSchedule {
    /// Threads of a workgroup.
    pub threads: u32,
    /// Outputs of a thread, neighbours along the last kept axis, whose extent is a multiple of their number.
    pub outputs: u32,
    /// Inputs that a thread reads in vectors for four outputs.
    pub vectors: VectorInputs,
}

/// Two axes of the iteration space, in tiles of `width` by `height` for each workgroup. Along `output_axis` results are neighbours in
/// memory, along `input_axis` the elements of some inputs, which are transposed on their way: both sides move whole sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransposeTile {
    /// The axis along which results are neighbours in memory, by its index in the collapsed iteration space.
    pub output_axis: u8,
    /// The axis along which elements of the transposed inputs are neighbours in memory, by its index in the collapsed
    /// iteration space.
    pub input_axis: u8,
    /// Extent along `output_axis`.
    pub width: u32,
    /// Extent along `input_axis`.
    pub height: u32,
    /// A bit for each input that is transposed.
    pub inputs: u32,
    /// Where the inputs are transposed.
    pub staging: Staging,
}

/// Where the inputs of a tile are transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Staging {
    /// In the device's caches, which hold the tile.
    Caches,
    /// In shared memory, by scalars.
    SharedScalars,
    /// In shared memory, four by four elements a thread.
    SharedVectors,
    /// In registers, four by four elements a thread.
    Registers,
}
