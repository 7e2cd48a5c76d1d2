//! Checking, specialising and reflecting user SPIR-V: what passes, what is refused and why, and that what
//! passes computes the same as before and stays within its memory.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "no one links a crate of tests, whose helpers may panic as the tests do"
)]

mod checking;
mod drawn;
mod largest;
mod optimising;
mod running;
#[path = "../support/mod.rs"]
mod support;

use nx_vulkan::pipeline::SpecializationConstant;
use nx_vulkan::pipeline::spirv::{self, BufferBinding, Module, SizeLimits, SpirvError};
use shaderc::{CompileOptions, Compiler, ShaderKind, TargetEnv};

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
    load_with(bytes, &[])
}

/// Loads a module as it is, with values of specialization constants.
fn load_with(bytes: &[u8], specialization: &[SpecializationConstant]) -> Result<Module, SpirvError> {
    spirv::load(bytes, specialization, &SizeLimits::times(1.0), |_| None)
}

/// The message with which a module is refused.
fn refusal(bytes: &[u8]) -> String {
    match load(bytes) {
        Err(error) => error.to_string(),
        Ok(module) => panic!("accepted: {module:?}"),
    }
}

fn bindings(written: &[bool]) -> Vec<BufferBinding> {
    (0..).zip(written).map(|(binding, &written)| BufferBinding { binding, written }).collect()
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
layout(constant_id = 7) const int WIDTH = 2;
layout(set = 0, binding = 0) buffer A { float a[]; };
layout(set = 0, binding = 1) buffer C { float c[]; };
layout(push_constant) uniform Push { uint outer_, reduce, inner_, op; };
shared float s[gl_WorkGroupSize.x * WIDTH + 1];
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
