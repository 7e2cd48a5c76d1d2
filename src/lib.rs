//! GPU tensors for the BEAM on anything with a Vulkan driver: the native half of nx_vulkan.

pub mod device;
pub mod error;
pub mod gpu;
pub mod graph;
pub mod kernels;
pub mod memory;
mod mutex;
mod nif;
pub mod pipeline;
pub mod probe;
pub mod program;
pub mod stream;
mod tuning;

rustler::init!("Elixir.Nx.Vulkan.Native", load = nif::load);

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::path::{Path, PathBuf};

    /// The modules from the lowest layer to the highest. Those of one layer may import each other.
    const LAYERS: [&[&str]; 10] = [
        &["error", "mutex"],
        &["device"],
        &["memory"],
        &["pipeline"],
        &["stream"],
        &["gpu"],
        &["graph"],
        &["program", "tuning"],
        &["kernels"],
        &["nif", "probe"],
    ];

    /// The file at a path, or all files in the folder there.
    fn files(path: &Path) -> Vec<PathBuf> {
        if path.is_file() {
            return vec![path.to_owned()];
        }
        let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        entries.flat_map(|entry| files(&entry)).collect()
    }

    fn sources(path: &Path) -> Vec<PathBuf> {
        files(path).into_iter().filter(|path| path.extension().is_some_and(|e| e == "rs")).collect()
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

    /// The item that a line declares: whether it is a type, else a module's constant, and its name. Associated items are indented.
    fn item(line: &str) -> Option<(bool, &str)> {
        let visible = line.strip_prefix("pub").map_or(line, |rest| rest.split_once(' ').map_or("", |(_, item)| item));
        if visible.starts_with(char::is_whitespace) {
            return None;
        }
        let mut words = visible.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        let is_type = match words.next()? {
            "struct" | "enum" | "trait" | "type" => true,
            "const" | "static" => false,
            _ => return None,
        };
        words.next().filter(|&name| !matches!(name, "_" | "fn" | "unsafe")).map(|name| (is_type, name))
    }

    #[test]
    fn no_two_types_and_no_two_constants_have_one_name() {
        assert_eq!(item("pub(super) struct Layout<'a> {"), Some((true, "Layout")));
        assert_eq!(item("const MAGIC: &[u8; 8] = b\"nxvulk01\";"), Some((false, "MAGIC")));
        assert_eq!(item("pub const fn find(name: &str) {"), None);
        let (mut found, mut repeated) = (HashMap::new(), vec![]);
        for file in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
            let text = std::fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            for (is_type, name) in code.lines().filter_map(item) {
                if let Some(other) = found.insert((is_type, name.to_owned()), file.clone()) {
                    repeated.push(format!("{name}: {} and {}", other.display(), file.display()));
                }
            }
        }
        assert!(found.len() > 200, "only {} items were found", found.len());
        assert!(repeated.is_empty(), "{repeated:#?}");
    }

    #[test]
    fn no_file_has_more_than_500_lines() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let files = ["src", "shaders", "lib"].map(|folder| files(&root.join(folder))).concat();
        let lines = |file: &PathBuf| std::fs::read_to_string(file).unwrap().lines().count();
        let long: Vec<_> = files.iter().filter(|file| lines(file) > 500).collect();
        assert!(files.len() > 200, "only {} files were found", files.len());
        assert!(long.is_empty(), "{long:#?}");
    }
}
