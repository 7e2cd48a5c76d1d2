//! What is chosen for programs of each kind, on an H200 and on lavapipe.

use super::*;
use crate::program::emit::{ReduceSchedule, VectorInputs, WindowSchedule};
use crate::program::{Attribute, Axes, Input, Source, Type, dense_strides, op};
use crate::tuning::devices::{h200, lavapipe, packs_elements};

fn view(ty: Type, offset: i64, strides: &[i64]) -> Input {
    Input { ty, source: Source::View { offset, strides: strides.into() } }
}

fn program(shape: &[u64], input: Input, name: &str, attribute: Attribute) -> Program {
    let node = Node { op: op::find(name).unwrap(), ty: input.ty, args: [0].into_iter().collect(), attribute };
    Program {
        inputs: [input].into_iter().collect(),
        nodes: [node].into_iter().collect(),
        ..Program::over(shape.into())
    }
}

fn negate(shape: &[u64], input: Input) -> Program {
    program(shape, input, "negate", Attribute::None)
}

fn sum(shape: &[u64], axes: &[usize]) -> Program {
    sum_of(Type::F32, shape, axes)
}

fn sum_of(ty: Type, shape: &[u64], axes: &[usize]) -> Program {
    let input = view(ty, 0, &dense_strides(shape));
    program(shape, input, "sum", Attribute::Axes(Axes::from_slice(axes)))
}

/// A sine of a sine, `count` of them.
fn sines(shape: &[u64], count: usize) -> Program {
    let mut sines = program(shape, view(Type::F32, 0, &dense_strides(shape)), "sin", Attribute::None);
    for i in 1..count {
        let next = Node { args: [i].into_iter().collect(), ..sines.nodes[0].clone() };
        sines.nodes.push(next);
    }
    assert!(sines.check().is_ok());
    sines
}

fn chosen(program: &Program, caps: &Capabilities) -> FusionStrategy {
    choose(program, &Layout::new(program).unwrap(), caps)
}

fn one_pass(program: &Program, caps: &Capabilities) -> FusionLaunch {
    match chosen(program, caps) {
        FusionStrategy::OnePass(launch) => launch,
        two => panic!("{two:?}"),
    }
}

fn reduce(program: &Program, caps: &Capabilities) -> ReduceSchedule {
    match one_pass(program, caps).schedule.nest {
        LoopNest::Reduce(reduce) => reduce,
        other => panic!("{other:?}"),
    }
}

#[test]
fn aligned_neighbours_are_read_in_vectors() {
    let vectors = |program: &Program| match one_pass(program, &h200()).schedule.nest {
        LoopNest::Map { vectors, .. } => vectors,
        other => panic!("{other:?}"),
    };
    let none = Some(VectorInputs::default());
    assert_eq!(vectors(&negate(&[4099], view(Type::F32, 0, &[1]))), none);
    assert_eq!(vectors(&negate(&[4096], view(Type::F32, 4, &[1]))), none);
    assert_eq!(vectors(&negate(&[4096], view(Type::F32, 1, &[1]))), None);
    assert_eq!(vectors(&negate(&[4096], view(Type::F32, 0, &[2]))), None);
    let rows = Some(VectorInputs { vec4: 1, broadcast: 0 });
    assert_eq!(vectors(&negate(&[64, 128], view(Type::F32, 0, &[132, 1]))), rows);
    assert_eq!(vectors(&negate(&[64, 128], view(Type::F32, 0, &[131, 1]))), None);
    assert_eq!(vectors(&negate(&[64, 126], view(Type::F32, 0, &[132, 1]))), None);
    let columns = Some(VectorInputs { vec4: 0, broadcast: 1 });
    assert_eq!(vectors(&negate(&[64, 128], view(Type::F32, 0, &[1, 0]))), columns);
}

#[test]
fn groups_cover_all_elements() {
    for caps in [h200(), lavapipe(), Capabilities { exponential_loops: true, ..lavapipe() }] {
        for n in [1u64, 3, 4, 255, 256, 4096, 4099, 1 << 20, (1 << 24) + 7] {
            for stride in [1, 2] {
                let launch = one_pass(&negate(&[n], view(Type::F32, 0, &[stride])), &caps);
                let LoopNest::Map { threads, traversal, vectors } = launch.schedule.nest else { panic!("{launch:?}") };
                let width = if vectors.is_some() { 4 } else { 1 };
                let each = match traversal {
                    MapTraversal::Chunk => launch.chunk * width,
                    MapTraversal::Single => threads.into(),
                    _ if vectors.is_some() => u64::from(threads * 4 * VECTORS_PER_THREAD),
                    _ => u64::from(threads * SCALARS_PER_THREAD),
                };
                assert!(launch.groups.max(1) * each + width > n, "{n} {launch:?}");
                assert_eq!(traversal == MapTraversal::Chunk, caps.cpu && !caps.exponential_loops);
                assert_eq!(launch.schedule.reversible, !caps.cpu);
            }
        }
    }
}

#[test]
fn compute_bound_programs_have_small_groups_and_complex_ones_stand_once() {
    if !packs_elements() {
        return println!("left out: in this process each narrow element has a word");
    }
    let map = |name, ty| {
        let launch = one_pass(&program(&[1 << 20], view(ty, 0, &[1]), name, Attribute::None), &h200());
        match launch.schedule.nest {
            LoopNest::Map { threads, traversal, .. } => (threads, traversal),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(map("exp", Type::F64), (MIN_MAP_THREADS, MapTraversal::Unrolled));
    assert_eq!(map("exp", Type::C64), (MIN_MAP_THREADS, MapTraversal::Rolled));
    assert_eq!(map("negate", Type::U8), (512, MapTraversal::Unrolled));
}

#[test]
fn programs_of_many_functions_stand_once_in_a_kernel() {
    let map = |count, caps: &Capabilities| match one_pass(&sines(&[1 << 20], count), caps).schedule.nest {
        LoopNest::Map { traversal, vectors, .. } => (traversal, vectors.is_some()),
        other => panic!("{other:?}"),
    };
    assert_eq!([8, 9].map(|n| map(n, &h200())), [(MapTraversal::Unrolled, true), (MapTraversal::Single, false)]);
    assert_eq!([8, 9].map(|n| map(n, &lavapipe())), [(MapTraversal::Chunk, true), (MapTraversal::Chunk, false)]);
}

#[test]
fn transposes_go_through_tiles() {
    let staging = |shape: [u64; 2], caps: &Capabilities| {
        let transposed = negate(&shape, view(Type::F32, 0, &[1, shape[0] as i64]));
        match one_pass(&transposed, caps).schedule.nest {
            LoopNest::Tile { tile, .. } => Some((tile.staging, tile.inputs)),
            _ => None,
        }
    };
    assert_eq!(staging([256, 256], &h200()), Some((Staging::SharedVectors, 1)));
    assert_eq!(staging([255, 129], &h200()), Some((Staging::SharedScalars, 1)));
    assert_eq!(staging([256, 256], &lavapipe()), Some((Staging::Registers, 1)));
    assert_eq!(staging([255, 129], &lavapipe()), Some((Staging::Caches, 0)));
    assert_eq!(staging([4096, 4], &h200()), None);
}

#[test]
fn reductions_are_split_where_outputs_do_not_fill_the_device() {
    for caps in [h200(), lavapipe()] {
        assert!(matches!(chosen(&sum(&[4096, 100], &[1]), &caps), FusionStrategy::OnePass(_)));
        for n in [1u64 << 20, (1 << 20) + 3] {
            let FusionStrategy::TwoPasses { partial, combining, chunks } = chosen(&sum(&[n], &[0]), &caps) else {
                panic!("{n} elements in one pass")
            };
            assert!(partial.chunk * chunks >= n && partial.chunk * (chunks - 1) < n);
            assert_eq!((partial.groups, combining.groups), (chunks, 1));
            assert!(!combining.schedule.reversible);
        }
    }
}

#[test]
fn few_columns_are_reduced_in_one_pass_by_narrow_workgroups() {
    // Whole lines of memory where half of the multiprocessors have one of these workgroups.
    let narrow = [(768, 2304, 8), (768, 768, 2), (768, 3072, 8), (128, 256, 2), (3072, 768, 2)];
    for (rows, columns, output_threads) in narrow.into_iter().chain([(4096, 4096, 8), (2048, 8192, 8), (2048, 2048, 4)])
    {
        let reduce = reduce(&sum(&[rows, columns], &[0]), &h200());
        assert_eq!(reduce.output_threads, output_threads, "{rows} × {columns}");
        assert!(reduce.output_threads * reduce.reduction_threads <= 1024);
        // The threads of a subgroup that share outputs exchange them.
        assert_eq!(reduce.lanes * output_threads, 32, "{rows} × {columns}");
    }
    // What a thread loads at once is all of its elements.
    let exact = |rows| reduce(&sum(&[rows, 768], &[0]), &h200()).exact;
    assert!(exact(768) && exact(3072) && !exact(700));
    // A thread has more elements where there are workgroups for most multiprocessors.
    assert_eq!(reduce(&sum(&[2048, 8192], &[0]), &h200()).reduction_threads, 128);
    // Elements of 2 bytes have more neighbours in a sector of memory, unless few workgroups remain.
    let wide = if packs_elements() || Type::BF16.size() == 2 { 4 } else { 2 };
    for (rows, columns, output_threads) in [(2048, 2048, wide), (768, 768, 2), (768, 2304, 8)] {
        let sum = sum_of(Type::BF16, &[rows, columns], &[0]);
        assert_eq!(reduce(&sum, &h200()).output_threads, output_threads, "{rows} × {columns}");
    }
    let small = Capabilities { max_shared: 8 << 10, ..h200() };
    assert_eq!(reduce(&sum(&[2048, 768], &[0]), &small).reduction_threads, 128);
    // Still longer columns take several workgroups each, which are wide, and so are those of many columns.
    let chosen = chosen(&sum(&[12_288, 768], &[0]), &h200());
    let FusionStrategy::TwoPasses { partial, .. } = chosen else { panic!("{chosen:?}") };
    let LoopNest::Reduce(columns) = partial.schedule.nest else { panic!("{partial:?}") };
    assert_eq!(columns.output_threads, 32);
    assert_eq!(reduce(&sum(&[64, 1 << 16], &[0]), &h200()).output_threads, 64);
}

#[test]
fn workgroups_of_sums_fit_the_device() {
    let kinds = [Type::F32, Type::BF16, Type::F64, Type::C64, Type::C128, Type::S32];
    let shapes = [[4096, 4096], [12_288, 768], [100_000, 64], [64, 1 << 16], [1 << 20, 4], [1 << 20, 100]];
    let devices = [h200(), lavapipe(), Capabilities { cpu: false, ..lavapipe() }];
    for device in devices {
        for (max_shared, max_threads) in [(16 << 10, 256), (32 << 10, 512), (48 << 10, 1024)] {
            let caps = Capabilities { max_shared, max_threads, ..device.clone() };
            for ((ty, shape), count) in kinds
                .iter()
                .flat_map(|ty| shapes.iter().map(move |shape| (ty, shape)))
                .flat_map(|of| [(of, 1), (of, 4)])
            {
                for axis in [0, 1] {
                    let mut sums = sum_of(*ty, shape, &[axis]);
                    sums.nodes = vec![sums.nodes[0].clone(); count].into();
                    let most = sums_of_a_kernel(&sums, &Layout::new(&sums).unwrap(), &caps);
                    let together = sums.with_sums(&sums.reductions()[..count.min(most)]);
                    assert_fits(&together, &caps);
                }
            }
        }
    }
}

/// Asserts that the workgroups of a reduction have no more threads and shared memory than the device.
fn assert_fits(program: &Program, caps: &Capabilities) {
    let accumulator = Accumulator::of(program, &Layout::new(program).unwrap(), caps).unwrap();
    let launches = match chosen(program, caps) {
        FusionStrategy::OnePass(launch) => vec![launch],
        FusionStrategy::TwoPasses { partial, combining, .. } => vec![partial, combining],
        FusionStrategy::ComputedFirst => vec![],
    };
    for launch in launches {
        let LoopNest::Reduce(reduce) = launch.schedule.nest else { panic!("{launch:?}") };
        let threads = reduce.output_threads * reduce.reduction_threads;
        let outputs = u64::from(threads * (4 * reduce.output_vectors).max(1));
        let shared = if reduce.shares_memory() { outputs * accumulator.bytes() } else { 0 };
        assert!(threads <= caps.max_threads && shared <= caps.max_shared.into(), "{shared} bytes, {launch:?}");
    }
}

#[test]
fn threads_read_neighbours() {
    // Along rows threads share an output, along columns they have outputs of their own.
    let rows = reduce(&sum(&[4096, 1000], &[1]), &h200());
    assert_eq!((rows.output_threads, rows.reduction_threads, rows.output_vectors), (1, 256, 0));
    assert_eq!((rows.vectors.vec4, rows.shares_memory(), rows.lanes), (1, true, 32));
    let columns = reduce(&sum(&[64, 1 << 17], &[0]), &h200());
    assert_eq!((columns.output_threads, columns.output_vectors, columns.vectors.vec4), (64, 1, 1));
    let rows = reduce(&sum(&[4096, 1000], &[1]), &lavapipe());
    assert_eq!((rows.output_threads, rows.reduction_threads, rows.lanes), (1, 8, 8));
    let columns = reduce(&sum(&[64, 1 << 17], &[0]), &lavapipe());
    assert_eq!((columns.output_threads, columns.output_vectors, columns.reduction_threads), (8, 4, 1));
}

#[test]
fn threads_of_many_short_rows_are_of_one_subgroup_and_load_them_at_once() {
    let rows = reduce(&sum(&[50_257, 768], &[1]), &h200());
    assert_eq!((rows.output_threads, rows.reduction_threads, rows.unrolled), (8, 32, 6));
    assert_eq!((rows.shares_memory(), rows.lanes, rows.neighbours_share), (false, 32, true));
    let without = reduce(&sum(&[50_257, 768], &[1]), &Capabilities { subgroup: 0, ..h200() });
    assert_eq!((without.reduction_threads, without.shares_memory(), without.lanes), (64, true, 1));
}

/// One row by a matrix: whole sectors for half of the multiprocessors where sums are in f32, halves of them where they are in f64.
#[test]
fn products_of_one_row_read_whole_sectors_where_sums_are_cheap() {
    let threads = |ty: Type, product: Type, reduced: u64| {
        let (depth, node) = (reduced, |name: &str, ty, args: &[usize], attribute| Node {
            op: op::find(name).unwrap(),
            ty,
            args: args.into(),
            attribute,
        });
        let input = |strides: &[i64]| Input { ty, source: Source::View { offset: 0, strides: strides.into() } };
        let program = Program {
            inputs: [input(&[0, 1]), input(&[1, 768])].into_iter().collect(),
            nodes: [
                node("multiply", product, &[0, 1], Attribute::None),
                node("sum", ty, &[2], Attribute::Axes(Axes::from_slice(&[1]))),
            ]
            .into_iter()
            .collect(),
            shape: [768, depth].into_iter().collect(),
            output: None,
        };
        let schedule = reduce(&program, &h200());
        (schedule.output_threads, schedule.reduction_threads, schedule.unrolled)
    };
    assert_eq!(threads(Type::BF16, Type::F32, 3072), (4, 256, 12));
    assert_eq!(threads(Type::F16, Type::F32, 3072), (2, 512, 6));
    assert_eq!(threads(Type::F32, Type::F64, 3072), (2, 512, 6));
    // Whole sectors would need a second pass.
    assert_eq!(threads(Type::BF16, Type::F32, 8192).0, 2);
}

#[test]
fn small_windows_are_unrolled_where_there_are_many() {
    let window = |[rows, columns]: [u64; 2], size: u64, caps: &Capabilities| {
        let row = (columns + size) as i64;
        let axes = Attribute::Axes(Axes::from_slice(&[2, 3]));
        let input = view(Type::F32, 0, &[row, 1, row, 1]);
        let launch = one_pass(&program(&[rows, columns, size, size], input, "reduce_max", axes), caps);
        let LoopNest::Window(WindowSchedule { threads, outputs, vectors }) = launch.schedule.nest else { return None };
        assert!(launch.groups * u64::from(threads * outputs) >= rows * columns);
        assert_eq!(vectors, VectorInputs::default(), "neighbours share elements");
        Some(outputs)
    };
    assert_eq!(window([600, 600], 3, &h200()), Some(4));
    assert_eq!(window([600, 602], 3, &h200()), Some(2));
    assert_eq!(window([600, 601], 3, &h200()), Some(1));
    assert_eq!(window([300, 300], 3, &h200()), Some(1), "too few for more");
    assert_eq!(window([600, 600], 3, &lavapipe()), Some(1));
    assert_eq!(window([300, 300], 6, &h200()), None, "36 elements");
    assert_eq!(window([200, 200], 3, &h200()), None, "40,000 windows");
}

#[test]
fn windows_over_images_with_channels_innermost_are_read_in_vectors() {
    let axes = Attribute::Axes(Axes::from_slice(&[3, 4]));
    let strides = [64 * 114, 64, 1, 64 * 114, 64];
    let pooled = program(&[112, 112, 64, 3, 3], view(Type::BF16, 0, &strides), "reduce_max", axes);
    let launch = one_pass(&pooled, &h200());
    let LoopNest::Window(window) = launch.schedule.nest else { panic!("{launch:?}") };
    assert_eq!((window.outputs, window.vectors), (4, VectorInputs { vec4: 1, broadcast: 0 }));
}

#[test]
fn where_branches_in_loops_take_exponential_time_a_loop_takes_one_stored_element_at_a_time() {
    let caps = Capabilities { exponential_loops: true, ..lavapipe() };
    for (shape, axes) in [(&[4096_u64, 100][..], &[1_usize][..]), (&[100, 4096], &[0]), (&[3, 5], &[0, 1])] {
        let sum = sum(shape, axes);
        let ReduceSchedule { unrolled, vectors, output_vectors, .. } = reduce(&sum, &caps);
        assert_eq!((unrolled, vectors, output_vectors), (1, VectorInputs::default(), 0));
        let negated = Node { args: [0].into_iter().collect(), ..negate(&[1], sum.inputs[0].clone()).nodes[0].clone() };
        let total = Node { args: [1].into_iter().collect(), ..sum.nodes[0].clone() };
        let program = Program { nodes: [negated, total].into_iter().collect(), ..sum };
        assert_eq!(chosen(&program, &caps), FusionStrategy::ComputedFirst);
        let [computing, reduction] = program.computed_first().unwrap();
        assert!(computing.check().is_ok() && computing.computed_first().is_none() && computing.nodes.len() == 1);
        assert!(reduction.check().is_ok() && reduction.computed_first().is_none());
        assert_eq!((reduction.reduced_axes(), reduction.result()), (program.reduced_axes(), program.result()));
    }
}

#[test]
fn where_long_kernels_take_minutes_to_build_programs_have_few_functions() {
    let slow = Capabilities { exponential_loops: true, ..lavapipe() };
    let functions = |count| sines(&[30], count);
    assert!(builds_in_seconds([&functions(MAX_SLOW_COMPUTE_BOUND)], &slow));
    assert!(!builds_in_seconds([&functions(MAX_SLOW_COMPUTE_BOUND), &functions(1)], &slow));
    assert!(builds_in_seconds([&functions(100)], &lavapipe()));
    let cheap = Program { nodes: functions(100).nodes, ..negate(&[30], view(Type::F32, 0, &[1])) };
    let negated = cheap.nodes.iter().map(|node| Node { op: op::find("negate").unwrap(), ..node.clone() });
    assert!(builds_in_seconds([&Program { nodes: negated.collect(), ..cheap.clone() }], &slow));
}
