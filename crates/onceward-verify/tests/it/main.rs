//! The judge, judged.

mod conformance;
mod sim;
