//! Rows that fit in a workgroup's shared memory.

use super::*;

const THREADS: u64 = 256;

/// The most elements of a thread. A processor's compiler takes long over more, and sorts longer rows as fast by radix.
const MOST_EACH: u64 = 16;
const MOST_EACH_OF_PROCESSOR: u64 = 4;

/// How many neighbours in rows of `len` elements a thread sorts and merges; `None` where a workgroup has no room for a row.
fn each(cx: &Context, ty: Type, len: u64) -> Option<u64> {
    let most = if cx.caps().cpu { MOST_EACH_OF_PROCESSOR } else { MOST_EACH };
    // Keys and places, and one in 32 more.
    let fits = |each: u64| shared(THREADS * each * 33 / 32 + 1, ty) <= cx.caps().max_shared.into();
    [2, 4, 8, 16].into_iter().find(|&each| each >= len.min(4) && each <= most && THREADS * each >= len && fits(each))
}

impl Run<'_> {
    /// Whether the rows are short enough, and then sorted.
    pub fn merge(&self) -> Attempt<bool> {
        let Self { cx, whole } = *self;
        let sort = whole.sort;
        let Some(each) = each(cx, sort.rows.ty, sort.rows.len) else {
            return Ok(false);
        };
        let rows_each = THREADS * each / sort.rows.len.next_multiple_of(each);
        let groups = sort.rows.count().div_ceil(rows_each);
        let params = |params: &mut Params| {
            whole.addresses(params);
            let extents = [
                ("groups", groups),
                ("rows_each", rows_each),
                ("rows", sort.rows.count()),
                ("n", sort.rows.len),
                ("keep", sort.keep),
                ("inner", sort.rows.inner),
            ];
            params.extents(sort.rows.index64(), extents);
            sort.order(params, 0);
        };
        let writes: Vec<&Allocation> = whole.writes().collect();
        let kernel = Kernel {
            key: &[b"merge".as_slice(), &whole.key(), &[each as u8]].concat(),
            params: &params,
            source: &|parameters| {
                format!(
                    "{head}#define THREADS {THREADS}u\n#define EACH {each}u\n#include \"lib/sort/merge.glsl\"\n",
                    head = whole.head(cx, parameters, THREADS as u32),
                )
            },
            groups,
            reads: &[whole.source],
            writes: &writes,
        };
        kernel.launch(cx)?;
        Ok(true)
    }
}
