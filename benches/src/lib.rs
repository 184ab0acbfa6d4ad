//! Benchmarks of Onceward next to the alternatives, measured side by side in one run.
//!
//! ```text
//!  catalogue (names) ─▶ compare/* (one file a benchmark) ─▶ Findings ─▶ Report ─▶ table, JSON, HTML
//!                          turns: A B A B …   load: callers in a closed loop   process: programs beside us
//! ```

#![allow(clippy::cast_precision_loss, reason = "a benchmark shows a few digits")]

pub mod catalogue;
pub mod compare;
pub mod latency;
pub mod load;
pub mod process;
pub mod report;
pub mod scale;
pub mod turns;

#[path = "../../crates/onceward-stores/tests/servers/mod.rs"]
mod servers;
