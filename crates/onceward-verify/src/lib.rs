#![doc = include_str!("../README.md")]

#[cfg(feature = "sim")]
#[doc(hidden)]
pub mod broken;
#[cfg(feature = "endpoint")]
pub mod client_check;
pub mod conformance;
#[cfg(feature = "endpoint")]
pub mod endpoint;
#[cfg(feature = "endpoint")]
pub mod openapi;
#[cfg(any(feature = "sim", feature = "endpoint"))]
#[cfg_attr(
    not(feature = "sim"),
    allow(dead_code, reason = "an endpoint check uses fewer methods than a simulation")
)]
mod random;
#[cfg(feature = "sim")]
#[doc(hidden)]
pub mod reference;
#[cfg(feature = "sim")]
#[doc(hidden)]
pub mod sim;
#[cfg(feature = "zoo")]
#[doc(hidden)]
pub mod zoo;

/// The example of the user's page, which must compile.
#[cfg(all(doctest, feature = "endpoint"))]
#[doc = include_str!("../../../docs/verify.md")]
mod verify_page {}
