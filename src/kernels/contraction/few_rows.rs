//! The kernel of products of a few rows with a matrix on CPU devices: `lib/matmul_few_rows.glsl` with what it asks for. Which operand
//! has the few rows, and how lanes share the matrix, `tuning` chooses.

use super::indexing::{self, Indexing};
use super::matmul::multiply_add;
use super::stores::KernelEpilogue;
use crate::device::Capabilities;
use crate::graph::Params;
use crate::kernels::KernelSpec;
use crate::kernels::fusion::Destination;
use crate::memory::Allocation;
use crate::program::Type;
use crate::program::emit::{
    EPILOGUE_PARAMETERS, EmittedEpilogue, assign, convert, element, head, load, stored, vec4_bytes, vec4_of,
};
use crate::program::types::Compute;
use crate::tuning::contraction::{AxisGroups, ContractionShape, FewRows, FewRowsTile, of_accumulator};

/// Rows of a tile up to which all its steps and stores are unrolled. Of 16 rows LLVM takes 0.5 s so, and 0.08 with a quarter of the steps
/// and one store, which are as fast.
const MAX_UNROLLED_ROWS: u64 = 8;

/// The kernel of a tile of few rows.
#[derive(Hash)]
pub struct FewRowsKernel {
    tile: FewRowsTile,
    accumulator: Compute,
    /// The type of the result or, where k is split, of the partial sums.
    ty: Type,
    operand_types: [Type; 2],
    indexing: Indexing,
    epilogue: Option<KernelEpilogue>,
}

/// What a launch gives: the result, and the operands with their offsets in bytes.
pub struct FewRowsArgs<'a> {
    pub c: Destination<'a>,
    pub operands: [(&'a Allocation, u64); 2],
    pub groups: &'a AxisGroups,
    pub few_rows: &'a FewRows,
}

impl FewRowsKernel {
    pub fn new(
        few_rows: &FewRows,
        groups: &AxisGroups,
        shape: &ContractionShape,
        ty: Type,
        epilogue: Option<KernelEpilogue>,
    ) -> Self {
        let &FewRows { tile, accumulator, .. } = few_rows;
        let operand_types = shape.operands.map(|operand| operand.ty);
        Self { tile, accumulator, ty, operand_types, indexing: Indexing::of(groups), epilogue }
    }

    /// The macros of an operand, whose names begin with `name`.
    fn operand(&self, name: &str, operand: char) -> String {
        let ty = self.operand_types[usize::from(operand != 'a')];
        let storage = ty.storage();
        // Any element is a double as it is. `to_f64` would find subnormals of f32 again, in ten instructions: here they are what arithmetic in
        // f32 takes them for, as in products by panels.
        let sum = of_accumulator(self.accumulator, self.ty);
        let value = |(value, ty)| if self.accumulator == Compute::Double { value } else { convert((value, ty), sum) };
        let parameter = if operand == 'a' { "a" } else { "b" };
        format!(
            "#define {name}_VECTOR {}\n#define {name}_LOAD(start, i) LOAD_VEC4({storage}, start, i)\n#define {name}_BYTES {}u\n#define {name}_START p.{operand}\n\
             #define {name}_VALUE(x) ACCUMULATOR({})\n#define {name}_AT(offset) ACCUMULATOR({})\n\
             #define {name}_BATCH {}\n#define {name}_DEPTH(k) {}\n",
            vec4_of(storage),
            vec4_bytes(storage) / 4,
            value((load(ty, "x"), ty)),
            value(element(ty, parameter, "(offset)")),
            self.indexing.offset(operand, "batch", "batch"),
            self.indexing.offset(operand, "k", "k"),
        )
    }

    fn has_many_rows(&self) -> bool {
        self.tile.rows > MAX_UNROLLED_ROWS
    }

    /// How sums are stored: the macros, after what an epilogue needs.
    fn stores(&self, emitted: Option<&EmittedEpilogue>, caps: &Capabilities) -> String {
        let ty = self.ty;
        let offset = |group, index| self.indexing.offset('c', group, index);
        let (_, columns) = self.tile.matrix();
        let at = format!("(target + {} + {})", offset(self.tile.row_group(), "i"), offset(columns, "j"));
        let value = ("(v)".to_string(), of_accumulator(self.accumulator, ty));
        let many = self.has_many_rows();
        if let (Some(emitted), Some(KernelEpilogue { program, rolled, .. })) = (emitted, &self.epilogue) {
            let (results, (storage, name)) = match &emitted.reduction {
                None => (String::new(), (program.program.result().storage(), "result")),
                Some(reduction) => (
                    format!(
                        "#define LAST_WINS {}\n#include \"lib/reduce.glsl\"\n{}",
                        reduction.last_wins,
                        reduction.functions([self.tile.lanes as u32; 2], caps)
                    ),
                    (reduction.partial(), "partial_out0"),
                ),
            };
            return format!(
                "{}{}{results}#define STORE(target, i, j, v) store_element({at}, {})\n\
                 #define KEEP(word) AT({storage}, p.{EPILOGUE_PARAMETERS}{name}, 0) = {storage}(word)\n\
                 #define ROLLED_STORES {}\n",
                emitted.includes(&[]),
                emitted.functions,
                stored(ty, value),
                u8::from(*rolled || many),
            );
        }
        let storage = ty.storage();
        format!(
            "#define STORE(target, i, j, v) {}\n#define KEEP(word) AT({storage}, p.c, 0) = {storage}(word)\n\
             #define ROLLED_STORES {}\n",
            assign(ty, "c", &at, value),
            u8::from(many),
        )
    }
}

impl KernelSpec for FewRowsKernel {
    type Args<'a> = FewRowsArgs<'a>;

    fn name(&self) -> String {
        let FewRowsTile { rows, columns_along_k, .. } = self.tile;
        let [a, b] = self.operand_types.map(Type::suffix);
        let order = if columns_along_k > 0 { "k" } else { "columns" };
        format!("matmul of {rows} rows along {order} {a}·{b} → {}", self.ty.suffix())
    }

    fn params<'a>(&self, args: &FewRowsArgs<'a>, params: &mut Params<'a>) {
        args.c.operands(self.ty, "c", params);
        for (i, name) in ["a", "b"].into_iter().enumerate() {
            let (allocation, offset) = args.operands[i];
            params.read_at(allocation, offset, self.operand_types[i].storage(), name);
        }
        let [.., k] = args.groups.sizes();
        params.operations(args.groups.operations());
        let [rows, columns] = self.tile.extents(args.groups);
        let FewRows { splits, chunk, .. } = *args.few_rows;
        params.extents(false, [("rows", rows), ("columns", columns), ("k", k), ("groups", self.groups(args))]);
        let elements = args.groups.elements();
        params.extents(false, [("splits", splits), ("chunk", chunk), ("elements", elements), ("none", 0)]);
        indexing::params(args.groups, params, false);
        args.c.indices(false, params);
    }

    fn groups(&self, args: &FewRowsArgs<'_>) -> u64 {
        self.tile.workgroups(args.groups) * args.few_rows.splits
    }

    fn source(&self, caps: &Capabilities, parameters: &str) -> String {
        let FewRowsTile { lanes, rows, operand, vectors, columns_along_k } = self.tile;
        let emitted = self.epilogue.as_ref().map(|epilogue| epilogue.emit(caps));
        let types = [self.ty, self.operand_types[0], self.operand_types[1]];
        let (mut storages, mut computes) = (types.map(Type::storage).to_vec(), types.map(Type::compute).to_vec());
        computes.push(self.accumulator);
        if let Some(emitted) = &emitted {
            storages.extend_from_slice(&emitted.storages);
            computes.extend_from_slice(&emitted.computes);
        }
        let (matrix, group) = self.tile.matrix();
        format!(
            "{head}#include \"lib/complex.glsl\"\n{functions}\
             #define LANES {lanes}u\n#define ROWS {rows}u\n#define VECTORS {vectors}u\n#define COLUMNS {columns_along_k}u\n\
             #define UNROLLED_STEPS {unrolled_steps}u\n\
             #define ALONG_K {along_k}\n#define ACCUMULATOR {accumulator}\n#define MULTIPLY_ADD(a, b, c) {multiply_add}\n\
             {rows_operand}#define ROW_LINE(i) {line}\n{matrix_operand}#define MATRIX_COLUMN(j) {column}\n\
             #define RESULT_BATCH {result_batch}\n{stores}#include \"lib/matmul_few_rows.glsl\"\n",
            head = head(caps, false, &storages, &computes, parameters),
            functions = self.indexing.offset_functions(),
            unrolled_steps = if self.has_many_rows() { lanes / 4 } else { lanes },
            along_k = u8::from(columns_along_k > 0),
            accumulator = self.accumulator.glsl(),
            multiply_add = multiply_add(caps, self.accumulator),
            rows_operand = self.operand("ROW", operand),
            line = self.indexing.offset(operand, self.tile.row_group(), "i"),
            matrix_operand = self.operand("MATRIX", matrix),
            column = self.indexing.offset(matrix, group, "j"),
            stores = self.stores(emitted.as_ref(), caps),
            result_batch = self.indexing.offset('c', "batch", "batch"),
        )
    }
}
