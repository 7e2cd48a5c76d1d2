//! Whether the kernel that ends a contraction takes an epilogue, and how.

use super::{Method, TileMethod, Tiling};
use crate::device::Capabilities;
use crate::program::epilogue::EpilogueProgram;

/// The most sums that a thread stores for which a compute-bound epilogue pays off: it takes one after the other. As profiled on an H200, tanh takes
/// 64 sums a thread of 128 × 3,072 × 768 in f32 from 24 to 48 µs, a kernel of its own 4 µs; with 16 sums of 64 × 256 × 256 it took the
/// product from 8.4 to 11 µs, and where all threads store, two sums each, 0.3 µs.
const MAX_COMPUTE_BOUND_SUMS: u32 = 16;

/// The most elements of a product by cooperative matrices for which an epilogue pays off: 4,096³ in bf16 takes an H200 436 µs with a bias and 488 with
/// a residual, in two kernels 448 and 451, and ResNet-50's forward pass takes 3.17 ms without this limit and 3.12 with it.
pub(super) const MAX_MATRIX_ELEMENTS: u64 = 1 << 22;

/// The most elements of a tiled product for which an epilogue pays off that reads another tensor at each of them. A training step of ResNet-50 takes
/// an H200 30.1–30.4 ms in f32 and 16.0–16.2 in bf16 so, 31.0 and 18.9–19.2 with four times as many, and 32.4 and 18.9 without this limit. A residual
/// alone would bear more: of 3.1 million elements it takes a product 101 µs, and two kernels 115.
const MAX_READ_ELEMENTS: u64 = 1 << 20;

/// How an epilogue is applied to the result of a contraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpilogueUse {
    /// In a kernel of its own.
    Separate,
    /// For each element where the kernel stores it.
    Unrolled,
    /// In a loop over the elements of a thread, so that the kernel holds the program once.
    Rolled,
}

/// How the kernel that ends a contraction by this method takes an epilogue.
pub fn epilogue_use(method: &Method, epilogue: &EpilogueProgram, caps: &Capabilities) -> EpilogueUse {
    let index64 = match method {
        // There is no kernel.
        Method::Zeros => return EpilogueUse::Separate,
        Method::Tiles(tiling) if tiling.splits == 1 => tiling.index64,
        Method::FewRows(few_rows) if few_rows.splits == 1 => false,
        Method::Panels(..) => false,
        // A reduction takes the indices that the epilogue needs.
        Method::Tiles(_) | Method::FewRows(_) | Method::Reduction(_) => true,
    };
    let program = &epilogue.program;
    let emulated = (0..program.inputs.len() + program.nodes.len()).any(|i| program.type_of(i).compute().is_emulated());
    let slow = match method {
        Method::Tiles(tiling) => tiling.splits == 1 && is_slow(tiling, epilogue),
        // Convolutions with GELU take lavapipe 1.1 to 1.6 times as long in one kernel, and one of 1 × 1 with the bias of channels that
        // come first 1.2 to 1.4 times.
        Method::Panels(..) => epilogue.is_compute_bound() || epilogue.divides_often(),
        Method::Zeros | Method::Reduction(_) | Method::FewRows(_) => false,
    };
    if caps.exponential_loops || emulated || slow || epilogue.layout.index64 && !index64 {
        EpilogueUse::Separate
    } else if epilogue.is_compute_bound() {
        EpilogueUse::Rolled
    } else {
        EpilogueUse::Unrolled
    }
}

/// Whether the threads that store a tile take longer for the epilogue than a kernel of its own.
fn is_slow(tiling: &Tiling, epilogue: &EpilogueProgram) -> bool {
    let elements: u64 = epilogue.program.shape.iter().product();
    let waits = epilogue.reads_elements() && elements > MAX_READ_ELEMENTS;
    match tiling.tile.method {
        TileMethod::Lanes => false,
        TileMethod::Shared | TileMethod::Matrix if waits => true,
        TileMethod::Shared => {
            epilogue.is_compute_bound() && tiling.tile.stored_sums() > MAX_COMPUTE_BOUND_SUMS
                || epilogue.divides_often() && elements > MAX_MATRIX_ELEMENTS
        }
        TileMethod::Matrix => epilogue.is_compute_bound() || elements > MAX_MATRIX_ELEMENTS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::types::Compute;
    use crate::program::{Attribute, Input, Node, Program, Source, Type, dense_strides, op};
    use crate::tuning::contraction::{PanelTile, TILES, Tile};
    use crate::tuning::devices::{h200, lavapipe};

    /// The operation of a result and a number.
    fn epilogue(name: &str, index64: bool) -> EpilogueProgram {
        let input = |source| Input { ty: Type::F32, source };
        let inputs = [input(Source::View { offset: 0, strides: [4, 1].into_iter().collect() }), input(Source::Scalar)];
        let op = op::find(name).unwrap();
        let node = Node { op, ty: Type::F32, args: (0..op.arity).collect(), attribute: Attribute::None };
        let nodes = [node].into_iter().collect();
        let program =
            Program { inputs: inputs.into_iter().collect(), nodes, shape: [3, 4].into_iter().collect(), output: None };
        let mut epilogue = EpilogueProgram::new(program, 0, false).unwrap();
        epilogue.layout.index64 = index64;
        epilogue
    }

    /// The sum of a result and what is read with these strides.
    fn with_bias(shape: &[u64], strides: &[i64]) -> EpilogueProgram {
        let view =
            |strides: &[i64]| Input { ty: Type::F32, source: Source::View { offset: 0, strides: strides.into() } };
        let dense: Vec<i64> = dense_strides(shape).to_vec();
        let args = [0, 1].into_iter().collect();
        let node = Node { op: op::find("add").unwrap(), ty: Type::F32, args, attribute: Attribute::None };
        let inputs = [view(&dense), view(strides)].into_iter().collect();
        let nodes = [node].into_iter().collect();
        EpilogueProgram::new(Program { inputs, nodes, ..Program::over(shape.into()) }, 0, false).unwrap()
    }

    fn tiles(splits: u64, index64: bool) -> Method {
        tiling(TILES[0], splits, index64)
    }

    fn tiled(tile: Tile) -> Method {
        tiling(tile, 1, false)
    }

    fn tiling(tile: Tile, splits: u64, index64: bool) -> Method {
        let load = crate::tuning::contraction::OperandLoad { along_k: false, width: 1, scattered: false };
        let (accumulator, ty) = (Compute::Float, Type::F32);
        let (loads, chunk) = ([load; 2], 8);
        Method::Tiles(Tiling {
            tile,
            accumulator,
            splits,
            chunk,
            ty,
            index64,
            loads,
            affine: false,
            vector_stores: true,
        })
    }

    #[test]
    fn every_method_with_a_kernel_takes_an_epilogue() {
        let panels = Method::Panels(PanelTile { lanes: 8, rows: 8, panels: 1, steps: 8 }, Compute::Float);
        for method in [tiles(1, false), tiles(4, false), Method::Reduction(Type::F64), panels] {
            assert_eq!(epilogue_use(&method, &epilogue("add", false), &h200()), EpilogueUse::Unrolled);
        }
        for method in [tiles(4, false), Method::Reduction(Type::F64), tiled(TILES[8])] {
            assert_eq!(epilogue_use(&method, &epilogue("tanh", false), &h200()), EpilogueUse::Rolled);
        }
        assert_eq!(epilogue_use(&Method::Zeros, &epilogue("add", false), &h200()), EpilogueUse::Separate);
    }

    #[test]
    fn an_epilogue_is_separate_where_the_threads_of_a_tile_take_longer() {
        let tanh = |method: &Method| epilogue_use(method, &epilogue("tanh", false), &h200());
        assert_eq!(tanh(&tiled(TILES[0])), EpilogueUse::Separate);
        let matrix = tiled(Tile { method: TileMethod::Matrix, ..TILES[0] });
        assert_eq!(tanh(&matrix), EpilogueUse::Separate);
        assert_eq!(epilogue_use(&matrix, &epilogue("add", false), &h200()), EpilogueUse::Unrolled);
        let mut large = epilogue("add", false);
        large.program.shape = [4096, 4096].into_iter().collect();
        assert_eq!(epilogue_use(&matrix, &large, &h200()), EpilogueUse::Separate);
    }

    #[test]
    fn an_epilogue_is_separate_where_the_threads_of_a_tile_wait_for_elements() {
        let uses = |shape: &[u64], strides: &[i64]| epilogue_use(&tiles(1, false), &with_bias(shape, strides), &h200());
        assert_eq!(uses(&[1 << 10, 1 << 11], &[1 << 11, 1]), EpilogueUse::Separate);
        assert_eq!(uses(&[1 << 10, 1 << 11], &[1, 1 << 10]), EpilogueUse::Separate);
        assert_eq!(uses(&[1 << 10, 1 << 11], &[0, 1]), EpilogueUse::Unrolled);
        assert_eq!(uses(&[1 << 10, 1 << 10], &[1 << 10, 1]), EpilogueUse::Unrolled);
    }

    #[test]
    fn panels_take_cheap_epilogues_that_divide_at_most_once_for_an_element() {
        let panels = Method::Panels(PanelTile { lanes: 8, rows: 8, panels: 1, steps: 8 }, Compute::Float);
        let uses = |epilogue| epilogue_use(&panels, &epilogue, &lavapipe());
        assert_eq!(uses(epilogue("add", false)), EpilogueUse::Unrolled);
        assert_eq!(uses(epilogue("tanh", false)), EpilogueUse::Separate);
        assert_eq!(uses(with_bias(&[6, 4], &[0, 1])), EpilogueUse::Unrolled);
        assert_eq!(uses(with_bias(&[2, 4, 3], &[0, 1, 0])), EpilogueUse::Separate);
        // Tiles divide where there are few elements.
        let few = with_bias(&[2, 4, 3], &[0, 1, 0]);
        assert_eq!(epilogue_use(&tiles(1, false), &few, &h200()), EpilogueUse::Unrolled);
        let many = with_bias(&[1 << 10, 4, 1 << 12], &[0, 1, 0]);
        assert_eq!(epilogue_use(&tiles(1, false), &many, &h200()), EpilogueUse::Separate);
    }

    #[test]
    fn an_epilogue_is_separate_where_its_indices_are_longer_or_loops_take_long_to_build() {
        let uses = |method: &Method| epilogue_use(method, &epilogue("add", true), &h200());
        assert_eq!(uses(&tiles(1, false)), EpilogueUse::Separate);
        assert_eq!(uses(&tiles(1, true)), EpilogueUse::Unrolled);
        assert_eq!(uses(&tiles(2, false)), EpilogueUse::Unrolled);
        let caps = Capabilities { exponential_loops: true, ..lavapipe() };
        assert_eq!(epilogue_use(&tiles(1, false), &epilogue("add", false), &caps), EpilogueUse::Separate);
    }
}
