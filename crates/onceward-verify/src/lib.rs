//! Tests for idempotency: [conformance] suites that every store and every transaction driver passes, a
//! deterministic [simulator](sim) with a judge that reads nothing but recorded histories, a black-box verifier of
//! HTTP [endpoints](endpoint), and what is [broken] on purpose to prove that all of these notice.
//!
//! It knows the seams of [`onceward`], never its insides; [`endpoint`] knows not even those.

pub mod broken;
pub mod conformance;
pub mod endpoint;
pub mod reference;
pub mod sim;
pub mod zoo;
