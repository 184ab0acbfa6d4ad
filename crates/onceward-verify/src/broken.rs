//! Broken on purpose: each variant has one fault that people really make, and must be caught. A judge
//! that lets one pass is blind there.

pub mod stores;
pub mod sweeps;
pub mod worlds;
