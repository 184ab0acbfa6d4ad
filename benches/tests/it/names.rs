//! The names of the benchmarks agree in the catalogue, the help and the documentation.

use onceward_bench::catalogue::{ALL, Benchmark};

#[test]
fn the_script_and_the_docs_explain_every_name() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let script = std::fs::read_to_string(format!("{root}/bench")).unwrap();
    let docs = std::fs::read_to_string(format!("{root}/docs/performance.md")).unwrap();
    for Benchmark { name, .. } in ALL {
        assert!(script.contains(&format!("\n#   {name} ")), "./bench --help does not know {name}");
        assert!(docs.contains(&format!("| `{name}` |")), "docs/performance.md does not know {name}");
    }
    let explained = script.lines().filter(|line| line.starts_with("#   ") && !line.starts_with("#   ./"));
    let explained = explained.filter(|line| !line.starts_with("#    ")).count();
    assert_eq!(explained, ALL.len(), "./bench --help explains a name that is not there");
}

#[test]
fn a_name_is_found_once() {
    for benchmark in ALL {
        let found = Benchmark::named(benchmark.name).unwrap();
        assert!(std::ptr::eq(found, benchmark), "{} names another one", benchmark.name);
    }
    assert!(Benchmark::named("gatewy").is_none());
}
