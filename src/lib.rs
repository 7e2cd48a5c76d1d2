//! GPU tensors for the BEAM on anything with a Vulkan driver: the native half of nx_vulkan.

pub mod device;
pub mod error;
pub mod gpu;
pub mod graph;
pub mod kernels;
pub mod memory;
mod nif;
pub mod pipeline;
pub mod program;
pub mod stream;
mod tuning;

rustler::init!("Elixir.Nx.Vulkan.Native", load = nif::load);

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// The modules from the lowest layer to the highest. Those of one layer may import each other.
    const LAYERS: [&[&str]; 10] = [
        &["error"],
        &["device"],
        &["memory"],
        &["pipeline"],
        &["stream"],
        &["gpu"],
        &["graph"],
        &["program", "tuning"],
        &["kernels"],
        &["nif"],
    ];

    fn sources(path: &Path) -> Vec<std::path::PathBuf> {
        if path.is_file() {
            return vec![path.to_owned()];
        }
        let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        entries.flat_map(|entry| sources(&entry)).filter(|path| path.extension().is_some_and(|e| e == "rs")).collect()
    }

    #[test]
    fn imports_go_from_higher_layers_to_lower_ones() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let layer = |name: &str| LAYERS.iter().position(|names| names.contains(&name));
        let (mut imports, mut upward) = (0, vec![]);
        for module in LAYERS.into_iter().flatten() {
            let paths = [root.join(module), root.join(format!("{module}.rs"))];
            for file in paths.iter().filter(|path| path.exists()).flat_map(|path| sources(path)) {
                let text = std::fs::read_to_string(&file).unwrap();
                // Unit tests use what they need.
                let code = text.split("#[cfg(test)]").next().unwrap();
                for import in code.split("crate::").skip(1) {
                    let name: String = import.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                    let Some(imported) = layer(&name) else { continue };
                    imports += 1;
                    if Some(imported) > layer(module) {
                        upward.push(format!("{}: {name}", file.display()));
                    }
                }
            }
        }
        assert!(imports > 100, "only {imports} imports were found");
        assert!(upward.is_empty(), "{upward:#?}");
    }
}
