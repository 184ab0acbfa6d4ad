//! The zoo: small HTTP services, each with one mistake about retries that people really make, and a few correct
//! ones. They prove that the verifier catches mistakes and raises no false alarms.
//!
//! All use one HTTP server, [`frame`], and do the same work, [`shop`]. Most use `careful` and override the one step
//! that they get wrong.

pub mod cage;
mod careful;
mod durable;
mod failures;
mod fingerprints;
pub mod frame;
mod keys;
mod leases;
mod races;
mod receipt_map;
mod replays;
mod retention;
pub mod shop;
mod sound;
pub mod table;
pub mod tour;
pub mod visit;
