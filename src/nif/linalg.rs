//! Linear algebra on batches of matrices.

use rustler::Term;

use super::*;
use crate::kernels::linalg::{cholesky, lu, triangular};
use crate::kernels::matrices::Matrices;
use crate::memory::Patience;

pair!(triangular_solve, triangular_solve_dirty, (out_type, a, b, permutation, options), reply, solve);
pair!(cholesky, cholesky_dirty, (out_type, a), reply, cholesky_factor);
pair!(lu, lu_dirty, (out_type, a), reply, lu_factors);

fn solve(out_type: Term, a: Term, b: Term, permutation: Term, options: Term, patience: Patience) -> Result<BufferRef> {
    let ty = type_arg(out_type, "out_type")?;
    let (a, b) = (tensor_arg(a, "a")?, tensor_arg(b, "b")?);
    let (a, b) = (Matrices::new(&a.0, a.1, &a.2)?, Matrices::new(&b.0, b.1, &b.2)?);
    let permutation = if is_nil(permutation) { None } else { Some(buffer_arg(permutation, "permutation")?) };
    let options = options_arg(options)?;
    let permutation = permutation.as_deref();
    triangular::run(gpu(patience)?, ty, &a, &b, permutation, options, patience).map(BufferRef::from)
}

fn cholesky_factor(out_type: Term, a: Term, patience: Patience) -> Result<BufferRef> {
    let ty = type_arg(out_type, "out_type")?;
    let (buffer, a_type, shape) = tensor_arg(a, "a")?;
    let a = Matrices::new(&buffer, a_type, &shape)?;
    cholesky::run(gpu(patience)?, ty, &a, patience).map(BufferRef::from)
}

/// `{packed, permutation}`.
fn lu_factors(out_type: Term, a: Term, patience: Patience) -> Result<(BufferRef, BufferRef)> {
    let ty = type_arg(out_type, "out_type")?;
    let (buffer, a_type, shape) = tensor_arg(a, "a")?;
    let a = Matrices::new(&buffer, a_type, &shape)?;
    let factors = lu::run(gpu(patience)?, ty, &a, patience)?;
    Ok((factors.packed.into(), factors.permutation.into()))
}

/// A list of `:upper`, `:right`, `:transpose`, `:conjugate` and `:unit`.
fn options_arg(term: Term) -> Result<triangular::Options> {
    let mut options = triangular::Options::default();
    for option in list_arg(term, "options")? {
        let name = option.atom_to_string().map_err(|_| wrong("options", "atoms"))?;
        let flag = match name.as_str() {
            "upper" => &mut options.upper,
            "right" => &mut options.right,
            "transpose" => &mut options.transpose,
            "conjugate" => &mut options.conjugate,
            "unit" => &mut options.unit,
            _ => return Err(wrong("options", ":upper, :right, :transpose, :conjugate or :unit")),
        };
        *flag = true;
    }
    Ok(options)
}
