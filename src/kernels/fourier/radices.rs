//! The radix decomposition of transforms: the lengths of their passes, and the radices of each. This module is arithmetic
//! alone; what a device takes in one pass it is told.

use smallvec::SmallVec;

/// Primes up to this one are radices; lengths with larger ones go by way of a convolution.
pub const LARGEST_PRIME: u64 = 61;

/// The radices of one pass, whose product is its length.
pub type Radices = SmallVec<[u8; 8]>;

/// The prime factors of a length, ascending; `None` where one is larger than [`LARGEST_PRIME`].
fn primes(mut points: u64) -> Option<SmallVec<[u64; 32]>> {
    let mut factors = SmallVec::new();
    for prime in 2..=LARGEST_PRIME {
        while points.is_multiple_of(prime) {
            factors.push(prime);
            points /= prime;
        }
    }
    (points == 1).then_some(factors)
}

/// The passes of a transform: one where `whole` points fit a workgroup, else as few as possible of at most `part`
/// points, of lengths close to each other. `None` where the length has a prime factor that is no radix.
///
/// `part` is at least [`LARGEST_PRIME`].
pub fn passes(points: u64, whole: u64, part: u64) -> Option<Vec<Radices>> {
    let factors = primes(points)?;
    if points <= whole {
        return Some(vec![radices(&factors)]);
    }
    (2..).find_map(|count| {
        let mut groups: Vec<(u64, SmallVec<[u64; 32]>)> = vec![(1, SmallVec::new()); count];
        for &factor in factors.iter().rev() {
            let smallest = groups.iter_mut().min_by_key(|(product, _)| *product)?;
            smallest.0 *= factor;
            smallest.1.push(factor);
        }
        let fits = groups.iter().all(|(product, _)| *product <= part);
        fits.then(|| groups.iter().map(|(_, factors)| radices(factors)).collect())
    })
}

/// Primes as radices: twos by eights, fours and one two.
fn radices(primes: &[u64]) -> Radices {
    let twos = primes.iter().filter(|&&prime| prime == 2).count();
    let (radix8, radix4, radix2) = match twos % 3 {
        0 => (twos / 3, 0, 0),
        1 if twos > 1 => (twos / 3 - 1, 2, 0),
        1 => (0, 0, 1),
        _ => (twos / 3, 1, 0),
    };
    let mut list = Radices::new();
    for (radix, count) in [(8, radix8), (4, radix4), (2, radix2)] {
        list.extend(std::iter::repeat_n(radix, count));
    }
    list.extend(primes.iter().filter(|&&prime| prime != 2).map(|&prime| prime as u8));
    list
}

/// The shortest convenient length of at least `least` points: a power of two, or three or five of them.
pub fn convenient(least: u64) -> u64 {
    let next = |odd: u64| odd * least.div_ceil(odd).next_power_of_two();
    [1, 3, 5].map(next).into_iter().min().unwrap_or(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_multiply_to_the_length_and_fit() {
        for (whole, part) in [(512, 128), (1024, 256), (256, 64)] {
            for points in (1..5000).chain([1 << 20, 1 << 24, 100_000, 61 * 61 * 61 * 59, 3u64.pow(16), 1 << 40]) {
                let Some(passes) = passes(points, whole, part) else {
                    assert!(primes(points).is_none());
                    continue;
                };
                let lengths: Vec<u64> = passes.iter().map(|p| p.iter().map(|&r| u64::from(r)).product()).collect();
                assert_eq!(lengths.iter().product::<u64>(), points);
                let most = if passes.len() == 1 { whole } else { part };
                assert!(lengths.iter().all(|&length| length <= most), "{points}: {lengths:?}");
                assert!(passes.iter().all(|p| p.len() <= 8), "{points}: {passes:?}");
            }
        }
        assert_eq!(passes(1 << 24, 1024, 256).map(|p| p.len()), Some(3));
        assert_eq!(passes(67, 1024, 256), None);
    }

    #[test]
    fn convenient_lengths_are_near() {
        for least in 1..5000 {
            let length = convenient(least);
            assert!(length >= least && length <= 2 * least && primes(length).is_some());
        }
        assert_eq!(convenient(129), 160);
        assert_eq!(convenient(64), 64);
    }
}
