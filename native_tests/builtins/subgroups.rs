//! Built-ins by which invocations exchange values, over one subgroup and one workgroup.

use nx_vulkan::pipeline::glsl;
use nx_vulkan::program::emit::head;
use nx_vulkan::program::types::Compute;

use crate::support::{Random, device, run_spirv};

/// Each writes a vector of results; SIZE is the subgroup's.
pub const SOURCE: &str = "
#extension GL_KHR_shader_subgroup_arithmetic : require
layout(local_size_x = SIZE) in;
layout(scalar, set = 0, binding = 0) buffer Numbers { uint numbers[]; };
layout(scalar, set = 0, binding = 1) buffer Results { uint results[]; };
shared uint counter, taken;
void put(uint row, uint value) { results[row * SIZE + gl_SubgroupInvocationID] = value; }
void main() {
  uint lane = gl_SubgroupInvocationID, x = numbers[lane];
  bool odd = (x & 1u) != 0u;
  put(0, subgroupAdd(x));
  put(1, subgroupExclusiveAdd(x));
  put(2, floatBitsToUint(subgroupAdd(float(x & 0xffu))));
  put(3, subgroupBroadcast(x, SIZE - 1));
  put(4, subgroupBroadcastFirst(x));
  put(5, subgroupShuffle(x, (lane * 5 + 3) % SIZE));
  put(6, subgroupShuffleXor(x, 1u));
  put(7, uint(subgroupElect()));
  uvec4 ballot = subgroupBallot(odd);
  put(8, ballot.x);
  put(9, subgroupBallotBitCount(ballot));
  put(10, subgroupBallotExclusiveBitCount(ballot));
  if (lane == 0u) counter = 7u, taken = 0u;
  barrier();
  put(11, atomicAdd(counter, 0u) >= 7u ? 1u : 0u);
  atomicAdd(counter, x);
  barrier();
  put(12, counter);
  uint before = atomicCompSwap(taken, 0u, lane + 1u);
  barrier();
  put(13, subgroupAdd(uint(before == 0u)));
  put(14, uint(taken == (before == 0u ? lane + 1u : before)));
}
";

#[test]
fn invocations_exchange_what_they_have() {
    let size = device().caps.subgroup;
    if size == 0 {
        return println!("left out: invocations of this device do not exchange values");
    }
    let mut random = Random(17);
    let numbers: Vec<u32> = (0..size).map(|_| random.next() as u32).collect();
    let text = head(&device().caps, false, &[], &[Compute::Uint, Compute::Float], "");
    let (body, rows) = (SOURCE.replace("SIZE", &size.to_string()), 15);
    let words = glsl::compile(&(text + &body)).unwrap();
    let after = run_spirv(&words, &[numbers.clone(), vec![0; (rows * size) as usize]], &[], [1, 1, 1]);

    let sum = |count: usize| numbers[..count].iter().fold(0u32, |sum, &x| sum.wrapping_add(x));
    let odd = |count: usize| numbers[..count].iter().filter(|&&x| x & 1 != 0).count() as u32;
    let (n, ballot) = (size as usize, numbers.iter().take(32).rev().fold(0u32, |bits, x| bits << 1 | x & 1));
    let bytes: f32 = numbers.iter().map(|&x| (x & 0xff) as f32).sum();
    let expected: [(&str, &dyn Fn(usize) -> u32); 15] = [
        ("subgroupAdd", &|_| sum(n)),
        ("subgroupExclusiveAdd", &|lane| sum(lane)),
        ("subgroupAdd of floats", &|_| bytes.to_bits()),
        ("subgroupBroadcast", &|_| numbers[n - 1]),
        ("subgroupBroadcastFirst", &|_| numbers[0]),
        ("subgroupShuffle", &|lane| numbers[(lane * 5 + 3) % n]),
        ("subgroupShuffleXor", &|lane| numbers[lane ^ 1]),
        ("subgroupElect", &|lane| u32::from(lane == 0)),
        ("subgroupBallot", &|_| ballot),
        ("subgroupBallotBitCount", &|_| odd(n)),
        ("subgroupBallotExclusiveBitCount", &|lane| odd(lane)),
        ("atomicAdd's result", &|_| 1),
        ("atomicAdd", &|_| 7u32.wrapping_add(sum(n))),
        ("atomicCompSwap, which one invocation wins", &|_| 1),
        ("atomicCompSwap's result", &|_| 1),
    ];
    for (row, (name, expected)) in expected.into_iter().enumerate() {
        for lane in 0..n {
            let result = after[1][row * n + lane];
            assert_eq!(result, expected(lane), "{}: {name} of lane {lane}", device().caps.driver);
        }
    }
}
