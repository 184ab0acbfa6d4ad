//! Dead letters as text.

use std::fmt::Write as _;

use crate::admin::dead_letters::shape::DeadLetterShown;
use crate::receipts::explain::shell_quoted;
use crate::receipts::table::columns;

/// Those of one consumer.
pub fn table(letters: &[DeadLetterShown]) -> String {
    let Some(first) = letters.iter().find(|letter| letter.state == "dead") else { return none(letters) };
    let mut out = format!("{:<8} {:<36} {:<20} {:>5}  ERROR\n", "STATE", "MESSAGE", "ORDERING KEY", "TRIES");
    for letter in letters {
        let key = letter.ordering_key.as_deref().unwrap_or("");
        let (state, id) = (&letter.state, &letter.message);
        let _ = writeln!(out, "{state:<8} {id:<36} {key:<20} {:>5}  {}", letter.tries, error(letter));
    }
    out + &begin_with(&first.message)
}

/// Those of all consumers, each with its source and consumer.
pub fn table_of_all(letters: &[DeadLetterShown]) -> String {
    let Some(first) = letters.iter().find(|letter| letter.state == "dead") else { return none(letters) };
    let rows = letters.iter().map(|letter| {
        let key = letter.ordering_key.clone().unwrap_or_default();
        let [state, source, consumer, id] =
            [&letter.state, &letter.source, &letter.consumer, &letter.message].map(String::clone);
        [source, consumer, state, id, key, letter.tries.to_string(), error(letter)]
    });
    let head = ["SOURCE", "CONSUMER", "STATE", "MESSAGE", "ORDERING KEY", "TRIES", "ERROR"];
    let [source, consumer, id] =
        [&first.source, &first.consumer, &first.message].map(|part| shell_quoted(part));
    columns(head, rows) + &begin_with(&format!("--source {source} --consumer {consumer} {id}"))
}

fn none(letters: &[DeadLetterShown]) -> String {
    match letters {
        [] => "No dead letters.\n".into(),
        waiting => format!("No dead letters; {} wait to be tried again.\n", waiting.len()),
    }
}

fn error(letter: &DeadLetterShown) -> String {
    letter.error.chars().filter(|char| !char.is_control()).take(100).collect()
}

fn begin_with(shown: &str) -> String {
    format!("\nRetry or discard each when the cause is fixed. Begin with\n  onceward dead show {shown}\n")
}
