//! Broken on purpose: each variant has one fault that people really make, and must be caught. A judge
//! that lets one pass is blind there.
//!
//! A variant is made by putting something wrong where the engine lets something be put: its store, its
//! transactions, its surroundings, its rules, its sweep, its workers, or those who ask and decide in front of it.
//! Mistakes that live inside an engine are made outside of this one in a way that has the same effect; [`table`]
//! says where.

pub mod callers;
pub mod hunt;
pub mod operators;
mod records;
mod rules;
pub mod runtimes;
pub mod stores;
pub mod sweeps;
pub mod table;
pub mod transactions;
pub mod workers;
