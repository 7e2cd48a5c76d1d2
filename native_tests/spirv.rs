//! Checking and reflecting foreign SPIR-V: what passes, what is turned away and why.

use nx_vulkan::pipeline::spirv::{self, Capability, Module, SpirvError};
use shaderc::{CompileOptions, Compiler, EnvVersion, ShaderKind, TargetEnv};

fn compile(source: &str, kind: ShaderKind, version: EnvVersion) -> Vec<u8> {
    let compiler = Compiler::new().unwrap();
    let mut options = CompileOptions::new().unwrap();
    options.set_target_env(TargetEnv::Vulkan, version as u32);
    let artifact = compiler.compile_into_spirv(source, kind, "test", "main", Some(&options)).unwrap();
    artifact.as_binary_u8().to_vec()
}

const BINARY: &str = r"#version 450
layout(local_size_x = 256) in;
layout(constant_id = 0) const int OP = 0;
layout(set = 0, binding = 0) readonly buffer A { float a[]; };
layout(set = 0, binding = 1) buffer B { float b[]; };
layout(set = 0, binding = 2) buffer C { float c[]; };
layout(push_constant) uniform Push { uint n; };
void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i >= n) return;
    c[i] = OP == 0 ? a[i] + b[i] : a[i] * b[i];
}";

#[test]
fn first() {
    let m = spirv::load(&compile(BINARY, ShaderKind::Compute, EnvVersion::Vulkan1_0), &[(0, 1)]).unwrap();
    println!("{:?}", Module { words: vec![], ..m });
    let m = spirv::load(&compile(BINARY, ShaderKind::Compute, EnvVersion::Vulkan1_2), &[]).unwrap();
    println!("{:?}", Module { words: vec![], ..m });
    println!("{:?}", spirv::load(b"hello world", &[]).unwrap_err());
    let _ = (Capability::Shader, SpirvError::NotSpirv(String::new()));
}
