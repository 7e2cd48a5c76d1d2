//! Numbers of every magnitude, for tests of arithmetic: each type's range by exponents, not by values.
//!
//! A type's numbers are the same in every run. Tests that draw more of them take `Number::random`.

use std::fmt::Debug;

use bytemuck::Pod;
use nx_vulkan::program::types::Compute;

use super::{Random, device};

pub trait Number: Pod + Debug + PartialEq {
    /// The type in GLSL, and as kernels compute in it.
    const GLSL: &'static str;
    const COMPUTE: Compute;

    /// One number, its magnitude uniform over the type's exponents or lengths, or next to where functions change their ways.
    fn random(random: &mut Random) -> Self;

    /// The ends of the range, zeros, and what is special otherwise.
    fn special() -> Vec<Self>;

    /// Numbers of every magnitude.
    fn every() -> Vec<Self>;

    /// Whether two results are one: all NaN are, zeros of different signs are not.
    fn same(self, other: Self) -> bool;

    /// The distance of two results in units of the second one's last place.
    fn ulps(self, other: Self) -> f64;

    /// Whether a device that does not promise to keep subnormals may take zero for it.
    fn may_be_flushed(self) -> bool;
}

macro_rules! floats {
    ($($float:ident, $bits:ident, $glsl:literal, $compute:ident, $fraction:literal, $preserve:ident;)*) => {$(
        impl Number for $float {
            const GLSL: &'static str = $glsl;
            const COMPUTE: Compute = Compute::$compute;

            fn random(random: &mut Random) -> Self {
                let special = Self::special();
                match random.below(8) {
                    0 => special[random.below(special.len() as u64) as usize],
                    1 | 2 => {
                        // Around whole numbers and halves of every magnitude, powers of two among them.
                        let power = (random.below($fraction + 3) as $float).exp2();
                        let whole = (power * (1.0 + random.unit().abs() as $float)).floor();
                        let base = if random.below(3) == 0 { power } else { whole };
                        let x = base + [0.0, 0.5, -0.5, 0.25, 1.0][random.below(5) as usize];
                        let x = [x, x.next_up(), x.next_down()][random.below(3) as usize];
                        if random.below(2) == 0 { x } else { -x }
                    }
                    _ => $float::from_bits(random.next() as $bits),
                }
            }

            fn special() -> Vec<Self> {
                let positive = [
                    0.0, $float::from_bits(1), $float::MIN_POSITIVE.next_down(), $float::MIN_POSITIVE, $float::EPSILON,
                    0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, $float::MAX, $float::INFINITY, $float::NAN,
                ];
                let edges = [0.5, 1.0, 127.0, 128.0, 255.0, 256.0, 32768.0, 65536.0, 2147483648.0, 4294967296.0]
                    .into_iter()
                    .chain([63, 64].map(|n| (n as $float).exp2()))
                    .flat_map(|x: $float| [x.next_down(), x, x.next_up()]);
                positive.into_iter().chain(edges).flat_map(|x| [x, -x]).collect()
            }

            fn every() -> Vec<Self> {
                let mut random = Random(99);
                let mut numbers = Self::special();
                let top: $bits = 1 << $fraction;
                for exponent in 0..=($float::INFINITY.to_bits() >> $fraction) {
                    let some = random.next() as $bits;
                    for fraction in [0, 1, top - 1, top / 2, some % top, some.rotate_left(13) % top] {
                        let x = $float::from_bits((exponent << $fraction) | fraction);
                        numbers.extend([x, -x]);
                    }
                }
                for exponent in 0..$fraction + 3 {
                    let power = (exponent as $float).exp2();
                    let whole = (power * (1.0 + random.unit().abs() as $float)).floor();
                    for x in [power, whole].into_iter().flat_map(|x| [-1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0].map(|d| x + d)) {
                        numbers.extend([x, x.next_up(), x.next_down()].into_iter().flat_map(|x| [x, -x]));
                    }
                }
                numbers
            }

            fn same(self, other: Self) -> bool {
                self.to_bits() == other.to_bits() || (self.is_nan() && other.is_nan())
            }

            fn ulps(self, other: Self) -> f64 {
                if self.same(other) {
                    return 0.0;
                }
                let ulp = (other.abs().next_up() - other.abs()).max($float::from_bits(1));
                let distance = f64::from((self - other).abs() / ulp);
                if distance.is_nan() { f64::INFINITY } else { distance }
            }

            fn may_be_flushed(self) -> bool {
                self.is_subnormal() && !device().caps.$preserve
            }
        }
    )*};
}

floats! {
    f32, u32, "float", Float, 23, denorm_preserve;
    f64, u64, "double", Double, 52, denorm_preserve64;
}

macro_rules! integers {
    ($($integer:ident, $glsl:literal, $compute:ident;)*) => {$(
        impl Number for $integer {
            const GLSL: &'static str = $glsl;
            const COMPUTE: Compute = Compute::$compute;

            fn random(random: &mut Random) -> Self {
                let special = Self::special();
                let bits = random.below(u64::from($integer::BITS)) as u32;
                let magnitude = (random.next() as $integer) >> bits;
                match random.below(6) {
                    0 => special[random.below(special.len() as u64) as usize],
                    1 => (0 as $integer).wrapping_sub(magnitude),
                    2 => ((1 as $integer) << bits).wrapping_add(random.below(3) as $integer).wrapping_sub(1),
                    _ => magnitude,
                }
            }

            fn special() -> Vec<Self> {
                let ends = [$integer::MIN, $integer::MIN + 1, $integer::MAX, $integer::MAX - 1];
                let zero = 0 as $integer;
                (0..10).flat_map(|x| [x, zero.wrapping_sub(x)]).chain(ends).collect()
            }

            fn every() -> Vec<Self> {
                let mut random = Random(98);
                let mut numbers = Self::special();
                for bits in 0..$integer::BITS {
                    let power = (1 as $integer) << bits;
                    numbers.extend((0..5 as $integer).map(|d| power.wrapping_add(d).wrapping_sub(2)));
                    let zero = 0 as $integer;
                    numbers.extend((0..50).map(|_| (random.next() as $integer) >> bits).flat_map(|x| [x, zero.wrapping_sub(x)]));
                }
                numbers
            }

            fn same(self, other: Self) -> bool {
                self == other
            }

            fn ulps(self, other: Self) -> f64 {
                if self == other { 0.0 } else { f64::INFINITY }
            }

            fn may_be_flushed(self) -> bool {
                false
            }
        }
    )*};
}

integers! {
    u32, "uint", Uint;
    i32, "int", Int;
    u64, "uint64_t", Uint64;
    i64, "int64_t", Int64;
}
