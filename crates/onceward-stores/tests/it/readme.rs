//! Tests that the example in the README is the one in this crate, and that its output is as shown.

use std::path::Path;
use std::process::Command;

#[test]
fn the_readme_shows_the_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("../../README.md")).unwrap();
    let example = std::fs::read_to_string(root.join("examples/charge.rs")).unwrap();
    let shown = readme.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let (_, code) = example.split_once("\n\n").unwrap();
    assert_eq!(shown.trim(), code.trim(), "README.md and examples/charge.rs differ");
}

#[test]
fn the_example_charges_once_also_across_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let run = || {
        let output = example().current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let first = run();
    let replayed: Vec<bool> = first.lines().map(|line| line.ends_with("replayed: true")).collect();
    assert_eq!(replayed, [false, true, true], "{first}");
    let again = run();
    assert!(again.lines().all(|line| line.ends_with("replayed: true")), "{again}");
    let answer = |text: &str| text.lines().next().unwrap().split(", replayed").next().unwrap().to_owned();
    assert_eq!(answer(&first), answer(&again));
}

/// The example as `cargo test` has built it beside this program. Building it here would be with other features, and
/// take all that it rests on with it; so that is done only where just this program was asked for.
fn example() -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let here = std::env::current_exe().unwrap();
    let built = here.parent().unwrap().with_file_name("examples").join("charge");
    let changed = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
    if changed(&built) >= changed(&root.join("examples/charge.rs")) {
        return Command::new(built);
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--quiet", "--example", "charge", "--manifest-path"]).arg(root.join("Cargo.toml"));
    cargo
}
