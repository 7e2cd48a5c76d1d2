//! What passes, what is refused, and why.

use std::collections::BTreeSet;

use nx_vulkan::pipeline::spirv::{Capability, Limits};

use shaderc::{OptimizationLevel, ShaderKind};

use crate::support::{Random, seed};
use crate::*;

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
            assert_eq!(module.bindings, [BufferBinding { binding: 1, written: true }]);
            // vec3 in 16 bytes, float[5] in 32 (the matrix is 8-aligned), two rows of three floats with a stride of 16 bytes.
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
    let reduce = |values: &[(u32, i32)]| load_with(&compile(REDUCE), values).unwrap();
    let module = reduce(&[(3, 64), (7, 5), (99, 1)]);
    assert_eq!((module.local_size, module.shared_memory_bytes), ([64, 1, 1], (64 * 5 + 1) * 4));
    assert_ne!(reduce(&[(3, 64)]).words, reduce(&[(3, 32)]).words);
    // What has no specialization constants left takes no more values.
    let bytes: Vec<u8> = module.words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let again = load_with(&bytes, &[(3, 1)]).unwrap();
    assert_eq!((again.local_size, again.specialization_ids.len()), ([64, 1, 1], 0));

    let error = |source: &str, values: &[(u32, i32)]| load_with(&compile(source), values).unwrap_err().to_string();
    assert!(error(REDUCE, &[(3, 0)]).contains("workgroup size that is zero"));
    assert!(error(REDUCE, &[(7, -1)]).contains("an array of"));
    let double =
        "layout(constant_id = 0) const double X = 1.0lf; layout(set = 0, binding = 0) buffer A { double a[]; };
        void main() { a[0] = X; }";
    assert!(load(&compile(double)).is_ok());
    assert!(error(double, &[(0, 3)]).contains("specialization constant 0 is not a 32-bit integer"));
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
                let loaded = load_with(&bytes, &[(1, a), (2, b), (3, expected.unwrap_or(0))]);
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
    let seed = seed();
    let mut random = Random(seed);
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
            Err(SpirvError::Internal(message)) => panic!("a checker failed with NX_VULKAN_SEED={seed}: {message}"),
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
    assert!(refusal(&bound).contains("3000000 as the bound of its ids"));
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
    let huge = "%m = OpConstant %u32 2147483647\n%big = OpTypeArray %u32 %m\n%pbig = OpTypePointer Private %big
        %v = OpVariable %pbig Private";
    refused(&kernel("", huge, ""), "bytes of variables an invocation");
}

/// Equal declarations by the thousand take no more time than different ones.
#[test]
fn equal_declarations_are_checked_in_linear_time() {
    let times = |count: usize, line: &str| (0..count).map(|i| line.replace('#', &i.to_string())).collect::<String>();
    let inputs = format!("%pin = OpTypePointer Input %u32\n{}", times(20_000, "%v# = OpVariable %pin Input\n"));
    let start = std::time::Instant::now();
    for (annotations, declarations) in [
        (String::new(), times(20_000, "%c# = OpConstant %u32 7\n")),
        (String::new(), times(20_000, "%t# = OpTypeArray %u32 %one\n")),
        (times(20_000, "OpDecorate %v# BuiltIn LocalInvocationIndex\n"), inputs),
    ] {
        assert!(load(&kernel(&annotations, &declarations, "")).is_ok());
    }
    // The quadratic way takes minutes, this one about a second.
    assert!(start.elapsed().as_secs() < 30);
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
        let module = load_with(&compile_as(ShaderKind::Compute, version, source), values).unwrap();
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

/// Constant expressions that crash SPIRV-Tools' own folding although its validator accepts them get an answer.
#[test]
fn hostile_constant_expressions_get_an_answer() {
    let answer = |expression: &str| {
        load(&assemble(&format!(
            "OpCapability Shader\nOpCapability Int64\nOpMemoryModel Logical GLSL450
             OpEntryPoint GLCompute %main \"main\"\nOpExecutionMode %main LocalSize 1 1 1
             %void = OpTypeVoid\n%f = OpTypeFunction %void\n%bool = OpTypeBool
             %s32 = OpTypeInt 32 1\n%s64 = OpTypeInt 64 1
             %a32 = OpSpecConstant %s32 -2147483648\n%b32 = OpSpecConstant %s32 -1
             %a64 = OpSpecConstant %s64 -9223372036854775808\n%b64 = OpSpecConstant %s64 -1
             %v = OpSpecConstantOp {expression}
             %main = OpFunction %void None %f\n%l = OpLabel\nOpReturn\nOpFunctionEnd"
        )))
    };
    for (op, bits) in ["SDiv", "SRem", "SMod"].into_iter().flat_map(|op| [(op, "32"), (op, "64")]) {
        assert!(answer(&format!("%s{bits} {op} %a{bits} %b{bits}")).is_ok(), "{op} of {bits} bits");
    }
    // The declared type is not the one that the operation gives.
    for expression in ["%bool IAdd %a32 %b32", "%bool SDiv %a64 %b32", "%s32 SLessThan %a32 %b64"] {
        assert!(!matches!(answer(expression), Err(SpirvError::Internal(_))), "{expression}");
    }
}

/// A constant index is signed whatever its type: an unsigned 8-bit 200 means 56 elements before the array.
#[test]
fn a_narrow_constant_index_beyond_the_signed_range_is_clamped() {
    let with_index = |index: u32| {
        load(&assemble(&format!(
            "OpCapability Shader\nOpCapability Int8\nOpMemoryModel Logical GLSL450
             OpEntryPoint GLCompute %main \"main\"\nOpExecutionMode %main LocalSize 1 1 1
             %void = OpTypeVoid\n%f = OpTypeFunction %void\n%u32 = OpTypeInt 32 0\n%u8 = OpTypeInt 8 0
             %length = OpConstant %u32 256\n%array = OpTypeArray %u32 %length\n%index = OpConstant %u8 {index}
             %parray = OpTypePointer Workgroup %array\n%pword = OpTypePointer Workgroup %u32
             %shared = OpVariable %parray Workgroup
             %main = OpFunction %void None %f\n%l = OpLabel
             %p = OpAccessChain %pword %shared %index\nOpStore %p %length\nOpReturn\nOpFunctionEnd"
        )))
        .unwrap()
        .words
        .len()
    };
    assert!(with_index(200) > with_index(100));
    assert_eq!(with_index(127), with_index(100));
}
