//! Tests of the binary with real processes, sockets and kills.

mod admin;
mod complete;
mod dead;
mod demo;
mod documents;
mod gateway;
mod help;
mod output;
mod process;
mod receipts;
#[cfg(feature = "nats")]
mod relay;
mod telemetry;

#[path = "../../../onceward-stores/tests/servers/mod.rs"]
mod servers;
