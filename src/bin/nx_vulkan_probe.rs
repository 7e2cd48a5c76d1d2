//! The probe process, which the library starts where a driver was not seen before: see `nx_vulkan::probe`.

fn main() {
    nx_vulkan::probe::main()
}
