//! Variants that are broken on purpose: each has one mistake that people really make, and must be caught. A variant
//! that passes shows a gap in the checker or in the conformance suite.
//!
//! A variant replaces one part that the engine lets its user replace: its store, its transactions, its runtime, its
//! rules, its sweep, its workers, its callers or its operators. A mistake that would be inside an engine is made
//! outside of this one, with the same effect; [`table`] says where.

pub mod callers;
pub mod fronts;
pub mod operators;
mod records;
mod rules;
pub mod runtimes;
pub mod search;
pub mod stores;
pub mod sweeps;
pub mod table;
pub mod transactions;
pub mod workers;
