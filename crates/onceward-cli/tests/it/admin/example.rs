//! Runs the example of the documentation unchanged.

use std::io::Write;
use std::process::Command;

use tempfile::tempdir;

use crate::process::Process;

const MANUAL: &str = include_str!("../../../../../docs/receipts-api.md");

/// The code block of this language.
fn block(language: &str) -> &'static str {
    let (_, rest) = MANUAL.split_once(&format!("```{language}\n")).expect("the manual has such a block");
    rest.split("```").next().unwrap()
}

#[test]
fn the_example_in_python_does_what_the_manual_says() {
    if Command::new("python3").arg("--version").output().is_err() {
        let must = std::env::var_os("ONCEWARD_CHECK").is_some_and(|check| check == "1");
        assert!(!must, "python3 is missing");
        // Written directly, because the test harness captures `println`.
        let skipped = "SKIPPED: python3 is missing, so the example of the manual was NOT tested\n";
        std::io::stderr().write_all(skipped.as_bytes()).unwrap();
        return;
    }
    let folder = tempdir().unwrap();
    let process = Process::serve(folder.path());
    let run = || {
        let mut python = Command::new("python3");
        python.arg("-c").arg(block("python"));
        python.env("ONCEWARD_ADMIN_URL", format!("http://{}", process.address));
        python.env_remove("ONCEWARD_ADMIN_TOKEN").env("NO_PROXY", "*");
        let ended = python.output().unwrap();
        let troubles = String::from_utf8(ended.stderr).unwrap();
        assert!(ended.status.success(), "{troubles}");
        String::from_utf8(ended.stdout).unwrap()
    };
    assert_eq!(run(), block("text"));
    // Another process sends the same request: nothing is charged again.
    assert_eq!(run(), block("text").replace("1 charge\n", "0 charge\n"));
    let receipt = process.get("/v1/receipt?scope=tenant-7&operation=charge&key=order-81").json();
    assert_eq!((&receipt["state"], &receipt["outcome"]["body"]), (&"done".into(), &"charged 12 EUR".into()));
}
