//! `onceward machine`.

use std::path::Path;
use std::process::Output;

use tempfile::tempdir;

use crate::process::onceward;

const ORDERS: &str = r#"
table = "orders"
key = "id"
state = "state"
initial = "placed"

[allowed]
placed = ["paid", "cancelled"]
paid = ["shipped", "cancelled"]
cancelled = ["placed"]
"#;

fn draw(folder: &Path, declaration: &str, words: &[&str]) -> Output {
    let file = folder.join("orders.toml");
    std::fs::write(&file, declaration).unwrap();
    onceward(&[&["machine", file.to_str().unwrap()], words].concat()).output().unwrap()
}

#[test]
fn a_declared_machine_is_drawn_in_both_formats() {
    let folder = tempdir().unwrap();
    let mermaid = draw(folder.path(), ORDERS, &[]);
    assert_eq!(mermaid.status.code(), Some(0));
    let mermaid = String::from_utf8(mermaid.stdout).unwrap();
    assert!(mermaid.starts_with("stateDiagram-v2\n"), "{mermaid}");
    assert_eq!(mermaid.matches("-->").count(), 5 + 2, "five changes, the begin and the end:\n{mermaid}");

    let to = folder.path().join("orders.svg");
    let svg = draw(folder.path(), ORDERS, &["--format", "svg", "--output", to.to_str().unwrap()]);
    assert_eq!((svg.status.code(), svg.stdout.len()), (Some(0), 0));
    let svg = std::fs::read_to_string(to).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
    assert_eq!(svg.matches("class=\"arrow\"").count(), 5 + 1);
    for state in ["placed", "paid", "cancelled", "shipped"] {
        assert_eq!(svg.matches(&format!(">{state}</text>")).count(), 1, "{svg}");
    }
}

#[test]
fn a_machine_that_makes_no_sense_is_refused_with_its_reason() {
    let folder = tempdir().unwrap();
    for (declaration, code, why) in [
        (ORDERS.replace("\"shipped\", ", "").replace("initial", "start"), 1, "unknown field `start`"),
        (format!("{ORDERS}lost = [\"found\"]\n"), 1, "`found` cannot be reached from `placed`"),
        (format!("{ORDERS}paid = [\"lost\"]\n"), 1, "duplicate key"),
        (ORDERS.replace("orders", "orders; --"), 1, "plain name"),
        ("table = ".to_owned(), 1, "not a declaration"),
    ] {
        let refused = draw(folder.path(), &declaration, &[]);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!((refused.status.code(), refused.stdout.len()), (Some(code), 0), "{said}");
        assert!(said.contains(why) && said.contains("orders.toml"), "{why}: {said}");
    }
    let absent = onceward(&["machine", "/no/such/file.toml"]).output().unwrap();
    assert_eq!(absent.status.code(), Some(2));
}
