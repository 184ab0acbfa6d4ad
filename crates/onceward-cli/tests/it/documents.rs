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
        assert!(source.contains(&format!("fn {name}(")), "{path} has no test {name}");
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
