//! Tests of the verifiers themselves.

mod broken;
mod clients;
mod conformance;
mod conformance_flaws;
mod endpoint;
mod guarded;
mod options;
mod sentences;
mod sim;
mod transactions;
mod transactions_flaws;
mod unreadable;
mod zoo;
