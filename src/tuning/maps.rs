//! How map groups are spread over workgroups. The functions are pure: they know a part by its program and layout.

use super::cpu_group_threads;
use crate::device::Capabilities;
use crate::program::Type;
use crate::program::emit::{MapSchedule, vec4_bytes};
use crate::program::layout::{Layout, Pattern, View};
use crate::program::maps::{MapGroup, MapPart};

/// Threads of a GPU's workgroup.
const MAP_GROUP_THREADS: u32 = 256;
/// Elements that a thread of a GPU makes one by one.
const SCALARS_PER_MAP_THREAD: u64 = 4;
/// Workgroups of a part that keep the cores of a CPU device busy.
const CPU_PART_GROUPS: u64 = 128;
/// The fewest elements of one of them.
const MIN_CPU_PART_ELEMENTS: u64 = 1024;

/// What the workgroups of a part go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartChunks {
    /// Elements, or vectors of four, of a workgroup.
    pub chunk: u64,
    /// Workgroups of the part.
    pub groups: u64,
}

/// How a group runs.
pub fn map_schedule(group: &MapGroup, layouts: &[Layout], caps: &Capabilities) -> (MapSchedule, Vec<PartChunks>) {
    let single = caps.exponential_loops;
    let threads = if caps.cpu { cpu_group_threads(caps) } else { MAP_GROUP_THREADS };
    let parts = || group.parts.iter().zip(layouts);
    // Few elements that take long are a thread's each.
    let few = |part: &MapPart, layout: &Layout| {
        let filling = caps.multiprocessors * u64::from(threads);
        !caps.cpu && part.program.compute_bound_nodes() > 0 && layout.outputs() <= filling
    };
    let in_vectors = |part: &MapPart, layout: &Layout| !single && !few(part, layout) && in_vectors(part, layout);
    let vectors: Vec<bool> = parts().map(|(part, layout)| in_vectors(part, layout)).collect();
    let chunks = parts().zip(&vectors).map(|((part, layout), &vectors)| {
        let (count, width) = (layout.outputs(), if vectors { 4 } else { 1 });
        // The elements that whole vectors leave are one more.
        let units = if vectors { count / 4 + 1 } else { count };
        let chunk = match () {
            () if single => threads.into(),
            () if caps.cpu => units.div_ceil(CPU_PART_GROUPS).max(MIN_CPU_PART_ELEMENTS / width),
            () if vectors || few(part, layout) => threads.into(),
            () => u64::from(threads) * SCALARS_PER_MAP_THREAD,
        };
        let chunk = chunk.next_multiple_of(threads.into());
        PartChunks { chunk, groups: units.div_ceil(chunk) }
    });
    let chunks = chunks.collect();
    (MapSchedule { threads, single, vectors }, chunks)
}

/// Whether all that a part reads and writes at the linear index is aligned for vectors, and nothing else is read.
fn in_vectors(part: &MapPart, layout: &Layout) -> bool {
    let program = &part.program;
    let types = (0..program.inputs.len() + program.nodes.len()).map(|value| program.type_of(value));
    let aligned = |ty: Type, view: &View| match view.pattern {
        Pattern::Linear => (view.offset as u64 * ty.size()).is_multiple_of(vec4_bytes(ty.storage())),
        Pattern::Single => true,
        Pattern::Strided => false,
    };
    let read = |view: &View| view.input.is_none_or(|input| aligned(program.type_of(input), view));
    let mut stored = part.stored(layout);
    let first = layout.views.len() - part.stores.len();
    !program.stands_once()
        && !types.into_iter().any(|ty| ty.compute().is_emulated())
        && layout.views[..first].iter().all(read)
        && stored.all(|(store, view)| view.pattern == Pattern::Linear && aligned(program.type_of(store.value), view))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::maps::MapStore;
    use crate::program::{Attribute, Input, Node, OutputView, Program, Source, dense_strides, op};
    use crate::tuning::devices::{h200, lavapipe};

    /// A part that negates a dense tensor and stores it from `offset` on.
    fn part(shape: &[u64], offset: i64) -> MapPart {
        part_of("negate", shape, offset)
    }

    fn part_of(name: &str, shape: &[u64], offset: i64) -> MapPart {
        let strides = dense_strides(shape);
        let source = Source::View { offset: 0, strides: strides.clone() };
        let node = Node {
            op: op::find(name).unwrap(),
            ty: Type::F32,
            args: [0].into_iter().collect(),
            attribute: Attribute::None,
        };
        let program = Program {
            inputs: [Input { ty: Type::F32, source }].into_iter().collect(),
            nodes: [node].into_iter().collect(),
            ..Program::over(shape.into())
        };
        let view = OutputView { offset, strides, ..OutputView::default() };
        MapPart { program, stores: [MapStore { value: 1, result: 0, view }].into_iter().collect() }
    }

    fn scheduled(parts: Vec<MapPart>, caps: &Capabilities) -> (MapSchedule, Vec<PartChunks>) {
        let group = MapGroup { parts, results: vec![(Type::F32, 1 << 20)] };
        let layouts = group.check().unwrap();
        map_schedule(&group, &layouts, caps)
    }

    #[test]
    fn parts_at_aligned_offsets_are_made_in_vectors() {
        let (schedule, _) = scheduled(vec![part(&[64], 0), part(&[64], 64), part(&[64], 130)], &h200());
        assert_eq!(schedule.vectors, [true, true, false]);
        let once = Capabilities { exponential_loops: true, ..lavapipe() };
        let (schedule, _) = scheduled(vec![part(&[64], 0)], &once);
        assert_eq!((schedule.vectors, schedule.single), (vec![false], true));
    }

    #[test]
    fn few_elements_that_take_long_have_a_thread_each() {
        let scheduled = |caps: &Capabilities, n| {
            let (schedule, chunks) = scheduled(vec![part_of("exp", &[n], 0)], caps);
            (schedule.vectors[0], chunks[0].groups)
        };
        let threads = u64::from(MAP_GROUP_THREADS);
        assert_eq!(scheduled(&h200(), 10 * threads), (false, 10));
        assert!(scheduled(&h200(), h200().multiprocessors * threads + 4).0);
        assert!(scheduled(&lavapipe(), 10 * threads).0);
    }

    #[test]
    fn the_chunks_of_a_part_cover_its_elements() {
        let once = Capabilities { exponential_loops: true, ..lavapipe() };
        for caps in [h200(), lavapipe(), once] {
            for n in [1, 3, 4, 5, 1023, 1024, 1025, 100_000] {
                for offset in [0, 1] {
                    let (schedule, chunks) = scheduled(vec![part(&[n], offset)], &caps);
                    let PartChunks { chunk, groups } = chunks[0];
                    let units = if schedule.vectors[0] { n / 4 + 1 } else { n };
                    assert!(chunk * groups >= units && chunk * (groups - 1) < units, "{n} {offset} {chunk} {groups}");
                    assert!(!schedule.single || chunk == u64::from(schedule.threads));
                }
            }
        }
    }

    #[test]
    fn a_part_stores_within_its_result() {
        let check = |offset| MapGroup { parts: vec![part(&[8], offset)], results: vec![(Type::F32, 10)] }.check();
        assert!(check(2).is_ok());
        assert!(check(3).is_err());
        assert!(check(-1).is_err());
    }
}
