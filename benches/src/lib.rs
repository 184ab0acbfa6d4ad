//! What the benchmark binaries share.

#![allow(missing_docs, reason = "nothing here is for others")]

pub mod client;
pub mod duplicates;
pub mod embedded;
pub mod engine;
pub mod growth;
pub mod layer;
pub mod postgres;
pub mod table;

#[path = "../../crates/onceward-stores/tests/servers/mod.rs"]
mod servers;
