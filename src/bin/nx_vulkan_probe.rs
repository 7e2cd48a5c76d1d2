//! The probe process, which the library starts where a driver was not seen before or a user's SPIR-V is large: see `nx_vulkan::probe`.

fn main() {
    nx_vulkan::probe::main()
}
