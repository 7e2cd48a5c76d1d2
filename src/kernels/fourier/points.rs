//! The GLSL by which the kernels of passes load and store points: from and to tensors of any type or memory between passes,
//! with the chirp where a convolution asks for it. Which points a pass takes is not known here.

use super::kernel::{FourierKernel, PointSink, PointSource, point_type};
use crate::program::Type;
use crate::program::emit::{convert, load as load_element, stored as store_element};

/// The definition of `load_point`.
pub(super) fn load(kernel: &FourierKernel) -> String {
    let storage = point_type(kernel.in_double).storage();
    let body = match kernel.loads {
        PointSource::Tensor { ty, chirp } => load_from_tensor(kernel, ty, chirp),
        PointSource::Points => format!("return AT({storage}, p.source, outer * p.source_elements + at);"),
        PointSource::Filter => {
            "IDX k = min(at, p.padded - at); return k < p.points ? c_conjugate(chirp(k, p.points)) : C(0);".into()
        }
        PointSource::Product => format!(
            "C v = AT({storage}, p.source, outer * p.source_elements + at); \
             return c_conjugate(c_multiply(v, AT({storage}, p.filter_, at / p.inner)));",
        ),
    };
    format!("C load_point(IDX outer, IDX at) {{ {body} }}\n")
}

/// Without branches: a thread's reads should not wait for each other.
fn load_from_tensor(kernel: &FourierKernel, ty: Type, chirp: bool) -> String {
    let element = load_element(ty, &format!("AT({}, p.source, outer * p.source_elements + at)", ty.storage()));
    let part = |value: &str, from: Type| {
        let to = if kernel.in_double { Type::F64 } else { Type::F32 };
        convert((value.into(), from), to)
    };
    let value = match ty {
        Type::C64 => format!("C({}, {})", part("z.x", Type::F32), part("z.y", Type::F32)),
        Type::C128 => format!("C({}, {})", part("z.x", Type::F64), part("z.y", Type::F64)),
        _ => format!("C({}, 0)", part("z", ty)),
    };
    let index = if chirp || kernel.hermitian { "IDX k = at / p.inner; " } else { "" };
    let outside = if chirp { "k < p.points && " } else { "" };
    let mirror = if kernel.hermitian {
        "bool mirrored = k > p.points / 2; \
         if (mirrored) at = (p.points - k) * p.inner + (at - k * p.inner); "
    } else {
        "const bool mirrored = false; "
    };
    let chirped = if chirp { "v = c_multiply(v, chirp(k, p.points)); " } else { "" };
    format!(
        "{index}{mirror}bool inside = {outside}at < p.source_elements; at = min(at, p.source_elements - 1); \
         {} z = {element}; C v = {value}; \
         if (mirrored != (p.inverse != 0)) v = c_conjugate(v); {chirped}return inside ? v : C(0);",
        ty.compute().glsl(),
    )
}

/// The definition of `store_point`.
pub(super) fn store(kernel: &FourierKernel) -> String {
    let storage = point_type(kernel.in_double).storage();
    let body = match kernel.stores {
        PointSink::Points => format!("AT({storage}, p.result, outer * p.result_elements + at) = v;"),
        PointSink::Tensor { ty, chirp } => store_to_tensor(kernel, ty, chirp),
    };
    format!("void store_point(IDX outer, IDX at, C v) {{ {body} }}\n")
}

fn store_to_tensor(kernel: &FourierKernel, ty: Type, chirp: bool) -> String {
    let real = if kernel.in_double { Type::F64 } else { Type::F32 };
    let part = |value: &str, to: Type| store_element(to, (value.into(), real));
    let element = match ty {
        Type::C64 => format!("vec2({}, {})", part("v.x", Type::F32), part("v.y", Type::F32)),
        Type::C128 => format!("dvec2({}, {})", part("v.x", Type::F64), part("v.y", Type::F64)),
        _ => part("v.x", ty),
    };
    let real_of = |name| {
        if kernel.in_double { format!("packDouble2x32({name})") } else { format!("uintBitsToFloat({name}.x)") }
    };
    let chirped = if chirp { "v = c_multiply(c_conjugate(v), chirp(at / p.inner, p.points)); " } else { "" };
    format!(
        "if (at >= p.result_elements) return; {chirped}v *= {scale}; \
         if (p.inverse != 0) v = c_conjugate(v); \
         R eps = {eps}; \
         if (abs(v.x) <= eps) v.x = R(0); if (abs(v.y) <= eps) v.y = R(0); \
         AT({storage}, p.result, outer * p.result_elements + at) = {element};",
        scale = real_of("p.scale"),
        eps = real_of("p.eps"),
        storage = ty.storage(),
    )
}
