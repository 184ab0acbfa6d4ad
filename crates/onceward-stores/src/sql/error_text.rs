//! Puts the cause of a driver's error into its text. The drivers' own `Display` may hide it: `tokio-postgres` says
//! only "db error" for an error message of the server.

use std::error::Error as StdError;
use std::fmt;
use std::io;

#[cfg(any(feature = "mysql", feature = "postgres"))]
use onceward::{Applied, Error, ErrorKind, Result, Swapped};

/// An error whose text is its cause. The error itself is its source, for code that looks for it.
#[derive(Debug)]
pub(super) struct Explained<E> {
    text: String,
    error: E,
}

impl<E> Explained<E> {
    pub(super) fn new(text: impl Into<String>, error: E) -> Self {
        Self { text: text.into(), error }
    }
}

impl<E> fmt::Display for Explained<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<E: StdError + 'static> StdError for Explained<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.error)
    }
}

/// The last of the sources of an error, which is the one that says what happened.
pub(super) fn root<'a>(mut error: &'a (dyn StdError + 'static)) -> &'a (dyn StdError + 'static) {
    while let Some(source) = error.source() {
        error = source;
    }
    error
}

/// The message for a server without a connection. Only a failure of the network means that it cannot be reached.
pub(super) fn unreached(server: &str, error: &(dyn StdError + 'static)) -> String {
    match root(error).downcast_ref::<io::Error>() {
        Some(_) => format!("cannot reach {server}"),
        None => format!("cannot connect to {server}"),
    }
}

/// A server and its database as errors name them, such as "PostgreSQL at 127.0.0.1:5432, database `app`".
pub(super) fn server(name: &str, host: &str, database: Option<&str>) -> String {
    let database = database.map_or_else(String::new, |database| format!(", database `{database}`"));
    // A separator in a password that was not encoded makes the rest of the password look like a host or a database.
    if host.contains('@') || database.contains('@') {
        return format!("{name} (write `@` and `/` in a password as `%40` and `%2F`)");
    }
    if host.is_empty() { format!("{name}{database}") } else { format!("{name} at {host}{database}") }
}

/// The error of a store that is open, with the server in front: its reader may have several.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub fn named(server: &str, error: Error) -> Error {
    /// The end of the text of an error that may have been applied, which the named one says again.
    const MAYBE: &str = " (the write may have happened)";
    let text = error.to_string();
    if !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Full) || text.contains(server) {
        return error;
    }
    let text = text.strip_suffix(MAYBE).unwrap_or(&text);
    let named = Error::new(error.kind(), format!("{server}: {text}"));
    if error.applied() == Applied::Maybe { named.maybe_applied() } else { named }
}

/// The same for each answer of a batch.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(super) fn named_answers(server: &str, answers: Result<Vec<Swapped>>) -> Result<Vec<Swapped>> {
    let answers = answers.map_err(|error| named(server, error))?;
    let answers = answers.into_iter().map(|answer| match answer {
        Swapped::Failed(error) => Swapped::Failed(named(server, error)),
        answer => answer,
    });
    Ok(answers.collect())
}

#[cfg(test)]
#[path = "error_text_test.rs"]
mod tests;
