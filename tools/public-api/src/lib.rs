//! Lists what is `pub` in the sources of a crate, one item a line, sorted.
//!
//! It reads text in the layout that rustfmt gives it, because the compiler's own listing needs a nightly toolchain. It
//! does not resolve names: an item that is `pub` in a private module and not exported from there is listed as well. So it
//! may notice more than a user would, and misses only what macros make.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

mod scan;

/// The crates with a public API.
pub const CRATES: [&str; 6] =
    ["onceward", "onceward-client", "onceward-flows", "onceward-http", "onceward-stores", "onceward-verify"];

/// The listing of the crate in this folder.
pub fn list(folder: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    sources(&folder.join("src"), &mut files)?;
    let texts: Vec<String> = files.iter().map(fs::read_to_string).collect::<io::Result<_>>()?;
    let types: BTreeSet<&str> = texts.iter().flat_map(|text| scan::types(text)).collect();
    let items: BTreeSet<String> = texts.iter().flat_map(|text| scan::items(text, &types)).collect();
    Ok(items.into_iter().map(|item| item + "\n").collect())
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
