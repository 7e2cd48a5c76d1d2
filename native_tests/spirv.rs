//! Checking, specialising and reflecting foreign SPIR-V: what passes, what is turned away and why, and that what
//! passes computes the same as before and stays within its memory.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;

use nx_vulkan::memory::{Block, Buffer};
use nx_vulkan::pipeline::spirv::{self, Binding, Capability, Limits, Module, SpirvError};
use nx_vulkan::pipeline::{Blueprint, Pipeline};
use nx_vulkan::stream::{self, Dispatch};
use shaderc::{CompileOptions, Compiler, OptimizationLevel, ShaderKind, TargetEnv};
use support::{Random, device, download, upload};

/// Vulkan 1.0 to 1.3 as shaderc takes them: SPIR-V 1.0 (`BufferBlock`), 1.3, 1.5 and 1.6 (`LocalSizeId`).
const VERSIONS: [(u32, (u8, u8)); 4] =
    [(1 << 22, (1, 0)), (1 << 22 | 1 << 12, (1, 3)), (1 << 22 | 2 << 12, (1, 5)), (1 << 22 | 3 << 12, (1, 6))];
const LATEST: u32 = VERSIONS[3].0;

fn options(version: u32) -> CompileOptions<'static> {
    let mut options = CompileOptions::new().unwrap();
    options.set_target_env(TargetEnv::Vulkan, version);
    options
}

fn compile_as(kind: ShaderKind, version: u32, source: &str) -> Vec<u8> {
    let source = format!("#version 450\n{source}");
    let compiler = Compiler::new().unwrap();
    compiler.compile_into_spirv(&source, kind, "test", "main", Some(&options(version))).unwrap().as_binary_u8().to_vec()
}

fn compile(source: &str) -> Vec<u8> {
    compile_as(ShaderKind::Compute, LATEST, source)
}

fn assemble(source: &str) -> Vec<u8> {
    Compiler::new().unwrap().assemble(source, Some(&options(LATEST))).unwrap().as_binary_u8().to_vec()
}

/// Assembles a kernel that stores constant 0 in binding 0: extra declarations, types and statements go in between.
fn kernel(annotations: &str, types: &str, statements: &str) -> Vec<u8> {
    assemble(&format!(
        "OpCapability Shader
         OpExtension \"SPV_KHR_storage_buffer_storage_class\"
         OpMemoryModel Logical GLSL450
         OpEntryPoint GLCompute %main \"main\"
         OpExecutionMode %main LocalSize 4 1 1
         OpDecorate %block Block
         OpMemberDecorate %block 0 Offset 0
         OpDecorate %words ArrayStride 4
         OpDecorate %out DescriptorSet 0
         OpDecorate %out Binding 0
         {annotations}
         %void = OpTypeVoid
         %nullary = OpTypeFunction %void
         %u32 = OpTypeInt 32 0
         %s32 = OpTypeInt 32 1
         %bool = OpTypeBool
         %zero = OpConstant %u32 0
         %one = OpConstant %u32 1
         %words = OpTypeRuntimeArray %u32
         %block = OpTypeStruct %words
         %pblock = OpTypePointer StorageBuffer %block
         %pword = OpTypePointer StorageBuffer %u32
         %out = OpVariable %pblock StorageBuffer
         {types}
         %main = OpFunction %void None %nullary
         %entry = OpLabel
         {statements}
         %p = OpAccessChain %pword %out %zero %zero
         OpStore %p %zero
         OpReturn
         OpFunctionEnd"
    ))
}

fn load(bytes: &[u8]) -> Result<Module, SpirvError> {
    spirv::load(bytes, &[])
}

/// The message with which a module is turned away.
fn refusal(bytes: &[u8]) -> String {
    match load(bytes) {
        Err(error) => error.to_string(),
        Ok(module) => panic!("accepted: {module:?}"),
    }
}

fn bindings(written: &[bool]) -> Vec<Binding> {
    (0..).zip(written).map(|(binding, &written)| Binding { binding, written }).collect()
}

const BINARY: &str = "
layout(local_size_x = 256) in;
layout(constant_id = 0) const int OP = 0;
layout(set = 0, binding = 0) buffer A { float a[]; };
layout(set = 0, binding = 1) readonly buffer B { float b[]; };
layout(set = 0, binding = 2) buffer C { float c[]; };
layout(push_constant) uniform Push { uint n; };
void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i >= n) return;
    switch (OP) {
        case 0: c[i] = a[i] + b[i]; break;
        case 1: c[i] = a[i] * b[i]; break;
        default: c[i] = a[i] - b[i];
    }
}";

const REDUCE: &str = "
layout(local_size_x_id = 3) in;
layout(constant_id = 7) const int WIDE = 2;
layout(set = 0, binding = 0) buffer A { float a[]; };
layout(set = 0, binding = 1) buffer C { float c[]; };
layout(push_constant) uniform Push { uint outer_, reduce, inner_, op; };
shared float s[gl_WorkGroupSize.x * WIDE + 1];
void main() {
    uint l = gl_LocalInvocationID.x;
    float acc = 0.0;
    for (uint i = l; i < reduce; i += gl_WorkGroupSize.x) acc += a[i];
    s[l] = acc;
    barrier();
    for (uint k = gl_WorkGroupSize.x / 2; k > 0; k >>= 1) {
        if (l < k) s[l] += s[l + k];
        barrier();
    }
    if (l == 0) c[gl_WorkGroupID.x] = s[0];
}";

const MATMUL: &str = "
layout(local_size_x = 8, local_size_y = 4) in;
layout(set = 0, binding = 0) readonly buffer A { double a[]; };
layout(set = 0, binding = 1) readonly buffer B { double b[]; };
layout(set = 0, binding = 2) writeonly buffer C { double c[]; };
layout(push_constant) uniform Push { uint M, N, K; };
shared double ta[4][8];
void main() {
    uint x = gl_GlobalInvocationID.x, y = gl_GlobalInvocationID.y;
    double acc = 0.0lf;
    for (uint t = 0; t < K; t += 8) {
        uint k0 = t + gl_LocalInvocationID.x;
        ta[gl_LocalInvocationID.y][gl_LocalInvocationID.x] = y < M && k0 < K ? a[y * K + k0] : 0.0lf;
        barrier();
        for (uint k = 0; k < 8 && t + k < K && x < N; k++) acc += ta[gl_LocalInvocationID.y][k] * b[(t + k) * N + x];
        barrier();
    }
    if (x < N && y < M) c[y * N + x] = acc;
}";

const MIXED: &str = "
#extension GL_KHR_shader_subgroup_arithmetic : enable
layout(local_size_x = 16) in;
struct Record { uint count; ivec2 span; mat3 m; uint bins[8]; };
layout(std430, set = 0, binding = 1) buffer A { uint head; Record records[4]; uint tail[]; };
layout(push_constant) uniform Push { vec3 v; float f[5]; layout(row_major) mat3x2 rm; } push;
shared vec4 parts[16];
float fold(inout float x, float y) { x += y; int e; return frexp(x, e) + float(e); }
void main() {
    uint l = gl_LocalInvocationIndex;
    float local_[6];
    for (int i = 0; i < 6; i++) local_[i] = float(i) * push.f[i % 5];
    parts[l] = vec4(push.v, push.rm[l % 3][l % 2]);
    parts[l][l & 3u] += fold(local_[l % 6], subgroupAdd(1.0));
    barrier();
    atomicAdd(records[l & 3u].bins[l & 7u], uint(parts[15 - l].x));
    records[l & 3u].m[l % 3] = parts[l].xyz + local_[(l + 1) % 6];
}";

#[test]
fn kernels_of_every_spirv_version_are_reflected() {
    for (version, spirv_version) in VERSIONS {
        let of = |source| load(&compile_as(ShaderKind::Compute, version, source)).unwrap();

        let module = of(BINARY);
        assert_eq!(module.version, spirv_version);
        assert_eq!(module.entry_point, "main");
        assert_eq!(module.local_size, [256, 1, 1]);
        assert_eq!(module.bindings, bindings(&[false, false, true]));
        assert_eq!((module.push_constant_bytes, module.shared_memory_bytes), (4, 0));
        assert_eq!(module.specialization_ids, [0]);
        assert_eq!(module.capabilities, BTreeSet::from([Capability::Shader]));

        let module = of(REDUCE);
        assert_eq!(module.local_size, [1, 1, 1]);
        assert_eq!(module.bindings, bindings(&[false, true]));
        assert_eq!((module.push_constant_bytes, module.shared_memory_bytes), (16, 3 * 4));
        assert_eq!(module.specialization_ids, [3, 7]);

        let module = of(MATMUL);
        assert_eq!(module.local_size, [8, 4, 1]);
        assert_eq!(module.bindings, bindings(&[false, false, true]));
        assert_eq!((module.push_constant_bytes, module.shared_memory_bytes), (12, 4 * 8 * 8));
        assert!(module.capabilities.contains(&Capability::Float64));

        if spirv_version >= (1, 3) {
            let module = of(MIXED);
            assert_eq!(module.bindings, [Binding { binding: 1, written: true }]);
            // vec3 in 16 bytes, float[5] in 32 (the matrix is 8-aligned), two rows of three floats 16 bytes apart.
            assert_eq!((module.push_constant_bytes, module.shared_memory_bytes), (32 + 16 + 12, 16 * 16));
        }
    }
}

#[test]
fn debug_information_optimisation_and_byte_order_change_nothing() {
    let compiler = Compiler::new().unwrap();
    let plain = load(&compile(MIXED)).unwrap();
    let with = |change: fn(&mut CompileOptions)| {
        let mut options = options(LATEST);
        change(&mut options);
        let source = format!("#version 450\n{MIXED}");
        let artifact = compiler.compile_into_spirv(&source, ShaderKind::Compute, "t", "main", Some(&options)).unwrap();
        load(artifact.as_binary_u8()).unwrap()
    };
    let debug = with(|options| options.set_generate_debug_info());
    assert_eq!(debug.words.len(), plain.words.len());
    let optimised = with(|options| options.set_optimization_level(OptimizationLevel::Performance));
    for module in [debug, optimised] {
        assert_eq!(
            (&module.bindings, module.local_size, module.push_constant_bytes, module.shared_memory_bytes),
            (&plain.bindings, plain.local_size, plain.push_constant_bytes, plain.shared_memory_bytes)
        );
    }
    let big_endian: Vec<u8> = compile(MIXED).chunks(4).flat_map(|word| word.iter().rev().copied()).collect();
    assert_eq!(load(&big_endian).unwrap().words, plain.words);
}

#[test]
fn specialization_constants_become_plain_constants() {
    let reduce = |values: &[(u32, i32)]| spirv::load(&compile(REDUCE), values).unwrap();
    let module = reduce(&[(3, 64), (7, 5), (99, 1)]);
    assert_eq!((module.local_size, module.shared_memory_bytes), ([64, 1, 1], (64 * 5 + 1) * 4));
    assert_ne!(reduce(&[(3, 64)]).words, reduce(&[(3, 32)]).words);
    // What has no specialization constants left takes no more values.
    let bytes: Vec<u8> = module.words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let again = spirv::load(&bytes, &[(3, 1)]).unwrap();
    assert_eq!((again.local_size, again.specialization_ids.len()), ([64, 1, 1], 0));

    let error = |source: &str, values: &[(u32, i32)]| spirv::load(&compile(source), values).unwrap_err().to_string();
    assert!(error(REDUCE, &[(3, 0)]).contains("workgroup size that is zero"));
    assert!(error(REDUCE, &[(7, -1)]).contains("an array of"));
    let wide = "layout(constant_id = 0) const double X = 1.0lf; layout(set = 0, binding = 0) buffer A { double a[]; };
        void main() { a[0] = X; }";
    assert!(load(&compile(wide)).is_ok());
    assert!(error(wide, &[(0, 3)]).contains("specialization constant 0 is not a 32-bit integer"));
}

/// Constant expressions, with what SPIR-V defines them to be; the values are seen as lengths of a workgroup array.
#[test]
fn constant_expressions_are_evaluated_as_spirv_defines_them() {
    let samples = [i32::MIN, i32::MIN + 1, -70_000, -256, -33, -7, -1, 0, 1, 2, 3, 31, 32, 255, 70_001, i32::MAX];
    type Reference = fn(i32, i32) -> Option<i32>;
    let table: [(&str, Reference); 16] = [
        ("IAdd", |a, b| Some(a.wrapping_add(b))),
        ("ISub", |a, b| Some(a.wrapping_sub(b))),
        ("IMul", |a, b| Some(a.wrapping_mul(b))),
        ("UDiv", |a, b| (a as u32).checked_div(b as u32).map(|x| x as i32)),
        ("UMod", |a, b| (a as u32).checked_rem(b as u32).map(|x| x as i32)),
        ("SDiv", |a, b| (b != 0).then(|| a.wrapping_div(b))),
        ("SRem", |a, b| (b != 0).then(|| a.wrapping_rem(b))),
        // The result has the sign of the divisor.
        ("SMod", |a, b| {
            let (a, b) = (i64::from(a), i64::from(b));
            (b != 0).then(|| (a - b * (a as f64 / b as f64).floor() as i64) as i32)
        }),
        ("ShiftLeftLogical", |a, b| (a as u32).checked_shl(b as u32).map(|x| x as i32).or(Some(0))),
        ("ShiftRightLogical", |a, b| (a as u32).checked_shr(b as u32).map(|x| x as i32).or(Some(0))),
        ("ShiftRightArithmetic", |a, b| Some(a >> (b as u32).min(31))),
        ("BitwiseAnd", |a, b| Some(a & b)),
        ("BitwiseOr", |a, b| Some(a | b)),
        ("BitwiseXor", |a, b| Some(a ^ b)),
        ("ULessThan", |a, b| Some(i32::from((a as u32) < b as u32))),
        ("SGreaterThanEqual", |a, b| Some(i32::from(a >= b))),
    ];
    let module = |op: &str, arguments: &str, result: &str| {
        // Length 1 + (result == expected ? 1 : 2).
        kernel(
            "OpDecorate %a SpecId 1\nOpDecorate %b SpecId 2\nOpDecorate %expected SpecId 3",
            &format!(
                "%a = OpSpecConstant %s32 0
                 %b = OpSpecConstant %s32 1
                 %expected = OpSpecConstant %s32 0
                 %two = OpConstant %u32 2
                 %i_one = OpConstant %s32 1
                 %i_zero = OpConstant %s32 0
                 %raw = OpSpecConstantOp %{result} {op} {arguments}
                 {}
                 %same = OpSpecConstantOp %bool IEqual %value %expected
                 %more = OpSpecConstantOp %u32 Select %same %one %two
                 %length = OpSpecConstantOp %u32 IAdd %one %more
                 %array = OpTypeArray %u32 %length
                 %parray = OpTypePointer Workgroup %array
                 %shared = OpVariable %parray Workgroup",
                match result {
                    "bool" => "%value = OpSpecConstantOp %s32 Select %raw %i_one %i_zero",
                    _ => "%value = OpSpecConstantOp %s32 BitwiseOr %raw %i_zero",
                }
            ),
            "",
        )
    };
    for (op, reference) in table {
        let result = if op.contains("Than") { "bool" } else { "s32" };
        let result = if op.starts_with('U') && result == "s32" { "u32" } else { result };
        let bytes = module(op, "%a %b", result);
        for a in samples {
            for b in samples {
                let expected = reference(a, b);
                let loaded = spirv::load(&bytes, &[(1, a), (2, b), (3, expected.unwrap_or(0))]);
                match (loaded, expected) {
                    (Ok(module), Some(_)) => assert_eq!(module.shared_memory_bytes, 2 * 4, "{op} {a} {b}"),
                    (Err(error), None) => {
                        assert!(error.to_string().contains("divides by zero"), "{op} {a} {b}: {error}")
                    }
                    (other, _) => panic!("{op} {a} {b}: {other:?}"),
                }
            }
        }
    }
}

#[test]
fn what_is_no_spirv_is_named_so() {
    for (bytes, reason) in [
        (&b""[..], "0 bytes"),
        (b"abc", "3 bytes"),
        (b"#version 450\nvoid main() {}\n", "it starts with [23, 76, 65, 72]"),
        (b"\x7fELF\x02\x01\x01\x00", "it starts with"),
        (b"\x03\x02\x23\x07", "hold no header"),
        (b"\x03\x02\x23\x07\x00\x00\x01\x00\x00", "not whole 32-bit words"),
    ] {
        let message = refusal(bytes);
        assert!(message.starts_with("not a SPIR-V module") && message.contains(reason), "{message}");
    }
}

#[test]
fn a_module_cut_off_anywhere_is_refused() {
    for source in [BINARY, REDUCE] {
        let bytes = compile(source);
        for length in 0..bytes.len() {
            assert!(load(&bytes[..length]).is_err(), "{length} of {} bytes", bytes.len());
        }
    }
}

/// One word or bit changed anywhere: an answer, whatever it is, and what still passes can be loaded again.
#[test]
fn damaged_modules_get_an_answer() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(1, |since| since.subsec_nanos().into())
    });
    println!("SEED={seed}");
    let mut random = Random(seed | 1);
    let mut below = |n: usize| random.below(n as u64) as usize;
    let modules: Vec<Vec<u8>> = [BINARY, REDUCE, MATMUL, MIXED].map(compile).to_vec();
    let (mut accepted, mut total) = (0, 0);
    for _ in 0..3000 {
        let mut words: Vec<u32> =
            modules[below(modules.len())].chunks(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect();
        for _ in 0..=below(3) {
            let at = below(words.len());
            let other = words[below(words.len())];
            match below(5) {
                0 => words[at] ^= 1 << below(32),
                1 => words[at] = other,
                2 => words[at] = below(words[3].max(1) as usize) as u32,
                3 => words[at] = [0, 1, 4, 64, 1 << 16, i32::MAX as u32, 1 << 31, u32::MAX][below(8)],
                _ => {
                    words.remove(at);
                }
            }
            if words.is_empty() {
                break;
            }
        }
        let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        total += 1;
        match load(&bytes(&words)) {
            Ok(module) => {
                accepted += 1;
                let again = load(&bytes(&module.words)).unwrap();
                assert_eq!((again.bindings, again.local_size), (module.bindings, module.local_size));
            }
            Err(SpirvError::Internal(message)) => panic!("a checker failed with SEED={seed}: {message}"),
            Err(_) => {}
        }
    }
    println!("{accepted} of {total} damaged modules still pass");
    assert!(accepted > 0 && accepted < total);
}

#[test]
fn shaders_of_other_stages_are_refused() {
    let vertex = compile_as(ShaderKind::Vertex, LATEST, "void main() { gl_Position = vec4(0); }");
    let fragment =
        compile_as(ShaderKind::Fragment, LATEST, "layout(location=0) out vec4 c; void main() { c = vec4(0); }");
    assert!(refusal(&vertex).contains("the entry point \"main\" is a Vertex shader"), "{}", refusal(&vertex));
    assert!(refusal(&fragment).contains("the entry point \"main\" is a Fragment shader"));
    let opencl = assemble(
        "OpCapability Addresses\nOpCapability Kernel\nOpMemoryModel Physical64 OpenCL
         OpEntryPoint Kernel %main \"k\"\n%void = OpTypeVoid\n%f = OpTypeFunction %void
         %main = OpFunction %void None %f\n%l = OpLabel\nOpReturn\nOpFunctionEnd",
    );
    assert!(refusal(&opencl).contains("the capability Addresses"));
    let library = assemble("OpCapability Shader\nOpCapability Linkage\nOpMemoryModel Logical GLSL450");
    assert!(refusal(&library).contains("the capability Linkage"));
}

#[test]
fn of_several_entry_points_main_is_taken() {
    let named = |first: &str, second: &str| {
        assemble(&format!(
            "OpCapability Shader\nOpMemoryModel Logical GLSL450
             OpEntryPoint GLCompute %f \"{first}\"\nOpEntryPoint GLCompute %g \"{second}\"
             OpExecutionMode %f LocalSize 3 1 1\nOpExecutionMode %g LocalSize 5 1 1
             %void = OpTypeVoid\n%n = OpTypeFunction %void
             %f = OpFunction %void None %n\n%a = OpLabel\nOpReturn\nOpFunctionEnd
             %g = OpFunction %void None %n\n%b = OpLabel\nOpReturn\nOpFunctionEnd"
        ))
    };
    assert_eq!(load(&named("other", "main")).unwrap().local_size, [5, 1, 1]);
    assert_eq!(load(&named("main", "other")).unwrap().local_size, [3, 1, 1]);
    assert!(refusal(&named("a", "b")).contains("2 entry points, none of them named \"main\""));
}

#[test]
fn memory_beyond_storage_buffers_of_set_0_is_refused() {
    let refused = |declarations: &str, statement: &str, reason: &str| {
        let message = refusal(&compile(&format!("{declarations}\nvoid main() {{ {statement} }}")));
        assert!(message.contains(reason), "{message}");
    };
    refused("layout(set=0, binding=0, r32f) uniform image2D i;", "imageStore(i, ivec2(0), vec4(1));", "images");
    refused("layout(set=0, binding=0) uniform sampler2D s;", "vec4 x = textureLod(s, vec2(0), 0);", "images");
    refused(
        "layout(set=0, binding=3) uniform U { float u; };",
        "float x = u;",
        "binding 3 is no single storage buffer",
    );
    refused(
        "layout(set=0, binding=2) buffer B { float b; } bs[3];",
        "bs[0].b = 1;",
        "binding 2 is no single storage buffer",
    );
    refused("layout(set=1, binding=2) buffer B { float b; };", "b = 1;", "binding 2 of descriptor set 1");
    refused(
        "#extension GL_EXT_buffer_reference : enable
         layout(buffer_reference) buffer P { float x; }; layout(push_constant) uniform Q { P p; };",
        "p.x = 1;",
        "the capability PhysicalStorageBufferAddresses",
    );
    refused(
        "#extension GL_EXT_nonuniform_qualifier : enable
         layout(set=0, binding=2) buffer B { float b; } bs[];",
        "bs[nonuniformEXT(gl_LocalInvocationIndex)].b = 1;",
        "the capability ShaderNonUniform",
    );
    let pointers = assemble("OpCapability Shader\nOpCapability VariablePointers\nOpMemoryModel Logical GLSL450");
    assert!(refusal(&pointers).contains("the capability VariablePointers"));
}

#[test]
fn what_a_driver_would_take_at_its_word_is_refused() {
    let refused = |annotations: &str, types: &str, statements: &str, reason: &str| {
        let message = refusal(&kernel(annotations, types, statements));
        assert!(message.contains(reason), "{message}");
    };
    assert!(load(&kernel("", "", "")).is_ok());
    let input = "%pin = OpTypePointer Input %u32\n%in = OpVariable %pin Input";
    refused("", input, "", "an input variable that is no compute built-in");
    refused("OpDecorate %in BuiltIn LocalInvocationIndex\nOpDecorate %in BuiltIn SubgroupSize", input, "", "");
    let vector = "%vec = OpTypeVector %u32 3\n%pin = OpTypePointer Input %vec\n%in = OpVariable %pin Input";
    refused("OpDecorate %in BuiltIn LocalInvocationIndex", vector, "", "of its proper type");
    refused("OpDecorate %out Binding 1", "", "", "");
    let sizes = "%vec = OpTypeVector %u32 3\n%x = OpConstantComposite %vec %one %one %one
        %y = OpConstantComposite %vec %one %one %one";
    refused(
        "OpDecorate %x BuiltIn WorkgroupSize\nOpDecorate %y BuiltIn WorkgroupSize",
        sizes,
        "",
        "two workgroup sizes",
    );
    refused("%group = OpDecorationGroup\nOpGroupDecorate %group %out", "", "", "decoration groups");
    let mut schema = kernel("", "", "");
    schema[16] = 1;
    assert!(refusal(&schema).contains("instruction schema 1"));
    let mut bound = kernel("", "", "");
    bound[12..16].copy_from_slice(&3_000_000_u32.to_le_bytes());
    assert!(refusal(&bound).contains("an id bound of 3000000"));
    let set = "OpCapability Shader\n%set = OpExtInstImport \"OpenCL.std\"\nOpMemoryModel Logical GLSL450";
    assert!(refusal(&assemble(set)).contains("the instruction set \"OpenCL.std\""));
}

/// What makes the validator or a driver take forever, run out of memory or overrun a table.
#[test]
fn what_grows_without_bound_is_refused() {
    let body = |declarations: &str, statements: &str| {
        compile(&format!(
            "layout(set=0, binding=0) buffer A {{ uint a[]; }};\n{declarations}\nvoid main() {{ {statements} }}"
        ))
    };
    let refused = |bytes: &[u8], reason: &str| assert!(refusal(bytes).contains(reason), "{}", refusal(bytes));

    refused(&body("", "uint t[20000]; t[a[0]] = 1; a[1] = t[a[2]];"), "bytes of variables an invocation");
    refused(
        &body("struct S { uint v[20000]; }; layout(set=0, binding=1) buffer B { S x; S y; };", "y = x;"),
        "scalars",
    );

    let nested =
        |depth: usize| body("", &format!("{} a[0] = 1; {}", "if (a[1] > 2) {".repeat(depth), "}".repeat(depth)));
    assert!(load(&nested(40)).is_ok());
    refused(&nested(70), "nesting depth");
    let returns = |count: usize| body("", &"if (a[1] > 2) { a[0] = 1; return; }".repeat(count));
    assert!(load(&returns(40)).is_ok());
    refused(&returns(70), "nested 71 deep, calls and early returns included");
    let (ifs, ends) = ("if (a[1] > 2) {".repeat(40), "}".repeat(40));
    let calls = format!("void f() {{ {ifs} a[0] = 1; {ends} }}");
    refused(&body(&calls, &format!("{ifs} f(); {ends}")), "nested 80 deep");
    refused(&body("", &"if (a[1] > 2) a[0] = 1;".repeat(2100)), "2100 selections and loops");

    let mut doubling = "uint f0() { return a[0]; }".to_owned();
    (1..30).for_each(|i| doubling += &format!("uint f{i}() {{ return f{0}() ^ f{0}(); }}\n", i - 1));
    refused(&body(&doubling, "a[0] = f29();"), "once inlined");
    let mut chain = "uint f0() { return a[0]; }".to_owned();
    (1..80).for_each(|i| chain += &format!("uint f{i}() {{ return f{}() + 1; }}\n", i - 1));
    refused(&body(&chain, "a[0] = f79();"), "calls nested more than 64 deep");

    let mut structs = "%t0 = OpTypeStruct %u32\n".to_owned();
    (1..40).for_each(|i| structs += &format!("%t{i} = OpTypeStruct %t{0} %t{0}\n", i - 1));
    refused(&kernel("", &structs, ""), "parts");
    let mut arrays = "%a0 = OpTypeArray %u32 %one\n".to_owned();
    (1..40).for_each(|i| arrays += &format!("%a{i} = OpTypeArray %a{} %one\n", i - 1));
    refused(&kernel("", &arrays, ""), "types nested more than 32 deep");
    let equal: String = (0..300).map(|i| format!("%k{i} = OpConstant %u32 7\n")).collect();
    refused(&kernel("", &equal, ""), "the same declaration");
    let huge = "%m = OpConstant %u32 2147483647\n%big = OpTypeArray %u32 %m\n%pbig = OpTypePointer Private %big
        %v = OpVariable %pbig Private";
    refused(&kernel("", huge, ""), "bytes of variables an invocation");
}

/// A constant array of more elements than an instruction has words: its word count has wrapped.
#[test]
fn a_wrapped_word_count_is_refused() {
    let values = vec!["1u"; 65_540].join(",");
    let source = format!(
        "#version 450\nlayout(set=0, binding=0) buffer A {{ uint a[]; }};
         const uint t[65540] = uint[]({values});\nvoid main() {{ a[0] = t[a[1]]; }}"
    );
    // A later glslang may refuse to compile it at all.
    let compiled =
        Compiler::new().unwrap().compile_into_spirv(&source, ShaderKind::Compute, "t", "main", Some(&options(LATEST)));
    if let Ok(artifact) = compiled {
        assert!(load(artifact.as_binary_u8()).is_err());
    }
}

#[test]
fn a_kernel_must_fit_the_call() {
    let module = load(&compile(BINARY)).unwrap();
    assert_eq!(module.check_layout(3, 4), Ok(()));
    assert_eq!(module.check_layout(7, 128), Ok(()));
    let message = |bindings, bytes| module.check_layout(bindings, bytes).unwrap_err().to_string();
    assert!(message(2, 4).contains("it uses binding 2, the call binds 2 buffers"));
    assert!(message(3, 0).contains("it reads 4 bytes of push constants, the call passes 0"));
    // Declared but unused.
    let idle = load(&compile("layout(set=0, binding=9) buffer A { uint a[]; };\nvoid main() {}")).unwrap();
    assert!(idle.bindings.is_empty() || idle.check_layout(3, 0).is_err());
}

#[test]
fn a_kernel_must_fit_the_device() {
    let limits = Limits {
        max_local_size: [256, 256, 64],
        max_invocations: 256,
        max_shared_memory: 1024,
        max_version: (1, 5),
        capabilities: BTreeSet::from([Capability::Shader]),
    };
    let checked = |version: u32, source: &str, values: &[(u32, i32)]| {
        let module = spirv::load(&compile_as(ShaderKind::Compute, version, source), values).unwrap();
        module.check_device(&limits).map_err(|error| error.to_string())
    };
    let (v12, v13) = (VERSIONS[2].0, VERSIONS[3].0);
    assert_eq!(checked(v12, BINARY, &[]), Ok(()));
    assert!(checked(v13, BINARY, &[]).unwrap_err().contains("it is SPIR-V 1.6, the device takes up to 1.5"));
    assert!(checked(v12, MATMUL, &[]).unwrap_err().contains("it needs Float64, which the device lacks"));
    assert_eq!(checked(v12, REDUCE, &[(3, 100)]), Ok(()));
    assert!(checked(v12, REDUCE, &[(3, 200)]).unwrap_err().contains("1604 bytes of workgroup memory"));
    assert!(checked(v12, REDUCE, &[(3, 257), (7, 0)]).unwrap_err().contains("workgroups of 257x1x1"));
    let huge = "layout(local_size_x_id=0, local_size_y_id=1, local_size_z_id=2) in; void main() {}";
    assert!(checked(v12, huge, &[(0, -1), (1, -1), (2, -1)]).unwrap_err().contains("workgroups of 4294967295x"));
    assert!(checked(v12, huge, &[(0, 16), (1, 17), (2, 1)]).unwrap_err().contains("256 in all"));
}

/// Runs a kernel over copies of `buffers`, bound in order, and returns what is in them afterwards.
fn run(words: &[u32], buffers: &[Vec<u32>], push: &[u32], groups: [u32; 3]) -> Vec<Vec<u32>> {
    let push: &[u8] = bytemuck::cast_slice(push);
    let blueprint = Blueprint { push_bytes: push.len() as u32, bindings: buffers.len() as u32, entry_point: "main" };
    let pipeline = Arc::new(Pipeline::build(&device().device, words, &blueprint, &[]).unwrap().0);
    let buffers: Vec<Buffer> = buffers.iter().map(|data| upload(data)).collect();
    let leases: Vec<_> = buffers.iter().map(|buffer| buffer.lease().unwrap()).collect();
    let blocks: Vec<&Block> = leases.iter().map(|lease| &***lease).collect();
    let binding = |(block, buffer): (_, &Buffer)| stream::Binding { block, offset: 0, range: buffer.len() };
    let bindings: Vec<_> = blocks.iter().copied().zip(&buffers).map(binding).collect();
    let dispatch = Dispatch { pipeline: &pipeline, push, groups, reads: &[], writes: &blocks, bindings: &bindings };
    device().stream.dispatch(&dispatch).unwrap();
    buffers.iter().map(download).collect()
}

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
        let original = run(&words, &buffers, &push, groups);
        assert_ne!(original, buffers);
        for (version, _) in VERSIONS.into_iter().filter(|(version, _)| *version >= original_version) {
            let module = load(&compile_as(ShaderKind::Compute, version, source)).unwrap();
            if module.check_device(&limits).is_ok() {
                assert_eq!(run(&module.words, &buffers, &push, groups), original);
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
    let after = run(&module.words, &buffers, &[1, 2, 3, 4], [1, 1, 1]);
    // s[63] = 1031 (the last store), p[3] = 4, t[7] = 31; an index below zero is beyond the end as well.
    assert_eq!(after[0], vec![1031 + 4 + 31 + 1031; 64]);
    assert_eq!(after[1], buffers[1]);
}
