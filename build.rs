//! Compiles `shaders/*.comp` into `priv/shaders/*.spv` and lists all GLSL sources for the library to embed.
//!
//! A source that mentions `REAL` is compiled once for each floating-point type: `x.spv` with float, `x_f64.spv` with
//! double.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use shaderc::{CompileOptions, Compiler, EnvVersion, ResolvedInclude, ShaderKind, TargetEnv};

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let shaders = root.join("shaders");
    println!("cargo::rerun-if-changed=shaders");
    // The BEAM provides the enif_* functions; tests run without one and never call them. GNU ld makes missing
    // symbols null; lld would have them resolved when a test starts.
    let lenient: &[&str] = match env::var("CARGO_CFG_TARGET_OS")?.as_str() {
        "macos" => &["-Wl,-undefined,dynamic_lookup"],
        _ => &["-fuse-ld=bfd", "-Wl,--unresolved-symbols=ignore-all"],
    };
    lenient.iter().for_each(|arg| println!("cargo::rustc-link-arg={arg}"));
    embed(&shaders, &PathBuf::from(env::var("OUT_DIR")?).join("shader_sources.rs"))?;

    let out = root.join("priv").join("shaders");
    fs::create_dir_all(&out)?;
    for path in files(&shaders)? {
        if path.extension().is_some_and(|e| e == "comp") {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let source = fs::read_to_string(&path)?;
            if source.contains("REAL") {
                let double: &[_] = &[("REAL", "double"), ("HAS_FLOAT64", "1"), ("HAS_INT64", "1")];
                compile(&shaders, &path, &source, &[("REAL", "float")], &out.join(format!("{stem}.spv")))?;
                compile(&shaders, &path, &source, double, &out.join(format!("{stem}_f64.spv")))?;
            } else {
                compile(&shaders, &path, &source, &[], &out.join(format!("{stem}.spv")))?;
            }
        }
    }
    // Deleted files are made again, with the time of the newest source: cargo would take a newer file for a change and build everything
    // a second time.
    let newest = files(&shaders)?.iter().filter_map(|path| fs::metadata(path).ok()?.modified().ok()).max();
    for path in files(&out)? {
        println!("cargo::rerun-if-changed={}", path.display());
        fs::File::options().write(true).open(&path)?.set_modified(newest.ok_or("there are no shaders")?)?;
    }
    Ok(())
}

fn compile(
    shaders: &Path,
    path: &Path,
    source: &str,
    defines: &[(&str, &str)],
    out: &Path,
) -> Result<(), Box<dyn Error>> {
    let compiler = Compiler::new().ok_or("shaderc could not be started")?;
    let mut options = CompileOptions::new().ok_or("shaderc has no options")?;
    options.set_target_env(TargetEnv::Vulkan, EnvVersion::Vulkan1_2 as u32);
    options.set_include_callback(|name, _, _, _| {
        let content = fs::read_to_string(shaders.join(name)).map_err(|e| format!("{name}: {e}"))?;
        Ok(ResolvedInclude { resolved_name: name.to_owned(), content })
    });
    for (name, value) in defines {
        options.add_macro_definition(name, Some(value));
    }
    let name = path.to_string_lossy();
    let artifact = compiler.compile_into_spirv(source, ShaderKind::Compute, &name, "main", Some(&options))?;
    // An unchanged file is not rewritten, because a running process may be reading it.
    if fs::read(out).ok().as_deref() != Some(artifact.as_binary_u8()) {
        fs::write(out, artifact.as_binary_u8())?;
    }
    Ok(())
}

/// Writes `SOURCES`: the name under `shaders/` and the text of every GLSL file.
fn embed(shaders: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    let mut text = String::from("static SOURCES: &[(&str, &str)] = &[\n");
    for path in files(shaders)? {
        let name = path.strip_prefix(shaders)?.to_string_lossy().replace('\\', "/");
        writeln!(text, "    ({name:?}, include_str!({:?})),", path.to_string_lossy())?;
    }
    text.push_str("];\n");
    Ok(fs::write(out, text)?)
}

/// All files under a folder, in a fixed order.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut found = vec![];
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
