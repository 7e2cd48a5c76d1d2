//! Whether the kernel that ends a contraction takes an epilogue, and how.

use super::Method;
use crate::device::Capabilities;
use crate::program::epilogue::EpilogueProgram;

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
        Method::Panels(..) => false,
        // A reduction takes the indices that the epilogue needs.
        Method::Tiles(_) | Method::Reduction(_) => true,
    };
    let program = &epilogue.program;
    let emulated = (0..program.inputs.len() + program.nodes.len()).any(|i| program.type_of(i).compute().is_emulated());
    if caps.exponential_loops || emulated || epilogue.layout.index64 && !index64 {
        EpilogueUse::Separate
    } else if epilogue.is_compute_bound() {
        EpilogueUse::Rolled
    } else {
        EpilogueUse::Unrolled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::types::Compute;
    use crate::program::{Attribute, Input, Node, Program, Source, Type, op};
    use crate::tuning::contraction::{PanelTile, TILES, Tiling};
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

    fn tiles(splits: u64, index64: bool) -> Method {
        let load = crate::tuning::contraction::OperandLoad { along_k: false, width: 1, scattered: false };
        let (tile, accumulator, ty) = (TILES[0], Compute::Float, Type::F32);
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
        let panels = Method::Panels(PanelTile { lanes: 8, rows: 8, panels: 1 }, Compute::Float);
        for method in [tiles(1, false), tiles(4, false), Method::Reduction(Type::F64), panels] {
            assert_eq!(epilogue_use(&method, &epilogue("add", false), &h200()), EpilogueUse::Unrolled);
            assert_eq!(epilogue_use(&method, &epilogue("tanh", false), &lavapipe()), EpilogueUse::Rolled);
        }
        assert_eq!(epilogue_use(&Method::Zeros, &epilogue("add", false), &h200()), EpilogueUse::Separate);
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
