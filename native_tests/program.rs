//! Programs against references in Rust.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "no one links a crate of tests, whose helpers may panic as the tests do"
)]

mod support;

use nx_vulkan::pipeline::{glsl, selections};
use nx_vulkan::program::{Attribute, Axes, Input, Node, PaddedCoordinate, PaddedView, Source, Type, broadcast_strides};
use support::{Random, device, download, node, run, run_inputs, run_spirv, run_sums, seed, upload, with};

/// Sizes around the workgroup and the grid's first axis.
const SIZES: [usize; 6] = [1, 255, 256, 257, 4096 + 3, 65_535 * 256 + 1];

#[test]
fn sums_of_two_vectors_of_every_size() {
    let mut random = Random(7);
    for n in SIZES {
        let a: Vec<f32> = (0..n).map(|_| random.unit() as f32).collect();
        let b: Vec<f32> = (0..n).map(|_| random.unit() as f32).collect();
        let shape = [n as u64];
        let inputs = [(&upload(&a), Type::F32, shape.as_slice()), (&upload(&b), Type::F32, shape.as_slice())];
        let out: Vec<f32> = download(&run(&[node("add", Type::F32, &[0, 1])], &inputs, &shape).unwrap());
        assert!(a.iter().zip(&b).map(|(a, b)| a + b).eq(out), "{n}");
    }
}

#[test]
fn reductions_over_each_axis_of_a_cube() {
    let mut random = Random(11);
    for shape in [[3u64, 4, 5], [70, 1, 300], [2, 513, 129], [1, 100_000, 3]] {
        let n: u64 = shape.iter().product();
        let a: Vec<f32> = (0..n).map(|_| random.unit() as f32).collect();
        let buffer = upload(&a);
        for axes in [vec![0], vec![1], vec![2], vec![0, 1], vec![0, 2], vec![1, 2], vec![0, 1, 2]] {
            let attribute = Attribute::Axes(axes.as_slice().into());
            let sum = with("sum", Type::F32, &[0], attribute);
            let out: Vec<f32> = download(&run(&[sum], &[(&buffer, Type::F32, &shape)], &shape).unwrap());
            let mut expected = std::collections::BTreeMap::<Vec<u64>, f64>::new();
            for (i, x) in a.iter().enumerate() {
                let i = i as u64;
                let at = [i / (shape[1] * shape[2]), i / shape[2] % shape[1], i % shape[2]];
                let kept = (0..3).filter(|axis| !axes.contains(axis)).map(|axis| at[axis]).collect();
                *expected.entry(kept).or_default() += f64::from(*x);
            }
            let expected: Vec<f32> = expected.values().map(|x| *x as f32).collect();
            assert_eq!(out, expected, "{shape:?} {axes:?}");
        }
    }
}

const BRANCHES: &str = "
    #version 460
    layout(local_size_x = 64) in;
    layout(binding = 0) buffer Numbers { uint x[]; };
    uint next(uint v) {
      if (v % 5u == 0u) { if (v > 40u) return v / 5u; } else if (v % 3u == 0u) return v + 1u;
      else { v += v % 7u == 1u ? v / 2u + 3u : v / 3u + 2u; }
      return v % 97u;
    }
    void main() {
      uint v = x[gl_GlobalInvocationID.x];
      for (uint i = 0u; i < 20u; i++) {
        if (v > 60u) { v -= i < 5u || v % 2u == 0u ? v / 4u : v / 8u; } else { v = next(v); continue; }
        if (v == 31u && i > 3u) break; else v++;
      }
      x[gl_GlobalInvocationID.x] = v;
    }";

/// The sums of small integers are the same in any order, and in any type that holds them.
#[test]
fn several_sums_are_those_of_each_value() {
    let mut random = Random(13);
    for shape in [[3u64, 4, 5], [70, 1, 300], [2, 513, 129], [20_000, 3, 4], [1, 100_000, 3], [40_000, 2, 64]] {
        let n: u64 = shape.iter().product();
        let mut numbers = || -> Vec<i32> { (0..n).map(|_| random.below(15) as i32 - 7).collect() };
        let (a, b) = (numbers(), numbers());
        let values = [|a: i32, b: i32| a * b, |a, _| a, |_, b| b, |a, b| a + b];
        for (axes, count) in [(&[0][..], 4), (&[0, 1], 3), (&[0, 2], 2), (&[2], 1), (&[1, 2], 4), (&[0, 1, 2], 2)] {
            let sum = |value| with("sum", Type::S32, &[value], Attribute::Axes(axes.into()));
            let all = [sum(2), sum(0), sum(1), sum(3)];
            let mut nodes = vec![node("multiply", Type::S32, &[0, 1]), node("add", Type::S32, &[0, 1])];
            nodes.extend_from_slice(&all[..count]);
            let (x, y) = (upload(&a), upload(&b));
            let given = run_sums(&nodes, count, &[(&x, Type::S32), (&y, Type::S32)], &shape).unwrap();
            let in_floats: Vec<Vec<f32>> = [&a, &b].map(|v| v.iter().map(|&x| x as f32).collect()).to_vec();
            let (x, y) = (upload(&in_floats[0]), upload(&in_floats[1]));
            let of_floats: Vec<_> = nodes.iter().cloned().map(|node| Node { ty: Type::F32, ..node }).collect();
            let floats = run_sums(&of_floats, count, &[(&x, Type::F32), (&y, Type::F32)], &shape).unwrap();
            assert_eq!((given.len(), floats.len()), (count, count));
            for ((value, given), floats) in values.iter().zip(&given).zip(&floats) {
                let expected = reduced(&shape, axes, |i| value(a[i], b[i]));
                assert_eq!(download::<i32>(given), expected, "{shape:?} {axes:?}");
                let floats: Vec<i32> = download::<f32>(floats).into_iter().map(|x| x as i32).collect();
                assert_eq!(floats, expected, "{shape:?} {axes:?}");
            }
        }
    }
}

/// Windows over a tensor: for each of its axes the extent, the windows and their distance, the window's elements and their distance, and
/// the padding before and after.
struct Windows {
    axes: Vec<[i64; 7]>,
}

impl Windows {
    /// Extents are such that there are `outputs` of them along the axes, padding up to a window.
    fn random(random: &mut Random, outputs: &[u64], padded: &[bool]) -> Self {
        let axis = |(&outputs, &padded): (&u64, &bool)| {
            let mut one_to = |n| 1 + random.below(n) as i64;
            let (stride, size, dilation) = (one_to(3), one_to(4), one_to(2));
            let mut end = || if padded { one_to(4) - 1 } else { 0 };
            let (low, high) = (end(), end());
            let extent = (outputs as i64 - 1) * stride + (size - 1) * dilation + 1 - low - high;
            [extent.max(1), outputs as i64, stride, size, dilation, low, high]
        };
        Self { axes: outputs.iter().zip(padded).map(axis).collect() }
    }

    fn extents(&self) -> Vec<u64> {
        self.axes.iter().map(|axis| axis[0] as u64).collect()
    }

    /// Outputs and then the elements of a window.
    fn space(&self) -> Vec<u64> {
        [1, 3].iter().flat_map(|&part| self.axes.iter().map(move |axis| axis[part] as u64)).collect()
    }

    fn reduced(&self) -> Attribute {
        Attribute::Axes((self.axes.len()..2 * self.axes.len()).collect())
    }

    /// The tensor's view, whose elements beyond its ends have these bits.
    fn view(&self, ty: Type, value: u128) -> Input {
        let extents = self.extents();
        let dense = broadcast_strides(&extents, &extents).unwrap();
        // Axes of one element have a stride here, too.
        let stride = |index: usize| extents[index + 1..].iter().product::<u64>() as i64;
        assert!(dense.iter().enumerate().all(|(index, &dense)| dense == 0 || dense == stride(index)));
        let (rank, mut strides, mut axes) = (self.axes.len(), Axes::from_elem(0, 2 * self.axes.len()), vec![]);
        for (index, &[extent, _, by, _, dilation, low, high]) in self.axes.iter().enumerate() {
            let mut steps: Axes<i64> = Axes::from_elem(0, 2 * rank);
            (steps[index], steps[rank + index]) = (by, dilation);
            if low > 0 || high > 0 {
                axes.push(PaddedCoordinate { start: -low, extent: extent as u64, stride: stride(index), steps });
            } else {
                (strides[index], strides[rank + index]) = (by * stride(index), dilation * stride(index));
            }
        }
        let view = PaddedView { offset: 0, strides, coordinates: axes.into(), value };
        Input { ty, source: Source::Padded(view.into()) }
    }

    /// For each output the elements of its window, `None` for those beyond the tensor's ends.
    fn elements<'a, T: Copy>(&'a self, tensor: &'a [T]) -> impl Iterator<Item = Vec<Option<T>>> + 'a {
        let indices = |dims: Vec<u64>| {
            (0..dims.iter().product()).map(move |linear: u64| {
                let at = |i: usize| linear / dims[i + 1..].iter().product::<u64>() % dims[i];
                (0..dims.len()).map(at).collect::<Vec<u64>>()
            })
        };
        let rank = self.axes.len();
        let space = self.space();
        indices(space[..rank].to_vec()).map(move |output| {
            let element = |within: Vec<u64>| {
                self.axes.iter().enumerate().try_fold(0, |position, (i, &[extent, _, by, _, dilation, low, _])| {
                    let coordinate = output[i] as i64 * by + within[i] as i64 * dilation - low;
                    (0..extent).contains(&coordinate).then_some(position * extent + coordinate)
                })
            };
            indices(space[rank..].to_vec()).map(|within| element(within).map(|at| tensor[at as usize])).collect()
        })
    }
}

/// Few windows, and as many as are unrolled, of which a thread makes one, two or four; innermost axes with and without windows.
#[test]
fn windows_beyond_the_ends_of_a_tensor_read_what_stands_for_its_elements() {
    let mut random = Random(seed());
    for outputs in [
        &[3, 4, 5][..],
        &[70, 31, 33],
        &[20, 64, 205],
        &[33, 62, 130],
        &[5, 130, 420],
        &[210, 170, 8],
        &[9, 230, 128],
        &[300_000],
    ] {
        for innermost in [true, false] {
            let rank = outputs.len();
            let padded: Vec<bool> =
                (0..rank).map(|axis| (innermost || axis + 1 < rank) && random.below(4) > 0).collect();
            let mut windows = Windows::random(&mut random, outputs, &padded);
            if !innermost || rank > 2 {
                // A window of up to 16 elements.
                let whole = if innermost { 0 } else { rank - 1 };
                let extent = windows.axes[whole][1];
                windows.axes[whole] = [extent, extent, 1, 1, 1, 0, 0];
            }
            check_windows(&mut random, &windows);
        }
    }
}

fn check_windows(random: &mut Random, windows: &Windows) {
    let (space, elements) = (windows.space(), windows.extents().iter().product());
    let numbers: Vec<i32> = (0..elements).map(|_| random.below(2000) as i32 - 1000).collect();
    let context = format!("{:?}", windows.axes);
    let reduced = |name, ty: Type, value| {
        let bytes = match ty {
            Type::F32 => upload(&numbers.iter().map(|&x| x as f32).collect::<Vec<_>>()),
            Type::BF16 => {
                upload(&numbers.iter().map(|&x| (x as f32).to_bits().wrapping_shr(16) as u16).collect::<Vec<_>>())
            }
            Type::F64 => upload(&numbers.iter().map(|&x| f64::from(x)).collect::<Vec<_>>()),
            _ => upload(&numbers),
        };
        let reduction = with(name, ty, &[0], windows.reduced());
        run_inputs(&[reduction], &[(&bytes, windows.view(ty, value))], &space).unwrap()
    };
    let sums: Vec<i32> = windows.elements(&numbers).map(|window| window.iter().map(|x| x.unwrap_or(7)).sum()).collect();
    assert_eq!(download::<i32>(&reduced("sum", Type::S32, 7)), sums, "{context}");
    let floats = |values: Vec<f32>| values.into_iter().map(|x| x as i32).collect::<Vec<_>>();
    assert_eq!(floats(download(&reduced("sum", Type::F32, 7f32.to_bits().into()))), sums, "{context}");
    if device().caps.float64 {
        let doubles = reduced("sum", Type::F64, 7f64.to_bits().into());
        let doubles: Vec<i32> = download::<f64>(&doubles).into_iter().map(|x| x as i32).collect();
        assert_eq!(doubles, sums, "{context}");
        check_weighted_windows(random, windows, &numbers);
    }
    // A device without narrow integers keeps a word for each element.
    if Type::BF16.size() > 2 {
        return;
    }
    let narrowed = |x: i32| f32::from_bits((x as f32).to_bits() >> 16 << 16);
    let largest = |window: Vec<Option<i32>>| window.iter().map(|x| x.map_or(-1.5, narrowed)).fold(f32::MIN, f32::max);
    let largest: Vec<f32> = windows.elements(&numbers).map(largest).collect();
    let narrow = reduced("reduce_max", Type::BF16, 0xbfc0);
    let wide = |bits: u16| f32::from_bits(u32::from(bits) << 16);
    assert_eq!(download::<u16>(&narrow).into_iter().map(wide).collect::<Vec<_>>(), largest, "{context}");
}

/// Sums in double of products with a number for each element of a window, as a convolution with a kernel for each channel.
fn check_weighted_windows(random: &mut Random, windows: &Windows, numbers: &[i32]) {
    let (space, rank) = (windows.space(), windows.axes.len());
    let weights: Vec<f32> = (0..space[rank..].iter().product()).map(|_| random.unit() as f32).collect();
    let tensor: Vec<f32> = numbers.iter().map(|&x| x as f32 / 3.0).collect();
    let strides = broadcast_strides(&space[rank..], &space).unwrap();
    let weighted = Input { ty: Type::F32, source: Source::View { offset: 0, strides } };
    let products = [node("multiply", Type::F64, &[0, 1]), with("sum", Type::F32, &[2], windows.reduced())];
    let inputs = [(&upload(&weights), weighted), (&upload(&tensor), windows.view(Type::F32, 0))];
    let given: Vec<f32> = download(&run_inputs(&products, &inputs, &space).unwrap());
    let sum = |window: Vec<Option<f32>>| {
        let products = window.iter().zip(&weights).map(|(x, &w)| f64::from(x.unwrap_or(0.0)) * f64::from(w));
        products.sum::<f64>() as f32
    };
    let expected: Vec<f32> = windows.elements(&tensor).map(sum).collect();
    assert_eq!(given, expected, "{:?}", windows.axes);
}

/// A view may go beyond its buffer along padded axes alone.
#[test]
fn padded_views_stay_within_their_buffers() {
    let buffer = upload(&[1f32; 12]);
    let taken = |offset, strides: &[i64], start, extent, stride, steps: &[i64]| {
        let axis = PaddedCoordinate { start, extent, stride, steps: steps.into() };
        let view = PaddedView { offset, strides: strides.into(), coordinates: [axis].into_iter().collect(), value: 0 };
        let input = Input { ty: Type::F32, source: Source::Padded(view.into()) };
        let sum = with("sum", Type::F32, &[0], Attribute::Axes([1].into_iter().collect()));
        run_inputs(&[sum], &[(&buffer, input)], &[5, 3]).is_ok()
    };
    assert!(taken(0, &[0, 0], -2, 12, 1, &[1, 1]));
    assert!(taken(0, &[0, 0], -2, 4, 3, &[100, -7]));
    assert!(taken(11, &[0, 0], -2, 12, -1, &[1, 1]));
    assert!(!taken(0, &[0, 0], -2, 13, 1, &[1, 1]), "a longer axis");
    assert!(!taken(1, &[0, 0], -2, 12, 1, &[1, 1]), "a later start");
    assert!(!taken(0, &[0, 0], 0, 12, -1, &[1, 1]), "before the buffer");
    assert!(!taken(0, &[0, 4], -2, 5, 1, &[1, 0]), "beyond it along an axis without an end");
    assert!(!taken(0, &[0, 0], 0, 12, 1, &[1]), "too few steps");
    assert!(!taken(0, &[0, 0], 1 << 47, 12, 1, &[1 << 47, 1]), "coordinates that do not fit");
}

/// The sums of a dense tensor's elements along the axes.
fn reduced(shape: &[u64; 3], axes: &[usize], element: impl Fn(usize) -> i32) -> Vec<i32> {
    let kept = |axis: usize| !axes.contains(&axis);
    let outputs: u64 = (0..3).filter(|&axis| kept(axis)).map(|axis| shape[axis]).product();
    let mut sums = vec![0; outputs as usize];
    for i in 0..shape.iter().product() {
        let index = [i / (shape[1] * shape[2]), i / shape[2] % shape[1], i % shape[2]];
        let output = (0..3).filter(|&axis| kept(axis)).fold(0, |at, axis| at * shape[axis] + index[axis]);
        sums[output as usize] += element(i as usize);
    }
    sums
}

#[test]
fn only_sums_of_the_same_axes_and_types_share_a_program() {
    let buffer = upload(&[1f32; 6]);
    let sum = |value, axes: &[usize]| with("sum", Type::F32, &[value], Attribute::Axes(axes.into()));
    let taken = |nodes: &[Node], count| run_sums(nodes, count, &[(&buffer, Type::F32)], &[2, 3]).is_ok();
    assert!(taken(&[node("negate", Type::F32, &[0]), sum(0, &[0]), sum(1, &[0])], 2));
    assert!(!taken(&[sum(0, &[0]), sum(0, &[1])], 2), "of different axes");
    assert!(!taken(&[sum(0, &[0]), sum(1, &[0])], 2), "of a sum");
    assert!(!taken(&[sum(0, &[0]), with("sum", Type::F64, &[0], Attribute::Axes([0].as_slice().into()))], 2));
    assert!(!taken(&[sum(0, &[0]), with("reduce_max", Type::F32, &[0], Attribute::Axes([0].as_slice().into()))], 2));
    assert!(!taken(&[sum(0, &[0]), node("negate", Type::F32, &[1]), sum(2, &[0])], 1), "of what a sum leads to");
    assert!(!taken(&[node("negate", Type::F32, &[0])], 0), "none");
    assert!(!taken(&[sum(0, &[0]), sum(0, &[0])], 1), "of another number");
    assert!(!taken(&vec![sum(0, &[0]); 5], 5), "too many");
}

fn branches(mut v: u32) -> u32 {
    let next = |v: u32| match v {
        v if v % 5 == 0 && v > 40 => v / 5,
        v if v % 5 == 0 => v % 97,
        v if v % 3 == 0 => v + 1,
        v => (v + if v % 7 == 1 { v / 2 + 3 } else { v / 3 + 2 }) % 97,
    };
    for i in 0..20 {
        if v <= 60 {
            v = next(v);
            continue;
        }
        v -= if i < 5 || v.is_multiple_of(2) { v / 4 } else { v / 8 };
        if v == 31 && i > 3 {
            break;
        }
        v += 1;
    }
    v
}

#[test]
fn selections_of_one_branch_compute_what_those_of_two_do() {
    let numbers: Vec<u32> = (0..1024).collect();
    let expected: Vec<u32> = numbers.iter().map(|&v| branches(v)).collect();
    let words = glsl::compile(BRANCHES).unwrap();
    for module in [selections::one_sided(&words), words] {
        assert_eq!(
            run_spirv(&module, std::slice::from_ref(&numbers), &[], [16, 1, 1]),
            std::slice::from_ref(&expected)
        );
    }
}
