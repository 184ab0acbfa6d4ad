//! Values of the receipts API as arguments: their names are those of the API, and each is explained in the help.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde::de::DeserializeOwned;

use crate::admin::shape::{Preset, State, Verdict};

/// Where a receipt is in its life.
pub fn state() -> impl TypedValueParser<Value = State> {
    choice(&[
        ("waiting", "No run has begun; a worker or the next request begins one"),
        ("held", "It is running, under a lease"),
        ("done", "The outcome is recorded, or the intent was closed"),
        ("unknown", "It may or may not have taken effect; somebody has to settle it"),
        ("dead", "It was tried as often as allowed; somebody has to look at it"),
        ("gone", "The outcome was removed at the end of its retention; the key is still refused"),
    ])
}

/// A policy to start from.
pub fn preset() -> impl TypedValueParser<Value = Preset> {
    choice(&[("http", "24 hours"), ("queue", "7 days"), ("ledger", "Forever")])
}

/// Whether the work got done.
pub fn verdict() -> impl TypedValueParser<Value = Verdict> {
    choice(&[
        ("succeeded", "It did what was asked"),
        ("failed", "It ended without what was asked: a declined card stays declined"),
    ])
}

fn choice<T: DeserializeOwned + Clone + Send + Sync + 'static>(
    names: &[(&'static str, &'static str)],
) -> impl TypedValueParser<Value = T> {
    let values = names.iter().map(|(name, help)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(values)
        .map(|name| serde_json::from_value(name.into()).expect("each name above is one of the API"))
}

#[cfg(test)]
#[path = "choices_test.rs"]
mod tests;
