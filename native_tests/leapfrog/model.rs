//! The regime model and the leapfrog integrator in f64 on the CPU: the reference for the device.

use crate::support::Random;

/// log sigma and the log-Jacobian both come from here.
fn softplus(q: f64) -> f64 {
    q.max(0.0) + (-q.abs()).exp().ln_1p()
}

fn sigmoid(q: f64) -> f64 {
    1.0 / (1.0 + (-q).exp())
}

/// The regime model (see `shaders/leapfrog_regime.comp`) over observations with their multiplicities.
pub struct Model {
    pub obs: Vec<(f64, f64)>,
    pub inverse_mass: Vec<f64>,
}

/// The log density at a position, its gradient, and for each (the density last) the sum of the absolute values of the
/// terms that make it: what rounding errors are relative to.
pub struct Density {
    pub logp: f64,
    pub grad: Vec<f64>,
    pub terms: Vec<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    pub q: Vec<f64>,
    pub p: Vec<f64>,
    pub grad: Vec<f64>,
    pub logp: Vec<f64>,
}

/// Neumaier's compensated sum, so that the reference's own rounding is not what is measured.
#[derive(Clone, Copy, Default)]
struct Sum {
    high: f64,
    low: f64,
}

impl Sum {
    fn add(&mut self, x: f64) {
        let total = self.high + x;
        self.low += if self.high.abs() >= x.abs() { (self.high - total) + x } else { (x - total) + self.high };
        self.high = total;
    }

    fn value(self) -> f64 {
        self.high + self.low
    }
}

impl Model {
    pub fn density(&self, q: &[f64]) -> Density {
        let d = q.len();
        let half_log_two_pi = 0.5 * (2.0 * std::f64::consts::PI).ln();
        let at = |i: usize| q.get(i).copied().unwrap_or(0.0);
        let mut grad = vec![Sum::default(); d.max(8)];
        let mut terms = vec![0.0; d.max(8)];
        let (mut logp, mut logp_terms) = (Sum::default(), 0.0);

        // Priors of the parameters that q holds.
        for (i, &q) in q.iter().enumerate() {
            let sd = match i {
                2 => 0.5,
                6 => 2.0,
                _ => 1.0,
            };
            let (prior, slope, parts) = if (4..7).contains(&i) {
                let s = softplus(q);
                let normal = -0.5 * (s / sd).powi(2) - half_log_two_pi - f64::ln(sd);
                let dlog = -s / (sd * sd) * sigmoid(q);
                (normal + 2f64.ln() - softplus(-q), dlog + sigmoid(-q), dlog.abs() + 1.0)
            } else {
                let slope = -q / (sd * sd);
                (-0.5 * (q / sd).powi(2) - half_log_two_pi - f64::ln(sd), slope, slope.abs())
            };
            logp.add(prior);
            logp_terms += prior.abs();
            grad[i].add(slope);
            terms[i] += parts;
        }

        // Regimes: volatile, trending, mean-reverting.
        let logits = [0.0, at(0), at(1)];
        let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let log_total = largest + logits.iter().map(|l| (l - largest).exp()).sum::<f64>().ln();
        let mu = [0.0, at(3), at(2)];
        let sigma = [softplus(at(6)), softplus(at(5)), softplus(at(4))];
        let slope = [sigmoid(at(6)), sigmoid(at(5)), sigmoid(at(4))];
        for &(x, times) in &self.obs {
            let z: [f64; 3] = std::array::from_fn(|r| (x - mu[r]) / sigma[r]);
            let log: [f64; 3] =
                std::array::from_fn(|r| logits[r] - log_total - sigma[r].ln() - half_log_two_pi - 0.5 * z[r] * z[r]);
            let top = log.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total = top + log.iter().map(|l| (l - top).exp()).sum::<f64>().ln();
            logp.add(times * total);
            logp_terms += times * (total.abs() + 1.0);
            let p: [f64; 3] = std::array::from_fn(|r| (log[r] - total).exp());
            let mut add = |i: usize, term: f64, size: f64| {
                grad[i].add(times * term);
                terms[i] += times * size;
            };
            for (i, r) in [(0, 1), (1, 2)] {
                let w = (logits[r] - log_total).exp();
                add(i, p[r] - w, p[r] + w);
            }
            for (i, r) in [(3, 1), (2, 2)] {
                let term = p[r] * z[r] / sigma[r];
                // log p_r has the error of z², whose own size is that of the exponent.
                add(i, term, term.abs() * (1.0 + z[r] * z[r]));
            }
            for (i, r) in [(6, 0), (5, 1), (4, 2)] {
                let part = p[r] * slope[r] / sigma[r];
                add(i, part * (z[r] * z[r] - 1.0), part * (z[r] * z[r] + 1.0).powi(2));
            }
        }
        terms.truncate(d);
        terms.push(logp_terms);
        Density { logp: logp.value(), grad: grad[..d].iter().map(|s| s.value()).collect(), terms }
    }

    pub fn chain(&self, q: &[f64], p: &[f64], eps: f64, steps: usize) -> Chain {
        let (mut q, mut p) = (q.to_vec(), p.to_vec());
        let mut grad = self.density(&q).grad;
        let mut out = Chain { q: vec![], p: vec![], grad: vec![], logp: vec![] };
        for _ in 0..steps {
            for i in 0..q.len() {
                p[i] += 0.5 * eps * grad[i];
                q[i] += eps * self.inverse_mass[i] * p[i];
            }
            let density = self.density(&q);
            grad = density.grad;
            for i in 0..q.len() {
                p[i] += 0.5 * eps * grad[i];
            }
            out.q.extend(&q);
            out.p.extend(&p);
            out.grad.extend(&grad);
            out.logp.push(density.logp);
        }
        out
    }

    pub fn energy(&self, logp: f64, p: &[f64]) -> f64 {
        0.5 * p.iter().zip(&self.inverse_mass).map(|(p, m)| p * p * m).sum::<f64>() - logp
    }
}

/// A standard normal (Box-Muller).
fn normal(random: &mut Random) -> f64 {
    let (radius, angle) = (0.5 - 0.5 * random.unit(), std::f64::consts::PI * random.unit());
    (-2.0 * radius.ln()).sqrt() * angle.cos()
}

/// Values that f32 holds exactly, so that every precision starts from the same numbers.
pub fn normals(random: &mut Random, n: usize, scale: f64) -> Vec<f64> {
    (0..n).map(|_| (scale * normal(random)) as f32 as f64).collect()
}

/// A random model, position and momentum.
pub fn case(seed: u64, d: usize, n_obs: usize) -> (Model, Vec<f64>, Vec<f64>) {
    let mut random = Random(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let obs = normals(&mut random, n_obs, 1.5).into_iter().map(|x| (x, 1.0)).collect();
    let inverse_mass = (0..d).map(|_| (1.0 + 0.5 * random.unit()) as f32 as f64).collect();
    let (q, p) = (normals(&mut random, d, 0.7), normals(&mut random, d, 1.0));
    (Model { obs, inverse_mass }, q, p)
}
