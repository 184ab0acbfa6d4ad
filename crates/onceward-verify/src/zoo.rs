//! The zoo: small HTTP services, each with one mistake about retries that people really make, and a few correct
//! ones. They prove that the verifier catches mistakes and raises no false alarms.
//!
//! All use one HTTP server, [`server`], and do the same work, [`charges`]. Most use `careful` and override the one step
//! that they get wrong.

mod careful;
pub mod charges;
pub mod check_all;
pub mod check_service;
pub mod clients;
mod compared;
mod durable;
pub mod events;
mod failures;
mod fingerprints;
mod keys;
mod leases;
pub mod limits;
mod races;
mod receipt_map;
mod replays;
mod retention;
pub mod server;
mod sound;
pub mod start;
pub mod table;
mod versions;
