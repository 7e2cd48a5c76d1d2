//! Choices of linear algebra: the types that matrices are worked on in, the sizes of blocks and panels, the threads that work on
//! them, and the method of each decomposition.

use crate::device::Capabilities;
use crate::program::Type;

/// Matrices with at most this many rows and columns are worked on with sums formed in double, where the device has it,
/// and quotients and roots right to the last bit: that is how BinaryBackend rounds.
pub const MAX_EXACT_ORDER: u64 = 64;
/// Up to this order eigenvectors in single precision round as BinaryBackend's do after every step; double is more accurate.
const MAX_NX_ROUNDED_ORDER: u64 = 16;
/// Systems of at most this many multiplications are solved in double where the device has it, and rounded once, as
/// BinaryBackend does.
const MAX_DOUBLE_PRODUCTS: u64 = 1 << 22;
/// Columns of a panel that threads hold in registers.
pub const REGISTER_COLUMNS: u64 = 16;
/// Columns of a diagonal block that a thread of `cholesky_step.glsl` factors for itself.
const THREAD_COLUMNS: u64 = 4;
/// Fewer multiplications of an update are not worth two more kernels.
const MIN_PANEL_PRODUCTS: u64 = 1 << 18;

/// Whether invocations are lanes of a CPU's vectors, which access shared memory one after the other: they exchange by
/// subgroup operations what all of them need.
pub fn cpu_vectors(caps: &Capabilities) -> bool {
    caps.cpu && matches!(caps.subgroup, 4 | 8 | 16)
}

/// Rows or columns of a block. What a workgroup shares of it fits the 16 KiB that every device has.
pub fn block_width(ty: Type) -> u64 {
    if ty.size() > 8 { 16 } else { 32 }
}

/// Threads of a workgroup that holds panels of this many rows in registers, where the device can and they are few enough.
pub fn panel_threads(caps: &Capabilities, rows: u64) -> Option<u64> {
    let subgroup = u64::from(caps.subgroup);
    // How many of them at most, and of how many rows each. Lavapipe's compiler is not up to more.
    let (most, each) = if caps.cpu { (256, 2) } else { (512.min(caps.max_threads.into()), 16) };
    // Few sizes, each of which is a kernel to build.
    let threads = rows.next_power_of_two().max(subgroup).min(most);
    (matches!(subgroup, 4 | 8 | 16 | 32 | 64) && rows <= threads * each).then_some(threads)
}

/// Whether an update of this many multiplications is worth contraction's panels.
pub fn updates_by_panels(caps: &Capabilities, products: u64) -> bool {
    cpu_vectors(caps) && products >= MIN_PANEL_PRODUCTS
}

/// How the panels of an LU factorisation are factored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LuPanels {
    /// By one subgroup, in memory.
    Subgroup,
    /// By at most this many threads, which hold the rows in registers.
    Registers { threads: u64 },
    /// By one workgroup, in memory.
    Workgroup,
}

impl LuPanels {
    pub fn choose(caps: &Capabilities, ty: Type, order: u64) -> Self {
        match panel_threads(caps, order) {
            _ if cpu_vectors(caps) => Self::Subgroup,
            Some(threads) if order > block_width(ty) => Self::Registers { threads },
            _ => Self::Workgroup,
        }
    }

    /// Columns of a panel.
    pub fn columns(&self, ty: Type) -> u64 {
        if matches!(self, Self::Registers { .. }) { REGISTER_COLUMNS } else { block_width(ty) }
    }
}

/// The blocks of a Cholesky factorisation: `width` columns after `width` columns, the elements behind them in tiles of `tile`
/// rows and columns.
pub fn cholesky_blocks(caps: &Capabilities, ty: Type) -> [u64; 2] {
    let fits = |&[width, tile]: &[u64; 2]| {
        (width * (width + THREAD_COLUMNS + 1) + 2 * tile * (width + 1)) * ty.size() <= caps.max_shared.into()
    };
    let sizes = [[32, 64], [16, 64], [8, 64], [16, 32], [8, 32]];
    sizes.into_iter().find(fits).unwrap_or([8, 32])
}

/// How a triangular block is solved with: the threads of a workgroup, and of each column.
pub struct Substitution {
    /// Whether threads hand each other the triangle's elements, instead of through shared memory.
    pub broadcasts: bool,
    pub threads: u32,
    pub column_threads: u64,
}

pub fn substitution(caps: &Capabilities, ty: Type) -> Substitution {
    if cpu_vectors(caps) {
        return Substitution { broadcasts: true, threads: 32, column_threads: 1 };
    }
    Substitution { broadcasts: false, threads: 256, column_threads: block_width(ty) }
}

/// The type that a triangular system of this many multiplications is solved in, where the result is of type `ty`.
pub fn system_type(caps: &Capabilities, ty: Type, products: Option<u64>) -> Type {
    let exact = caps.float64 && products.is_some_and(|products| products <= MAX_DOUBLE_PRODUCTS);
    match ty {
        Type::F32 if exact => Type::F64,
        Type::C64 if exact => Type::C128,
        ty => ty,
    }
}

/// Whether the sums of an orthogonal decomposition are formed in double.
pub fn accumulates_f64(caps: &Capabilities, rows: u64, columns: u64) -> bool {
    caps.float64 && rows.max(columns) <= MAX_EXACT_ORDER
}

/// Threads that work on one column, and the columns of a workgroup. A CPU device runs eight threads as one vector; more would
/// only wait for each other.
pub fn column_threads(caps: &Capabilities) -> [u32; 2] {
    if caps.cpu { [8, 1] } else { [32, 4] }
}

/// Threads of a workgroup that has a matrix, or a few of its columns.
pub fn matrix_threads(caps: &Capabilities) -> u32 {
    if caps.cpu { 8 } else { 256 }
}

/// Threads of a workgroup of which each has an element.
pub fn element_threads(caps: &Capabilities) -> u32 {
    if caps.cpu { 64 } else { 256 }
}

/// The type that eigenvectors of matrices of this order are found in.
pub fn eigh_type(caps: &Capabilities, ty: Type, order: u64) -> Type {
    match ty {
        Type::F64 | Type::C64 | Type::C128 => ty,
        _ if caps.float64 && order > MAX_NX_ROUNDED_ORDER && order <= MAX_EXACT_ORDER => Type::F64,
        _ => Type::F32,
    }
}

/// The type that singular values of matrices of this many rows are found in.
pub fn svd_type(caps: &Capabilities, ty: Type, rows: u64) -> Type {
    if ty == Type::F64 || (caps.float64 && rows <= MAX_EXACT_ORDER) { Type::F64 } else { Type::F32 }
}

/// Whether columns are worth rotating by blocks: there are enough, and they are of real numbers.
pub fn rotates_by_blocks(work: Type, columns: u64) -> bool {
    columns > MAX_EXACT_ORDER && !work.is_complex()
}

/// Rotations of blocks of columns.
pub struct BlockRotations {
    /// Columns of a block: what shared memory takes.
    pub width: u64,
    /// Threads of a workgroup that multiplies tiles of two blocks' width.
    pub product_threads: u32,
    /// Threads of a workgroup that finds rotations: a multiple of the width, and no more than there is work for.
    pub rotation_threads: u32,
}

pub fn block_rotations(caps: &Capabilities, work: Type) -> BlockRotations {
    let bytes = |width: u64| 2 * (2 * width) * (2 * width + 1) * work.size() + 1024;
    let width = if bytes(32) <= caps.max_shared.into() { 32 } else { 16 };
    // As vectors of a CPU an invocation has a row.
    let product_threads = if cpu_vectors(caps) { 2 * width as u32 } else { 256 };
    let most = u64::from(caps.max_threads) / width * width;
    let rotation_threads = if caps.cpu { width } else { (16 * width).min(most) };
    BlockRotations { width, product_threads, rotation_threads: rotation_threads as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::devices::{h200, lavapipe};

    #[test]
    fn lu_panels_go_by_device_and_order() {
        assert_eq!(LuPanels::choose(&lavapipe(), Type::F32, 1000), LuPanels::Subgroup);
        assert_eq!(LuPanels::choose(&h200(), Type::F32, 32), LuPanels::Workgroup);
        assert_eq!(LuPanels::choose(&h200(), Type::F32, 100), LuPanels::Registers { threads: 128 });
        assert_eq!(LuPanels::choose(&h200(), Type::F32, 1 << 20), LuPanels::Workgroup);
        assert_eq!(LuPanels::Registers { threads: 128 }.columns(Type::C128), 16);
        assert_eq!([Type::F32, Type::C128].map(|ty| LuPanels::Workgroup.columns(ty)), [32, 16]);
    }

    #[test]
    fn panels_in_registers_have_all_rows() {
        for caps in [h200(), lavapipe()] {
            for rows in [1, 7, 64, 500, 512, 8192] {
                let Some(threads) = panel_threads(&caps, rows) else { continue };
                assert!(threads >= caps.subgroup.into() && threads.is_power_of_two());
                assert!(rows.div_ceil(threads) <= 16);
            }
        }
        assert_eq!(panel_threads(&lavapipe(), 513), None);
        assert_eq!(panel_threads(&h200(), 8193), None);
    }

    #[test]
    fn cholesky_blocks_fit_shared_memory() {
        assert_eq!(cholesky_blocks(&h200(), Type::F32), [32, 64]);
        assert_eq!(cholesky_blocks(&lavapipe(), Type::C128), [8, 64]);
    }

    #[test]
    fn small_matrices_are_worked_on_in_double() {
        assert_eq!(
            [16, 17, 64, 65].map(|n| eigh_type(&h200(), Type::F32, n)),
            [Type::F32, Type::F64, Type::F64, Type::F32]
        );
        assert_eq!([64, 65].map(|n| svd_type(&h200(), Type::F32, n)), [Type::F64, Type::F32]);
        assert_eq!(system_type(&h200(), Type::C64, Some(1 << 22)), Type::C128);
        assert_eq!(system_type(&h200(), Type::F32, None), Type::F32);
        let caps = Capabilities { float64: false, ..h200() };
        assert_eq!(system_type(&caps, Type::F32, Some(1)), Type::F32);
        assert!(!accumulates_f64(&caps, 2, 2) && accumulates_f64(&h200(), 64, 2) && !accumulates_f64(&h200(), 65, 2));
    }

    #[test]
    fn blocks_of_rotations_fit_shared_memory() {
        let widths = |caps: &Capabilities| [Type::F32, Type::F64].map(|ty| block_rotations(caps, ty).width);
        assert_eq!((widths(&h200()), widths(&lavapipe())), ([32, 16], [16, 16]));
        assert_eq!(block_rotations(&h200(), Type::F32).rotation_threads, 512);
        assert_eq!(block_rotations(&lavapipe(), Type::F32).rotation_threads, 16);
        assert!(rotates_by_blocks(Type::F32, 65) && !rotates_by_blocks(Type::C64, 65));
    }
}
