//! Broken on purpose: each variant has one fault that people really make, and must be caught. A judge
//! that lets one pass is blind there.
//!
//! A variant is made by putting something wrong where the engine lets something be put: its store, its
//! surroundings, its rules, its sweep, its completer, or the caller in front of it. Mistakes that live inside an engine
//! are made outside of this one in a way that has the same effect; [`table`] says where.

pub mod callers;
pub mod completers;
pub mod hunt;
mod rules;
pub mod stores;
pub mod sweeps;
pub mod table;
pub mod worlds;
