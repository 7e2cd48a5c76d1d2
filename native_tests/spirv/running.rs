//! What passes computes the same as before and stays within its memory.

use nx_vulkan::pipeline::spirv::Limits;

use crate::support::{device, run_spirv};
use crate::*;

/// Loading must not change what a kernel computes: compared with the words as they came from the compiler.
#[test]
fn a_loaded_kernel_computes_what_the_original_does() {
    let limits = Limits::of(&device().device);
    let floats = |n: usize| (0..n).map(|i| (i as f32 * 0.37 - 20.0).to_bits()).collect::<Vec<u32>>();
    let doubles = |n: usize| {
        let values = (0..n).map(|i| (i as f64 * 0.37 - 20.0).to_bits());
        values.flat_map(|bits| [bits as u32, (bits >> 32) as u32]).collect::<Vec<u32>>()
    };
    let push_mixed = [1f32.to_bits(); 15].to_vec();
    // Source, buffers, push constants, workgroups.
    type Case = (&'static str, Vec<Vec<u32>>, Vec<u32>, [u32; 3]);
    let cases: [Case; 4] = [
        (BINARY, vec![floats(1000), floats(1000), vec![0; 1000]], vec![990], [4, 1, 1]),
        (REDUCE, vec![floats(1000), vec![0; 2]], vec![1, 1000, 1, 0], [2, 1, 1]),
        (MATMUL, vec![doubles(9 * 13), doubles(13 * 11), vec![0; 9 * 11 * 2]], vec![9, 11, 13], [2, 3, 1]),
        (MIXED, vec![vec![0], vec![0; 200]], push_mixed, [1, 1, 1]),
    ];
    for (source, buffers, push, groups) in cases {
        let (original_version, _) = if source == MIXED { VERSIONS[1] } else { VERSIONS[0] };
        let bytes = compile_as(ShaderKind::Compute, original_version, source);
        if let Err(missing) = load(&bytes).unwrap().check_device(&limits) {
            println!("left out on this device: {missing}");
            continue;
        }
        let words: Vec<u32> = bytes.chunks(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect();
        let original = run_spirv(&words, &buffers, &push, groups);
        assert_ne!(original, buffers);
        for (version, _) in VERSIONS.into_iter().filter(|(version, _)| *version >= original_version) {
            let module = load(&compile_as(ShaderKind::Compute, version, source)).unwrap();
            if module.check_device(&limits).is_ok() {
                assert_eq!(run_spirv(&module.words, &buffers, &push, groups), original);
            }
        }
    }
}

/// Wild indices into workgroup memory, variables and push constants hit the last element; into buffers, nothing
/// outside them.
#[test]
fn wild_indices_stay_within_the_memory_of_a_kernel() {
    let wild = "
        layout(local_size_x = 64) in;
        layout(set = 0, binding = 0) buffer A { uint a[]; };
        layout(set = 0, binding = 1) buffer B { uint b[]; };
        layout(push_constant) uniform Push { uint p[4]; };
        shared uint s[64];
        void main() {
            uint l = gl_LocalInvocationID.x, t[8];
            s[l] = l;
            for (int i = 0; i < 8; i++) t[i] = a[i];
            barrier();
            for (uint k = 6; k < 32; k++) {
                if (l == 0) s[l + (1u << k)] = 1000 + k;
                t[l + (1u << k)] = k;
                // Beyond 2^29 the offset in bytes wraps around in 32 bits.
                b[l + (1u << min(k, 29))] = 7;
                b[l - (1u << min(k, 29))] = 7;
            }
            barrier();
            uint far = s[a[0] + 0x70000000u] + p[l + 0x7fffff00u] + t[(1u << 31) + l];
            a[l] = far + s[int(l) - 64];
        }";
    let module = load(&compile(wild)).unwrap();
    let buffers = [vec![0x0000_1234; 64], vec![5; 64]];
    let after = run_spirv(&module.words, &buffers, &[1, 2, 3, 4], [1, 1, 1]);
    // s[63] = 1031 (the last store), p[3] = 4, t[7] = 31; an index below zero is beyond the end as well.
    assert_eq!(after[0], vec![1031 + 4 + 31 + 1031; 64]);
    assert_eq!(after[1], buffers[1]);
}
