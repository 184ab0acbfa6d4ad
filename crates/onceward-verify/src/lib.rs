//! The judge: a conformance suite that every store passes, a deterministic simulator with a judge that
//! reads nothing but recorded histories, and broken variants that prove that the alarm rings.
//!
//! It knows the seams of [`onceward`], never its insides.

pub mod broken;
pub mod conformance;
pub mod reference;
pub mod sim;
