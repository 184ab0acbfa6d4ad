//! The public API is what `docs/api` lists, and `CHANGELOG.md` has seen it.

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

/// A new variant or field must not break users by accident: what can grow is `#[non_exhaustive]`, and what must not be
/// passed over says that a change of it is breaking.
#[test]
fn every_exhaustive_type_is_so_on_purpose() {
    // Listed because a `pub use` with `#[doc(hidden)]` exports them, for the other crates of this workspace.
    const HIDDEN: [&str; 8] = [
        "admin::api::shape",
        "admin::audit",
        "admin::problem",
        "breaker",
        "decide",
        "key_status",
        "retry_decision",
        "retry_state",
    ];
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
