//! The public API is what `docs/api` lists, and `CHANGELOG.md` has seen it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use public_api::{CRATES, digest, exhaustive_by_accident, list};

#[test]
fn a_change_of_the_public_api_is_in_the_changelog() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let bless = std::env::var_os("ONCEWARD_BLESS").is_some();
    let changelog = std::fs::read_to_string(root.join("CHANGELOG.md")).unwrap();
    let unreleased = changelog.split("\n## ").nth(1).unwrap();
    // What a reader sees of it. Blessing a changed listing needs another text than the last blessing had.
    let text: String = unreleased.lines().filter(|line| !line.starts_with("<!--")).collect();
    let text_digest = digest(&[text]);
    let text_path = root.join("docs/api/changelog.txt");
    let same_text = std::fs::read_to_string(&text_path).is_ok_and(|stored| stored.trim() == text_digest);
    let mut changed = false;
    let mut listings = Vec::new();
    for name in CRATES {
        let listing = list(&root.join("crates").join(name)).unwrap();
        assert!(listing.lines().count() > 10, "{name} has an API: {listing}");
        let path = root.join("docs/api").join(format!("{name}.txt"));
        if bless && std::fs::read_to_string(&path).ok().as_ref() != Some(&listing) {
            assert!(
                !same_text,
                "the public API of {name} has changed: say in CHANGELOG.md what is new for users first"
            );
            std::fs::write(&path, &listing).unwrap();
            changed = true;
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        let change = difference(&stored, &listing);
        assert!(
            change.is_empty(),
            "the public API of {name} has changed:\n{change}\n\
             Run `ONCEWARD_BLESS=1 cargo test -p public-api`, and say in CHANGELOG.md what is new for users."
        );
        listings.push(listing);
    }
    if changed {
        std::fs::write(&text_path, text_digest + "\n").unwrap();
    }
    // Not written by the blessing: a change of the API needs an edit of the changelog.
    let line = format!("<!-- public API: {} -->", digest(&listings));
    assert!(
        unreleased.starts_with("Unreleased") && unreleased.contains(&line),
        "the public API has changed: say in CHANGELOG.md, under Unreleased, what is new for users, and make the line \
         there that names the listings `{line}`"
    );
}

/// Listed because a `pub use` with `#[doc(hidden)]` exports them, for the other crates of this workspace.
const HIDDEN: [&str; 11] = [
    "admin::api::list",
    "admin::api::shape",
    "admin::audit",
    "admin::json",
    "admin::problem",
    "breaker",
    "decide",
    "engine::inner",
    "key_status",
    "retry_decision",
    "retry_state",
];

/// Users derive `Debug` for structs that hold ours.
#[test]
fn every_public_type_is_debug() {
    for name in CRATES {
        let listing = list(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates").join(name)).unwrap();
        let by_hand = |name: &str| {
            listing
                .lines()
                .any(|line| line.split_once("Debug for ").is_some_and(|(_, of)| type_name(of) == name))
        };
        for line in listing.lines().filter(|line| !HIDDEN.iter().any(|module| line.starts_with(module))) {
            let head = ["pub struct ", "pub enum "].into_iter().find_map(|word| line.split_once(word));
            let Some((derived, named)) = head else { continue };
            let named = type_name(named);
            assert!(derived.contains("Debug") || by_hand(named), "{name}: {named} does not implement Debug");
        }
    }
}

/// One name has one meaning, also for a user of several crates.
#[test]
fn a_public_name_is_in_one_crate() {
    // Each crate's own errors and options; what a reconciler has found out; how a webhook is signed.
    const SAME_MEANING: [&str; 7] =
        ["Error", "ErrorKind", "Options", "Reconciled", "Result", "Rules", "Scheme"];
    let mut crates_of: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for name in CRATES {
        let listing = list(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates").join(name)).unwrap();
        for line in listing.lines().filter(|line| !HIDDEN.iter().any(|module| line.starts_with(module))) {
            let words = ["pub struct ", "pub enum ", "pub trait ", "pub type "];
            if let Some((_, named)) = words.into_iter().find_map(|word| line.split_once(word)) {
                crates_of.entry(type_name(named).to_owned()).or_default().insert(name);
            }
        }
    }
    assert!(crates_of.len() > 200, "{crates_of:?}");
    crates_of.retain(|name, crates| crates.len() > 1 && !SAME_MEANING.contains(&name.as_str()));
    assert!(crates_of.is_empty(), "names with several meanings: {crates_of:#?}");
}

fn type_name(text: &str) -> &str {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap_or_default()
}

/// A new variant or field must not break users by accident: what can grow is `#[non_exhaustive]`, and what must not be
/// passed over says that a change of it is breaking.
#[test]
fn every_exhaustive_type_is_so_on_purpose() {
    for name in CRATES {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates").join(name);
        let mut found = exhaustive_by_accident(&folder).unwrap();
        found.retain(|item| !HIDDEN.iter().any(|module| item.starts_with(module)));
        assert!(found.is_empty(), "{name} has types that are closed and do not say so: {found:#?}");
    }
}

/// The lines that only one side has.
fn difference(stored: &str, listing: &str) -> String {
    let gone = stored
        .lines()
        .filter(|line| !listing.lines().any(|other| other == *line))
        .map(|line| format!("- {line}\n"));
    let new = listing
        .lines()
        .filter(|line| !stored.lines().any(|other| other == *line))
        .map(|line| format!("+ {line}\n"));
    gone.chain(new).collect()
}
