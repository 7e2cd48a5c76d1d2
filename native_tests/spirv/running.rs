//! What passes computes the same as before and stays within its memory.

use std::collections::HashMap;

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

/// A kernel whose last workgroup runs past the end of its buffers: what lies past the end reads as zero and vanishes when
/// stored, in runtime arrays and in structs of arrays alike, and the last element keeps its own value.
#[test]
fn accesses_past_the_end_of_a_buffer_leave_the_last_element_alone() {
    let source = "
        layout(local_size_x = 64) in;
        struct Inner { uint x[3]; };
        struct Record { uint head; Inner inner[2]; };
        layout(std430, set = 0, binding = 0) buffer A { uint a[]; };
        layout(std430, set = 0, binding = 1) buffer B { uint count; Record records[]; };
        void main() {
            uint i = gl_GlobalInvocationID.x;
            a[i] = a[i] + i;
            for (uint k = 0; k < 6; k++) records[i].inner[k / 3].x[k % 3] = i;
            if (i == 0) count = a[9000 + i];
        }";
    // Ten elements; a counter and three records of seven words.
    let after = run_spirv(&load(&compile(source)).unwrap().words, &[vec![100; 10], vec![9; 22]], &[], [1, 1, 1]);
    assert_eq!(after[0], (100..110).collect::<Vec<u32>>());
    let record = |i: u32| [9, i, i, i, i, i, i];
    assert_eq!(after[1], [&[0][..], &record(0), &record(1), &record(2)].concat());
}

/// The module with access chains that take their indices before their conversion to 32 bits, which GLSL demands and
/// SPIR-V does not.
fn without_index_conversions(bytes: &[u8]) -> Vec<u8> {
    const ACCESS_CHAIN: u32 = 65;
    const U_CONVERT: u32 = 113;
    const S_CONVERT: u32 = 114;
    let mut words: Vec<u32> = bytes.chunks(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect();
    let (mut converted, mut at) = (HashMap::new(), 5);
    while at < words.len() {
        let (code, count) = (words[at] & 0xffff, (words[at] >> 16) as usize);
        match code {
            U_CONVERT | S_CONVERT => _ = converted.insert(words[at + 2], words[at + 3]),
            ACCESS_CHAIN => {
                words[at + 4..at + count].iter_mut().for_each(|index| *index = *converted.get(index).unwrap_or(index))
            }
            _ => {}
        }
        at += count;
    }
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Indices of every integer type into workgroup memory, private arrays, vectors, matrices, nested structs and push
/// constants: those in bounds hit their element, those beyond an element of the same array.
#[test]
fn indices_of_every_integer_type_stay_within_their_array() {
    let limits = Limits::of(&device().device);
    for (ty, extension, samples) in [
        ("int", "", "-2147483647 - 1, -1, 0, 5, 7, 8, 1000, 2147483647"),
        ("uint", "", "0x80000000u, 0xffffffffu, 0, 5, 7, 8, 1000u, 0x7fffffffu"),
        ("int8_t", "int8", "-128, -1, 0, 5, 7, 8, 100, 127"),
        ("uint8_t", "int8", "128, 255, 0, 5, 7, 8, 100, 200"),
        ("int16_t", "int16", "-32768, -1, 0, 5, 7, 8, 1000, 32767"),
        ("uint16_t", "int16", "32768, 65535, 0, 5, 7, 8, 1000, 65535"),
        ("int64_t", "int64", "-1l << 63, -1, 0, 5, 7, 8, 1l << 32, 1l << 62"),
        ("uint64_t", "int64", "1ul << 63, 0xfffffffffffffffful, 0, 5, 7, 8, 1ul << 32, 1ul << 62"),
    ] {
        let index = if ty.starts_with('u') { "uint(i)" } else { "int(i)" };
        let require = match extension {
            "" => String::new(),
            name => format!("#extension GL_EXT_shader_explicit_arithmetic_types_{name} : require"),
        };
        let source = format!(
            "{require}
            layout(local_size_x = 1) in;
            struct Nested {{ uint before; uint values[8]; uint after; }};
            layout(set = 0, binding = 0) buffer A {{ uint r[]; }};
            layout(push_constant) uniform Push {{ uint p[8]; uint zero; }};
            shared uint guard0[64]; shared Nested s[8]; shared uint guard1[64];
            uint own[8];
            void main() {{
                {ty} samples[8] = {ty}[]({});
                for (int k = 0; k < 8; k++) {{
                    uint t[8]; uvec4 v = uvec4(0, 1, 2, 3); mat2x4 m = mat2x4(0, 1, 2, 3, 4, 5, 6, 7);
                    for (int j = 0; j < 8; j++) {{
                        t[j] = own[j] = j;
                        s[j].before = s[j].after = 99;
                        for (int i = 0; i < 8; i++) s[j].values[i] = i;
                    }}
                    {ty} i = samples[k + int(zero)];
                    r[k * 6] = s[{index}].values[{index}];
                    r[k * 6 + 1] = t[{index}] + own[{index}] * 100;
                    r[k * 6 + 2] = p[{index}];
                    r[k * 6 + 3] = v[{index}];
                    r[k * 6 + 4] = uint(m[{index}][{index}]);
                    s[{index}].values[{index}] = 50;
                    own[{index}] = 60;
                    uint sum = own[0] + own[1] + own[2] + own[3] + own[4] + own[5] + own[6] + own[7];
                    for (int j = 0; j < 8; j++) sum += s[j].before + s[j].after;
                    r[k * 6 + 5] = sum;
                }}
            }}",
            samples.split(", ").map(|value| format!("{ty}({value})")).collect::<Vec<_>>().join(", ")
        );
        let compiled = compile(&source);
        let direct = without_index_conversions(&compiled);
        assert_eq!(direct == compiled, extension.is_empty(), "{ty}");
        let module = load(&direct).unwrap();
        if let Err(missing) = module.check_device(&limits) {
            println!("left out on this device: {missing}");
            continue;
        }
        let push = [0, 1, 2, 3, 4, 5, 6, 7, 0];
        let after = &run_spirv(&module.words, &[vec![0; 48]], &push, [1, 1, 1])[0];
        for (k, sample) in after.chunks(6).enumerate() {
            let own = sample[1] / 100;
            assert!(sample[0] < 8 && own < 8 && sample[1] == own * 101 && sample[2] < 8, "{ty} {k}: {sample:?}");
            assert!(sample[3] < 4 && sample[4] < 8, "{ty} {k}: {sample:?}");
            // A store hits one element of its own array, none of its neighbours.
            assert_eq!(sample[5], 28 - own + 60 + 16 * 99, "{ty} {k}: {sample:?}");
            if let Some(&index) = [0, 5, 7].get(k.wrapping_sub(2)) {
                assert_eq!((sample[0], own, sample[2]), (index, index, index), "{ty} {k}");
            }
        }
    }
}

/// Specialization constants of each type reach the kernel as the call or the module gives them.
#[test]
fn specialization_constants_of_every_type_reach_the_kernel() {
    let source = "
        #extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
        #extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
        #extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
        layout(local_size_x_id = 8, local_size_y = 2) in;
        layout(constant_id = 0) const bool B = true;
        layout(constant_id = 1) const int I = -7;
        layout(constant_id = 2) const uint U = 3000000000u;
        layout(constant_id = 3) const float F = 1.5;
        layout(constant_id = 4) const double D = -2.25lf;
        layout(constant_id = 5) const int64_t L = -5000000000l;
        layout(constant_id = 6) const int16_t S = int16_t(-300);
        layout(constant_id = 7) const int8_t C = int8_t(-100);
        const int mixed = B ? I * 3 + int(U % 7u) : -I;
        const uint shifted = (U >> 4) | (uint(I) << 28);
        layout(set = 0, binding = 0) buffer A { int r[]; };
        shared int s[gl_WorkGroupSize.x * gl_WorkGroupSize.y];
        void main() {
            s[gl_LocalInvocationIndex] = int(gl_LocalInvocationIndex);
            barrier();
            if (gl_LocalInvocationIndex != 0) return;
            r[0] = int(B); r[1] = I; r[2] = int(U); r[3] = int(F * 100.0); r[4] = int(D * 100.0lf);
            r[5] = int(L / 1000l); r[6] = int(S); r[7] = int(C); r[8] = mixed; r[9] = int(shifted); r[10] = int(s.length());
        }";
    let limits = Limits::of(&device().device);
    let results = |values: &[(u32, i32)]| -> Option<Vec<i32>> {
        let module = load_with(&compile(source), values).unwrap();
        module.check_device(&limits).inspect_err(|missing| println!("left out on this device: {missing}")).ok()?;
        let after = run_spirv(&module.words, &[vec![0; 11]], &[], [1, 1, 1]).remove(0);
        Some(after.into_iter().map(|word| word as i32).collect())
    };
    let expected = |b: bool, i: i32, u: u32, x: i32| {
        let mixed = if b { i * 3 + (u % 7) as i32 } else { -i };
        let shifted = (u >> 4 | (i as u32) << 28) as i32;
        vec![b.into(), i, u as i32, 150, -225, -5_000_000, -300, -100, mixed, shifted, x * 2]
    };
    for (values, expected) in [
        (&[][..], expected(true, -7, 3_000_000_000, 1)),
        (&[(0, 0), (1, 12), (2, -2), (8, 16)], expected(false, 12, u32::MAX - 1, 16)),
        (&[(0, -1), (1, 5), (2, 100), (8, 3)], expected(true, 5, 100, 3)),
    ] {
        let Some(results) = results(values) else { continue };
        assert_eq!(results, expected, "{values:?}");
    }
}
