//! The leapfrog chain of the regime model against a reference in f64 on the CPU, and the invariants of the integrator.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "no one links a crate of tests, whose helpers may panic as the tests do"
)]

mod model;
#[path = "../support/mod.rs"]
mod support;

use std::path::Path;

use model::{Chain, Model, case};
use nx_vulkan::kernels::user_spirv::Call;
use nx_vulkan::memory::Blocking;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Precision {
    F32,
    F64,
}

use Precision::{F32, F64};

/// What the device computes in.
fn precisions() -> &'static [Precision] {
    if support::device().caps.float64 { &[F32, F64] } else { &[F32] }
}

impl Precision {
    fn spv(self) -> String {
        let name = if self == F32 { "leapfrog_regime.spv" } else { "leapfrog_regime_f64.spv" };
        Path::new(env!("CARGO_MANIFEST_DIR")).join("priv/shaders").join(name).to_string_lossy().into_owned()
    }

    fn unit(self) -> f64 {
        if self == F32 { f32::EPSILON as f64 } else { f64::EPSILON }
    }

    fn bytes(self, values: impl IntoIterator<Item = f64>) -> Vec<u8> {
        let values = values.into_iter();
        match self {
            F32 => values.flat_map(|x| (x as f32).to_le_bytes()).collect(),
            F64 => values.flat_map(f64::to_le_bytes).collect(),
        }
    }

    fn values(self, bytes: &[u8]) -> Vec<f64> {
        match self {
            F32 => bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b) as f64).collect(),
            F64 => bytes.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect(),
        }
    }
}

/// The chain on the device, over the model's observations, each repeated by its multiplicity.
fn device(precision: Precision, model: &Model, q: &[f64], p: &[f64], eps: f32, steps: usize) -> Chain {
    let rounds = model.obs.iter().map(|o| o.1 as usize).max().unwrap_or(0);
    let obs = (0..rounds).flat_map(|round| model.obs.iter().filter(move |o| round < o.1 as usize).map(|o| o.0));
    let extras = precision.bytes(obs.chain(model.inverse_mass.iter().copied()));
    let n_obs = model.obs.iter().map(|o| o.1 as u32).sum::<u32>();
    let push: Vec<u8> =
        [steps as u32, n_obs, q.len() as u32, 0, eps.to_bits()].iter().flat_map(|w| w.to_le_bytes()).collect();
    let (q, p) = (precision.bytes(q.iter().copied()), precision.bytes(p.iter().copied()));
    let path = precision.spv();
    let call = Call::new(support::device(), &path, Blocking::Allowed);
    let out = call.leapfrog([&q, &p, &extras], &push, steps as u64, false).expect("the chain runs");
    let [q, p, grad, logp] = out.map(|readback| precision.values(readback.bytes()));
    Chain { q, p, grad, logp }
}

fn assert_close(what: &str, got: f64, want: f64, tolerance: f64) {
    assert!((got - want).abs() <= tolerance, "{what}: {got} is not {want} within {tolerance:e}");
}

fn assert_chains_close(got: &Chain, want: &Chain, tolerance: f64) {
    for (what, got, want) in [
        ("q", &got.q, &want.q),
        ("p", &got.p, &want.p),
        ("grad", &got.grad, &want.grad),
        ("logp", &got.logp, &want.logp),
    ] {
        assert_eq!(got.len(), want.len(), "length of {what}");
        let scale = want.iter().fold(1.0, |m: f64, x| m.max(x.abs()));
        for (i, (&got, &want)) in got.iter().zip(want).enumerate() {
            assert_close(&format!("{what}[{i}]"), got, want, tolerance * scale);
        }
    }
}

/// The density and gradient at q: a chain of one step of length 0.
fn evaluate(precision: Precision, model: &Model, q: &[f64]) -> Chain {
    let chain = device(precision, model, q, &vec![0.0; q.len()], 0.0, 1);
    assert_eq!(chain.q, q, "a step of length 0 moves nothing");
    chain
}

fn assert_density(precision: Precision, model: &Model, q: &[f64]) {
    let got = evaluate(precision, model, q);
    let want = model.density(q);
    // A dozen roundings a term at most, of which divisions may be 2.5 ulp off.
    let unit = 8.0 * precision.unit();
    let d = q.len();
    let n_obs = model.obs.iter().map(|o| o.1).sum::<f64>();
    assert_close(&format!("{precision:?} d={d} n_obs={n_obs} logp"), got.logp[0], want.logp, unit * want.terms[d]);
    for i in 0..d {
        assert_close(
            &format!("{precision:?} d={d} n_obs={n_obs} grad[{i}]"),
            got.grad[i],
            want.grad[i],
            unit * want.terms[i],
        );
    }
}

/// d log p / d q_i by central differences with one Richardson step: error O(h⁴).
fn difference(q: &[f64], i: usize, logp: impl Fn(&[f64]) -> f64) -> f64 {
    let slope = |h: f64| {
        let mut shifted = q.to_vec();
        shifted[i] = q[i] + h;
        let up = logp(&shifted);
        shifted[i] = q[i] - h;
        (up - logp(&shifted)) / (2.0 * h)
    };
    (4.0 * slope(1e-3) - slope(2e-3)) / 3.0
}

#[test]
fn the_reference_gradient_is_the_derivative_of_the_reference_density() {
    for (seed, d, n_obs) in (0..40).map(|s| (s, 1 + s as usize % 11, [0, 1, 50][s as usize % 3])) {
        let (model, q, _) = case(seed, d, n_obs);
        let density = model.density(&q);
        for i in 0..d {
            let numeric = difference(&q, i, |q| model.density(q).logp);
            assert_close(&format!("seed {seed} grad[{i}]"), density.grad[i], numeric, 1e-8 * (1.0 + density.terms[i]));
        }
    }
}

/// exp of the density integrates to one over a parameter that only its prior concerns, sigmas and normals alike.
#[test]
fn the_reference_density_is_normalised() {
    let model = Model { obs: vec![], inverse_mass: vec![1.0; 8] };
    let at_zero = |i: usize, x: f64| {
        let mut q = vec![0.0; 8];
        q[i] = x;
        model.density(&q).logp.exp()
    };
    let peak = model.density(&[0.0; 8]).logp.exp();
    for i in 0..8 {
        // The priors are independent: p_i(x) = joint(x) / joint(0) * p_i(0).
        let h = 1e-2;
        let ratio: f64 = (-4000..=4000).map(|k| at_zero(i, k as f64 * h) / peak).sum::<f64>() * h;
        let alone = model.density(&[0.0; 8]).logp
            - model.density(&[0.0; 8][..i]).logp
            - (i + 1..8).map(|j| model.density(&[0.0; 8][..=j]).logp - model.density(&[0.0; 8][..j]).logp).sum::<f64>();
        assert_close(&format!("integral over parameter {i}"), ratio * alone.exp(), 1.0, 1e-9);
    }
}

#[test]
fn the_gradient_on_the_device_is_the_derivative_of_its_density() {
    if !precisions().contains(&F64) {
        return; // differences need doubles
    }
    for (seed, d, n_obs) in [(1, 1, 40), (2, 7, 40), (3, 8, 200), (4, 8, 0), (5, 11, 257)] {
        let (model, q, _) = case(seed, d, n_obs);
        let grad = evaluate(F64, &model, &q).grad;
        let terms = model.density(&q).terms;
        for i in 0..d {
            let numeric = difference(&q, i, |q| evaluate(F64, &model, q).logp[0]);
            assert_close(&format!("d={d} n_obs={n_obs} grad[{i}]"), grad[i], numeric, 1e-8 * (1.0 + terms[i]));
        }
    }
}

#[test]
fn density_and_gradient_hold_for_every_number_of_parameters() {
    for d in 1..=256 {
        let (model, q, _) = case(d as u64, d, 33);
        precisions().iter().for_each(|&precision| assert_density(precision, &model, &q));
    }
}

#[test]
fn density_and_gradient_hold_for_every_number_of_observations() {
    for n_obs in [0, 1, 2, 31, 32, 33, 200, 255, 256, 257, 511, 512, 513, 64 * 256 - 1, 64 * 256 + 1, 100_003] {
        for d in [5, 8, 20] {
            let (model, q, _) = case(n_obs as u64, d, n_obs);
            precisions().iter().for_each(|&precision| assert_density(precision, &model, &q));
        }
    }
}

#[test]
fn sums_over_sixteen_million_observations_stay_accurate() {
    let n_obs = 65_535 * 256 + 1;
    let (mut model, q, _) = case(7, 8, 1009);
    for (j, o) in model.obs.iter_mut().enumerate() {
        o.1 = (n_obs / 1009 + usize::from(j < n_obs % 1009)) as f64;
    }
    assert_density(F32, &model, &q);
}

/// Single precision has to hold far from the mode, where exp of a component's log density underflows.
#[test]
fn the_density_is_stable_far_from_the_mode() {
    let obs: Vec<_> = [-40.0, -3.0, -0.01, 0.0, 0.25, 8.0, 250.0].map(|x| (x, 1.0)).to_vec();
    let model = Model { obs, inverse_mass: vec![1.0; 8] };
    for logits in [[0.0, 0.0], [30.0, -30.0], [-80.0, -80.0], [60.0, 60.0]] {
        for sigmas in [[0.5, 0.5, 0.5], [-4.0, -4.0, -4.0], [-20.0, 3.0, 40.0], [90.0, -12.0, 20.0]] {
            let q = [logits[0], logits[1], 0.25, -3.0, sigmas[0], sigmas[1], sigmas[2], 5.0];
            precisions().iter().for_each(|&precision| assert_density(precision, &model, &q));
        }
    }
}

#[test]
fn chains_follow_the_reference() {
    for &precision in precisions() {
        let tolerance = if precision == F32 { 2e-4 } else { 1e-11 };
        for (seed, d, n_obs, eps, steps) in [
            (1, 8, 200, 0.01, 32),
            (2, 8, 200, -0.02, 16),
            (3, 1, 10, 0.1, 20),
            (4, 256, 300, 0.01, 9),
            (5, 12, 0, 0.3, 50),
            (6, 3, 1, 0.1, 1),
        ] {
            let (model, q, p) = case(seed, d, n_obs);
            let want = model.chain(&q, &p, eps as f32 as f64, steps);
            assert_chains_close(&device(precision, &model, &q, &p, eps as f32, steps), &want, tolerance);
        }
    }
}

#[test]
fn the_energy_error_is_of_second_order_in_the_step() {
    let (model, q, p) = case(11, 8, 200);
    let start = model.energy(model.density(&q).logp, &p);
    let error = |precision, steps: usize| {
        let eps = 0.4 / steps as f32;
        let chain = device(precision, &model, &q, &p, eps, steps);
        (model.energy(chain.logp[steps - 1], &chain.p[8 * (steps - 1)..]) - start).abs()
    };
    // A trajectory of fixed length: a fourth of the step, a sixteenth of the error.
    if precisions().contains(&F64) {
        let ratio = error(F64, 64) / error(F64, 256);
        assert!((12.0..20.0).contains(&ratio), "energy error fell by {ratio}");
    }
    assert!(error(F32, 256) < 1e-2, "energy drifts by {}", error(F32, 256));
}

#[test]
fn a_negative_step_returns_to_the_start() {
    for &precision in precisions() {
        let tolerance = if precision == F32 { 1e-3 } else { 1e-10 };
        for (seed, d, n_obs) in [(21, 8, 200), (22, 256, 40), (23, 2, 300)] {
            let (model, q, p) = case(seed, d, n_obs);
            let steps = 25;
            let there = device(precision, &model, &q, &p, 0.01, steps);
            let last = d * (steps - 1)..d * steps;
            let back = device(precision, &model, &there.q[last.clone()], &there.p[last.clone()], -0.01, steps);
            for i in 0..d {
                assert_close(&format!("{precision:?} q[{i}]"), back.q[last.start + i], q[i], tolerance);
                assert_close(&format!("{precision:?} p[{i}]"), back.p[last.start + i], p[i], tolerance);
            }
        }
    }
}

#[test]
fn a_shorter_chain_is_a_prefix_of_a_longer_one() {
    for &precision in precisions() {
        for (d, n_obs) in [(8, 200), (256, 1000), (1, 0)] {
            let (model, q, p) = case(31, d, n_obs);
            let short = device(precision, &model, &q, &p, 0.01, 7);
            let mut long = device(precision, &model, &q, &p, 0.01, 11);
            for values in [&mut long.q, &mut long.p, &mut long.grad] {
                values.truncate(7 * d);
            }
            long.logp.truncate(7);
            assert_eq!(short, long, "bit for bit");
        }
    }
}

/// Neither infinities nor NaN end anything but the trajectory they are in.
#[test]
fn overflow_ends_in_energies_that_are_not_finite() {
    let (model, q, p) = case(41, 8, 200);
    let want = device(F32, &model, &q, &p, 0.01, 4);
    for bad in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 3e38] {
        for i in 0..8 {
            let mut at = q.clone();
            at[i] = bad;
            let chain = device(F32, &model, &at, &p, 0.01, 4);
            assert!(chain.logp.iter().all(|x| !x.is_finite()), "q[{i}] = {bad}: {:?}", chain.logp);
            let mut model = case(41, 8, 200).0;
            model.obs[i].0 = bad;
            assert!(device(F32, &model, &q, &p, 0.01, 4).logp.iter().all(|x| !x.is_finite()));
        }
    }
    let wild = device(F32, &model, &q, &p, 1e30, 40);
    assert!(!wild.logp[39].is_finite());
    assert_eq!(device(F32, &model, &q, &p, 0.01, 4), want);
}
