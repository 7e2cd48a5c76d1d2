//! Sorting, beyond the sizes that the BEAM's tests take: against Rust's stable sort by the same keys.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "no one links a crate of tests, whose helpers may panic as the tests do"
)]

mod support;

use std::time::Instant;

use nx_vulkan::kernels::Tensor;
use nx_vulkan::kernels::sort::{self, Sort, Sorted};
use nx_vulkan::memory::Buffer;
use nx_vulkan::program::Type;
use support::{Random, context, device, download, upload};

/// A request for elements and indices along the second axis.
fn request<'a>(buffer: &'a Buffer, ty: Type, shape: &'a [u64]) -> Sort<'a> {
    let rows = Tensor { buffer, ty, shape }.along(1).unwrap();
    let indices = Some(Type::U32);
    Sort { rows, bits: ty.bits(), descending: false, keep: rows.len, values: true, indices }
}

fn run(sort: &Sort) -> Sorted {
    sort::run(&context(), sort).unwrap()
}

/// NaN above everything and equal to itself, the zeros equal.
fn float_key(x: f32) -> i64 {
    let bits = i64::from(x.to_bits() & 0x7fff_ffff);
    match x {
        _ if x.is_nan() => i64::MAX,
        _ if x.is_sign_negative() => -bits,
        _ => bits,
    }
}

/// The indices of each row's elements in stable order.
fn indices<K: Ord>(keys: &[K], len: usize, descending: bool) -> Vec<u32> {
    let mut all = vec![];
    for row in keys.chunks(len) {
        let mut order: Vec<u32> = (0..len as u32).collect();
        order.sort_by(|&a, &b| {
            let (a, b) = (&row[a as usize], &row[b as usize]);
            if descending { b.cmp(a) } else { a.cmp(b) }
        });
        all.extend(order);
    }
    all
}

/// Lengths around the tiles of both kernels, and around a row's split in blocks.
const LENGTHS: [usize; 12] = [1, 2, 255, 341, 1023, 1024, 1025, 4095, 4096, 4097, 65_537, 300_007];

#[test]
fn floats_of_every_length() {
    let mut random = Random(5);
    for len in LENGTHS {
        let rows = if len < 5000 { 5 } else { 2 };
        // All bit patterns, and many ties.
        let data: Vec<f32> = (0..rows * len)
            .map(|_| match random.below(4) {
                0 => [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.0][random.below(6) as usize],
                1 => f32::from_bits(random.next() as u32),
                _ => (random.unit() * 50.0).floor() as f32,
            })
            .collect();
        let keys: Vec<i64> = data.iter().map(|&x| float_key(x)).collect();
        for descending in [false, true] {
            let buffer = upload(&data);
            let sorted = run(&Sort { descending, ..request(&buffer, Type::F32, &[rows as u64, len as u64]) });
            let expected = indices(&keys, len, descending);
            let at = |i: usize, index: u32| data[i / len * len + index as usize].to_bits();
            assert!(download::<u32>(&sorted.indices.unwrap()) == expected, "indices {len} {descending}");
            let values: Vec<u32> = expected.iter().enumerate().map(|(i, &index)| at(i, index)).collect();
            assert!(download::<u32>(&sorted.values.unwrap()) == values, "values {len} {descending}");
        }
    }
}

#[test]
fn integers_of_every_width_along_a_middle_axis() {
    // The device decides how many bytes an element takes.
    device();
    let mut random = Random(9);
    for (outer, len, inner) in [(2, 700, 3), (3, 5000, 2), (1, 3, 4000)] {
        let count = outer * len * inner;
        let data: Vec<u64> = (0..count).map(|_| random.next()).collect();
        let check = |ty: Type, key: &dyn Fn(usize) -> i128| {
            // A device without narrow integers has a word for each.
            let element = |i| key(i).to_le_bytes().into_iter().take(ty.size() as usize);
            let buffer = upload(&(0..count).flat_map(element).collect::<Vec<u8>>());
            let keep = len as u64 / 2 + 1;
            let shape = [outer, len, inner].map(|dim| dim as u64);
            let all = request(&buffer, ty, &shape);
            let sorted = run(&Sort { keep, descending: true, values: false, ..all });
            let got: Vec<u32> = download(&sorted.indices.unwrap());
            assert!(sorted.values.is_none());
            for (o, i) in (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))) {
                let row: Vec<i128> = (0..len).map(|k| key((o * len + k) * inner + i)).collect();
                let expected = indices(&row, len, true);
                for (k, &index) in expected.iter().enumerate().take(keep as usize) {
                    let at = (o * keep as usize + k) * inner + i;
                    assert_eq!(got[at], index, "{ty:?} {outer}x{len}x{inner} row {o},{i} at {k}");
                }
            }
        };
        check(Type::U8, &|i| (data[i] as u8).into());
        check(Type::S8, &|i| (data[i] as i8).into());
        check(Type::S16, &|i| (data[i] as i16).into());
        check(Type::U32, &|i| (data[i] as u32).into());
        // The CPU sorts those that the device does not compute with.
        if device().caps.int64 {
            check(Type::U64, &|i| data[i].into());
            check(Type::S64, &|i| (data[i] as i64).into());
        }
    }
}

/// Prints elements a second; `SORT_LENGTHS` names other lengths.
#[test]
fn throughput() {
    let lengths = std::env::var("SORT_LENGTHS").unwrap_or_else(|_| "1048576".into());
    for len in lengths.split(',').map(|len| len.parse::<u64>().unwrap()) {
        let mut random = Random(3);
        let data: Vec<f32> = (0..len).map(|_| random.unit() as f32).collect();
        let buffer = upload(&data);
        for (rows, indices) in [(1, None), (1, Some(Type::S32)), (len / 1024, None), (len / 65_536, None)] {
            let shape = [rows, len / rows];
            let sort = Sort { values: indices.is_none(), indices, ..request(&buffer, Type::F32, &shape) };
            run(&sort);
            device().stream.finish().unwrap();
            let start = Instant::now();
            let times = if len > 1 << 21 { 10 } else { 3 };
            (0..times).for_each(|_| drop(run(&sort)));
            device().stream.finish().unwrap();
            let rate = len as f64 * f64::from(times) / start.elapsed().as_secs_f64() / 1e6;
            println!(
                "{rows} rows of {}, indices: {}: {rate:.1} million elements a second",
                len / rows,
                indices.is_some()
            );
        }
    }
}
