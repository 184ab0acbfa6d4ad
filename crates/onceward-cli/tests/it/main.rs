//! The binary as its users meet it: real processes, real sockets, real kills.

mod admin;
mod complete;
mod demo;
mod gateway;
mod help;
mod output;
mod process;
mod receipts;
mod telemetry;

#[path = "../../../onceward-stores/tests/servers/mod.rs"]
mod servers;
