//! How row programs are spread over invocations, and where they keep what several passes over a row need. The functions are pure: they know
//! a program by the number and length of its rows and by the bytes of an element that it would keep.

use super::cpu_group_threads;
use super::fusion::FusionLaunch;
use crate::device::Capabilities;
use crate::program::emit::{KeptBytes, KeptValues, LoopNest, RowSchedule, VectorInputs, kept_bytes};
use crate::program::rows::{RowProgram, SoundRows};
use crate::program::{Attribute, Node};

/// Invocations of a GPU's workgroup, unless a row needs more.
const GROUP_INVOCATIONS: u64 = 256;
/// Invocations of a GPU's workgroup where each has more than [`ELEMENTS_PER_LANE`]: small ones leave fewer multiprocessors idle at the end.
const LONG_LANE_GROUP_INVOCATIONS: u64 = 64;
/// Elements of an invocation that rows are spread for: enough loads at once to hide their latency.
const ELEMENTS_PER_LANE: u64 = 4;
/// Elements of an invocation where there are many rows and [`MAX_LONG_LANE_BYTES`] suffice: fewer invocations combine what they have.
/// Of 8,192 × 1,024 floats an H200 takes 33 µs for softmax (38–40 by one subgroup a row), 20–23 for RMS norm (23–26), and 75, 62 and 60 for
/// the gradients of layer norm, RMS norm and softmax (99, 72 and 64 with four elements).
const ELEMENTS_PER_LONG_LANE: u64 = 16;
/// The most bytes that an invocation with more than [`ELEMENTS_PER_LANE`] keeps: three floats of each element, as the gradient of a norm needs.
const MAX_LONG_LANE_BYTES: u64 = 192;
/// The most elements of an invocation whose values are kept in registers. The loops over them are unrolled.
const MAX_REGISTER_ELEMENTS: u64 = 32;
/// The most bytes of registers that an invocation keeps values in: more would leave fewer invocations on a multiprocessor.
const MAX_REGISTER_BYTES: u64 = 256;
/// The most bytes of registers where the first pass over a row loads what later ones alone need.
const MAX_PREFETCHED_BYTES: u64 = 64;
/// The shortest rows that the invocations of a CPU device's subgroup share. Shorter ones have an invocation each: it neither exchanges
/// results nor waits.
const MIN_SHARED_ROW: u64 = 32;
/// The bytes of shared memory that a workgroup keeps values in: a GPU's multiprocessor runs several workgroups at once.
const MAX_KEPT_BYTES: u64 = 16 << 10;
/// The most elements of a row's parts that a row program adds up, as one workgroup reads them. 128 rows of 768 f32 in 5 and 11 parts take an H200 6.2
/// and 7.4 µs with the sum, and 5.3 and 5.7 without, where the sum takes 4.2 and 4.5.
const MAX_SUMMED: u64 = 16 << 10;

/// What is chosen for: rows with their length, what four neighbours of a row are read as, and what later passes need again.
#[derive(Clone, Copy, Debug)]
pub struct RowProblem {
    /// The number of rows.
    pub rows: u64,
    /// Elements of a row.
    pub len: u64,
    /// How the inputs of four neighbours are read, where a row is of whole vectors.
    pub vectors: Option<VectorInputs>,
    /// Bytes for each element that later passes need again.
    pub kept: KeptBytes,
}

impl RowProblem {
    /// That of a program.
    pub fn new(rows: &RowProgram, sound: &SoundRows, caps: &Capabilities) -> Self {
        let (vectors, kept) = (vectors(rows, sound, caps), kept_bytes(rows, sound, caps));
        Self { rows: sound.layout.outputs(), len: sound.layout.reduced(), vectors, kept }
    }
}

/// How four neighbours of a row are read, if rows are of whole vectors at aligned addresses. `layout` and the values' kinds are the program's.
fn vectors(rows: &RowProgram, sound: &SoundRows, caps: &Capabilities) -> Option<VectorInputs> {
    let (program, layout) = (&rows.program, &sound.layout);
    let mut vectors = super::fusion::row_vectors(program, layout, caps)?;
    if rows.results().any(|(ty, of_element)| of_element && ty.compute().is_emulated()) {
        return None;
    }
    // What is the same for a whole row is read once.
    let of_elements = (0..program.inputs.len().min(32)).filter(|&input| sound.of_element[input]);
    let mask = of_elements.fold(0, |mask, input| mask | 1 << input);
    (vectors.vec4, vectors.broadcast) = (vectors.vec4 & mask, vectors.broadcast & mask);
    (vectors.vec4 != 0).then_some(vectors)
}

/// Whether a row program adds up an input of several parts, in place of a kernel of its own.
pub fn sums_parts(parts: u64, len: u64) -> bool {
    parts.saturating_mul(len) <= MAX_SUMMED
}

/// The schedule of a problem.
pub fn schedule(problem: RowProblem, caps: &Capabilities) -> RowSchedule {
    let RowProblem { rows, len, kept, .. } = problem;
    let shape = if caps.cpu { cpu_shape(len, caps) } else { gpu_shape(rows, len, kept, caps) };
    of_shape(problem, shape, caps)
}

/// The schedule of one row by the workgroups of a reduction that reads it, each of which computes it, where that is faster than a kernel of its
/// own. They have `shared` bytes of shared memory besides. On a CPU device it is not: its workgroups run one after the other.
pub fn prologue_schedule(
    rows: &RowProgram,
    problem: RowProblem,
    (launch, shared): (&FusionLaunch, u64),
    caps: &Capabilities,
) -> Option<RowSchedule> {
    let threads = invocations(launch)?;
    // What the kernel shares with the prologue has no place for the index of an extreme, nor complex sums.
    let plain = |node: &Node| {
        !matches!(node.attribute, Attribute::Arg { .. })
            && rows.program.reduction_of(node).is_none_or(|(_, ty)| !ty.is_complex())
    };
    let result = rows.program.type_of(rows.outputs[0].value);
    let takes = !caps.cpu
        && threads.is_power_of_two()
        && rows.program.nodes.iter().all(plain)
        && !result.compute().is_emulated();
    if !takes {
        return None;
    }
    let (_, lanes) = gpu_shape(1, problem.len, problem.kept, caps);
    let lanes = lanes.min(threads.into());
    let schedule = of_shape(problem, (u64::from(threads) / lanes, lanes), caps);
    // A sum for each subgroup of each reduction, in doubles and compensated at most.
    let partials = rows.program.nodes.len() as u64 * u64::from(threads / schedule.subgroup_lanes) * 16;
    let kept = match schedule.kept {
        KeptValues::Shared(_) => MAX_KEPT_BYTES,
        KeptValues::Memory => return None,
        _ => 0,
    };
    let row = problem.len.next_multiple_of(4) * result.size();
    (shared + partials + kept + row <= caps.max_shared.into()).then_some(schedule)
}

/// The invocations by which the workgroups of a reduction each combine a row from attention's parts, in `bytes` bytes of shared memory besides
/// `shared`, where that is faster than a kernel of its own.
pub fn combining_threads(bytes: u64, (launch, shared): (&FusionLaunch, u64), caps: &Capabilities) -> Option<u32> {
    let threads = invocations(launch)?;
    (!caps.cpu && shared + bytes <= caps.max_shared.into()).then_some(threads)
}

/// The invocations of a reduction's workgroup.
fn invocations(launch: &FusionLaunch) -> Option<u32> {
    let LoopNest::Reduce(reduce) = launch.schedule.nest else { return None };
    Some(reduce.threads())
}

/// The schedule of workgroups of so many rows, with so many invocations for each.
fn of_shape(problem: RowProblem, (own, lanes): (u64, u64), caps: &Capabilities) -> RowSchedule {
    let RowProblem { len, vectors, kept, .. } = problem;
    let width = if vectors.is_some() { 4 } else { 1 };
    let steps = len.div_ceil(lanes * width);
    let capacity = len.next_multiple_of(64);
    let shared = kept.all.saturating_mul(capacity).saturating_mul(own);
    let (registers, later) = (steps * width * kept.all, kept.later);
    let kept = match kept.all {
        0 => KeptValues::Recomputed,
        _ if !caps.cpu && steps * width <= MAX_REGISTER_ELEMENTS && registers <= MAX_REGISTER_BYTES => {
            KeptValues::Registers(steps as u32)
        }
        _ if shared <= MAX_KEPT_BYTES.min(caps.max_shared.into()) => KeptValues::Shared(capacity as u32),
        _ if kept.computed > 0 => KeptValues::Memory,
        _ => KeptValues::Recomputed,
    };
    let whole = caps.subgroup.is_power_of_two() && (own * lanes).is_multiple_of(caps.subgroup.into());
    let subgroup_lanes = if whole { lanes.min(caps.subgroup.into()) } else { 1 };
    let in_registers = matches!(kept, KeptValues::Registers(_));
    let exact = in_registers && steps * lanes * width == len;
    let prefetched = in_registers && later > 0 && registers + steps * width * later <= MAX_PREFETCHED_BYTES;
    let [own, lanes, subgroup_lanes] = [own, lanes, subgroup_lanes].map(|count| count as u32);
    RowSchedule { rows: own, lanes, vectors, kept, exact, prefetched, subgroup_lanes }
}

/// Rows of a workgroup, and the invocations of a row.
fn gpu_shape(rows: u64, len: u64, kept: KeptBytes, caps: &Capabilities) -> (u64, u64) {
    let most = (u64::from(caps.max_threads) + 1).next_power_of_two() / 2;
    let lanes = |elements| len.div_ceil(elements).max(1).next_power_of_two();
    let wanted = lanes(ELEMENTS_PER_LANE);
    // Few long rows get all invocations that a workgroup may have.
    let few = rows < 2 * caps.multiprocessors;
    let subgroup = u64::from(caps.subgroup);
    if !few && wanted > subgroup && ELEMENTS_PER_LONG_LANE * kept.all <= MAX_LONG_LANE_BYTES {
        let lanes = lanes(ELEMENTS_PER_LONG_LANE).max(subgroup);
        if lanes <= GROUP_INVOCATIONS.min(most) {
            return ((LONG_LANE_GROUP_INVOCATIONS / lanes).max(1), lanes);
        }
    }
    let lanes = wanted.min(if few || len > 16 * GROUP_INVOCATIONS { most } else { GROUP_INVOCATIONS.min(most) });
    let own = (GROUP_INVOCATIONS / lanes).max(1).min(rows.max(1).next_power_of_two());
    (own, lanes)
}

fn cpu_shape(len: u64, caps: &Capabilities) -> (u64, u64) {
    let lanes = u64::from(cpu_group_threads(caps));
    if len < MIN_SHARED_ROW || caps.subgroup == 0 { (lanes, 1) } else { (1, lanes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::emit::Accumulator;
    use crate::program::layout::Layout;
    use crate::program::rows::RowOutput;
    use crate::program::{Axes, Input, Program, Source, Type, op};
    use crate::tuning::devices::{h200, lavapipe};
    use crate::tuning::fusion::{choose_with_prologue, reducing_groups};

    fn chosen(rows: u64, len: u64, kept: [u64; 2], caps: &Capabilities) -> RowSchedule {
        let vectors = len.is_multiple_of(4).then_some(VectorInputs { vec4: 1, broadcast: 0 });
        schedule(RowProblem { rows, len, vectors, kept: KeptBytes { all: kept[0], computed: kept[1], later: 8 } }, caps)
    }

    #[test]
    fn short_rows_share_a_workgroup_and_long_ones_fill_it() {
        let shape = |rows, len, caps: &_| {
            let schedule = chosen(rows, len, [4, 0], caps);
            (schedule.rows, schedule.lanes)
        };
        assert_eq!(shape(8192, 512, &h200()), (2, 32));
        assert_eq!(shape(8192, 1024, &h200()), (1, 64));
        assert_eq!(shape(8192, 4096, &h200()), (1, 256));
        assert_eq!(shape(8192, 8192, &h200()), (1, 1024));
        assert_eq!(shape(8192, 1024, &Capabilities { subgroup: 0, ..h200() }), (1, 64));
        assert_eq!(shape(8192, 64, &h200()), (16, 16));
        assert_eq!(shape(1, 768, &h200()), (1, 256));
        assert_eq!(shape(1, 50_257, &h200()), (1, 1024));
        assert_eq!(shape(128, 10, &h200()), (64, 4));
        assert_eq!(shape(128, 10, &lavapipe()), (8, 1));
        assert_eq!(shape(128, 1000, &lavapipe()), (1, 8));
    }

    #[test]
    fn invocations_that_keep_much_have_few_elements() {
        let lanes = |bytes| chosen(8192, 1024, [bytes, 0], &h200()).lanes;
        assert_eq!([lanes(12), lanes(16)], [64, 256]);
    }

    #[test]
    fn row_programs_add_up_few_parts() {
        assert!(sums_parts(7, 768) && sums_parts(2, 8192));
        assert!(!sums_parts(3, 8192) && !sums_parts(u64::MAX, 2));
    }

    #[test]
    fn invocations_of_a_subgroup_exchange_directly() {
        let lanes = |rows, len, caps: &_| chosen(rows, len, [4, 0], caps).subgroup_lanes;
        assert_eq!([lanes(1, 768, &h200()), lanes(8192, 1024, &h200()), lanes(8192, 16, &h200())], [32, 32, 4]);
        assert_eq!(lanes(1, 768, &Capabilities { subgroup: 0, ..h200() }), 1);
        assert_eq!([lanes(128, 10, &lavapipe()), lanes(128, 1000, &lavapipe())], [1, 8]);
    }

    #[test]
    fn values_are_kept_where_there_is_room() {
        let kept = |len, bytes, caps: &_| chosen(8192, len, bytes, caps).kept;
        assert_eq!(kept(1024, [4, 4], &h200()), KeptValues::Registers(4));
        assert_eq!(kept(1023, [4, 4], &h200()), KeptValues::Registers(16));
        assert_eq!(kept(1024, [16, 4], &h200()), KeptValues::Registers(1));
        assert_eq!(kept(1024, [0, 0], &h200()), KeptValues::Recomputed);
        assert_eq!(kept(50_000, [4, 0], &h200()), KeptValues::Recomputed);
        assert_eq!(kept(50_000, [8, 4], &h200()), KeptValues::Memory);
        assert_eq!(kept(1000, [4, 4], &lavapipe()), KeptValues::Shared(1024));
        assert_eq!(kept(20_000, [4, 4], &lavapipe()), KeptValues::Memory);
        let exact = |len| chosen(8192, len, [4, 4], &h200()).exact;
        assert!(exact(1024) && !exact(1000));
        let prefetched = |rows, len, caps: &_| chosen(rows, len, [4, 4], caps).prefetched;
        assert!(prefetched(1, 768, &h200()) && !prefetched(8192, 1024, &h200()) && !prefetched(1, 768, &lavapipe()));
    }

    fn node(name: &str, ty: Type, args: &[usize], attribute: Attribute) -> Node {
        Node { op: op::find(name).unwrap(), ty, args: args.into(), attribute }
    }

    fn program(inputs: &[&[i64]], nodes: Vec<Node>, shape: [u64; 2]) -> Program {
        let view = |strides: &&[i64]| Source::View { offset: 0, strides: Axes::from_slice(strides) };
        let inputs = inputs.iter().map(|strides| Input { ty: Type::F32, source: view(strides) }).collect();
        Program { inputs, nodes: nodes.into(), shape: shape.as_slice().into(), output: None }
    }

    /// The schedule as a prologue of `x · reduction(x)`, `len` elements, where it is multiplied by a matrix with `columns` columns.
    fn prologue(reduction: Node, len: u64, columns: u64, caps: &Capabilities) -> Option<RowSchedule> {
        let nodes = vec![reduction, node("multiply", Type::F32, &[0, 1], Attribute::None)];
        let program_of_row = program(&[&[len as i64, 1]], nodes, [1, len]);
        let rows = RowProgram {
            program: program_of_row,
            row_axes: 1,
            outputs: vec![RowOutput { value: 2, of_element: true }],
            summed: None,
        };
        let sound = rows.check().unwrap();
        let (product, layout) = product(len, columns);
        let launch = choose_with_prologue(&product, &layout, false, caps)?;
        let accumulator = Accumulator::of(&product, &layout, caps).unwrap();
        let shared = launch.shared_bytes(accumulator.bytes(), 0).unwrap();
        prologue_schedule(&rows, RowProblem::new(&rows, &sound, caps), (&launch, shared), caps)
    }

    /// The product of a row of `len` elements and a matrix with `columns` columns.
    fn product(len: u64, columns: u64) -> (Program, Layout) {
        let multiply = node("multiply", Type::F64, &[0, 1], Attribute::None);
        let sum = node("sum", Type::F32, &[2], Attribute::Axes(Axes::from_slice(&[1])));
        let product = program(&[&[0, 1], &[1, columns as i64]], vec![multiply, sum], [columns, len]);
        let layout = Layout::new(&product).unwrap();
        (product, layout)
    }

    #[test]
    fn workgroups_that_reduce_their_results_compute_a_row_first_whatever_the_results() {
        let (product, layout) = product(768, 50_257);
        let launch = |reduces| choose_with_prologue(&product, &layout, reduces, &h200());
        assert_eq!(launch(false), None);
        let launch = launch(true).unwrap();
        let many = FusionLaunch { groups: 1 << 20, ..launch };
        let most = |launch: &FusionLaunch, prologue| reducing_groups(launch, prologue, &h200());
        assert!(most(&many, false) > most(&many, true) && most(&launch, true) == most(&many, true));
        assert_eq!(most(&FusionLaunch { groups: 7, ..launch }, false), 7);
        assert!(reducing_groups(&many, false, &lavapipe()) <= 128);
    }

    #[test]
    fn rows_are_prologues_of_so_many_workgroups_as_run_at_once() {
        let sum = || node("sum", Type::F32, &[0], Attribute::Axes(Axes::from_slice(&[1])));
        let of_sum = |len, columns, caps: &_| prologue(sum(), len, columns, caps);
        for (columns, threads) in [(768, 512), (2304, 1024), (3072, 1024)] {
            let RowSchedule { rows, lanes, vectors, .. } = of_sum(768, columns, &h200()).unwrap();
            assert_eq!((rows * lanes, lanes, vectors.is_some()), (threads, 256, true));
        }
        for columns in [2048, 6144, 8192] {
            assert!(of_sum(2048, columns, &h200()).is_some(), "{columns}");
        }
        for (len, columns) in [(2048, 16_384), (768, 50_257), (1 << 16, 64)] {
            assert_eq!(of_sum(len, columns, &h200()), None, "{len} by {columns}");
        }
        assert_eq!(of_sum(768, 768, &lavapipe()), None);
        assert_eq!(of_sum(768, 768, &Capabilities { multiprocessors: 8, ..h200() }), None);
        let index = node("argmax", Type::F32, &[0], Attribute::Arg { axis: Some(1), last: false });
        assert_eq!(prologue(index, 768, 768, &h200()), None);
    }
}
