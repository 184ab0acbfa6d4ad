//! Dead letters as text.

use std::fmt::Write as _;

use crate::admin::dead_letters::shape::DeadLetterShown;

pub fn table(letters: &[DeadLetterShown]) -> String {
    let Some(first) = letters.iter().find(|letter| letter.state == "dead") else {
        return match letters {
            [] => "No dead letters.\n".into(),
            waiting => format!("No dead letters; {} wait to be tried again.\n", waiting.len()),
        };
    };
    let mut out = format!("{:<8} {:<36} {:<20} {:>5}  ERROR\n", "STATE", "MESSAGE", "ORDERING KEY", "TRIES");
    for letter in letters {
        let key = letter.ordering_key.as_deref().unwrap_or("");
        let error: String = letter.error.chars().filter(|char| !char.is_control()).take(100).collect();
        let (state, id) = (&letter.state, &letter.message);
        let _ = writeln!(out, "{state:<8} {id:<36} {key:<20} {:>5}  {error}", letter.tries);
    }
    let begin = &first.message;
    let _ = writeln!(
        out,
        "\nRetry or discard each when the cause is fixed. Begin with\n  onceward dead show {begin}"
    );
    out
}
