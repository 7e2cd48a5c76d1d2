//! Products of tensors over any axes: `Nx.dot/6`.

use smallvec::SmallVec;

use super::Tensor;
use super::contraction::{Axis, Contraction, OperandView};
use crate::error::{Error, Result};
use crate::program::{Axes, Type, dense_strides, elements};

/// A factor: a tensor and the roles of its axes, in the order in which the other factor's match.
pub struct Factor<'a> {
    /// The factor's elements and their type.
    pub tensor: Tensor<'a>,
    /// The axes that are summed over, distinct and below the rank.
    pub contract: SmallVec<[usize; 4]>,
    /// The axes that the result keeps in common with the other factor, distinct from the contracted ones.
    pub batch: SmallVec<[usize; 4]>,
}

/// The contraction that gives the tensor of type `ty` and shape batch ++ free axes of `a` ++ free axes of `b`, summed over the
/// contracted axes.
pub fn contraction<'a>(ty: Type, a: &Factor<'a>, b: &Factor<'a>) -> Result<Contraction<'a>> {
    let (sa, sb) = (a.strides()?, b.strides()?);
    let (free_a, free_b) = (a.free(), b.free());
    let dims = |factor: &Factor, axes: &[usize]| axes.iter().map(|&axis| factor.dim(axis)).collect::<Axes<u64>>();
    if dims(a, &a.batch) != dims(b, &b.batch) || dims(a, &a.contract) != dims(b, &b.contract) {
        return Err(Error::SizeMismatch);
    }
    let shape: Axes<u64> = [dims(a, &a.batch), dims(a, &free_a), dims(b, &free_b)].into_iter().flatten().collect();
    if elements(&shape)? > 1 << 60 {
        return Err(Error::SizeMismatch);
    }
    let mut strides = dense_strides(&shape).into_iter();
    let mut c = || strides.next().unwrap_or_default();
    let both = |i: usize, j: usize, c: i64| Axis { dim: a.dim(i), a: sa[i], b: sb[j], c, padded: None };
    Ok(Contraction {
        ty,
        a: a.view(),
        b: b.view(),
        batch: a.batch.iter().zip(&b.batch).map(|(&i, &j)| both(i, j, c())).collect(),
        rows: free_a.iter().map(|&i| Axis { dim: a.dim(i), a: sa[i], b: 0, c: c(), padded: None }).collect(),
        columns: free_b.iter().map(|&j| Axis { dim: b.dim(j), a: 0, b: sb[j], c: c(), padded: None }).collect(),
        depth: a.contract.iter().zip(&b.contract).map(|(&i, &j)| both(i, j, 0)).collect(),
        padded_axes: vec![],
    })
}

impl<'a> Factor<'a> {
    /// The strides of its axes; fails where their roles overlap or the buffer is too small.
    fn strides(&self) -> Result<Axes<i64>> {
        let named: SmallVec<[usize; 8]> = self.contract.iter().chain(&self.batch).copied().collect();
        let repeated = (1..named.len()).any(|i| named[..i].contains(&named[i]));
        if repeated || named.iter().any(|&axis| axis >= self.tensor.shape.len()) {
            return Err(Error::Argument("axes: expected distinct axes of the operand".into()));
        }
        self.tensor.elements()?;
        Ok(dense_strides(self.tensor.shape))
    }

    fn dim(&self, axis: usize) -> u64 {
        self.tensor.shape[axis]
    }

    fn view(&self) -> OperandView<'a> {
        let Tensor { buffer, ty, .. } = self.tensor;
        OperandView { buffer, ty, offset: 0 }
    }

    fn free(&self) -> SmallVec<[usize; 8]> {
        let free = |axis: &usize| !self.contract.contains(axis) && !self.batch.contains(axis);
        (0..self.tensor.shape.len()).filter(free).collect()
    }
}
