//! The zoo: small HTTP services, each wrong about retries in one way that people really are, and a few that
//! are right. They prove that the verifier's alarm rings, and that it does not cry wolf.
//!
//! All live in one [`frame`] and do the same work in one [`shop`]. Most are `careful` in everything but
//! the one habit that they show.

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
