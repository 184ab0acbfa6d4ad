//! What the benchmark binaries share.

#![allow(missing_docs, reason = "nothing here is for others")]

pub mod engine;
pub mod table;
