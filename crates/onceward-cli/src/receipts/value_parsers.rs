//! Parsers of arguments that are values of the receipts API. The names are those of the API, and the help explains each.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde::de::DeserializeOwned;

use crate::admin::shape::{Preset, State, Verdict};

/// The state of a receipt.
pub fn state() -> impl TypedValueParser<Value = State> {
    parser(&[
        ("waiting", "No run has begun; a worker or the next retry begins one"),
        ("held", "It is running, under a lease"),
        ("done", "The outcome is recorded, or the intent was closed"),
        ("unknown", "It may or may not have taken effect; it must be settled"),
        ("dead", "Its tries are used up; retry or discard it"),
        ("gone", "The outcome was removed at the end of its retention; the key is still refused"),
    ])
}

/// The state of this name.
pub fn state_named(name: &str) -> Result<State, String> {
    serde_json::from_value(name.into())
        .map_err(|_| format!("state: `{name}` is not one of waiting, held, done, unknown, dead, gone"))
}

/// The preset of a policy.
pub fn preset() -> impl TypedValueParser<Value = Preset> {
    parser(&[("http", "24 hours"), ("queue", "7 days"), ("ledger", "Forever")])
}

/// The verdict of an outcome.
pub fn verdict() -> impl TypedValueParser<Value = Verdict> {
    parser(&[
        ("succeeded", "The operation did what was requested"),
        ("failed", "The operation failed, and a retry does not run it again: a declined card"),
    ])
}

fn parser<T: DeserializeOwned + Clone + Send + Sync + 'static>(
    names: &[(&'static str, &'static str)],
) -> impl TypedValueParser<Value = T> {
    let values = names.iter().map(|(name, help)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(values)
        .map(|name| serde_json::from_value(name.into()).expect("each name above is a value of the API"))
}

#[cfg(test)]
#[path = "value_parsers_test.rs"]
mod tests;
