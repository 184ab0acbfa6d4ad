//! The judge, judged.

mod broken;
mod conformance;
mod endpoint;
mod guarded;
mod sim;
mod zoo;
