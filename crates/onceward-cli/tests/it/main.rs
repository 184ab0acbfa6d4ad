//! Tests of the binary with real processes, sockets and kills.

mod admin;
mod complete;
mod dead;
mod dead_admin;
mod demo;
mod documents;
mod gateway;
mod help;
mod machine;
mod output;
mod process;
mod receipts;
mod relay;
mod saga_kill;
mod sagas;
mod telemetry;
mod verify;

#[path = "../../../onceward-stores/tests/servers/mod.rs"]
mod servers;
