//! Khronos' validation layer as `bin/test` sets it: a wrong call ends the process with the layer's message. What runs under the same
//! settings without ending made no wrong call.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "no one links a crate of tests, whose helpers may panic as the tests do"
)]

#[path = "../support/mod.rs"]
mod support;

use std::env;
use std::process::Command;
use std::sync::Arc;

use ash::vk;
use nx_vulkan::memory::Blocking;
use nx_vulkan::pipeline::{Pipeline, PipelineCreateInfo, glsl};
use nx_vulkan::stream::Dispatch;
use support::device;
use vulkano::VulkanObject;
use vulkano::command_buffer::pool::{CommandBufferAllocateInfo, CommandPool, CommandPoolCreateInfo};

/// Names the wrong call that this process makes.
const WRONG_CALL: &str = "NX_VULKAN_TEST_WRONG_CALL";

/// The layer's settings, by their folder, and wrong calls with the layer's names for them, and those of the buffer or kernel that it
/// names by what `VK_EXT_debug_utils` was told.
const WRONG_CALLS: [(&str, &str, &[&str]); 3] = [
    ("", "barrier", &["VUID-vkCmdPipelineBarrier-srcAccessMask-02815"]),
    ("", "hazard", &["SYNC-HAZARD-WRITE-AFTER-WRITE", "[Device 256 B]"]),
    ("/addresses", "address", &["Device address out of bounds", "Pipeline (writes_beyond)"]),
];

#[test]
#[ignore = "needs Khronos' validation layer; bin/test runs it where that is installed"]
fn the_layer_ends_a_process_that_makes_a_wrong_call() {
    match env::var(WRONG_CALL).as_deref() {
        Err(_) => {}
        Ok("address") => return write_out_of_bounds(),
        Ok(call) => return record(call),
    }
    let output_of = |folder: &str, call: &str| {
        let child = Command::new(env::current_exe().unwrap())
            .args(["--ignored", "--exact", "the_layer_ends_a_process_that_makes_a_wrong_call"])
            .env("VK_INSTANCE_LAYERS", "VK_LAYER_KHRONOS_validation")
            .env("VK_LAYER_SETTINGS_PATH", format!("{}/native_tests/validation{folder}", env!("CARGO_MANIFEST_DIR")))
            .env(WRONG_CALL, call)
            .output();
        String::from_utf8_lossy(&child.unwrap().stdout).into_owned()
    };
    // The layer ends a process with checked addresses in a crash, as its exit handlers run: what it printed before counts.
    let passed = "test result: ok";
    for (folder, call, messages) in WRONG_CALLS {
        let output = output_of(folder, call);
        assert!(messages.iter().all(|message| output.contains(message)), "{call}: {output}");
        assert!(!output.contains(passed), "{call}: {output}");
        let output = output_of(folder, "none");
        assert!(!output.contains("Validation") && output.contains(passed), "none: {output}");
    }
}

/// Records two writes of one buffer: in order, with a barrier that names what its stage has not, or without a barrier. Nothing is submitted.
fn record(call: &str) {
    let gpu = device();
    let allocation = gpu.zeroed(64, Blocking::Allowed).unwrap().allocation().unwrap().handle;
    let queue_family_index = gpu.device.active_queue_family_indices()[0];
    let info = CommandPoolCreateInfo { queue_family_index, ..Default::default() };
    let pool = CommandPool::new(gpu.device.clone(), info).unwrap();
    let info = CommandBufferAllocateInfo { command_buffer_count: 1, ..Default::default() };
    let commands = pool.allocate_command_buffers(info).unwrap().next().unwrap().handle();
    let fns = &gpu.device.fns().v1_0;
    let (transfer, write) = (vk::PipelineStageFlags::TRANSFER, vk::AccessFlags::TRANSFER_WRITE);
    let made = if call == "barrier" { vk::AccessFlags::SHADER_WRITE } else { write };
    let barrier = vk::MemoryBarrier::default().src_access_mask(made).dst_access_mask(write);
    // SAFETY: the command buffer is never submitted; buffer and pool outlive its recording.
    unsafe {
        (fns.begin_command_buffer)(commands, &vk::CommandBufferBeginInfo::default()).result().unwrap();
        (fns.cmd_fill_buffer)(commands, allocation, 0, 64, 0);
        if call != "hazard" {
            let (flags, none, no_image) = (vk::DependencyFlags::empty(), std::ptr::null(), std::ptr::null());
            (fns.cmd_pipeline_barrier)(commands, transfer, transfer, flags, 1, &barrier, 0, none, 0, no_image);
        }
        (fns.cmd_fill_buffer)(commands, allocation, 0, 64, 1);
        (fns.end_command_buffer)(commands).result().unwrap();
    }
}

/// A kernel that writes beyond the only buffer there.
const KERNEL: &str = r"
    #version 460
    #extension GL_EXT_buffer_reference : require
    #extension GL_EXT_scalar_block_layout : require
    layout(buffer_reference, scalar) buffer Words { uint v[]; };
    layout(push_constant, scalar) uniform Parameters { Words words; };
    layout(local_size_x = 1) in;
    void main() { words.v[1 << 20] = 1; }";

fn write_out_of_bounds() {
    let gpu = device();
    let buffer = gpu.zeroed(64, Blocking::Allowed).unwrap();
    let allocation = buffer.allocation().unwrap();
    let words = glsl::compile(KERNEL).unwrap();
    let info = PipelineCreateInfo { name: "writes_beyond", push_bytes: 8, bindings: 0, entry_point: "main" };
    let pipeline = Arc::new(Pipeline::build_now(&gpu.device, &words, &info, &[]).unwrap().0);
    let push = &allocation.address.to_le_bytes();
    let dispatch = Dispatch {
        pipeline: &pipeline,
        push,
        groups: [1; 3],
        reads: &[],
        writes: &[&allocation],
        bindings: &[],
        check: None,
        predicate: None,
        operations: 0,
    };
    gpu.stream.dispatch(&dispatch).unwrap();
    gpu.stream.finish().unwrap();
    // The layer reports on a thread of its own, which this waits for.
    // SAFETY: no other thread uses the device.
    unsafe { gpu.device.wait_idle() }.unwrap();
}
