//! The drivers.

pub mod memory;
