//! `--help` of every command.

use crate::process::onceward;

fn help(words: &[&str]) -> String {
    let ended = onceward(&[words, &["--help"]].concat()).output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{words:?}");
    String::from_utf8(ended.stdout).unwrap()
}

const COMMANDS: [&[&str]; 15] = [
    &["proxy"],
    &["config"],
    &["config", "check"],
    &["demo"],
    &["receipts"],
    &["dead"],
    &["relay"],
    &["sagas"],
    &["serve"],
    &["verify"],
    &["send"],
    &["complete"],
    &["machine"],
    &["migrate"],
    &["completions"],
];

#[test]
fn every_command_is_explained_with_an_example() {
    let all = help(&[]);
    for command in COMMANDS {
        let text = help(command);
        let about = text.lines().next().unwrap();
        assert!(about.len() > 20, "{command:?}: {about}");
        let example = format!("\n  onceward {}", command.join(" "));
        assert!(text.contains("Example") && text.contains(&example), "{command:?}:\n{text}");
        if let [name] = command {
            let line = all.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_default();
            assert!(line.trim_start_matches(name).trim().len() > 20 && line.len() < 120, "{name}: {line}");
        }
    }
    // Every command there is: those above, and clap's own.
    let listed = all.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap().lines();
    assert_eq!(listed.count(), COMMANDS.iter().filter(|command| command.len() == 1).count() + 1, "{all}");
}

#[test]
fn exit_codes_are_documented() {
    for command in COMMANDS.iter().filter(|command| **command != ["completions"]) {
        let text = help(command);
        assert!(text.contains("Exit code"), "{command:?}:\n{text}");
    }
}

#[test]
fn stores_and_the_secret_are_named_where_they_are_used() {
    for command in ["proxy", "serve", "complete", "sagas"] {
        let text = help(&[command]);
        // Only the gateway takes receipts that a restart forgets.
        assert_eq!(text.contains("memory:"), command == "proxy", "{command}:\n{text}");
        for form in onceward_stores::address_forms().filter(|form| form.form != "memory:") {
            assert!(
                text.contains(form.form) && text.contains(form.description),
                "{command}: {form:?}\n{text}"
            );
        }
        assert!(text.contains("ONCEWARD_STORE"));
    }
    for command in ["migrate", "dead", "relay"] {
        let text = help(&[command]);
        for form in onceward_stores::address_forms() {
            let is_listed = text.contains(&format!("  {} ", form.form)) && text.contains(form.description);
            assert_eq!(is_listed, form.is_database, "{command}: {form:?}\n{text}");
        }
        assert!(text.contains("ONCEWARD_STORE"), "{command}");
    }
    assert!(help(&["proxy"]).contains("ONCEWARD_SECRET"));
}

/// clap can require no option that a subcommand may be given before or after its name.
#[test]
fn a_missing_store_or_consumer_is_named() {
    for (words, missing) in [
        (&["dead", "list"][..], "--store is missing"),
        (&["dead", "show", "m-1", "--store", "sqlite:no-such-file.db"], "--consumer is missing"),
        (&["sagas", "list"], "--store is missing"),
    ] {
        let ended = onceward(words).env_remove("ONCEWARD_STORE").output().unwrap();
        let text = String::from_utf8(ended.stderr).unwrap();
        assert!(ended.status.code() == Some(2) && text.contains(missing), "{words:?}: {text}");
    }
}

/// The address of a database may have a password in it.
#[test]
fn help_shows_no_secret_of_the_environment() {
    for command in ["proxy", "serve", "complete", "migrate", "receipts", "dead", "relay", "sagas"] {
        let mut shown = onceward(&[command, "--help"]);
        shown
            .env("ONCEWARD_STORE", "postgres://app:sesame@db/shop")
            .env("ONCEWARD_ADMIN_TOKEN", "open-sesame");
        shown.env("ONCEWARD_SECRET", "sesame");
        let text = String::from_utf8(shown.output().unwrap().stdout).unwrap();
        assert!(!text.contains("sesame"), "{command}:\n{text}");
    }
}
