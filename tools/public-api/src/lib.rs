//! Lists what is `pub` in the sources of a crate, one item a line, sorted, each with the module that it is written in.
//!
//! It reads text in the layout that rustfmt gives it, because the compiler's own listing needs a nightly toolchain. It
//! does not resolve paths: an item that is `pub` in a private module is listed if any `pub use` of the crate exports its
//! name. So it may notice more than a user would. It misses what macros make, and the methods of types that others are
//! given and cannot name.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

mod scan;

use scan::Reach;

/// The crates with a public API.
pub const CRATES: [&str; 6] =
    ["onceward", "onceward-client", "onceward-flows", "onceward-http", "onceward-stores", "onceward-verify"];

/// The listing of the crate in this folder.
pub fn list(folder: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    sources(&folder.join("src"), &mut files)?;
    let texts: Vec<String> = files.iter().map(fs::read_to_string).collect::<io::Result<_>>()?;
    let modules: Vec<String> = files.iter().map(|file| module(&folder.join("src"), file)).collect();
    let exports: BTreeSet<String> = texts.iter().flat_map(|text| scan::exports(text)).collect();
    let public: BTreeSet<String> = texts
        .iter()
        .zip(&modules)
        .flat_map(|(text, module)| scan::public_modules(text).map(|name| join(module, name)))
        .collect();
    let reach = |module: &str| {
        if is_public(module, &public) || is_exported_whole(module, &exports) {
            Reach::All
        } else {
            Reach::Exported(&exports)
        }
    };
    let types: BTreeSet<&str> = texts
        .iter()
        .zip(&modules)
        .flat_map(|(text, module)| scan::types(text).filter(|name| reach(module).has(name)))
        .collect();
    let hidden: Vec<String> = texts
        .iter()
        .zip(&modules)
        .flat_map(|(text, module)| scan::hidden_modules(text).map(|name| join(module, name)))
        .collect();
    let is_hidden = |module: &str| hidden.iter().any(|hidden| is_within(module, hidden));
    let mut items = BTreeSet::new();
    for (text, module) in texts.iter().zip(&modules).filter(|(_, module)| !is_hidden(module)) {
        items.extend(
            scan::items(text, &types, reach(module)).into_iter().map(|item| format!("{module}: {item}\n")),
        );
    }
    Ok(items.into_iter().collect())
}

/// The public enums and structs of the crate in this folder that users can match or build exhaustively, and whose
/// documentation does not say so: they must be `#[non_exhaustive]`, or say that a change of them is breaking.
pub fn exhaustive_by_accident(folder: &Path) -> io::Result<Vec<String>> {
    let listing = list(folder)?;
    let mut files = Vec::new();
    sources(&folder.join("src"), &mut files)?;
    let mut found = Vec::new();
    for file in files {
        let module = module(&folder.join("src"), &file);
        for name in scan::exhaustive_by_accident(&fs::read_to_string(&file)?) {
            let is_listed = |line: &str| {
                let item = line.strip_prefix(&module).and_then(|item| item.strip_prefix(": "));
                item.is_some_and(|item| item.ends_with(&format!("pub {name}")))
            };
            if listing.lines().any(is_listed) {
                found.push(format!("{module}: {name}"));
            }
        }
    }
    Ok(found)
}

/// The path of the module that a file contains; `crate` for the root.
fn module(source: &Path, file: &Path) -> String {
    let path = file.strip_prefix(source).unwrap_or(file).with_extension("");
    let names: Vec<_> = path.iter().filter_map(|name| name.to_str()).collect();
    match names.as_slice() {
        ["lib"] => "crate".to_owned(),
        [folders @ .., "mod"] => folders.join("::"),
        names => names.join("::"),
    }
}

fn join(module: &str, name: &str) -> String {
    if module == "crate" { name.to_owned() } else { format!("{module}::{name}") }
}

/// Whether this module and all that it is in are `pub mod`.
fn is_public(module: &str, public: &BTreeSet<String>) -> bool {
    module == "crate"
        || module
            .match_indices("::")
            .map(|(at, _)| &module[..at])
            .chain([module])
            .all(|outer| public.contains(outer))
}

/// Whether a `pub use` exports everything in this module.
fn is_exported_whole(module: &str, exports: &BTreeSet<String>) -> bool {
    let last = module.rsplit("::").next().unwrap_or(module);
    exports
        .iter()
        .any(|path| path.strip_suffix("::*").is_some_and(|path| path.rsplit("::").next() == Some(last)))
}

fn is_within(module: &str, outer: &str) -> bool {
    module.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// A short digest of all listings, in the order of [`CRATES`].
pub fn digest(listings: &[String]) -> String {
    let mut hasher = crc32fast::Hasher::new();
    for listing in listings {
        hasher.update(listing.as_bytes());
        hasher.update(&[0]);
    }
    format!("{:08x}", hasher.finalize())
}

/// All files but those of tests and binaries.
fn sources(folder: &Path, files: &mut Vec<std::path::PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            sources(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !name.ends_with("_test.rs")
            && name != "main.rs"
        {
            files.push(path);
        }
    }
    Ok(())
}
