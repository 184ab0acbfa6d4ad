//! Messages, from outside: one binary, a module per topic. Every test is against real servers.

#![allow(clippy::large_futures, reason = "a test is one long future")]

mod chain;
mod consumer;
mod nats;
mod outbox;
mod relay;
#[path = "../../../onceward-stores/tests/servers/mod.rs"]
mod servers;
mod support;
