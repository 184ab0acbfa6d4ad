//! The judge: a conformance suite that every store passes, a deterministic simulator with a judge that
//! reads nothing but recorded histories, a black-box verifier of HTTP endpoints, and what is broken on
//! purpose to prove that the alarm rings.
//!
//! It knows the seams of [`onceward`], never its insides; [`endpoint`] knows not even those.

pub mod broken;
pub mod conformance;
pub mod endpoint;
pub mod reference;
pub mod sim;
pub mod zoo;
