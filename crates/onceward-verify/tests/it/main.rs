//! The judge, judged.

mod broken;
mod conformance;
mod sim;
