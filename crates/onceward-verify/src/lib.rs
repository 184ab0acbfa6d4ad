//! Tests for idempotency: [conformance] suites that every store and every transaction driver passes, a
//! deterministic [simulator](sim) with a judge that reads nothing but recorded histories, a black-box verifier of
//! HTTP [endpoints](endpoint), and what is [broken] on purpose to prove that all of these notice.
//!
//! It knows the seams of [`onceward`], never its insides; [`endpoint`] knows not even those.

#[cfg(feature = "sim")]
pub mod broken;
pub mod conformance;
#[cfg(feature = "endpoint")]
pub mod endpoint;
#[cfg(any(feature = "sim", feature = "endpoint"))]
#[cfg_attr(not(feature = "sim"), allow(dead_code, reason = "an endpoint needs less chance than a world"))]
mod random;
#[cfg(feature = "sim")]
pub mod reference;
#[cfg(feature = "sim")]
pub mod sim;
#[cfg(feature = "zoo")]
pub mod zoo;
