//! Which built-in functions the shaders and the GLSL in the Rust sources call.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The functions of the language (The OpenGL Shading Language 4.60, chapter 8, without images and interpolation), and the names
/// that those of extensions begin with.
const FUNCTIONS: &str = "radians degrees sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh pow exp log exp2 log2 sqrt \
    inversesqrt abs sign floor trunc round roundEven ceil fract mod modf min max clamp mix step smoothstep isnan isinf \
    floatBitsToInt floatBitsToUint intBitsToFloat uintBitsToFloat fma frexp ldexp packUnorm2x16 packSnorm2x16 packUnorm4x8 \
    packSnorm4x8 unpackUnorm2x16 unpackSnorm2x16 unpackUnorm4x8 unpackSnorm4x8 packHalf2x16 unpackHalf2x16 packDouble2x32 \
    unpackDouble2x32 length distance dot cross normalize faceforward reflect refract matrixCompMult outerProduct transpose \
    determinant inverse lessThan lessThanEqual greaterThan greaterThanEqual equal notEqual any all not uaddCarry usubBorrow \
    umulExtended imulExtended bitfieldExtract bitfieldInsert bitfieldReverse bitCount findLSB findMSB barrier packUint2x32 \
    packInt2x32 unpackUint2x32 unpackInt2x32 pack16 pack32 pack64 unpack8 unpack16 unpack32 doubleBitsToInt64 doubleBitsToUint64 \
    int64BitsToDouble uint64BitsToDouble halfBitsToInt16 halfBitsToUint16 int16BitsToHalf uint16BitsToHalf";
const FAMILIES: [&str; 6] = ["subgroup", "atomic", "memoryBarrier", "groupMemoryBarrier", "coopMat", "anyInvocation"];

/// These give no number: without them the kernels that synchronise by them fail in their own tests.
const ORDERING: [&str; 7] = [
    "barrier",
    "memoryBarrierBuffer",
    "memoryBarrierShared",
    "subgroupBarrier",
    "subgroupMemoryBarrier",
    "subgroupMemoryBarrierBuffer",
    "subgroupMemoryBarrierShared",
];

/// Cooperative matrices compute whole products and attention, which test/nx/dot_test.exs and attention_test.exs compare where a device has
/// them. Their `length()` is how many elements an invocation has.
const MATRICES: [&str; 6] =
    ["coopMatLoad", "coopMatStore", "coopMatMulAdd", "coopMatPerElementNV", "coopMatReduceNV", "length"];

/// Fails where a built-in is called that none of these texts calls.
pub fn check(tested: Vec<&str>) {
    let tested: Vec<&str> = tested.into_iter().flat_map(calls).chain(ORDERING).chain(MATRICES).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut texts = BTreeMap::new();
    for path in files(&root.join("shaders")).into_iter().chain(files(&root.join("src"))) {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let is_rust = path.extension().is_some_and(|extension| extension == "rs");
        texts.insert(path, without_comments(&if is_rust { literals(&text) } else { text }));
    }
    let mut seen = 0;
    for (path, text) in &texts {
        for name in calls(text).into_iter().filter(|name| is_builtin(name)) {
            // The library's own function of that name.
            let own = texts.values().any(|text| defines(text, name));
            assert!(own || tested.contains(&name), "{} uses {name}, which no case tests", path.display());
            seen += 1;
        }
    }
    assert!(seen > 100, "the scan finds only {seen} calls of built-ins");
}

fn is_builtin(name: &str) -> bool {
    FUNCTIONS.split_whitespace().any(|function| function == name)
        || FAMILIES
            .iter()
            .any(|family| name.strip_prefix(family).is_some_and(|rest| rest.starts_with(char::is_uppercase)))
        || name == "memoryBarrier"
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The names before opening parentheses.
fn calls(text: &str) -> Vec<&str> {
    let ends = text.match_indices('(').map(|(end, _)| &text[..end]);
    let names = ends.map(|before| &before[before.rfind(|c| !is_word(c)).map_or(0, |i| i + 1)..]);
    names.filter(|name| name.starts_with(|c: char| c.is_ascii_alphabetic())).collect()
}

/// Whether a function or a macro of that name is defined there: a type, or `#define`, stands before it.
fn defines(text: &str, name: &str) -> bool {
    const TYPES: [&str; 12] =
        ["#define", "void", "bool", "uint", "int", "float", "double", "REAL", "PART", "ELEMENT", "COMPLEX", "T"];
    text.match_indices(&format!(" {name}(")).any(|(at, _)| {
        let line = text[..at].rsplit(['\n', ';', '{', '}', '\\']).next().unwrap_or_default().trim();
        TYPES.contains(&line)
    })
}

fn without_comments(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("/*") {
        kept.push_str(&rest[..at]);
        rest = rest[at..].find("*/").map_or("", |end| &rest[at + end + 2..]);
    }
    kept.push_str(rest);
    kept.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The string literals of a Rust source.
fn literals(text: &str) -> String {
    let (mut found, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(['"', '\'', '/']) {
        let (before, token) = rest.split_at(at);
        let length = token_length(before, token);
        if token.starts_with('"') {
            found.push_str(&token[..length].replace("\\n", "\n"));
            found.push('\n');
        }
        rest = &token[length..];
    }
    found
}

/// The bytes of the comment, of the quotation mark as a character, or of the string that begins there; 1 of anything else.
fn token_length(before: &str, token: &str) -> usize {
    if token.starts_with("//") {
        return token.find('\n').unwrap_or(token.len());
    }
    if token.starts_with("'\"'") || token.starts_with("'\\\"'") {
        return token[1..].find('\'').map_or(1, |end| end + 2);
    }
    let Some(inner) = token.strip_prefix('"') else { return 1 };
    let opening = before.trim_end_matches('#');
    let hashes = before.len() - opening.len();
    if opening.ends_with('r') {
        let end = format!("\"{}", "#".repeat(hashes));
        return inner.find(&end).map_or(token.len(), |at| at + 1 + end.len());
    }
    let mut escaped = false;
    let end = inner.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    end.map_or(token.len(), |end| end + 2)
}
