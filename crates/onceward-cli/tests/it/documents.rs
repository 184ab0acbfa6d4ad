//! The documents about security say what is true: every guarantee of the threat model names a test that exists.

use std::path::{Path, PathBuf};

#[test]
fn every_guarantee_of_the_threat_model_names_a_test_that_exists() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let text = std::fs::read_to_string(docs.join("threat-model.md")).unwrap();
    let (_, guarantees) = text.split_once("\n## Guarantees\n").unwrap();
    let (guarantees, _) = guarantees.split_once("\n## Not guaranteed\n").unwrap();
    let rows = guarantees.lines().filter(|line| line.starts_with("| ") && !line.ends_with("| test |"));
    let mut count = 0;
    for row in rows {
        let (name, path) = link(row).unwrap_or_else(|| panic!("no test is linked in: {row}"));
        let file: PathBuf = docs.join(path);
        let source = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(is_test(&source, name), "{path} has no test {name}");
        count += 1;
    }
    assert!(count > 20, "only {count} guarantees were found");
}

/// The name and the path of ``[`name`](path)`` at the end of a row.
fn link(row: &str) -> Option<(&str, &str)> {
    let (_, link) = row.rsplit_once("[`")?;
    let (name, rest) = link.split_once("`](")?;
    Some((name, rest.split_once(')')?.0))
}

/// Whether there is a function of this name with the attribute of a test. A helper, or a test that nobody runs any more,
/// guarantees nothing.
fn is_test(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let begins = |line: &str| {
        let line = line.strip_prefix("async ").unwrap_or(line);
        line.strip_prefix("fn ")
            .and_then(|rest| rest.strip_prefix(name))
            .is_some_and(|rest| rest.starts_with('('))
    };
    let Some(at) = lines.iter().position(|line| begins(line)) else { return false };
    let above = lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
    let attributes: Vec<&&str> = above.filter(|line| line.starts_with("#[")).collect();
    let runs = |line: &&&str| {
        let name = line.trim_start_matches("#[").split(['(', ']']).next().unwrap_or_default();
        name == "test" || name == "tokio::test"
    };
    attributes.iter().any(runs) && !attributes.iter().any(|line| line.starts_with("#[ignore"))
}

#[test]
fn a_function_without_the_attribute_is_no_test() {
    for (source, expected) in [
        ("#[test]\nfn one() {", true),
        ("    #[tokio::test(start_paused = true)]\n    /// Why.\n    async fn one() {", true),
        ("#[test]\n#[ignore]\nfn one() {", false),
        ("#[test]\nfn other() {}\n\nfn one() {", false),
        ("#[cfg(test)]\nfn one() {", false),
        ("#[test]\nfn one_more() {", false),
    ] {
        assert_eq!(is_test(source, "one"), expected, "{source}");
    }
}
