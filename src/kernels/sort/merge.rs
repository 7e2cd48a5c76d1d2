//! Rows that fit in a workgroup's shared memory.

use super::*;

/// Elements of a workgroup: with keys of 64 bits and places, 12 KiB of the 16 KiB that every device has.
pub const TILE: u64 = 1024;

impl Run<'_> {
    pub fn merge(&self) -> Result<()> {
        let Self { gpu, sort, source, values, places, patience } = *self;
        let rows_each = TILE / sort.rows.len;
        let groups = sort.rows.count().div_ceil(rows_each);
        let params = |params: &mut Params| {
            params.address(source.address, sort.stored(), format_args!("source"));
            if let Some(values) = values {
                params.address(values.address, sort.stored(), format_args!("values"));
            }
            if let Some((places, ty)) = places.zip(sort.places) {
                params.address(places.address, ty.storage(), format_args!("places"));
            }
            let extents = [
                ("groups", groups),
                ("rows_each", rows_each),
                ("rows", sort.rows.count()),
                ("n", sort.rows.len),
                ("keep", sort.keep),
                ("inner", sort.rows.inner),
            ];
            params.extents(sort.rows.wide(), extents);
            sort.order(params, 0);
        };
        let places_type = sort.places.map_or(255, |ty| ty as u8);
        let variant = [sort.rows.ty.bits() as u8, sort.rows.wide().into(), sort.values.into(), places_type];
        let writes: Vec<&Block> = values.into_iter().chain(places).map(|lease| &**lease).collect();
        let kernel = Kernel {
            key: &[b"merge", variant.as_slice()].concat(),
            params: &params,
            source: &|parameters| {
                format!(
                    "{head}{write}#define TILE {TILE}u\n#include \"lib/sort/merge.glsl\"\n",
                    head = sort.head(gpu, parameters, sort.places, 256),
                    write = sort.write(sort.values, sort.places.map(|ty| ("i", ty))),
                )
            },
            groups,
            reads: &[source],
            writes: &writes,
        };
        kernel.launch(gpu, patience)
    }
}
