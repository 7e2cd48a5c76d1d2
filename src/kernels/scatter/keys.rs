//! The kernel that writes the slice that each row goes to.

use std::sync::Arc;

use super::ScatterShape;
use crate::device::Capabilities;
use crate::graph::Params;
use crate::kernels::KernelSpec;
use crate::memory::{Allocation, CheckedIndices};
use crate::program::Type;
use crate::program::emit::{element, head};
use crate::program::types::Compute;
use crate::tuning::scatter::SCATTER_THREADS;

/// Writes the slice that each row goes to.
#[derive(Hash)]
pub(super) struct ScatterKeyKernel {
    pub indices: Type,
    /// Indices of a row.
    pub axes: usize,
    pub checked: bool,
    pub index64: bool,
}

pub(super) struct KeyArgs<'a> {
    pub shape: &'a ScatterShape,
    pub indices: &'a Allocation,
    pub targets: &'a Allocation,
    pub check: Option<&'a Arc<CheckedIndices>>,
}

impl KernelSpec for ScatterKeyKernel {
    type Args<'a> = KeyArgs<'a>;

    fn params<'a>(&self, args: &KeyArgs<'a>, params: &mut Params<'a>) {
        params.write(args.targets, "uint", "targets");
        params.extents(self.index64, [("threads", args.shape.rows), ("rows", args.shape.rows)]);
        params.read(args.indices, self.indices.storage(), "indices");
        if let Some(check) = args.check {
            params.check(check, "check");
        }
        for (k, &dim) in args.shape.dims.iter().enumerate() {
            params.extent(dim, self.index64, ("dim", k));
        }
    }

    fn groups(&self, args: &KeyArgs) -> u64 {
        args.shape.rows.div_ceil(SCATTER_THREADS)
    }

    fn source(&self, caps: &Capabilities, parameters: &str) -> String {
        let mut target = String::from("IDX target_of(IDX j) {\n  IDX target = 0;\n");
        for k in 0..self.axes {
            let (index, _) = element(self.indices, "indices", &format!("j * {} + {k}", self.axes));
            let index = match self.checked {
                true => format!("checked_index({index}, p.dim{k}, p.check, {k}u)"),
                false => format!("clamp_index({index}, p.dim{k})"),
            };
            target += &format!("  target = target * p.dim{k} + {index};\n");
        }
        format!(
            "{head}#define KEYS\n#define THREADS {SCATTER_THREADS}\n#include \"lib/indices.glsl\"\n\
             #include \"lib/bounds.glsl\"\n{target}  return target;\n}}\n\
             layout(local_size_x = {SCATTER_THREADS}) in;\n\
             #include \"lib/scatter.glsl\"\n",
            head = head(
                caps,
                self.index64,
                &[self.indices.storage(), "uint"],
                &[self.indices.compute(), Compute::Uint],
                parameters
            ),
        )
    }
}
